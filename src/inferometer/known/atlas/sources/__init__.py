"""One module a form in which others publish: the columns that recognise it, and a line → measurements."""

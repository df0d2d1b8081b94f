"""Forms in which others publish, a module a publisher: the columns that recognise one, and a line → measurements."""

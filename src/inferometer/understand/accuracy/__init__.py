"""How accurate predictions are: measured cases, devices left out, other tools, and the page that shows it."""

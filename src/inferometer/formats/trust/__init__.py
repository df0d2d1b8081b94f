"""Which files could bring code along, and the one door that a file passes before an engine or a tool opens it.

`door` says of each format what it could run and what keeps it from that, looks at configs that name code, knows what
this machine compiled itself, and is called by every loader. Below it: `archive` (zip files) and `programs` (exported by
PyTorch). Nothing of a file is executed here, and no engine is imported.
"""

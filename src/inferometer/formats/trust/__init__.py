"""Which files could bring code along, and the one door that a file passes before an engine or a tool opens it.

`formats` says of each format what it could run and what keeps it from that; `door` is called by every loader. Below
both: `archive` (zip files), `pickles`, `programs` (exported by PyTorch), `folders` (configs that name code),
`made_here` (what this machine compiled itself). Nothing of a file is executed here, and no engine is imported.
"""

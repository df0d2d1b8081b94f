"""Networks that no package here has under one name: YOLO in its generations, the nets of phones' and boards' tables.

`shipped` finds their graphs in the files that come with Inferometer, which workshop/networks makes.
"""

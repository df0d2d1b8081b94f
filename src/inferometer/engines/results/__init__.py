"""Other tools' results as profiles: `inferometer import FILE`.

Each source has its module here, and its page section in docs/importers.md with what is taken and what stays unknown.
"""

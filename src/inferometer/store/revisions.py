"""The version of the tables. Apart from them, for those who look into a file without SQLAlchemy."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")  # every migration, oldest first
VERSION_TABLE = "inferometer_version"  # of our own name: a database may hold another program's alembic_version

"""Alembic runs this, on the connection it is given and inside its transaction."""

from alembic import context

from inferometer.store.location import VERSION_TABLE
from inferometer.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite changes a table by making it anew
)
context.run_migrations()

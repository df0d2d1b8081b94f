"""Check that a database has the current tables, and migrate it. Alembic is loaded only when there is work for it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, inspect, text

from inferometer.core.errors import MissingDependencyError, SchemaError
from inferometer.store.engine import Database
from inferometer.store.errors import StoreError
from inferometer.store.location import REVISIONS, VERSION_TABLE
from inferometer.store.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

_LOCK = 0x1F20E7E2  # a number of our own: PostgreSQL's advisory locks are numbers

_THERE = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name",
    # A query, and not to_regclass: that answers from a cache that stays as it was while we waited for the lock.
    "postgresql": (
        "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = ANY(current_schemas(false)) AND tablename = :name"
    ),
}


def prepare(database: Database) -> None:
    """Make the tables, or bring them up to date; quick where nothing is to be done."""
    revision = _look(database)
    _require_known(revision, database)
    if revision == REVISIONS[-1]:
        return
    if database.read_only:
        raise StoreError(
            f"The store {database.location} has no tables of this version, and is open for reading only.",
            remedy="Open it once for writing.",
        )
    database.write(lambda connection: _migrate(connection, database))


def _look(database: Database) -> str | None:
    with database.reading() as connection:
        return revision_of(connection)


def revision_of(connection: Connection) -> str | None:
    """The version row; None in a database that has none of our tables."""
    there = _THERE[connection.dialect.name]
    if connection.execute(text(there), {"name": VERSION_TABLE}).scalar() is None:
        return None
    revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - our own name
    return None if revision is None else str(revision)


def _require_known(revision: str | None, database: Database) -> None:
    if revision is not None and revision not in REVISIONS:
        raise SchemaError(
            f"The store {database.location} was made by a newer version of Inferometer: its tables are {revision}, and "
            f"this version knows up to {REVISIONS[-1]}.",
            remedy="Upgrade with `pip install --upgrade inferometer`, or choose another store with INFEROMETER_STORE.",
        )


def _migrate(connection: Connection, database: Database) -> None:
    """One process brings the tables up; others that start at the same moment wait here, and then find it done."""
    if database.postgres:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    revision = revision_of(connection)
    _require_known(revision, database)
    if revision is None:
        strange = sorted(set(metadata.tables) & set(inspect(connection).get_table_names()))
        if strange:
            raise StoreError(
                f"The database {database.location} has tables of another program by our names: {', '.join(strange)}.",
                remedy="Give Inferometer a file or database of its own.",
            )
    if revision != REVISIONS[-1]:
        run_alembic("upgrade", connection, "head")


def downgrade(database: Database, revision: str) -> None:
    """Back to an earlier version's tables; `base` drops them all. What that version does not know is lost."""

    def work(connection: Connection) -> None:
        run_alembic("downgrade", connection, revision)

    database.write(work)


def run_alembic(name: str, connection: Connection, revision: str) -> None:
    """`upgrade` or `downgrade` the tables, inside the connection's transaction."""
    try:
        from alembic import command  # noqa: PLC0415 - half a second, and seldom needed
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "Making the store's tables needs alembic, which is not installed.", remedy="pip install 'inferometer[hub]'"
        ) from None
    run: Any = getattr(command, name)
    run(_config(connection), revision)


def _config(connection: Connection) -> "Config":
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config

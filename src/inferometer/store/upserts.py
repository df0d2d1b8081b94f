"""Upserts: an INSERT that may meet an existing row. Both databases have it, each through its own class.

The statements are made once: building one anew takes SQLAlchemy longer than SQLite takes to run it.
"""

from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, func

from inferometer.store.tables import metadata


def put_new(connection: Connection, table: str, rows: Any) -> int:
    """Insert what is not there yet; gives how many of one row that was."""
    # Without the option SQLAlchemy says -1 for an INSERT on PostgreSQL, whether it found the row there or not.
    counted = {"preserve_rowcount": True}
    done = connection.execute(_new(connection.dialect.name, table), _one(rows), execution_options=counted)
    return int(done.rowcount)


def put(
    connection: Connection, table: str, rows: Any, *, over: tuple[str, ...], unless_null: str | None = None
) -> None:
    """Insert, or write the columns `over` of the row that is there; `unless_null` keeps its old value for a null."""
    connection.execute(_over(connection.dialect.name, table, over, unless_null), _one(rows))


def _one(rows: Any) -> Any:
    """A list of one as that one: the way for many costs more on PostgreSQL."""
    return rows[0] if isinstance(rows, list) and len(rows) == 1 else rows


def _insert(dialect: str, table: str) -> Any:
    of = metadata.tables[table]
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - all its drivers, a tenth of opening a store

        return postgresql.insert(of)
    from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - as above

    return sqlite.insert(of)


@lru_cache
def _new(dialect: str, table: str) -> Any:
    return _insert(dialect, table).on_conflict_do_nothing()


@lru_cache
def _over(dialect: str, table: str, over: tuple[str, ...], unless_null: str | None) -> Any:
    statement, of = _insert(dialect, table), metadata.tables[table]
    new = {name: statement.excluded[name] for name in over}
    if unless_null is not None:
        new[unless_null] = func.coalesce(statement.excluded[unless_null], of.c[unless_null])
    return statement.on_conflict_do_update(index_elements=[column.name for column in of.primary_key], set_=new)

"""What the tests of the store share."""

import pytest
from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql

from inferometer.store import open_store
from inferometer.store.tables import metadata

START = 1_760_000_000.0


class Clock:
    """Stands still until it is moved."""

    now = START

    def __call__(self):
        return self.now


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """An empty store to copy: making one takes longer than a test."""
    path = tmp_path_factory.mktemp("store") / "runs.db"
    open_store(path).close()
    return path


@pytest.fixture(scope="session")
def _one_store(tmp_path_factory):
    with open_store(tmp_path_factory.mktemp("one") / "runs.db", clock=Clock()) as opened:
        yield opened


@pytest.fixture
def store(_one_store):
    """The same store for all, empty again, at START: a new one would prepare all its statements anew."""
    tables = reversed(metadata.sorted_tables)
    _one_store.database.write(lambda connection: [connection.execute(table.delete()) for table in tables])
    _one_store._clock.now = START
    yield _one_store
    assert not overlong(_one_store), "PostgreSQL would refuse them, and SQLite keeps them"


POSTGRESQL = postgresql.dialect()
LENGTHS = [
    {
        column: most
        for column in table.columns
        if (most := getattr(column.type.dialect_impl(POSTGRESQL), "length", None)) is not None
    }
    for table in metadata.sorted_tables
]


def overlong(store):
    """Columns with a text that is longer than they are."""
    found = []
    with store.database.engine.connect() as connection:
        for columns in filter(None, LENGTHS):
            longest = connection.execute(select(*(func.max(func.length(column)) for column in columns))).one()
            found += [str(each) for each, most in zip(columns, longest, strict=True) if (most or 0) > columns[each]]
    return found


@pytest.fixture
def clock(store):
    return store._clock

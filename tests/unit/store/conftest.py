"""What the tests of the store share."""

import pytest

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
    return _one_store


@pytest.fixture
def clock(store):
    return store._clock

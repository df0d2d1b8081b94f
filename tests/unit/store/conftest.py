"""What the tests of the store share."""

import pytest

from inferometer.store import open_store


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """An empty store to copy: making one takes longer than a test."""
    path = tmp_path_factory.mktemp("store") / "runs.db"
    open_store(path).close()
    return path

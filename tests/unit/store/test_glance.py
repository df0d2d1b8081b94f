"""A glance finds the profile that the store would find, or nothing."""

import sqlite3

import pytest

from inferometer.core.errors import InferometerError
from inferometer.store import open_store
from inferometer.store.glance import profile_at_a_glance
from inferometer.store.location import VERSION_TABLE
from unit.store.profiles import profile


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "runs.db") as opened:
        for number, name in enumerate(("first", "twice", "twice", None)):
            opened.add(profile(number + 2), name=name)
        opened.begin("default", name="running")
        yield opened


def in_store(store, name):
    try:
        return store.get(name).profile
    except InferometerError:
        return None


def test_a_glance_and_the_store_find_the_same(store, tmp_path):
    rows = store.list().rows
    names = ["first", "twice", "running", "last", "last~1", "last~3", "last~4", "LAST", "nothing", "", "first "]
    for name in [*names, *(row.id for row in rows), *(row.id.upper() for row in rows)]:
        assert profile_at_a_glance(name, tmp_path / "runs.db") == in_store(store, name), name


def test_part_of_an_id_is_left_to_the_store(store, tmp_path):
    assert profile_at_a_glance(store.list().rows[-1].id[:11], tmp_path / "runs.db") is None


def test_another_version_is_left_to_the_store(store, tmp_path):
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")  # noqa: S608 - our own name
    assert profile_at_a_glance("last", tmp_path / "runs.db") is None
    assert profile_at_a_glance("last", tmp_path / "absent.db") is None
    assert not (tmp_path / "absent.db").exists()

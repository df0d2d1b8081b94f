"""A SQLite store where things go wrong: damaged, read-only, full, busy, not there."""

import random
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex

from inferometer.core.errors import DomainError, MissingDependencyError
from inferometer.core.profile import Phase
from inferometer.store import Attachment, Filter, StoreError, engine, open_store
from inferometer.store.location import VERSION_TABLE
from inferometer.store.tables import metadata
from unit.store.profiles import profile


@pytest.fixture
def place(tmp_path):
    return tmp_path / "runs.db"


def test_a_missing_folder_is_made(tmp_path):
    with open_store(tmp_path / "a" / "b" / "runs.db") as store:
        store.add(profile())
    assert (tmp_path / "a" / "b" / "runs.db").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be made"):
        open_store(tmp_path / "file" / "runs.db")


def test_a_commit_is_on_the_disk_when_it_returns(place):
    with open_store(place) as store, store.database.reading() as connection:
        ask = lambda name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()  # noqa: E731 - three words
        assert (ask("journal_mode"), ask("synchronous"), ask("foreign_keys")) == ("wal", 2, 1)


@pytest.mark.parametrize(
    "bytes_", [b"not a database at all, but long enough to look at" * 40, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_file_that_is_no_store_is_told_and_left(place, bytes_):
    place.write_bytes(bytes_)
    with pytest.raises(StoreError, match="damaged") as caught:
        open_store(place)
    assert "Move it away" in caught.value.remedy or "move it away" in caught.value.remedy
    assert place.read_bytes() == bytes_


def test_a_damaged_page_is_told(place):
    with open_store(place) as store:
        for number in range(1, 200):
            store.add(profile(number), name="x" * 150)
    with closing(sqlite3.connect(place)) as plain:
        plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(place.read_bytes())
    data[4096 * 4 :] = b"\xa5" * len(data[4096 * 4 :])
    place.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"), open_store(place) as store:
        store.list(sort="name")


def test_a_damaged_profile_is_told_by_its_run(place):
    with open_store(place) as store:
        run = store.add(profile())
        with closing(sqlite3.connect(place)) as plain:
            plain.execute("UPDATE profiles SET document = x'00112233'")
            plain.commit()
        with pytest.raises(StoreError, match=f"profile of run {run} is damaged"):
            store.get(run)
        assert store.row(run).status == "finished"  # the rest of it is still there


def test_a_full_disk_loses_nothing_that_was_there(place):
    with open_store(place) as store:
        kept = store.add(profile())
        run = store.begin()
        noise = tuple(random.Random(0).random() for _ in range(10_000))  # noqa: S311 - what cannot be packed
        large = replace(profile(), phases=(Phase(name="forward", time_s=1.0, samples_s=noise),))
        pages = "PRAGMA page_count"

        def fill(connection, *_):
            connection.execute(f"PRAGMA max_page_count={connection.execute(pages).fetchone()[0]}")

        store.database.engine.dispose()
        event.listen(store.database.engine, "connect", fill)  # SQLite's own word for a full disk from here on
        with pytest.raises(StoreError, match="the disk is full"):
            add_many(store)
        with pytest.raises(StoreError, match="the disk is full"):
            store.finish(run, large)
        assert {run, kept} <= {row.id for row in store.list(limit=1000).rows}  # and all of it can be seen
        event.remove(store.database.engine, "connect", fill)
        store.database.engine.dispose()
        assert store.get(kept).profile == profile()
        store.finish(run, large)  # there is room again
        assert store.get(run).profile == large


def add_many(store):
    for number in range(1000):
        store.add(profile(number), name="y" * 200)


READER = """
import os, sys
from inferometer.core.errors import InferometerError
from inferometer.store import open_store
place = sys.argv[1]
with open_store(place) as store:
    store.finish(store.begin())  # so that all that is needed is loaded
for path, mode in ((place, 0o444), (os.path.dirname(place), 0o555)):
    os.chmod(path, mode)
if os.geteuid() == 0:
    os.setuid(65534)
try:
    with open_store(place) as store:
        print(len(store.list().rows), "run")
        store.begin()
except InferometerError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are other there")
def test_a_file_that_may_not_be_written_is_told():
    with tempfile.TemporaryDirectory() as folder:
        found = subprocess.run(
            [sys.executable, "-c", READER, f"{folder}/runs.db"], capture_output=True, text=True, check=False
        )
        Path(folder).chmod(0o700)
    assert "Traceback" not in found.stderr, found.stderr
    assert found.stdout.startswith("1 run\n")  # what is there can still be seen
    assert "may not be written to" in found.stdout or "cannot be opened" in found.stdout
    assert "INFEROMETER_STORE" in found.stdout


def test_a_store_may_be_opened_for_reading_only(place):
    with open_store(place) as store:
        run = store.begin()
    with open_store(place, read_only=True) as store:
        assert store.get(run).id == run
        with pytest.raises(StoreError, match="for reading only"):
            store.finish(run)
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(place.with_name("nowhere.db"), read_only=True)


def test_a_writer_waits_for_another(place):
    waited = []
    with open_store(place) as store, closing(sqlite3.connect(place, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        def go_away(seconds):
            waited.append(seconds)
            other.execute("COMMIT")

        impatient(store)
        object.__setattr__(store.database, "pause", go_away)
        run = store.begin()
        assert len(waited) == 1
        assert store.row(run).status == "running"


def test_a_writer_does_not_wait_for_ever(place, monkeypatch):
    monkeypatch.setattr("inferometer.store.engine._PATIENCE_S", 0.0)
    with open_store(place) as store, closing(sqlite3.connect(place, isolation_level=None)) as other:
        impatient(store)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="held by another program"):
            store.begin()
        assert store.list().rows == ()  # readers never wait
        other.execute("ROLLBACK")


def impatient(store):
    store.database.engine.dispose()
    event.listen(store.database.engine, "connect", lambda connection, _: connection.execute("PRAGMA busy_timeout=0"))


QUICK = """
import sys
from inferometer.store import open_store
open_store(sys.argv[1]).close()
print("alembic" in sys.modules, "psycopg" in sys.modules)
"""


def test_alembic_is_loaded_only_to_make_the_tables(place):
    command = [sys.executable, "-c", QUICK, str(place)]
    said = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)]
    assert said == [["True", "False"], ["False", "False"]]


def test_the_package_loads_no_database_by_itself():
    code = "import sys, inferometer.store, inferometer.store.recording; print('sqlalchemy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_without_the_extra_the_remedy_is_told(monkeypatch, place):
    from inferometer.store.location import require_database

    monkeypatch.setattr("inferometer.store.location.find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match="sqlalchemy and alembic") as caught:
        require_database()
    assert "inferometer[hub]" in caught.value.remedy


def test_an_address_that_is_none_is_told():
    with pytest.raises(DomainError, match="not the address"):
        open_store("postgresql://host:notaport/db")


def test_a_file_that_cannot_be_kept_leaves_the_run_open(place, monkeypatch):
    with open_store(place) as store:
        run = store.begin()
        with pytest.raises(DomainError, match="cannot be read"):
            store.finish(run, profile(), attachments=[Attachment(name="f", source=place.with_name("nowhere"))])
        assert (store.row(run).status, store.get(run).profile) == ("running", None)


def test_a_store_whose_connections_are_all_in_use_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_POOL", {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.01})
    with open_store(tmp_path / "runs.db") as store, store.database.reading():
        with pytest.raises(StoreError, match="too much to do at the moment"):
            store.count()
        with pytest.raises(StoreError, match="too much to do at the moment"):
            store.begin()


def test_every_column_is_in_the_file_as_it_is_described(template):
    """By SQLite's own words: which may be empty, which are the key, what they point to and what finds them."""
    with closing(sqlite3.connect(template)) as connection:
        for table in metadata.sorted_tables:
            there = {row[1]: row for row in connection.execute(f"PRAGMA table_info({table.name})")}
            assert set(there) == {column.name for column in table.columns}
            for column in table.columns:
                may_be_empty, of_key = not there[column.name][3], there[column.name][5] > 0
                assert (may_be_empty and not of_key) == column.nullable, f"{table.name}.{column.name}"
                assert of_key == column.primary_key, f"{table.name}.{column.name}"
                assert there[column.name][2] == column.type.compile(dialect=sqlite.dialect())
                default = "" if column.server_default is None else str(column.server_default.arg)
                written = {"false": "0", "true": "1"}.get(default, default)
                assert (there[column.name][4] or "").strip("'") == written, f"{table.name}.{column.name}"
            points = {
                (row[3], row[2], row[4], row[6]) for row in connection.execute(f"PRAGMA foreign_key_list({table.name})")
            }
            assert points == {
                (key.parent.name, key.column.table.name, key.column.name, key.ondelete or "NO ACTION")
                for key in table.foreign_keys
            }
            made = "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
            indexes = {" ".join(sql.split()) for (sql,) in connection.execute(made, (table.name,))}
            described = {str(CreateIndex(index).compile(dialect=sqlite.dialect())) for index in table.indexes}
            assert indexes == {" ".join(sql.split()) for sql in described}


def test_open_runs_are_found_by_their_index_whatever_the_rest(place):
    """Each page that is open asks for them every second: it must not go through a hundred thousand others."""
    asked = []
    with open_store(place) as store:
        with store.database.reading() as connection:
            event.listen(connection.engine, "before_cursor_execute", lambda *given: asked.append(given[2:4]))
        store.list(Filter(status=("running", "pending")))
        with closing(sqlite3.connect(place)) as beside:
            (query, given), *_ = [(text, words) for text, words in asked if "ORDER BY runs.created_us" in text]
            plan = " ".join(row[3] for row in beside.execute(f"EXPLAIN QUERY PLAN {query}", given))
    assert "ix_runs_open" in plan


def test_a_file_with_nothing_but_an_empty_mark_of_a_version_becomes_a_store(place):
    """As one that was taken all the way down leaves it."""
    with closing(sqlite3.connect(place)) as connection:
        connection.execute(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)")
    with open_store(place) as store:
        assert store.count() == 0

"""A store is backed up, restored and copied with every row and file, on SQLite and PostgreSQL and between them."""

import hashlib
import json
import shutil
import threading
import zipfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import MetaData, insert, select, update

from fakes.fleet import DEVICES, submitted
from inferometer.core.errors import FormatError, InferometerError, SchemaError
from inferometer.store import Attachment, StoreError, open_store
from inferometer.store import backup as backups
from inferometer.store.backup import Backup, check_backup, copy_store, restore_backup, table_parts, write_backup
from inferometer.store.location import REVISIONS
from inferometer.store.queue.fleet import Fleet
from inferometer.store.schema import downgrade
from inferometer.store.tables import fleet_files, metrics, runs
from inferometer.store.transfer import models_folder, opened_to_fill
from unit.store.profiles import profile

KINDS = ("sqlite", "postgresql")


@pytest.fixture
def new_place(request, tmp_path, template):
    """Gives places of new stores of either kind, with their tables: making those takes longer than most tests."""
    made = []

    def place(kind):
        made.append(kind)
        if kind == "postgresql":
            return request.getfixturevalue("postgres_server").new_store()
        (tmp_path / f"store{len(made)}").mkdir()
        return str(shutil.copy(template, tmp_path / f"store{len(made)}" / "runs.db"))

    return place


@contextmanager
def opened(place, tmp_path, name):
    """A PostgreSQL store has its files where it is told to."""
    with open_store(place, artifacts=tmp_path / f"{name}.artifacts") as store:
        yield store


@pytest.fixture(params=KINDS)
def filled(request, fillings, tmp_path):
    """A store with something in nearly every table, and a run that points to one that comes after it."""
    place, token, pair = fillings(request.param)
    shutil.copytree(place.parent, tmp_path, dirs_exist_ok=True)
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_server")
        here = server.copied(place.read_text(encoding="utf-8"))
    else:
        here = tmp_path / place.name
    with opened(here, tmp_path, "filled") as store:
        store.token, store.pair = token, pair
        yield store


@pytest.fixture(scope="module")
def fillings(request, tmp_path_factory, template):
    """One of each kind, closed, to be copied: its file, or one with its address; a token and two runs of it."""

    @cache
    def made(kind):
        folder = tmp_path_factory.mktemp(kind)
        if kind == "sqlite":
            place = here = folder / "filled.db"
            shutil.copy(template, place)
        else:
            place, here = folder / "address", request.getfixturevalue("postgres_server").new_store()
            place.write_text(here, encoding="utf-8")
        with opened(here, folder, "filled") as store:
            return place, *fill(store)

    return made


def fill(store):
    first = store.add(profile(1), "phones", name="first", tags=["kept", "ä"], parameters={"threads": "4"})
    second = store.begin("phones", kind="sweep")
    trace = Attachment(name="trace.json", source=b'{"a": 1}' * 1000, media_type="application/json")
    store.finish(second, profile(2), attachments=[trace], log="one line")
    store.begin("boards")
    token = store.create_token(store.create_user("ada").name, scopes=("write",)).text
    fleet = Fleet.of(store)
    for device in DEVICES:
        fleet.register(device)
    submitted(fleet)

    def work(connection):
        connection.execute(update(runs).where(runs.c.id == first).values(parent=second))
        points = [("loss", 1, float("inf")), ("loss", 2, 0.1 + 0.2), ("loss", 3, -1e-300)]
        rows = [{"run_id": first, "name": n, "step": s, "value": v, "at_us": 1} for n, s, v in points]
        connection.execute(insert(metrics), rows)

    store.database.write(work)
    return token, (first, second)


def names_in(path):
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_store_has_the_same_rows_and_files_and_backs_up_to_the_same_hashes(
    filled, kind, new_place, tmp_path
):
    taken = write_backup(filled, tmp_path / "one.zip")
    with opened(new_place(kind), tmp_path, "restored") as store:
        restore_backup(tmp_path / "one.zip", store)
        again = write_backup(store, tmp_path / "two.zip")
        assert again.tables == taken.tables
        assert (again.artifacts, again.lost) == (taken.artifacts, ())
        first, second = filled.pair
        assert store.get(second) == filled.get(second)
        assert store.row(first).parent == second
        assert store.artifact(second, "trace.json").read_bytes() == b'{"a": 1}' * 1000
        assert store.admitted(filled.token, "write").user == "ada"


@pytest.mark.parametrize("kind", KINDS)
def test_a_copied_store_has_the_same_rows_and_goes_on_counting_where_the_other_was(filled, kind, new_place, tmp_path):
    with opened(new_place(kind), tmp_path, "copied") as store:
        assert copy_store(filled, store) == ()
        assert table_parts(store) == table_parts(filled)
        store.create_project("new")
        store.create_user("bo")  # would meet ada's number, if the counter began at one
        assert {project.name for project in store.projects()} >= {"new", "phones", "boards"}


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)
RUN = st.fixed_dictionaries({
    "name": NAMES,
    "parameters": st.dictionaries(NAMES, NAMES, max_size=3),
    "values": st.lists(st.floats(allow_nan=False), max_size=4),
    "file": st.binary(max_size=200),
})  # fmt: skip


@settings(deadline=None, max_examples=6, suppress_health_check=list(HealthCheck))
@given(st.lists(RUN, max_size=4))
def test_whatever_is_in_a_store_restored_it_has_the_same_hashes(template, tmp_path_factory, chosen):
    folder = tmp_path_factory.mktemp("any")
    for name in ("one.db", "two.db"):
        shutil.copy(template, folder / name)
    with open_store(folder / "one.db") as store, open_store(folder / "two.db") as restored:
        for run in chosen:
            file = Attachment(name="f", source=run["file"])
            made = store.add(profile(1), name=run["name"], parameters=run["parameters"], attachments=[file])
            rows = [
                {"run_id": made, "name": "m", "step": n, "value": v, "at_us": n} for n, v in enumerate(run["values"])
            ]
            if rows:
                store.database.write(lambda connection, rows=rows: connection.execute(insert(metrics), rows))
        taken = write_backup(store, folder / "b.zip")
        restore_backup(folder / "b.zip", restored)
        assert table_parts(restored) == taken.tables
        assert write_backup(restored, folder / "again.zip").artifacts == taken.artifacts


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A new store, to be copied: making the tables takes longer than the rest."""
    place = tmp_path_factory.mktemp("template") / "runs.db"
    open_store(place).close()
    return place


def test_a_backup_is_of_one_moment_while_others_write(filled, tmp_path, monkeypatch):
    """Another program adds runs between any two tables: none of what it writes is in the file, not even in part."""
    before, write_table = table_parts(filled), backups._write_table
    place, artifacts = filled.location.url or filled.location.file, filled.location.artifacts

    def and_then_add_a_run(*given):
        part = write_table(*given)
        with open_store(place, artifacts=artifacts) as other:
            other.add(profile(9), "meanwhile", tags=["late"], attachments=[Attachment(name="f", source=b"late")])
        return part

    monkeypatch.setattr(backups, "_write_table", and_then_add_a_run)
    assert write_backup(filled, tmp_path / "b.zip").tables == before
    assert filled.list().rows[0].project == "meanwhile"


def test_a_store_that_is_written_to_by_threads_backs_up_to_something_that_restores(filled, tmp_path):
    over = threading.Event()

    def write():
        while not over.is_set():
            filled.add(profile(3), "busy", tags=["x"], attachments=[Attachment(name="f", source=b"same")])

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        write_backup(filled, tmp_path / "b.zip")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert check_backup(tmp_path / "b.zip").rows("profiles") >= 2


@pytest.mark.parametrize("models", [False, True])
def test_models_of_the_fleet_come_along_only_where_they_are_asked_for(filled, tmp_path, models):
    data = b"weights" * 99
    sha256 = hashlib.sha256(data).hexdigest()
    place = models_folder(filled.location) / sha256[:2] / sha256
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    filled.database.write(lambda connection: connection.execute(update(fleet_files).values(sha256=sha256)))
    write_backup(filled, tmp_path / "b.zip", models=models)
    assert (f"models/{sha256}" in names_in(tmp_path / "b.zip")) is models
    with open_store(tmp_path / "new.db") as store:
        restore_backup(tmp_path / "b.zip", store)
        there = models_folder(store.location) / sha256[:2] / sha256
        assert (there.is_file() and there.read_bytes() == data) is models


def test_files_that_were_lost_or_damaged_before_are_named_and_do_not_stop_a_backup(filled, tmp_path):
    named = {artifact.name: artifact.sha256 for artifact in filled.get(filled.pair[1]).artifacts}
    filled.artifact(filled.pair[1], "log.txt").unlink()
    filled.artifact(filled.pair[1], "trace.json").write_bytes(b"other")
    taken = write_backup(filled, tmp_path / "b.zip")
    assert set(taken.lost) == set(named.values())
    assert check_backup(tmp_path / "b.zip") == taken


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_backup_of_an_earlier_version_is_restored_and_brought_up_to_date(revision, new_place, tmp_path):
    """Made as that version would have: from tables of its time, with what they hold."""
    with opened(new_place("sqlite"), tmp_path, "old") as store:
        run = store.add(profile(1), "phones", tags=["t"])
        downgrade(store.database, revision)
        _write_old(store, revision, tmp_path / "old.zip")
    for kind in KINDS:
        with opened(new_place(kind), tmp_path, kind) as store:
            restore_backup(tmp_path / "old.zip", store)
            assert (store.get(run).profile, store.get(run).tags) == (profile(1), ("t",))
            store.add(profile(2), "another")


def _write_old(store, revision, to):
    old = MetaData()
    with store.database.reading() as connection:
        old.reflect(connection)
        parts, lines = [], {}
        for table in old.sorted_tables:
            if table.name == "inferometer_version":
                continue
            name = str(table.name)
            rows = connection.execute(select(table)).all()
            data = b"".join(json.dumps([backups._written(value) for value in row]).encode() + b"\n" for row in rows)
            lines[name] = data
            parts.append({
                "name": name, "columns": [str(key) for key in dict(table.columns)], "rows": len(rows),
                "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
            })  # fmt: skip
    none = {"count": 0, "size_bytes": 0}
    manifest = {
        "schema": "inferometer.backup/1", "revision": revision, "tables": parts, "artifacts": none, "models": none,
    }  # fmt: skip
    with zipfile.ZipFile(to, "w") as archive:
        for name, data in lines.items():
            archive.writestr(f"tables/{name}.jsonl", data)
        archive.writestr("manifest.json", json.dumps(manifest))


# What is refused


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with a small SQLite store and a backup of it."""
    folder = tmp_path_factory.mktemp("small")
    with open_store(folder / "small.db") as store:
        run = store.begin("phones")
        store.finish(run, profile(1), log="one line")
        write_backup(store, folder / "small.zip")
    return folder


@pytest.fixture
def taken(small, tmp_path):
    """A copy of that backup, beside one of its store."""
    return shutil.copytree(small, tmp_path, dirs_exist_ok=True) / "small.zip"


def rewritten(path, change):
    """The same backup with `change` applied to its parts, by name."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def manifest_with(**changes):
    def change(parts):
        parts["manifest.json"] = json.dumps({**json.loads(parts["manifest.json"]), **changes}).encode()

    return change


def _damage(parts):
    parts["tables/runs.jsonl"] = parts["tables/runs.jsonl"].replace(b"finished", b"finishes")


def _damage_file(parts):
    name = next(name for name in parts if name.startswith("artifacts/"))
    parts[name] = b"two line"


def _lose_file(parts):
    parts.pop(next(name for name in parts if name.startswith("artifacts/")))


def _climb(parts):
    parts["artifacts/../../evil"] = b"x"


def _grow(parts):
    parts["tables/tags.jsonl"] = b"x" * 5_000_000


def _wrong_type(parts):
    """With the hash that belongs to it, as somebody who means harm would write it."""
    lines = parts["tables/runs.jsonl"].replace(b'"finished"', b'{"a":1}')
    document = json.loads(parts["manifest.json"])
    part = next(part for part in document["tables"] if part["name"] == "runs")
    part.update(sha256=hashlib.sha256(lines).hexdigest(), size_bytes=len(lines))
    parts.update({"tables/runs.jsonl": lines, "manifest.json": json.dumps(document).encode()})


REFUSED = {
    "a damaged table": (_damage, "damaged"),
    "a damaged file": (_damage_file, "damaged"),
    "a missing file": (_lose_file, "parts of it are missing"),
    "a missing table": (lambda parts: parts.pop("tables/tags.jsonl"), "parts of it are missing"),
    "a way out of the folder": (_climb, "which no backup has"),
    "a table that grows": (_grow, "damaged"),
    "a value of another type": (_wrong_type, "does not hold"),
    "no manifest": (lambda parts: parts.pop("manifest.json"), "no manifest"),
    "a newer format": (manifest_with(schema="inferometer.backup/2"), "inferometer.backup/2"),
    "newer tables": (manifest_with(revision="9999"), "9999"),
    "a manifest of something else": (manifest_with(tables=7), "does not hold"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_damaged_newer_or_hostile_is_refused_and_nothing_is_left(taken, case, tmp_path):
    change, words = REFUSED[case]
    rewritten(taken, change)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    for restore in (check_backup, _restored_to(tmp_path / "new.db")):
        with pytest.raises((FormatError, SchemaError), match=words) as refused:
            restore(taken)
        assert "\n" not in str(refused.value)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def _restored_to(place):
    def restore(path):
        with opened_to_fill(place) as store:
            restore_backup(path, store)

    return restore


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_backup_is_refused(taken, share, tmp_path):
    taken.write_bytes(taken.read_bytes()[: int(taken.stat().st_size * share)])
    with pytest.raises(FormatError):
        _restored_to(tmp_path / "new.db")(taken)
    assert not (tmp_path / "new.db").exists()


def test_no_byte_of_a_backup_can_change_unnoticed(taken, tmp_path):
    whole, accepted = taken.read_bytes(), check_backup(taken)
    for at in range(0, len(whole), len(whole) // 16):
        taken.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        try:
            assert check_backup(taken) == accepted  # a byte that means nothing, such as one of a date
        except InferometerError:
            continue


def test_a_store_that_holds_anything_is_not_written_over(taken, filled):
    before = table_parts(filled)
    with pytest.raises(StoreError, match="not empty"):
        _restored_to(filled.location.url or filled.location.file)(taken)
    assert table_parts(filled) == before


def test_a_restore_that_fails_at_its_last_row_leaves_neither_rows_nor_files(filled, new_place, tmp_path, monkeypatch):
    write_backup(filled, tmp_path / "b.zip")
    kind = "postgresql" if filled.database.postgres else "sqlite"
    with opened(new_place(kind), tmp_path, "target") as store:
        empty = table_parts(store)
        last = list(Backup(tmp_path / "b.zip").tables)[-1]
        rows = Backup.rows

        def failing(backup, table):
            if table.name == last:
                raise KeyboardInterrupt
            return rows(backup, table)

        monkeypatch.setattr(Backup, "rows", failing)
        with pytest.raises(KeyboardInterrupt):
            restore_backup(tmp_path / "b.zip", store)
        assert table_parts(store) == empty
        assert not [path for path in store.location.artifacts.rglob("*") if path.is_file()]


# Where it is written


def test_an_interrupted_backup_leaves_the_one_before_and_no_half_of_its_own(taken, tmp_path, monkeypatch):
    before = taken.read_bytes()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(backups, "_pack_files", interrupt)
    with open_store(tmp_path / "small.db") as store, pytest.raises(KeyboardInterrupt):
        write_backup(store, taken)
    assert taken.read_bytes() == before
    assert not list(tmp_path.glob(".small.zip*"))


def test_a_full_disk_is_said_in_a_sentence(tmp_path):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with open_store(tmp_path / "small.db") as store:
        store.add(profile(1))

        @contextmanager
        def on_full(_to):
            with full.open("wb", buffering=0) as file:
                yield file

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backups, "whole", on_full)
            with pytest.raises(StoreError, match="No space left"):
                write_backup(store, tmp_path / "b.zip")


def test_a_backup_with_more_in_it_than_the_disk_has_room_for_is_refused_before_anything_is_written(
    taken, tmp_path, monkeypatch
):
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(StoreError, match="10 free"):
        _restored_to(tmp_path / "new.db")(taken)
    assert not (tmp_path / "new.db").exists()


def test_a_file_that_is_no_backup_is_not_written_over(tmp_path):
    with open_store(tmp_path / "small.db") as store, pytest.raises(StoreError, match="is no backup"):
        write_backup(store, tmp_path / "small.db")


def test_only_its_owner_may_read_a_backup(taken):
    assert taken.stat().st_mode & 0o077 == 0

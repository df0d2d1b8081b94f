"""Backups and archives on SQLite, quickly: what is counted, what comes back, and every limit at its last value."""

import shutil
import zipfile
from types import SimpleNamespace

import pytest

from inferometer.core.codec import encode
from inferometer.core.errors import FormatError
from inferometer.store import Attachment, Filter, StoreError, archive, backup, files, open_store
from inferometer.store.backup import FileParts, copy_store, restore_backup, table_parts, write_backup
from inferometer.store.tables import metadata
from inferometer.store.transfer import _batches
from unit.store.profiles import profile


@pytest.fixture
def store(tmp_path, template):
    shutil.copy(template, tmp_path / "runs.db")
    with open_store(tmp_path / "runs.db") as opened:
        yield opened


def test_a_backup_says_what_is_in_it_and_comes_back_row_by_row_and_file_by_file(store, tmp_path):
    parent = store.add(profile(), "p", attachments=[Attachment(name="f", source=b"12345")])
    store.add(profile(2), "p", parent=parent, attachments=[Attachment(name="g", source=b"678")])
    store.add_metrics(parent, {"x": float("1e300"), "y": 2})
    told = []
    manifest = write_backup(store, tmp_path / "b.zip", tell=told.append)
    assert (manifest.rows("runs"), manifest.rows("metrics"), manifest.rows("nothing")) == (2, 2, 0)
    assert (manifest.artifacts, manifest.models, manifest.lost) == (FileParts(count=2, size_bytes=8), FileParts(), ())
    assert {part.name: part.columns for part in manifest.tables} == {
        table.name: tuple(column.name for column in table.columns) for table in metadata.sorted_tables
    }
    assert told == ["artifacts 1", "artifacts 2"]
    assert manifest.tables == table_parts(store)
    with open_store(tmp_path / "new" / "runs.db") as other:
        told.clear()
        assert restore_backup(tmp_path / "b.zip", other, tell=told.append) == manifest
        assert {"files 1", "files 2", "runs 2", "metrics 2"} <= set(told)
        assert table_parts(other) == manifest.tables
        assert other.get(parent) == store.get(parent)
        assert [row.parent for row in other.list(Filter(parent=parent)).rows] == [parent]
        assert other.artifact(parent, "f").read_bytes() == b"12345"
        with pytest.raises(StoreError, match="Another program wrote into table"):
            restore_backup(tmp_path / "b.zip", other)


def test_a_file_that_is_gone_or_changed_is_named_and_a_copy_leaves_it_out(store, tmp_path):
    run = store.add(profile(), attachments=[Attachment(name=name, source=name.encode()) for name in ("a", "b", "c")])
    hashes = {artifact.name: artifact.sha256 for artifact in store.get_artifacts(run)}
    files.path_of(store.location.artifacts, hashes["a"]).unlink()
    files.path_of(store.location.artifacts, hashes["b"]).write_bytes(b"other")
    manifest = write_backup(store, tmp_path / "b.zip")
    assert manifest.lost == tuple(sorted([hashes["a"], hashes["b"]]))
    assert manifest.artifacts == FileParts(count=2, size_bytes=len(b"other") + 1)  # better a damaged copy than none
    with open_store(tmp_path / "new" / "runs.db") as other:
        assert copy_store(store, other) == manifest.lost
        assert list(files.all_of(other.location.artifacts)) == [hashes["c"]]


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        (bytes, b"\x00\xff", "AP8="), (float, float("inf"), "inf"), (float, 1.5, 1.5), (int, 2**63 - 1, 2**63 - 1),
        (str, "x", "x"), (bool, True, True), (float, None, None),
    ],
)  # fmt: skip
def test_a_value_of_a_column_is_written_as_json_and_comes_back(kind, written, read):
    assert backup._written(written) == read
    assert backup._value(kind, read) == written
    assert type(backup._value(kind, read)) is type(written)


@pytest.mark.parametrize(
    ("kind", "wrong"), [(int, 2**63), (int, 1.0), (int, True), (bool, 1), (str, 1), (bytes, "x"), (float, "one")]
)
def test_a_value_that_no_column_of_its_kind_holds_is_refused(kind, wrong):
    with pytest.raises(ValueError):  # noqa: PT011 - base64 has words of its own
        backup._value(kind, wrong)


@pytest.mark.parametrize(("free", "fits"), [(100, True), (99, False)])
def test_a_backup_needs_as_much_room_as_it_says(tmp_path, monkeypatch, free, fits):
    monkeypatch.setattr(backup.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free))
    parts = [SimpleNamespace(size_bytes=60), SimpleNamespace(size_bytes=40)]
    made = SimpleNamespace(manifest=SimpleNamespace(tables=parts), size_bytes=free, path="b.zip")
    backup._require_room(made, tmp_path)
    if fits:
        backup._require_room(made, tmp_path, tables_only=True)
    else:
        with pytest.raises(StoreError, match="holds 100 bytes unpacked, and the disk"):
            backup._require_room(made, tmp_path, tables_only=True)


# Archives


def entry(name, size, packed):
    return SimpleNamespace(filename=name, file_size=size, compress_size=packed)


@pytest.mark.parametrize(
    ("entries", "refused"),
    [
        ([("run.json", 100, 100), ("story.json", 100, 100)], False),
        ([("run.json", 100, 100), ("story.json", 101, 101)], True),  # more than all may hold
        ([("run.json", 1, 1), ("story.json", 1, 1), (f"artifacts/{'a' * 64}", 1, 1)], False),
        (
            [
                ("run.json", 1, 1),
                ("story.json", 1, 1),
                (f"artifacts/{'a' * 64}", 1, 1),
                (f"artifacts/{'b' * 64}", 1, 1),
            ],
            True,
        ),
        ([("run.json", 20, 2)], False),
        ([("run.json", 21, 2)], True),
        ([("run.json", 10, 0)], False),
        ([("run.json", 11, 0)], True),
        ([("run.json", 1, 1), ("run.json", 1, 1)], True),
        ([("other.json", 1, 1)], True),
        ([(f"artifacts/{'a' * 63}", 1, 1)], True),
        ([(f"artifacts/{'A' * 64}", 1, 1)], True),
        ([("a" * 64, 1, 1)], True),
    ],
)
def test_an_archive_holds_what_one_of_ours_may_and_no_more(entries, refused):
    limits = archive.ArchiveLimits(entries=3, total_bytes=200, ratio=10.0)
    held = SimpleNamespace(infolist=lambda: [entry(*each) for each in entries])
    if refused:
        with pytest.raises(FormatError):
            archive._checked(held, limits)
    else:
        assert list(archive._checked(held, limits)) == [name for name, _, _ in entries]


def test_a_document_may_be_as_long_as_allowed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(encode(profile()))
    size = path.stat().st_size
    assert archive.read_archive(path, tmp_path, archive.ArchiveLimits(document_bytes=size)).profile == profile()
    with pytest.raises(FormatError, match="larger than"):
        archive.read_archive(path, tmp_path, archive.ArchiveLimits(document_bytes=size - 1))


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [((3, 3), [2]), ((4, 4, 1), [2, 1]), ((9,), [1]), ((1,) * 5, [3, 2]), ((0,) * 3, [3]), ((), [])],
)
def test_rows_are_written_few_enough_and_small_enough_at_once(monkeypatch, sizes, batches):
    monkeypatch.setattr("inferometer.store.transfer._BATCH_ROWS", 3)
    monkeypatch.setattr("inferometer.store.transfer._BATCH_BYTES", 8)
    rows = [{"a": "x" * size, "b": b"", "c": 10**9} for size in sizes]
    found = list(_batches(iter(rows)))
    assert [len(batch) for batch in found] == batches
    assert [row for batch in found for row in batch] == rows


@pytest.mark.parametrize("missing", ["tables/metrics.jsonl", "artifacts/"])
def test_a_backup_that_lacks_a_part_is_refused(store, tmp_path, missing):
    store.add(profile(), attachments=[Attachment(name="f", source=b"12345")])
    write_backup(store, tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as whole, zipfile.ZipFile(tmp_path / "c.zip", "w") as cut:
        for name in whole.namelist():
            if not name.startswith(missing):
                cut.writestr(name, whole.read(name))
    with pytest.raises(FormatError, match="parts of it are missing"):
        backup.Backup(tmp_path / "c.zip")

"""Archives come from anywhere: what is wrong with one is told, and nothing of it gets in."""

import io
import json
import struct
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferometer.core.codec import encode
from inferometer.core.errors import FormatError, InferometerError, SchemaError
from inferometer.store import Attachment, open_store
from inferometer.store.archive import ArchiveLimits
from unit.store.profiles import profile


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    with open_store(folder / "runs.db") as store:
        run = store.begin(name="n")
        store.add_metrics(run, {"loss": 1.0})
        store.finish(run, profile(), attachments=[Attachment(name="f", source=b"content" * 100)])
        return store.export(run, folder / "run.zip").read_bytes()


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "mine" / "runs.db") as opened:
        yield opened


def entries(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def refused(store, tmp_path, data, *, error=FormatError, match=None, limits=None):
    path = tmp_path / "bad.zip"
    path.write_bytes(data)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=match) as caught:
        store.import_(path, limits=limits)
    assert "bad.zip" in str(caught.value)
    assert store.count() == 0
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["../../evil", "/etc/evil", "artifacts/../../evil", "artifacts/x", "C:\\evil", "notes.txt"]
)
def test_a_name_that_no_archive_has_is_refused(store, tmp_path, good, name):
    refused(store, tmp_path, packed({**entries(good), name: b"x"}), match="which no archive of a run has")
    assert not (tmp_path / "evil").exists()


def test_a_bomb_is_refused_by_what_it_says(store, tmp_path, good):
    bomb = {**entries(good), "artifacts/" + "0" * 64: b"\0" * 3_000_000}
    refused(store, tmp_path, packed(bomb), match="3,000,000 are", limits=ArchiveLimits(total_bytes=3_000_000))
    refused(store, tmp_path, packed(bomb), match="fold", limits=ArchiveLimits(ratio=100))
    refused(store, tmp_path, packed(bomb), match="files; 2 are the most", limits=ArchiveLimits(entries=2))


def test_a_bomb_that_lies_about_its_size_is_refused_by_what_comes_out(store, tmp_path, good):
    """The sizes in the directory and before the file are overwritten with small ones."""
    long = {**entries(good), "run.json": b" " * 5_000_000}
    data = packed(long)
    lied = data.replace(struct.pack("<I", 5_000_000), struct.pack("<I", 50))
    refused(store, tmp_path, lied, error=InferometerError)
    refused(
        store, tmp_path, data, match="longer than the 1,000,000 bytes", limits=ArchiveLimits(document_bytes=1_000_000)
    )


def test_a_file_that_is_not_what_its_hash_says_is_refused(store, tmp_path, good):
    files = entries(good)
    name = next(name for name in files if name.startswith("artifacts/"))
    refused(store, tmp_path, packed({**files, name: b"CONTENT" * 100}), match="not what its run says")
    refused(store, tmp_path, packed({**files, name: b"content" * 200}), match="not what its run says")
    del files[name]
    refused(store, tmp_path, packed(files), match="not those its run names")


@pytest.mark.parametrize("missing", ["run.json", "story.json"])
def test_an_archive_with_a_part_missing_is_refused(store, tmp_path, good, missing):
    files = entries(good)
    del files[missing]
    refused(store, tmp_path, packed(files), match=f"no {missing}")


@pytest.mark.parametrize(
    ("where", "change", "error"),
    [
        ("run.json", {"schema": "inferometer.run/99"}, SchemaError),
        ("run.json", {"id": "../../../x"}, FormatError),
        ("run.json", {"id": ""}, InferometerError),
        ("run.json", {"status": "running"}, FormatError),
        ("run.json", {"status": "happy"}, SchemaError),
        ("run.json", {"created": "yesterday"}, FormatError),
        ("run.json", {"project": "a/b"}, InferometerError),
        ("run.json", {"tags": ["two words"]}, InferometerError),
        ("story.json", {"schema": "inferometer.run-archive/2"}, SchemaError),
        ("story.json", {"metrics": [{"name": "a", "value": "x", "step": 1}]}, SchemaError),
        ("story.json", {"metrics": [{"name": "a", "value": 1.0, "step": 2**70}]}, InferometerError),
        ("story.json", {"started": 1e300}, InferometerError),
    ],
)
def test_a_document_that_does_not_hold_is_refused(store, tmp_path, good, *, where, change, error):
    files = entries(good)
    files[where] = json.dumps({**json.loads(files[where]), **change}).encode()
    path = tmp_path / "bad.zip"
    path.write_bytes(packed(files))
    with pytest.raises(error):
        store.import_(path)
    assert store.count() == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_archive_is_told_or_still_whole(store, tmp_path, good, data):
    cut = data.draw(st.integers(0, len(good)))
    flips = data.draw(st.lists(st.tuples(st.integers(0, len(good) - 1), st.integers(1, 255)), max_size=4))
    broken = bytearray(good)
    for at, with_ in flips:
        broken[at] ^= with_
    path = tmp_path / "broken.zip"
    path.write_bytes(bytes(broken[:cut] if data.draw(st.booleans()) else broken))
    try:
        run = store.import_(path)
    except InferometerError:
        return
    assert store.get(run).profile == profile()


def test_a_bare_profile_is_taken_in(store, tmp_path):
    path = tmp_path / "p.json"
    path.write_bytes(encode(profile(), indent=2))
    run = store.import_(path, project="mine")
    assert (store.get(run).profile, store.row(run).kind, store.get(run).project) == (profile(), "import", "mine")


def test_a_bare_run_is_taken_in_unless_it_names_files(store, tmp_path, good):
    plain = json.loads(entries(good)["run.json"])
    refused(store, tmp_path, json.dumps(plain).encode(), match="not in it")
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**plain, "artifacts": []}))
    assert store.get(store.import_(path)).profile == profile()


def test_what_is_no_archive_is_told(store, tmp_path):
    refused(store, tmp_path, b"hello", error=SchemaError, match="not a JSON document")
    refused(store, tmp_path, b"x" * 100, match="larger than", limits=ArchiveLimits(document_bytes=10))
    with pytest.raises(FormatError, match="cannot be read"):
        store.import_(tmp_path / "nowhere.zip")

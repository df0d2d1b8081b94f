"""What was recorded names no folder of the machine it was recorded on, packed or not."""

import gzip
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDED = sorted(
    path
    for folder in ("benchmarks/recorded", "workshop/recorded", "tests/data")
    for path in (ROOT / folder).rglob("*")
    if path.is_file()
)
# `/tmp/x` of a phone is `/data/local/tmp/x`: the folder must begin there.
FOLDER = re.compile(rb"(?<![\w./-])/(?:root|home|Users|work|tmp|private|mnt|opt)/[\w.@-]+|/site-packages/")


def contents(path):
    """The bytes in a file, of each file in an archive."""
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            for member in filter(tarfile.TarInfo.isfile, archive):
                data = archive.extractfile(member).read()
                yield gzip.decompress(data) if member.name.endswith(".gz") else data
    else:
        yield gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.parametrize(
    "text", [b'"at /mnt/disk/x"', b"file:/home/me/a.onnx:3", b"'/root/.cache'", b"a/site-packages/"]
)
def test_a_folder_of_a_machine_is_found(text):
    assert FOLDER.search(text)


@pytest.mark.parametrize("text", [b"/data/local/tmp/model", b"https://example.org/home/x", b"lib/work/rules.py"])
def test_other_paths_are_left_alone(text):
    assert not FOLDER.search(text)


def test_nothing_recorded_names_a_folder_of_the_machine_it_was_made_on():
    found = {
        str(path.relative_to(ROOT)): hit for path in RECORDED for data in contents(path) if (hit := FOLDER.search(data))
    }
    assert found == {}


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="what git tracks is not known here")
def test_no_run_that_could_not_be_stored_is_tracked():
    """What a full disk leaves beside the user's files (`store/recording.py`) is never committed."""
    tracked = subprocess.run(
        ["git", "ls-files", ":(glob)**/inferometer-*.json"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert tracked.stdout.split() == []

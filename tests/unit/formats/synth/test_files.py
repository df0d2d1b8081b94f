"""A file is complete or absent."""

import errno
import os

import pytest

from inferometer.core.errors import InferometerError
from inferometer.formats.synth.files import landing, landing_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_its_name_when_it_is_complete(tmp_path):
    path = tmp_path / "model.gguf"
    with landing(path, overwrite=False, needs_bytes=1) as (partial,):
        partial.write_bytes(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert names(tmp_path) == ["model.gguf"]


def write_half(path, error, *, overwrite=False):
    with landing(path, overwrite=overwrite, needs_bytes=1) as (partial,):
        partial.write_bytes(b"hal")
        raise error


@pytest.mark.parametrize("error", [ValueError("half way"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_write_that_ended_early(tmp_path, error):
    with pytest.raises(type(error)):
        write_half(tmp_path / "m", error)
    assert names(tmp_path) == []


def test_files_that_belong_together_appear_together(tmp_path):
    paths = tmp_path / "m.onnx.data", tmp_path / "m.onnx"
    with landing(*paths, overwrite=False, needs_bytes=1) as partial:
        for temporary in partial:
            temporary.write_bytes(b"x")
    assert names(tmp_path) == ["m.onnx", "m.onnx.data"]


def test_an_existing_file_is_kept_unless_it_may_be_overwritten(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    with pytest.raises(InferometerError, match="exists already"), landing(path, overwrite=False, needs_bytes=1):
        pass
    with landing(path, overwrite=True, needs_bytes=1) as (partial,):
        partial.write_bytes(b"new")
    assert path.read_bytes() == b"new"


def test_a_failed_overwrite_keeps_the_old_file(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="half"):
        write_half(path, ValueError("half way"), overwrite=True)
    assert path.read_bytes() == b"old"


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InferometerError, match="is a folder"), landing(tmp_path, overwrite=True, needs_bytes=1):
        pass


def test_a_missing_folder_is_made(tmp_path):
    with landing(tmp_path / "new" / "m", overwrite=False, needs_bytes=1) as (partial,):
        partial.write_bytes(b"x")
    assert names(tmp_path / "new") == ["m"]


def test_what_does_not_fit_is_refused_before_a_byte_is_written(tmp_path):
    with (
        pytest.raises(InferometerError, match=r"100 EB do not fit .* are free") as caught,
        landing(tmp_path / "m", overwrite=False, needs_bytes=10**20),
    ):
        pass
    assert "another folder" in caught.value.remedy
    assert names(tmp_path) == []


def test_a_disk_that_fills_up_is_said_plainly(tmp_path):
    with pytest.raises(InferometerError, match="is full") as caught:
        write_half(tmp_path / "m", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert "smaller format" in caught.value.remedy
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_said_plainly(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(InferometerError, match="Nothing can be written"),
        landing(tmp_path / "file" / "m", overwrite=False, needs_bytes=1),
    ):
        pass


# Whole folders


def make_folder(path, *, overwrite=False, fails=None):
    with landing_folder(path, overwrite=overwrite, needs_bytes=1) as partial:
        partial.mkdir()
        (partial / "inside").write_bytes(b"new")
        if fails is not None:
            raise fails


def test_a_folder_takes_its_name_when_it_is_complete(tmp_path):
    make_folder(tmp_path / "m")
    assert names(tmp_path) == ["m"]
    assert (tmp_path / "m" / "inside").read_bytes() == b"new"


def test_a_folder_that_is_there_is_kept_unless_it_may_go(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "mine").write_bytes(b"old")
    with pytest.raises(InferometerError, match="exists already"):
        make_folder(tmp_path / "m")
    assert names(tmp_path / "m") == ["mine"]
    make_folder(tmp_path / "m", overwrite=True)
    assert (names(tmp_path), names(tmp_path / "m")) == (["m"], ["inside"])


@pytest.mark.parametrize("fails", [ValueError("half way"), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_a_folder_that_fails_half_way_leaves_the_old_one(tmp_path, fails):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "mine").write_bytes(b"old")
    with pytest.raises((ValueError, InferometerError)):
        make_folder(tmp_path / "m", overwrite=True, fails=fails)
    assert (names(tmp_path), names(tmp_path / "m")) == (["m"], ["mine"])


def test_a_folder_that_does_not_fit_is_refused(tmp_path):
    with (
        pytest.raises(InferometerError, match="do not fit"),
        landing_folder(tmp_path / "m", overwrite=False, needs_bytes=10**20),
    ):
        pass
    assert names(tmp_path) == []

"""A sweep by name is begun where another process left off, and says the same; whatever changed begins it anew."""

import gc
import os
import pickle
import sys
from hashlib import sha256

import numpy as np
import pytest

import inferometer as im
from inferometer.known import device
from inferometer.predict.options import Options
from inferometer.predict.sweep import begun, evaluate
from unit.predict.sweep import studies

ASKED = {
    "models": ["llama-3.2-1b", "resnet50"], "devices": ["nvidia-l4"], "weights": ["bf16", "i8"], "batch": [1, 7],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_REMEMBER", "1")
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / "data"))
    in_another_process(monkeypatch)
    return tmp_path / "cache" / "sweeps"


def in_another_process(monkeypatch):
    """Nothing that was made by this one is known."""
    for module, name in ((begun, "_beginnings"), (evaluate, "_combinations")):
        monkeypatch.setattr(module, name, type(getattr(module, name))(1000))


def begins_anew(monkeypatch, **asked):
    """The rows in another process, and whether it looked up its models by itself."""
    in_another_process(monkeypatch)
    read = []
    look_up = begun._looked_up
    with monkeypatch.context() as patch:
        patch.setattr(begun, "_looked_up", lambda axes: read.append(axes) or look_up(axes))
        return im.sweep(**{**ASKED, **asked}), bool(read)


def the_same(one, other):
    return all(np.array_equal(one[name], other[name], equal_nan=one[name].dtype != object) for name in one.columns)


def test_another_process_begins_where_the_first_left_off_with_other_sizes_too(folder, monkeypatch):
    first, anew = begins_anew(monkeypatch)
    assert anew
    again, anew = begins_anew(monkeypatch)
    assert not anew
    assert the_same(first, again)
    larger, anew = begins_anew(monkeypatch, batch=[7, 8, 9])
    assert not anew
    monkeypatch.setenv("INFEROMETER_REMEMBER", "0")
    alone, anew = begins_anew(monkeypatch, batch=[7, 8, 9])
    assert anew
    assert the_same(larger, alone)
    assert len([*folder.iterdir()]) == 1


def test_plans_are_not_made_again(folder, monkeypatch):
    im.sweep(**ASKED)
    monkeypatch.setattr(evaluate, "_combined", lambda *_: pytest.fail("a combination was made anew"))
    _, anew = begins_anew(monkeypatch)
    assert not anew


@pytest.mark.parametrize(
    "change",
    [
        {"weights": ["bf16"]},
        {"devices": ["nvidia-h200"]},
        {"tp": [1, 2]},
        {"priors": True},
        {"cached_prefix": 16},
        {"calibrated": False},
    ],
)
def test_another_question_begins_anew(folder, monkeypatch, change):
    im.sweep(**ASKED)
    assert begins_anew(monkeypatch, **change)[1]


def test_a_changed_row_calibration_or_setting_begins_anew(folder, monkeypatch, tmp_path):
    im.sweep(**ASKED)
    (tmp_path / "data" / "calibrations").mkdir(parents=True)
    assert not begins_anew(monkeypatch)[1]
    (tmp_path / "data" / "calibrations" / "mine.json.part").touch()
    assert begins_anew(monkeypatch)[1]
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path / "catalog"))
    (tmp_path / "catalog").mkdir()
    assert begins_anew(monkeypatch)[1]
    (tmp_path / "catalog" / "mine.toml").touch()
    assert begins_anew(monkeypatch)[1]
    assert not begins_anew(monkeypatch)[1]


def test_what_is_no_name_of_the_catalog_is_never_kept(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "device.toml").touch()
    assert [
        name for name in ("local:cpu", "device.toml", studies.graph(), None, "resnet50") if begun._is_name(name)
    ] == ["resnet50"]
    im.sweep(**ASKED | {"models": studies.graph("resnet50"), "weights": "i8"})
    monkeypatch.setattr(begun, "digest_of", lambda *_: pytest.fail("the reader of prompts may be another tomorrow"))
    im.sweep(**ASKED | {"models": "llama-3.2-1b"}, prefill_on=device("nvidia-h200"))
    assert not folder.exists()


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda _: b"", lambda data: data[:99] + b"x" + data[100:]])
def test_a_damaged_file_is_begun_anew_and_mended(folder, monkeypatch, damage):
    first = im.sweep(**ASKED)
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    rows, anew = begins_anew(monkeypatch)
    assert anew
    assert the_same(first, rows)
    assert not begins_anew(monkeypatch)[1]


class _Evil:
    def __reduce__(self):
        return os.mkdir, ("evil",)


class _Dotted:
    """A function that one of our modules imports is none of ours."""

    def __reduce__(self):
        return begun.write_among, (b"",)


@pytest.mark.parametrize("evil", [_Evil(), _Dotted(), sys.exit])
def test_a_file_can_do_nothing(folder, monkeypatch, tmp_path, evil):
    monkeypatch.chdir(tmp_path)
    im.sweep(**ASKED)
    (file,) = folder.iterdir()
    values = pickle.dumps((evil, []))
    file.write_bytes(sha256(values).digest() + values)
    assert begins_anew(monkeypatch)[1]
    assert not (tmp_path / "evil").exists()


def test_a_folder_that_cannot_be_written_costs_time_and_nothing_else(folder, monkeypatch):
    folder.parent.touch()
    first = im.sweep(**ASKED)
    assert the_same(first, begins_anew(monkeypatch)[0])


def test_garbage_is_looked_for_as_before_once_a_sweep_is_done():
    before = gc.get_threshold()
    with begun.begun_study(ASKED, options=Options()) as study:
        assert len(study) == 8
        assert gc.get_threshold()[0] > before[0]
    with pytest.raises(im.InferometerError), begun.begun_study(ASKED | {"batch": 0}, options=Options()):
        pass
    assert gc.get_threshold() == before

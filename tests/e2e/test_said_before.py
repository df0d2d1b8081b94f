"""What was printed before is printed again without being worked out, and never once anything behind it has changed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferometer.cli import said_before
from inferometer.cli.said_before import mark_of

ASKED = ("predict", "mobilenet-v2", "--on", "raspberry-pi-5")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INFEROMETER_REMEMBER", "1")
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path / "catalog"))
    for folder in ("data/calibrations", "catalog", "work"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "inferometer", *arguments], check=False, capture_output=True, text=True
    )


def test_the_same_question_is_answered_from_what_was_printed_and_another_is_not(home):
    first = asked(*ASKED).stdout
    assert "mobilenet-v2" in first
    assert asked(*ASKED).stdout == first
    (kept,) = (home / "cache" / "said").iterdir()
    assert kept.read_text() == first
    kept.write_text("as before\n")  # whoever prints these words has worked nothing out
    assert asked(*ASKED).stdout == "as before\n"
    assert asked(*ASKED, "--batch", "2").stdout != "as before\n"


def test_nothing_is_kept_of_an_error(home):
    assert asked("predict", "mobilenet-v2", "--on", "no-such-device").returncode == 2
    assert not (home / "cache" / "said").exists()


def test_a_folder_that_cannot_be_written_costs_an_answer_and_nothing_else(home, monkeypatch):
    (home / "cache").touch()
    monkeypatch.setenv("INFEROMETER_CACHE", str(home / "cache"))
    assert "mobilenet-v2" in asked(*ASKED).stdout


@pytest.mark.parametrize(
    "change",
    [
        lambda home, _: (home / "data" / "calibrations" / "mine.json").touch(),
        lambda home, _: (home / "catalog" / "mine.toml").touch(),
        lambda _, patch: patch.setenv("COLUMNS", "61"),
        lambda _, patch: patch.setenv("INFEROMETER_MACHINE", "another"),
        lambda home, patch: patch.chdir(home),
        lambda home, patch: patch.syspath_prepend(home / "packages"),
        lambda _, __: Path("mobilenet-v2").touch(),  # a file of the model's name comes first
    ],
)
def test_whatever_an_answer_depends_on_makes_it_another_question(home, monkeypatch, change):
    before = mark_of(ASKED)
    assert before is not None
    assert mark_of(ASKED) == before
    change(home, monkeypatch)
    assert mark_of(ASKED) != before


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(said_before.time, "strftime", lambda form: f"tomorrow {form}"),
        lambda patch: patch.setattr(said_before, "_width", lambda: 61),
        lambda patch: patch.setattr(said_before.sys, "executable", "/other/python"),
        lambda patch: patch.setattr(said_before.sys, "version", "4.0"),
        lambda patch: patch.setattr(said_before, "stamp_of_ours", lambda: (1, 2, 3)),
        lambda patch: patch.setattr(said_before.sys, "stdout", io.StringIO()),
        lambda patch: patch.setattr(said_before.sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="latin-1")),
        lambda patch: patch.setenv("INFEROMETER_CONFIG", str(Path(__file__))),
    ],
)
@pytest.mark.usefixtures("home")
def test_another_day_terminal_or_python_makes_it_another_question(monkeypatch, change):
    before = mark_of(ASKED)
    change(monkeypatch)
    assert mark_of(ASKED) not in {before, None}


@pytest.mark.parametrize("variable", ["_", "OLDPWD", "SHLVL"])
@pytest.mark.usefixtures("home")
def test_what_a_shell_sets_anew_for_each_command_changes_no_answer(monkeypatch, variable):
    marks = set()
    for value in ("1", "SHLVL"):
        monkeypatch.setenv(variable, value)
        marks.add(mark_of(ASKED))
    monkeypatch.setenv("SOMETHING", "OLDPWD")
    assert (len(marks), mark_of(ASKED) in marks) == (1, False)


def test_a_model_file_that_changed_makes_it_another_question_and_so_does_one_beside_it(home):
    model, data = Path("m.onnx"), Path("m.onnx.data")
    model.write_bytes(b"graph")
    question = ("predict", "m.onnx", "--on=raspberry-pi-5")
    before = mark_of(question)
    data.write_bytes(b"weights")
    beside = mark_of(question)
    os.utime(model, ns=(1, 1))
    assert len({before, beside, mark_of(question)}) == 3


def test_runs_that_are_stored_change_no_answer(home):
    before = mark_of(ASKED)
    (home / "data" / "runs.db").touch()
    (home / "data" / "artifacts").mkdir()
    (home / "data" / "artifacts" / "trace").touch()
    assert mark_of(ASKED) == before


@pytest.mark.parametrize(
    "arguments",
    [("predict", "mobilenet-v2", "--on", "local"), ("predict", "llama-3.2-1b", "--fit"), ("runs",), ("doctor",)],
)
@pytest.mark.usefixtures("home")
def test_what_depends_on_this_machine_as_it_is_now_is_never_kept(arguments):
    assert mark_of(arguments) is None


@pytest.mark.usefixtures("home")
def test_a_setting_switches_it_off(monkeypatch):
    monkeypatch.setenv("INFEROMETER_REMEMBER", "0")
    assert mark_of(ASKED) is None

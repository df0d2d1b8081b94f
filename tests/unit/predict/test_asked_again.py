"""A question that was asked before is answered from memory, and never with another question's answer."""

from dataclasses import replace

import pytest

from inferometer.core.calibration import Calibration
from inferometer.predict import question as asking
from inferometer.predict.ask import ask
from inferometer.predict.basis.files import write_calibration
from inferometer.predict.options import HostCosts, Options

FIRST = {"on": "nvidia-h200", "runtime": "torch-eager", "prompt": 64, "generate": 8}
OTHERS = [
    {"batch": 256},  # two sequences wait for the same launches as one
    {"runtime": "torch-compile"},
    {"on": "nvidia-l4"},
    {"weights": "i8"},
    {"calibrated": False},
    {"options": Options(host=HostCosts(sampling_s=1e-3))},
    {"options": Options(host_speed=0.5)},
]


def seconds(**changes):
    return [phase.time_s for phase in ask("llama-3.2-1b", **{**FIRST, **changes}).answer().phases]


def test_what_a_question_is_answered_with_is_chosen_once_for_all_its_sizes():
    first, other = (ask("llama-3.2-1b", **{**FIRST, "prompt": prompt}) for prompt in (64, 65))
    assert first.basis() is other.basis()
    for change in ({"weights": "i8"}, {"calibrated": False}, {"runtime": "torch-compile"}, {"on": "nvidia-l4"}):
        changed = ask("llama-3.2-1b", **{**FIRST, **change})
        assert changed.basis() is not first.basis()
        assert changed.basis() == changed._basis()


def test_a_calibration_that_comes_meanwhile_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    question = ask("llama-3.2-1b", **FIRST)
    made = Calibration(
        device="nvidia-h200", runtime="torch-eager", dtype="bf16", created="2031-01-01T00:00:00+00:00", unit="gpu"
    )
    assert question.basis().calibration.created < made.created
    write_calibration(made, tmp_path / "calibrations")
    assert question.basis().calibration.created == made.created


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_question_gets_its_own_answer_whatever_was_asked_before_it(other):
    asking._answers = type(asking._answers)(10_000)
    alone = seconds(**other)
    asking._answers = type(asking._answers)(10_000)
    first = seconds()
    assert seconds(**other) == alone != first
    assert seconds() == first


def test_it_says_when_it_was_asked_and_not_when_it_was_worked_out(monkeypatch):
    question = ask("llama-3.2-1b", **FIRST)
    before = question.answer()
    monkeypatch.setattr(asking, "now_text", lambda: "2031-01-01T00:00:00+00:00")
    again = question.answer()
    assert again.provenance.created == "2031-01-01T00:00:00+00:00"
    assert replace(again, provenance=before.provenance) == before

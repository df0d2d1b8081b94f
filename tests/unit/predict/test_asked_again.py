"""A question that was asked before is answered from memory, and never with another question's answer."""

from dataclasses import replace

import pytest

from inferometer.predict import question as asking
from inferometer.predict.ask import ask
from inferometer.predict.options import HostCosts, Options

FIRST = {"on": "nvidia-h200", "runtime": "torch-eager", "prompt": 64, "generate": 8}
OTHERS = [
    {"batch": 2},
    {"runtime": "torch-compile"},
    {"on": "nvidia-l4"},
    {"weights": "i8"},
    {"calibrated": False},
    {"options": Options(host=HostCosts(sampling_s=1e-3))},
    {"options": Options(host_speed=0.5)},
]


def seconds(**changes):
    return [phase.time_s for phase in ask("llama-3.2-1b", **{**FIRST, **changes}).answer().phases]


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

"""A few questions of `make sanity`, whose properties hold for every answer; and that each property can fail."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from inferometer.core.kept import Kept
from inferometer.core.profile import Headline, Phase
from workshop import known_misses, sanity
from workshop.known_misses import PublishedAnswer
from workshop.sanity import Asked, draw, violations

ASKED = Asked(
    model="llama-3.2-1b", device="nvidia-l4", runtime="llamacpp", sizes={"batch": 1, "prompt": 64, "generate": 16}
)


def test_every_property_holds_for_a_few_questions_of_every_seed():
    found = [str(violation) for asked in draw(8, seed=11) for violation in violations(asked)]
    assert found == []


def test_the_same_seed_draws_the_same_questions():
    assert list(draw(3, seed=5)) == list(draw(3, seed=5)) != list(draw(3, seed=6))


def scaled(profile, **changed):
    """The same answer with its phases, and the ops in them, changed."""
    return replace(profile, phases=tuple(replace(phase, **changed) for phase in profile.phases))


def slow_ops(profile):
    ops = [[replace(op, time_s=op.time_s + 1e3, bound="memory") for op in phase.ops] for phase in profile.phases]
    return replace(
        profile, phases=tuple(replace(phase, ops=tuple(of)) for phase, of in zip(profile.phases, ops, strict=True))
    )


def shrinking(profile):
    return scaled(profile, time_s=1.0 / profile.workload.batch, low_s=None, high_s=None, floor_s=None)


def spilling(profile):
    return scaled(profile, time_s=1.0 * profile.workload.batch**2, low_s=None, high_s=None, floor_s=None)


def outside(profile):
    return scaled(profile, low_s=1e3, high_s=2e3)


def elsewhere(profile):
    return replace(profile, summary=Headline(tpot_s=1e3, peak_memory_bytes=1))


@pytest.mark.parametrize(
    ("kind", "broken"),
    [("floor", slow_ops), ("growth", shrinking), ("batch", spilling), ("interval", outside), ("doors", elsewhere)],
)
def test_an_answer_without_a_property_is_found(monkeypatch, kind, broken):
    answer = Asked.answer
    monkeypatch.setattr(Asked, "answer", lambda self, **changed: broken(answer(self, **changed)))
    assert kind in {violation.kind for violation in violations(ASKED)}


def test_a_default_that_nobody_can_install_is_found_unless_the_answer_says_so(monkeypatch):
    asked = replace(ASKED, device="google-coral-edge-tpu", runtime="ideal")
    assert "default engine" not in {violation.kind for violation in violations(asked)}
    monkeypatch.setattr("inferometer.predict.question.engine_notes", lambda _: ())
    monkeypatch.setattr("inferometer.predict.question._bases", Kept())
    monkeypatch.setattr("inferometer.predict.question._answers", Kept())
    assert list(sanity.default_engine(asked))


def answered(device, ratio):
    row = SimpleNamespace(device=device, model="resnet50", engine="ncnn", quantity="forward", seconds=1.0)
    return PublishedAnswer(row=row, phase=Phase(name="forward", time_s=ratio, low_s=ratio / 1.5, high_s=ratio * 1.5))


def test_the_page_names_devices_that_are_off_by_more_than_two_times_and_no_others(monkeypatch):
    answers = [answered("raspberry-pi-5", 3.0), answered("raspberry-pi-5", 0.4), answered("raspberry-pi-4", 1.2)]
    monkeypatch.setattr(known_misses, "published_answers", lambda _aside: answers)
    page = known_misses.known_misses_page(7, {"growth": 2}, {("npu", "attention", "*"): "it was measured"})
    assert "| raspberry-pi-5 | ncnn | forward | 2 | 2 | 1.70 | 0% |" in page
    assert "| raspberry-pi-4 |" not in page
    assert "| cpu | ncnn | forward | 3 | 2 | 1.20 | 33% |" in page
    assert "2 against *growth*" in page
    assert "- attention of NPUs, whoever says so: it was measured." in page

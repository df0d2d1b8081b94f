"""What the verb asks for, and what a row says of a step that was proven, disproven or not measured."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.core.profile import Verification
from inferometer.core.workload import Workload
from inferometer.measure.prepare import run
from inferometer.measure.prepare.carrying_out import Made
from inferometer.measure.prepare.proof import MeasuredGain, ProvedFile
from inferometer.measure.prepare.run import PrepareRequest, StepResult


def test_every_argument_arrives_in_the_order_and_the_rest_is_as_usual(monkeypatch):
    monkeypatch.setattr(run, "carry_out_request", lambda request: request)
    assert run.prepare(
        "m", runtime="r", out="o", device="d", quantise="i8", calibrate_with=["a", "b"], overwrite=True, force=True,
        measure=False, batch=2, prompt=3, generate=4, image=5, sizes={"w": 6}, threads=7, runs=8, seed=9, trust=["t"],
    ) == PrepareRequest(
        model="m", runtime="r", out=Path("o"), device="d", quantise="i8", calibrate_with=("a", "b"), overwrite=True,
        force=True, measure=False, workload=Workload(batch=2, prompt=3, generate=4, image=5), sizes={"w": 6}, threads=7,
        runs=8, seed=9, trust=("t",),
    )  # fmt: skip
    assert run.prepare("m", runtime="r") == PrepareRequest(model="m", runtime="r")
    assert run.prepare("m", runtime="r", calibrate_with="one").calibrate_with == ("one",)


ROW = StepResult(
    name="s", tool="t 1", title="T", format="onnx", bytes=10, seconds=2.0, cached=True, notes=("made",), verified=True,
    drift=0.5, allowed="1 %",
)  # fmt: skip
GAIN = MeasuredGain(gain=2.0, low=1.5, high=3.0, verdict="faster", reason="sure", profile=None)


def proven(monkeypatch, *, measured=GAIN, status="verified", reason=None, here=True, runtime="r", optional=False):
    step = SimpleNamespace(name="s", title="T", gives="onnx", tool="t", tool_version=lambda: "1", optional=optional)
    check = Verification(status=status, rms_rel=0.5, tolerance="1 %", reason=reason)
    monkeypatch.setattr(run, "predicted_gain", lambda *_: None)
    monkeypatch.setattr(run, "verified", lambda *_: check)
    monkeypatch.setattr(run, "measured_gain", lambda *_, **__: measured)
    made = Made(path=Path("x"), bytes=10, seconds=2.0, cached=True, notes=("made",))
    after = ProvedFile(path=Path("x"), runtime=runtime)
    before = ProvedFile(path=Path("o"), runtime="r")
    return run._proven(step, made, SimpleNamespace(here=here, original=before), before, after)[:2]


def test_a_row_says_what_was_proven_and_measured(monkeypatch):
    figures = {"measured_gain": 2.0, "measured_low": 1.5, "measured_high": 3.0}
    assert proven(monkeypatch) == (replace(ROW, **figures, verdict="faster"), True)
    told, opened = proven(monkeypatch, reason="near")
    assert (told.notes, opened) == (("made", "near"), True)
    wrong, _ = proven(monkeypatch, status="failed", reason="off")
    assert wrong == replace(ROW, verified=False, verdict="wrong", kept=False, notes=("made", "off"))
    unchecked, _ = proven(monkeypatch, status="unchecked")
    assert (unchecked.verified, unchecked.verdict) == (None, "faster")
    way, opened = proven(monkeypatch, runtime=None)
    assert (way.verdict, way.verified, opened) == ("on the way", None, False)


@pytest.mark.parametrize(("here", "notes"), [(True, ("made", "no engine")), (False, ("made",))])
def test_why_nothing_was_measured_is_told_only_where_it_could_have_been(monkeypatch, here, notes):
    row, opened = proven(monkeypatch, measured="no engine", here=here)
    assert (row.notes, row.verdict, row.kept, opened) == (notes, "not measured", True, True)


@pytest.mark.parametrize(
    ("verdict", "optional", "kept"),
    [("slower", True, False), ("slower", False, True), ("faster", True, True), ("undecided", True, True)],
)
def test_only_an_optional_step_that_is_slower_is_left_out(monkeypatch, verdict, optional, kept):
    row, _ = proven(monkeypatch, measured=replace(GAIN, verdict=verdict), optional=optional)
    assert (row.kept, row.verdict) == (kept, verdict)
    assert row.notes == (("made", "Undecided: sure.") if verdict == "undecided" else ("made",))

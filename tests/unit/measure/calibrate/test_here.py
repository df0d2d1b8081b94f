"""All engines in one budget, what this machine's calibrations stand on, and forgetting them."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from inferometer.cli.commands import calibrate as door
from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.errors import EngineError
from inferometer.engines.base import Ready
from inferometer.measure.calibrate import here
from inferometer.measure.calibrate.job import CalibrationResult
from inferometer.measure.calibrate.run import CalibrationOutcome
from inferometer.predict.basis.files import write_calibration

TABLE = Utilisation(op_class="linear", stream="floor", axes=("rows",), grid=((1.0,),), values=(0.5,), residual=0.1)
MADE = Calibration(
    device="local", runtime="onnxruntime", dtype="f32", created="2026-11-17T10:00:00+00:00", unit="cpu", threads=2,
    tables=(TABLE,),
    residuals={"step.forward": 0.05}, points=40, steps=3, fitted_on=("small", "large"), versions={"onnxruntime": "0.1"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_engine(monkeypatch):
    """No engine is installed, so none is served by a shipped calibration."""
    monkeypatch.setattr(here, "installed_engines", tuple)


def ask(folder, *words):
    return CliRunner().invoke(door.command, ["--folder", str(folder), *words], catch_exceptions=False)


def journal(folder, name):
    (folder / "journals" / name).mkdir(parents=True)
    (folder / "journals" / name / "points.jsonl").write_text("")


def test_what_an_engine_leaves_of_its_share_goes_to_those_after_it():
    now = [1000.0]
    shares = []
    for name, share_s in here.shares_of_budget(("quick", "slow", "last"), 600.0, lambda: now[0]):
        shares.append((name, share_s))
        now[0] += 12.0 if name == "quick" else share_s
    assert shares == [("quick", 200.0), ("slow", 294.0), ("last", 294.0)]
    assert now[0] == 1600.0


def test_an_engine_whose_turn_comes_too_late_has_none():
    ticks = iter([0.0, 0.0, 595.0])
    shares = list(here.shares_of_budget(("a", "b"), 600.0, lambda: next(ticks)))
    assert shares == [("a", 300.0), ("b", 0.0)]


def test_every_engine_has_its_turn_and_one_that_fails_stops_no_other(tmp_path, monkeypatch):
    seen = []

    def measured(device, *, runtime, budget_s, **asked):
        seen.append((device, runtime, budget_s, asked["dtype"]))
        if runtime == "broken":
            raise EngineError("it is broken")
        outcome = CalibrationOutcome(points=(), steps=(), done=1, left=0)
        return SimpleNamespace(budget_s=budget_s), CalibrationResult(outcome=outcome)

    monkeypatch.setattr(here, "installed_engines", lambda: ("broken", "whole"))
    monkeypatch.setattr(here, "standings", lambda _folder: ((), ()))
    monkeypatch.setattr(door, "_measured_here", measured)
    monkeypatch.setattr(here, "shares_of_budget", lambda names, budget_s: [(name, budget_s / 2) for name in names])
    result = ask(tmp_path, "--all")
    assert seen == [("local", "broken", 300.0, None), ("local", "whole", 300.0, None)]
    assert "It could not be calibrated: it is broken" in result.output
    monkeypatch.setattr(here, "shares_of_budget", lambda _, budget_s: [("whole", budget_s), ("broken", 0.0)])
    assert "No time was left for broken." in ask(tmp_path, "--all").output
    monkeypatch.setattr(here, "shares_of_budget", lambda names, budget_s: [(name, budget_s / 2) for name in names])
    monkeypatch.setattr(here, "installed_engines", lambda: ("broken",))
    with pytest.raises(Exception, match="None of 1 engine"):
        ask(tmp_path, "--all", "--budget", "1min")
    assert seen[-1] == ("local", "broken", 30.0, None)


@pytest.mark.parametrize(
    "words",
    [("--all", "--show"), ("--show", "--forget"), ("--all", "--runtime", "onnxruntime"), ("--all", "--out", "f")],
)
def test_options_that_contradict_each_other_are_refused(tmp_path, words):
    with pytest.raises(Exception, match=r"different things|each in its own format|about this machine"):
        ask(tmp_path, *words)


def test_what_predictions_stand_on_is_shown_with_what_has_changed_since(tmp_path):
    older = replace(MADE, created="2026-11-01T10:00:00+00:00", points=1)
    for calibration in (older, MADE, replace(MADE, device="raspberry-pi-5")):
        write_calibration(calibration, tmp_path)
    (shown,) = json.loads(ask(tmp_path, "--show", "--format", "json").stdout)
    assert (shown["runtime"], shown["points"], shown["steps"], shown["fitted_on"]) == (
        "onnxruntime", 40, 3, ["small", "large"],
    )  # fmt: skip
    assert "made with onnxruntime 0.1; now it is" in shown["changed"][0]
    table = ask(tmp_path, "--show").stdout
    assert "3 of 2 models" in table
    assert "changed since" in table


def test_a_machine_where_nothing_was_calibrated_is_told_how(tmp_path):
    assert "calibrate --all" in ask(tmp_path, "--show").output


def test_another_machines_calibration_in_a_shared_folder_is_neither_shown_nor_forgotten(tmp_path):
    path = write_calibration(replace(MADE, environment={"machine_id": "another"}), tmp_path)
    assert here.standings(tmp_path) == ((), ())
    assert here.forget(tmp_path) == ()
    assert path.exists()


def test_a_calibration_cut_off_while_it_was_copied_is_named_and_can_be_forgotten(tmp_path):
    path = write_calibration(MADE, tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    found, refused = here.standings(tmp_path)
    assert found == ()
    assert str(path) in refused[0]
    assert here.forget(tmp_path, "onnxruntime") == (path,)


def test_forgetting_an_engine_leaves_the_others_and_their_journals(tmp_path):
    gone = write_calibration(MADE, tmp_path)
    kept = [
        write_calibration(replace(MADE, runtime="onnxruntime-genai", dtype="i4"), tmp_path),
        write_calibration(replace(MADE, device="raspberry-pi-5"), tmp_path),
    ]
    for name in (
        "local-onnxruntime-f32-2-threads",
        "local-onnxruntime-genai-i4-2-threads",
        "raspberry-pi-5-litert-f32",
    ):
        journal(tmp_path, name)
    result = ask(tmp_path, "--forget", "onnxruntime")
    assert "is forgotten" in result.output
    assert not gone.exists()
    assert all(path.exists() for path in kept)
    left = sorted(path.name for path in (tmp_path / "journals").iterdir())
    assert left == ["local-onnxruntime-genai-i4-2-threads", "raspberry-pi-5-litert-f32"]
    assert "Nothing was calibrated of llamacpp" in ask(tmp_path, "--forget", "--runtime", "llamacpp").output
    ask(tmp_path, "--forget")
    assert [path.exists() for path in kept] == [False, True]
    assert [path.name for path in (tmp_path / "journals").iterdir()] == ["raspberry-pi-5-litert-f32"]
    assert "Nothing was calibrated" in ask(tmp_path, "--forget").output


def test_engines_that_are_first_for_a_kind_of_model_are_calibrated_first(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(here, "runtime_named", lambda _: SimpleNamespace(probe=lambda: Ready(version="1")))
    names = here.installed_engines()
    assert set(names[:2]) == {"onnxruntime", "llamacpp"}
    assert len(names) == len(set(names)) > 8
    assert names[-1] == "torch-compile"

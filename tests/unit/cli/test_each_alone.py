"""Where a command asks whether any of several options was given: each alone, and none."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from inferometer.cli.commands import atlas, calibrate, export, sweep
from inferometer.core.errors import DomainError

RUN = CliRunner()


@pytest.mark.parametrize(
    "asked", [(), ("--pareto", "tpot_s,batch"), ("--cheapest", "tpot_s<=1s"), ("--pareto", "tpot_s,batch", "--chart")]
)
def test_each_question_is_answered_from_the_file_that_a_sweep_wrote(monkeypatch, tmp_path, asked):
    out, answered = tmp_path / "rows.csv", []
    study = SimpleNamespace(window_notes=list)
    monkeypatch.setattr(sweep, "_study", lambda *_: nullcontext(study))
    monkeypatch.setattr(sweep, "_write", lambda *_, **__: None)
    monkeypatch.setattr(sweep, "_print_answers", lambda rows, *_: answered.append(rows.path))
    chart = (str(tmp_path / "a.svg"),) if "--chart" in asked else ()
    done = RUN.invoke(sweep.command, ["--models", "resnet50", "--out", str(out), *asked, *chart])
    assert (done.exception, answered) == (None, [out] if asked else [])


@pytest.mark.parametrize("given", [{"runtime": "ncnn"}, {"dtype": "f16"}, {"out": Path("o")}, {"device_name": "pi"}])
def test_what_is_of_one_engine_is_refused_beside_all_of_them(monkeypatch, given):
    monkeypatch.setattr("inferometer.measure.calibrate.here.installed_engines", tuple)
    options = {"runtime": None, "dtype": None, "out": None, "device_name": "local", "budget": None}
    with pytest.raises(DomainError, match="every engine on this machine"):
        calibrate._calibrate_all({**options, **given}, "table")


@pytest.mark.parametrize(
    ("words", "named"),
    [((), None), (("--send",), None), (("--hub", "http://h"), None), ((), "INFEROMETER_PUSH"), ((), "INFEROMETER_HUB")],
)
def test_a_run_is_sent_to_whatever_hub_is_named(monkeypatch, words, named):
    sent = []
    monkeypatch.setattr(export, "_print_sent", lambda *given, **_: sent.append(given))
    if named is not None:
        monkeypatch.setenv(named, "http://h")
    done = RUN.invoke(export.command, list(words))
    assert (done.exit_code, len(sent)) == ((0, 1) if words or named else (2, 0)), done.output


def test_where_a_model_was_measured_is_told_where_a_device_was_asked_for_too():
    model, device = "resnet50", "intel-core-i9-13900k"
    both = atlas._nothing({"model": model, "device": device, "runtime": "ncnn"})
    assert both.remedy.startswith(f"{model} was measured on ")
    for asked in ({"model": model, "runtime": "ncnn"}, {"model": model, "device": None}, {"device": device}):
        assert atlas._nothing(asked).remedy == "Leave one of the options out."

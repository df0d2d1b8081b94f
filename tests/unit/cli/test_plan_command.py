"""`inferometer plan` at its door: slips are told as slips, and what would change nothing is refused."""

import pytest
from click.testing import CliRunner

from inferometer.cli.run import cli

SERVED = ["plan", "llama-3.2-1b", "--on", "nvidia-l4", "--slo", "ttft_p95<=1s", "--rate", "5"]
FRAMES = ["plan", "yolo11n", "--on", "raspberry-pi-5", "--frames", "30"]


def refused(*words):
    result = CliRunner().invoke(cli, list(words))
    assert result.exception is not None
    assert result.stdout == ""
    return f"{result.exception} {result.stderr}"


@pytest.mark.parametrize(
    ("option", "value"), [("--kv", "fp9"), ("--weights", "nonsense"), ("--runtime", "vlm"), ("--on", "nvidia-l44")]
)
def test_a_name_that_nobody_knows_is_a_slip_and_no_plan_that_failed(option, value):
    told = refused(*SERVED, option, value)
    assert f"named '{value}'" in told
    assert "There is no plan" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*SERVED, "--streams", "3"], "--frames"),
        ([*SERVED, "--max-watts", "3"], "--frames"),
        ([*SERVED, "--round-trip", "3ms"], "--edge"),
        ([*SERVED, "--replica-up", "0.9"], "--availability"),
        ([*FRAMES, "--rate", "3"], "--rate"),
        ([*FRAMES, "--slo", "ttft<=1s"], "--slo"),
        ([*FRAMES, "--day", "0.5,1"], "--day"),
        ([*FRAMES, "--launch", "here"], "--launch"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(words, told):
    assert told in refused(*words)


def test_files_that_hold_nothing_or_stand_in_the_way_are_told_before_anything_is_searched(tmp_path, monkeypatch):
    monkeypatch.setattr("inferometer.serving.plans.search.plan", lambda *_, **__: pytest.fail("searched"))
    file = tmp_path / "prices.csv"
    for text in ("", "device,usd_per_hour\n"):
        file.write_text(text)
        assert "has no price" in refused(*SERVED, "--prices", str(file))
    assert "name a folder" in refused(*SERVED, "--launch", str(file))

"""How true predictions are on the shipped measurements: models left out of the fit, with the shipped calibrations."""

from functools import cache

import pytest

from inferometer.calibrate.accuracy import ask_like, judge, peer_errors, standing
from inferometer.calibrate.cases import read_cases, read_peers
from inferometer.calibrate.choose import calibration_for


@cache
def judged(runtime, phase):
    cases = [case for case in read_cases() if case.device == "nvidia-h200" and case.runtime == runtime]
    found, refused = judge(cases)
    assert refused == ()
    return [each for each in found if each.case.phase == phase]


@pytest.mark.parametrize(
    ("runtime", "phase", "n", "median", "p90"),
    [
        ("torch-compile", "decode", 8, 0.05, 0.15),
        ("torch-graph", "decode", 33, 0.07, 0.15),
        ("torch-graph", "prefill", 28, 0.06, 0.15),
    ],
)
def test_language_models_that_were_left_out_are_predicted(runtime, phase, n, median, p90):
    found = standing(judged(runtime, phase))
    assert found["n"] >= n
    assert found["median"] <= median
    assert found["p90"] <= p90
    assert abs(found["bias"]) <= 0.05


@pytest.mark.parametrize(
    ("runtime", "phase"), [("torch-compile", "decode"), ("torch-graph", "decode"), ("torch-graph", "prefill")]
)
def test_eight_in_ten_intervals_hold_and_are_narrow(runtime, phase):
    found = standing(judged(runtime, phase))
    assert 0.75 <= found["covered"] <= 0.95
    assert found["width"] <= 0.30


def test_prompts_that_keep_the_gpu_busy_are_predicted():
    """Of 512 tokens the host decides, and it was not quiet: 5.2 to 8.7 ms for the same work."""
    busy = [each for each in judged("torch-compile", "prefill") if each.case.prompt >= 2048]
    assert standing(busy)["median"] <= 0.06


def test_no_prediction_beats_its_floor():
    for case in read_cases():
        calibration = calibration_for(case.device, case.runtime, case.dtype).calibration
        phase = ask_like(case, calibration).phase(case.phase)
        assert phase.floor_s <= phase.low_s <= phase.time_s <= phase.high_s


def test_every_peer_is_further_off_on_the_same_cases():
    rows = peer_errors(judged("torch-compile", "decode"), read_peers())
    assert len(rows) >= 15
    assert all(row["ours"] < row["median"] for row in rows)

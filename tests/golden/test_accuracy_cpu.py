"""How true predictions for a CPU are, on measurements of models that no shipped calibration was fitted to.

They were taken on a virtual machine whose pace drifts: a median case took a quarter longer in its slowest pass than in
its fastest, which bounds how near a prediction can come.
"""

from functools import cache

import pytest

from inferometer.understand.accuracy.cases import family_of, read_cases
from inferometer.understand.accuracy.judge import error_summary, judge_cases

DEVICE = "intel-emerald-rapids-1-vcpu"


@cache
def judged(runtime):
    found, refused = judge_cases([case for case in read_cases() if (case.device, case.runtime) == (DEVICE, runtime)])
    assert refused == ()
    assert {each.how for each in found} == {"held out"}
    return found


def test_there_are_cases_of_every_family():
    every = [*judged("onnxruntime"), *judged("llamacpp")]
    assert len(every) >= 60
    assert {family_of(each.case.model) for each in every} >= {"cnn", "encoder", "decoder"}
    assert {each.case.weights for each in judged("llamacpp")} == {"q8_0", "q4_0", "f16"}


@pytest.mark.parametrize(
    ("runtime", "median", "p90", "width"), [("onnxruntime", 0.08, 0.20, 0.35), ("llamacpp", 0.12, 0.22, 0.50)]
)
def test_models_that_no_fit_has_seen_are_predicted(runtime, median, p90, width):
    found = error_summary(judged(runtime))
    assert found["median"] <= median
    assert found["p90"] <= p90
    assert found["covered"] >= 0.70
    assert found["width"] <= width

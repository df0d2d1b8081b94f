"""A device calibrated from published times, and tables of them judged."""

import csv
from dataclasses import replace
from itertools import pairwise

import pytest

import inferometer as im
from inferometer.core.errors import DomainError
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.known.atlas.shipped import load
from inferometer.measure.calibrate.from_table import models_to_measure, save_fit
from inferometer.measure.calibrate.priors.cases import cases_of
from inferometer.measure.calibrate.priors.judged import DEVICE_OUT, FEW, judge_rows, sums_vector
from inferometer.measure.calibrate.priors.stack import log_times, stack_of
from inferometer.predict.price.deviations import half_of, known_deviations, known_unit, model_effect

NPU = "qualcomm-snapdragon-8-gen-3-npu"
HEADER = ("device", "model", "engine", "weights", "activations", "batch", "image", "quantity", "figure", "figure_unit")
MODELS = ("resnet18", "resnext50_32x4d", "densenet121", "efficientnet_b0", "mobilenetv3_large_100", "resnet101")


def rows_of(device=NPU, engine="qnn", activations="i8"):
    table = load(["qai-hub"]).where(device=device, engine=engine, activations=activations)
    return [row for row in table.rows() if (row.model or "").removeprefix("timm:") in MODELS]


def written(tmp_path, lines, header=HEADER):
    path = tmp_path / "mine.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def line(model, seconds, unit="s", device=NPU):
    return (device, f"timm:{model}", "qnn", "i8", "i8", 1, 224, "forward", seconds, unit)


def test_a_prediction_is_what_the_fit_is_of(monkeypatch, tmp_path):
    """The fit's times and `predict`'s are one formula: else what was left out would say nothing of answers."""
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    row = next(row for row in rows_of() if not row.settings.get("elsewhere") and row.settings.get("form") == "dlc")
    case = cases_of([row]).cases[0]
    stack = stack_of([case], [0], sums_vector(case.standing)[None, :])
    seconds = float(log_times(stack, 0 * stack.base, slopes=False)[0][0])
    effect = model_effect(case.model, known_unit(case.standing)).times
    asked = im.predict(row.model, on=NPU, runtime="qnn", weights="i8", activations="i8")
    assert asked.phase("forward").time_s == pytest.approx(
        2.718281828459045**seconds * effect, rel=1e-3
    )  # an op is never below its floor


def test_rows_that_cannot_be_are_set_aside_and_the_rest_is_fitted(tmp_path):
    lines = [line(model, 1e-3 * (1 + place)) for place, model in enumerate(MODELS)]
    rk = "rockchip-rk3588-npu"
    lines = [(rk, *each[1:]) for each in lines]
    bad = [(rk, *line("resnet34", 1, "furlong")[1:]), lines[0], (rk, *line("resnet34", 1e-9)[1:])]
    lines = [tuple("rknn" if cell == "qnn" else cell for cell in each) for each in [*lines, *bad]]
    fit = im.calibrate_from(written(tmp_path, lines), device=rk, runtime="rknn")
    assert (fit.rows, len(fit.calibration.fitted_on)) == (6, 6)
    reasons = [(each.line, each.reason) for each in fit.set_aside]
    assert [number for number, _ in reasons] == [8, 9, 10]
    assert "furlong" in reasons[0][1]
    assert "line 2" in reasons[1][1]
    assert "faster than" in reasons[2][1]


def test_two_models_are_too_few(tmp_path):
    path = written(tmp_path, [line(model, 0.01) for model in MODELS[:2]])
    with pytest.raises(DomainError, match="needs 3 or more"):
        im.calibrate_from(path, device=NPU, runtime="qnn")


def test_three_models_that_agree_promise_no_more_than_six_do(tmp_path):
    """Three lie near together by chance: their intervals held half of what came after, and were half as wide."""
    lines = [line(model, im.predict(f"timm:{model}", on=NPU, runtime="qnn", weights="i8", activations="i8",
                                        image=224).summary.latency_s) for model in MODELS]  # fmt: skip
    fits = [im.calibrate_from(written(tmp_path, lines[:many]), device=NPU, runtime="qnn") for many in (3, 6)]
    few, more = (fit.calibration.residuals["step"] for fit in fits)
    usual = half_of(known_deviations().spreads, cases_of(rows_of()[:1]).cases[0].standing, "forward", near="seen",
                    known="known") / EIGHT_IN_TEN  # fmt: skip
    assert few >= more > 0.5 * usual
    assert few > 0.8 * usual


def test_what_was_fitted_is_used_by_the_next_prediction(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    lines = [line(model, 10 * im.predict(f"timm:{model}", on=NPU, runtime="qnn", weights="i8", activations="i8")
                  .phase("forward").time_s) for model in MODELS]  # fmt: skip
    before = im.predict("timm:resnet34", on=NPU, runtime="qnn", weights="i8", activations="i8").phase("forward")
    fit = im.calibrate_from(written(tmp_path, lines), device=NPU, runtime="qnn")
    save_fit(fit)
    profile = im.predict("timm:resnet34", on=NPU, runtime="qnn", weights="i8", activations="i8")
    after = profile.phase("forward")
    assert after.time_s > 2.5 * before.time_s
    assert after.low_s < after.time_s < after.high_s
    assert any("Fitted from 6 published models" in note for note in profile.provenance.notes)
    assert {op.origin for op in after.ops if op.time_s > 0} == {"calibrated"}


def test_a_device_without_a_figure_answers_from_its_class_and_says_so():
    profile = im.predict("timm:resnet18", on="google-coral-edge-tpu", runtime="litert", weights="i8", activations="i8")
    forward = profile.phase("forward")
    assert forward.floor_s <= forward.low_s < forward.time_s < forward.high_s
    assert any("lacks" in note and "class" in note for note in profile.provenance.notes)


def test_a_table_is_judged_by_what_was_in_the_fit():
    rows = rows_of()
    judged = judge_rows(rows)
    assert judged.rows == len(rows)
    assert {group.way for group in judged.groups} == {"in the fit"}


def test_what_maps_to_nothing_is_counted_by_its_reason():
    rows = [replace(row, model=None, model_published="nonesuch") for row in rows_of()[:2]]
    judged = judge_rows(rows)
    assert judged.groups == ()
    assert judged.left == {"the model nonesuch has no graph here": 2}


def test_a_row_with_other_parameters_than_the_graph_is_of_another_network():
    row = next(load(["timm"]).where(model="timm:resnet18", device="nvidia-rtx-4090").rows())
    reading = cases_of([row, replace(row, parameters=row.parameters * 1.1)])
    assert len(reading.cases) == 1
    assert dict(reading.left) == {"timm:resnet18 has a graph with another number of parameters": 1}


def test_a_device_that_nobody_published_is_judged_apart_and_from_a_few_of_its_models():
    table = load(["timm"]).where(device="nvidia-rtx-4090", engine="torch-eager", quantity="forward")
    rows = [replace(row, device="nvidia-rtx-4080") for row in table.rows() if row.model in _TIMM and row.image == 224]
    ways = {group.way: group for group in judge_rows(rows).groups}
    assert ways[DEVICE_OUT].steps == len(rows)
    assert FEW not in ways  # six models are fewer than the twenty it would be calibrated from


@pytest.fixture(scope="module")
def plan():
    return models_to_measure(device="qualcomm-snapdragon-888-npu", runtime="qnn")


def test_ten_models_to_measure_each_of_which_leaves_less_open(plan):
    assert len(set(plan.models)) == len(plan.models) == 10
    assert list(plan.halves) == sorted(plan.halves, reverse=True)
    assert plan.halves[10] < 0.75 * plan.halves[0]


def test_what_to_measure_first_tells_more_than_what_comes_last(plan):
    gains = [before - after for before, after in pairwise(plan.halves)]
    assert gains[0] == max(gains)


def test_where_nobody_ran_models_nothing_can_be_chosen():
    with pytest.raises(DomainError, match="too few to choose from"):
        models_to_measure(device="st-stm32h747", runtime="esp-dl")


def test_where_few_ran_models_with_an_engine_those_that_others_ran_are_proposed():
    plan = models_to_measure(device="raspberry-pi-5", runtime="onnxruntime")
    assert (plan.runtime, plan.dtype, len(set(plan.models))) == ("onnxruntime", "f32", 10)
    assert list(plan.halves) == sorted(plan.halves, reverse=True)


_TIMM = frozenset(f"timm:{name}" for name in MODELS)

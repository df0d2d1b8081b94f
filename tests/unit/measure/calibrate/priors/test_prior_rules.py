"""The arithmetic of the priors, number by number: times, noise, pulls, spreads, and what left-out rows earn."""

from dataclasses import replace
from math import exp, expm1, log, sqrt
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.measure.calibrate.priors import judged as judging
from inferometer.measure.calibrate.priors.hierarchy import KINDS, _noise
from inferometer.measure.calibrate.priors.judged import (
    JudgedRow,
    _from_few,
    few_models,
    how_far,
    summaries,
)
from inferometer.measure.calibrate.priors.stack import StackCase, log_times, odds, stack_of
from inferometer.predict.price.deviations import PARAMETERS, Standing
from inferometer.predict.price.likeness import ALIKE, IN_COMMON, NOISE, OWN, SCATTER
from inferometer.predict.work.classes import FITTED
from workshop.priors.build import _by_kind, _covered, _effects, _levels, _ways, spreads
from workshop.priors.hierarchy import ModelEffects, _first_variance, effects_of, hierarchy_of, starting_point
from workshop.priors.leaving import LeftOut, Validation, _crossed, _likeness, judge_validation, left_out, side_of

CONVOLUTION, LINEAR = FITTED.index("convolution.window"), FITTED.index("linear")
PREFILL, DECODE = FITTED.index("linear.prefill"), FITTED.index("linear.decode")
PLACE = {name: place for place, name in enumerate(PARAMETERS)}


def standing(device="a", **given):
    values = {"device": device, "unit": "npu", "vendor": "v", "family": "f", "engine": "qnn", "kind": "phone",
              "weights": "i8", "activations": "i8"}  # fmt: skip
    return Standing(**{**values, **given})


def case(model="m", device="a", *, seconds=1.0, **given):
    values = {
        "dataset": "d", "compute": np.array([2e-3, 1e-3]), "memory": np.array([1e-3, 3e-3]),
        "kernels": np.array([1.0, 2.0]), "repeats": np.array([3.0, 1.0]), "classes": np.array([CONVOLUTION, LINEAR]),
    }  # fmt: skip
    where = given.pop("standing", None) or standing(device)
    return StackCase(model=model, standing=where, seconds=seconds, **{**values, **given})


def point(**logs):
    """A leaf's sums: shares of one half, a microsecond a kernel, and what is given."""
    sums = np.zeros((1, len(PARAMETERS)))
    named = {"kernel": log(1e-6), "step": log(1e-5), "host": log(2e-6), "unpack": log(3.0), **logs}
    for name, value in named.items():
        sums[0, PLACE[name]] = value
    return sums


def time_of(one, **logs):
    stack = stack_of([one], [0], point(**logs))
    return exp(log_times(stack, np.zeros_like(stack.base), slopes=False)[0].item())


def test_a_step_is_its_ops_at_their_shares_its_kernels_and_the_step():
    # Convolution: three times 2 ms of arithmetic at one half; linear: 3 ms of memory at one half; five kernels.
    assert time_of(case()) == pytest.approx(3 * 4e-3 + 6e-3 + 5e-6 + 1e-5)
    assert time_of(case(steps=7.0)) == pytest.approx(3 * 4e-3 + 6e-3 + 5e-6 + 7e-5)
    quick = {"compute:convolution.window": odds(0.8)}
    assert time_of(case(), **quick) == pytest.approx(3 * 2e-3 / 0.8 + 6e-3 + 1.5e-5)
    assert time_of(case(), **{"memory:linear": odds(0.75)}) == pytest.approx(12e-3 + 4e-3 + 1.5e-5)
    assert time_of(case(), **{"kernel:linear": log(10)}) == pytest.approx(18e-3 + 3e-6 + 2e-5 + 1e-5)


def test_weights_are_unpacked_as_if_for_some_rows_more_and_a_host_may_be_waited_for():
    tokens = case(unpack=np.array([1e-3, 0.0]))
    assert time_of(tokens) == pytest.approx(3 * (2e-3 + 3 * 1e-3) * 2 + 6e-3 + 1.5e-5)
    waits = {"host": log(1e-2)}  # five kernels started in 50 ms, which the device does not take
    assert time_of(case(hosted=True), **waits) == pytest.approx(5e-2 + 1e-5)
    assert time_of(case(hosted=True)) == time_of(case(), **waits) == pytest.approx(18e-3 + 1.5e-5)


@pytest.mark.parametrize(
    ("one", "logs"),
    [(case(unpack=np.array([1e-3, 2e-3]), steps=3.0), {}), (case(hosted=True), {"host": log(1e-2)}),
     (case(hosted=True), {}), (case(), {"compute": 1.0, "memory:linear": -1.0, "kernel": log(1e-3)})],
    ids=["unpacked", "waiting", "not waiting", "many kernels"],
)  # fmt: skip
def test_every_slope_is_that_of_the_time(one, logs):
    stack = stack_of([one], [0], point(**logs))
    theta = np.zeros_like(stack.base)
    at, slopes = log_times(stack, theta)
    for place in range(len(PARAMETERS)):
        moved = theta.copy()
        moved[0, place] = 1e-6
        assert (log_times(stack, moved)[0] - at).item() / 1e-6 == pytest.approx(slopes[0, place], abs=2e-5)


def test_a_case_says_what_was_timed_and_how_it_ran():
    plain, streamed = case(), case(standing=standing(variants=("stream=4",)))
    read = case(unpack=np.zeros(2), classes=np.array([PREFILL, PREFILL]))
    made = replace(read, classes=np.array([PREFILL, DECODE]))
    assert [each.quantity for each in (plain, streamed, read, made)] == ["forward", "stream", "prefill", "decode"]
    assert [each.runs_on for each in (plain, made)] == ["npu:qnn", "npu:qnn:decode"]
    assert [each.way for each in (plain, made)] == ["npu:qnn:i8/i8", "npu:qnn:decode"]


# How far rows scatter, and what pulls on a level.


def test_the_noise_of_a_leaf_is_its_own_with_eight_usual_rows():
    residuals, leaf = np.array([0.1, -0.3, 0.2, 5.0]), np.array([0, 0, 1, 1])
    usual = 0.25 * 1.4826  # the median of 0.1, 0.2, 0.3 and 5
    first = sqrt((0.1**2 + 0.3**2 + 8 * usual**2) / 10)
    second = sqrt((0.2**2 + 1.0**2 + 8 * usual**2) / 10)  # a wild row counts as one
    assert _noise(residuals, leaf, 2) == pytest.approx([first, second])
    apart = _noise(residuals, leaf, 2, np.array([0, 1]))
    assert apart[0] == pytest.approx(sqrt((0.1 + 8 * (0.2 * 1.4826) ** 2) / 10))
    assert apart[1] == 0.6, "at most"
    assert _noise(np.zeros(4), leaf, 3).tolist() == [0.05, 0.05, 0.05], "at least, a leaf without rows too"


def small():
    """One leaf of two cases, all of whose levels are at nothing."""
    fit = hierarchy_of([case("m1"), case("m2", seconds=2.0)])
    fit.noise = np.array([0.5])
    return fit


def test_far_rows_weigh_less_and_the_objective_is_students_and_the_pull_to_nothing():
    fit = small()
    residuals = np.array([0.0, 1.0])
    assert fit._weights(residuals) == pytest.approx([5 / 4 / 0.25, 5 / (4 + 4) / 0.25])
    level = fit.levels["device:a"]
    level.value = level.value.copy()
    level.value[PLACE["step"]] = 0.3
    found = fit.residuals() / 0.5
    loss = sum(5 / 2 * log(1 + each**2 / 4) for each in found.tolist())
    assert fit.objective() == pytest.approx(loss + 0.5 * 0.3**2 / 0.8**2)


def test_rows_of_one_leaf_weigh_less_beyond_sixty():
    fit = hierarchy_of([case(f"m{number}") for number in range(240)] + [case("x", "b")])
    assert fit.weights[:240] == pytest.approx(np.full(240, 0.5))
    assert fit.weights[240] == 1.0
    assert [len(level.members) for level in (fit.levels["unit:npu"], fit.levels["device:b"])] == [2, 1]


def test_a_sweep_solves_each_level_against_its_own_variance():
    """One level alone: the ridge solution in closed form, and no step longer than one."""
    fit = small()
    fit.levels = {"device:a": fit.levels["device:a"]}
    fit.linearise(noise=False)
    information, pull = fit.information[0], fit.pull[0]
    assert information[PLACE["step"], PLACE["step"]] > 0
    variance = fit.variances["device"]
    expected = np.linalg.solve(information + np.diag(1 / variance), pull)
    fit.sweep()
    level = fit.levels["device:a"]
    assert level.value == pytest.approx(expected, abs=1e-9)
    assert level.posterior == pytest.approx(np.linalg.inv(information + np.diag(1 / variance)))
    far = small()
    far.levels = {"device:a": far.levels["device:a"]}
    far.linearise(noise=False)
    far.pull = far.pull * 1e6
    far.sweep(times=1)
    assert np.abs(far.levels["device:a"].value).max() == 1.0


def test_variances_are_those_of_the_members_and_of_what_is_not_known_of_them():
    fit = hierarchy_of([case("m", device) for device in "abcd"])
    count = len(PARAMETERS)
    for number, level in enumerate(fit.levels.values()):
        level.posterior = np.diag(np.full(count, 0.01))
        level.value = np.full(count, 0.1 * (number % 3))
    devices = [level.value[0] for name, level in fit.levels.items() if name.startswith("device:")]
    before = fit.variances["device"].copy()
    fit.estimate_spreads()
    told = 4 / (4 + 4)
    own = sum(value**2 for value in devices) / 4 + 0.01
    assert before[PLACE["compute"]] == pytest.approx(0.4**2)
    assert fit.variances["device"] == pytest.approx(told * own + (1 - told) * before)
    assert fit.variances["unit"] == pytest.approx(_first_variance("unit")), "there is but one unit, or two"


def test_where_sums_and_spreads_begin():
    def share(unit, name):
        return 1 / (1 + exp(-starting_point(unit)[PLACE[name]]))

    assert [share("cpu", "compute"), share("gpu", "memory"), share("npu", "compute")] == pytest.approx([0.4, 0.7, 0.15])
    assert [exp(starting_point(unit)[PLACE["kernel"]]) for unit in ("cpu", "gpu", "npu")] == pytest.approx(
        [2e-6, 4e-6, 4e-6]
    )
    assert [exp(starting_point(unit)[PLACE["unpack"]]) for unit in ("cpu", "gpu")] == pytest.approx([3.0, 16.0])
    assert exp(starting_point("cpu")[PLACE["step"]]) == pytest.approx(1e-5)
    wide = _first_variance("engine")
    assert wide[PLACE["kernel"]] == pytest.approx((1.5 * 0.6) ** 2)
    assert wide[PLACE["kernel:linear"]] == pytest.approx((1.5 * 0.6 * 0.6) ** 2)
    assert _first_variance("unit")[PLACE["step"]] == pytest.approx((2.5 * 0.8) ** 2)
    assert _by_kind(np.sqrt(_first_variance("device"))) == {
        "compute": 0.4, "memory": 0.4, "kernel": 0.6, "step": 0.8, "host": 0.4, "unpack": 0.5, "compute:": 0.24,
        "memory:": 0.24, "kernel:": 0.36,
    }  # fmt: skip
    assert set(KINDS) == {*_by_kind(_first_variance("device"))}


def test_a_device_without_rows_goes_back_to_its_parents_and_the_fit_stays_as_it_was():
    cases = [case(f"m{n}", device, seconds=0.02 * (3 if device == "b" else 1)) for device in "ab" for n in range(6)]
    fit = hierarchy_of(cases)
    fit.fit(6)
    before = fit.theta().copy()
    out = np.array([each.standing.device == "b" for each in cases])
    other = fit.without(out)
    assert fit.theta() == pytest.approx(before)
    assert np.abs(other.levels["device:b"].value).max() < 1e-6
    assert other.weights.tolist() == np.where(out, 0.0, fit.weights).tolist()


# What models take over what their work says.


def effects(**given):
    """Three groups of one engine; the first has words of two devices, one with two rows."""
    values = {
        "group": np.array([0, 0, 0, 1, 2]), "device": np.array([0, 0, 1, 2, 3]), "device_group": np.array([0, 0, 1, 2]),
        "engine": np.array([0, 0, 0]), "engines": ("npu:qnn",), "names": (("a", "w"), ("b", "w"), ("c", "w")),
        "kin": (), "most": 1.2,
    }  # fmt: skip
    return ModelEffects(**{**values, **given})


def test_a_devices_rows_are_one_word_and_words_are_averaged():
    residuals, kept = np.array([0.2, 0.4, 0.9, 5.0, 0.7]), np.array([True, True, True, True, False])
    means, counts = effects().means(residuals, kept)
    assert means == pytest.approx([(0.3 + 0.9) / 2, 1.2, 0.0]), "a wild row is bounded"
    assert counts.tolist() == [2, 1, 0]


def test_what_is_usual_is_the_median_of_five_models_or_more():
    many = effects(engine=np.array([0, 0, 0, 0, 0, 1]), engines=("x", "y"), names=(("m", "w"),) * 6)
    means, counts = np.array([0.1, 0.2, 0.9, 0.25, 0.15, 0.8]), np.ones(6)
    assert many.usual(means, counts) == pytest.approx([0.2, 0.0])
    assert many.usual(means, np.array([1, 1, 1, 1, 0, 1])) == pytest.approx([0.0, 0.0])


def test_without_features_a_model_pulls_on_itself_as_devices_agree():
    usual, pulls = effects().pulls(np.array([0.6, 0.3, 0.5]), np.array([2, 1, 0]))
    assert usual == pytest.approx([0.0])
    assert pulls == pytest.approx([0.6 * 2 / 4, 0.3 * 1 / 3, 0.0])
    assert effects().of_rows(np.array([0.2, 0.4, 0.9, 0.3, 0.7]), np.ones(5, dtype=bool)) == pytest.approx(
        [0.3, 0.3, 0.3, 0.1, 0.7 / 3]
    )


def test_groups_share_by_likeness_engine_and_formats_and_are_solved_together():
    other = replace(standing(), weights="f16", activations="f16")
    cases = [case("a", features=(0,)), case("b", features=(40,)), case("a", features=(0,), standing=other)]
    made = effects_of(cases)
    (kin,) = made.kin
    near = exp(-(0.4**2) / (2 * 0.2**2))
    unit, engine, formats = IN_COMMON
    apart = unit + engine
    kernel = np.array([
        [ALIKE + OWN, ALIKE * near, (ALIKE + OWN) * apart],
        [ALIKE * near, ALIKE + OWN, ALIKE * near * apart],
        [(ALIKE + OWN) * apart, ALIKE * near * apart, ALIKE + OWN],
    ])  # fmt: skip
    assert unit + engine + formats == pytest.approx(1.0)
    assert kin.kernel == pytest.approx(kernel)
    means, counts = np.array([0.5, -0.2, 0.1]), np.array([1.0, 2.0, 0.0])
    _, pulls = made.pulls(means, counts)
    told = np.linalg.solve(kernel[:2, :2] + np.diag([SCATTER + NOISE, SCATTER + NOISE / 2]), means[:2])
    assert pulls == pytest.approx([*told, 0.0])
    expected = kernel[:, :2] @ told
    assert made._expected(means, counts) == pytest.approx(expected)
    assert made.most == 1.2
    assert effects_of([case("a")]).most == 0.5


# Rows that were left out.


def test_of_a_device_all_but_a_few_models_are_left_out():
    cases = [case(f"m{n}@{side}", dataset=table) for table in ("timm", "d") for n in range(30) for side in (224, 320)]
    everything = np.ones(len(cases), dtype=bool)

    def kept(**given):
        out = few_models(cases, everything, **given)
        rows = [(each.dataset, each.model.partition("@")[0]) for each, left in zip(cases, out, strict=True) if not left]
        assert len(rows) == 2 * len(set(rows)), "with all of its sizes"
        return {table: len({name for of, name in rows if of == table}) for table in ("timm", "d")}

    assert kept() == {"timm": 20, "d": 10}
    assert kept(count=3) == {"timm": 3, "d": 3}
    none = few_models(cases, ~everything)
    assert not none.any()


def test_likeness_is_to_the_nearest_kept_model_of_the_engine():
    cases = [case("a", features=(0,)), case("b", features=(40,)), case("c", features=(80,)), case("d")]
    out = np.array([True, False, False, False])
    near = exp(-2)
    assert _likeness(cases, out) == pytest.approx([near, 1.0, 1.0, 0.0])
    assert _likeness(cases, np.array([True, True, False, False])) == pytest.approx([exp(-8), near, 1.0, 0.0])


def test_only_judged_rows_have_a_residual_and_known_models_were_kept_with_the_engine():
    cases = [case(f"m{n % 4}", device, seconds=0.02) for device in "ab" for n in range(4)]
    fit = hierarchy_of(cases)
    out = np.array([each.standing.device == "b" or each.model == "m0" for each in cases])
    looked = np.array([each.standing.device == "b" for each in cases])
    found = left_out(fit, [out], judged=[looked])
    assert np.isnan(found.residuals).tolist() == (~looked).tolist()
    assert found.known.tolist() == [bool(see) and each.model != "m0" for see, each in zip(looked, cases, strict=True)]
    other = fit.without(out)
    assert found.residuals[looked] == pytest.approx(other.residuals()[looked])


def judged_row(residual, half=0.2, **given):
    values = {"dataset": "d", "unit": "npu", "engine": "qnn", "quantity": "forward", "way": "w", "device": "a",
              "model": "m", "roofline": None}  # fmt: skip
    return JudgedRow(residual=residual, half=half, **{**values, **given})


def test_errors_are_of_the_predicted_over_the_published():
    rows = [judged_row(log(2)), judged_row(-log(4)), judged_row(0.1, half=0.1)]
    found = how_far(rows)
    errors = [-0.5, 3.0, expm1(-0.1)]  # half of it was predicted, four times as much, a tenth less
    assert found["median"] == 0.5
    assert found["bias"] == pytest.approx(errors[2], abs=1e-4)
    assert found["p90"] == pytest.approx(0.5 + 0.8 * (3.0 - 0.5))
    assert found["coverage"] == pytest.approx(1 / 3, abs=1e-4), "the ends belong to it"
    assert found["width"] == pytest.approx(exp(0.2) - exp(-0.2), abs=1e-4)


def test_a_summary_is_of_one_way_and_counts_devices_and_models():
    rows = [
        judged_row(0.1, roofline=0.5), judged_row(0.1, device="b", roofline=0.7), judged_row(0.1, model="n"),
        judged_row(0.2, way="x"), judged_row(0.2, unit="gpu"),
    ]  # fmt: skip
    found = summaries(rows)
    assert [(each.unit, each.way, each.steps, each.devices, each.models, each.roofline) for each in found] == [
        ("gpu", "w", 1, 1, 1, None), ("npu", "w", 3, 2, 2, 0.6), ("npu", "x", 1, 1, 1, None),
    ]  # fmt: skip


def kept_of(cases, residuals, *, known=True, likeness=0.0):
    count = len(cases)
    return LeftOut(
        residuals=np.asarray(residuals, float), known=np.full(count, known), likeness=np.full(count, likeness),
        near=np.full(count, "seen", dtype=object), fitted=np.ones(count, dtype=bool),
    )  # fmt: skip


def test_an_interval_comes_from_what_the_other_half_of_the_models_told():
    cases = [case(f"m{n:02d}", dataset=table) for table in ("d", "e") for n in range(4)]
    told = [{"npu:seen:like": 0.1}, {"npu:seen:like": 0.3}]
    kept = kept_of(cases, [0.2] * 7 + [np.nan], known=False, likeness=0.6)
    assert side_of(cases).tolist() == [0, 1, 0, 1] * 2
    assert _crossed(cases, kept, told).tolist() == [0.3, 0.1, 0.3, 0.1, 0.3, 0.1, 0.3, 0.0], "none was left out last"


def test_what_was_left_out_is_judged_in_six_ways_beside_a_roofline():
    cases = [case(f"m{n:02d}", seconds=0.018) for n in range(4)]
    nothing, some = [np.nan] * 4, [0.1, np.nan, 0.1, np.nan]
    none = kept_of(cases, nothing)
    validation = Validation(
        devices=kept_of(cases, some), families=kept_of(cases, [0.3, *nothing[1:]]),
        makers=kept_of(cases, [np.nan, 0.5, 0.6, np.nan]), models=kept_of(cases, [0.2] * 4),
        sources=kept_of(cases, [0.4] * 3 + [np.nan]), few=none,
    )  # fmt: skip
    found = {each.way: each for each in judge_validation(cases, validation, np.full(4, 0.5), ({}, {}))}
    assert {way: each.steps for way, each in found.items()} == {
        "device left out": 2, "family left out": 1, "engine's rows of the maker left out": 2, "model left out": 4,
        "source left out": 3, "other source, device seen": 3,
    }  # fmt: skip
    assert found["source left out"].coverage == 1, "0.4 within the half-width of 0.5 that other sources tell"
    assert found["model left out"].median == pytest.approx(-expm1(-0.2), abs=1e-4)
    # 3 · 2 ms of arithmetic and 3 ms of memory at the peaks, of 18 ms
    assert found["device left out"].roofline == pytest.approx(0.5)


def test_a_device_is_calibrated_by_itself_from_its_few_models(monkeypatch):
    """Every row of the fit errs by its place; a device of too few models has none left out, and one that is not
    wanted is not looked at.
    """
    cases = [case(f"m{n}", device) for device, models in (("a", 12), ("b", 5), ("c", 12)) for n in range(models)]
    asked = []

    def own_levels(own, effects):
        asked.append(({each.standing.device for each in own}, effects[0].place))
        stack = SimpleNamespace(logs=np.arange(len(own), dtype=float))
        fit = SimpleNamespace(stack=stack)
        fit.without = lambda out, rounds: SimpleNamespace(theta=lambda: (out, rounds))
        return fit

    monkeypatch.setattr(judging, "own_levels", own_levels)
    monkeypatch.setattr(judging, "log_times", lambda _stack, _theta, slopes: (np.full(12, 0.5), slopes))
    monkeypatch.setattr(judging, "_half", lambda _case, seen, known: (seen, known) == (True, "known") and 0.25)
    wanted = np.array([each.standing.device != "c" for each in cases])
    told = [SimpleNamespace(known="known", place=place) for place in range(len(cases))]
    residuals, halves = _from_few(cases, wanted, told, None)
    assert asked == [({"a"}, 0)]
    out = few_models(cases, wanted)
    assert out.sum() == 2
    assert residuals[out] == pytest.approx(np.flatnonzero(out) - 0.5)
    assert halves[out].tolist() == [0.25, 0.25]
    assert np.isnan(residuals[~out]).all()


# The file.


def test_a_half_width_holds_eight_in_ten_and_few_models_are_mixed_with_the_wider_group():
    cases = [case(f"m{n}", "ab"[n % 2], seconds=0.02) for n in range(10)]
    cases += [case(f"x{n}", "c", standing=standing("c", engine="other")) for n in range(2)]
    errors = [0.1 * (n + 1) for n in range(10)] + [2.0, 2.0]
    nothing = kept_of(cases, [np.nan] * 12)
    devices = kept_of(cases, errors)
    models = kept_of(cases, errors, known=False, likeness=0.6)
    found = spreads(cases, Validation(
        devices=devices, families=nothing, makers=nothing, models=models, sources=nothing, few=nothing
    ))  # fmt: skip
    all_rows = float(np.quantile(errors, 0.87))  # of two devices or ten models, and no more of fewer than a dozen
    own = float(np.quantile(errors[:10], 0.87))
    assert found["npu:unseen:known"] == round(all_rows, 3)
    by_engine = sqrt((2 * own**2 + 6 * all_rows**2) / 8)  # two devices say so
    assert found["npu:qnn:unseen:known"] == pytest.approx(by_engine, abs=2e-3)
    assert found["npu:qnn:forward:unseen:known"] == pytest.approx(sqrt((2 * own**2 + 6 * by_engine**2) / 8), abs=2e-3)
    all_models = float(np.quantile(errors, 0.8 * 13 / 12))
    assert found["npu:qnn:seen:like"] == pytest.approx(sqrt((10 * own**2 + 6 * all_models**2) / 16), abs=2e-3)
    assert {name.rpartition(":")[2] for name in found} == {"known", "like"}
    assert not any("seen:known" in name and "unseen" not in name for name in found), "no few models were kept"


def test_language_models_are_told_by_devices_families_and_models_alone():
    validation = Validation(devices="d", families="F", makers="M", models="m", sources="s", few="f")
    assert _ways(validation, tokens=True) == [
        ("unseen:known", "d", None), ("unseen:new", "d", None), ("seen:known", "m", None), ("seen:new", "m", None),
        ("stranger:known", "F", None), ("stranger:new", "F", None), ("foreign:known", "M", None),
        ("foreign:new", "M", None),
    ]  # fmt: skip
    assert _ways(validation, tokens=False) == [
        ("unseen:known", "d", True), ("stranger:known", "F", True), ("foreign:known", "M", True),
        ("seen:known", "f", True), ("seen:near", "m", False), ("seen:like", "m", False),
        ("seen:new", "m", False),
    ]  # fmt: skip


def test_a_level_is_written_with_what_was_learned_of_it():
    fit = hierarchy_of([case("m1"), case("m2"), case("m1", "b")])
    count = len(PARAMETERS)
    for level in fit.levels.values():
        level.posterior = np.diag(fit.variances[level.pool] * 0.5**2)
    level = fit.levels["unit:npu"]
    level.value = np.zeros(count)
    level.value[:3] = 0.1234, -0.0039, -0.0041
    level.posterior = level.posterior.copy()
    level.posterior[3, 3] = fit.variances["unit"][3] * 0.98**2
    level.value[3] = 0.5  # hardly learned
    rows = _levels(fit)
    assert (rows["unit:npu"].devices, rows["unit:npu"].rows) == (2, 3)
    assert rows["unit:npu"].values == {"compute": 0.123, "kernel": -0.004}
    assert (rows["device:a"].devices, rows["device:a"].rows, rows["device:a"].values) == (1, 2, {})
    gpu = case(standing=standing(unit="gpu"), classes=np.array([LINEAR, LINEAR]))
    assert _covered([case(), gpu]) == {"gpu": ("linear",), "npu": ("convolution.window", "linear")}


def test_pulls_are_written_by_where_models_ran_with_the_devices_that_say_so():
    cases = [case(f"m{n}", device, seconds=0.02, features=(10 * n,)) for device in "ab" for n in range(6)]
    fit = hierarchy_of(cases)
    fit.weights = np.array([float(each.model != "m5") for each in cases])
    found = _effects(fit)
    assert {where: sorted(models) for where, models in found["pulls"].items()} == {
        "npu:qnn:i8/i8": ["m0", "m1", "m2", "m3", "m4"],
    }  # fmt: skip
    assert {devices for _, devices in found["pulls"]["npu:qnn:i8/i8"].values()} == {2}
    bare = fit.stack.logs - log_times(fit.stack, fit.theta(), slopes=False)[0]
    assert found["usual"] == {"npu:qnn": pytest.approx(float(np.clip(bare[0], -1.2, 1.2)), abs=1e-4)}
    assert found["features"]["m3"] == (30,)

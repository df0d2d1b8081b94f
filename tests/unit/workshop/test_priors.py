"""Priors fitted from whole-model times: what is found again, what a sum can be, and what is left out."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from inferometer.measure.calibrate.priors.judged import EVERY, EVIDENCE, few_models
from inferometer.measure.calibrate.priors.stack import StackCase, log_times
from inferometer.predict.price.deviations import (
    PARAMETERS,
    UNKNOWN_SPREAD,
    Standing,
    half_of,
    nearness,
    share_of,
    source_half,
    source_names,
)
from inferometer.predict.work.classes import FITTED
from workshop.priors.build import source_halves, source_spreads, spreads, thinned, validated
from workshop.priors.fit import Keep
from workshop.priors.hierarchy import hierarchy_of
from workshop.priors.leaving import (
    device_folds,
    family_folds,
    judge_validation,
    left_out,
    maker_folds,
    model_folds,
    name_family,
    side_of,
    source_folds,
)

CONVOLUTION, LINEAR = FITTED.index("convolution.window"), FITTED.index("linear")
TRUE = {"convolution": 0.5, "linear": 0.2, "memory": 0.6, "kernel": 5e-6}


def standing(device, **given):
    values = {"device": device, "unit": "npu", "vendor": "nobody", "family": "one", "engine": "qnn", "kind": "phone"}
    return Standing(**values, weights="i8", activations="i8", **given)


def case(device, number, *, slower=1.0, share=1.0, features=None):
    """A model of two layers whose sizes differ from number to number; `slower` is its own effect."""
    draw = np.random.default_rng(number)
    compute, memory = draw.uniform(1e-4, 2e-3, 2), draw.uniform(1e-5, 4e-4, 2)
    shares = np.array([TRUE["convolution"], TRUE["linear"]]) * share
    seconds = np.sum(np.maximum(compute / shares, memory / TRUE["memory"]) + TRUE["kernel"])
    return StackCase(
        dataset="made", model=f"m{number}", standing=standing(device), seconds=float(slower * seconds),
        compute=compute, memory=memory, kernels=np.ones(2), repeats=np.ones(2), classes=np.array([CONVOLUTION, LINEAR]),
        features=features,
    )  # fmt: skip


def fitted(cases, rounds=12):
    fit = hierarchy_of(cases)
    fit.fit_with_effects(rounds)
    return fit


def test_slopes_are_those_of_the_times():
    fit = hierarchy_of([case("a", number) for number in range(4)])
    theta = np.full((1, len(PARAMETERS)), 0.1)
    logs, slopes = log_times(fit.stack, theta)
    for place in (0, 1, 2, 3, PARAMETERS.index("compute:linear"), PARAMETERS.index("kernel:convolution.window")):
        moved = theta.copy()
        moved[0, place] += 1e-6
        assert (log_times(fit.stack, moved)[0] - logs) / 1e-6 == pytest.approx(slopes[:, place], abs=1e-4)


def test_a_fit_finds_the_times_it_was_made_from():
    fit = fitted([case(device, number) for device in "ab" for number in range(30)])
    assert np.median(np.abs(fit.residuals())) < 0.02


def test_a_device_that_was_left_out_answers_with_what_its_kind_reaches():
    cases = [case(device, number) for device in "abcd" for number in range(25)]
    fit = fitted(cases)
    out = np.array([each.standing.device == "d" for each in cases])
    kept = left_out(fit, [out])
    assert np.median(np.abs(kept.residuals[out])) < 0.06
    assert np.isnan(kept.residuals[~out]).all()
    assert kept.known[out].all()


def test_the_effect_of_a_model_comes_from_other_devices_only():
    cases = [case(device, number, slower=1.5 if number == 3 else 1.0) for device in "abcde" for number in range(25)]
    fit = fitted(cases)
    device = np.array([each.standing.device == "e" for each in cases])
    model = np.array([each.model == "m3" for each in cases])
    assert abs(left_out(fit, [device]).residuals[device & model]) < 0.2  # the others say that it is slower
    alone = left_out(fit, [model])
    assert np.median(alone.residuals[model]) > 0.25  # nobody is left to say so
    assert not alone.known[model].any()


def test_ten_models_tell_a_slow_device_from_its_kind():
    cases = [case(device, number, share=0.4 if device == "d" else 1.0) for device in "abcd" for number in range(30)]
    fit = fitted(cases)
    slow = np.array([each.standing.device == "d" for each in cases])
    unseen, few = left_out(fit, [slow]), left_out(fit, [few_models(cases, slow)], rounds=3)
    told = ~np.isnan(few.residuals)
    assert told.sum() == 20
    assert np.median(np.abs(few.residuals[told])) < 0.15 < np.median(np.abs(unseen.residuals[slow]))


def test_a_model_is_left_out_at_every_size_of_picture():
    cases = [case("a", 0), case("a", 1)]
    object.__setattr__(cases[0], "model", "net@224")
    object.__setattr__(cases[1], "model", "net@320")
    assert [fold.tolist() for fold in model_folds(cases, 2)] == [[True, True]]


def named(*names):
    return [replace(case("a", 0), model=name) for name in names]


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (("resnet50", "torchvision:resnet18@224", "timm:resnet101.a1_in1k"), "resnet"),
        (("mobilenet_v2", "mobilenetv3_large_100", "timm:tf_mobilenetv3_small@128"), "mobilenet"),
        (("yolov8n", "yolo11s@640"), "yolo"),
        (("llama-2-7b", "llama-3.2-1b"), "llama"),
    ],
)
def test_siblings_share_the_word_that_their_names_begin_with(names, family):
    assert {name_family(name) for name in names} == {family}


def test_a_new_table_moves_no_family_of_models_to_another_fold():
    """Folds drawn by lot had a new table move the figures of all others."""
    cases = named("resnet50", "vit_b_16", "yolov8n", "mobilenet_v2", "llama-2-7b", "resnet18")
    before, after = model_folds(cases, 16), model_folds([*named("new_net", "alexnet", "vgg16"), *cases], 16)
    goes_with = [{tuple(np.flatnonzero(fold[-6:])) for fold in folds} - {()} for folds in (before, after)]
    assert goes_with[0] == goes_with[1]
    assert any({0, 5} <= set(fold) for fold in goes_with[0]), "both ResNets"
    assert len(goes_with[0]) > 1


def test_an_engine_is_left_out_on_one_maker_at_a_time_while_others_tell_of_its_devices():
    made = [
        replace(each, standing=replace(each.standing, vendor=vendor, engine=engine))
        for vendor, engine in (("amd", "vllm"), ("intel", "vllm"), ("intel", "openvino"), ("amd", "hip"))
        for each in [case(f"{vendor} {engine}", 0)]
    ]
    assert sorted(fold.tolist() for fold in maker_folds(made)) == [
        [False, True, False, False],
        [True, False, False, False],
    ]


def test_a_device_of_a_maker_that_an_engine_hardly_ran_on_is_foreign_to_it():
    makers = {"npu:qnn": {"nobody": 1, "somebody": 7}}
    near = partial(nearness, makers=makers, related=True)
    assert near(standing("a"), seen=False) == "foreign"
    assert near(standing("a"), seen=True) == "seen"
    assert near(replace(standing("a"), vendor="somebody"), seen=False) == "unseen"
    assert near(replace(standing("a"), engine="rknn"), seen=False) == "unseen", "nothing is known of the engine"
    spreads = {"npu:stranger:known": 0.3, "npu:qnn:foreign:known": 0.9}
    assert half_of(spreads, standing("a"), "forward", near="foreign", known="known") == 0.9
    assert half_of(spreads, replace(standing("a"), engine="rknn"), "forward", near="foreign", known="known") == 0.3


@pytest.mark.parametrize("odds", [-1e9, -3.0, 0.0, 40.0, 1e9])
def test_no_sum_reaches_more_than_the_peak(odds):
    assert 0 < share_of(odds) < 1


def test_a_model_that_nobody_measured_is_expected_to_err_as_those_like_it_do():
    """Ten models of one family run half as fast as their work says; an eleventh of it, left out, is told by them."""
    kin, others = (400, 0, 100), (100, 100, 0)
    cases = [
        case(device, number, slower=2.0 if number < 11 else 1.0, features=kin if number < 11 else others)
        for device in "abc"
        for number in range(40)
    ]
    fit = fitted(cases)
    model = np.array([each.model == "m3" for each in cases])
    alone = left_out(fit, [model])
    assert not alone.known[model].any()
    assert np.median(np.abs(alone.residuals[model])) < 0.15


def test_a_model_that_is_half_like_some_that_run_slowly_is_expected_to_run_as_is_usual():
    """Families of models left out were told worse by what is half alike than by the engine's usual effect."""
    cases = [
        case(
            device,
            number,
            slower=2.0 if number < 10 else 1.0,
            features=(50,) if number < 10 else (0 if number == 10 else 300,),
        )
        for device in "abc"
        for number in range(40)
    ]
    model = np.array([each.model == "m10" for each in cases])
    assert np.median(np.abs(left_out(fitted(cases), [model]).residuals[model])) < 0.1


def test_a_model_is_told_by_its_own_formats_before_others():
    cases = [
        replace(
            each, standing=replace(each.standing, weights=weights, activations=weights), seconds=each.seconds * times
        )
        for device in "abcd"
        for number in range(20)
        for each in [case(device, number, features=(number * 50,))]
        for weights, times in (("i8", 1.0), ("f16", 1.6 if number == 3 else 1.0))
    ]
    fit = fitted(cases)
    effects = {(each.model, each.standing.weights): offset for each, offset in zip(cases, fit.offsets, strict=True)}
    assert effects["m3", "f16"] - effects["m3", "i8"] > 0.15


def test_devices_of_one_table_are_left_out_apart():
    cases = [case(device, 0) for device in "abcd"]
    assert sorted(int(fold.sum()) for fold in device_folds(cases, 4)) == [1, 1, 1, 1]


def test_a_device_of_two_tables_keeps_its_fold_and_the_others_avoid_it():
    other = [replace(case(device, 0), dataset="another") for device in "xyzwvd"]  # read first, by its name
    cases = [*other, *(case(device, 0) for device in "abcd")]
    ours = np.array([each.dataset == "made" for each in cases])
    assert all(int((fold & ours).sum()) == 1 for fold in device_folds(cases, 4))


def of_family(family, device, unit="npu", numbers=(0,), **given):
    stands = replace(standing(device), family=family, unit=unit, **given)
    return [replace(case(device, number), standing=stands) for number in numbers]


def test_a_family_is_left_out_with_every_device_of_it():
    cases = [*of_family("two", "a"), *of_family("two", "b"), *(case(device, 0) for device in "cdef")]
    assert sorted(int(fold.sum()) for fold in family_folds(cases)) == [2, 4]


@pytest.mark.parametrize("more", [("aa", "npu"), ("m", "npu"), ("z", "npu"), ("aa", "gpu")])
def test_no_family_goes_with_another_of_its_kind_of_unit_whatever_else_a_table_has(more):
    """Folds drawn by lot had a new family move all others: one engine's error went from 15 to 52 % without a reason."""
    cases = [each for unit in ("npu", "gpu") for name in "bcdx" for each in of_family(name, f"{unit} {name}", unit)]
    for given in (cases, [*cases, *of_family(*more[:1], "new", more[1])]):
        folds = family_folds(given)
        assert sum(fold.astype(int) for fold in folds).tolist() == [1] * len(given)
        for fold in folds:
            out = [each.standing for each, goes in zip(given, fold, strict=True) if goes]
            assert len({each.unit for each in out}) == len(out)


def test_families_of_other_kinds_of_units_that_go_with_one_do_not_change_what_it_is_answered_with():
    cases = [
        each
        for unit, engine in (("npu", "qnn"), ("gpu", "tensorrt"))
        for number, name in enumerate("abc")
        for each in of_family(name, f"{unit} {name}", unit, range(15), engine=engine)
        for each in [replace(each, seconds=each.seconds * 1.3**number)]
    ]
    fit = fitted(cases)
    together = family_folds(cases)
    alone = [
        fold & np.array([each.standing.unit == unit for each in cases]) for fold in together for unit in ("npu", "gpu")
    ]
    assert left_out(fit, together).residuals == pytest.approx(left_out(fit, alone).residuals, abs=0.02)


def in_source(name, cases, *, slower):
    return [replace(each, dataset=name, seconds=each.seconds * slower) for each in cases]


def test_the_habits_of_a_source_are_no_part_of_an_answer():
    """Three tables of one device agree and a fourth takes twice as long: nobody who asks has the fourth's harness."""
    cases = [
        each
        for name, slower in (("one", 1.0), ("two", 1.0), ("three", 1.0), ("slow", 2.0))
        for each in in_source(name, [case("a", number) for number in range(20)], slower=slower)
    ]
    fit = fitted(cases)
    assert any(name == "source:npu:qnn:slow" for name in fit.levels)
    out = np.array([each.dataset == "one" for each in cases])
    assert abs(np.median(left_out(fit, [out]).residuals[out])) < 0.3 < np.log(2)


def test_a_device_is_answered_as_the_table_has_it_that_measured_it():
    """A large table of four devices, and a blog's five rows of one of them that take four times as long."""
    large = in_source("large", [case("abcd"[number % 4], number) for number in range(160)], slower=1.0)
    small = in_source("small", [case("b", number) for number in range(5)], slower=4.0)
    fit = fitted([*large, *small]).answered()
    assert not any(level.kind == "source" for level in fit.levels.values())
    errors = fit.residuals()
    assert abs(np.median(errors[: len(large)])) < 0.1, "not moved by five rows of another"
    out = np.array([each.standing.device == "a" for each in (*large, *small)])
    unseen = left_out(fitted([*large, *small]), [out]).residuals[out]
    assert abs(np.median(unseen)) < 0.15, "nor is a device that nobody measured"


def test_one_source_of_an_engine_is_not_told_apart_from_it():
    assert not any(name.startswith("source:") for name in hierarchy_of([case("a", n) for n in range(3)]).levels)


def test_a_source_left_out_widens_intervals_until_they_hold_eight_in_ten():
    habits = {f"s{number}": float(times) for number, times in enumerate(np.geomspace(0.5, 2.0, 8))}
    cases = [
        each
        for name, slower in habits.items()
        for each in in_source(name, [case("abcd"[number % 4], number) for number in range(12)], slower=slower)
    ]
    fit = fitted(cases)
    kept = left_out(fit, source_folds(cases, 4))
    halves = {"npu:seen:known": 0.05}
    added = source_spreads(cases, kept, halves)
    within = np.abs(kept.residuals) <= np.sqrt(0.05**2 + added["source:forward:npu:seen"] ** 2)
    assert 0.7 <= within.mean() <= 0.95
    assert added["source"] > 0.3
    told_by_others = source_halves(cases, kept, halves)
    assert 0.6 <= (np.abs(kept.residuals) <= told_by_others).mean() <= 1.0


def test_a_large_table_is_judged_by_some_of_its_models_and_a_small_one_by_all(monkeypatch):
    monkeypatch.setattr("workshop.priors.build.JUDGED_CASES", 40)
    large = [case("a", number) for number in range(400)]
    small = in_source("small", [case("a", number) for number in range(20)], slower=1.0)
    kept = thinned([*large, *small])
    assert sum(each.dataset == "small" for each in kept) == 20
    assert 15 <= sum(each.dataset == "made" for each in kept) <= 80


def test_a_stranger_answers_with_the_width_of_families_and_else_with_that_of_devices():
    spreads = {"npu:unseen:known": 0.3, "npu:qnn:stranger:known": 0.6, "npu:seen:new": 0.4}
    stranger = {"near": "stranger", "known": "known"}
    assert half_of(spreads, standing("a"), "forward", **stranger) == 0.6
    other = replace(standing("a"), engine="rknn")
    assert half_of(spreads, other, "forward", **stranger) == 0.3
    new = half_of(spreads, standing("a"), "forward", near="stranger", known="new")
    assert new == pytest.approx(np.hypot(0.4, 0.6))  # of a device and of a model: two doubts


def test_a_seen_device_is_known_no_worse_than_an_unseen_one_and_one_that_nothing_tells_of_is_not_known():
    spreads = {"npu:unseen:known": 0.3, "cpu:seen:near": 0.1}
    assert half_of(spreads, standing("a"), "forward", near="seen", known="known") == 0.3
    assert half_of(spreads, standing("a"), "forward", near="seen", known="new") == UNKNOWN_SPREAD


def test_sources_that_share_an_engine_are_left_out_apart():
    cases = [
        replace(
            case("a", 0), dataset=f"s{number}", standing=replace(standing("a"), engine="qnn" if number < 3 else "rknn")
        )
        for number in range(6)
    ]
    for fold in source_folds(cases, 3):
        assert sorted(each.standing.engine for each, out in zip(cases, fold, strict=True) if out) == ["qnn", "rknn"]


def test_of_a_short_list_half_is_left_out_where_that_is_asked():
    cases = [case("a", number) for number in range(8)]
    every = np.ones(8, dtype=bool)
    assert few_models(cases, every).sum() == 0
    assert few_models(cases, every, of_short_lists=True).sum() == 4


def on_cpu(device, clock, number):
    """What such a CPU reaches of its peak falls by half each time that its stated clock doubles."""
    made = case(device, number, share=0.8 * np.exp(-clock))
    cpu = replace(made.standing, unit="cpu", family=device, clock=clock, engine="ncnn")
    return replace(made, standing=cpu)


def test_an_unseen_cpu_is_told_by_its_clock_where_no_relative_of_it_is_there():
    clocks = dict(zip("abcdefghijkl", np.linspace(-0.8, 0.8, 12).tolist(), strict=True))
    cases = [on_cpu(device, clock, number) for device, clock in clocks.items() for number in range(10)]
    out = np.array([each.standing.device == "l" for each in cases])
    blind = [replace(each, standing=replace(each.standing, clock=0.0)) for each in cases]
    told, untold = (np.median(np.abs(left_out(fitted(each), [out]).residuals[out])) for each in (cases, blind))
    assert told < 0.6 * untold


def test_all_rows_are_judged_once_more_by_what_stood_behind_them():
    cases = [
        each
        for name in ("one", "two", "three")
        for each in in_source(name, [case("abcd"[n % 4], n, features=(n,)) for n in range(16)], slower=1.0)
    ]
    fit = fitted(cases)
    validation = validated(fit)
    halves = source_halves(cases, validation.sources, {"npu:seen:known": 0.3})
    told = [spreads(cases, validation, side_of(cases) == side) for side in (0, 1)]
    groups = judge_validation(cases, validation, halves, told)
    together = {group.way: group for group in groups if group.dataset == EVERY}
    assert set(together) <= set(EVIDENCE)
    assert together["other source, device seen"].steps == len(cases)
    assert together["same source, device seen"].devices == 4


def added_by(spreads, unit, quantity="forward", *, near="seen", fitted=True):
    return source_half(spreads, source_names(quantity, unit, near, fitted))


def test_what_a_source_adds_is_by_its_quantity_its_unit_and_by_whether_others_have_the_engine():
    spreads = {"source": 0.2, "source:forward": 0.25, "source:forward:npu": 0.3, "source:forward:npu:seen": 0.1,
               "engine": 0.5}  # fmt: skip
    assert added_by(spreads, "npu") == 0.1
    assert added_by(spreads, "npu", near="stranger") == 0.3
    assert added_by(spreads, "gpu") == 0.25
    assert added_by(spreads, "npu", "prefill") == 0.2
    assert added_by(spreads, "npu", fitted=False) == 0.5
    assert added_by({}, "npu") == 0.0


def as_tokens(made, phase, slower):
    classes = np.full(2, FITTED.index(f"linear.{phase}"))
    return replace(made, unpack=np.zeros(2), classes=classes, seconds=made.seconds * slower)


def test_prompts_that_sources_differ_in_widen_no_interval_of_decoding():
    """Tables agree on a step of decoding within 5 %, and on a prompt within a factor: each is answered as it is."""
    cases = []
    for number, habit in enumerate(np.geomspace(0.4, 2.5, 8)):
        of_source = in_source(f"s{number}", [case("abcd"[n % 4], n) for n in range(12)], slower=1.0)
        cases += [as_tokens(each, "decode", 1.0) for each in of_source]
        cases += [as_tokens(each, "prefill", float(habit)) for each in of_source]
    fit = fitted(cases)
    kept = left_out(fit, source_folds(cases, 4))
    added = source_spreads(cases, kept, {"npu:seen:known": 0.05})
    assert added_by(added, "npu", "prefill") > 2 * added_by(added, "npu", "decode")


def test_a_fit_that_was_stopped_goes_on_where_it_was_and_half_a_file_is_none(tmp_path):
    made, keep = [], Keep(tmp_path)

    def make(name):
        made.append(name)
        return {"of": name}

    for _ in range(2):
        assert keep("one", lambda: make("one")) == {"of": "one"}
    (tmp_path / "two.part").write_bytes(b"half of")
    assert keep("two", lambda: make("two")) == {"of": "two"}
    assert made == ["one", "two"]
    keep.forget()
    assert not any(tmp_path.glob("*.pickle"))
    assert Keep(None)("one", lambda: make("again")) == {"of": "again"}

"""When a run stands out from its series, where a series changed, and what moved on the machine."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.errors import DomainError
from inferometer.core.profile import DeviceFacts, Environment, Headline, ModelFacts, Profile
from inferometer.core.workload import Workload
from inferometer.measure.bench.verdict import change_points, judge
from inferometer.understand.series import AlarmRule, environment_changes, rounds_verdict, suspicion


def noisy(count, spread, seed, level=1.0):
    draw = random.Random(seed)  # noqa: S311 - noise, no secret
    return [level * math.exp(draw.gauss(0, spread)) for _ in range(count)]


def test_too_few_runs_say_nothing():
    assert suspicion([1.0] * 5) is None  # five, of which one is the newest
    assert suspicion([1.0] * 6) is not None


@given(st.floats(1e-6, 1e3), st.integers(0, 50))
def test_the_unit_of_the_times_does_not_matter(factor, seed):
    times = noisy(20, 0.01, seed)
    plain, scaled = suspicion(times), suspicion([factor * time for time in times])
    assert (plain.stands_out, plain.runs) == (scaled.stands_out, scaled.runs)
    assert plain.ratio == pytest.approx(scaled.ratio)


@pytest.mark.parametrize("seed", range(20))
def test_a_step_of_a_twentieth_stands_out_within_three_runs(seed):
    before, after = noisy(20, 0.01, seed), noisy(3, 0.01, seed + 100, level=1.05)
    assert any(suspicion([*before, *after[: day + 1]]).stands_out for day in range(3))


def test_one_disturbed_run_in_the_baseline_hides_no_step_and_makes_none():
    steady = noisy(20, 0.005, 1)
    steady[10] *= 3
    assert not suspicion([*steady, 1.0]).stands_out
    assert suspicion([*steady, 1.05]).stands_out


def test_what_is_below_the_threshold_never_stands_out_in_a_quiet_series():
    assert not suspicion([*noisy(20, 0.0001, 3), 1.015]).stands_out
    assert suspicion([*noisy(20, 0.0001, 3), 1.03]).stands_out


def test_a_series_too_noisy_to_show_a_step_asks_for_turns_instead_of_staying_silent():
    assert suspicion([*noisy(20, 0.2, 4), 1.0, 1.0, 1.0]).stands_out


SPREAD = 1.4 * 1.4826  # of five runs whose middle deviation is 1: two fifths more, since they are few


def five(deviation):
    return [deviation * each for each in (0, 1, -1, 2, -2)]


@pytest.mark.parametrize(("newest", "shift"), [([0.3], 0.3), ([0.5, 0.3], 0.4), ([-0.3], -0.3)])
def test_how_far_runs_stand_out_is_told_in_errors_of_both_sides(newest, shift):
    """Worked by hand; what came before the window counts for nothing."""
    rule = AlarmRule(window=5, together=len(newest))
    found = suspicion([math.exp(log) for log in (9.0, *five(0.1), *newest)], rule)
    errors = shift / (SPREAD * 0.1 * math.sqrt(1 / len(newest) + math.pi / 10))
    told = (found.ratio, found.noise, found.errors, found.runs, found.baseline)
    assert told == pytest.approx((math.exp(shift), SPREAD * 0.1, errors, len(newest), 5))


@pytest.mark.parametrize(
    ("error", "bar"), [(0.001, math.log(1.02)), (0.0165, 1.3 * 0.0165), (0.02, math.log(1.05) - 1.645 * 0.02)]
)
def test_a_step_is_as_large_as_counts_as_is_sure_or_as_must_not_be_missed(error, bar):
    before = five(error / math.sqrt(1 + math.pi / 10) / SPREAD)
    for part in (0.99, 1.01, -0.99, -1.01):
        found = suspicion([math.exp(log) for log in (*before, part * bar)], AlarmRule(together=1))
        if error >= 0.002:
            assert abs(part * bar / found.errors) == pytest.approx(error)
        assert found.stands_out == (abs(part) > 1)


def test_what_stands_out_is_told_though_fewer_runs_lie_further_out():
    noisy_ = [1.04, 0.95, 0.97, 1.01, 0.96, 1.0, 1.01, 0.97, 0.95]
    found = suspicion(noisy_)
    assert (found.stands_out, found.runs, found.errors) == (True, 3, pytest.approx(-0.3934, abs=1e-4))
    assert abs(suspicion(noisy_, AlarmRule(step=0.9)).errors) == pytest.approx(0.8272, abs=1e-4)


def test_a_level_that_changed_is_found_where_it_did_and_noise_is_one_level():
    times = [*noisy(20, 0.01, 5), *noisy(20, 0.01, 6, level=1.1), *noisy(20, 0.01, 7, level=0.9)]
    assert change_points(times) == (20, 40)
    assert sum(bool(change_points(noisy(60, 0.02, seed))) for seed in range(40)) == 0


SLOWER = [1.05, 1.06, 1.04, 1.05, 1.07, 1.05, 1.03, 1.06, 1.05, 1.04, 1.06, 1.05]


def test_rounds_confirm_only_what_nearly_all_of_them_show():
    rule, old = AlarmRule(), [1.0] * 12
    assert rounds_verdict(old, SLOWER, rule) == "slower"
    assert rounds_verdict(old, [1 / ratio for ratio in SLOWER], rule) == "faster"
    assert rounds_verdict(old, [ratio if at % 3 else 1 / ratio for at, ratio in enumerate(SLOWER)], rule) == "undecided"
    assert rounds_verdict(old, [1 + (ratio - 1) / 4 for ratio in SLOWER], rule) != "slower"  # 1.25 %, and 2 % count
    assert rounds_verdict(old[:8], SLOWER[:8], rule) == "undecided"
    little = [1.015 + 0.004 * (7 * at % 5 - 2) for at in range(12)]
    assert judge(old, little, paired=True).verdict == "slower", "but by less than counts"
    assert rounds_verdict(old, little, AlarmRule(threshold=0.02)) == "undecided"


def test_a_rule_that_could_never_hold_is_refused():
    with pytest.raises(DomainError, match="three or more runs"):
        AlarmRule(least=1)


def test_what_moved_on_the_machine_is_named_with_both_its_states():
    model, device = ModelFacts(name="m"), DeviceFacts(name="local")
    first = Environment(versions={"onnxruntime": "1.20"}, threads=2, host={"governor": "performance", "load": 0.1})
    second = replace(first, versions={"onnxruntime": "1.21"}, host={"governor": "powersave", "load": 0.9})
    shown = {"kind": "measured", "model": model, "device": device, "workload": Workload(), "summary": Headline()}
    old, new = (Profile(**shown, phases=(), environment=environment) for environment in (first, second))
    moved = {each.name: (each.before, each.after) for each in environment_changes(old, new)}
    assert moved == {"governor": ("performance", "powersave"), "version of onnxruntime": ("1.20", "1.21")}
    assert environment_changes(old, old) == ()
    bare = replace(old, environment=replace(first, versions={}, threads=None, host={"turbo": False}))
    assert [(each.name, each.before, each.after) for each in environment_changes(bare, old)] == [
        ("governor", None, "performance"), ("threads", None, "2"), ("turbo", "False", None),
        ("version of onnxruntime", None, "1.20"),
    ]  # fmt: skip


@pytest.mark.parametrize("first", [6, 12, 24, 60, 100])
def test_a_change_is_found_wherever_it_lies(first):
    """A median of one side does not move before half of it is of the other level: it must not choose the place."""
    times = [*noisy(first, 0.01, 1), *(1.2 * time for time in noisy(120 - first, 0.01, 2))]
    assert change_points(times) == (first,)

"""The rule of a verdict at its edges, and the numbers it rests on with two samples of unequal size."""

import math
import os
import subprocess
import sys
from dataclasses import replace
from itertools import repeat
from statistics import NormalDist

import psutil
import pytest
import scipy

from inferometer.core.errors import DomainError
from inferometer.core.profile import Environment
from inferometer.measure.bench.compare import Figure, compare
from inferometer.measure.bench.gate import held, parse_gate
from inferometer.measure.bench.plan import Plan
from inferometer.measure.bench.processes import own_use
from inferometer.measure.bench.ranks import least_runs, mann_whitney, ratio, signed_rank, two_sided
from inferometer.measure.bench.run import function_subject
from inferometer.measure.bench.statistics import autocorrelation_time, summarise, widening
from inferometer.measure.bench.verdict import Criteria, Evidence, decide, weigh, weigh_intervals
from unit.measure.bench.profiles import noisy, op, phase, profile, run_of

ONE_PERCENT = Criteria(threshold=0.01, alpha=0.005)


def verdict(ratio_, low, high, *, p=0.001, in_turns=False, **more):
    evidence = Evidence(ratio=ratio_, low=low, high=high, p_value=p, test="x", in_turns=in_turns, **more)
    return decide(evidence, ONE_PERCENT).verdict


@pytest.mark.parametrize(
    ("ratio_", "low", "high", "wanted"),
    [
        (1.05, 1.01, 1.09, "slower"),
        (1.05, 1.0001, 1.09, "slower"),  # the interval excludes 1
        (1.05, 1.0, 1.09, "undecided"),  # … and here it does not
        (1.05, 1.02, 9.9, "slower"),  # nor the other end
        (0.95, 0.90, 1 / 1.0101, "faster"),
        (0.95, 0.90, 0.9999, "faster"),
        (0.95, 0.90, 1.0, "undecided"),
        (1.005, 1.004, 1.0099, "same"),  # a difference that is sure, and does not count
        (0.95, 0.10, 0.98, "faster"),
        (1.001, 1 / 1.01, 1.01, "same"),
        (1.001, 0.98, 1.005, "undecided"),  # the lower end may be a speed-up that counts
        (1.001, 0.995, 1.02, "undecided"),
        (1.05, None, None, "undecided"),
    ],
)
def test_a_verdict_is_faster_or_slower_where_the_interval_excludes_1(ratio_, low, high, wanted):
    assert verdict(ratio_, low, high) == wanted
    if low is not None:
        assert verdict(ratio_, low, high, in_turns=True) == wanted


def test_pairs_that_all_point_one_way_need_no_interval():
    assert verdict(1.05, None, None, in_turns=True) == "slower"
    assert verdict(1.05, None, None) == "undecided"


@pytest.mark.parametrize(
    ("ratio_", "low", "high", "in_turns", "sure"),
    [
        (1.05, 1.01, 1.09, False, True),
        (1.05, 1.0099, 1.09, False, False),  # of samples apart the end nearer to 1 has to be away
        (0.95, 0.90, 1 / 1.0101, False, True),
        (0.95, 0.90, 0.9902, False, False),
        (1.05, 1.0099, 1.09, True, True),  # in turns the ratio has to be
        (1.0099, 1.001, 1.02, True, False),
    ],
)
def test_a_verdict_is_sure_where_the_difference_counts(ratio_, low, high, in_turns, sure):
    evidence = Evidence(ratio=ratio_, low=low, high=high, p_value=0.001, test="x", in_turns=in_turns)
    found = decide(evidence, ONE_PERCENT)
    assert found.sure is sure
    assert ("perhaps by less than the 1 % that counts" in found.reason) is not sure


def test_the_p_value_has_to_be_below_alpha_and_the_corrected_one_counts():
    assert verdict(1.05, 1.02, 1.09, p=0.005) == "undecided"
    assert verdict(1.05, 1.02, 1.09, p=0.0049) == "slower"
    assert verdict(1.05, 1.02, 1.09, p=None) == "undecided"
    evidence = Evidence(ratio=1.05, low=1.02, high=1.09, p_value=0.001, test="x")
    assert decide(evidence, ONE_PERCENT, p_value=0.2).verdict == "undecided"
    assert decide(replace(evidence, p_value=0.2), ONE_PERCENT, p_value=0.001).verdict == "slower"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"p_value": 0.2, "runs": 9, "runs_needed": 40}, "the intervals overlap; about 40 runs per side"),
        ({"p_value": 0.2, "detectable": 0.034, "runs": 9, "runs_needed": 9}, "below 3.4 % could hide in this noise"),
        ({"p_value": 0.2, "detectable": 0.034, "runs": 9, "runs_needed": 1_000_001}, "quieten the machine first"),
        ({"p_value": 0.2, "detectable": 0.034, "runs": 9, "runs_needed": 1_000_000}, "about 1,000,000 runs"),
        ({"p_value": 0.2}, "the intervals overlap"),
    ],
)
def test_doubt_says_why_and_what_would_decide(more, words):
    found = decide(Evidence(ratio=1.03, low=1.005, high=1.05, test="x", **more), ONE_PERCENT)
    assert found.verdict == "undecided"
    assert words in found.reason
    assert ("runs per side" in found.reason) == (more.get("runs_needed") in {40, 1_000_000})


def blocks(count):
    return [(1.3 if index // 10 % 2 else 1.0) * taken for index, taken in enumerate(noisy(1.0, count, seed=3))]


def test_of_unequal_samples_the_smaller_ones_likeness_weighs_more():
    """A mean of n readings has a variance of τ / n, so a side's τ weighs as many as the other side has."""
    few, many = blocks(40), noisy(1.1, 200, seed=4)
    own = autocorrelation_time(few), autocorrelation_time(many)
    assert own[0] > 3 * own[1]
    alike = (200 * own[0] + 40 * own[1]) / 240
    wide = ratio(few, many, confidence=0.995).widened(widening(40, alike, confidence=0.995))
    found = weigh(few, many, paired=False, criteria=ONE_PERCENT)
    assert (found.low, found.high) == pytest.approx((wide.low, wide.high))
    assert found.runs == 40


def test_what_could_be_found_and_what_would_find_it_follow_from_the_interval():
    found = weigh(noisy(1.0, 30, seed=1), noisy(1.02, 50, seed=2), paired=False, criteria=ONE_PERCENT)
    z, power = NormalDist().inv_cdf(1 - 0.005 / 2), NormalDist().inv_cdf(0.8)
    error = math.log(found.high / found.low) / (2 * z)
    assert found.detectable == pytest.approx(math.expm1((z + power) * error))
    assert found.runs_needed == math.ceil(30 * ((z + power) * error / math.log(1.01)) ** 2)
    assert found.p_value >= two_sided(math.log(found.ratio) / (math.log(found.ratio / found.low) / z)) * (1 - 1e-9)
    fell = weigh(noisy(1.02, 50, seed=2), noisy(1.0, 30, seed=1), paired=False, criteria=ONE_PERCENT)
    assert (fell.ratio, fell.low, fell.high) == pytest.approx((1 / found.ratio, 1 / found.high, 1 / found.low))
    assert fell.p_value == pytest.approx(found.p_value)


def test_the_p_value_is_the_larger_of_the_tests_and_the_intervals():
    few = weigh([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], [2.0, 2.1, 2.2, 2.3, 2.4, 2.5], paired=False, criteria=ONE_PERCENT)
    assert few.p_value >= 2 / math.comb(12, 6), "no outcome of six and six is rarer"
    slower = [1.2 * taken for taken in blocks(40)]
    alike = weigh(blocks(40), slower, paired=False, criteria=ONE_PERCENT)
    assert alike.p_value == mann_whitney(blocks(40), slower).p_value, "the ranks of blocks hide in each other"
    found = weigh(noisy(1.0, 40), noisy(1.02, 40, seed=1), paired=False, criteria=ONE_PERCENT)
    assert found.p_value >= mann_whitney(noisy(1.0, 40), noisy(1.02, 40, seed=1)).p_value


@pytest.mark.parametrize(("runs", "alike"), [(40, 5.0), (40, 5.1), (10, 9.0), (200, 2.5)])
def test_an_interval_of_runs_that_are_alike_is_that_of_the_few_they_are_worth(runs, alike):
    few = max(runs // alike - 1, 1)
    wanted = math.sqrt(alike) * scipy.stats.t.ppf(0.975, few) / scipy.stats.t.ppf(0.975, runs - 1)
    assert widening(runs, alike, confidence=0.95) == pytest.approx(wanted, rel=1e-6)
    assert widening(runs, 1.0, confidence=0.95) == 1.0


def test_a_function_is_called_as_often_as_the_plan_says():
    assert function_subject(len, Plan(calls=7, warmup=0)).stopwatch._calls == 7
    assert function_subject(len, Plan(warmup=2)).stopwatch._tries == 0, "two warm-up runs cannot find a number"
    assert function_subject(len, Plan(warmup=3)).stopwatch._tries > 0
    assert function_subject(len, Plan(), name="it").name == "it"


def test_pairs_are_within_each_round():
    first = noisy(1.0, 40, spread=0.3, seed=1)
    found = weigh(first, [1.03 * taken for taken in first], paired=True, criteria=ONE_PERCENT)
    assert found.ratio == pytest.approx(1.03)
    assert (found.in_turns, found.effect) == (True, 1.0)


@pytest.mark.parametrize(("a", "b"), [((), (1.0,)), ((1.0,), ()), ((0.0, 1.0), (1.0,)), ((1.0,), (-1.0, 1.0))])
def test_times_of_nothing_give_no_verdict(a, b):
    with pytest.raises(DomainError, match="above 0 s"):
        weigh(a, b, paired=False, criteria=ONE_PERCENT)


def test_runs_in_turns_come_in_pairs():
    with pytest.raises(DomainError, match="there are 2 and 3"):
        weigh((1.0, 1.0), (1.0, 1.0, 1.0), paired=True, criteria=ONE_PERCENT)


def test_two_intervals_of_unequal_width_are_weighed_on_the_logarithm():
    a, b = (0.9, 1.0, 1.1), (1.1, 1.2, 1.4)
    found = weigh_intervals(a, b, coverage=0.8)
    z = NormalDist().inv_cdf(0.9)
    error = math.hypot(math.log(1.1 / 0.9) / (2 * z), math.log(1.4 / 1.1) / (2 * z))
    assert found.ratio == pytest.approx(1.2)
    assert (found.low, found.high) == pytest.approx((1.2 * math.exp(-z * error), 1.2 * math.exp(z * error)))
    assert found.p_value == pytest.approx(two_sided(math.log(1.2) / error))
    assert weigh_intervals((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), coverage=0.8).p_value == 1.0
    assert weigh_intervals((1.0, 1.0, 1.0), (2.0, 2.0, 2.0), coverage=0.8).p_value == 0.0


def test_an_interval_counts_where_it_holds_its_value():
    assert Figure(value=1.0, low=0.9, high=1.1).interval == (0.9, 1.0, 1.1)
    for low, high in ((None, 1.1), (0.9, None), (1.05, 1.1), (0.8, 0.9), (0.0, 1.1), (-1.0, 1.1)):
        assert Figure(value=1.0, low=low, high=high).interval is None
    assert Figure(value=1.0, low=1.0, high=1.0).interval == (1.0, 1.0, 1.0)


# The comparison of two profiles.


def test_single_numbers_are_the_same_within_the_threshold_in_both_directions():
    for old, new, wanted in (
        (1000, 1019, "same"),
        (1019, 1000, "same"),
        (1000, 1020, "more"),
        (1020, 1000, "less"),
    ):
        found = {metric.name: metric for metric in compare(run_of((1.0,), peak_memory_bytes=old, energy_j=2.0),
                                                           run_of((1.0,), peak_memory_bytes=new)).metrics}  # fmt: skip
        assert found["memory"].verdict == wanted
        assert (found["memory"].a, found["memory"].b, found["memory"].unit) == (old, new, "B")
        assert found["memory"].better == "lower"
        assert "energy" not in found, "only one side has it"


def test_predictions_are_the_same_within_the_threshold_and_need_no_interval():
    def predicted(seconds):
        return profile(phase("forward", time_s=seconds, low_s=0.1, high_s=9.0), kind="predicted")

    for seconds, wanted in ((1.009, "same"), (0.992, "same"), (1.01, "slower"), (0.99, "faster")):
        row = compare(predicted(1.0), predicted(seconds)).main
        assert (row.verdict, row.test, row.p_value) == (wanted, "predictions", None)
    measured_ = profile(phase("forward", time_s=1.2, low_s=1.15, high_s=1.25))
    assert compare(predicted(1.0), measured_).main.test == "intervals", "one prediction is no noise-free pair"


def test_pairs_need_the_same_turns_and_as_many_runs():
    runs = noisy(1.0, 30, seed=1)
    slower = tuple(1.05 * taken for taken in runs)
    assert compare(run_of(runs, turns="t"), run_of(slower, turns="t")).main.test == "Wilcoxon signed-rank"
    assert compare(run_of(runs, turns="t"), run_of(slower[1:], turns="t")).main.test == "Mann–Whitney"
    assert compare(run_of(runs), run_of(slower)).main.test == "Mann–Whitney"


def test_a_disturbed_side_is_not_sure_and_what_is_the_same_stays_so():
    quiet, noise = run_of(noisy(1.0, spread=0.001, seed=1)), noisy(1.0, spread=0.001, seed=2)
    assert compare(quiet, run_of(noise, disturbed=True, reasons=["while a backup ran."])).main.verdict == "same"
    found = compare(quiet, run_of(noisy(1.2, seed=2), disturbed=True), names=("old", "new"))
    assert (found.main.verdict, found.main.sure) == ("slower", False)
    assert "new was disturbed for an unknown reason" in found.main.reason


def test_the_whole_is_judged_by_latency_then_decode_then_prefill():
    def named(*names):
        return profile(*(phase(name, noisy(1.0)) for name in names))

    assert compare(named("load", "prefill", "decode"), named("load", "prefill", "decode")).metric == "decode"
    assert compare(named("load", "prefill"), named("load", "prefill")).metric == "prefill"
    assert compare(named("load", "save"), named("load", "save")).metric == "load"


def test_ops_that_only_one_side_has_are_named_three_and_counted():
    old = profile(phase("run", noisy(1.0), ops=[op(name, 1.0) for name in "edcba"]))
    new = profile(phase("run", noisy(1.0), ops=[op(name, 1.0) for name in "xyz"]))
    notes = compare(old, new, names=("old", "new")).notes
    assert "Only old has the op a, b, c and 2 more." in notes
    assert "Only new has the op x, y, z." in notes


def test_what_differs_in_the_surroundings_is_noted():
    a, b = (
        replace(run_of((1.0, 1.1)), environment=Environment(versions=versions, host=host))
        for versions, host in (
            ({"torch": "2.1", "numpy": "2.0", "only": "1"}, {"cpu": "Xeon", "logical_cores": 8, "system": "Linux"}),
            ({"torch": "2.2", "numpy": "2.0"}, {"cpu": "Ryzen", "logical_cores": 8}),
        )
    )
    assert compare(a, b).notes == ("torch is 2.1 in A and 2.2 in B.", "The cpu differs: Xeon and Ryzen.")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("latency>5%", False), ("latency>=5%", True), ("latency<5%", False), ("latency<=5%", True), ("latency<6%", True),
     ("latency>=1.05s", True), ("latency>1.05s", False), ("latency<=1.05s", True), ("latency<1.05s", False)],
)  # fmt: skip
def test_a_gate_at_its_limit(text, wanted):
    old, new = (profile(phase("forward", time_s=seconds), kind="predicted") for seconds in (1.0, 1.05))
    comparison = compare(old, new)
    comparison = replace(comparison, metrics=tuple(replace(metric, ratio=1 + 0.05) if metric.ratio else metric
                                                   for metric in comparison.metrics))  # fmt: skip
    exact = replace(parse_gate(text), limit=1.05 - 1) if "%" in text and "6" not in text else parse_gate(text)
    assert (held(exact, comparison) is not None) is wanted


# The plan at its limits.


@pytest.mark.parametrize("name", ["warmup", "warmup_at_most", "seed", "retries"])
def test_counts_that_may_be_none_at_all(name):
    assert getattr(Plan(**{name: 0}), name) == 0
    with pytest.raises(DomainError, match=f"{name} must be a whole number of 0 or more"):
        Plan(**{name: -1})


@pytest.mark.parametrize("name", ["runs", "runs_at_most", "memory_bytes", "calls", "failures_at_most"])
def test_counts_of_one_at_least(name):
    assert getattr(Plan(**{"runs": 1, "seconds": 0, name: 1}), name) == 1
    with pytest.raises(DomainError, match=f"{name} must be a whole number of 1 or more"):
        Plan(**{name: 0})


@pytest.mark.parametrize("name", ["seconds_at_most", "timeout_s", "window_s", "seconds", "cooldown_s"])
def test_times_that_are_none(name):
    for wrong in (-0.1, math.inf, math.nan, True, "1"):
        with pytest.raises(DomainError, match=f"{name} must be"):
            Plan(**{name: wrong})
    if name in {"seconds", "cooldown_s"}:
        assert getattr(Plan(**{name: 0}), name) == 0
    else:
        with pytest.raises(DomainError, match="more than 0 s"):
            Plan(**{"seconds": 0, name: 0.0})


def test_least_and_most_may_be_equal():
    assert Plan(runs=5, runs_at_most=5, seconds=2.0, seconds_at_most=2.0).runs == 5


def test_every_choice_reaches_the_measurement(monkeypatch):
    """What the three verbs are given, the loop and the guard are given: `strict`, `guard`, `first`, `progress`."""
    from inferometer.measure.bench import run

    seen = []

    def measure(subjects, plan, **given):
        seen.append(given)
        return [subject.name for subject in subjects]

    monkeypatch.setattr(run, "measure", measure)
    plan, guard, progress, first = Plan(), object(), object(), object()
    given = {"guard": guard, "strict": True, "progress": progress}
    assert run.bench(lambda: None, plan, name="one", phase="forward", **given) == "one"
    assert run.bench_against(print, len, plan, names=("old", "new"), **given) == ("old", "new")
    assert run.bench_commands([["a", "b c"], ["d"]], plan, first=first, **given) == ["a 'b c'", "d"]
    assert run.bench_commands([["a"], ["d"]], plan, names=("x", "y"), **given) == ["x", "y"]
    assert all(given.items() <= call.items() for call in seen)
    assert seen[0]["phase"] == "forward"
    assert (seen[2]["first"], seen[2]["commands"]) == (first, ["a 'b c'", "d"])


def test_progress_is_the_lesser_of_runs_and_seconds():
    from inferometer.measure.bench.loop import collect
    from unit.measure.bench.fakes import FakeClock, FakeWatch, Scripted

    def shares(**plan):
        clock, steps = FakeClock(), []
        collect([Scripted(clock, repeat(0.5))], Plan(warmup=0, window_s=9.0, **plan), watch=FakeWatch(), clock=clock,
                sleep=clock.sleep, progress=steps.append)  # fmt: skip
        return [step.share for step in steps]

    assert shares(runs=2, seconds=2.0) == [0.25, 0.5, 0.75, 1.0]
    assert shares(runs=4, seconds=0.5) == [0.25, 0.5, 0.75, 1.0]
    assert shares(runs=2, seconds=0) == [0.5, 1.0]


def test_throughput_is_of_what_one_run_moves():
    found = summarise([0.5, 0.25, 0.25], name="x", tokens=7, nbytes=30, flops=11)
    assert (found.per_s, found.tokens_per_s, found.bytes_per_s, found.flop_per_s) == (3.0, 21.0, 90.0, 33.0)
    plain = summarise([0.5, 0.25], name="x")
    assert (plain.tokens_per_s, plain.bytes_per_s, plain.flop_per_s) == (None, None, None)
    assert summarise([0.5, 0.25], name="x", unit="J", tokens=7).tokens_per_s is None, "only seconds make a rate"


def test_the_effect_of_pairs_is_the_share_that_rose_less_the_share_that_fell():
    assert signed_rank([1.0, 2.0, 3.0, -1.5]).delta == 0.5
    assert signed_rank([1.0, -2.0, 0.0, 3.0, 0.0]).delta == pytest.approx(1 / 5)
    assert (signed_rank([0.0, 0.0]).p_value, signed_rank([]).delta) == (1.0, 0.0)


def test_what_our_childrens_children_use_is_ours():
    line = "import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', 'input()']).wait()"
    with subprocess.Popen([sys.executable, "-S", "-c", line], stdin=subprocess.PIPE) as child:
        try:
            family = psutil.Process(child.pid)
            while not family.children():
                pass
            assert {os.getpid(), child.pid, family.children()[0].pid} <= own_use().pids
        finally:
            child.communicate(b"\n")


@pytest.mark.parametrize("paired", [True, False])
def test_however_little_runs_scatter_a_verdict_needs_as_many_as_chance_does(paired):
    """Of ten runs that hardly differ two would do for the interval; ranks of so few prove nothing."""
    steady = [1.0 + 1e-9 * place for place in range(12)]
    found = weigh(steady, [1.5 * each for each in steady], paired=paired, criteria=ONE_PERCENT)
    assert found.runs_needed >= least_runs(ONE_PERCENT.alpha, paired=paired)

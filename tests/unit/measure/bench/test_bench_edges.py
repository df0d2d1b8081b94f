"""Statistics and verdicts with numbers that can be counted by hand."""

import math

import numpy as np
import pytest

from inferometer.core import statistics as plain
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Provenance,
)
from inferometer.core.workload import Workload
from inferometer.measure.bench.compare import (
    Figure,
    _environment_notes,
    compare,
    comparison_document,
    op_times,
    phase_times,
    scalars,
)
from inferometer.measure.bench.gate import failed, parse_gate
from inferometer.measure.bench.ranks import (
    _cut,
    _exact_p,
    _rank_sum_counts,
    _win_counts,
    average_ranks,
    holm,
    least_runs,
    mann_whitney,
    paired_ratio,
    ratio,
    signed_rank,
)
from inferometer.measure.bench.statistics import (
    bootstrap_interval,
    drift,
    is_steady,
    minimum_detectable_effect,
    order_ranks,
    percentile_between,
    percentile_documents,
    runs_needed,
    steady_from,
    student_quantile,
    widening,
)
from inferometer.measure.bench.verdict import Criteria, Evidence, decide, weigh_intervals

# Rank tests, counted by hand.


def test_orders_and_subsets_are_counted():
    assert _win_counts(2, 3) == _win_counts(3, 2) == (1, 1, 2, 2, 2, 1, 1)
    assert _win_counts(1, 3) == (1, 1, 1, 1)
    assert sum(_win_counts(4, 6)) == math.comb(10, 4)
    assert _rank_sum_counts(3) == (1, 1, 1, 2, 1, 1, 1)
    assert sum(_rank_sum_counts(7)) == 2**7


def test_exact_p_values_are_twice_the_smaller_tail():
    assert mann_whitney([1.0, 2.0], [3.0, 4.0, 5.0]).p_value == pytest.approx(2 / 10)
    assert mann_whitney([1.0, 2.0], [1.5, 4.0, 5.0]).p_value == pytest.approx(4 / 10)
    assert mann_whitney([1.0, 4.5], [3.0, 4.0, 5.0]).p_value == pytest.approx(8 / 10)
    assert mann_whitney([1.0, 2.0], [3.0, 4.0, 5.0]).delta == 1
    assert mann_whitney([1.0, 3.0], [3.0, 0.5]).delta == pytest.approx(2 * 1.5 / 4 - 1)
    assert signed_rank([1.0, 2.0, 3.0]).p_value == pytest.approx(2 / 8)
    assert signed_rank([1.0, -2.0, 3.0]).p_value == pytest.approx(6 / 8)
    assert _exact_p((1, 1, 2, 2, 2, 1, 1), 3) == 1.0
    many = [float(n) if n % 3 else -float(n) for n in range(1, 52)]
    positive, variance = sum(n for n in range(1, 52) if n % 3), 51 * 52 * 103 / 24
    normal = math.erfc((abs(positive - 51 * 52 / 4) - 0.5) / math.sqrt(2 * variance))
    assert signed_rank(many).p_value == pytest.approx(normal), (
        "beyond fifty pairs the sum of ranks is as good as normal"
    )
    assert signed_rank(many[:50]).p_value != pytest.approx(normal, rel=1e-6)
    assert [_cut((1, 1, 2, 2, 2, 1, 1), alpha) for alpha in (0.1, 0.2, 0.4, 0.9)] == [0, 1, 2, 3]
    assert [least_runs(alpha, paired=True) for alpha in (0.6, 0.5, 0.05, 0.005)] == [2, 3, 6, 9]
    assert [least_runs(alpha, paired=False) for alpha in (0.4, 0.05, 0.005)] == [2, 4, 6]


def test_ties_share_their_ranks_and_narrow_the_normal_test():
    ranks, counts = average_ranks(np.array([3.0, 1.0, 3.0, 2.0]))
    assert ranks.tolist() == [3.5, 1.0, 3.5, 2.0]
    assert counts.tolist() == [1, 1, 2]
    tied = mann_whitney([1.0, 1.0, 2.0], [2.0, 3.0, 3.0, 3.0])
    variance = 12 / 12 * (8 - (6 + 6 + 24) / 42)
    assert tied.p_value == pytest.approx(math.erfc((11.5 - 6 - 0.5) / math.sqrt(2 * variance)))
    tied_pairs = signed_rank([1.0, 1.0, -2.0, 3.0])
    variance = 4 * 5 * 9 / 24 - 6 / 48
    assert tied_pairs.p_value == pytest.approx(math.erfc((7 - 5 - 0.5) / math.sqrt(2 * variance)))
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert holm([0.9, 0.8]) == pytest.approx((1.0, 1.0))


def test_a_ratio_is_the_middle_of_all_pairs():
    found = ratio([1.0, 2.0], [4.0, 8.0, 32.0], confidence=0.6)
    assert found.ratio == pytest.approx(math.sqrt(4 * 8))
    assert (found.low, found.high) == (pytest.approx(4.0), pytest.approx(16.0))
    assert not ratio([1.0, 2.0], [4.0, 8.0, 32.0], confidence=0.95).bounded
    pairs = paired_ratio([1.0, 1.0, 1.0], [2.0, 8.0, 4.0], confidence=0.7)
    assert (pairs.ratio, pairs.low, pairs.high) == (pytest.approx(4.0), pytest.approx(2.0), pytest.approx(8.0))
    wide = pairs.widened(2.0)
    assert (wide.ratio, wide.low, wide.high) == (pairs.ratio, pytest.approx(1.0), pytest.approx(16.0))


# Statistics.


def test_drift_is_of_the_median_and_per_run():
    found = drift([1.0, 2.0, 3.0, 100.0])
    assert (found.per_run, found.share) == (17.0, pytest.approx(17 * 3 / 2.5))
    assert drift([1.0, 2.0, 3.0]) is None
    assert drift([2.0, 2.0, 2.0, 2.0]).p_value == 1
    assert drift([0.0, 0.0, 0.0, 0.0]).share == 0
    variance = 4 * 3 * 13 / 18
    assert drift([1.0, 2.0, 3.0, 4.0]).p_value == pytest.approx(math.erfc(5 / math.sqrt(2 * variance)))
    many = drift([float(n) for n in range(1503)])
    assert many.per_run == pytest.approx(1.0)
    assert many.share == pytest.approx(1502 / 749.5, rel=1e-3), "three blocks of four are left over, and left out"


def test_steadiness_is_within_two_per_cent_or_the_noise():
    flat, higher = [1.0] * 5, [1.019] * 5
    assert is_steady(higher + flat)
    assert not is_steady([1.021] * 5 + flat)
    assert not is_steady(flat + [0.97] * 5)
    assert not is_steady(flat + [1.0] * 4)
    assert is_steady([0.0] * 10)
    noisy = [1.0, 1.1, 0.9, 1.05, 0.95]
    assert is_steady([1.05 * each for each in noisy] + noisy)
    assert not is_steady([1.5 * each for each in noisy] + noisy)


def test_the_steady_part_begins_after_its_head():
    settled = [1.0 + 0.001 * (n % 3) for n in range(20)]
    assert steady_from(settled) == 0
    assert steady_from([5.0, 4.0, 3.0, 2.5, 2.0, *settled]) == 5
    assert steady_from([float(30 - n) for n in range(30)]) is None
    assert steady_from(settled[:9]) is None


def test_how_much_wider_and_how_many_more():
    assert widening(30, 1.0, confidence=0.95) == widening(30, 0.5, confidence=0.95) == 1.0
    wide = widening(30, 4.0, confidence=0.95)
    assert wide == pytest.approx(2 * student_quantile(0.95, 6) / student_quantile(0.95, 29))
    assert widening(3, 4.0, confidence=0.95) == pytest.approx(
        2 * student_quantile(0.95, 1) / student_quantile(0.95, 2)
    )  # fmt: skip
    assert student_quantile(0.95, 1) == pytest.approx(12.7062, rel=1e-4)
    assert student_quantile(0.95, 2) == pytest.approx(4.30265, rel=1e-4)
    assert student_quantile(0.9, 5) == pytest.approx(2.01505, rel=1e-4)
    both = 1.959964 + 0.841621
    assert minimum_detectable_effect(0.1, alpha=0.05, power=0.8) == pytest.approx(math.expm1(0.1 * both), rel=1e-5)
    assert runs_needed(10, 0.1, 0.05, alpha=0.05, power=0.8) == math.ceil(10 * (both * 0.1 / math.log(1.05)) ** 2)
    assert runs_needed(10, 0.0, 0.05, alpha=0.05, power=0.8) == 10
    assert runs_needed(10, 1e-9, 0.05, alpha=0.05, power=0.8) == 2


def test_an_interval_of_times_stays_above_zero():
    times = bootstrap_interval([1.0, 1.2, 5.0, 1.1], "mean", alike=50.0)
    assert 0 < times.low < 2.075 < times.high
    changes = bootstrap_interval([-1.0, 1.2, 5.0, 1.1], "mean", alike=50.0)
    assert changes.low < 0
    narrow, wide = (bootstrap_interval([-1.0, 1.2, 5.0, 1.1], "mean", alike=alike) for alike in (1.0, 1.0001))
    middle, factor = 1.575, widening(4, 1.0001, confidence=0.95)
    assert wide.low - middle == pytest.approx(factor * (narrow.low - middle))
    assert wide.high - middle == pytest.approx(factor * (narrow.high - middle))
    assert bootstrap_interval([1.0]) is None
    for confidence in (0.0, 1.0):
        with pytest.raises(DomainError):
            bootstrap_interval([1.0, 2.0], confidence=confidence)


def test_percentiles_lie_between_readings_of_known_rank():
    assert order_ranks(10, 0.5, 0.95) == (2, 9)
    assert order_ranks(5, 0.5, 0.95) == (None, None)
    assert order_ranks(6, 0.5, 0.95) == (1, 6)
    assert order_ranks(20, 0.9, 0.95) == (15, None)
    found = percentile_between([float(n) for n in range(1, 21)], 0.5, alike=1.0)
    assert (found.low, found.value, found.high, found.count) == (6.0, 10.5, 15.0, 20)
    doubled = percentile_between([float(n) for n in range(1, 21)], 0.5, alike=2.0)
    assert (doubled.low, doubled.high) == (3.0, 18.0)
    assert percentile_between([1.0, 2.0], 0.9, alike=1.0).value is None
    assert percentile_between([1.0, 2.0, 3.0], 0.9, alike=1.4).needed == math.ceil(plain.needed(0.9) * 1.5)
    told = percentile_documents(Phase(name="run", time_s=1.0, samples_s=tuple(map(float, range(1, 21)))), [0.5])
    assert (told[0]["percentile"], told[0]["samples"], told[0]["confidence"]) == (50, 20, 0.95)
    for share in (0.0, 1.0):
        with pytest.raises(DomainError):
            percentile_between([1.0], share)


# Verdicts.


def test_intervals_are_weighed_by_both_widths():
    found = weigh_intervals((0.9, 1.0, 1.1), (1.8, 2.0, 2.3), coverage=0.95)
    z = 1.959964
    error = math.hypot(math.log(1.1 / 0.9), math.log(2.3 / 1.8)) / (2 * z)
    assert found.ratio == pytest.approx(2.0)
    assert (found.low, found.high) == (
        pytest.approx(2 * math.exp(-z * error), rel=1e-5), pytest.approx(2 * math.exp(z * error), rel=1e-5)
    )  # fmt: skip
    exact = weigh_intervals((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), coverage=0.95)
    assert (exact.p_value, weigh_intervals((1.0, 1.0, 1.0), (2.0, 2.0, 2.0), coverage=0.95).p_value) == (1.0, 0.0)


def test_what_lies_at_the_threshold():
    criteria = Criteria(threshold=0.1)

    def verdict(ratio_, low, high, p=0.001, **more):
        evidence = Evidence(ratio=ratio_, low=low, high=high, p_value=p, test="t", **more)
        judged = decide(evidence, criteria)
        return judged.verdict if judged.sure else f"perhaps {judged.verdict}"

    assert verdict(1.3, 1.1, 1.5) == "slower"
    assert verdict(1.3, 1.0999, 1.5) == "perhaps slower"
    assert verdict(1.3, 1.0, 1.5) == "undecided"
    assert verdict(0.7, 0.6, 1 / 1.1) == "faster"
    assert verdict(0.7, 0.6, 0.9092) == "perhaps faster"
    assert verdict(0.7, 0.6, 1.0) == "undecided"
    assert verdict(1.0, 1 / 1.1, 1.1) == "same"
    assert verdict(1.0, 0.909, 1.1) == verdict(1.0, 1 / 1.1, 1.1001) == "undecided"
    assert verdict(1.3, None, None) == "undecided"
    assert verdict(1.3, None, None, in_turns=True) == "slower"
    assert verdict(1.3, 1.2, 1.5, p=None) == verdict(1.3, 1.2, 1.5, p=0.005) == "undecided"


def profile(*phases, kind="measured", runtime=None, environment=None, **summary):
    return Profile(
        kind=kind, model=ModelFacts(name="m"), device=DeviceFacts(name="d"), workload=Workload(), phases=phases,
        summary=Headline(**summary), runtime=runtime, environment=environment,
        provenance=Provenance(tool="x", version="1", created="2026"),
    )  # fmt: skip


def test_figures_are_of_phases_ops_and_the_headline():
    ops = tuple(OpTime(name=name, kind="k", time_s=seconds) for name, seconds in (("a", 1.0), ("b", 2.0), ("a", 3.0)))
    found = profile(Phase(name="forward", time_s=6.0, ops=ops), Phase(name="load", time_s=9.0), latency_s=6.0)
    assert {key: figure.value for key, figure in phase_times(found).items()} == {
        (None, "latency"): 6.0, (None, "load"): 9.0,
    }  # fmt: skip
    assert [(key, figure.value) for key, figure in op_times(found).items()] == [
        (("forward", "a"), 1.0), (("forward", "b"), 2.0), (("forward", "a #2"), 3.0),
    ]  # fmt: skip
    assert [*phase_times(profile(Phase(name="forward", time_s=6.0)))] == [(None, "forward")]
    assert scalars(profile(peak_memory_bytes=3, energy_j=2.0)) == {
        "memory": 3, "energy": 2.0, "energy_per_token": None, "energy_per_input": None, "tokens_per_s": None,
    }  # fmt: skip
    assert Figure(value=1.0, low=0.5, high=1.0).interval == (0.5, 1.0, 1.0)
    for low, high in ((None, 2.0), (0.5, None), (0.0, 2.0), (1.1, 2.0), (0.5, 0.9)):
        assert Figure(value=1.0, low=low, high=high).interval is None


def test_gates_are_of_what_they_name():
    slow = tuple(1.5 + 0.001 * (n % 7) for n in range(40))
    quick = tuple(1.0 + 0.001 * (n % 5) for n in range(40))

    def side(samples, memory, rate):
        ops = tuple(OpTime(name=name, kind="k", time_s=1.0, samples_s=samples) for name in ("a", "b"))
        decode = Phase(name="decode", time_s=samples[0], samples_s=samples, ops=ops)
        return profile(decode, peak_memory_bytes=memory, tokens_per_s=rate)

    compared = compare(side(quick, 100, 10.0), side(slow, 120, 8.0))

    def holds(text):
        return bool(failed((parse_gate(text),), compared))

    assert [holds(text) for text in ("tpot>40%", "decode>60%", "latency>40%", "memory>=19%", "memory>21%")] == [
        True, False, True, True, False,
    ]  # fmt: skip
    assert [holds(text) for text in ("tokens_per_s<-19%", "tokens_per_s<-21%", "ops>40%", "op:a>40%", "op:decode/b>40%")
            ] == [True, False, True, True, True]  # fmt: skip
    assert [holds(text) for text in ("slower", "faster", "disturbed", "decode>1400ms", "decode>1600ms", "memory>119B")
            ] == [True, False, False, True, False, True]  # fmt: skip
    for text in ("op:c>1%", "prefill>1%"):
        with pytest.raises(UnknownNameError):
            failed((parse_gate(text),), compared)
    document = comparison_document(compared)
    assert (document["verdict"], document["metric"], document["a"], document["b"]) == ("slower", "decode", "A", "B")
    assert [row["better"] for row in document["metrics"]] == ["lower", "lower", "higher"]


def test_what_differs_of_two_machines_is_said_where_both_know_it():
    left = Environment(versions={"torch": "1", "numpy": "1", "old": "3"}, host={"cpu": "x", "logical_cores": 4})
    right = Environment(versions={"torch": "2", "numpy": "1"}, host={"cpu": "x", "logical_cores": 8, "system": "L"},
                        disturbed=True, reasons=("before the runs: hot. Cool it.",))  # fmt: skip
    assert [*_environment_notes(left, right, ("A", "B"))] == [
        "torch is 1 in A and 2 in B.", "The logical cores differs: 4 and 8.",
        "B was disturbed before the runs: hot. Cool it.",
    ]  # fmt: skip

"""Numbers that can be counted by hand, and edges that no run of the loop comes to by itself."""

import io
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from inferometer.bench import guard, processes
from inferometer.bench.child import ChildSubject
from inferometer.bench.commands import CommandSubject, _failure
from inferometer.bench.compare import _environment_notes, compare, comparison_document
from inferometer.bench.disturbance import Disturbance, together
from inferometer.bench.energy import MeteredSubject
from inferometer.bench.figures import Figure, op_times, phase_times, scalars
from inferometer.bench.gate import failed, parse_gate
from inferometer.bench.guard import _clock_fell, _setting, _top_clock, disturbances, host_record
from inferometer.bench.loop import collect
from inferometer.bench.measurement import Measurement, turns_of
from inferometer.bench.percentiles import order_ranks, percentile_between, percentile_documents
from inferometer.bench.plan import Plan
from inferometer.bench.processes import OwnUse, Tree, Watchdog, own_use
from inferometer.bench.pytest_plugin import _whole
from inferometer.bench.ranks import (
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
from inferometer.bench.statistics import (
    bootstrap_interval,
    drift,
    is_steady,
    minimum_detectable_effect,
    runs_needed,
    steady_from,
    student_quantile,
    widening,
)
from inferometer.bench.subject import Outcome, Stopwatch, calls_for
from inferometer.bench.verdict import Criteria, Evidence, decide, weigh_intervals
from inferometer.catalog.health import Absent
from inferometer.core import statistics as plain
from inferometer.core.profile import (
    DeviceFacts,
    EnergyFacts,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Provenance,
)
from inferometer.core.sample import Interval, Summary
from inferometer.core.workload import Workload
from inferometer.errors import DomainError, UnknownNameError
from unit.bench.fakes import FakeClock, FakeWatch, Scripted

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
        return decide(evidence, criteria).verdict

    assert verdict(1.3, 1.1, 1.5) == "slower"
    assert verdict(1.3, 1.0999, 1.5) == "undecided"
    assert verdict(0.7, 0.6, 1 / 1.1) == "faster"
    assert verdict(0.7, 0.6, 0.9092) == "undecided"
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
    assert scalars(profile(peak_memory_bytes=3, energy_j=2.0)) == {"memory": 3, "energy": 2.0, "tokens_per_s": None}
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


# The machine and its processes.


def test_the_allowed_clock_is_the_highest_of_those_that_are_known():
    def state(*allowed):
        return SimpleNamespace(clocks=[SimpleNamespace(allowed_hz=value) for value in allowed])

    assert _top_clock(state(2e9, None, 3e9)) == 3e9
    assert _top_clock(state(None)) is None
    assert _top_clock(SimpleNamespace(clocks=Absent("not here"))) is None
    assert _clock_fell(state(1e9), state(0.9e9)) is None
    assert _clock_fell(state(1e9), state(0.89e9)).code == "cpu-clock-capped"
    assert _clock_fell(state(None), state(1e9)) is None
    assert _clock_fell(state(1e9), state(None)) is None


@pytest.mark.parametrize(
    ("boost", "barred", "turbo"),
    [("1", None, True), ("0", None, False), (None, "1", False), (None, "0\n", True), ("0", "0", False),
     (None, "x", None)],
)  # fmt: skip
def test_whether_the_clock_may_boost_is_told_by_either_driver(boost, barred, turbo):
    machine = SimpleNamespace(read=lambda path: boost if path.endswith("boost") else barred)
    wanted = {} if turbo is None else {"turbo": turbo}
    assert _setting(machine, ()) == wanted
    assert _setting(machine, ("a cap",)) == {**wanted, "reservations": ["a cap"]}


def test_a_host_is_recorded_as_far_as_it_is_known():
    host = SimpleNamespace(
        cpu=SimpleNamespace(model="x", architecture=None, logical_cores=4), usable_cpus=2.0, usable_memory_bytes=None,
        os=SimpleNamespace(name="Linux", version=None), limits=SimpleNamespace(container=None, hypervisor="kvm"),
        gpus=[SimpleNamespace(name=None), SimpleNamespace(name="G")],
    )  # fmt: skip
    assert host_record(host) == {
        "cpu": "x", "logical_cores": 4, "usable_cpus": 2.0, "system": "Linux", "hypervisor": "kvm", "gpus": ["G"],
    }  # fmt: skip


def test_disturbances_of_one_kind_are_counted_together():
    seen = [Disturbance(when=when, code=code, found=f"{n}") for n, (when, code) in enumerate(
        [("during", "a"), ("after", "a"), ("during", "a"), ("during", "b")])]  # fmt: skip
    found = together([*seen, replace(seen[0], times=3)])
    assert [(each.when, each.code, each.found, each.times) for each in found] == [
        ("during", "a", "0", 5), ("after", "a", "1", 1), ("during", "b", "3", 1),
    ]  # fmt: skip
    assert str(replace(seen[0], times=2)) == "during the runs, 2 times: 0 (a)"
    assert str(replace(seen[0], remedy="Stop.")) == "during the runs: 0 (a). Stop."
    assert disturbances(()) == ()


class FakeProcess:
    """Stands for one of psutil's."""

    def __init__(self, pid, rss=0, times=(0.0, 0.0, 0.0, 0.0), children=(), *, gone=False):
        self.pid, self.rss, self.times, self.family, self.gone = pid, rss, times, children, gone

    def children(self, *, recursive):
        assert recursive
        return list(self.family)

    def memory_info(self):
        if self.gone:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(rss=self.rss)

    def cpu_times(self):
        if self.gone:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(**dict(zip(("user", "system", "children_user", "children_system"), self.times)))  # noqa: B905


def test_our_use_is_that_of_the_living_and_of_the_ended(monkeypatch):
    busy, late = FakeProcess(2, times=(16.0, 32.0, 64.0, 128.0)), FakeProcess(4, times=(256.0, 0.0, 0.0, 0.0))
    family = (busy, FakeProcess(3, gone=True), late)
    monkeypatch.setattr(psutil, "Process", lambda: FakeProcess(1, times=(1.0, 2.0, 4.0, 8.0), children=family))
    found = own_use()
    assert (found.cpu_s, found.pids) == (511.0, {1, 2, 3, 4})
    monkeypatch.setattr(processes.sys, "platform", "win32")
    assert own_use().cpu_s is None


def test_a_tree_is_searched_now_and_then_and_asked_at_every_look(monkeypatch):
    now, searches = [0.0], []
    root = FakeProcess(1, 10, children=(FakeProcess(2, 20), FakeProcess(3, 40, gone=True), FakeProcess(4, 80)))

    def found(pid):
        searches.append(pid)
        if root.gone:
            raise psutil.NoSuchProcess(pid)
        return root

    monkeypatch.setattr(psutil, "Process", found)
    tree = Tree(7, clock=lambda: now[0])
    assert tree.nbytes() == tree.nbytes() == 110
    assert searches == [7]
    root.rss = 15
    now[0] = 0.19
    assert (tree.nbytes(), searches) == (115, [7])
    now[0] = 0.2
    assert (tree.nbytes(), searches) == (115, [7, 7])
    root.gone, now[0] = True, 1.0
    assert tree.nbytes() is None


def test_a_watchdog_looks_again_long_before_the_time_is_up(monkeypatch):
    sizes, killed = iter([50, 90, 101]), []
    monkeypatch.setattr(processes, "Tree", lambda pid, clock: SimpleNamespace(nbytes=lambda: next(sizes)))  # noqa: ARG005
    monkeypatch.setattr(processes, "kill_tree", killed.append)
    dog = Watchdog(7, timeout_s=30.0, memory_bytes=100, watched=False)
    dog._thread.join(timeout=5.0)
    assert dog.verdict == "too much memory: killed at 101 bytes, 100 are allowed"
    assert (dog.peak_bytes, killed) == (101, [7])
    dog.stop()


def test_without_limits_nobody_watches():
    assert Watchdog(7, timeout_s=None, memory_bytes=None, watched=False)._thread is None


def test_a_failure_tells_the_last_words():
    assert _failure(0, io.BytesIO(b"words")) is None
    assert _failure(3, io.BytesIO(b"first\n last \n")) == "exit code 3: last"
    assert _failure(-9, io.BytesIO(b"")) == "ended by signal 9"
    long = io.BytesIO(b"x" * 5000 + b"\nend")
    assert _failure(1, long) == "exit code 1: end"
    subject = CommandSubject(argv=("true",), name="true", memory_bytes=100)
    assert (subject._too_much(100), subject._too_much(None)) == (None, None)
    assert subject._too_much(101) == "too much memory: 101 bytes at the peak, 100 are allowed"


def test_a_child_over_its_limit_gives_no_time():
    child = ChildSubject(int, memory_bytes=100)
    within, over = (Outcome(seconds=1.0, peak_bytes=size) for size in (100, 101))
    assert child._within_limit(within) is within
    found = child._within_limit(over)
    assert (found.seconds, found.lost, found.error) == (
        None,
        True,
        "too much memory: 101 bytes at the peak, 100 are allowed",
    )


def test_other_programs_disturb_by_what_they_use_of_all_cpus(monkeypatch):
    readings = SimpleNamespace(before=SimpleNamespace(cpu=0), after=SimpleNamespace(cpu=1), elapsed_s=2.0)
    shares = [(0.5, "a"), (0.3, "b"), (0.05, "c"), (0.05, "d"), (0.049, "e")]
    monkeypatch.setattr(guard, "process_shares", lambda _readings, _ours: shares)

    def found(busy, own, total=10.0):
        monkeypatch.setattr(guard, "cpu_seconds", lambda *_: (busy, 0.0, total))
        before, after = (OwnUse(cpu_s=each, pids=frozenset()) for each in ((None, None) if own is None else (1.0, own)))
        return guard._others(readings, before, after)

    assert found(2.99, 1.0) is None
    assert found(3.0, 1.0).found == "other programs used 30% of all CPUs: a 50% of a CPU, b 30% of a CPU, c 5% of a CPU"
    assert found(9.0, 8.99).found.startswith("other programs used 10%")
    assert found(9.0, 9.01) is None
    assert found(8.99, 8.9) is None
    assert found(9.9, None, total=6.0).found.startswith("other programs used 30%"), "1.8 of 6 s, by those that live"
    assert found(1.0, 99.0) is None


def test_one_of_two_that_keeps_failing_ends_both():
    clock = FakeClock()
    subjects = [Scripted(clock, [0.1] * 99, "good"), Scripted(clock, ["no"] * 99, "bad")]
    plan = Plan(warmup=0, runs=5, seconds=0, failures_at_most=3)
    good, bad = collect(subjects, plan, watch=FakeWatch(), clock=clock, sleep=clock.sleep)
    assert (good.runs, bad.runs, len(bad.failures), good.samples_s) == (3, 3, 3, ())


def test_the_loss_of_one_of_two_processes_warms_that_one_up_again():
    clock, log = FakeClock(), []
    subjects = [Scripted(clock, [0.1] * 99, "a", log), Scripted(clock, [0.1, ("gone",), *[0.1] * 99], "b", log)]
    plan = Plan(warmup=1, runs=2, seconds=0, window_s=60.0)
    first, second = collect(subjects, plan, watch=FakeWatch(), clock=clock, sleep=clock.sleep)
    assert (len(first.samples_s), len(second.samples_s), len(second.failures)) == (2, 2, 1)
    assert (first.runs, second.runs) == (4, 5)
    assert log[4] == "b", "warmed up as soon as it was lost"


# A run, its calls and its energy.


def test_the_number_of_calls_is_found_in_the_first_runs():
    ticks = iter([0, 10_000, 10_000, 110_000, 200_000, 230_000, 0, 5_000])
    watch = Stopwatch(int, None, clock_ns=lambda: next(ticks))
    found = [watch.run() for _ in range(3)]
    assert [(each.calls, pytest.approx(each.seconds)) for each in found] == [(1, 1e-5), (10, 1e-5), (10, 3e-6)]
    assert watch.run().calls == 34
    assert [calls_for(None, warmup) for warmup in (None, 2, 3)] == [None, 1, None]
    assert calls_for(7, 0) == 7


class Meter:
    """Counts what it is asked for; a window is its number."""

    def __init__(self, least_s=1.0, channels=("rapl",), slow=None):
        self.least_s, self.channels, self.slow, self.now, self.windows = least_s, channels, slow, 0, []
        self.sensors = SimpleNamespace(why_none="none")

    def clock_ns(self):
        return self.now

    def over(self, work):
        before = self.now
        outcome = work()
        window = SimpleNamespace(seconds=(self.now - before) * 1e-9, joules=lambda: 6.0)
        self.windows.append(window)
        return outcome, window

    def too_slow(self, budget_s):
        self.budget_s = budget_s
        return self.slow

    def for_busy(self, window):  # noqa: ARG002 - the meter's signature
        return self

    def for_unit(self, unit):
        self.unit = unit
        return self

    def counted(self, window):
        return window

    def facts(self, stretches, reason=None):
        return EnergyFacts(reason=reason, counts={name: each.count for name, each in stretches.items()})


class Lasting:
    name = "it"

    def __init__(self, meter, *seconds, calls=1):
        self.meter, self.seconds, self.calls, self.runs = meter, list(seconds), calls, 0

    def run(self, *, watched=False):  # noqa: ARG002 - the seam's signature
        taken = self.seconds[min(self.runs, len(self.seconds) - 1)]
        self.runs += 1
        if taken is None:
            return Outcome(seconds=None, error="no")
        self.meter.now += int(taken * self.calls * 1e9)
        return Outcome(seconds=taken, calls=self.calls)

    def close(self):
        self.closed = True


def test_runs_as_long_as_the_sensor_needs_are_measured_as_they_come():
    meter = Meter(least_s=1.0)
    metered = MeteredSubject(subject=Lasting(meter, 0.25, calls=4), meter=meter)
    metered.run(watched=True)
    assert (metered.spent_s, meter.windows) == (0.0, [])
    metered.run()
    metered.run()
    assert (metered.spent_s, len(meter.windows)) == (2.0, 2)
    found = metered.energy("run", unit="gpu")
    assert (found.energy_j, found.facts.counts, meter.unit) == (pytest.approx(12 / 8), {"run": 8}, "gpu")


def test_shorter_runs_are_repeated_afterwards_and_failures_say_so():
    meter = Meter(least_s=1.0)
    metered = MeteredSubject(subject=Lasting(meter, 0.3), meter=meter)
    metered.run()
    found = metered.energy("run")
    assert (found.facts.counts, found.energy_j, meter.budget_s) == ({"run": 4}, 1.5, 3.0)
    assert len(meter.windows) == 1
    failing = MeteredSubject(subject=Lasting(meter, 0.3, None), meter=meter)
    failing.run()
    assert failing.energy("run").energy_j is None
    slow = MeteredSubject(subject=Lasting(Meter(slow="too slow"), 0.3), meter=Meter(slow="too slow"))
    assert slow.energy("run").facts.reason == "too slow"
    blind = MeteredSubject(subject=Lasting(meter, 9.0), meter=Meter(channels=()))
    blind.run()
    blind.run()
    assert (blind.energy("run").energy_j, blind.meter.windows) == (None, [])
    blind.close()
    assert blind.subject.closed


# What is kept.


def measurement(**more):
    times = (1.0, 2.0)
    values = {
        "name": "it", "samples_s": times, "warmup_s": (3.0,), "failures": (), "runs": 4, "discarded": 0,
        "settled": True, "complete": True, "calls": 1, "peak_memory_bytes": 7, "disturbances": (),
        "summary": Summary(name="it", unit="s", count=2, total=3.0, min=1.0, max=2.0, mean=1.5, median=1.4,
                           median_interval=Interval(low=1.0, high=2.0, confidence=0.95)),
        "plan": Plan(runs=3, seconds=2.0), "environment": Environment(host={"cpu": "c"}), "created": "2026",
    }  # fmt: skip
    return Measurement(**values | more)


def test_a_reader_is_told_what_was_not_as_planned():
    assert measurement().notes == ()
    assert measurement(settled=None).notes == ()
    odd = measurement(settled=False, complete=False, discarded=2, calls=3)
    assert odd.notes == (
        "2 runs were disturbed and repeated", "stopped at a limit before the 3 runs and 2 s that were wanted at least",
        "the times were not steady after 1 warm-up runs", "each sample is the mean of 3 calls",
    )  # fmt: skip


def test_a_measurement_is_a_profile_of_its_median():
    found = measurement(turns="t1", energy_j=0.5, phase="work").profile
    phase = found.phases[0]
    assert (phase.name, phase.time_s, phase.low_s, phase.high_s, phase.clean_s) == ("work", 1.4, 1.0, 2.0, 1.4)
    assert (found.summary.latency_s, found.summary.peak_memory_bytes, found.summary.energy_j) == (1.4, 7, 0.5)
    assert (found.device.title, turns_of(found)) == ("c", "t1")
    assert turns_of(replace(found, environment=None)) is None
    assert turns_of(measurement().profile) is None


def test_a_session_is_disturbed_if_one_of_its_benchmarks_was():
    def session(states):
        told = [Environment(disturbed=each, reasons=(f"r{n}", "r")) for n, each in enumerate(states)]
        return _whole([profile(Phase(name=f"{n}", time_s=1.0), environment=e) for n, e in enumerate(told)], "session")

    states = ((False, True, None), (False, None), (False, False))
    assert [session(each).environment.disturbed for each in states] == [True, None, False]
    found = session((False, True))
    assert ([phase.name for phase in found.phases], found.model.name) == (["0", "1"], "session")
    assert found.environment.reasons == ("r0", "r", "r1")

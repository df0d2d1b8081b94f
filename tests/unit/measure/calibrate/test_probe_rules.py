"""Probes: which steps count, what a reading is of, and how a kernel's time is shared out among its ops."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.errors import EngineError
from inferometer.core.profile import OpTime
from inferometer.engines.base import Kernel
from inferometer.measure.calibrate.fitting.points import OpPoint, OpWork, device_rates
from inferometer.measure.calibrate.probes.host_readings import HostReadings, stream_bytes, stream_bytes_per_s
from inferometer.measure.calibrate.probes.pace import (
    MachinePace,
    Timed,
    first_decile,
    nearly,
    steady_places,
    steady_seconds,
    usual_seconds,
)
from inferometer.measure.calibrate.probes.points import PricedProbe, SmallOps, _reading, probe_points, run_in_turns
from inferometer.measure.calibrate.run import CalibrationJournal, CandidateResult, ProbeCandidate, calibrate_with

PACE = MachinePace(piece=lambda _rounds: None, fastest_s=1.0)


def timed(wall, own=None, beside=1.0):
    return Timed(wall_s=wall, own_s=wall if own is None else own, beside_s=beside)


# Which steps count.


def test_a_step_counts_beside_a_fast_piece_and_if_nothing_interrupted_it():
    steps = [timed(1.0, beside=1.2), timed(1.0, beside=1.21), timed(1.03, own=1.0), timed(1.04, own=1.0)]
    assert steady_places(steps, PACE, threads=1) == [0, 2]
    assert steady_places(steps, PACE, threads=2) == [0, 2, 3], "two clocks of several threads cannot be compared"


def test_a_slow_pace_is_felt_by_less_than_the_piece_and_never_makes_a_step_longer():
    assert PACE.felt(timed(1.0, beside=2.0)) == pytest.approx(2**-0.35)
    assert PACE.felt(timed(1.0, beside=0.5)) == 1.0
    assert PACE.felt(timed(1.0, beside=99.0)) == pytest.approx(2.5**-0.35)


def test_a_decile_is_the_first_of_ten():
    values = [float(n) for n in range(20, 0, -1)]
    assert first_decile(values) == 3.0
    assert first_decile(values[:9]) == 12.0
    assert first_decile([5.0]) == 5.0


def test_where_no_step_counts_the_quarter_beside_the_fastest_pieces_stands_in():
    steps = [timed(float(n), beside=10.0 - n) for n in range(1, 9)]
    assert nearly(steps) == [7, 6]
    assert nearly(steps[:3]) == [2], "one at least"
    slow = [timed(3.0, beside=2.0), timed(8.0, beside=4.0), timed(9.0, beside=5.0), timed(9.0, beside=6.0)]
    assert steady_seconds(slow, PACE, threads=1) == pytest.approx(3.0 * 2**-0.35)


def test_one_threads_own_clock_leaves_out_interruptions():
    steps = [timed(1.02, own=1.0), timed(1.05, own=1.03), timed(9.0, own=0.1)]
    assert steady_seconds(steps, PACE, threads=1) == 1.0
    assert steady_seconds(steps, PACE, threads=4) == 1.02
    assert usual_seconds(steps, threads=1) == 1.0
    assert usual_seconds(steps, threads=4) == 1.05


class Ticks:
    """Clocks that advance by a script."""

    def __init__(self, *steps):
        self.steps, self.now = list(steps), 0.0

    def __call__(self):
        self.now += self.steps.pop(0) if self.steps else 0.0
        return self.now


def test_the_slower_of_the_two_pieces_stands_beside_a_step():
    pace = MachinePace(piece=lambda _rounds: None, clock=Ticks(0, 5.0), own=Ticks(0, 4.0), thread=Ticks(0, 2.0, 0, 3.0))
    step = pace.timed(lambda: None)
    assert (step.wall_s, step.own_s, step.beside_s) == (5.0, 4.0, 3.0)
    assert pace.fastest_s == 2.0


def test_learning_goes_on_for_as_long_as_asked():
    pace = MachinePace(piece=lambda _rounds: None, clock=Ticks(0, 0.2, 0.2, 0.2), thread=Ticks(0, 3.0, 0, 2.0, 0, 4.0))
    pace.learn(0.5)
    assert pace.fastest_s == 2.0
    assert pace.thread.steps == [0, 4.0]


def sessions(kernels=()):
    opened = SimpleNamespace(versions={"engine": "1"})
    log = []
    plain = SimpleNamespace(step=lambda: log.append("plain"), opened=opened)
    shaped = SimpleNamespace(step=lambda: log.append("shaped"), opened=opened, kernels=lambda: {"forward": kernels},
                             cost_per_kernel_s=1e-6, idle_per_step_s=2e-6)  # fmt: skip
    return plain, shaped, log


def test_two_sessions_take_turns_after_a_warm_up_of_each():
    plain, shaped, log = sessions()
    ran = run_in_turns(plain, shaped, PACE_OF_NOTHING(), limit_s=1.0, threads=2, most=5)
    assert log == ["plain", "shaped", *["plain"] * 5, *["shaped"] * 5]
    assert (ran.runs, ran.steady, ran.cost_s, ran.idle_s, ran.versions) == (5, 5, 1e-6, 2e-6, {"engine": "1"})


def PACE_OF_NOTHING():  # noqa: N802 - a pace at which everything takes a tick
    return MachinePace(piece=lambda _rounds: None, clock=Steady(), own=Steady(), thread=Steady())


class Steady:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        self.now += 1e-3
        return self.now


def test_a_kernels_reading_is_of_the_steps_that_count():
    kernel = Kernel(name="k", kind="x", samples_s=(9.0, 1.0, 8.0, 2.0), device_s=(0.9, 0.1, 0.8, 0.2))
    found = _reading(kernel, [0, 2], 4)
    assert (found.samples_s, found.device_s) == ((8.0,), (0.8,))
    assert _reading(kernel, [0, 2], 3).samples_s == (1.0,), "of another number of steps, all count"
    assert _reading(replace(kernel, device_s=None), [0], 4).device_s is None


# Readings of the host.


def told(value):
    return Sourced(value=value, origin="datasheet", source="a test", date="2026-01-01")


def machine(**sizes):
    memories = tuple(Memory(level=level, capacity_bytes=told(size) if size else None) for level, size in sizes.items())
    return Device(name="m", title="m", vendor="v", unit="cpu", kind="desktop", memories=memories)


def test_half_of_each_cache_and_twice_the_largest_in_main_memory():
    assert stream_bytes(machine(dram=16e9, l1=64e3, l2=1e6, l3=32e6)) == {"l1": 32000, "l2": 500_000, "l3": 16_000_000,
                                                                          "dram": 64_000_000}  # fmt: skip
    assert "l2" not in stream_bytes(machine(l1=64e3, l2=128e3)), "half of it would stay in the one before"
    assert stream_bytes(machine(dram=1e9, l1=32e3, l3=32e6)).keys() == {"l3"}, (
        "16 kB is the least, a sixteenth the most"
    )
    assert stream_bytes(machine(dram=16e9)) == {}, "no cache tells how much leaves it"
    assert stream_bytes(machine(dram=16e9, l2=None)) == {}


@pytest.mark.parametrize(("threads", "nbytes"), [(1, 64_000), (2, 96_000)])
def test_a_stream_counts_what_is_read_and_written_by_all_threads(threads, nbytes):
    clock = Ticks(0, 0, 0.5, 0, 0.25, 0, 0.4, 1.0)  # three turns, of which the second is the best
    elements = nbytes // threads // 16
    rounds = 4_000_000 // (16 * elements)
    assert stream_bytes_per_s(nbytes, threads=threads, clock=clock) == pytest.approx(
        16 * elements * threads * rounds / 0.25
    )


def test_a_reading_is_a_bandwidth_and_no_op(tmp_path, monkeypatch):
    from inferometer.measure.calibrate.probes import host_readings

    readings = HostReadings(device=machine(dram=16e9, l2=1e6), dtype="f32", threads=3, folder=tmp_path)
    assert [candidate.key for candidate in readings.candidates()] == ["stream l2", "stream dram", "storage read"]
    assert all(candidate.first for candidate in readings.candidates())
    asked = []
    monkeypatch.setattr(host_readings, "stream_bytes_per_s", lambda nbytes, **more: asked.append((nbytes, more)) or 4e9)
    (point,) = readings.measure(readings.candidates()[1]).points
    assert (point.rates, point.seconds, point.classes) == ({"bandwidth:stream.dram": 4e9}, 1 / 4e9, ("reading",))
    assert asked[0][0] == 2_000_000
    assert asked[0][1]["threads"] == 3
    monkeypatch.setattr(host_readings, "read_bytes_per_s", lambda folder, **_: None if folder == tmp_path else 1.0)
    with pytest.raises(EngineError, match="past its cache"):
        readings.measure(readings.candidates()[2])


# A kernel's time among its ops.


def work(name, *, flops=0.0, floor_s=1e-6, classes=("linear",), launches=1):
    axes = {"flops": flops, "bytes": 1e3, "elements": 1e2}
    return OpWork(
        name=name, kind="linear", count=1, classes=classes, axes=axes, floor_s=floor_s, launches=launches
    )  # fmt: skip


def pointed(*ops, works=(), beside=None, **more):
    known = PricedProbe(works={each.name: each for each in works}, launches=1.0, floor_s=1.0)
    found = probe_points(
        ops, known, beside or SmallOps(), dtype="f32", probe="p", workload="w", rates={"peak:f32": 1.0}, **more
    )
    return {point.op: point.seconds for point in found}


def ran(name, seconds, *layers):
    return OpTime(name=name, kind="x", time_s=seconds, layers=layers or None)


def test_the_large_op_of_a_kernel_gets_what_the_small_ones_leave():
    works = (work("fc", flops=9.0), work("relu", floor_s=2e-6, classes=("vector",)), work("add", floor_s=3e-6))
    assert pointed(ran("k", 20e-6, "relu", "fc", "add"), works=works) == {"fc": pytest.approx(15e-6)}
    assert pointed(ran("k", 6e-6, "relu", "fc", "add"), works=works) == {"fc": pytest.approx(0.3 * 6e-6)}, (
        "a third at least"
    )


def test_an_op_below_the_timer_s_resolution_has_its_mean_time_or_no_point():
    works = (work("fc", flops=9.0), work("norm"), work("add"))
    seen = [ran("k", 20e-6, "fc"), *(ran("n", at, "norm") for at in (0.0, 0.0, 1e-6)), ran("a", 0.0, "add")]
    assert pointed(*seen, works=works) == pytest.approx({"fc": 20e-6, "norm": 1e-6 / 3})


def test_what_is_plain_inside_a_kernel_gets_the_part_that_is_left_to_it():
    relu = work("relu", floor_s=2e-6, classes=("vector.fused.plain", "vector.fused", "vector"))
    gelu = work("gelu", floor_s=2e-6, classes=("vector.fused", "vector"))
    large = work("fc", flops=9.0, floor_s=7e-6)
    kernel = ran("k", 8e-6, "fc", "relu", "gelu")
    assert pointed(kernel, works=(large, relu, gelu)) == pytest.approx({"fc": 7e-6, "relu": 0.5e-6}), (
        "a product is never faster than its floor, and what is left is shared"
    )


def test_in_an_engines_own_graph_what_ran_alone_says_nothing_of_what_is_merged():
    relu = work("relu", classes=("vector.fused.plain", "vector.fused", "vector"), launches=0)
    works = (work("conv", flops=9.0, floor_s=5e-6, classes=("convolution",)), relu)
    alone, merged = (ran("conv", 9e-6), ran("relu", 3e-6)), (ran("conv", 9e-6, "conv", "relu"),)
    assert "relu" in pointed(*alone, works=works)
    assert "relu" not in pointed(*alone, works=works, own_graph=True)
    assert "relu" in pointed(*merged, works=works, own_graph=True)


def test_of_ops_without_arithmetic_the_one_with_the_longer_floor_is_the_large_one():
    works = (work("a", floor_s=1e-6), work("b", floor_s=4e-6))
    assert pointed(ran("k", 20e-6, "a", "b"), works=works) == {"b": pytest.approx(19e-6)}


def test_time_of_no_op_is_spread_over_the_others_unless_it_is_most_of_it():
    works = (work("a", flops=1.0), work("b", flops=1.0))
    assert pointed(ran("a", 4.0), ran("b", 2.0), ran("layout", 3.0), works=works) == pytest.approx({"a": 6.0, "b": 3.0})
    assert pointed(ran("a", 1.0), ran("layout", 1.0), works=works) == pytest.approx({"a": 2.0})
    assert pointed(ran("a", 0.99), ran("layout", 1.01), works=works) == {}


def test_repetitions_of_an_op_give_their_median():
    works = (work("a", flops=1.0),)
    assert pointed(ran("x", 1.0, "a"), ran("y", 5.0, "a"), ran("z", 2.0, "a"), works=works) == {"a": 2.0}


def test_small_ops_are_known_from_those_that_ran_alone():
    beside = SmallOps(kernel_s=0.0)
    alone = OpPoint(
        classes=("vector",), axes={"bytes": 1e3, "elements": 1e2}, seconds=4e-6, floor_s=2e-6, dtype="f32", probe="p"
    )
    beside.add([alone] * 7)
    small = work("relu", floor_s=2e-6, classes=("vector",))
    assert beside.seconds(small) == 2e-6, "of seven nothing is fitted yet"
    beside.add([alone, replace(alone, floor_s=0.0), replace(alone, classes=("linear",))])
    assert len(beside.points["vector"]) == 8
    assert beside.seconds(small) == pytest.approx(4e-6)
    slower = replace(alone, seconds=40e-6)
    beside.add([slower] * 4)
    assert beside.seconds(small) == pytest.approx(4e-6), "half as many again before it is fitted anew"
    beside.add([slower] * 40)
    assert beside.seconds(small) > 20e-6


def test_only_kernels_of_one_op_tell_how_long_it_takes_alone():
    beside = SmallOps()
    works = (work("relu", classes=("vector",)), work("gelu", classes=("vector",)), work("fc", flops=1.0))
    pointed(ran("k", 5e-6, "relu"), ran("l", 9e-6, "fc", "gelu"), works=works, beside=beside)
    assert [point.op for point in beside.points["vector"]] == ["relu"]


def test_rates_are_of_the_formats_asked_for_and_of_main_memory():
    device = replace(machine(dram=16e9), peaks={"f32": told(1e12), "bf16": told(2e12)})
    assert device_rates(device, {"f32"}) == {"peak:f32": 1e12}
    memory = Memory(level="dram", capacity_bytes=told(16e9), bandwidth_bytes_per_s=told(5e10))
    assert device_rates(replace(device, memories=(memory,)), ()) == {"bandwidth:dram": 5e10}


# What is measured next.


class Choices:
    """Candidates of one class; measuring takes a second of the clock."""

    def __init__(self, *candidates, seconds=1e-3):
        self.all, self.order, self.now, self.seconds = candidates, [], 0.0, seconds

    def candidates(self):
        return self.all

    def measure(self, candidate):
        self.order.append(candidate.key)
        self.now += 1.0
        point = OpPoint(classes=(candidate.op_class,), axes=candidate.axes, seconds=self.seconds, floor_s=1e-4,
                        dtype="f32", probe=candidate.probe or candidate.key)  # fmt: skip
        return CandidateResult(points=() if candidate.op_class.startswith("step") else (point,))

    def run(self, folder, budget_s=1e4):
        calibrate_with(self, CalibrationJournal(folder=folder), budget_s=budget_s, clock=lambda: self.now)
        return self.order


def choice(key, op_class="linear", **more):
    values = {"axes": {"rows": 1.0, "weight_bytes": 1e6}, "seconds": 0.1, "floor_s": 1e-4}
    return ProbeCandidate(key=key, op_class=op_class, **values | more)


def test_classes_begin_with_those_that_take_most_of_a_models_time(tmp_path):
    one_of_each = [choice(name, name) for name in ("indexing", "matmul", "vector", "experts", "linear", "convolution")]
    wanted = ["linear", "convolution", "experts", "vector", "matmul", "indexing"]
    assert Choices(*one_of_each).run(tmp_path) == wanted


@pytest.mark.parametrize(
    ("better", "worse"),
    [({"weight": 2.0}, {"weight": 1.0}), ({"seconds": 0.1}, {"seconds": 0.4}),
     ({"axes": {"rows": 4096.0, "weight_bytes": 1e6}}, {"axes": {"rows": 2.0, "weight_bytes": 1e6}}),
     ({"probe": "new"}, {"probe": "first"})],
)  # fmt: skip
def test_what_matters_is_cheap_is_far_or_of_another_probe_comes_first(tmp_path, better, worse):
    first = choice("a", floor_s=1e-6, probe="first")
    for n, pair in enumerate(((better, worse), (worse, better))):
        names = ("better", "worse") if n == 0 else ("worse", "better")
        order = Choices(first, *(choice(name, **more) for name, more in zip(names, pair, strict=True))).run(
            tmp_path / str(n)
        )
        assert order == ["a", "better", "worse"]


def test_a_case_that_takes_more_than_a_twentieth_of_the_budget_waits_and_so_does_a_step_above_three(tmp_path):
    cases = (choice("a", seconds=5.0), choice("b", seconds=5.1), choice("s", "step.decode", seconds=15.0),
             choice("t", "step.decode", seconds=15.1))  # fmt: skip
    order = Choices(*cases).run(tmp_path, budget_s=100.0)
    assert (set(order[:2]), set(order[2:])) == ({"a", "s"}, {"b", "t"})  # what takes more waits for the rest
    few = Choices(choice("b", seconds=2.1), choice("a", seconds=2.0))
    assert few.run(tmp_path / "x", budget_s=10.0) == ["a", "b"]


def test_a_class_that_was_slow_is_expected_to_be_slow_again(tmp_path):
    """A thousand times its floor: one of 20 ms would take a minute with three runs of it."""
    cases = choice("a", floor_s=1e-4), choice("b", floor_s=0.02), choice("c", floor_s=1e-3)
    assert Choices(*cases, seconds=0.1).run(tmp_path / "short", budget_s=50.0) == ["a", "c"]
    assert Choices(*cases, seconds=0.1).run(tmp_path / "long", budget_s=100.0) == ["a", "c", "b"]


def test_progress_counts_what_is_done_and_what_waits(tmp_path):
    seen = []
    choices = Choices(choice("a"), choice("b", axes={"rows": 9.0, "weight_bytes": 1e6}))
    calibrate_with(
        choices, CalibrationJournal(folder=tmp_path), budget_s=50.0, clock=lambda: choices.now, watch=seen.append
    )
    assert [(step.done, step.of, step.spent_s, step.budget_s) for step in seen] == [
        (0, 2, 0.0, 50.0),
        (1, 2, 1.0, 50.0),
    ]
    assert math.isclose(seen[1].spent_s, 1.0)

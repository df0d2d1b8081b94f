"""The pieces of a fit at their edges, with numbers that can be done by hand."""

from dataclasses import replace
from math import exp, hypot, log, sqrt

import numpy as np
import pytest

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.engine import Overheads
from inferometer.core.errors import DomainError, EngineError, FormatError
from inferometer.core.profile import OpTime
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.assemble import (
    _circumstances,
    _start,
    _thin,
    _with_drift,
    _with_residuals,
    best_rates,
    overheads_of,
)
from inferometer.measure.calibrate.fitting.base import (
    BaseClass,
    _before,
    _shift,
    _spans,
    _union,
    at_best,
    base_note,
    base_overheads,
    beyond_chance,
    bounded,
    clearly_better,
    factors_of,
    least_seconds,
    pooled,
    shared_rates,
    unbounded,
    with_peaks_of,
)
from inferometer.measure.calibrate.fitting.fit import (
    Fitted,
    KnownPoints,
    _nodes,
    _range,
    _rising,
    class_for,
    doubts,
    fit_class,
    residual_spread,
)
from inferometer.measure.calibrate.fitting.points import (
    OpPoint,
    OpWork,
    StepPoint,
    append_points,
    device_rates,
    drifts,
    middle_of,
    middle_steps,
    overhead,
    read_points,
)
from inferometer.measure.calibrate.fitting.steps import (
    StepBase,
    StepFit,
    WholeStep,
    _strayed,
    _waits,
    explained_seconds,
    fit_steps,
    strays,
)
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.measure.calibrate.probes.points import PricedProbe, SmallOps
from inferometer.measure.calibrate.probes.provider import (
    Ceilings,
    best_of,
    ceilings_from,
    is_rated,
    spanning,
    unit_rates,
    with_rates,
)
from inferometer.measure.calibrate.run import CalibrationProgress, line_of
from inferometer.predict.basis.calibrations import higher_rates


def told(value):
    return Sourced(value=value, origin="calibrated", source="a test", date="2026")


def table(name="linear", values=(0.2, 0.4), axes=("rows",), grid=((1.0, 10.0),), residual=0.1):
    return Utilisation(op_class=name, stream="floor", axes=axes, grid=grid, values=values, residual=residual)


def calibration(**given):
    values = {"device": "d", "runtime": "r", "dtype": "f32", "created": "2026-01-02T03:04", "tables": (table(),)}
    return Calibration(**values | given)


def point(seconds=1.0, floor=0.5, probe="p", rows=1.0, **more):
    return OpPoint(classes=more.pop("classes", ("linear",)), axes={"rows": rows, "bytes": 8.0}, seconds=seconds,
                   floor_s=floor, dtype="f32", probe=probe, **more)  # fmt: skip


# A base, and what moves it.


def test_a_shift_counts_beyond_two_standard_errors():
    assert beyond_chance(0.2, 0.1) == beyond_chance(-0.2, 0.1) == 0.0
    assert beyond_chance(0.4, 0.1) == pytest.approx(0.4 * 0.75)
    assert beyond_chance(-0.4, 0.1) == pytest.approx(-0.3)
    assert pooled(3.0, 1, 4.0, 3) == pytest.approx(sqrt((9 + 48) / 4))
    assert clearly_better(0.49, 1.0, count=1, count_before=9)
    assert not clearly_better(0.5, 1.0, count=1, count_before=9)
    assert clearly_better(0.74, 1.0, count=3, count_before=1)
    assert not clearly_better(0.11, 1.0, count=1, count_before=9, known=False)
    assert clearly_better(0.09, 1.0, count=1, count_before=9, known=False)


def test_a_shift_is_the_mean_over_probes_by_their_weight():
    points = [point(probe="a"), point(probe="a"), point(probe="b", seconds=1.0)]
    known = KnownPoints(points=points, kernel_s=0.0)
    slower = np.array([1.0, 3.0, 4.0])
    shift, probes = 3.0, 2
    scatter = probes * (0.5 * 1 + 0.5 * 1)
    variance = (6 * 0.1**2 + scatter) / (6 + probes - 1)
    wanted = beyond_chance(shift, sqrt(variance * (0.25 + 0.75 * 0.5)))
    assert _shift(slower, known, 0.1) == pytest.approx(wanted)
    assert _shift(np.array([]), KnownPoints(points=[], kernel_s=0.0), 0.1) == 0.0


def test_points_that_are_mostly_launch_weigh_little():
    known = KnownPoints(points=[point(seconds=4.0, launches=2), point(seconds=1.0), point(seconds=1.0, launches=3)],
                        kernel_s=1.0)  # fmt: skip
    assert known.weights.tolist() == [0.25, 1e-4, 1e-4]
    assert known.launched.tolist() == [2.0, 1.0, 3.0]
    assert known.errors(np.log([0.25, 0.5]), [0, 1]).tolist() == pytest.approx([log(4 / (2 + 2)), log(1 / (1 + 1))])
    assert known.only(np.array([True, False, True])).seconds.tolist() == [4.0, 1.0]
    assert point(seconds=4.0, floor=1.0, launches=2).share(1.0) == 0.5
    assert point(seconds=1.0, floor=2.0).share() == 1.0


def fitted(valid, **given):
    return Fitted(table=table(**given), residual=0.1, bias=0.0, points=4, probes=2, valid=valid)


def test_new_points_span_a_base_where_they_reach_nearly_as_far():
    before = fitted({"rows": (1.0, 10.0)})
    assert _spans(fitted({"rows": (2.0, 5.0)}), before)
    assert not _spans(fitted({"rows": (2.1, 5.0)}), before)
    assert not _spans(fitted({"rows": (2.0, 4.9)}), before)
    assert not _spans(fitted({"bytes": (1.0, 10.0)}), before)
    union = _union(
        fitted({"rows": (3.0, 9.0), "bytes": (1.0, 2.0)}), fitted({"rows": (5.0, 20.0), "flops": (7.0, 8.0)})
    )
    assert {axis: tuple(ends) for axis, ends in union.items()} == {
        "rows": (3.0, 20.0), "bytes": (1.0, 2.0), "flops": (7.0, 8.0),
    }  # fmt: skip
    base = calibration(points=9, tables=(table(), table("vector")), residuals={"linear": 0.3},
                       valid={"linear": {"rows": (2.0, 6.0)}})  # fmt: skip
    first = _before(base, base.tables[0])
    assert (first.residual, first.points, first.valid) == (0.3, 4, {"rows": (2.0, 6.0)})
    assert (_before(base, base.tables[1]).residual, _before(calibration(), table()).points) == (0.1, 1)


def test_overheads_move_alone_and_inside_alike():
    base = calibration(overheads={"kernel": told(2.0), "alone.kernel": told(1.0), "step": told(5.0)})
    alone, inside = base_overheads(base, {})
    assert (alone, inside) == ({"kernel": 1.0, "step": 5.0}, {"kernel": 2.0, "step": 5.0})
    alone, inside = base_overheads(base, {"kernel": [8.0, 9.0, 99.0, 8.5], "host": [3.0]})
    moved = exp(beyond_chance(log(8.75), 0.4 / 2))
    assert (alone["kernel"], inside["kernel"]) == (pytest.approx(moved), pytest.approx(2 * moved))
    assert (alone["host"], inside["host"], inside["step"]) == (3.0, 3.0, 5.0)


def test_a_note_says_what_changed_and_what_was_not_measured():
    base = calibration(points=7, steps=3)
    slow = BaseClass(fitted=fitted({}), shift=log(1.5))
    classes = [slow, BaseClass(fitted=fitted({}, name="vector"), shift=log(0.5)),
               BaseClass(fitted=fitted({}, name="matmul"), new=True),
               BaseClass(fitted=fitted({}, name="sort"), shift=0.004),
               BaseClass(fitted=fitted({}, name="scan"), measured=False)]  # fmt: skip
    assert base_note(base, classes) == (
        "Started from the calibration of 2026-01-02 (7 ops, 3 whole steps). Changed since: linear (50% slower), "
        "vector (100% faster), matmul (fitted anew). Not measured again: scan."
    )
    assert base_note(base, classes[3:4]).endswith("What was measured since agrees with it.")


def test_a_base_is_raised_to_another_devices_peaks_and_predicts_the_same():
    device = Device(name="d", title="D", vendor="v", unit="cpu", kind="desktop", peaks={"f32": told(30.0)},
                    memories=(Memory(level="dram"),))  # fmt: skip
    base = calibration(peaks={"f32": told(10.0), "i8": told(20.0)}, bandwidths={"dram": told(4.0), "l2": told(9.0)})
    raised = with_peaks_of(device, base)
    assert raised.tables[0].values == pytest.approx((0.2 / 3, 0.4 / 3))
    assert {name: rate.value for name, rate in raised.peaks.items()} == {"f32": 30.0, "i8": 60.0}
    assert {name: rate.value for name, rate in raised.bandwidths.items()} == {"dram": 12.0, "l2": 9.0}
    assert with_peaks_of(device, calibration()) is None
    assert [rate.value for rate in shared_rates(base, device)] == [10.0, 4.0]
    assert shared_rates(calibration(peaks={"f32": told(1.0)}), device) is None
    ceilings = Ceilings(flop_per_s=15.0, bytes_per_s=2.0, dtype="f32", threads=1, source="s", date="d")
    assert spanning(ceilings, device, None) is ceilings
    both = spanning(ceilings, device, base)
    assert (both.flop_per_s, both.bytes_per_s) == (15.0, 6.0)
    low = spanning(replace(ceilings, flop_per_s=1.0), device, base)
    assert (low.flop_per_s, low.bytes_per_s) == (10.0, 4.0)
    wide = spanning(replace(ceilings, bytes_per_s=8.0), device, base)
    assert (wide.flop_per_s, wide.bytes_per_s) == (20.0, 8.0)


# Bounds.

TWO = table(values=(0.1, 0.2, 0.3, 0.6), axes=("rows", "bytes"), grid=((1.0, 10.0), (1.0, 10.0)))


def test_factors_below_one_are_written_into_tables_up_to_the_best():
    made = bounded(calibration(tables=(TWO, table("vector")), residuals={"linear": 0.3}, factors={
        "linear.decode": 0.8, "linear.prefill": 1.2, "vector.decode": 0.25, "attention.decode": 0.5, "linear": 0.9,
    }))  # fmt: skip
    assert made.table("linear.decode").values == pytest.approx((0.125, 0.2, 0.375, 0.6))
    assert made.table("vector.decode").values == pytest.approx((0.4, 0.4))
    assert made.factors == {"linear.decode": 1.0, "linear.prefill": 1.2, "vector.decode": 1.0, "attention.decode": 0.5,
                            "linear": 0.9}  # fmt: skip
    assert (made.residuals["linear.decode"], made.residuals["vector.decode"]) == (0.3, 0.1)
    back = factors_of(made)
    assert (back["linear.decode"], back["vector.decode"]) == (pytest.approx(0.8), pytest.approx(0.5))
    assert [entry.op_class for entry in unbounded(made).tables] == ["linear", "vector"]
    assert unbounded(made).factors == {}
    assert at_best(made).table("linear").values == pytest.approx((0.2, 0.2, 0.6, 0.6))
    assert least_seconds({"a": 2.0, "b": 3.0}, {"a": 0.5}, {"a": 1.5, "b": 1.0}) == 4.5


# Points.


def test_the_middle_round_counts_scaled_to_the_median():
    def run(first, second, **more):
        return [point(first, workload="w", op="a", **more), point(second, workload="w", op="b", **more)]

    rounds = [*run(1.0, 3.0), *run(2.0, 8.0), *run(3.0, 3.0), *run(9.0, 9.0)]
    kept = middle_of([overhead("kernel", 5.0, dtype="f32", probe="o"), *rounds, *run(7.0, 7.0, probe="q")])
    assert [each.seconds for each in kept] == [5.0, pytest.approx(1.6), pytest.approx(6.4), 7.0, 7.0]
    cut = middle_of([*run(1.0, 3.0), *run(2.0, 8.0)[:1]])
    assert [each.seconds for each in cut] == [1.0, 3.0]


def step(seconds, model="m", phase="decode", **more):
    return StepPoint(model=model, phase=phase, seconds=seconds, dtype="f32", **more)


def test_drift_is_told_of_four_steps_that_were_measured_again():
    again = [step(seconds, batch=batch) for batch in (1, 2, 3, 4) for seconds in (1.0, exp(0.2))]
    assert drifts(again) == {"decode": pytest.approx(sqrt(4 * 2 * 0.01 / 4))}
    assert drifts(again[:6]) == drifts([*again[:6], step(1.0, batch=9)]) == {}
    assert [each.seconds for each in middle_steps([step(1.0), step(5.0), step(2.0), step(9.0, batch=2)])] == [2.0, 9.0]


def test_a_journal_that_was_cut_off_is_read_up_to_there(tmp_path):
    path = tmp_path / "deep" / "points.jsonl"
    append_points(path, [point(1.0), point(2.0)])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"cut')
    assert [each.seconds for each in read_points(path)] == [1.0, 2.0]
    path.write_bytes(b"{bad\n" + whole)
    with pytest.raises(FormatError, match="Line 1 of"):
        read_points(path)
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(DomainError):
            point(wrong)
        with pytest.raises(DomainError):
            step(wrong)


# The fit of a class.


def test_a_class_is_the_last_of_its_names_but_for_attention_and_what_is_fused():
    assert class_for(("linear.decode", "linear")) == "linear"
    assert class_for(("vector.fused", "vector.decode", "vector")) == "vector.fused"
    names = ("attention.masked.wide", "attention.masked", "attention.prefill.wide", "attention.prefill", "attention")
    assert class_for(names) == "attention.masked"
    assert class_for(("attention.odd", "attention")) == "attention"
    assert class_for(("attention.padded.wide", "attention.padded", "attention")) == "attention.padded"


def test_values_that_would_fall_are_pooled_and_nodes_are_few():
    assert _rising([3.0, 1.0, 2.0, 5.0, 4.0]).tolist() == [2.0, 2.0, 2.0, 4.5, 4.5]
    assert _rising([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert _nodes(np.log([4.0, 2.0, 4.0]), 5) == pytest.approx((2.0, 4.0))
    spread = _nodes(np.log([1.0, 2.0, 4.0, 64.0]), 3)
    assert spread == pytest.approx((1.0, 8.0, 64.0))
    assert _range([point(rows=3.0), point(rows=7.0), point(rows=0.0)])["rows"] == (3.0, 7.0)


def test_a_residual_holds_eight_in_ten_and_is_wider_of_few():
    errors = np.array([0.1, -0.2, 0.3, -0.4, 0.5])
    assert residual_spread(errors) == pytest.approx(float(np.quantile(np.abs(errors), 0.8)) / 1.2816 * 1.4)
    assert residual_spread(np.array([0.001] * 9)) == 0.02
    assert residual_spread(np.array([])) == log(2.0)


def test_doubt_grows_with_the_distance_to_the_nearest_point():
    known = fitted({})
    points = [point(rows=1.0), point(rows=10.0)]
    found = doubts(known, [{"rows": 1.0}, {"rows": 10.0 * exp(2)}, {"rows": exp(1)}], points)
    assert found.tolist() == pytest.approx([0.1 * 0.2, 0.1 * 2.2, 0.1 * 1.2])
    assert doubts(None, [{}, {}], points).tolist() == doubts(known, [{}, {}], []).tolist() == [1.0, 1.0]
    with pytest.raises(DomainError):
        fit_class("linear", [])


# Whole steps.


def whole(seconds, parts, *, launches=10.0, queued=0.0, model="m", phase="decode", **more):
    return WholeStep(model=model, phase=phase, seconds=seconds, parts=parts, launches=launches, queued=queued, **more)


def test_a_step_takes_its_ops_or_its_host_and_its_own():
    made = whole(9.0, {"a": 2.0, "b": 3.0}, queued=4.0, least={"b": 2.5})
    factors, overheads = {"a": 2.0, "b": 0.5}, {"kernel": 0.1, "host": 1.0, "step": 0.25}
    assert explained_seconds(made, factors, overheads) == pytest.approx(4 + 2.5 + 1 + 0.25)
    assert explained_seconds(made, factors, {**overheads, "host": 2.0}) == pytest.approx(8.25)
    assert not _waits(made, factors, overheads)
    assert _waits(made, factors, {**overheads, "host": 1.9})
    assert explained_seconds(made, {}, {}) == 5.0


def test_a_factor_strays_beyond_98_in_100():
    assert not strays("linear.decode", {"linear.decode": exp(2.33 * 0.15 - 1e-9)})
    assert strays("linear.decode", {"linear.decode": exp(-2.33 * 0.15 - 1e-6)})
    assert not strays("odd", {"odd": exp(2.33 * 0.5 - 1e-9)})
    steps = [whole(1.0, {"linear.decode": 1.0}), whole(1.0, {"linear.prefill": 1.0}, phase="prefill")]
    assert _strayed(steps, {"linear.prefill": 9.0}, 1.0) == ("prefill",)
    assert _strayed(steps, {}, 3.0) == ("decode", "prefill")
    assert _strayed(steps, {}, 0.01) == ()


def test_an_earlier_host_stands_while_steps_lie_on_both_sides_of_it():
    base = StepBase(factors={}, residuals={"host": 0.8}, steps=3.0)
    taken = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert base.host_s(taken, 2.5) == 2.5
    quiet = float(np.quantile(taken, 0.35))
    assert base.host_s(taken, 0.2) == pytest.approx(0.2 * exp(beyond_chance(log(quiet / 0.2), 0.8 / sqrt(5))))
    assert base.host_s(taken, 40.0) == pytest.approx(40 * exp(beyond_chance(log(quiet / 40), 0.4 / sqrt(5))))


def test_steps_that_wait_tell_their_host():
    waiting = [whole(seconds, {"linear": 1e-3}, queued=10.0) for seconds in (1.0, 1.1, 1.2, 1.3)]
    _, overheads = fit_steps(waiting, {"kernel": 1e-6, "host": 1e-3, "step": 0.5})
    assert overheads["host"] == pytest.approx(float(np.quantile([0.05, 0.06, 0.07, 0.08], 0.35)))
    _, plain = fit_steps(waiting, {"kernel": 1e-6})
    assert "host" not in plain


def test_a_fit_is_added_to_its_calibration():
    made = StepFit(factors={"a": 2.0}, overheads={"kernel": 3.0}, residuals={"step.decode": 0.2}, counts={},
                   errors=((whole(1.0, {}, model="n"), 0.1),), start={"kernel": 1.0}, left=("prefill", "decode"),
                   measured=5)  # fmt: skip
    before = calibration(factors={"b": 1.5}, overheads={"host": told(7.0)}, steps=2, fitted_on=("z",), notes=("n",),
                         residuals={"linear": 0.1, "step.decode": 0.9})  # fmt: skip
    found = made.applied_to(before, source="s", date="2026-02-03")
    assert (found.factors, found.steps, found.fitted_on) == ({"a": 2.0, "b": 1.5}, 7, ("n", "z"))
    assert {name: rate.value for name, rate in found.overheads.items()} == {
        "host": 7.0,
        "kernel": 3.0,
        "alone.kernel": 1.0,
    }
    assert found.residuals == {"linear": 0.1, "step.decode": 0.2}
    assert (len(found.notes), found.overheads["kernel"].source) == (2, "s")
    assert "in prefill does not follow" in found.notes[1]


# Assembling.


def test_rates_overheads_and_circumstances_of_points():
    points = [replace(point(), rates={"peak:f32": 3.0, "power:w": 1.23456, "sustained:f32": 0.5}),
              replace(point(), rates={"peak:f32": 5.0, "bandwidth:l2": 2.0, "peak:i8": 1.0}),
              *(overhead("host", seconds, dtype="f32", probe="o") for seconds in (1.0, 9.0, 2.0))]  # fmt: skip
    assert best_rates(points) == ({"f32": 5.0, "i8": 1.0}, {"l2": 2.0})
    assert overheads_of(points) == {"host": 2.0}
    assert _circumstances(points) == {"power_w": "1.235", "sustained_f32": "0.5"}
    better = higher_rates(
        {"a": told(2.0), "b": told(4.0), "d": told(3.0)}, {"a": told(1.0), "b": told(5.0), "c": told(9.0)}
    )
    assert {name: rate.value for name, rate in better.items()} == {"a": 2.0, "b": 5.0, "c": 9.0, "d": 3.0}
    drifted = _with_drift(calibration(residuals={"step.decode": 0.3, "linear": 0.1}), {"decode": 0.4})
    assert drifted.residuals == {"step.decode": pytest.approx(hypot(0.3, 0.4)), "linear": 0.1}
    assert drifted.environment == {"drift_decode": "0.4"}
    one = replace(fitted({}), probes=1)
    assert _thin([one, fitted({}, name="vector")]) == ("Only one probe was measured for linear.",)
    assert _thin([fitted({})]) == ()


def test_a_fit_starts_at_what_was_measured_or_stated():
    runtime = replace(require_effects("ideal"), overheads={"cpu": Overheads(kernel_s=told(1.0), step_s=told(3.0))})
    device = Device(name="d", title="D", vendor="v", unit="cpu", kind="desktop")
    subject = CalibrationSubject(device=device, runtime=runtime, dtype="f32", created="2026-02-03T04")
    assert _start(subject, {"kernel": 9.0, "host": 2.0}) == {"kernel": 9.0, "step": 3.0, "host": 2.0}
    assert (subject.sourced(4.0, "n").date, subject.sourced(4.0, "n").note) == ("2026-02-03", "n")
    base = calibration(residuals={"step.decode": 0.4}, steps=6, fitted_on=("a",))
    found = _with_residuals(
        calibration(residuals={"step.decode": 0.2, "host": 0.1}), {"step.decode": 3, "host": 2}, base
    )
    assert found.residuals["host"] == 0.1
    assert 0.2 < found.residuals["step.decode"] < 0.4


# Probes.


def work(name, op_class="linear", flops=8.0, moved=4.0):
    return OpWork(name=name, kind="k", count=1, classes=(op_class,), axes={"flops": flops, "bytes": moved}, floor_s=1.0,
                  launches=1)  # fmt: skip


def test_the_best_rates_are_of_the_median_of_an_ops_repetitions():
    works = {"a.0": work("a"), "a.1": work("a"), "a.2": work("a"), "v": work("v", "vector", 99.0, 60.0)}
    known = PricedProbe(works=works, launches=4.0, floor_s=4.0)
    ops = [OpTime(name=f"a.{n}", kind="k", time_s=seconds) for n, seconds in enumerate((1.0, 2.0, 4.0))]
    ops += [OpTime(name="v", kind="k", time_s=5.0), OpTime(name="odd", kind="k", time_s=1e-9)]
    assert best_of(ops, known) == (4.0, 12.0)
    fused = OpTime(name="f", kind="k", time_s=4.0, layers=("a.0", "v"))
    assert best_of([fused], known) == ((8 + 99) / 4, 16.0)
    runtime = require_effects("ideal")
    made = ceilings_from(
        [(1.0, 9.0), (3.0, 2.0)],
        runtime,
        dtype="f32",
        threads=2,
        now=lambda: __import__("datetime").datetime(2026, 1, 2),
    )
    assert (made.flop_per_s, made.bytes_per_s, made.threads, made.date) == (3.0, 9.0, 2, "2026-01-02")
    for nothing in ((0.0, 1.0), (1.0, 0.0)):
        with pytest.raises(EngineError):
            ceilings_from([nothing], runtime, dtype="f32", threads=1, now=None)


def test_a_device_takes_the_rates_that_were_reached():
    levels = (Memory(level="dram", capacity_bytes=told(8.0)), Memory(level="l2", bandwidth_bytes_per_s=told(9.0)))
    device = Device(
        name="d", title="D", vendor="v", unit="cpu", kind="desktop", peaks={"i8": told(5.0)}, memories=levels
    )
    rated = with_rates(device, replace(unit_rates("f32"), flop_per_s=7.0, bytes_per_s=3.0))
    assert {name: peak.value for name, peak in rated.peaks.items()} == {"i8": 5.0, "f32": 7.0}
    assert [memory.bandwidth_bytes_per_s and memory.bandwidth_bytes_per_s.value for memory in rated.memories] == [
        3.0,
        None,
    ]
    assert with_rates(replace(device, memories=()), unit_rates("f32")).memories[0].level == "dram"
    assert [is_rated(each, "f32") for each in (device, rated, replace(rated, memories=()))] == [False, True, False]
    assert not is_rated(rated, "bf16")
    assert device_rates(rated, {"f32"}) == {"peak:f32": 7.0, "bandwidth:dram": 3.0}


def test_small_ops_take_their_floor_until_enough_ran_alone():
    beside = SmallOps(kernel_s=0.5)
    alone = [point(2.5, 1.0, f"p{n}", 1.0 + n, classes=("vector",)) for n in range(7)]
    beside.add([point(classes=("linear",)), point(classes=("vector",), floor=0.0), *alone])
    assert {name: len(points) for name, points in beside.points.items()} == {"vector": 7}
    small = replace(work("v", "vector"), floor_s=4.0, axes={"elements": 5.0, "bytes": 8.0})
    assert beside.seconds(small) == 4.0
    beside.add([point(seconds=2.5, floor=1.0, classes=("vector.layer", "vector"))])
    assert beside.seconds(small) == 4.0, "ops of another class say nothing of it"
    beside.add(alone[:1])
    assert beside.seconds(small) == pytest.approx(4.0 / 0.5 + 0.5)


def test_a_line_of_progress():
    now = CalibrationProgress(done=3, of=9, spent_s=15.0, budget_s=60.0, current="x" * 99)
    assert line_of(now) == f"{'█' * 6}{'·' * 18}  25%    45 s left  3 of 9  {'x' * 72}"
    over = line_of(replace(now, spent_s=99.0))
    assert "100%" in over
    assert "   0 s left" in over
    assert "100%" in line_of(replace(now, budget_s=0.0))

"""Rules of a calibration that are known as numbers: which rows are used, what is a step, how far a doubt goes."""

from collections import Counter
from math import sqrt
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.device import Device, Memory, Sourced
from inferometer.engines.base import Kernel
from inferometer.measure.calibrate import from_table
from inferometer.measure.calibrate.fitting.points import OpPoint, OpWork, StepPoint, drifts, middle_of, middle_steps
from inferometer.measure.calibrate.fitting.streams import StepWorks, StreamFit, points_from, streams_of
from inferometer.measure.calibrate.from_table import _in_one_format, _usable, _why
from inferometer.measure.calibrate.priors import cases, own
from inferometer.measure.calibrate.priors.cases import device_as_run
from inferometer.measure.calibrate.probes.host_readings import stream_bytes
from inferometer.measure.calibrate.probes.pace import (
    MachinePace,
    Timed,
    first_decile,
    nearly,
    steady_places,
    steady_seconds,
    usual_seconds,
)
from inferometer.measure.calibrate.probes.points import _reading
from inferometer.measure.calibrate.run import CalibrationProgress, ProbeCandidate, _is_step, line_of, step_of
from inferometer.measure.calibrate.torch.kernels import SIZES
from inferometer.predict.price.deviations import PARAMETERS, Standing


@pytest.mark.parametrize(
    ("name", "step"),
    [("step", True), ("step.decode", True), ("step.decode.long", True), ("linear.step", False), ("steps", False)],
)
def test_a_candidate_of_a_whole_model_is_a_step(name, step):
    assert _is_step(ProbeCandidate(key="k", op_class=name)) is step


def test_the_sizes_of_vectors_grow_by_the_root_of_two_in_whole_kilobytes():
    sizes = SIZES.elements
    assert (sizes[0], sizes[1], sizes[-1]) == (512, 1024, (2**29) // 1024 * 1024)
    assert list(sizes) == sorted(sizes)
    assert all(size % 1024 == 0 for size in sizes[1:])
    assert all(
        2 ** (power / 2) - 1024 < size <= 2 ** (power / 2) for size, power in zip(sizes[1:], range(21, 59), strict=True)
    )


# Published rows.


def row(device="d", engine="e", line=1, **more):
    return SimpleNamespace(device=device, engine=engine, file="f.csv", line=line, **more)


def test_rows_of_others_are_passed_over_and_impossible_ones_set_aside():
    rows = [row("other"), row(line=2), row(engine="x"), row(line=4), row(line=5)]
    own_rows, aside = _usable(rows, SimpleNamespace(name="d"), "e", lambda each: "too fast" if each.line == 4 else None)
    assert [each.line for each in own_rows] == [2, 5]
    assert [(each.file, each.line, each.reason) for each in aside] == [("f.csv", 4, "too fast")]
    assert len(_usable(rows, SimpleNamespace(name="d"), "e", None)[0]) == 3


def test_of_several_ways_to_run_the_one_with_most_rows_is_fitted():
    a, b = (SimpleNamespace(activations=kind, way=kind) for kind in ("f16", "i8"))
    several = [SimpleNamespace(standing=standing) for standing in (a, b, b, a, b)]
    standings = [each.standing for each in _in_one_format([_hashable(each) for each in several], None)]
    assert [standing.activations for standing in standings] == ["i8"] * 3
    assert len(_in_one_format([_hashable(each) for each in several], "f16")) == 2
    assert _in_one_format([_hashable(each) for each in several], "f32") == []


class _Way(SimpleNamespace):
    def __hash__(self):
        return hash(self.activations)


def _hashable(each):
    return SimpleNamespace(standing=_Way(**vars(each.standing)))


def test_why_rows_were_not_used_is_told_by_the_commonest_reasons():
    left = Counter({"a": 5, "b": 3, "c": 2, "d": 1})
    aside = [SimpleNamespace(file="f", line=n, reason="r") for n in range(5)]
    assert _why(left, aside) == (
        " Not used: a (5 rows); b (3 rows); c (2 rows); f, line 0: r; f, line 1: r; f, line 2: r."
    )
    assert _why(Counter(), []) == ""
    assert from_table.LEAST_MODELS == 3


def test_a_device_by_name_is_no_description():
    asked = []
    told = SimpleNamespace(
        device="d", device_spelling="words", device_published="p", unit="gpu", settings={"threads": "2"}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "_as_run", lambda *given: asked.append(given))
        device_as_run(told)
        told.device = None
        device_as_run(told)
        told.device_spelling = None
        device_as_run(told)
    assert asked == [("d", None, "2", None), (None, ("words", "gpu"), "2", None), (None, ("p", "gpu"), "2", None)]


def test_every_level_without_a_row_adds_its_own_variance_to_the_devices(monkeypatch):
    spread = dict.fromkeys(("compute", "memory", "kernel", "step", "host", "unpack"), 0.3)
    known = SimpleNamespace(
        levels={"unit:npu", "kind:npu:phone", "engine:npu:qnn", "format:npu:i8/i8", "engine+format:npu:qnn:i8/i8"},
        variances={"device": spread, "vendor": {"compute": 0.4}, "family:npu": {"compute": 0.5},
                   "device+engine": spread, "run": spread, "unit": {"compute": 9.0}},
    )  # fmt: skip
    monkeypatch.setattr(own, "known_deviations", lambda **_tokens: known)
    standing = Standing(device="d", unit="npu", vendor="v", family="f", engine="qnn", kind="phone", weights="i8",
                        activations="i8", memory="hbm")  # fmt: skip
    found = own.own_variances(standing, tokens=False)
    place = PARAMETERS.index("compute")
    assert found["device"][place] == pytest.approx(0.3**2 + 0.4**2 + 0.5**2), "a vendor and a family nobody measured"
    assert found["device"][PARAMETERS.index("memory")] == pytest.approx(0.3**2)
    assert found["device+engine"][place] == found["run"][place] == pytest.approx(0.3**2)
    assert found["device+format"][place] == pytest.approx(0.05**2), "at least"
    assert found["device"][PARAMETERS.index("compute:linear")] == pytest.approx(0.05**2), "at least"


# Points and steps.


def point(seconds, op="a", workload="w", **more):
    values = {"classes": ("linear",), "axes": {}, "floor_s": 1e-6, "dtype": "f32", "probe": "p"}
    return OpPoint(seconds=seconds, op=op, workload=workload, **{**values, **more})


def test_of_several_rounds_the_middle_one_is_kept_at_the_median_time():
    rounds = [(1.0, 2.0), (5.0, 1.0), (2.0, 2.0), (8.0, 0.0 + 2.0)]
    points = [each for a, b in rounds for each in (point(a), point(b, "b"))]
    kept = middle_of([point(9.0, workload=""), *points])
    assert kept[0].seconds == 9.0
    # totals are 3, 6, 4 and 10: the third of four is 6, and the median 5
    assert [each.seconds for each in kept[1:]] == pytest.approx([5.0 * 5 / 6, 1.0 * 5 / 6])
    assert [each.seconds for each in middle_of([*points[:2], points[2]])] == pytest.approx([1.0, 2.0]), "half a round"


def step(seconds, model="m", phase="decode", **more):
    return StepPoint(model=model, phase=phase, seconds=seconds, dtype="f32", **more)


def test_steps_have_the_median_of_their_rounds_and_drift_by_what_they_vary():
    steps = [step(1.0), step(3.0), step(2.0), step(5.0, context=4), step(7.0, batch=2)]
    assert [(each.context, each.batch, each.seconds) for each in middle_steps(steps)] == [
        (0, 1, 2.0), (4, 1, 5.0), (0, 2, 7.0),
    ]  # fmt: skip
    twice = [step(np.e**x, model=f"m{n}") for n in range(4) for x in (0.0, 0.2)]
    assert drifts(twice) == {"decode": pytest.approx(sqrt(4 * 2 * 0.1**2 / 4))}
    assert drifts(twice[:6]) == {}


def work(**more):
    values = {"name": "o", "kind": "linear", "count": 2, "classes": ("linear",), "floor_s": 4.0, "launches": 3,
              "axes": {"bytes": 100.0, "weight_bytes": 60.0, "kv_bytes": 10.0},
              "compute_s": 2.0, "memory_s": 4.0}  # fmt: skip
    return OpWork(**{**values, **more})


def test_the_streams_of_an_op_are_its_operations_and_its_bytes_by_what_they_are():
    assert streams_of(work()) == pytest.approx(
        {"linear/compute": 2.0, "linear/weights": 2.4, "linear/cache": 0.4, "linear/activations": 1.2}
    )
    assert streams_of(work(axes={}, compute_s=0.0)) == {"linear/activations": 4.0}
    whole = StepWorks(step=step(9.0), works=(work(), work(count=1, launches=1))).apart()
    assert whole.parts["linear/compute"] == pytest.approx(3 * 2.0)
    assert (whole.launches, whole.seconds, whole.model, whole.phase) == (2 * 3 + 1, 9.0, "m", "decode")


def test_what_a_step_took_beyond_falls_to_its_ops_alike():
    known = StepWorks(
        step=step(24.0, query=1, context=5), works=(work(launches=0), work(floor_s=0.0, compute_s=0.0, memory_s=0.0))
    )
    streams = StreamFit(times={"linear/compute": 2.0}, overheads={"kernel": 1e-9, "step": 4.0}, steps=(known,))
    # one op: 2 · 2 of arithmetic and 4 of bytes; two of them explain 16 of the 20 s beyond the step's own 4
    found = points_from(streams, {"peak:f32": 1.0})
    assert [(each.op, each.seconds) for each in found[:2]] == [("kernel", 1e-9), ("step", 4.0)]
    ops = [each for each in found if each.floor_s > 0]
    assert [each.seconds for each in ops] == pytest.approx([8.0 * 20 / 16])
    assert (ops[0].workload, ops[0].rates) == ("decode 1 + 5", {"peak:f32": 1.0})


# How fast the machine is.


def timed(wall, own_s=None, beside=1.0):
    return Timed(wall_s=wall, own_s=wall if own_s is None else own_s, beside_s=beside)


def test_a_step_counts_beside_a_fast_piece_and_uninterrupted():
    pace = MachinePace(piece=lambda _: None, fastest_s=1.0)
    steps = [timed(1.0), timed(1.0, beside=1.2), timed(1.0, beside=1.21), timed(1.03, 1.0), timed(1.04, 1.0)]
    assert steady_places(steps, pace, threads=1) == [0, 1, 3]
    assert steady_places(steps, pace, threads=2) == [0, 1, 3, 4]
    assert nearly([timed(1.0, beside=x) for x in (5.0, 1.0, 4.0, 2.0, 3.0, 9.0, 8.0, 7.0)]) == [1, 3]
    assert nearly(steps[:1]) == [0]
    assert first_decile([float(n) for n in range(20, 0, -1)]) == 3.0
    assert usual_seconds([timed(3.0, 2.0), timed(5.0, 9.0), timed(4.0, 1.0)], threads=1) == 2.0
    assert usual_seconds([timed(3.0, 2.0), timed(5.0, 9.0), timed(4.0, 1.0)], threads=2) == 4.0
    assert steady_seconds(steps, pace, threads=1) == 1.0
    slow = [timed(2.0, beside=2.0), timed(8.0, beside=9.0)]
    assert steady_seconds(slow, pace, threads=1) == pytest.approx(2.0 * 2.0**-0.35)
    assert pace.felt(timed(1.0, beside=9.0)) == pytest.approx(2.5**-0.35)
    assert pace.felt(timed(1.0, beside=0.5)) == 1.0


def test_a_kernels_reading_is_of_the_steps_that_count():
    kernel = Kernel(name="k", kind="x", samples_s=(5.0, 1.0, 3.0), device_s=(4.0, 2.0, 9.0))
    found = _reading(kernel, (0, 2), 3)
    assert (found.samples_s, found.device_s) == ((3.0,), (4.0,))
    assert _reading(kernel, (0, 2), 7).samples_s == (1.0,)


def test_a_stream_is_half_a_cache_and_twice_the_largest_of_them_in_memory():
    def memory(level, size):
        known = None if size is None else Sourced(value=size, origin="datasheet", source="s", date="d")
        return Memory(level=level, capacity_bytes=known)

    def found(*memories):
        return stream_bytes(Device(name="d", title="D", vendor="v", unit="cpu", memories=memories))

    caches = (memory("l3", 8e6), memory("l2", 1e6), memory("l1", 64e3))
    assert found(memory("dram", 1e9), *caches) == {"l1": 32_000, "l2": 500_000, "l3": 4_000_000, "dram": 16_000_000}
    assert found(memory("dram", 2.5e8), *caches) == {"l1": 32_000, "l2": 500_000, "l3": 4_000_000}
    assert found(memory("dram", 1e9)) == {}
    assert found(memory("dram", None), memory("l2", 1e6), memory("l1", 6e5)) == {"l1": 300_000}


def test_progress_is_by_the_time_of_the_budget():
    def at(spent, budget=60.0):
        return CalibrationProgress(done=3, of=9, spent_s=spent, budget_s=budget, current="x" * 99)

    assert line_of(at(15.0)) == f"{'█' * 6}{'·' * 18}  25%    45 s left  3 of 9  {'x' * 72}"
    assert line_of(at(90.0)).startswith(f"{'█' * 24} 100%     0 s left")
    assert (step_of(at(15.0)).share, step_of(at(90.0)).share, step_of(at(1.0, 0.0)).share) == (0.25, 1.0, 1.0)
    assert (step_of(at(15.0)).stage, step_of(at(15.0)).done) == ("calibrate", 3)

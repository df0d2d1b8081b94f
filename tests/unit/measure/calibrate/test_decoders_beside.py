"""Decoders beside other networks: an engine's kernels take other times in them, and are told apart."""

from dataclasses import replace

import pytest

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Device, Memory, Sourced
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.engines import ProbedEngine, decoders_beside
from inferometer.measure.calibrate.fitting.assemble import joined, told_apart, with_decoders_of, without_decoders
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint, overhead
from inferometer.measure.calibrate.probes.provider import Ceilings, ProbeProvider, with_rates
from inferometer.measure.run.child import runtime_named
from inferometer.predict.price.plan import _overheads

RATES = Ceilings(flop_per_s=1e11, bytes_per_s=2e10, dtype="f32", threads=1, source="a test", date="2026-11-15")
CPU = with_rates(Device(name="d", title="D", vendor="v", unit="cpu", memories=(Memory(level="dram"),)), RATES)


def told(value):
    return Sourced(value=value, origin="calibrated", source="test", date="2026")


def point(probe, name, seconds=2e-3, rows=1.0):
    axes = {"rows": rows, "weight_bytes": 1e6, "in_features": 512.0, "out_features": 512.0}
    return OpPoint(classes=name, axes=axes, seconds=seconds, floor_s=1e-3, dtype="f32", probe=probe)


def step(model, phase):
    return StepPoint(model=model, phase=phase, seconds=1.0, dtype="f32")


FORWARD = step("bert", "forward")
TEXTS = [step(model, phase) for model in ("llama", "qwen") for phase in ("prefill", "decode")]


def test_they_are_told_apart_where_ops_were_timed_and_none_of_a_decoder():
    """Engines of language models alone, with timers or without, are fitted as one."""
    network = point("bert", ("linear.forward", "linear"))
    assert told_apart([network], [FORWARD, *TEXTS]) == ([FORWARD], TEXTS)
    assert told_apart([network], [FORWARD, *TEXTS[:2]]) == ([FORWARD], [])
    timed = point("llama", ("linear.decode", "linear"))
    assert told_apart([network, timed], [FORWARD, *TEXTS]) == ([FORWARD, *TEXTS], [])
    assert told_apart([overhead("kernel", 1.0, dtype="f32", probe="p")], TEXTS) == (TEXTS, [])


def table(name, share):
    return Utilisation(op_class=name, stream="floor", axes=("rows",), grid=((1.0,),), values=(share,), residual=0.1)


def calibration(*tables, **rest):
    return Calibration(device="d", runtime="torch-eager", dtype="f32", created="2026", tables=tables, **rest)


NETWORKS = calibration(
    table("linear", 0.5), table("attention.prefill", 0.4), overheads={"kernel": told(5e-5)},
    factors={"linear.forward": 1.5}, residuals={"linear": 0.2, "step.forward": 0.1}, points=3, steps=2,
)  # fmt: skip
DECODERS = calibration(
    table("linear", 0.7), table("linear.decode", 0.9), table("attention.prefill", 0.1), table("attention.decode", 0.2),
    overheads={"kernel": told(1e-5), "step": told(3e-4)}, factors={"vector.decode": 1.2},
    residuals={"linear": 0.3, "step.decode": 0.05}, points=4, steps=5,
)  # fmt: skip


def test_both_stand_in_one_calibration_under_names_of_phases():
    both = joined(NETWORKS, DECODERS)
    shares = {each.op_class: each.values[0] for each in both.tables}
    assert shares == {
        "linear": 0.5, "attention.prefill": 0.4, "linear.prefill": 0.7, "linear.decode": 0.9, "attention.decode": 0.2,
    }  # fmt: skip
    assert (both.residuals["linear"], both.residuals["linear.prefill"], both.residuals["step.decode"]) == (
        0.2,
        0.3,
        0.05,
    )
    assert both.factors == {"linear.forward": 1.5, "vector.decode": 1.2}
    assert (both.points, both.steps) == (7, 7)
    alone = without_decoders(both)
    assert (alone.tables, alone.overheads, alone.factors) == (NETWORKS.tables, NETWORKS.overheads, NETWORKS.factors)
    again = with_decoders_of(both, alone)
    assert (again.tables, again.overheads, again.factors) == (both.tables, both.overheads, both.factors)
    assert with_decoders_of(NETWORKS, alone) is alone


class Prepared:
    effects = require_effects("torch-eager")


def test_a_kernel_of_a_decoder_is_the_calibrations_own_else_the_rows():
    both, slow = joined(NETWORKS, DECODERS), replace(CPU, call_s=told(1.44e-6))
    found = _overheads(Prepared, CPU, both)
    assert [found.kernel_in(phase).value for phase in ("forward", "prefill", "decode")] == [5e-5, 1e-5, 1e-5]
    assert (found.step_in("forward"), found.step_in("decode").value) == (None, 3e-4)
    stated = _overheads(Prepared, slow, NETWORKS)  # networks alone: nothing was measured of decoders
    assert stated.kernel_in("forward").value == 5e-5
    assert stated.kernel_in("decode").value == pytest.approx(2 * Prepared.effects.on("cpu").kernel_s.value)


@pytest.mark.parametrize(("name", "many"), [("torch-eager", 1), ("torch-compile", 0), ("onnxruntime", 0)])
def test_engines_that_call_modules_one_by_one_have_them(name, many, tmp_path):
    """One that compiles takes seconds for each."""
    pytest.importorskip("transformers")
    runtime = runtime_named(name)
    provider = ProbeProvider(runtime=runtime, device=CPU, dtype="f32", folder=tmp_path, threads=1)
    engine = ProbedEngine(runtime=runtime, device=CPU, dtype="f32", threads=1, journal=tmp_path)
    beside = decoders_beside(engine, provider)
    assert len(beside) == many
    assert all(each.op_class == "step.decode" for made in beside for each in made.candidates())

"""Whole steps: what they are taken apart into, which are believed, and how the machine's drift widens them."""

from dataclasses import replace
from math import exp, hypot, log

import pytest

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.errors import DomainError
from inferometer.core.graph import Op, Tensor
from inferometer.core.workload import Precision, Workload
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.assemble import (
    assemble_calibration,
    best_rates,
    whole_steps,
)
from inferometer.measure.calibrate.fitting.base import at_best, bounded
from inferometer.measure.calibrate.fitting.fit import LEAST_RESIDUAL
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint, measured_point, overhead, works_of
from inferometer.measure.calibrate.fitting.single import (
    Single,
    attention,
    convolution,
    embedding,
    linear,
    vector,
    work_of_single,
)
from inferometer.measure.calibrate.fitting.steps import (
    WholeStep,
    _felt,
    _share,
    _strayed,
    explained_seconds,
    fit_steps,
    leave_one_out,
    strays,
    taken_apart,
    whole_fit,
)
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, graph_of_step
from inferometer.measure.calibrate.fitting.subject import plan_of as step_plan
from inferometer.predict.options import Options
from inferometer.predict.ready import make_ready
from inferometer.predict.work.classes import FUSED
from unit.measure.calibrate.test_assemble import CONFIG, points, step, subject

H200 = device("nvidia-h200")
BF16 = Precision(weights="bf16", activations="bf16", kv="bf16")


def plan_of(config, runtime, *, name="probe", batch=1, calibration=None):
    from inferometer.formats.huggingface import graph_from_config

    graph = graph_from_config(config, name=name)
    return make_ready(
        graph, H200, effects=require_effects(runtime), workload=Workload(batch=batch, precision=BF16),
        options=Options(), calibration=calibration,
    ).plan  # fmt: skip


def seconds_of(plan, sizes):
    return plan.step(sizes, "decode").total("time_s").item()


SIZES = {"batch": 3, "query": 1, "context": 700, "logits": 1}


def test_a_step_taken_apart_adds_up_to_what_the_plan_says_of_it():
    made = assemble_calibration(subject(), points())
    plan = plan_of(CONFIG, "torch-graph", batch=3, calibration=made)
    apart = taken_apart(plan, SIZES, "decode", model="probe", seconds=1.0)
    overheads = plan.overheads
    told = {"kernel": float(overheads.kernel_s or 0.0), "step": float(overheads.step_s or 0.0)}
    # what a loop adds that probes do not have
    looped_s = sum(overheads.looped_s(part, "decode") for part in ("choose", "read", "between"))
    assert explained_seconds(apart, {}, told) + looped_s == pytest.approx(seconds_of(plan, SIZES), rel=1e-9)
    kernels = plan.rates_in("decode").kernels[:, 0]  # with what a lone row takes beyond its own
    assert apart.launches == pytest.approx(sum(entry.count * kernels[entry.row] for entry in plan.prepared.entries))
    classes = {"linear.decode", "attention.decode", "vector.decode", "indexing.decode"}
    assert set(apart.parts) == classes, "no width in an attention's name, nothing that is free"
    fused = replace(made, tables=(*made.tables, replace(made.table("vector"), op_class=FUSED)))
    inside = taken_apart(plan_of(CONFIG, "torch-compile", calibration=fused), SIZES, "decode", model="m", seconds=1.0)
    assert inside.parts[FUSED] > 0, "ops inside others' kernels have a factor of their own where a table tells of them"


def test_what_the_host_queues_is_what_it_starts_one_by_one():
    """In what it takes for them: a norm of eight kernels takes as long as six."""
    plans = {runtime: plan_of(CONFIG, runtime) for runtime in ("torch-eager", "torch-graph", "ideal")}
    queued = {name: taken_apart(plan, SIZES, "decode", model="m", seconds=1.0) for name, plan in plans.items()}
    eager = plans["torch-eager"]
    waited_s = (eager.step(SIZES, "decode").counts[:, None] * eager.pace("decode").host_s).sum()
    assert queued["torch-eager"].queued * eager.overheads.host_s.value == pytest.approx(waited_s)
    assert queued["torch-eager"].queued != queued["torch-eager"].launches > 100
    assert queued["torch-graph"].queued == 0.0, "captured once, started as one"
    assert queued["ideal"].queued == 0.0, "no host is known"
    assert queued["ideal"].least == {}


def test_least_seconds_are_priced_at_the_best_that_was_measured():
    made = assemble_calibration(subject(), points(share=0.5))
    better = [
        replace(point, seconds=point.seconds / 1.6) if "4096x4096x4096" in point.op else point for point in points()
    ]
    (one,) = whole_steps(subject(), assemble_calibration(subject(), better), [step(batch=2, context=700)])
    assert one.workload == "2 x 1 + 700"
    assert all(one.least[name] <= seconds * (1 + 1e-12) for name, seconds in one.parts.items())
    assert sum(one.least.values()) < sum(one.parts.values())
    (even,) = whole_steps(subject(), made, [step()])
    tabled = [name for name in even.parts if any(name.startswith(table.op_class) for table in made.tables)]
    least, seconds = (sum(parts[name] for name in tabled) for parts in (even.least, even.parts))
    assert least == pytest.approx(seconds, rel=0.02), "all reach the same"
    others = even.parts.keys() - set(tabled)
    assert others
    assert all(even.least[name] < even.parts[name] for name in others), "what has no table may come down to its floor"


def made_step(model="m", *, phase="decode", factor=1.0, size=1, host=0.0, **parts):
    named = {f"{name}.{phase}": seconds * size for name, seconds in (parts or {"linear": 1e-3}).items()}
    bare = WholeStep(model=model, phase=phase, seconds=1.0, parts=named, launches=100.0, queued=100.0 if host else 0.0)
    return replace(bare, seconds=factor * explained_seconds(bare, {}, {"kernel": 1e-6, "step": 1e-5, "host": host}))


START = {"kernel": 1e-6, "step": 1e-5}


def test_a_class_without_time_gets_no_factor():
    factors, _ = fit_steps([made_step(str(n), linear=1e-3, indexing=0.0) for n in range(3)], START)
    assert set(factors) == {"linear.decode"}


@pytest.mark.parametrize(("name", "freedom"), [("linear", 0.15), ("vector", 0.6), ("unknown", 0.5)])
def test_a_factor_is_drawn_to_one_by_how_well_its_class_is_known(name, freedom):
    """One step that took a fifth longer: the least of (error / noise)² + (moved / freedom)²."""
    factors, _ = fit_steps([WholeStep(model="m", phase="decode", seconds=1.2, parts={name: 1.0}, launches=0.0)], {})
    assert factors[name] == pytest.approx(1.2 ** (freedom**2 / (freedom**2 + 0.05**2)), rel=1e-4)


def test_what_a_class_takes_of_steps_is_the_median_of_those_that_have_it():
    shares = (0.05, 0.1, 0.9)
    steps = [made_step(vector=share, linear=1 - share) for share in shares] + [made_step(linear=1.0)] * 4
    assert _share(steps, "vector.decode") == pytest.approx(0.1)
    assert _share(steps, "linear.decode") == 1.0
    assert _share(steps, "experts.decode") == 0.0


def test_a_factor_is_felt_down_to_the_bounds_of_its_ops():
    """Of three steps whose ops may fall to 0.2, 0.3 and 0.8 of their time, less than 0.3 changes nothing for most."""
    steps = [replace(made_step(linear=1.0), least={"linear.decode": least}) for least in (0.2, 0.3, 0.8)]
    assert [_felt(steps, "linear.decode", factor) for factor in (0.1, 0.3, 0.5, 1.2)] == [0.3, 0.3, 0.5, 1.2]
    assert _felt(steps, "vector.decode", 0.1) == 0.1, "nothing bounds what no step has"


def test_a_step_is_its_device_or_its_host_whichever_is_longer_and_its_own_overhead():
    one = WholeStep(model="m", phase="decode", seconds=1.0, parts={"a": 2.0, "b": 3.0}, launches=10.0, queued=20.0)
    device_s = 0.5 * 2 + 3 + 10 * 0.1
    assert explained_seconds(one, {"a": 0.5}, {"kernel": 0.1, "host": 0.1, "step": 7.0}) == pytest.approx(device_s + 7)
    assert explained_seconds(one, {"a": 0.5}, {"kernel": 0.1, "host": 1.0, "step": 7.0}) == pytest.approx(20 + 7)


def test_steps_that_wait_for_their_host_have_a_residual_of_their_own():
    busy = [made_step(f"m{n}", size=2**n) for n in range(6)]
    noise = (1.0, 1.5, 1.1, 1.9, 1.02, 1.4)
    waiting = [made_step(f"w{n}", host=1e-3, factor=noise[n], linear=1e-6) for n in range(6)]
    fitted = whole_fit([*busy, *waiting], {**START, "host": 1e-3})
    assert fitted.residuals["step.decode"] == LEAST_RESIDUAL
    assert fitted.residuals["host"] > 0.1
    assert [waits for _, _, waits in leave_one_out([*busy, *waiting], {**START, "host": 1e-3})] == [False] * 6 + [
        True
    ] * 6
    assert 0.9e-3 < fitted.overheads["host"] < 1.4e-3, "a low quantile: disturbances only add"


def test_residuals_are_by_phase():
    exact = [made_step(f"m{n}", size=2**n) for n in range(6)]
    noisy = [made_step(f"n{n}", phase="prefill", size=2**n, factor=exp((-1) ** n * 0.2)) for n in range(6)]
    fitted = whole_fit([*exact, *noisy], START)
    assert fitted.residuals["step.decode"] < 0.04
    assert fitted.residuals["step.prefill"] > 0.1


@pytest.mark.parametrize(("name", "freedom"), [("linear.decode", 0.15), ("attention", 0.6), ("unknown.decode", 0.5)])
def test_a_factor_strays_beyond_what_98_in_100_keep_to_in_both_directions(name, freedom):
    for sign in (1, -1):
        assert strays(name, {name: exp(sign * 2.34 * freedom)})
        assert not strays(name, {name: exp(sign * 2.32 * freedom)})
    assert not strays(name, {})


def test_only_the_phase_with_the_class_that_strays_is_left_out():
    steps = [made_step("a", linear=1.0), made_step("b", phase="prefill", vector=1.0)]
    assert _strayed(steps, {"vector.prefill": 10.0}, 1.0) == ("prefill",)
    assert _strayed(steps, {}, 3.0) == ("decode", "prefill"), "kernels that take three times as long"
    assert _strayed(steps, {}, 0.1) == (), "kernels that take less are no reason"


def test_drift_widens_what_whole_steps_are_off_by():
    bare = assemble_calibration(subject(), points())
    plan = plan_of(CONFIG, "torch-graph", calibration=bare)
    truth = {context: seconds_of(plan, {**SIZES, "batch": 1, "context": context})
             for context in (128, 256, 512, 1024)}  # fmt: skip
    steps = [step(seconds=truth[context] * factor, model=f"drifting-{context}", context=context)
             for context in truth for factor in (1.0, 1.2)]  # fmt: skip
    drift = log(1.2) / 2**0.5
    still = assemble_calibration(subject(), points(), [step(seconds=s * 1.1, model=f"still-{c}", context=c)
                                                       for c, s in truth.items()])  # fmt: skip
    made = assemble_calibration(subject(), points(), steps)
    assert made.environment["drift_decode"] == f"{drift:.3g}"
    assert "drift_decode" not in still.environment
    assert made.residuals["step.decode"] == pytest.approx(hypot(still.residuals["step.decode"], drift), rel=0.02)
    assert made.residuals["linear"] == still.residuals["linear"]
    assert made.steps == 4, "of two rounds the middle"


def test_where_overheads_were_not_measured_the_fit_starts_at_the_runtimes_row():
    stated = require_effects("torch-eager").on("gpu")
    eager = CalibrationSubject(device=H200, runtime=require_effects("torch-eager"), dtype="bf16", created="2026-11-15")
    found = [point for point in points() if point.classes != ("overhead",)]
    made = assemble_calibration(eager, found, [step(seconds=1e-3, model="rows")])
    assert made.overheads["alone.host"].value == float(stated.host_s)
    measured = [*found, overhead("host", 9e-6, dtype="bf16", probe="o")]
    assert (
        assemble_calibration(eager, measured, [step(seconds=1e-3, model="rows")]).overheads["alone.host"].value == 9e-6
    )


def test_a_calibration_says_what_it_rests_on():
    thin = points()
    rates = {"sustained:bf16": 0.91, "power:gpu": 412.0, "peak:bf16": 8e14, "bandwidth:hbm": 4e12}
    made = assemble_calibration(subject(), [*thin, replace(thin[-1], rates=rates)])
    assert made.environment["sustained_bf16"] == "0.91"
    assert made.environment["power_gpu"] == "412"
    assert {name: rate.value for name, rate in made.peaks.items()} == {"bf16": 8e14}
    assert {name: rate.value for name, rate in made.bandwidths.items()} == {"hbm": 4e12}
    assert made.peaks["bf16"].date == "2026-11-15"
    lone = [point for point in thin if "linear" not in point.classes]
    single = measured_point(work_of_single(linear(4, 64, 64), H200, runtime="torch-graph", dtype="bf16"), 1e-5,
                            dtype="bf16", probe="one")  # fmt: skip
    assert assemble_calibration(subject(), [*lone, single]).notes == ("Only one probe was measured for linear.",)
    assert made.notes == ()


def test_only_steps_of_the_format_are_fitted_and_can_stand_alone():
    other = step(seconds=1e-3, model="other", dtype="f32")
    assert assemble_calibration(subject(), points(), [other]).steps == 0
    with pytest.raises(DomainError, match="nothing to fit"):
        assemble_calibration(subject(), [], [other])
    launched = overhead("kernel", 1e-6, dtype="bf16", probe="o")
    with pytest.raises(DomainError, match="nothing to fit"):
        assemble_calibration(subject(), [launched])
    alone = seconds_of(plan_of(CONFIG, "torch-graph"), {**SIZES, "batch": 1, "context": 512})
    assert assemble_calibration(subject(), [launched], [step(seconds=alone, model="alone")]).steps == 1


def test_a_steps_model_is_read_once_and_has_no_limit():
    once = graph_of_step(step(model="read-once"))
    assert graph_of_step(step(model="read-once", context=9)) is once
    assert once.context_limit is None


def test_rates_of_other_kinds_are_no_peaks():
    one = OpPoint(classes=("x",), axes={}, seconds=1.0, floor_s=1.0, dtype="f32", probe="p",
                  rates={"power:gpu": 5.0, "bandwidth:l2": 2.0})  # fmt: skip
    assert best_rates([one]) == ({}, {"l2": 2.0})


def table(name, axes, grid, values):
    return Utilisation(op_class=name, stream="floor", axes=axes, grid=grid, values=values, residual=0.3)


def test_a_factor_below_one_becomes_a_table_only_where_its_bare_class_has_one():
    by_rows = table("experts", ("rows",), ((1.0, 8.0),), (0.2, 0.8))
    base = Calibration(device="d", runtime="r", dtype="bf16", created="2026-11-15", tables=(by_rows,))
    for factor, values in ((1.0, None), (1.5, None), (0.5, (0.4, 0.8))):
        made = bounded(replace(base, factors={"experts.decode": factor}))
        assert made.factors["experts.decode"] == (1.0 if values else factor)
        assert (made.tables[1].values if len(made.tables) > 1 else None) == values
    assert made.residuals["experts.decode"] == 0.3, "its base's, where none is said of the class"
    own = bounded(replace(base, factors={"experts": 0.5}))
    assert (own.factors, own.tables) == ({"experts": 0.5}, (by_rows,))
    assert at_best(base).tables[0].values == (0.8, 0.8), "one axis: the best of all"
    plane = table("convolution", ("flops", "bytes"), ((1.0, 8.0), (1.0, 8.0)), (0.2, 0.3, 0.4, 0.9))
    assert at_best(replace(base, tables=(plane,))).tables[0].values == (0.9,) * 4, "only rows decide what is in reach"
    for axes, best in ((("rows", "flops"), (0.3, 0.3, 0.9, 0.9)), (("flops", "rows"), (0.9,) * 4)):
        products = replace(plane, op_class="linear", axes=axes)
        assert at_best(replace(base, tables=(products,))).tables[0].values == best, "of as many rows, which come first"


# Single ops: unequal sizes, so that no two of them can be exchanged unnoticed.


def work(single, runtime="ideal"):
    return work_of_single(single, H200, runtime=runtime, dtype="bf16")


def test_a_convolution_is_of_its_own_channels_stride_and_batch():
    made = work(convolution(2, (24, 40), 15, kernel=3, stride=2))
    assert made.axes["flops"] == 2 * 2 * 40 * 8 * 8 * 24 * 9  # 15 / 2, rounded up
    assert made.axes["weight_bytes"] == 2 * 40 * 24 * 9
    assert made.axes["bytes"] == 2 * (2 * 24 * 15 * 15 + 40 * 24 * 9 + 2 * 40 * 8 * 8)
    grouped = work(convolution(2, (24, 40), 15, kernel=3, groups=8))
    assert grouped.axes["weight_bytes"] == 2 * 40 * 3 * 9
    assert grouped.classes[-1] == "convolution", "eight groups of three are not depthwise"


def test_a_product_is_rows_by_inputs_by_outputs():
    made = work(linear(3, 40, 24))
    assert (made.axes["rows"], made.axes["in_features"], made.axes["out_features"]) == (3, 40, 24)
    assert made.axes["bytes"] == 2 * (3 * 40 + 40 * 24 + 3 * 24)
    assert made.count == 1


def test_attention_knows_its_heads_and_its_phase():
    step_, prompt, seen = attention(2, (8, 2), 16, query=1, context=30), attention(2, (8, 2), 16, query=5), attention(
        2, (8, 2), 16, query=5, cached=False)  # fmt: skip
    assert (step_.phase, prompt.phase, seen.phase) == ("decode", "prefill", "forward")
    assert attention(2, (8, 2), 16, query=1).phase == "prefill", "nothing in the cache"
    assert attention(2, (8, 2), 16, query=5, context=9).phase == "prefill"
    made = work(step_)
    assert made.axes["flops"] == 2 * 8 * 31 * (4 * 16 + 5)
    assert made.axes["kv_bytes"] == 2 * 2 * 31 * 2 * 16 * 2
    assert work(seen).axes["flops"] / work(prompt).axes["flops"] == pytest.approx(25 / 15)


def test_vectors_are_rows_of_features_and_never_empty():
    assert vector("norm", 4096, features=256).op.inputs[0].shape == (16, 256)
    assert vector("activation", 100, features=256).op.inputs[0].shape == (1, 100)
    assert vector("norm", 4096, features=256).op["features"] == 256
    assert work(vector("elementwise", 2**20, inputs=3)).axes["bytes"] == 4 * 2 * 2**20


def test_an_embedding_reads_the_rows_it_is_asked_for():
    made = work(embedding(7, 1000, 32))
    assert made.classes[-1] == "indexing"
    assert made.axes["bytes"] == pytest.approx(2 * 2 * 7 * 32, rel=0.2)  # read, written, and the ids


def test_an_op_that_takes_no_time_is_no_case():
    x = Tensor(name="x", shape=(4, 4))
    view = Op(name="seen otherwise", kind="view", inputs=(x,), outputs=(Tensor(name="y", shape=(16,)),))
    with pytest.raises(DomainError, match="seen otherwise is not an op that takes time"):
        work(Single(op=view, phase="forward"))


def test_ops_that_run_once_in_a_request_are_no_part_of_a_step():
    import json
    from pathlib import Path

    config = json.loads((Path(__file__).parents[3] / "data" / "huggingface" / "llava.json").read_text())["config"]
    plan = plan_of(config, "ideal", name="seeing")
    names = [made.name for made in works_of(plan, {**SIZES, "image": 32}, "decode")]
    assert any("q_proj" in name for name in names)
    assert not any("vision" in name or "projector" in name for name in names)
    assert any(plan.prepared.rows[entry.row].once for entry in plan.prepared.entries), "though the plan has them"


def test_a_floor_is_the_longer_of_its_two(monkeypatch):
    few, many = work(linear(1, 2048, 2048)), work(linear(4096, 2048, 2048))
    assert few.floor_s == pytest.approx(2 * (2048 * 2048 + 2 * 2048) / 4.8e12)
    assert many.floor_s == pytest.approx(2 * 4096 * 2048 * 2048 / 989.5e12)


def test_only_whole_models_move_what_experts_read_and_write_beside_their_products():
    """Probes route their rows by themselves, a library's modules mask all of them."""
    told = CalibrationSubject(device=H200, runtime=require_effects("torch-graph"), dtype="bf16", created="2026-11-19")
    mixture = {**CONFIG, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8,
               "num_experts_per_tok": 2}  # fmt: skip
    sized = {"phase": "prefill", "seconds": 1.0, "dtype": "bf16", "query": 64}
    asked = [StepPoint(model="probe", config=mixture, **sized), StepPoint(model="olmoe-1b-7b", **sized)]
    assert [bool(step_plan(told, each).pace("prefill").routed_s.any()) for each in asked] == [False, True]

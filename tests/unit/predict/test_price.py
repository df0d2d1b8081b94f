"""The price of one op, and of a step of ops."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core import Calibration, Memory, Parallel, Precision, Utilisation
from inferometer.core.engine import Overheads, RuntimeEffects
from inferometer.core.errors import DomainError
from inferometer.known.engines import runtime_effects
from inferometer.predict.parallel import place
from inferometer.predict.price.ladder import DATASHEET_SPREAD
from inferometer.predict.price.plan import plan_of
from inferometer.predict.price.price import exposed_host, levels_of
from inferometer.predict.price.priors import prior_for
from inferometer.predict.price.step import waiting_doubt
from inferometer.predict.work.prepare import Terms, prepare
from unit.predict.decoders import BF16, LLAMA_3_1_8B, at, attend, decoder, project
from unit.predict.estimates import estimate_op
from unit.predict.examples import same
from unit.predict.machines import MACHINE, machine, stated, with_cache, without_fit  # noqa: F401 - `without_fit` is used by being here

GEMM = project("linear", "x", "y", 4096, 4096)
WEIGHTS = 4096 * 4096 * 2
IDEAL = RuntimeEffects(name="ideal", title="nothing added")


def plan(device=MACHINE, effects=IDEAL, graph=LLAMA_3_1_8B, **rest):
    prepared = prepare(graph, place(graph, Parallel()), Terms(precision=BF16, effects=effects))
    return plan_of(prepared, device, weights_bytes=16e9, **rest)


def table(stream, *values, op_class="linear"):
    return Utilisation(
        op_class=op_class, stream=stream, axes=("rows",), grid=((1.0, 4096.0),), values=values, residual=0.05
    )


def calibrated(*tables, **rest):
    return Calibration(device="machine", runtime="ideal", dtype="bf16", created="2026", tables=tables, **rest)


def test_few_rows_are_bound_by_memory_and_many_by_arithmetic():
    few = estimate_op(GEMM, at(query=1), MACHINE)
    many = estimate_op(GEMM, at(query=4096), MACHINE)
    assert (few.bound, few.level, many.bound, many.level) == ("memory", "dram", "compute", None)
    assert few.floor_s == pytest.approx((WEIGHTS + 2 * 2 * 4096) / 100e9)
    assert many.floor_s == pytest.approx(2 * 4096**3 / 1e12)


def test_the_prior_of_the_class_says_how_near_the_peak_it_comes():
    prior = prior_for("gpu", ("linear",))
    price = estimate_op(GEMM, at(query=4096), MACHINE)
    expected = price.floor_s / prior.compute_share.value + prior.compute_ramp_s.value
    assert price.time_s == pytest.approx(expected)
    assert price.origin == "prior"
    assert price.low_s == pytest.approx(max(price.floor_s, expected / prior.spread.value))
    assert price.high_s == pytest.approx(expected * prior.spread.value)


def test_where_nothing_is_known_the_roofline_stands_and_says_so():
    price = estimate_op(attend("a", heads=8, kv_heads=8, head_dim=64), at(query=64), machine(unit="tpu"))
    assert price.origin == "datasheet"
    assert price.time_s == price.low_s == price.floor_s
    assert price.high_s == pytest.approx(DATASHEET_SPREAD * price.time_s)


def test_a_calibration_that_covers_the_op_is_used_before_any_prior():
    price = estimate_op(GEMM, at(query=4096), MACHINE, calibration=calibrated(table("bf16", 0.1, 0.5)))
    assert price.origin == "calibrated"
    assert price.time_s == pytest.approx(price.floor_s / 0.5)
    assert price.high_s == pytest.approx(price.time_s * np.exp(1.645 * 0.05))


def test_a_stream_the_calibration_says_nothing_of_counts_at_its_peak():
    price = estimate_op(GEMM, at(query=1), MACHINE, calibration=calibrated(table("bf16", 0.9, 0.9)))
    assert price.bound == "memory"
    assert price.time_s == price.floor_s


def test_both_streams_may_be_calibrated():
    both = calibrated(table("bf16", 0.9, 0.9), table("dram", 0.25, 0.25))
    price = estimate_op(GEMM, at(query=1), MACHINE, calibration=both)
    assert price.time_s == pytest.approx(price.floor_s / 0.25)


def test_an_op_the_calibration_does_not_cover_keeps_its_prior():
    price = estimate_op(same("softmax"), at(query=512), MACHINE, calibration=calibrated(table("bf16", 0.1, 0.5)))
    assert price.origin == "prior"


def test_arithmetic_in_a_format_without_a_peak_is_an_error_that_names_those_there_are():
    with pytest.raises(DomainError, match=r"no peak for i8 \(it has: bf16, f32\)"):
        estimate_op(GEMM, at(precision=Precision(weights="i8", activations="i8")), MACHINE)


def test_a_device_whose_bandwidth_is_not_known_cannot_be_priced():
    with pytest.raises(DomainError, match="bandwidth of machine is not known"):
        estimate_op(GEMM, at(), machine(memories=()))
    with pytest.raises(DomainError, match="bandwidth"):
        levels_of(machine(memories=(Memory(level="dram"),)))


def test_activations_that_fit_into_the_cache_are_not_in_the_floor_but_in_the_estimate():
    plain, cached = (estimate_op(same("softmax"), at(query=64), d) for d in (MACHINE, with_cache(1e6)))
    assert cached.floor_s < plain.floor_s
    assert cached.time_s == plain.time_s


def test_activations_that_do_not_fit_come_from_memory():
    small = with_cache(1000.0)
    assert estimate_op(same("softmax"), at(query=64), small).floor_s == pytest.approx(2 * 64 * 96 * 2 / 100e9)


def test_every_byte_passes_a_cache_whose_bandwidth_is_known():
    slow, fast = (estimate_op(same("softmax"), at(query=64), with_cache(1e6, rate)) for rate in (200e9, 400e9))
    assert slow.floor_s == pytest.approx(2 * 64 * 96 * 2 / 200e9)
    assert slow.time_s > fast.time_s


def test_a_model_that_fits_into_the_cache_need_not_come_from_memory():
    tiny = decoder(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=100)
    inside = plan(with_cache(1e9), graph=tiny)
    inside = replace(inside, weights_bytes=1e6)
    sizes = {"batch": 1, "query": 1, "context": 10, "logits": 1}
    outside = replace(inside, weights_bytes=1e10)
    assert inside.step(sizes, "decode").total("floor_s")[0] < outside.step(sizes, "decode").total("floor_s")[0]


def test_quantised_weights_move_fewer_bytes():
    stored = Precision(weights="q4_0", activations="bf16")
    wide, narrow = (estimate_op(GEMM, at(precision=p), MACHINE) for p in (BF16, stored))
    assert narrow.floor_s == pytest.approx(wide.floor_s * 4.5 / 16, rel=0.01)


def test_a_runtime_that_widens_weights_pays_for_it():
    widening = replace(IDEAL, expanded=frozenset({"q4_0"}))
    stored = at(precision=Precision(weights="q4_0", activations="bf16"))
    plain, widened = (estimate_op(GEMM, stored, MACHINE, runtime=effects) for effects in (IDEAL, widening))
    assert widened.floor_s == plain.floor_s
    assert widened.time_s - plain.time_s == pytest.approx(2 * WEIGHTS / 100e9 / 0.9, rel=0.01)


def test_a_repeated_cache_moves_twice_for_every_query_head():
    op, sizes = attend("a", heads=32, kv_heads=8, head_dim=128), at(batch=32, context=8192)
    quick = machine(peaks={"bf16": stated(1e15)})
    plain, repeated = (
        estimate_op(op, sizes, quick, runtime=replace(IDEAL, cache=path), phase="decode")
        for path in ("direct", "repeated")
    )
    assert repeated.time_s == pytest.approx(9 * plain.time_s, rel=0.01)  # 1 + 2 · 32 / 8
    same_heads = attend("a", heads=8, kv_heads=8, head_dim=128)
    one, other = (
        estimate_op(same_heads, sizes, quick, runtime=replace(IDEAL, cache=path), phase="decode")
        for path in ("direct", "repeated")
    )
    assert one.time_s == other.time_s


def test_a_path_with_a_mask_computes_every_pair_and_reads_the_mask():
    op, sizes = attend("a", heads=32, kv_heads=32, head_dim=128), at(query=4096)
    flash, masked, written = (
        estimate_op(op, sizes, MACHINE, runtime=replace(IDEAL, attention=path), phase="prefill")
        for path in ("flash", "masked", "materialised")
    )
    assert flash.floor_s == masked.floor_s == written.floor_s
    assert flash.time_s < written.time_s
    assert flash.time_s < masked.time_s
    one_query = at(query=1, context=4095)
    costs = {
        estimate_op(op, one_query, MACHINE, runtime=replace(IDEAL, attention=path), phase="decode").time_s
        for path in ("flash", "masked")
    }
    assert max(costs) == pytest.approx(min(costs), rel=0.01)  # one query meets every key: only the mask is read


def test_kernels_cost_what_starting_them_costs():
    started = replace(IDEAL, passes={"linear": 3}, overheads={"gpu": Overheads(kernel_s=stated(1e-3))})
    price = estimate_op(GEMM, at(), MACHINE, runtime=started)
    assert price.time_s > 3e-3
    assert price.bound == "overhead"


def test_the_host_shows_only_where_the_device_runs_dry():
    assert exposed_host(2.0, 3.0) == 1.0
    assert exposed_host(3.0, 2.0) == 0.0


def test_a_step_that_waits_a_little_is_no_surer_than_one_that_does_not():
    assert waiting_doubt(0.3, 0.1, 0.0) == 0.3
    assert waiting_doubt(0.3, 0.1, 0.5) == pytest.approx(0.15)
    assert waiting_doubt(0.3, 0.1, 1.0) == 0.1


def test_a_network_s_forward_is_told_less_surely_by_its_host_than_a_token():
    known = replace(plan(), host_spread=0.1)
    assert known.host_doubt("forward") > known.host_doubt("decode") == known.host_doubt("prefill") == 0.1
    assert plan().host_doubt("forward") == plan().rates_in("forward").host_spread  # nobody has read it


def test_a_step_takes_as_long_as_the_slower_of_host_and_device():
    host = replace(IDEAL, overheads={"gpu": Overheads(host_s=stated(10.0))})
    slow, quick = plan(effects=host), plan()
    sizes = {"batch": 1, "query": 1, "context": 100, "logits": 1}
    kernels = sum(entry.count for entry in slow.prepared.entries)
    assert slow.step(sizes, "decode").total("time_s")[0] == pytest.approx(10.0 * kernels)
    captured = replace(host, overheads={"gpu": replace(host.on("gpu"), captured=frozenset({"decode"}))})
    assert plan(effects=captured).step(sizes, "decode").total("time_s") == quick.step(sizes, "decode").total("time_s")


def test_a_devices_own_launch_cost_stands_before_the_runtimes():
    host = replace(IDEAL, overheads={"gpu": Overheads(host_s=stated(10.0))})
    own = plan(machine(launch_s=stated(1.0)), effects=host)
    assert own.overheads.host_s.value == 1.0


def test_a_cpu_takes_as_much_longer_for_its_overheads_as_for_its_calls():
    """What a calibration measured there is its own already."""
    slow = replace(machine(call_s=stated(3e-6)), unit="cpu")
    started = Overheads(kernel_s=stated(4e-6), step_s=stated(8e-6), call_s=stated(1e-6))
    effects = replace(IDEAL, overheads={"cpu": started})
    found = plan(slow, effects).overheads
    assert (found.kernel_s.value, found.step_s.value) == pytest.approx((12e-6, 24e-6))
    assert plan(replace(slow, call_s=None), effects).overheads == started
    measured = plan(slow, effects, calibration=calibrated(overheads={"kernel": stated(5e-6)})).overheads
    assert measured.kernel_s.value == 5e-6


def test_measured_overheads_stand_before_both():
    measured = calibrated(overheads={"kernel": stated(0.5), "step": stated(2.0)})
    found = plan(effects=replace(IDEAL, overheads={"gpu": Overheads(kernel_s=stated(9.0))}), calibration=measured)
    assert (found.overheads.kernel_s.value, found.overheads.step_s.value) == (0.5, 2.0)


def test_many_workloads_at_once_are_each_workload_alone():
    device, effects = MACHINE, runtime_effects("torch-compile")
    ready = plan(device, effects)
    batches, contexts = np.array([[1], [8]]), np.array([[0, 100, 8000]])
    together = ready.step({"batch": batches, "query": 1, "context": contexts, "logits": 1}, "decode")
    for place_, (batch, context) in enumerate((b, c) for b in (1, 8) for c in (0, 100, 8000)):
        alone = ready.step({"batch": batch, "query": 1, "context": context, "logits": 1}, "decode")
        for name in ("time_s", "low_s", "high_s", "floor_s"):
            assert together.total(name)[place_] == pytest.approx(alone.total(name)[0])
        assert together.work("flops")[place_] == pytest.approx(alone.work("flops")[0])


def test_equal_ops_are_priced_once():
    windows = tuple((None, 1) for _ in range(20))
    model = decoder(layers=1, windows=windows, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=100)
    found = plan(graph=model).prepared
    assert len(found.entries) > 250
    assert len(found.rows) < 20


def test_an_overlap_that_is_no_share_is_refused():
    with pytest.raises(DomainError, match="overlap"):
        plan(overlap=1.5)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_that_nothing_can_be_divided_by_are_refused(rate):
    slow = Memory(level="dram", bandwidth_bytes_per_s=stated(rate))
    with pytest.raises(DomainError, match="memory bandwidth of machine must be greater than 0"):
        estimate_op(GEMM, at(), machine(memories=(slow,)))
    with pytest.raises(DomainError, match="bf16 peak of machine must be greater than 0"):
        estimate_op(GEMM, at(), machine(peaks={"bf16": stated(rate)}))

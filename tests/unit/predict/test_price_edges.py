"""What single rules count and what steps and requests cost, at edges that no whole prediction shows."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import inferometer as im
from inferometer.core import Block, Calibration, Graph, Parallel, Precision, Symbol, Utilisation
from inferometer.core.engine import Overheads, RuntimeEffects
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.profile import Phase
from inferometer.core.workload import Workload
from inferometer.known import places
from inferometer.known.load import read_rows
from inferometer.predict.answer import predict_graph
from inferometer.predict.disaggregate import handed_over
from inferometer.predict.energy import PowerModel, power_model
from inferometer.predict.headline import headline_times, with_repeats
from inferometer.predict.money import hourly_price
from inferometer.predict.options import HostCosts, Hosting, Offload, Options, Speculative
from inferometer.predict.parallel import place
from inferometer.predict.phases import constant_phase, load_phase, site_of
from inferometer.predict.precision import arithmetic_for, counted_precision, weight_formats, with_overrides
from inferometer.predict.price.plan import plan_of
from inferometer.predict.price.priors import _prior, storage_prior
from inferometer.predict.ready import make_ready
from inferometer.predict.work.collect import Fused, collect, fuse
from inferometer.predict.work.count import coverage, known_part, with_formats
from inferometer.predict.work.polynomial import NotPolynomialError, Polynomial, spread_monomials
from inferometer.predict.work.prepare import Terms, prepare
from inferometer.predict.work.rules import work_of
from unit.predict.decoders import BF16, at, decoder, project, tensor, tokens, weight
from unit.predict.examples import op, same
from unit.predict.machines import MACHINE, WIRE, machine, stated

SMALL = decoder(layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=100)
IDEAL = RuntimeEffects(name="ideal", title="nothing added")


def graph(*ops, count=1, **rest):
    return Graph(name="graph", blocks=(Block(name="all", ops=ops, count=count),), precision="bf16", **rest)


def prepared(model, effects=IDEAL, precision=BF16, **plan):
    return prepare(model, place(model, Parallel(**plan)), Terms(precision=precision, effects=effects))


# The work of single rules.


def test_a_scatter_in_place_keeps_what_is_stored():
    inputs = [tokens("x", 96), tensor("i", 3, role="index"), tokens("u", 8)]
    plain = op("scatter", inputs, [tokens("y", 96)], [weight("w", 7)], in_place=True, reduction="add")
    work = work_of(plain, at(batch=2, query=5))
    assert (work.weights, work.writes, work.total_flops) == (14, 2 * 5 * 8 * 2, 2 * 5 * 8)
    assert work.reads == work.writes + work_of(plain, at(batch=0, query=5)).reads


def test_biases_are_weights_and_stored_scales_are_none():
    def flops(kind, kept, inputs=None, **attributes):
        sides = inputs or [tokens("x", 6)], [tokens("y", 4)]
        return work_of(op(kind, *sides, kept, **attributes), at(batch=1, query=1)).total_flops

    bias, scale = weight("b", 4), tensor("s", 4, role="constant")
    matrix = weight("w", 4, 6)
    assert flops("linear", [matrix]) == flops("linear", [matrix, scale]) == 48
    assert flops("linear", [matrix, bias]) == 52
    assert flops("norm", [bias, scale]) == 4 * 6
    assert flops("norm", [bias, bias], norm="batch") == 8
    kernel = {"in_channels": 6, "out_channels": 4, "kernel": (1,)}
    assert flops("convolution", [matrix, bias], **kernel) - flops("convolution", [matrix, scale], **kernel) == 4
    routed = {"experts": 4, "top_k": 2}
    assert flops("moe_router", [matrix, bias], **routed) - flops("moe_router", [matrix, scale], **routed) == 4
    assert flops("moe_router", [matrix], **routed) == 4 * (12 + 5 + 1)


def test_every_operand_counts_whether_it_comes_in_or_is_stored():
    def flops(kind, inputs, kept=(), outputs=None, **attributes):
        out = outputs or [tensor("y", 2, 6)]
        return work_of(op(kind, inputs, out, kept, **attributes), at()).total_flops

    x, z, bias = tensor("x", 2, 6), tensor("z", 2, 6), weight("b", 6)
    assert [flops("elementwise", [x], function="sum"), flops("elementwise", [x, z], [bias], function="sum")] == [12, 24]
    assert flops("elementwise", [x, z], [bias], function="add") == 12
    assert flops("elementwise", [x, z], [bias, bias], function="max", flops_per_element=7) == 84
    ids = tensor("i", 2, 6, role="index")
    assert [flops("activation", [x, ids], function="relu"), flops("activation", [x, z], function="relu")] == [12, 24]
    assert [flops("norm", [x, z], norm="rms"), flops("norm", [x, ids], norm="rms")] == [48, 36]
    assert flops("norm", [x], [tensor("c", 6, role="constant")], norm="odd") == 5 * 12
    assert [flops("norm", [x], norm="lrn"), flops("norm", [x], norm="lrn", size=3)] == [9 * 12, 7 * 12]
    assert [flops("matmul", [x, z]), flops("matmul", [x, z, bias]), flops("matmul", [x, z], contracted=3)] == [
        144,
        156,
        72,
    ]
    assert [flops("reduce", [x], function=name) for name in ("sum", "l2", "logsumexp", "odd")] == [12, 24, 48, 12]
    assert [flops("sampling", [x], function="greedy"), flops("sampling", [x]), flops("sampling", [x], top_k=8)] == [
        12, 60, 12 * 8,
    ]  # fmt: skip
    assert [flops("sort", [x]), flops("sort", [x], k=2), flops("sort", [x], axis=0), flops("sort", [x], k=99)] == [
        36, 12, 12, 36,
    ]  # fmt: skip
    assert [flops("quantize", [x]), flops("quantize", [x], dynamic=True), flops("dequantize", [x])] == [60, 84, 24]
    turned = {"outputs": [x, tensor("k", 2, 4)]}
    assert [flops("rotary", [x], **turned), flops("rotary", [x], **turned, rotary_dim=2, head_dim=4)] == [60, 30]
    scan = {"inner": 4, "state": 3, "heads": 5}
    assert [flops("ssm_scan", [x], **scan), flops("ssm_scan", [x], **scan, version=2)] == [2 * 96, 2 * 82]
    cell = {"hidden": 3, "cell": "gru"}
    kept = [weight("w", 9, 6), weight("r", 9, 3)]
    assert [flops("recurrent", [x], kept, **cell), flops("recurrent", [x], [*kept, bias], **cell, directions=2)] == [
        2 * 3 * (3 * 18 + 14), 2 * 2 * 3 * (3 * 19 + 14),
    ]  # fmt: skip


def test_a_resize_weighs_neighbours_in_as_many_dimensions_as_there_are():
    def each(mode, *shape):
        inner = op("resize", [tensor("x", *shape)], [tensor("y", *shape)], **({"mode": mode} if mode else {}))
        return work_of(inner, at()).total_flops / np.prod(shape)

    plane = (1, 2, 5, 7)
    assert [each(mode, *plane) for mode in (None, "nearest", "linear", "bilinear")] == [0, 0, 7, 7]
    assert (each("cubic", *plane), each("bicubic", 1, 2, 3)) == (31, 31)
    assert each("trilinear", 1, 2, 3) == each("linear", 1, 2, 3, 4, 5) == 15
    assert each("linear", 3) == 3


def test_a_pool_without_a_kernel_is_global():
    def flops(**attributes):
        inner = op("pool", [tensor("x", 1, 2, 8)], [tensor("y", 1, 2, 4)], **attributes)
        return work_of(inner, at()).total_flops

    assert (flops(), flops(kernel=(3,)), flops(kernel=(3,), function="global")) == (16, 24, 16)


# What is known of an op, and what is not.


def test_formats_that_are_asked_for_stand_before_the_models():
    binding = at(precision=Precision(weights="q4_0"))
    filled = with_formats(SMALL, binding).precision
    assert (filled.weights, filled.activations) == ("q4_0", "bf16")
    assert with_formats(replace(SMALL, precision=None), binding) is binding
    assert with_formats(SMALL, at(precision=Precision(activations="f32"))).precision.weights == "bf16"


def test_coverage_says_why_an_op_is_not_counted():
    unknown = op("custom", [tokens("x", 4)], [], reason="a plug-in")
    sized = op("softmax", [tensor("n", Symbol("found"), 4)], [tensor("m", Symbol("found"), 4)])
    loop = op("control", bodies=((same("softmax"), unknown),), trips=3)
    endless = op("control", bodies=((same("softmax"),),))
    model = graph(same("softmax"), unknown, sized, loop, endless, count=2)
    found = coverage(model)
    assert (found.ops, found.covered) == (16, 6)
    assert [(each.kind, each.reason, each.count) for each in found.uncovered] == [
        ("custom", "a plug-in", 2), ("softmax", "unknown size: found", 2), ("custom", "a plug-in", 2),
        ("control", "unknown number of trips", 2), ("softmax", "unknown number of trips", 2),
    ]  # fmt: skip
    assert found.share == 6 / 16
    assert coverage(Graph(name="g", blocks=())).share == 1
    assert known_part(loop, frozenset())["bodies"] == ((same("softmax"),),)
    assert known_part(op("view", [tensor("n", Symbol("found"))], []), frozenset({"found"})) is not None


def test_arithmetic_is_that_of_the_device_and_the_runtime():
    product, vector = project("l", "x", "y", 8, 8), same("softmax")
    narrow = machine(peaks={"f16": stated(1.0), "i8": stated(2.0)})

    def found(op_, key, device, **effects):
        answer = arithmetic_for(op_, key, at(), device, replace(IDEAL, **effects))
        return answer.name, bool(answer.note)

    assert found(vector, "bf16", MACHINE) == ("f32", False)
    assert found(vector, "i8", narrow) == ("i8", False)
    assert found(vector, "bf16", narrow) == ("f16", False)
    assert found(vector, "bf16", machine(peaks={})) == (None, False)
    assert found(product, "bf16", MACHINE) == ("bf16", False)
    assert found(product, "bf16", narrow, instead={"bf16": ("f16",)}) == ("f16", True)
    assert found(product, "bf16", narrow, arithmetic={"linear:bf16": ("i8",)}) == ("i8", True)
    assert found(product, "bf16", narrow, arithmetic={"gpu:bf16": ("f16",), "linear:bf16": ("i8",)}) == ("f16", True)
    with pytest.raises(DomainError) as refused:
        found(product, "bf16", narrow)
    assert refused.value.remedy.endswith("--weights f16 --activations f16.")
    with pytest.raises(DomainError, match="No peak of machine is known"):
        found(product, "bf16", machine(peaks={}))


def test_most_weights_decide_the_format_that_counts():
    kept = (weight("w", 8, 8, dtype="i8"), weight("v", 8), tensor("c", 999, role="constant", dtype="f32"))
    model = graph(op("linear", [tokens("x", 8)], [tokens("y", 8)], kept))
    assert weight_formats(model, BF16) == {"i8": 64 / 72, "bf16": 8 / 72}
    assert counted_precision(model, BF16).weights == "i8"
    assert counted_precision(graph(same("softmax")), Precision()).weights == "bf16"
    changed = with_overrides(model, {"lin*": "f16"})
    assert [each.dtype for each in changed.blocks[0].ops[0].weights] == ["f16", "f16", "f32"]
    with pytest.raises(DomainError, match="No op is named b\\*, z\\*"):
        with_overrides(model, {"z*": "f16", "lin*": "f16", "b*": "f16"})


def test_priors_are_read_with_care(tmp_path):
    good = {"unit": '"gpu"', "class": '"linear"', "compute_share": "0.5", "spread": "2"}
    head = '[sources.a]\ntitle = "A"\ndate = "2026"\norigin = "prior"\n[priors.one]\nsource = "a"\n'

    def read(**changes):
        lines = "\n".join(f"{key} = {value}" for key, value in {**good, **changes}.items() if value is not None)
        (tmp_path / "priors.toml").write_text(head + lines)
        return _prior(read_rows([tmp_path / "priors.toml"], "priors").by_name["one"])

    assert (read().compute_share.value, read().spread.value, read(spread="1").spread.value) == (0.5, 2, 1)
    assert read(compute_share="1").compute_share.value == 1
    for wrong in ({"compute_share": "0"}, {"compute_share": "1.1"}, {"spread": "0.9"}, {"spread": None},
                  {"unit": '"mill"'}, {"class": '"nothing"'}, {"shares": "3"}):  # fmt: skip
        with pytest.raises(InferometerError):
            read(**wrong)


# Prices of a step.


def test_what_runs_once_a_request_has_no_step_of_its_own():
    steps = replace(IDEAL, overheads={"gpu": Overheads(step_s=stated(2.0), kernel_s=stated(0.5))})
    once = replace(project("once", "x", "h", 4, 4), attributes={"once": True})
    plan = plan_of(prepared(graph(once, project("each", "h", "y", 4, 4)), steps), MACHINE, weights_bytes=1.0)
    sizes = {"batch": 1, "query": 1, "context": 0, "logits": 1}
    each, one = plan.step(sizes, "decode"), plan.step(sizes, "decode", once=True)
    assert (each.step_s, one.step_s) == (2.0, 0.0)
    assert each.total("time_s") - one.total("time_s") == pytest.approx(2.0)
    assert each.sums().waiting_s == pytest.approx(2.5)


def test_a_host_that_is_not_known_is_not_the_devices_launch():
    silent = plan_of(prepared(SMALL), machine(launch_s=stated(1.0)), weights_bytes=1.0)
    assert silent.overheads.host_s is None
    measured = Calibration(device="m", runtime="ideal", dtype="bf16", created="2026", overheads={"host": stated(3.0)})
    known = plan_of(prepared(SMALL), machine(launch_s=stated(1.0)), weights_bytes=1.0, calibration=measured)
    assert known.overheads.host_s.value == 3.0


def test_a_step_waits_for_its_host_even_where_some_ops_start_nothing():
    shaped = op("view", [tokens("x", 4)], [tokens("v", 4)])
    model = graph(shaped, project("l", "v", "y", 4, 4))
    sizes = {"batch": 1, "query": 1, "context": 0, "logits": 1}
    wide = []
    for seconds in (1e-2, 10.0):
        effects = replace(IDEAL, overheads={"gpu": Overheads(host_s=stated(seconds))})
        step = plan_of(prepared(model, effects), MACHINE, weights_bytes=1.0).step(sizes, "decode")
        assert step.total("time_s") == pytest.approx(seconds)
        low, high = step.interval()
        wide.append((float(low[0]) / seconds, float(high[0]) / seconds))
    assert wide[0] == pytest.approx(wide[1]), "as uncertain as the host, whether that is slow or quick"


def test_rows_that_send_have_floors_of_their_own_and_the_others_send_nothing():
    sizes = {"batch": 1, "query": 1, "context": 0, "logits": 1}
    for tp, sends in ((1, False), (2, True)):
        plan = plan_of(prepared(SMALL, tp=tp), MACHINE, weights_bytes=1.0)
        moved = plan.prepared.quantities(sizes)
        assert plan.needs_floor(moved) == sends
        assert (moved.link.ravel() > 0).tolist() == [row.op_class == "collective" for row in plan.prepared.rows]
        assert moved.link.min() == 0


def test_the_doubt_of_two_tables_is_the_larger_and_grows_outside_of_the_first():
    def table(stream, residual, most):
        return Utilisation(op_class="linear", stream=stream, axes=("rows",), grid=((1.0, most),), values=(0.5, 0.5),
                           residual=residual)  # fmt: skip

    calibration = Calibration(device="m", runtime="ideal", dtype="bf16", created="2026",
                              tables=(table("bf16", 0.1, 8.0), table("dram", 0.3, 99.0)))  # fmt: skip
    model = graph(project("l", "x", "y", 64, 64))
    plan = plan_of(prepared(model), MACHINE, weights_bytes=1.0, calibration=calibration)
    assert plan.rates_in("prefill").spread[0, 0] == 0.3
    sizes = {"batch": 1, "query": 16, "context": 0, "logits": 1}
    step = plan.step(sizes, "prefill")
    assert step.far[0, 0] == pytest.approx(np.log(2))
    assert step.priced.spread[0, 0] == pytest.approx(0.3 * (1 + np.log(2)))
    assert plan.step({**sizes, "query": 8}, "prefill").far[0, 0] == 0
    sums = plan.step({**sizes, "query": np.array([2, 8, 16])}, "prefill").sums()
    assert (len(sums), len(sums[1:]), sums[1:].time_s[0]) == (3, 2, sums.time_s[1])


def test_arithmetic_goes_by_the_first_weight():
    def stored(name):
        return op("linear", [tokens("x", 8)], [tokens("y", 8)], [weight("w", 8, 8, dtype=name), weight("b", 8)])

    effects = replace(IDEAL, arithmetic={"i8": ("i8",), "f16": ("f32",)})
    device = machine(peaks={"bf16": stated(4.0), "f32": stated(1.0), "i8": stated(8.0)})
    plan = plan_of(prepared(graph(stored("i8"), stored("f16"), stored("bf16")), effects), device, weights_bytes=1.0)
    assert plan.arithmetic == ("i8", "f32", "bf16")
    assert plan.inverse_peaks["bf16"].ravel().tolist() == [1 / 8, 1, 1 / 4]


def test_weights_that_are_not_widened_move_once():
    widening = replace(IDEAL, expanded=frozenset({"q4_0"}))
    for name, extra in (("q4_0", 2 * 64 * 64 * 2), ("q8_0", 0)):
        rows = prepared(graph(project("l", "x", "y", 64, 64)), widening, Precision(weights=name, activations="bf16"))
        assert rows.quantities({"batch": 1, "query": 1, "context": 0, "logits": 1}).extra_bytes[0, 0] == extra
    made = prepared(graph(op("copy", [], [tokens("y", 64)], [weight("w", 64)])), widening,
                    Precision(weights="q4_0", activations="bf16"))  # fmt: skip
    assert made.quantities({"batch": 1, "query": 1, "context": 0, "logits": 1}).extra_bytes[0, 0] == 0
    table = op("embedding", [tensor("ids", 3, role="index")], [tokens("y", 64)], [weight("w", 100, 64)])
    looked = prepared(graph(table), widening, Precision(weights="q4_0", activations="bf16"))
    assert looked.quantities({"batch": 1, "query": 1, "context": 0, "logits": 1}).extra_bytes[0, 0] == 0


def test_ops_that_differ_in_more_than_their_names_are_rows_of_their_own():
    x, y = tokens("x", 8), tokens("y", 8)
    square, product = op("elementwise", [x, x], [y]), op("elementwise", [x, tokens("z", 8)], [y])
    stored = [project("l", "x", "y", 8, 8, stored=weight("w", 8, 8, dtype=name)) for name in ("i8", "f16", "i8")]
    shaped = op("linear", [x], [y], [weight("w", 8, 8, dtype="i8", stored_bytes=99)])
    listed = [same("softmax", 8, axis=[1, 2], more={"b": [3], "a": 4}) for _ in range(2)]
    ops = (square, product, *stored, shaped, same("softmax", 8), *listed)
    model = graph(*ops, count=3)
    found = collect(model, place(model, Parallel()), IDEAL)
    assert [entry.row for entry in found.entries] == [0, 1, 2, 3, 2, 4, 5, 6, 6]
    assert found.repeats[0].tolist() == [3, 3, 6, 3, 3, 3, 6]
    assert not found.repeats[1].any()


# What a request takes in all.


def test_the_times_of_a_request_add_up_from_its_phases():
    seconds = {"tokenise": 1.0, "encode": 2.0, "prefill": 4.0, "sampling": 8.0, "transfer": 16.0, "decode": 32.0,
               "detokenise": 64.0, "load": 128.0}  # fmt: skip
    phases = [Phase(name=name, time_s=time, low_s=time / 2, high_s=3 * time) for name, time in seconds.items()]
    times = headline_times(phases, Workload(prompt=3, generate=5), Options())
    assert (times["ttft_s"], times["tpot_s"], times["e2e_s"]) == (31, 104, 31 + 4 * 104)
    assert (times["ttft_low_s"], times["tpot_high_s"], times["latency_s"]) == (15.5, 312, None)
    forward = [Phase(name="forward", time_s=2.0, low_s=1.0, high_s=3.0)]
    assert headline_times(forward, Workload(), Options(steps=7))["latency_high_s"] == 21
    assert headline_times(forward, Workload(), Options())["latency_s"] == 2
    alone = headline_times(phases[2:3], Workload(prompt=3, generate=5), Options())
    assert (alone["tpot_s"], alone["e2e_s"]) == (None, 4)


def test_a_round_of_drafting_is_counted_as_often_as_it_runs():
    names = ("prefill", "draft", "decode", "sampling", "detokenise")
    drafting = Options(speculative=Speculative(draft=SMALL, length=3, acceptance=1.0))
    phases = [Phase(name=name, time_s=1.0) for name in names]
    told = {each.name: each.repeats for each in with_repeats(phases, Workload(prompt=2, generate=9), drafting)}
    assert told == {"prefill": None, "draft": 6, "decode": 2, "sampling": 3, "detokenise": 2}
    step = {each.name: each.repeats for each in with_repeats(phases[1:], Workload(context=5), drafting)}
    assert step == {"draft": 0.75, "decode": 0.25, "sampling": 0.25, "detokenise": 0.25}
    assert [each.repeats for each in with_repeats(phases, Workload(), Options())] == [None] * 5
    denoised = [Phase(name="load", time_s=1.0), Phase(name="forward", time_s=1.0)]
    assert [each.repeats for each in with_repeats(denoised, Workload(), Options(steps=7))] == [None, 7]


def test_loading_is_between_the_longer_way_and_both_ways():
    ready = make_ready(SMALL, MACHINE, effects=IDEAL, workload=Workload(precision=BF16), options=Options())
    site = site_of(MACHINE, SMALL, Parallel(), Options())
    stored = ready.layout.weight_bytes
    phase, notes = load_phase(ready, MACHINE, site, Options(storage_bytes_per_s=stored))
    across = stored / 10e9
    assert (phase.low_s, phase.time_s, phase.high_s, phase.bound) == (1, 1 + across, 1 + across, "storage")
    assert (notes, phase.bytes) == ((), stored)
    assert phase.energy_j == pytest.approx(site.power.idle_w * (1 + across))
    quick, _ = load_phase(ready, MACHINE, site, Options(storage_bytes_per_s=1e12))
    assert (quick.low_s, quick.bound) == (across, "link")
    unlinked = machine(host_link=None, power_w=None)
    near, _ = load_phase(ready, unlinked, site_of(unlinked, SMALL, Parallel(), Options()), Options(
        storage_bytes_per_s=stored))  # fmt: skip
    assert (near.time_s, near.energy_j) == (1, None)
    prior = storage_prior("server")
    usual, notes = load_phase(ready, MACHINE, site, Options())
    slow, fast = stored / float(prior.low_bytes_per_s), stored / float(prior.high_bytes_per_s)
    assert usual.time_s == pytest.approx((slow * fast) ** 0.5 + across)
    assert (usual.high_s, usual.low_s, len(notes)) == (pytest.approx(slow + across), max(fast, across), 1)
    assert load_phase(ready, machine(kind="toaster"), site, Options())[0] is None
    host = constant_phase("sampling", 3.0)
    assert (host.low_s, host.time_s, host.high_s, host.floor_s) == (1.5, 3, 6, 0)


def test_energy_is_of_waiting_moving_and_computing():
    power = PowerModel(idle_w=1.0, moving_w=10.0, computing_w=100.0, full_share=0.5)
    assert power.joules(time_s=11.0, computing_s=1.125, waiting_s=2.0) == 9 * 10 + 9 * 0.5 * 90 + 2, "the root of 1/4"
    assert power.joules(time_s=8.0, computing_s=3.0, waiting_s=2.0) == 6 * 10 + 6 * 90 + 2, "half of the time is full"
    assert power.joules(time_s=8.0, computing_s=30.0, waiting_s=2.0) == 6 * 10 + 6 * 90 + 2, "and more than full is not"
    assert power.joules(time_s=8.0, computing_s=3.0, waiting_s=20.0) == 8
    assert power_model(machine(idle_w=stated(500.0))).idle_w < 100, "no more than the share of the limit"
    assert power_model(machine(idle_w=stated(1.0))).idle_w == 1
    assert power_model(machine(unit="dsp", idle_w=None)) == PowerModel(
        idle_w=100.0, moving_w=100.0, computing_w=100.0, bound=True
    )


def test_a_price_is_the_cheapest_offer_or_the_one_named():
    assert hourly_price(MACHINE, 1, Hosting()) is None
    assert hourly_price(MACHINE, 3, Hosting(usd_per_hour=2.0)).usd_per_hour == 2
    h100 = replace(MACHINE, name="nvidia-h100-sxm")
    with pytest.raises(DomainError, match="has nvidia-h100-sxm, and machine was asked for"):
        hourly_price(MACHINE, 1, Hosting(instance=places.instances_with("nvidia-h100-sxm")[0].name))
    one, two = (hourly_price(h100, devices, Hosting()) for devices in (1, 2))
    offers = [hourly_price(h100, 1, Hosting(instance=each.name)) for each in places.instances_with("nvidia-h100-sxm")
              if each.usd_per_hour is not None]  # fmt: skip
    assert one.usd_per_hour == min(offer.usd_per_hour for offer in offers)
    assert two.usd_per_hour == pytest.approx(2 * one.usd_per_hour)


def test_tokenising_takes_every_token_of_every_sequence():
    host = Options(host=HostCosts(tokenise_s_per_token=1.0, sampling_s=2.0, detokenise_s_per_token=3.0))
    found = predict_graph(SMALL, MACHINE, workload=Workload(prompt=5, generate=4, batch=2), options=host)
    times = {phase.name: phase.time_s for phase in found.phases}
    assert (times["tokenise"], times["sampling"], times["detokenise"]) == (10, 2, 6)
    single = predict_graph(SMALL, MACHINE, workload=Workload(prompt=5, generate=1), options=host)
    assert "decode" not in {phase.name for phase in single.phases}
    sampled = Options(host=HostCosts(sampling_s=2.0))
    step = predict_graph(SMALL, MACHINE, workload=Workload(context=5), options=sampled)
    assert {"tokenise", "prefill", "detokenise"}.isdisjoint(phase.name for phase in step.phases)


def test_a_model_fits_beside_the_runtimes_reserve_or_not_at_all():
    used = predict_graph(SMALL, MACHINE, workload=Workload(prompt=5)).summary.peak_memory_bytes
    reserving = replace(IDEAL, name="reserving", overheads={"gpu": Overheads(reserve_bytes=stated(1000.0))})
    for room, fits in ((1000, True), (999, False)):
        device = machine(memories=(replace(MACHINE.memories[0], capacity_bytes=stated(float(used + room))),))
        found = predict_graph(SMALL, device, workload=Workload(prompt=5), runtime=reserving)
        assert (found.summary.fits, len(found.findings)) == (fits, 0 if fits else 1)
    assert found.findings[0].evidence == {"needed_bytes": used + 1000, "capacity_bytes": used + 999}


def test_two_machines_need_a_prompt_a_cache_and_something_to_write():
    asked = Workload(prompt=5, generate=4)
    whole = predict_graph(SMALL, MACHINE, workload=asked)

    def handed(reading=whole, writing=whole):
        return handed_over(reading, writing, cache_bytes=100e9, link=WIRE, options=Options())

    found = handed()
    assert [phase.name for phase in found.phases] == ["load", "prefill", "transfer", "decode"]
    assert found.phase("transfer").time_s == pytest.approx(1 + 1e-6)
    assert (found.phase("transfer").floor_s, found.phase("transfer").high_s) == (1.0, pytest.approx(2 + 2e-6))
    assert found.summary.ttft_s == pytest.approx(whole.summary.ttft_s + 1 + 1e-6)
    assert (found.device.count, found.summary.energy_j) == (2, None)
    unread = replace(whole, summary=replace(whole.summary, ttft_s=None))
    uncached = replace(whole, model=replace(whole.model, kv_bytes_per_token=None))
    unwritten = replace(whole, workload=replace(asked, generate=None))
    for wrong in (unread, uncached, unwritten):
        with pytest.raises(DomainError, match="no cache that one machine could hand"):
            handed(wrong, wrong)


def test_an_op_that_runs_alone_writes_what_nobody_reads():
    effects = replace(IDEAL, fusion="chains", fused=frozenset({"activation"}))
    lone, pair = same("activation"), replace(same("activation"), name="b", inputs=(tokens("y", 96),),
                                             outputs=(tokens("z", 96),))  # fmt: skip
    assert fuse(graph(lone), effects) == [[Fused(launches=1)]]
    first, second = fuse(graph(lone, pair), effects)[0]
    assert (first.launches, second.launches, len(first.writes), len(second.reads)) == (1, 0, 1, 1)


def test_offloading_more_layers_than_there_are_is_refused():
    def ready(**offload):
        asked = Options(offload=Offload(**offload))
        return make_ready(SMALL, MACHINE, effects=IDEAL, workload=Workload(precision=BF16), options=asked)

    with pytest.raises(DomainError, match="5 layers were to be offloaded; decoder has 4"):
        ready(layers=5)
    with pytest.raises(DomainError, match="no weights that could be offloaded"):
        ready(experts=True)
    all_of_them, one = ready(layers=4).residency, ready(layers=1).residency
    assert all_of_them.offloaded_bytes == 4 * one.offloaded_bytes
    assert [(block.count, block.first) for block in ready(layers=1).graph.blocks[1:3]] == [(3, 0), (1, 3)]


def test_polynomials_multiply_and_divide_like_numbers():
    n, m = Polynomial.symbol("n"), Polynomial.symbol("m")
    product = (n * 2 + 3) * (m - 1) * n // 1
    value = spread_monomials([*product.terms], {"n": 5, "m": 7}, ())[:, 0] @ [*product.terms.values()]
    assert value == 13 * 6 * 5
    assert (6 * n * n * m // (3 * n)).terms == {("m", "n"): 2}
    assert (n / 4).terms == {("n",): 0.25}
    assert (6 * n * m / (2 * m)).terms == {("n",): 3}
    assert (12 // Polynomial.of(4)).terms == {(): 3}
    assert (n * (n + 1) // 2).terms == {("n", "n"): Fraction(1, 2), ("n",): Fraction(1, 2)}
    for wrong in (lambda: n // 2, lambda: n // m, lambda: n // (n + 1), lambda: (n * n + n) // 4, lambda: 0.5 * n // 3):
        with pytest.raises(NotPolynomialError):
            wrong()
    many = Polynomial({(name,): 1 for name in "abcdefghijklm"})
    with pytest.raises(NotPolynomialError):
        _ = many // 2
    assert (n + 0) is n
    assert (0 * n).terms == {}
    assert repr(2 * n + 3) == "2·n + 3"


@pytest.mark.parametrize(("name", "bits"), [("intel-xeon-8380", 512), ("amd-ryzen-9-8945hs-cpu", None)])
def test_kernels_built_for_narrower_vectors_take_as_much_longer_as_the_peak_is_wider(name, bits):
    """MNN's wheel has AVX2 alone; a core that computes AVX-512 in two halves loses nothing by that."""
    device = im.device(name)
    assert device.vector_bits == bits
    asked = {"model": "resnet18", "runtime": "mnn"}
    slow, plain = (im.predict(on=on, **asked) for on in (device, replace(device, vector_bits=None)))
    ratio = slow.steady.time_s / plain.steady.time_s
    assert ratio == pytest.approx(1.0) if bits is None else 1.2 < ratio <= 2
    assert any("vectors of 256 bits" in note for note in slow.provenance.notes) is (bits is not None)
    wide = [im.predict(on=on, model="resnet18", runtime="onnxruntime").steady.time_s for on in (device, name)]
    assert wide[0] == wide[1], "an engine that says nothing of its vectors has the widest"

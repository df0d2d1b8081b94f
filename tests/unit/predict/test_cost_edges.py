"""What is asked, how it is shared out and what it holds: checks, choices and edges that no whole prediction shows."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core import Block, Graph, Memory, Parallel, Symbol, Tensor, Utilisation
from inferometer.core.engine import Overheads, RuntimeEffects
from inferometer.core.errors import DomainError
from inferometer.core.workload import Workload
from inferometer.predict.memory.fit import fit
from inferometer.predict.memory.footprint import footprint, live_bytes
from inferometer.predict.memory.inventory import inventory
from inferometer.predict.memory.residency import residency_of
from inferometer.predict.options import Options
from inferometer.predict.parallel import is_layer, layer_count, place, stage_share
from inferometer.predict.phases import latency_notes, site_of
from inferometer.predict.price.collectives import message_seconds
from inferometer.predict.price.price import Levels, levels_of
from inferometer.predict.price.utilisation import TableReader
from inferometer.predict.request import completed, decode_context, last_tokens, prefill_steps
from inferometer.predict.work.classes import attention_path, class_of, class_path, dims_of, is_padded
from inferometer.predict.work.polynomial import ceil_log2, larger, smaller
from inferometer.predict.work.prepare import Terms, prepare
from inferometer.predict.work.rules.attention import cached_bytes_per_token
from unit.predict.decoders import BATCH, BF16, QUERY, at, attend, decoder, project, tensor, tokens, weight
from unit.predict.examples import cross, encoder, experts, mla, op, same, state
from unit.predict.machines import MACHINE, WIRE, machine, stated

SMALL = decoder(layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=100)
IDEAL = RuntimeEffects(name="ideal", title="nothing added")


def graph(*ops, count=1, **rest):
    return Graph(name="graph", blocks=(Block(name="all", ops=ops, count=count),), precision="bf16", **rest)


def prepared(model, effects=IDEAL, precision=BF16, **plan):
    return prepare(model, place(model, Parallel(**plan)), Terms(precision=precision, effects=effects))


# What is asked: windows, prompts and steps.


def test_a_prompt_left_open_is_512_tokens_or_what_the_window_leaves():
    reader = graph(
        project("p", "x", "q", 128, 128), encoder(), inputs=(Tensor(name="ids", shape=(BATCH, QUERY), role="index"),)
    )
    assert completed(reader, Workload(), Options()).prompt == 512
    assert completed(replace(reader, context_limit=40), Workload(), Options()).prompt == 40
    assert completed(SMALL, Workload(), Options()).prompt == 512
    assert completed(replace(SMALL, context_limit=300), Workload(), Options()).prompt == 150
    with pytest.raises(DomainError, match="prompt and generation would be 2"):
        completed(replace(SMALL, context_limit=1), Workload(generate=2), Options())
    assert completed(replace(SMALL, context_limit=600), Workload(prompt=590), Options()).generate == 10
    assert completed(replace(SMALL, context_limit=600), Workload(prompt=100), Options()).generate == 128
    with pytest.raises(DomainError, match="the prompt would be 41"):
        completed(replace(reader, context_limit=40), Workload(prompt=41), Options())
    with pytest.raises(DomainError, match="the context would be 601"):
        completed(replace(SMALL, context_limit=600), Workload(context=601), Options())
    with pytest.raises(DomainError, match="prompt and generation would be 601"):
        completed(replace(SMALL, context_limit=600), Workload(prompt=500, generate=102), Options())
    with pytest.raises(DomainError, match="5 cached tokens leave nothing of a prompt of 5"):
        completed(SMALL, Workload(prompt=5), Options(cached_prefix=5))
    completed(SMALL, Workload(prompt=6), Options(cached_prefix=5))


def test_an_encoder_has_the_prompt_and_the_decoder_a_start_token():
    reads = replace(SMALL, metadata={"default_sizes": {"encoder": 77}}, context_limit=20)
    asked = completed(reads, Workload(prompt=500), Options(cached_prefix=3))
    assert asked.generate == 20, "the prompt is not in the decoder's window"
    assert last_tokens(reads, replace(asked, generate=9)) == 9
    assert decode_context(reads, replace(asked, generate=9)) == 1 + 3.5
    hears = replace(SMALL, metadata={"default_sizes": {"frames": 80}})
    assert completed(hears, Workload(), Options()).prompt == 1


def test_steps_of_a_prompt():
    asked, chunked = Workload(prompt=10), Options(chunk=4, cached_prefix=3)
    assert prefill_steps(SMALL, asked, chunked, IDEAL, encodes=False) == [(4, 3), (3, 7)]
    assert prefill_steps(SMALL, asked, chunked, IDEAL, encodes=True) == [(10, 0)]
    one = prefill_steps(SMALL, Workload(), Options(cached_prefix=3), IDEAL, encodes=False)
    assert one == [(1, 0)], "one token is read"
    apart = replace(IDEAL, prompt="last apart")
    assert prefill_steps(SMALL, asked, chunked, apart, encodes=False) == [(4, 3), (2, 7), (1, 9)]
    assert prefill_steps(SMALL, asked, Options(), apart, encodes=False) == [(9, 0), (1, 9)]
    assert prefill_steps(SMALL, Workload(prompt=1), Options(), apart, encodes=False) == [(1, 0)]
    compiled = replace(IDEAL, reads=4)
    assert prefill_steps(SMALL, asked, Options(), compiled, encodes=False) == [(4, 0), (4, 4), (4, 8)], "padded"
    assert prefill_steps(SMALL, Workload(prompt=1), Options(), compiled, encodes=False) == [(4, 0)]
    assert prefill_steps(SMALL, asked, Options(chunk=5), compiled, encodes=False) == [(4, 0), (4, 4), (4, 5), (4, 9)]
    assert last_tokens(SMALL, Workload(context=7)) == 8
    assert last_tokens(SMALL, Workload(prompt=7, generate=5)) == 11
    assert last_tokens(SMALL, Workload(prompt=7)) == 7


# Classes, paths and shapes.


def test_the_names_to_look_for_are_the_most_specific_first():
    wide, narrow = attend("a", heads=2, kv_heads=2, head_dim=65), attend("a", heads=2, kv_heads=2, head_dim=64)
    ends = [f"attention.prefill{end}" for end in (".wide", "")]
    assert class_path(wide, "prefill") == (*ends, "attention")
    assert class_path(wide, "prefill", "padded") == ("attention.padded.wide", "attention.padded", "attention")
    masked = ("attention.masked.narrow", "attention.masked", "attention.prefill.narrow", "attention.prefill")
    assert class_path(narrow, "prefill", "masked") == (*masked, "attention")
    assert class_path(encoder(), "forward")[:2] == ("attention.mutual.narrow", "attention.mutual")
    values = attend("a", heads=2, kv_heads=2, head_dim=64, value_dim=80)
    assert class_path(values, "decode")[0] == "attention.decode.wide"
    assert class_path(same("softmax"), "decode") == ("vector.decode", "vector")
    assert class_path(same("softmax"), "decode", fused=True) == ("vector.fused", "vector.decode", "vector")
    forward = ("vector.fused", "vector.fused.forward", "vector.forward", "vector")  # tokens have no table of forwards
    assert class_path(same("softmax"), "forward", fused=True) == forward
    product = project("l", "x", "y", 3, 5)
    assert class_path(product, "decode", fused=True) == ("linear.decode", "linear")
    assert class_of(op("convolution", in_channels=1, groups=1, kernel=(3,), out_channels=4)) == "convolution"


def test_only_attention_over_texts_without_a_cache_meets_padding():
    plain, cached = encoder(), attend("a", heads=2, kv_heads=2, head_dim=4)
    patches = replace(plain, attributes={**plain.attributes, "query": 49})
    assert [is_padded(each) for each in (plain, cached, patches, same("softmax"))] == [True, False, False, False]
    assert [attention_path(each, "masked") for each in (plain, cached, patches)] == ["padded", "masked", None]
    assert attention_path(cached, "flash") is None
    assert attention_path(same("softmax"), "masked") is None


def test_shapes_are_of_the_first_input_and_the_first_output():
    two = op("elementwise", [tensor("a", 2, 3, 5), tensor("b", 7)], [tensor("y", 2, 3, 11), tensor("z", 13)])
    assert dims_of(two) == {
        "rows": 6, "in_features": 5, "plane": 5, "aligned": 1, "out_features": 11, "elements": 66,
    }  # fmt: skip
    convolved = op(
        "convolution", [tensor("a", 1, 4, 6)], [tensor("y", 1, 8, 6)], out_channels=8, in_channels=4, kernel=(1,)
    )
    assert dims_of(convolved)["channels"] == 8
    assert {name: dims_of(convolved)[name] for name in ("positions", "taps", "even")} == {
        "positions": 6, "taps": 4, "even": 4,
    }  # fmt: skip
    grouped = op("convolution", [tensor("a", 2, 6, 5, 5)], [tensor("y", 2, 9, 3, 3)],
                 out_channels=9, in_channels=6, groups=3, kernel=(3, 3))  # fmt: skip
    assert {name: dims_of(grouped)[name] for name in ("positions", "taps", "even")} == {
        "positions": 18, "taps": 18, "even": 1,
    }  # fmt: skip
    means = [op("pool", [tensor("a", 2, 6, 5, 5)], [made], function="global")
             for made in (tensor("y", 2, 6), tensor("y", 2, 6, 1, 1))]  # fmt: skip
    assert [dims_of(mean)["out_features"] for mean in means] == [1, 1]
    one = {"rows": 1, "in_features": 1, "plane": 1, "aligned": 1}
    assert dims_of(op("custom", [tensor("a")], [])) == one  # a scalar is one number
    assert dims_of(op("copy", [], [tensor("y")])) == {**one, "out_features": 1, "elements": 1}
    assert dims_of(op("copy", [], [tensor("y", 2, 6)]))["plane"] == 6  # what reads nothing is as large as it writes


# Tables outside of their grids, for arrays as for numbers.


def test_how_far_outside_a_point_lies_is_the_same_for_arrays():
    table = Utilisation(
        op_class="linear", stream="floor", axes=("rows", "bytes"), grid=((2.0, 8.0), (10.0, 1000.0)),
        values=(0.1, 0.2, 0.3, 0.4), residual=0.1,
    )  # fmt: skip
    reader = TableReader(table)
    rows, moved = np.array([0.0, 1.0, 2.0, 5.0, 32.0, 32.0]), np.array([5.0, 5.0, 10.0, 100.0, 4000.0, 100.0])
    alone = [reader.beyond(point) for point in zip(rows.tolist(), moved.tolist(), strict=True)]
    assert alone[1:] == pytest.approx([np.log(2) + np.log(2), 0, 0, np.log(4) + np.log(4), np.log(4)])
    assert reader.beyond((rows, moved)) == pytest.approx(alone)
    assert reader.beyond((4.0, moved)) == pytest.approx([reader.beyond((4.0, float(size))) for size in moved])
    shares = [reader.share(point) for point in zip(rows.tolist(), moved.tolist(), strict=True)]
    assert np.exp(reader.log_shares((rows, moved), {})) == pytest.approx(shares)
    assert np.exp(reader.log_shares((4.0, moved), {})) == pytest.approx([reader.share((4.0, m)) for m in moved])


# Parallel plans.


def test_a_plan_that_does_not_divide_names_those_that_do():
    with pytest.raises(DomainError) as refused:
        place(SMALL, Parallel(tp=3))
    assert refused.value.remedy == "Use 1, 2, 4."
    mixture = graph(experts(experts=6, top_k=2))
    with pytest.raises(DomainError) as refused:
        place(mixture, Parallel(ep=4, dp=4))
    assert refused.value.remedy == "Use one of 1, 2, 3, 6."
    with pytest.raises(DomainError, match="tp·dp = 4"):
        place(mixture, Parallel(ep=3, dp=4))
    with pytest.raises(DomainError, match="no experts to spread"):
        place(SMALL, Parallel(ep=2, dp=2))
    with pytest.raises(DomainError, match="pp=5 is more stages than the 4 layers"):
        place(SMALL, Parallel(pp=5))
    place(SMALL, Parallel(pp=4))
    heads = graph(project("q", "x", "q", 24, 24), attend("a", heads=12, kv_heads=3, head_dim=2))
    with pytest.raises(DomainError, match="3 key-value heads do not divide each other"):
        place(heads, Parallel(tp=2))
    place(heads, Parallel(tp=6))
    with pytest.raises(DomainError, match="cannot be shared by tp=2 devices: it has no product"):
        place(graph(same("softmax")), Parallel(tp=2))
    with pytest.raises(DomainError, match="imbalance of experts is the busiest"):
        place(mixture, Parallel(ep=2, dp=2), imbalance=0.5)


def test_a_block_is_a_layer_where_any_op_has_its_index():
    mixed = Block(name="b", ops=(same("softmax"), replace(same("softmax"), name="l.{}.softmax")), count=3)
    plain = Block(name="p", ops=(same("softmax"),), count=2)
    assert is_layer(mixed)
    assert not is_layer(plain)
    assert layer_count(Graph(name="g", blocks=(mixed, plain))) == 3
    assert layer_count(Graph(name="g", blocks=(plain, plain))) == 4


def test_products_of_whole_activations_are_whole_and_rows_of_experts_go_there_and_back():
    whole = op("matmul", [tokens("a", 8), tokens("b", 8)], [tokens("c", 8)], contracted=8)
    split = op("matmul", [tokens("q", 8), tokens("b", 8)], [tokens("d", 8)], contracted=8)
    placed = place(graph(project("p", "x", "q", 8, 8), whole, split), Parallel(tp=2))[0]
    assert [entry.scale.flops for entry in placed] == [0.5, 1.0, 0.5]
    assert [entry.scale.weights for entry in placed] == [0.5, 1.0, 1.0]
    mixture = experts(experts=4, top_k=2)
    (there, back) = place(graph(mixture), Parallel(ep=2, dp=2), imbalance=1.5)[0][0].messages
    assert (there.tensor, back.tensor) == (mixture.inputs[0], mixture.outputs[0])
    assert (there.function, back.function, there.share, back.share) == ("all_gather", "reduce_scatter", 2, 2)
    assert place(Graph(name="nothing", blocks=()), Parallel()) == []
    assert stage_share(Graph(name="nothing", blocks=()), 3) == 1


def test_messages_take_their_steps_over_the_link():
    wire = replace(WIRE, bandwidth_bytes_per_s=stated(100.0), latency_s=stated(3.0))
    took = {name: message_seconds(name, 4, 400.0, wire) for name in ("all_gather", "reduce_scatter", "send")}
    assert took == pytest.approx({"all_gather": 3 + 3 * 3, "reduce_scatter": 3 + 3 * 3, "send": 4 + 3})
    assert message_seconds("all_to_all", 4, 400.0, wire) == pytest.approx(0.75 + 3)
    assert message_seconds("all_reduce", 4, 400.0, wire) == pytest.approx(6 + 6 * 3)
    assert message_seconds("send", 4, 400.0, wire, share=0.5, overlap=0.25) == pytest.approx(0.75 * 11)
    assert message_seconds("all_gather", 1, 400.0, wire) == 0
    assert message_seconds("send", 2, 400.0, replace(wire, latency_s=None)) == pytest.approx(4)


def test_replicas_send_nothing_so_no_latency_is_missing():
    silent = machine(peer_link=replace(WIRE, latency_s=None))
    assert latency_notes(silent, Parallel(dp=4), Options()) == []
    assert len(latency_notes(silent, Parallel(dp=4, tp=2), Options())) == 1
    assert latency_notes(silent, Parallel(tp=2), Options(link=WIRE)) == []
    assert latency_notes(machine(peer_link=None, host_link=None), Parallel(tp=2), Options()) == []


def test_through_stages_go_micro_batches_one_after_the_other():
    shared = site_of(MACHINE, SMALL, Parallel(pp=3), Options(micro_batches=4))
    assert shared.stretch == pytest.approx((4 + 3 - 1) * 2 / 4), "the longest stage has two of four layers"
    assert shared.busy == pytest.approx(4 / (3 * 3))
    alone = site_of(MACHINE, SMALL, Parallel(), Options())
    assert (alone.stretch, alone.busy, alone.devices) == (1, 1, 1)


# Memory.


def test_the_largest_cache_counts_and_never_slower_than_memory():
    def level(name, size, rate=None):
        return Memory(level=name, capacity_bytes=size and stated(size), bandwidth_bytes_per_s=rate and stated(rate))

    main = level("dram", 16e9, 100e9)
    found = levels_of(machine(memories=(main, level("l1", 1e3, 900e9), level("l2", 2e6, 400e9), level("l0", None))))
    assert (found.main, found.cache_bytes, found.spill_bytes, found.cache_bandwidth) == ("dram", 2e6, 2e6, 400e9)
    slow = levels_of(machine(memories=(main, level("l2", 2e6, 50e9))))
    assert slow.cache_bandwidth == 100e9
    unknown = levels_of(machine(memories=(main, level("l2", 2e6))))
    assert (unknown.cache_bytes, unknown.spill_bytes, unknown.cache_bandwidth) == (2e6, 0.0, None)
    assert levels_of(machine(memories=(main, level("l0", None)))).cache_bytes == 0


def test_what_a_memory_level_takes():
    levels = Levels(main="dram", bandwidth=10.0, cache_bytes=100.0, cache_bandwidth=50.0, spill_bytes=100.0)
    assert levels.floor(200.0, 100.0, 30.0, 231.0) == pytest.approx(23.0), "activations fit, the rest does not"
    assert levels.floor(20.0, 100.0, 30.0, 100.0) == pytest.approx(3.0), "all of it fits: only the cache is passed"
    assert levels.floor(20.0, 101.0, 30.0, 101.0) == pytest.approx(15.1)
    assert levels.ideal(20.0, 100.0, 30.0, 5.0) == pytest.approx(5.5)
    assert levels.ideal(20.0, 101.0, 30.0, 5.0) == pytest.approx(15.6)
    assert levels.ideal(1.0, 100.0, 0.0, 1.0) == pytest.approx(2.04), "every byte passes the cache"
    silent = replace(levels, cache_bandwidth=None, spill_bytes=0.0)
    assert silent.ideal(20.0, 100.0, 30.0, 5.0) == pytest.approx(15.5)
    assert silent.floor(20.0, 100.0, 30.0, 151.0) == pytest.approx(5.0)


def test_an_inventory_names_the_largest_weight_and_sorts_formats_by_bytes():
    kept = (weight("small", 2, dtype="f32"), weight("big", 50, dtype="i8"), tensor("table", 99, role="constant"))
    model = graph(op("linear", [tokens("x", 4)], [tokens("y", 4)], kept))
    bound = at(batch=2, query=3)
    found = inventory(model, bound)
    assert found.layers[0].weights == "i8"
    assert [*found.bytes_by_format] == ["bf16", "i8", "f32"]
    assert found.bytes_by_format == {"bf16": 198, "i8": 50, "f32": 8}
    assert found.parameters == found.layers[0].parameters == 52
    loose = graph(same("softmax"))
    assert inventory(loose, bound).layers[0].weights is None
    sized = op("custom", [], [tensor("y", Symbol("found"), 3)])
    assert inventory(graph(sized), bound).layers[0].shape == ("found", 3)
    assert inventory(graph(op("custom", [], [])), bound).layers[0].shape == ()


def test_what_does_not_cross_a_block_is_looked_at_three_times_and_what_does_each_time():
    def block(name, source, target, count):
        step = op("elementwise", [tensor(source, 1)], [tensor(target, 1)])
        return Block(name=name, ops=(replace(step, name="step.{}"),), count=count)

    def steps(*blocks, **rest):
        model = Graph(name="g", blocks=blocks, **rest)
        return len(live_bytes(model, lambda each: 10 if "{}" in each.name else 1))

    assert steps(block("a", "x", "x", 9)) == 3
    assert steps(block("a", "x", "x", 3)) == 3
    assert steps(block("a", "x", "kept.{}", 9)) == 3, "made in each repetition, and read by nobody"
    assert steps(block("a", "x", "kept.{}", 9), block("b", "kept.{}", "x", 5)) == 14
    assert steps(block("a", "x", "kept.{}", 9), outputs=(tensor("kept.7", 1),)) == 9
    assert steps(block("a", "given.{}", "x", 9), inputs=(tensor("given.7", 1),)) == 9


def test_the_longest_and_the_largest_are_looked_for_up_to_their_limits():
    roomy = machine(memories=(replace(MACHINE.memories[0], capacity_bytes=stated(1e15)),))
    asked = Workload(prompt=4, generate=2, batch=3)
    assert fit(replace(SMALL, context_limit=700), roomy, workload=asked).longest_context == 700
    assert fit(replace(SMALL, context_limit=512), roomy, workload=asked).longest_context == 512
    assert fit(SMALL, roomy, workload=asked).largest_batch == 1 << 20
    apart = fit(SMALL, roomy, workload=replace(asked, batch=9, parallel=Parallel(dp=3)))
    assert (apart.devices, apart.devices_at_least) == (3, 3)
    tiny = machine(memories=(replace(MACHINE.memories[0], capacity_bytes=stated(10.0)),))
    none = fit(SMALL, tiny, workload=asked)
    assert (none.longest_context, none.largest_batch, none.fits) == (0, 0, False)
    assert none.free_bytes == 10 - none.total_bytes
    exact = machine(memories=(replace(MACHINE.memories[0], capacity_bytes=stated(float(none.total_bytes))),))
    assert fit(SMALL, exact, workload=asked).fits
    assert fit(SMALL, exact, workload=asked).largest_batch == 3
    held = none.weights_bytes + none.kv_bytes + none.activations_bytes
    assert none.devices_at_least == -(-held // 10)


def test_a_reserve_that_leaves_nothing_fits_on_no_number_of_devices():
    greedy = replace(IDEAL, overheads={"gpu": Overheads(reserve_bytes=stated(16e9))})
    full = fit(SMALL, MACHINE, workload=Workload(prompt=4), runtime=greedy)
    assert (full.fits, full.largest_batch, full.devices_at_least) == (False, 0, None)
    some = replace(IDEAL, overheads={"gpu": Overheads(reserve_bytes=stated(1e9))})
    kept, plain = (fit(SMALL, MACHINE, workload=Workload(prompt=4), runtime=effects) for effects in (some, IDEAL))
    assert (kept.reserve_bytes, plain.reserve_bytes) == (10**9, None)
    assert kept.total_bytes == plain.total_bytes + 10**9


def test_cross_attention_keeps_all_that_it_crosses_to_whatever_its_window():
    crossed = replace(cross(cached=True), attributes={**cross(cached=True).attributes, "window": 4, "context": 90})
    model = graph(crossed, count=2)
    use = fit(model, MACHINE, workload=Workload(context=10, batch=1)).kv_bytes
    assert use == 2 * 90 * 2 * 512 * 2


def test_states_count_in_the_peak_and_in_the_devices_that_are_needed():
    scan = op("ssm_scan", [tokens("x", 64), state("h.{}", 64, 16)], [tokens("y", 64)], inner=64, state=16)
    need = footprint(graph(scan, count=3), at(batch=2))
    assert need.state_bytes == 3 * 2 * 64 * 16 * 2
    assert need.peak_bytes == need.state_bytes + need.activations_bytes
    hybrid = replace(SMALL, blocks=(*SMALL.blocks, Block(name="scans", ops=(scan,), count=3)))
    small = machine(memories=(replace(MACHINE.memories[0], capacity_bytes=stated(1e4)),))
    for plan in (Parallel(), Parallel(tp=2, pp=2)):
        found = fit(hybrid, small, workload=Workload(prompt=4, generate=2, parallel=plan))
        held = (found.weights_bytes + found.kv_bytes + found.state_bytes) * plan.tp * plan.pp
        assert found.state_bytes > 1e3
        assert found.devices_at_least == -(-(held + found.activations_bytes + found.workspace_bytes) // 10**4)


def test_what_only_the_data_sizes_is_held_by_nobody_and_loops_are_counted_the_long_way():
    unknown = attend("a", heads=2, kv_heads=2, head_dim=4, context=Symbol("found"))
    assert footprint(graph(unknown), at()).kv_bytes == 0
    plain, loop = graph(same("softmax")), graph(op("control", bodies=((same("softmax"),),), trips=3))
    for model, direct in ((plain, True), (loop, False), (graph(unknown), False)):
        passing = residency_of(model, place(model, Parallel()), Terms(precision=BF16, effects=IDEAL)).passing
        assert (passing.first is not None) == direct
        assert passing.use({"batch": 2, "query": 1, "context": 3, "logits": 1}).kv_bytes == 0
    formed = [residency_of(graph(mla(absorbed=form)), place(graph(mla(absorbed=form)), Parallel()),
                           Terms(precision=BF16, effects=IDEAL)).passing for form in (True, False)]  # fmt: skip
    assert [len(passing.inner) for passing in formed] == [0, 1]


def test_a_cache_that_a_product_reads_is_kept_by_name():
    past = tensor("past.{}", 3, 8, role="kv")
    model = graph(op("matmul", [tokens("q", 8), past], [tokens("y", 3)], contracted=8), count=2)
    passing = residency_of(model, place(model, Parallel()), Terms(precision=BF16, effects=IDEAL)).passing
    assert passing.first is None
    assert passing.use({"batch": 1, "query": 1, "context": 0, "logits": 1}).kv_bytes == 2 * 24 * 2


def test_the_smaller_and_the_larger_go_by_element_whichever_side_has_several():
    many = np.array([1, 5])
    for one, other in ((many, 3), (3, many)):
        assert larger(one, other).tolist() == [3, 5]
        assert smaller(one, other).tolist() == [1, 3]
    assert (larger(10**30, 1), smaller(10**30, 10**31)) == (10**30, 10**30), "ints stay exact"
    assert [ceil_log2(count) for count in (1, 2, 3, 8, 9)] == [0, 1, 2, 3, 4]
    assert ceil_log2(np.array([1, 3, 8])).tolist() == [0, 2, 3]


def test_a_cache_is_kept_in_the_format_of_the_keys_unless_another_is_named():
    keys = replace(tokens("k", 8), dtype="i8")
    cached = attend("a", heads=2, kv_heads=2, head_dim=4)
    cached = replace(cached, inputs=(cached.inputs[0], keys, cached.inputs[2]))
    assert cached_bytes_per_token(cached, at()) == 16
    assert cached_bytes_per_token(cached, at(precision=replace(BF16, kv="f32"))) == 64
    named = replace(cached, inputs=(*cached.inputs, tensor("past", 3, role="kv", dtype="f16")))
    assert cached_bytes_per_token(named, at(precision=replace(BF16, kv="f32"))) == 32

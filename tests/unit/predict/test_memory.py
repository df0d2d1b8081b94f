import numpy as np
import pytest

from inferometer.core import Binding, Block, Graph, Op, Precision, Tensor
from inferometer.known.formulas.llm import kv_bytes_per_token
from inferometer.predict import footprint
from inferometer.predict.memory.footprint import live_bytes
from unit.predict.decoders import LLAMA_3_1_8B, at, attend, decoder, tensor, tokens, weight
from unit.predict.examples import cross, experts, mla, op, state

SMALL = {"hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocab": 100}


def graph(*ops, count=1, **rest):
    return Graph(name="graph", blocks=(Block(name="all", ops=ops, count=count),), **rest)


def numbers(name, count):
    return tensor(name, count, dtype="u8")


def step(name, inputs, outputs, kind="elementwise"):
    return Op(name=name, kind=kind, inputs=tuple(inputs), outputs=tuple(outputs))


def alive(*ops, **rest):
    return [size for _, size in live_bytes(graph(*ops, **rest), lambda tensor: tensor.nbytes)]


A, B, C, D = numbers("a", 10), numbers("b", 200), numbers("c", 3000), numbers("d", 40_000)


def test_llama_3_1_8b_keeps_two_bytes_a_parameter():
    assert footprint(LLAMA_3_1_8B, at()).weights_bytes == 2 * 8_030_261_248


def test_llama_3_1_8b_keeps_131072_bytes_a_token_as_the_formula_says():
    found = footprint(LLAMA_3_1_8B, at(batch=4, query=100, context=900))
    assert found.kv_bytes_per_token == 131_072
    assert found.kv_bytes_per_token == kv_bytes_per_token(layers=32, kv_heads=8, head_dim=128, element_bytes=2)
    assert found.kv_bytes == 4 * 1000 * 131_072


def test_tied_embeddings_are_kept_once():
    untied, tied = (footprint(decoder(layers=2, tied=t, **SMALL), at()).weights_bytes for t in (False, True))
    assert untied - tied == 100 * 64 * 2


def test_a_windowed_layer_keeps_no_more_than_its_window():
    model = decoder(layers=1, windows=((32, 5),), **SMALL)
    token = 2 * 2 * 16 * 2  # key and value, 2 heads of 16, two bytes each: of one layer
    assert footprint(model, at(context=10)).kv_bytes == 6 * 11 * token
    assert footprint(model, at(context=999)).kv_bytes == (5 * 32 + 1000) * token
    assert footprint(model, at(context=999)).kv_bytes_per_token == 6 * token


def test_a_quantised_cache_is_smaller():
    kv = footprint(LLAMA_3_1_8B, at(context=99, precision=Precision(kv="q8_0"))).kv_bytes
    assert kv == 100 * 131_072 // 2 // 32 * 34


def test_deepseek_v3_keeps_one_latent_a_token_and_layer():
    model = graph(mla(absorbed=True), count=61)
    assert footprint(model, at()).kv_bytes_per_token == 61 * 576 * 2 == 70_272


def test_cross_attention_keeps_the_encoders_length_and_does_not_grow():
    found = footprint(graph(cross(cached=True), count=6), at(query=9, encoder=1500))
    assert found.kv_bytes == 6 * 1500 * 2 * 512 * 2
    assert found.kv_bytes_per_token == 0


def test_cache_tensors_that_no_attention_has_are_counted_by_name():
    past = tensor("past.{}", 2, 10, 64, role="kv")
    model = graph(op("copy", [past, tensor("new", 2, 1, 64)], [tensor("y", 2, 11, 64)]), count=3)
    assert footprint(model, at()).kv_bytes == 3 * 2 * 10 * 64 * 2


def test_states_are_kept_for_every_layer_and_sequence():
    scan = op("ssm_scan", [tokens("x", 64), state("h.{}", 64, 16)], [tokens("y", 64)], inner=64, state=16)
    found = footprint(graph(scan, count=24), at(batch=3, query=50))
    assert found.state_bytes == 24 * 3 * 64 * 16 * 2
    assert found.kv_bytes == 0


def test_a_tensor_lives_from_its_producer_to_its_last_reader():
    ops = (step("one", [A], [B]), step("two", [B], [C]), step("three", [C], [D]))
    assert alive(*ops) == [210, 3200, 43_000]


def test_a_residual_is_held_until_it_is_added():
    ops = (step("one", [A], [B]), step("two", [B], [C]), step("three", [A, C], [D]))
    assert alive(*ops) == [210, 3210, 43_010]


def test_a_view_takes_nothing_and_keeps_its_input_alive():
    ops = (step("one", [A], [B]), step("reshape", [B], [numbers("b2", 200)], "view"), step("two", [A], [C]),
           step("three", [numbers("b2", 200)], [D]))  # fmt: skip
    assert alive(*ops) == [210, 210, 3210, 40_200]


def test_inputs_live_from_the_start_and_outputs_to_the_end():
    ops = (step("one", [A], [B]), step("two", [C], [D]))
    assert alive(*ops) == [210, 43_000]
    assert alive(*ops, inputs=(A, C), outputs=(B,)) == [3210, 43_200]


def test_an_output_nobody_reads_is_gone_after_its_op():
    assert alive(step("one", [A], [D]), step("two", [A], [B])) == [40_010, 210]


def test_a_name_that_is_written_again_is_a_new_tensor():
    ops = (step("one", [A], [B]), step("two", [A], [B]), step("three", [B], [C]))
    assert alive(*ops) == [210, 210, 3200]


def test_what_a_repetition_hands_to_the_next_lives_across():
    hidden, skip = numbers("hidden", 10), numbers("skip", 200)
    layer = (step("first.{}", [hidden], [C]), step("second.{}", [C], [hidden]))
    assert alive(*layer, count=2) == [3010, 3010, 3010, 3010]
    held = Graph(
        name="held",
        blocks=(
            Block(name="in", ops=(step("start", [], [hidden, skip]),)),
            Block(name="layers", ops=layer, count=2),
            Block(name="out", ops=(step("end", [hidden, skip], [A]),)),
        ),
    )
    sizes = live_bytes(held, lambda tensor: tensor.nbytes)
    assert [size for _, size in sizes] == [210, 3210, 3210, 3210, 3210, 220]
    assert [name for name, _ in sizes] == ["start", "first.0", "second.0", "first.1", "second.1", "end"]


def test_skips_of_a_u_net_pile_up_until_they_are_used():
    hidden, skip = numbers("hidden", 10), numbers("skip.{}", 200)
    down = Block(name="half", ops=(step("down.{}", [hidden], [hidden, skip]),), count=5)
    up = Block(name="half", ops=(step("up.{}", [hidden, skip], [hidden]),), count=5)
    sizes = live_bytes(Graph(name="u", blocks=(down, up)), lambda tensor: tensor.nbytes)
    assert [size for _, size in sizes] == [220, 420, 620, 820, 1020, 1020, 820, 620, 420, 220]


def test_outputs_of_every_layer_pile_up_until_the_end():
    hidden, kept = numbers("hidden", 10), numbers("kept.{}", 200)
    layers = Block(name="layers", ops=(step("layer.{}", [hidden], [hidden, kept]),), count=9)
    outputs = tuple(numbers(f"kept.{index}", 200) for index in range(9))
    sizes = live_bytes(Graph(name="g", blocks=(layers,), outputs=outputs), lambda tensor: tensor.nbytes)
    assert [size for _, size in sizes] == [20 + 200 * n for n in range(1, 10)]


def test_layers_that_are_alike_are_looked_at_three_times():
    few, many = (live_bytes(decoder(layers=n, **SMALL), at().nbytes) for n in (3, 500))
    assert [size for _, size in few] == [size for _, size in many]
    assert many[-4][0] == "layers.499.ffn_add"


def test_a_prefill_peaks_where_gate_and_up_stand_beside_their_product():
    found = footprint(LLAMA_3_1_8B, at(query=1000))
    assert found.peak_at == "layers.0.act"
    assert found.activations_bytes == 1000 * (4096 + 3 * 14336) * 2


def test_the_parts_add_up_to_the_peak():
    found = footprint(LLAMA_3_1_8B, at(query=1000, context=24))
    parts = (found.weights_bytes, found.kv_bytes, found.state_bytes, found.activations_bytes, found.workspace_bytes)
    assert found.peak_bytes == sum(parts)
    assert all(type(part) is int for part in parts)


def test_the_workspace_holds_what_lives_inside_the_largest_op():
    found = footprint(graph(experts(), mla(absorbed=False)), at(query=7))
    assert found.workspace_bytes == 7 * 6 * (3 * 48 + 32) * 2
    cached = footprint(graph(experts(), mla(absorbed=False)), at(query=7, context=100))
    assert cached.workspace_bytes == 100 * 128 * 256 * 2


def test_a_loops_body_works_in_the_workspace_and_reads_from_outside():
    body = (step("inner", [B, A], [C]), step("after", [C], [numbers("e", 5)]))
    ops = (step("one", [A], [B]), Op(name="loop", kind="control", inputs=(A,), outputs=(D,),
                                     attributes={"bodies": (body,), "trips": 4}))  # fmt: skip
    assert footprint(graph(*ops), at()).workspace_bytes == 3005
    assert alive(*ops) == [210, 40_210]


def test_weights_inside_a_loop_are_kept_once():
    inner = op("linear", [tokens("x", 8)], [tokens("y", 8)], [weight("w", 8, 8)])
    branches = op("control", bodies=((inner,), (inner,)))
    assert footprint(graph(branches), at()).weights_bytes == 8 * 8 * 2


@pytest.mark.parametrize("size", ["batch", "query", "context"])
def test_many_workloads_at_once_are_each_workload_alone(size):
    values = (1, 7, 4096)
    together = footprint(LLAMA_3_1_8B, at(**{size: np.array(values)}))
    for index, value in enumerate(values):
        alone = footprint(LLAMA_3_1_8B, at(**{size: value}))
        for name in ("kv_bytes", "activations_bytes", "peak_bytes", "peak_at"):
            assert np.broadcast_to(getattr(together, name), (3,))[index] == getattr(alone, name)


def test_an_empty_graph_needs_nothing():
    assert footprint(graph(), at()).peak_bytes == 0
    assert footprint(graph(), at()).peak_at is None


def test_an_attention_without_a_cache_keeps_none():
    assert footprint(graph(attend("a", heads=4, kv_heads=4, head_dim=8, cached=False)), at()).kv_bytes == 0


def test_a_graph_without_ops_needs_nothing_but_what_it_holds():
    empty = Graph(name="empty", blocks=(), inputs=(Tensor(name="x", shape=(3,), dtype="f32"),))
    assert footprint(empty, Binding()).peak_bytes == 0

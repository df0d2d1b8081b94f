"""Attention in its many spellings."""

import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol
from inferometer.predict import graph_work
from unit.formats.onnx.onnx_bytes import FLOAT, INT32, INT64, UINT8, node, ops, read, scalar, tensor, value

B, Q, C = Symbol("batch"), Symbol("query"), Symbol("context")
MS = {"domain": "com.microsoft"}
HEADS, SIZE = 4, 16
WIDTH = HEADS * SIZE


def hidden(name, width=WIDTH, length="query"):
    return value(name, ("batch", length, width))


def cache(name, heads=HEADS, length="past_sequence_length"):
    return value(name, ("batch", heads, length, SIZE))


def attended(nodes, inputs, stored=(), **more):
    graph = read(
        [nodes] if isinstance(nodes, bytes) else nodes, inputs, ["y"], stored, domains=["com.microsoft"], **more
    )
    return graph, next(op for op in ops(graph) if op.kind == "attention")


def sizes(op):
    return tuple(op[name] for name in ("heads", "kv_heads", "head_dim", "value_dim", "query", "context"))


def test_onnx_own_attention_over_four_dimensions():
    inputs = [value(name, ("batch", heads, "query", SIZE)) for name, heads in (("q", 8), ("k", 2), ("v", 2))]
    graph, op = attended(node("Attention", "q k v", "y", is_causal=1), inputs, version=23)
    assert sizes(op) == (8, 2, SIZE, SIZE, Q, 0)
    assert (op["causal"], op["cached"], op["cross"]) == (True, False, False)
    pairs = 5 * 6 // 2
    assert graph_work(graph, Binding(sizes={"batch": 3, "query": 5})).flops["f32"] == 3 * 8 * (4 * SIZE + 5) * pairs


def test_onnx_own_attention_over_three_dimensions_with_a_cache():
    inputs = [hidden("q"), hidden("k"), hidden("v"), cache("pk"), cache("pv")]
    attention = node("Attention", "q k v _ pk pv", "y nk nv", q_num_heads=HEADS, kv_num_heads=HEADS)
    graph, op = attended(attention, inputs, version=23)
    assert sizes(op) == (HEADS, HEADS, SIZE, SIZE, Q, C)
    assert op["cached"]
    assert [tensor.role for tensor in op.inputs] == ["activation"] * 3 + ["kv"] * 2
    assert op.outputs[1].shape == (B, HEADS, op.outputs[1].shape[2], SIZE)
    assert str(op.outputs[1].shape[2]) == "(context + query)"
    assert [entry.role for entry in graph.inputs[3:]] == ["kv", "kv"]


def test_keys_of_another_length_are_an_encoders():
    _, op = attended(
        node("MultiHeadAttention", "q k v", "y", num_heads=HEADS, **MS),
        [hidden("q"), hidden("k", length="encoder_sequence_length"), hidden("v", length="encoder_sequence_length")],
    )
    assert (op["cross"], op["context"], op["query"]) == (True, Symbol("encoder"), Q)


def test_the_projection_inside_an_attention_is_a_linear_of_its_own():
    stored = [tensor("w", (WIDTH, 3 * WIDTH)), tensor("b", (3 * WIDTH,))]
    graph, op = attended(
        node("Attention", "x w b _ past", "y present", num_heads=HEADS, unidirectional=1, name="attn", **MS),
        [hidden("x"), value("past", (2, "batch", HEADS, "past_sequence_length", SIZE))], stored,
    )  # fmt: skip
    linear = ops(graph)[0]
    assert (linear.kind, linear.name, linear["contracted"]) == ("linear", "attn/projection", WIDTH)
    assert linear.outputs[0].shape == (B, Q, 3 * WIDTH)
    assert graph.parameters == 3 * WIDTH * (WIDTH + 1)
    assert sizes(op) == (HEADS, HEADS, SIZE, SIZE, Q, C)
    assert op.outputs[1].role == "kv"


def test_a_quantised_attention():
    stored = [tensor("w", (WIDTH, 3 * WIDTH), UINT8), tensor("b", (3 * WIDTH,)), scalar("xs", 0.1, FLOAT),
              scalar("ws", 0.1, FLOAT)]  # fmt: skip
    graph, _ = attended(
        node("QAttention", "x w b xs ws", "y", num_heads=HEADS, **MS),
        [value("x", ("batch", "query", WIDTH), UINT8)],
        stored,
    )
    linear, op = ops(graph)
    assert (linear["compute"], op.outputs[0].dtype, linear.weights[0].stored_bytes) == ("i8", "f32", 3 * WIDTH * WIDTH)


def group_query(**more):
    inputs = [
        hidden("q", 8 * SIZE), hidden("k", 2 * SIZE), hidden("v", 2 * SIZE), cache("pk", 2), cache("pv", 2),
        value("lengths", ("batch",), INT32), value("total", (), INT32),
    ]  # fmt: skip
    attention = node(
        "GroupQueryAttention", "q k v pk pv lengths total cos sin", "y nk nv", num_heads=8, kv_num_heads=2, name="gqa",
        **MS, **more,
    )  # fmt: skip
    stored = [tensor("cos", (4096, SIZE // 2)), tensor("sin", (4096, SIZE // 2))]
    return attended(attention, inputs, stored)


def test_grouped_queries_with_a_window():
    _, op = group_query(local_window_size=128, softcap=30.0)
    assert sizes(op) == (8, 2, SIZE, SIZE, Q, C)
    assert (op["window"], op["soft_cap"], op["causal"], op["cached"]) == (128, True, True, True)


def test_a_rotation_reads_the_rows_of_its_tables_that_it_needs():
    graph, _ = group_query(do_rotary=1)
    gather, rotary, attention = ops(graph)
    assert [op.kind for op in (gather, rotary, attention)] == ["gather", "rotary", "attention"]
    assert [weight.name for weight in gather.weights] == ["cos", "sin"]
    assert not attention.weights
    work = graph_work(graph, Binding(sizes={"batch": 1, "query": 1, "context": 100}))
    assert work.weights == 2 * (SIZE // 2) * 4


def test_a_cache_of_a_fixed_length_is_taken_as_full():
    inputs = [
        hidden("q", 8 * SIZE),
        hidden("k", 2 * SIZE),
        hidden("v", 2 * SIZE),
        cache("pk", 2, 512),
        cache("pv", 2, 512),
    ]
    attention = node("GroupQueryAttention", "q k v pk pv", "y nk nv", num_heads=8, kv_num_heads=2, **MS)
    graph, op = attended(attention, inputs)
    assert op["context"] == 512
    assert "full" in graph.metadata["assumptions"]["first"]["y"]
    assert op.outputs[1].shape[2] == 512


def test_packed_queries_hold_keys_and_values():
    _, op = attended(node("GroupQueryAttention", "x", "y", num_heads=8, kv_num_heads=2, **MS), [hidden("x", 12 * SIZE)])
    assert sizes(op)[:4] == (8, 2, SIZE, SIZE)
    _, op = attended(
        node("MultiHeadAttention", "x", "y", num_heads=HEADS, **MS), [value("x", ("batch", "query", HEADS, 3, SIZE))]
    )
    assert sizes(op)[:4] == (HEADS, HEADS, SIZE, SIZE)


def test_keys_laid_out_as_a_cache_were_computed_once():
    inputs = [hidden("q"), cache("k", length="encoder_length"), cache("v", length="encoder_length")]
    _, op = attended(node("MultiHeadAttention", "q k v", "y", num_heads=HEADS, **MS), inputs)
    assert (op["cross"], op["cached"], op["context"]) == (True, True, Symbol("encoder"))


def test_rotary_embeddings_of_both_domains():
    tables = [tensor("cos", (64, SIZE // 2)), tensor("sin", (64, SIZE // 2))]
    positions = value("positions", ("batch", "query"), INT64)
    ours = node("RotaryEmbedding", "x cos sin positions", "y", num_heads=HEADS)
    theirs = node("RotaryEmbedding", "x positions cos sin", "y", num_heads=HEADS, **MS)
    for rotary in (ours, theirs):
        graph = read([rotary], [hidden("x"), positions], ["y"], tables, version=23, domains=["com.microsoft"])
        assert [op.kind for op in ops(graph)] == ["gather", "rotary"]
        assert ops(graph)[0].inputs[0].role == "index"


def test_a_cache_is_known_by_its_name_where_attention_is_written_out():
    past = cache("past_key_values.0.key")
    nodes = [node("Concat", "past_key_values.0.key k", "present.0.key", axis=2), node("MatMul", "q present.0.key", "y")]
    inputs = [past, value("k", ("batch", HEADS, "query", SIZE)), value("q", ("batch", HEADS, SIZE, "total"))]
    graph = read(nodes, inputs, ["y", "present.0.key"])
    assert [entry.role for entry in graph.inputs] == ["kv", "activation", "activation"]
    assert [entry.role for entry in graph.outputs] == ["activation", "kv"]
    work = graph_work(graph, Binding(sizes={"batch": 1, "query": 1, "context": 9, "total": 10}))
    assert work.kv_writes == HEADS * 10 * SIZE * 4
    assert work.kv_reads == HEADS * (9 + 10) * SIZE * 4


def test_a_skip_norm_adds_and_normalises():
    stored = [tensor("g", (WIDTH,)), tensor("b", (WIDTH,))]
    nodes = [node("SkipLayerNormalization", "x s g b", "y", **MS)]
    graph = read(nodes, [hidden("x"), hidden("s")], ["y"], stored, domains=["com.microsoft"])
    (op,) = ops(graph)
    assert (op.kind, op["norm"], len(op.inputs), graph.parameters) == ("norm", "layer", 2, 2 * WIDTH)
    nodes = [node("SkipSimplifiedLayerNormalization", "x s g", "y _m _v sum", **MS)]
    graph = read(nodes, [hidden("x"), hidden("s")], ["y"], stored[:1], domains=["com.microsoft"])
    assert ops(graph)[0]["norm"] == "rms"


def test_an_embedding_layer_is_lookups_and_a_norm():
    stored = [tensor("words", (100, WIDTH)), tensor("places", (32, WIDTH)), tensor("kinds", (2, WIDTH)),
              tensor("g", (WIDTH,)), tensor("b", (WIDTH,))]  # fmt: skip
    ids = [value(name, ("batch", "query"), INT32) for name in ("ids", "segments")]
    nodes = [node("EmbedLayerNormalization", "ids segments words places kinds g b", "y mask", name="emb", **MS)]
    graph = read(nodes, ids, ["y"], stored, domains=["com.microsoft"])
    assert [(op.name, op.kind) for op in ops(graph)] == [
        ("emb/words", "embedding"), ("emb/positions", "embedding"), ("emb/segments", "embedding"), ("emb/norm", "norm"),
    ]  # fmt: skip
    assert graph.parameters == (100 + 32 + 2 + 2) * WIDTH


def test_a_mixture_of_experts():
    stored = [tensor("up", (4, 32, WIDTH)), tensor("down", (4, WIDTH, 32)), tensor("gate", (4, 32, WIDTH))]
    moe = node("MoE", "x r up _ down _ gate", "y", k=2, activation_type="silu", **MS)
    graph = read(
        [moe], [value("x", ("tokens", WIDTH)), value("r", ("tokens", 4))], ["y"], stored, domains=["com.microsoft"]
    )
    (op,) = ops(graph)
    assert (op["experts"], op["top_k"], op["intermediate"], op["gated"]) == (4, 2, 32, True)
    assert graph.parameters == 3 * 4 * 32 * WIDTH


def test_heads_of_no_fixed_size_are_uncovered():
    graph, op = None, None
    inputs = [value(name, ("batch", "heads", "query", "size")) for name in ("q", "k", "v")]
    graph = read([node("Attention", "q k v", "y")], inputs, ["y"], version=23)
    (op,) = ops(graph)
    assert (op.kind, op["reason"]) == ("custom", "the sizes of its heads are not known")


@pytest.mark.parametrize("width", [0, 3])
def test_heads_of_no_size_are_not_counted(width):
    """Three numbers shared by four heads leave none for each."""
    attention = node("MultiHeadAttention", "q k v", "y", num_heads=HEADS, **MS)
    op = ops(read([attention], [hidden(name, width) for name in "qkv"], ["y"], domains=["com.microsoft"]))[0]
    assert op.kind == "custom"


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_is_a_scan_with_a_state(rule):
    inputs = [hidden("q"), hidden("k"), hidden("v"), value("s", ("batch", HEADS, SIZE, SIZE))]
    nodes = [node("LinearAttention", "q k v s", "y n", q_num_heads=HEADS, kv_num_heads=HEADS, update_rule=rule)]
    graph = read(nodes, inputs, ["y", "n"], version=27)
    (op,) = ops(graph)
    assert (op.kind, op["inner"], op["state"], op["heads"]) == ("ssm_scan", WIDTH, SIZE, HEADS)
    assert (op.inputs[3].role, op.outputs[1].role) == ("state", "state")

"""Quantised graphs: stored as integers, computed as integers, counted as what they stand for."""

from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol
from inferometer.predict import graph_work
from unit.formats.onnx.onnx_bytes import (
    FLOAT,
    INT4,
    INT8,
    INT32,
    INT64,
    UINT8,
    node,
    only,
    ops,
    read,
    scalar,
    tensor,
    value,
)

MS = {"domain": "com.microsoft"}
SCALES = [scalar("xs", 0.1, FLOAT), scalar("xz", 0, UINT8), scalar("ws", 0.1, FLOAT), scalar("wz", 0, INT8)]


def described(op):
    return [(w.name, w.shape, w.dtype, w.role, w.stored_bytes) for w in op.weights]


def test_the_weight_of_a_qdq_convolution_is_the_stored_integers():
    nodes = [
        node("QuantizeLinear", "x xs xz", "xq"), node("DequantizeLinear", "xq xs xz", "xd"),
        node("DequantizeLinear", "w ws wz", "wd"), node("Conv", "xd wd", "h"), node("QuantizeLinear", "h xs xz", "y"),
    ]  # fmt: skip
    graph = read(nodes, [value("x", (1, 3, 8, 8))], ["y"], [tensor("w", (4, 3, 3, 3), INT8), *SCALES])
    kinds = [op.kind for op in ops(graph)]
    assert kinds == ["quantize", "dequantize", "convolution", "quantize"]
    conv = ops(graph)[2]
    assert described(conv) == [
        ("w", (4, 3, 3, 3), "i8", "weight", 108), ("ws", (), "f32", "constant", 4), ("wz", (), "i8", "constant", 1)
    ]  # fmt: skip
    assert conv["compute"] == "i8", "both sides come from 8 bits: engines multiply them as such"
    assert graph.parameters == 108
    assert graph.metadata["quantisation"] == ["QDQ"]


def test_four_bits_take_half_a_byte():
    nodes = [node("DequantizeLinear", "w s", "wd", axis=0, block_size=32), node("MatMul", "x wd", "y")]
    stored = [tensor("w", (64, 16), INT4), tensor("s", (2, 16))]
    graph = read(nodes, [value("x", ("batch", 64))], ["y"], stored, version=21)
    (weight, scale) = only(graph).weights
    assert (weight.dtype, weight.stored_bytes, scale.role) == ("i4", 512, "constant")
    assert "compute" not in only(graph).attributes, "the activations are floats"
    assert graph.parameters == 1024


def test_a_qoperator_convolution_keeps_its_places():
    inputs = "x xs xz w ws wz ys yz b"
    stored = [tensor("w", (4, 3, 1, 1), INT8), *SCALES, scalar("ys", 0.1, FLOAT), scalar("yz", 0, UINT8),
              tensor("b", (4,), INT32)]  # fmt: skip
    graph = read([node("QLinearConv", inputs, "y")], [value("x", (1, 3, 8, 8), UINT8)], ["y"], stored)
    op = only(graph)
    assert [(w.name, w.role) for w in op.weights[:3]] == [("w", "weight"), ("b", "weight"), ("xs", "constant")]
    assert (op["compute"], op.outputs[0].dtype, graph.parameters) == ("i8", "u8", 16)
    assert graph_work(graph, Binding()).flops == {"i8": 8 * 8 * 4 * (2 * 3 + 1)}


def test_integer_products():
    stored = [tensor("w", (8, 4), INT8), *SCALES]
    graph = read([node("MatMulInteger", "x w xz wz", "y")], [value("x", ("batch", 8), UINT8)], ["y"], stored)
    assert (only(graph).kind, only(graph)["compute"], only(graph).outputs[0].dtype) == ("linear", "i8", "i32")
    graph = read(
        [node("QLinearMatMul", "x xs xz w ws wz xs xz", "y")], [value("x", ("batch", 8), UINT8)], ["y"], stored
    )
    assert (only(graph).kind, only(graph)["compute"], only(graph).outputs[0].dtype) == ("linear", "i8", "u8")
    graph = read([node("ConvInteger", "x k", "y")], [value("x", (1, 3, 4, 4), UINT8)], ["y"],
                 [tensor("k", (2, 3, 1, 1), UINT8)])  # fmt: skip
    assert (only(graph).kind, only(graph).outputs[0].dtype, only(graph).get("gathered")) == ("convolution", "i32", True)


def test_a_product_in_n_bits_has_exact_bytes_and_all_its_parameters():
    """[N, K] = [48, 64] in 4 bits and blocks of 32: 48 · 2 blocks of 16 bytes."""
    stored = [tensor("b", (48, 2, 16), UINT8), tensor("s", (96,)), tensor("z", (48,), UINT8)]
    graph = read(
        [node("MatMulNBits", "x b s z", "y", N=48, K=64, bits=4, block_size=32, **MS)],
        [value("x", ("batch", "query", 64))], ["y"], stored, domains=["com.microsoft"],
    )  # fmt: skip
    op = only(graph)
    assert op.outputs[0].shape == (Symbol("batch"), Symbol("query"), 48)
    assert described(op) == [
        ("b", (48, 64), "i4", "weight", 1536), ("s", (96,), "f32", "constant", 384), ("z", (48,), "u8", "constant", 48),
    ]  # fmt: skip
    assert (graph.parameters, op["contracted"]) == (48 * 64, 64)
    assert graph.metadata["quantisation"] == ["MatMulNBits"]


def test_a_packed_table_is_an_embedding_of_all_its_parameters():
    stored = [tensor("t", (10, 32), UINT8), tensor("s", (10, 2))]
    graph = read(
        [node("GatherBlockQuantized", "t ids s", "y", bits=4, block_size=32, **MS)],
        [value("ids", ("batch", "query"), INT64)], ["y"], stored, domains=["com.microsoft"],
    )  # fmt: skip
    assert (only(graph).kind, graph.parameters) == ("embedding", 640)
    assert only(graph).outputs[0].shape == (Symbol("batch"), Symbol("query"), 64)


def test_quantised_experts():
    stored = [tensor("up", (4, 128, 32), UINT8), tensor("us", (4, 128)), tensor("down", (4, 64, 32), UINT8),
              tensor("ds", (4, 64))]  # fmt: skip
    inputs = [value("x", ("tokens", 64)), value("r", ("tokens", 4))]
    moe = node("QMoE", "x r up us _ down ds", "y", k=2, activation_type="swiglu", expert_weight_bits=4, **MS)
    graph = read([moe], inputs, ["y"], stored, domains=["com.microsoft"])
    op = only(graph)
    assert (op.kind, op["experts"], op["top_k"], op["hidden"], op["intermediate"], op["gated"]) == (
        "moe_experts", 4, 2, 64, 64, True,
    )  # fmt: skip
    assert graph.parameters == 4 * 64 * 64 * 3

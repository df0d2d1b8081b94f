"""The operator tables as data."""

from fakes.every import every
from inferometer.core.graph import KINDS
from inferometer.formats.onnx.tables import domain_rows, table
from inferometer.predict.work.rules import RULES
from unit.formats.onnx.onnx_bytes import node, only, read, value

CONTRIB = (
    "FusedMatMul FusedConv FusedGemm Gelu FastGelu BiasGelu QuickGelu LayerNormalization "
    "SkipLayerNormalization SimplifiedLayerNormalization SkipSimplifiedLayerNormalization "
    "EmbedLayerNormalization Attention MultiHeadAttention GroupQueryAttention RotaryEmbedding MatMulNBits "
    "QLinearAdd QLinearMul QLinearConcat QLinearGlobalAveragePool QLinearSigmoid QLinearLeakyRelu QGemm "
    "DynamicQuantizeLSTM DynamicQuantizeMatMul MatMulInteger16 MatMulIntegerToFloat NhwcMaxPool QAttention MoE "
    "QMoE FusedMatMulActivation GridSample Inverse Trilu"
).split()


def test_every_row_has_a_kind_of_the_vocabulary():
    assert {row.kind for row in table().values()} <= KINDS


def test_every_kind_has_a_work_rule_but_custom():
    assert {row.kind for row in table().values()} - {"custom"} <= set(RULES)


def test_a_row_without_a_rule_says_why():
    for (domain, name), row in table().items():
        if row.kind == "custom":
            assert len(row.attributes["reason"]) > 10, (domain, name)


def test_places_are_told_once():
    for name, row in table().items():
        assert not set(row.weights) & set(row.settings), name
        assert not set(row.indices) & set(row.settings), name


@every(CONTRIB)
def test_the_common_operators_of_onnx_runtime_have_a_rule(name):
    assert domain_rows("com.microsoft")[name].kind != "custom"


def test_of_the_standard_domain_only_text_and_image_files_have_none():
    uncovered = {name for name, row in domain_rows("").items() if row.kind == "custom"}
    assert uncovered == {
        "ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer",
    }  # fmt: skip


def test_an_operator_nobody_knows_is_reported():
    graph = read([node("Warp", "x", "y", domain="my.ops")], [value("x", (2, 3))], ["y"], domains=["my.ops"])
    assert (only(graph).kind, only(graph).source_type) == ("custom", "my.ops.Warp")
    assert graph.metadata["coverage"]["uncovered"] == {
        "my.ops.Warp": {"count": 1, "reason": "the operator is not known"}
    }
    assert graph.metadata["coverage"]["share"] == 0.0
    assert graph.metadata["unknown_operators"]["first"] == {"my.ops.Warp": ""}


def test_the_standard_domain_has_two_names():
    graph = read([node("Relu", "x", "y", domain="ai.onnx")], [value("x", (2, 3))], ["y"])
    assert (only(graph).kind, only(graph).source_type) == ("activation", "Relu")


def test_metadata_says_where_the_model_comes_from():
    graph = read([node("Relu", "x", "y")], [value("x", (2, 3))], ["y"])
    assert graph.metadata["opsets"] == {"ai.onnx": 17}
    assert (graph.metadata["format"], graph.metadata["ir_version"], graph.metadata["producer"]) == ("onnx", 8, "test")
    assert (graph.name, graph.precision) == ("model", "f32")

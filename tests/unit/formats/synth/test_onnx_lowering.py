"""Ops become ONNX nodes: what is written, checked without a runtime."""

from collections import Counter

import numpy as np
import pytest

from inferometer.core.dims import Symbol
from inferometer.core.errors import InferometerError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.onnx.write.lowering import (
    Nodes,
    Numbers,
    WrittenValue,
    concat_axis,
    fixed,
    lower,
    numbers_of,
    reinterpreted,
    reshaped,
)

BATCH, QUERY, CONTEXT = Symbol("batch"), Symbol("query"), Symbol("context")
LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 300,
    "tie_word_embeddings": False,
}


def tensor(name, *shape, role="activation"):
    return Tensor(name=name, shape=shape, role=role)


def graph_of(*ops, inputs, count=1):
    return Graph(name="g", blocks=(Block(name="b", ops=ops, count=count),), inputs=inputs, outputs=ops[-1].outputs[:1])


def lowered(config=LLAMA, sizes=None, **others):
    graph = graph_from_config(config, name="tiny")
    return graph, lower(graph, numbers_of(config), {"logits": 1, **(sizes or {})}, **others)


def kinds(nodes):
    return Counter(node.kind for node in nodes.nodes)


def test_every_parameter_is_stored_once():
    graph, nodes = lowered()
    assert sum(stored.weight.elements for stored in nodes.stored.values()) == graph.parameters


def test_each_repetition_of_a_block_has_nodes_named_after_it():
    _, nodes = lowered()
    names = [node.name for node in nodes.nodes]
    assert "layers.0.attn.q_proj/MatMul" in names
    assert "layers.1.attn.q_proj/MatMul" in names
    assert len(names) == len(set(names))


def test_a_matrix_is_stored_as_matmul_reads_it():
    _, nodes = lowered()
    assert nodes.stored["model.layers.0.mlp.up_proj.weight"].shape == (32, 48)
    assert nodes.stored["model.embed_tokens.weight"].shape == (300, 32)


def test_a_tied_embedding_is_read_by_gemm_the_other_way_round():
    _, nodes = lowered(LLAMA | {"tie_word_embeddings": True})
    (head,) = [node for node in nodes.nodes if node.kind == "Gemm"]
    assert head.inputs[1] == "model.embed_tokens.weight"
    assert head.attributes["transB"] == 1


def test_a_decoder_takes_and_gives_its_cache():
    _, nodes = lowered()
    names = {port.name: port for port in nodes.inputs}
    assert list(names) == ["input_ids", *(f"past_key_values.{n}.{part}" for n in (0, 1) for part in ("key", "value"))]
    assert names["past_key_values.1.key"].shape == (BATCH, 2, CONTEXT, 8)
    assert [port.name for port in nodes.outputs][:3] == ["logits", "present.0.key", "present.0.value"]
    assert str(nodes.outputs[1].shape[2]) == "(context + query)"


def test_what_layers_share_is_made_once():
    _, nodes = lowered()
    assert kinds(nodes)["Cos"] == kinds(nodes)["Sin"] == kinds(nodes)["Where"] == 1


def test_layers_with_and_without_a_window_have_two_masks():
    config = LLAMA | {"model_type": "gemma2", "head_dim": 8, "sliding_window": 16}
    _, nodes = lowered(config)
    assert kinds(nodes)["Where"] == 2


def test_a_size_can_be_fixed():
    _, nodes = lowered(sizes={"batch": 3, "context": 64})
    assert nodes.inputs[1].shape == (3, 2, 64, 8)


def test_the_numbers_of_the_config_are_used():
    assert numbers_of({"rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 5e5}}) == Numbers(
        epsilon=1e-6, rope_theta=5e5
    )
    assert numbers_of({"query_pre_attn_scalar": 256}).attention_scale == pytest.approx(1 / 16)


def test_constants_are_stored_once_however_often_they_are_used():
    nodes = Nodes("float32")
    assert nodes.wholes(1, 2) == nodes.wholes(1, 2)
    assert len(nodes.nodes) == 1


def test_a_value_nobody_reads_is_an_output():
    x = tensor("x", BATCH, 8)
    a, b = tensor("a", BATCH, 8), tensor("b", BATCH, 8)
    ops = (
        Op(name="a", kind="activation", inputs=(x,), outputs=(a,), attributes={"function": "relu"}),
        Op(name="b", kind="activation", inputs=(x,), outputs=(b,), attributes={"function": "tanh"}),
    )
    nodes = lower(graph_of(*ops, inputs=(x,)), Numbers(), {})
    assert [port.name for port in nodes.outputs] == ["b", "a"]


# shapes


def shaped(have, want, **others):
    nodes = Nodes("float32")
    nodes.scope = "op"
    value = reinterpreted(nodes, WrittenValue("x", have), want, **others)
    assert value.shape == want
    return [node.kind for node in nodes.nodes if node.kind != "Constant"]


@pytest.mark.parametrize(
    ("have", "want", "found"),
    [
        ((BATCH, QUERY, 8), (BATCH, QUERY, 8), []),
        ((BATCH, QUERY, 8), (BATCH, QUERY, 2, 4), ["Reshape"]),
        ((BATCH, 8, QUERY), (BATCH, QUERY, 8), ["Transpose"]),
        ((BATCH, 8, 5, 5), (BATCH, 5, 5, 8), ["Transpose"]),
        ((BATCH, 8, 5, 6), (BATCH, 30, 8), ["Reshape", "Transpose"]),
        ((BATCH, 30, 8), (BATCH, 8, 5, 6), ["Transpose", "Reshape"]),
        ((BATCH, 8, 7, 7), (BATCH, 8 * 49), ["Reshape"]),
        ((BATCH, QUERY, 8), (BATCH, 8), ["Gather"]),
        ((BATCH, QUERY, 8), (BATCH, 1, 8), ["Slice"]),
    ],
)
def test_what_moves_is_read_off_the_shapes(have, want, found):
    assert shaped(have, want) == found


def test_a_shape_that_cannot_follow_is_refused():
    with pytest.raises(InferometerError, match="cannot be lowered"):
        shaped((BATCH, QUERY, 8), (BATCH, 3, 5))


def test_one_open_size_needs_no_computing():
    nodes = Nodes("float32")
    nodes.scope = "op"
    reshaped(nodes, WrittenValue("x", (BATCH, QUERY, 8)), (BATCH * QUERY, 8))
    constant, reshape = nodes.nodes
    assert constant.attributes["value"].tolist() == [-1, 8]
    assert reshape.inputs == ("x", constant.outputs[0])


@pytest.mark.parametrize(
    ("parts", "whole", "axis"),
    [
        ([(BATCH, 2, 5), (BATCH, 3, 5)], (BATCH, 5, 5), 1),
        ([(BATCH, QUERY, 4), (BATCH, QUERY, 4)], (BATCH, QUERY, 8), 2),
        ([(BATCH, 2, 5), (BATCH, 3, 6)], (BATCH, 5, 11), None),
    ],
)
def test_the_axis_of_a_concatenation_is_where_sizes_add_up(parts, whole, axis):
    assert concat_axis(parts, whole) == axis


def test_fixing_a_symbol_folds_what_hangs_on_it():
    image = Symbol("image")
    assert fixed((image + -16) // 16 + 1, {"image": 224}) == 14
    assert fixed(BATCH * image, {"image": 4}) == BATCH * 4


# what cannot be lowered


def test_a_kind_without_a_rule_is_refused_by_name():
    x = tensor("x", BATCH, 8)
    op = Op(name="net.{}.scan", kind="ssm_scan", inputs=(x,), outputs=(tensor("y", BATCH, 8),))
    with pytest.raises(InferometerError, match=r"'net.0.scan' \(ssm_scan\).*no rule") as caught:
        lower(graph_of(op, inputs=(x,)), Numbers(), {})
    assert ".gguf" in caught.value.remedy


def test_an_op_that_reads_what_nobody_makes_is_refused():
    op = Op(name="a", kind="activation", inputs=(tensor("gone", 8),), outputs=(tensor("y", 8),),
            attributes={"function": "relu"})  # fmt: skip
    with pytest.raises(InferometerError, match="reads 'gone'"):
        lower(graph_of(op, inputs=()), Numbers(), {})


def test_an_op_that_says_a_wrong_shape_is_refused():
    x = tensor("x", BATCH, 8)
    op = Op(name="v", kind="norm", inputs=(x,), outputs=(tensor("y", BATCH, 9),),
            attributes={"norm": "rms", "features": 8})  # fmt: skip
    with pytest.raises(InferometerError, match=r"gives \[batch, 8\], and the graph says \[batch, 9\]"):
        lower(graph_of(op, inputs=(x,)), Numbers(), {})


def test_an_op_without_its_attributes_is_refused_and_does_not_crash():
    x = tensor("x", BATCH, 8)
    op = Op(name="v", kind="convolution", inputs=(x,), outputs=(x,))
    with pytest.raises(InferometerError, match="its form is not known"):
        lower(graph_of(op, inputs=(x,)), Numbers(), {})


def test_an_unknown_activation_is_refused():
    x = tensor("x", BATCH, 8)
    op = Op(name="v", kind="activation", inputs=(x,), outputs=(x,), attributes={"function": "wobble"})
    with pytest.raises(InferometerError, match="wobble"):
        lower(graph_of(op, inputs=(x,)), Numbers(), {})


def test_f16_keeps_its_epsilon_above_what_f16_can_hold():
    _, nodes = lowered(LLAMA | {"rms_norm_eps": 1e-9}, float_type="float16")
    values = [node.attributes["value"] for node in nodes.nodes if node.kind == "Constant"]
    scalars = [value for value in values if value.dtype == np.float16 and value.ndim == 0]
    assert min(float(value) for value in scalars if value > 0) >= 9e-6


def test_a_picture_of_another_size_than_the_position_table_is_refused():
    config = {"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
              "intermediate_size": 48, "image_size": 32, "patch_size": 8, "num_channels": 3}  # fmt: skip
    graph = graph_from_config(config, name="tiny")
    assert lower(graph, Numbers(), {"image": 32}).outputs
    with pytest.raises(InferometerError, match=r"position_embeddings.* is \[1, 17, 32\] beside \[batch, 65, 32\]"):
        lower(graph, Numbers(), {"image": 64})


def test_a_size_that_no_input_tells_is_asked_for():
    y = tensor("y", BATCH, Symbol("other"))
    op = Op(name="big", kind="resize", inputs=(tensor("x", BATCH, 8),), outputs=(y,), attributes={"mode": "nearest"})
    with pytest.raises(InferometerError, match="needs the size 'other'"):
        lower(graph_of(op, inputs=(tensor("x", BATCH, 8),)), Numbers(), {})


def test_a_second_factor_that_lies_the_other_way_round_is_turned():
    a, b = tensor("a", BATCH, 8), tensor("b", 5, 8)
    op = Op(name="m", kind="matmul", inputs=(a, b), outputs=(tensor("y", BATCH, 5),), attributes={"contracted": 8})
    assert kinds(lower(graph_of(op, inputs=(a, b)), Numbers(), {}))["Transpose"] == 1

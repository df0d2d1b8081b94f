"""Steps become TFLite operators: what is written, checked without a runtime."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from inferometer.core.dims import Symbol
from inferometer.core.errors import DomainError, InferometerError, UnknownNameError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.synth import synthesise
from inferometer.formats.synth.files import Order
from inferometer.formats.synth.weights import planned, whole
from inferometer.formats.tflite import read_tflite
from inferometer.formats.tflite import write as tflite_writer
from inferometer.formats.tflite.write.lowering import lower

BATCH = Symbol("batch")
RESNET = {
    "model_type": "resnet",
    "architectures": ["ResNetForImageClassification"],
    "embedding_size": 8,
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "layer_type": "basic",
    "downsample_in_first_stage": False,
    "num_labels": 10,
    "hidden_act": "relu",
    "image_size": 32,
}
SAME, VALID = 0, 1


def tensor(name, *shape, role="activation"):
    return Tensor(name=name, shape=(BATCH, *shape), role=role)


def weight(name, *shape):
    return Tensor(name=name, shape=shape, role="weight")


X = tensor("x", 8, 16, 16)


def graph_of(*ops, inputs=(X,)):
    return Graph(name="g", blocks=(Block(name="b", ops=ops),), inputs=inputs, outputs=ops[-1].outputs[:1])


def convolution(read, made, *, kernel=3, stride=1, padding=1, groups=1, **more):
    channels = read.shape[1]
    out = made.shape[1]
    attributes = {
        "in_channels": channels, "out_channels": out, "groups": groups, "kernel": (kernel, kernel),
        "strides": (stride, stride), "padding": (padding, padding), "dilations": (1, 1), "transposed": False, **more,
    }  # fmt: skip
    filters = weight(f"{made.name}.weight", out, channels // groups, kernel, kernel)
    return Op(
        name=made.name, kind="convolution", inputs=(read,), outputs=(made,), weights=(filters,), attributes=attributes
    )


def batch_norm(read, made):
    channels = read.shape[1]
    weights = (
        weight(f"{made.name}.weight", channels),
        weight(f"{made.name}.bias", channels),
        Tensor(name=f"{made.name}.running_mean", shape=(channels,), role="constant"),
        Tensor(name=f"{made.name}.running_var", shape=(channels,), role="constant"),
    )
    attributes = {"norm": "batch", "features": channels}
    return Op(name=made.name, kind="norm", inputs=(read,), outputs=(made,), weights=weights, attributes=attributes)


def activation(read, made, function="relu"):
    return Op(name=made.name, kind="activation", inputs=(read,), outputs=(made,), attributes={"function": function})


def pool(read, made, function="max", **attributes):
    return Op(
        name=made.name, kind="pool", inputs=(read,), outputs=(made,), attributes={"function": function, **attributes}
    )


def lowered(*ops, sizes=None, **others):
    return lower(graph_of(*ops, **others), sizes or {}, epsilon=1e-5, seed=0)


def named(network):
    return [(operator.kind, network.tensors[operator.outputs[0]].name) for operator in network.operators]


def test_a_norm_and_a_clamp_become_a_part_of_the_convolution():
    c, n, a = (tensor(name, 4, 16, 16) for name in ("c", "n", "a"))
    network = lowered(convolution(X, c), batch_norm(c, n), activation(n, a))
    assert named(network) == [("CONV_2D", "c;n;a")]
    assert network.operators[0].options["fused"] == 1
    assert network.operators[0].options["padding"] == SAME


def test_what_two_ops_read_is_not_fused():
    c, n, s = (tensor(name, 8, 16, 16) for name in ("c", "n", "s"))
    added = Op(name="s", kind="elementwise", inputs=(n, c), outputs=(s,), attributes={"function": "add"})
    network = lowered(convolution(X, c), batch_norm(c, n), added)
    assert named(network) == [("CONV_2D", "c"), ("MUL", "n/MUL"), ("ADD", "n"), ("ADD", "s")]


def test_filters_that_two_convolutions_share_are_apart_where_norms_are_folded_into_them():
    c, n, d, m = (tensor(name, 8, 16, 16) for name in ("c", "n", "d", "m"))
    first, second = convolution(X, c), convolution(n, d)
    shared = replace(second, weights=first.weights)
    network = lowered(first, batch_norm(c, n), shared, batch_norm(d, m))
    assert named(network) == [("CONV_2D", "c;n"), ("CONV_2D", "d;m")]
    assert len({operator.inputs[1] for operator in network.operators}) == 2


def test_what_the_model_gives_is_not_fused_away():
    c, a = (tensor(name, 4, 16, 16) for name in ("c", "a"))
    graph = graph_of(convolution(X, c), activation(c, a))
    both = Graph(name="g", blocks=graph.blocks, inputs=graph.inputs, outputs=(c, a))
    network = lower(both, {}, epsilon=1e-5, seed=0)
    assert named(network) == [("CONV_2D", "c"), ("RELU", "a")]
    assert [network.tensors[place].name for place in network.outputs] == ["c", "a"]


def test_planes_have_their_channels_last_and_the_batch_stays_open():
    network = lowered(convolution(X, tensor("c", 4, 16, 16)))
    (read,) = network.inputs
    assert (network.tensors[read].shape, network.tensors[read].open) == ((1, 16, 16, 8), True)
    _, filters, bias = network.operators[0].inputs
    assert network.tensors[filters].shape == (4, 3, 3, 8)
    assert network.tensors[bias].make().tolist() == [0.0] * 4
    assert network.tensors[network.outputs[0]].shape == (1, 16, 16, 4)


def test_a_batch_that_is_given_is_fixed():
    network = lowered(convolution(X, tensor("c", 4, 16, 16)), sizes={"batch": 3})
    read = network.tensors[network.inputs[0]]
    assert (read.shape, read.open) == ((3, 16, 16, 8), False)


def test_padding_that_tflite_does_not_know_is_an_operator():
    """SAME would pad a stride of two on the right alone."""
    network = lowered(convolution(X, tensor("c", 4, 8, 8), stride=2))
    assert named(network) == [("PAD", "c/PAD"), ("CONV_2D", "c")]
    pad, conv = network.operators
    assert network.tensors[pad.inputs[1]].make().tolist() == [[0, 0], [1, 1], [1, 1], [0, 0]]
    assert network.tensors[pad.outputs[0]].shape == (1, 18, 18, 8)
    assert conv.options["padding"] == VALID


def test_a_window_that_leaves_pixels_over_is_not_padded():
    network = lowered(convolution(X, tensor("c", 4, 8, 8), kernel=1, stride=2, padding=0))
    assert named(network) == [("CONV_2D", "c")]
    assert network.operators[0].options["padding"] == VALID


def test_a_depthwise_convolution_has_its_filters_in_one_row():
    network = lowered(convolution(X, tensor("c", 16, 16, 16), groups=8))
    assert named(network) == [("DEPTHWISE_CONV_2D", "c")]
    operator = network.operators[0]
    assert network.tensors[operator.inputs[1]].shape == (1, 3, 3, 16)
    assert operator.options["multiplier"] == 2


def test_a_pool_pads_with_what_is_never_the_largest():
    window = {"kernel": (3, 3), "strides": (2, 2), "padding": (1, 1)}
    plain = lowered(pool(X, tensor("p", 8, 8, 8), **window))
    assert named(plain) == [("PADV2", "p/PADV2"), ("MAX_POOL_2D", "p")]
    (lowest,) = plain.tensors[plain.operators[0].inputs[2]].make()
    assert lowest == np.finfo(np.float32).min
    a = tensor("a", 8, 16, 16)
    after_relu = lowered(activation(X, a), pool(a, tensor("p", 8, 8, 8), **window))
    assert [kind for kind, _ in named(after_relu)] == ["RELU", "PAD", "MAX_POOL_2D"]


def test_an_average_counts_the_padding_as_the_graph_does():
    network = lowered(pool(X, tensor("p", 8, 16, 16), "average", kernel=(3, 3), strides=(1, 1), padding=(1, 1)))
    assert [kind for kind, _ in named(network)] == ["PAD", "AVERAGE_POOL_2D"]


def test_a_plane_in_a_row_meets_weights_in_its_own_order():
    row, out = tensor("r", 8 * 4), tensor("y", 3)
    x = tensor("x", 8, 2, 2)
    flat = Op(name="r", kind="view", inputs=(x,), outputs=(row,))
    dense = Op(name="y", kind="linear", inputs=(row,), outputs=(out,), weights=(weight("y.weight", 3, 32),))
    graph = graph_of(flat, dense, inputs=(x,))
    network = lower(graph, {}, epsilon=1e-5, seed=0)
    assert named(network) == [("RESHAPE", "r"), ("FULLY_CONNECTED", "y")]
    (planned_weight,) = planned(graph)
    kept = whole(planned_weight, 0)
    stored = network.tensors[network.operators[1].inputs[1]].make().reshape(3, 32)
    picture = np.random.default_rng(0).standard_normal((8, 2, 2)).astype(np.float32)
    np.testing.assert_allclose(stored @ picture.transpose(1, 2, 0).reshape(-1), kept @ picture.reshape(-1), rtol=1e-5)


def test_operators_of_one_layer_have_names_of_their_own():
    x, n = tensor("x", 16, 16, 8), tensor("n", 16, 16, 8)
    weights = (weight("n.weight", 8), weight("n.bias", 8))
    norm = Op(
        name="n", kind="norm", inputs=(x,), outputs=(n,), weights=weights, attributes={"norm": "layer", "features": 8}
    )
    moved = Op(name="t", kind="copy", inputs=(X,), outputs=(x,), attributes={"function": "transpose"})
    network = lowered(moved, norm)
    names = [name for _, name in named(network)]
    assert len(names) == len(set(names))
    assert names[-1] == "n"
    assert all(name.startswith("n/") for name in names[:-1])


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (convolution(X, tensor("c", 4, 32, 32), transposed=True), "plain convolutions"),
        (Op(name="m", kind="matmul", inputs=(X, X), outputs=(tensor("m", 8, 16, 16),)), "no rule for matmul"),
        (activation(X, tensor("a", 8, 16, 16), "mish"), "'mish' has no rule"),
        (Op(name="v", kind="view", inputs=(X,), outputs=(tensor("v", 4, 16, 16),)), "a part of what"),
        (Op(name="v", kind="view", inputs=(X,), outputs=(tensor("v", 16, 8, 16),)), "as \\[1, 16, 8, 16\\] has no"),
        (pool(X, tensor("p", 8, 5, 5), "average"), "no equal parts of \\[5, 5\\]"),
        (batch_norm(tensor("x", 8, 16, 16), tensor("n", 4, 16, 16)), "something else than the channels"),
    ],
)
def test_what_cannot_be_written_is_named(op, why):
    with pytest.raises(InferometerError, match=f"{op.name!r} \\({op.kind}\\) cannot be written as TFLite.*{why}"):
        lowered(op)


def test_a_language_model_is_refused(tmp_path):
    config = {
        "model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 48, "vocab_size": 100, "max_position_embeddings": 64, "type_vocab_size": 2,
    }  # fmt: skip
    with pytest.raises(InferometerError, match="pictures alone"):
        synthesise(config, tmp_path / "m.tflite")
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_a_model_suggests_stays_open_and_another_size_is_taken(tmp_path):
    graph = graph_from_config(RESNET, name="tiny")
    suggested = replace(graph, metadata={**graph.metadata, "default_sizes": {"batch": 5, "image": 32}})
    order = Order(graph=suggested, path=tmp_path / "m.tflite", config=RESNET)
    assert read_tflite(tflite_writer.save(order)[0]).inputs[0].shape == (BATCH, 32, 32, 3)
    given = replace(order, path=tmp_path / "n.tflite", sizes={"batch": 2, "image": 64})
    assert read_tflite(tflite_writer.save(given)[0]).inputs[0].shape == (2, 64, 64, 3)


def test_a_size_that_stays_open_is_named():
    x = Tensor(name="x", shape=(BATCH, 3, Symbol("image"), Symbol("image")))
    made = Tensor(name="a", shape=x.shape)
    with pytest.raises(InferometerError, match="leave only the batch open") as caught:
        lowered(activation(x, made), inputs=(x,))
    assert "--size image=N" in caught.value.remedy


def test_sizes_the_graph_does_not_have_are_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="height"):
        synthesise(RESNET, tmp_path / "m.tflite", sizes={"height": 3})
    with pytest.raises(DomainError, match="whole number"):
        synthesise(RESNET, tmp_path / "m.tflite", sizes={"image": 0})


def test_only_f32_is_written(tmp_path):
    with pytest.raises(InferometerError, match="f16 weights"):
        synthesise(RESNET, tmp_path / "m.tflite", weights="f16")


def test_a_file_that_would_be_too_large_is_refused_before_it_is_written(tmp_path):
    order = Order(graph=graph_from_config(RESNET, name="tiny"), path=tmp_path / "m.tflite")
    with pytest.raises(InferometerError, match="a TFLite file holds 1 kB"):
        tflite_writer.save(order, largest_bytes=1000)
    assert list(tmp_path.iterdir()) == []


def test_the_reader_finds_every_layer_and_every_number(tmp_path):
    """A batch norm's factor is in the filters, so each channel of one has a number less than the checkpoint."""
    graph = graph_from_config(RESNET, name="tiny")
    made = synthesise(RESNET, tmp_path / "m.tflite")
    found = read_tflite(made.path)
    folded = sum(block.count * op["features"] for block, op in graph.ops() if op.kind == "norm")
    assert made.parameters == graph.parameters
    assert found.parameters == graph.parameters - folded
    kinds = Counter(op.kind for _, op in graph.ops())
    read = Counter(op.kind for _, op in found.ops())
    assert (read["convolution"], read["linear"]) == (kinds["convolution"], kinds["linear"])
    assert "norm" not in read
    layers = {block.full_name(op.name) for block, op in graph.ops()}
    assert {op.name.partition("/")[0] for _, op in found.ops()} <= layers
    assert found.inputs[0].shape == (BATCH, 32, 32, 3)
    assert found.outputs[0].shape == (BATCH, 10)


def test_the_same_seed_gives_the_same_file(tmp_path):
    first, again, other = (
        synthesise(RESNET, tmp_path / f"{number}.tflite", seed=seed).path.read_bytes()
        for number, seed in enumerate((1, 1, 2))
    )
    assert first == again
    assert first != other

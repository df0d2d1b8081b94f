"""ncnn's text of layers as a graph."""

import pytest

from contract.runtime_cases_ncnn import LAYERS, write_network
from inferometer.errors import FormatError
from inferometer.readers.ncnn import reader
from inferometer.readers.ncnn.param import input_shape, parse_param, sizes_of


def test_layers_have_their_shapes_weights_and_the_activation_that_runs_inside(tmp_path):
    graph = reader.read(write_network(tmp_path))
    ops = {op.name: op for _, op in graph.ops()}
    assert graph.parameters == 3 * 3 * 3 * 8 + 8 + 8 * 10 + 10
    assert [(tensor.name, tensor.shape) for tensor in graph.inputs] == [("data", (1, 3, 16, 16))]
    assert ops["conv"].outputs[0].shape == (1, 8, 16, 16)
    assert ops["conv/activation"].kind == "activation"
    assert ops["fc"].outputs[0].shape == (1, 10)
    assert {tensor.dtype for op in ops.values() for tensor in op.weights} == {"f32"}


def test_weights_in_two_bytes_are_told_by_the_size_of_the_file(tmp_path):
    path = write_network(tmp_path)
    path.with_suffix(".bin").write_bytes(bytes(2 * 296 + 4 * 18 + 8))
    weights = [op.weights[0].dtype for _, op in reader.read(path).ops() if op.kind == "convolution"]
    assert weights == ["f16"]


def test_an_input_without_sizes_has_the_channels_of_the_layer_that_reads_it():
    layers = parse_param(LAYERS.replace(" 0=16 1=16 2=3", ""))
    assert input_shape(layers, "data") == (1, 3, "height", "width")


@pytest.mark.parametrize(
    ("text", "sizes"), [("1,1,//(8,0n),0n", (8, 1, 1)), ("4,8", (8, 4)), ("0w,1", None), ("//(8,0),1", (1, 0))]
)
def test_expressions_of_sizes_are_worked_out_where_they_need_no_input(text, sizes):
    assert sizes_of(text) == sizes


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("7767517", "7767518", "does not start with 7767517"),
        ("4 4", "5 4", "5 layers are announced and 4 are there"),
        ("conv 1 1 data", "conv 9 1 data", "fewer blobs"),
        ("0=8 1=3", "0=8 x", "where a parameter is expected"),
        ("1 1 data conv", "1 1 nothing conv", "nothing"),
    ],
)
def test_a_damaged_text_says_what_is_wrong_and_what_to_do(tmp_path, old, new, fault):
    path = write_network(tmp_path)
    path.write_text(LAYERS.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(FormatError, match=rf"(?s){fault}.*Convert the model again"):
        reader.read(path)

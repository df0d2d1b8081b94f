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


def read_layers(folder, *layers, given="0=16 1=12 2=8"):
    """Layers after an input that is 16 wide and 12 high, of 8 channels; nobody reads their weights."""
    path = folder / "some.param"
    blobs = 1 + sum(int(layer.split()[3]) for layer in layers)
    lines = ("7767517", f"{1 + len(layers)} {blobs}", f"Input data 0 1 data {given}", *layers)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.with_suffix(".bin").write_bytes(bytes(4096))
    return {op.name: op for _, op in reader.read(path).ops()}


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        # 5 wide and 3 high, in steps of 2 across and 1 down
        ("Convolution one 1 1 data out 0=4 1=5 11=3 3=2 13=1 6=480", [(1, 4, 10, 6)]),
        ("Pooling one 1 1 data out 0=0 1=4 11=2 2=4 12=2 5=1", [(1, 8, 6, 4)]),
        ("Slice one 1 2 data a b -23300=2,-233,-233 1=0", [(1, 4, 12, 16)] * 2),
        ("Slice one 1 2 data a b -23300=2,3,5 1=0", [(1, 3, 12, 16), (1, 5, 12, 16)]),
        ("Padding one 1 1 data out 0=1 1=2 2=3 3=4", [(1, 8, 15, 23)]),
    ],
)
def test_widths_and_heights_are_not_mixed_up(tmp_path, layer, shapes):
    assert [tensor.shape for tensor in read_layers(tmp_path, layer)["one"].outputs] == shapes


def test_the_channels_of_a_group_follow_from_the_number_of_weights(tmp_path):
    op = read_layers(tmp_path, "ConvolutionDepthWise one 1 1 data out 0=16 1=3 4=1 6=576 7=2")["one"]
    assert op.weights[0].shape == (16, 4, 3, 3)  # 576 of them, of 16 filters of 3 × 3
    assert (op["in_channels"], op["out_channels"], op["groups"]) == (8, 16, 2)


@pytest.mark.parametrize("turned", [0, 1])
def test_a_stored_matrix_multiplies_every_row_however_it_lies(tmp_path, turned):
    ops = read_layers(tmp_path, f"Gemm one 1 1 data out 2=0 3={turned} 5=1 6=1 8=10 9=16", given="0=16 1=6")
    assert (ops["one"].kind, ops["one"]["contracted"], ops["one"].weights[0].shape) == ("linear", 16, (16, 10))
    assert ops["one"].outputs[0].shape == ops["one/bias"].outputs[0].shape == (1, 6, 10)


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

"""ncnn's text of layers as a graph."""

import pytest

from contract.runtime_cases_ncnn import LAYERS, write_network
from inferometer.core.errors import FormatError
from inferometer.formats.ncnn import reader
from inferometer.formats.ncnn.param import input_shape, parse_param, sizes_of
from inferometer.formats.onnx.faults import Fault


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


@pytest.mark.parametrize(("row", "seen"), [(8, (1, 8, 1, 1)), (16, None)])
def test_a_row_of_as_many_as_there_are_channels_goes_over_the_channels(tmp_path, row, seen):
    """Squeeze and excitation: ncnn lines axes up from the channels on, and ONNX from the width."""
    ops = read_layers(
        tmp_path, "Split two 1 2 data a b", "Pooling gap 1 1 a pooled 0=1 4=1",
        f"InnerProduct gate 1 1 pooled gated 0={row} 1=0 2={8 * row}", "BinaryOp scale 2 1 b gated out 0=2",
    )  # fmt: skip
    assert ops["scale"].outputs[0].shape == (1, 8, 12, 16)
    assert ("scale/view1" in ops) == (seen is not None)
    if seen is not None:
        assert ops["scale/view1"].outputs[0].shape == seen


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


@pytest.mark.parametrize(
    ("given", "bias", "shape"), [("0=16 1=12 2=8", 0, (8, 1, 1)), ("0=16 1=12 2=8", 1, (8, 1, 1)), ("0=16", 1, (16,))]
)
def test_a_scale_multiplies_the_outermost_size_and_what_follows_is_counted(tmp_path, given, bias, shape):
    after = "ReLU after 1 1 out end"
    ops = read_layers(tmp_path, f"Scale one 1 1 data out 0={shape[0]} 1={bias}", after, given=given)
    assert [tensor.shape for name in ops for tensor in ops[name].weights] == [shape] * (1 + bias)
    assert {op.kind for op in ops.values()} <= {"elementwise", "activation"}
    assert ops["after"].outputs[0].shape == ops["one"].inputs[0].shape


def test_an_input_without_sizes_is_known_by_the_first_weights_behind_any_copy(tmp_path):
    """Here the second copy goes into the convolution, the first only around it."""
    ops = read_layers(
        tmp_path, "Split two 1 2 data a b", "ReLU r 1 1 b c", "Convolution one 1 1 c d 0=9 1=3 4=1 6=729",
        "BinaryOp sum 2 1 a d out 0=0", given="",
    )  # fmt: skip
    assert ops["one"]["in_channels"] == 9
    assert [op.kind for op in ops.values()][-2:] == ["convolution", "elementwise"]


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
    ("text", "sizes"),
    [
        ("1,1,//(8,0n),0n", (8, 1, 1)), ("4,8", (8, 4)), ("0w,-1", (-1, 7)), ("*(0w,+(1h,1)),0c", (5, 28)),
        ("2w,1", None), ("//(8,0),1", None), ("-(0w", None), ("min(0w,3)", (3,)), ("0w,,1", None),
        ("+(1," * 16 + "1" + ")" * 16, (17,)), ("+(1," * 17 + "1" + ")" * 17, None),
    ],
)  # fmt: skip
def test_expressions_of_sizes_are_worked_out_where_what_goes_in_is_known(text, sizes):
    assert sizes_of(text, [(5, 6, 7), (3, 4)]) == sizes


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


ENCODER = """7767517
17 18
Input        in0   0 1 in0 0=8 1=8 2=3
Convolution  conv  1 1 in0 1 0=16 1=4 3=4 5=1 6=768
Reshape      flat  1 1 1 2 0=4 1=16
Permute      turn  1 1 2 3 0=1
MemoryData   first 0 1 4 0=16 1=1
Concat       cat   2 1 4 3 5 0=0
LayerNorm    norm  1 1 5 6 0=16 2=1
MultiHeadAttention mha 1 1 6 7 0=16 1=2 2=256 3=16 4=16
Gemm         up    1 1 7 8 10=4 3=1 5=1 6=1 7=5 8=32 9=16
GELU         gelu  1 1 8 9
Split        two   1 2 9 10 11
Reshape      rows  1 1 10 12 6="0w,-1"
Reshape      back  2 1 12 11 13 6="0w,1h"
MatMul       pairs 2 1 13 11 14 0=1
Crop         one   1 1 14 15 -23309=1,0 -23310=1,1 -23311=1,0
Squeeze      none  1 1 15 16 -23303=1,0
InnerProduct head  1 1 16 out 0=10 1=1 2=50
"""


def test_an_encoder_is_read_to_parameters_shapes_and_work(tmp_path):
    """What pnnx makes of a vision transformer, small: blobs have no batch, so ranks decide what a layer does."""
    path = tmp_path / "encoder.param"
    path.write_text(ENCODER)
    graph = reader.read(path)
    ops = {op.name: op for _, op in graph.ops()}
    assert "custom" not in {op.kind for op in ops.values()}
    convolution, attention = 3 * 16 * 16 + 16, 4 * (16 * 16 + 16)
    assert graph.parameters == convolution + 16 + 32 + attention + 16 * 32 + 32 + 5 * 10 + 10
    shapes = {name: op.outputs[0].shape for name, op in ops.items()}
    assert shapes["turn"] == (1, 4, 16)
    assert shapes["mha/out-bias"] == (1, 5, 16)
    assert shapes["rows"] == shapes["back"] == (1, 5, 32)
    assert shapes["pairs"] == (1, 5, 5)
    assert shapes["head"] == (1, 10)


def test_one_row_that_a_pooling_leaves_is_normed_as_a_row(tmp_path):
    path = tmp_path / "pooled.param"
    path.write_text(
        "7767517\n3 3\nInput in0 0 1 in0 0=8 1=8 2=16\nPooling gap 1 1 in0 1 0=1 4=1\nLayerNorm ln 1 1 1 out 0=16 2=1\n"
    )
    (norm,) = (op for _, op in reader.read(path).ops() if op.kind == "norm")
    assert norm.outputs[0].shape == (1, 16)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["7767518", "1 1"], "does not start with 7767517"),
        (["7767517"], "second line is not the numbers"),
        (["7767517", "1"], "second line is not the numbers"),
        (["7767517", "1 -1"], "second line is not the numbers"),
        (["7767517", "1 1234567890"], "second line is not the numbers"),
        (["7767517", "999999999 1"], "a network of more than"),
        (["7767517", "2 1", "Input data 0 1 data 0=3"], "2 layers are announced and 1 are there"),
        (["7767517", "1 1", "Input data 0"], "line 3 is no layer"),
        (["7767517", "1 1", "Input data x 1 data"], "line 3 is no layer"),
        (["7767517", "1 1", "Input data 0 2 data"], "line 3 has fewer blobs than it says"),
        (["7767517", "1 1", "Input data 0 1 data 0=x"], "line 3 has 'x' where a number is expected"),
        (["7767517", "1 1", "Input data 0 1 data 0"], "line 3 has '0' where a parameter is expected"),
        (["7767517", "1 1", "Input data 0 1 data a=1"], "line 3 has 'a=1' where a parameter is expected"),
    ],
)
def test_a_text_that_is_no_network_says_which_line_is_wrong(lines, why):
    with pytest.raises(Fault, match=why):
        parse_param("\n".join(lines))


def test_parameters_are_numbers_lists_and_expressions():
    (layer,) = parse_param('7767517\n1 2\n\nReshape r 1 1 a b 0=5 1=2.5 -23303=3,1,2,-4 6="1,*(2,0w)"\n')
    assert (layer.type, layer.name, layer.bottoms, layer.tops) == ("Reshape", "r", ("a",), ("b",))
    assert (layer.numbers, layer.lists, layer.texts) == ({0: 5.0, 1: 2.5}, {3: (1.0, 2.0, -4.0)}, {6: "1,*(2,0w)"})
    assert (layer.whole(0), layer.whole(1), layer.whole(9), layer.whole(9, -1)) == (5, 2, 0, -1)
    (huge,) = parse_param("7767517\n1 1\nInput d 0 1 d 0=1e300")
    assert huge.whole(0, 7) == 7

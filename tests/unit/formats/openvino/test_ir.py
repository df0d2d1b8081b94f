"""OpenVINO's IR: layers by their names, weights from the file beside it, sizes followed where they are open."""

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.onnx.faults import MAX_RANK
from inferometer.formats.openvino import reader
from unit.formats.openvino.ir_text import Ir, convolution_ir


def read(ir, folder):
    path = folder / "model.xml"
    path.write_text(ir if isinstance(ir, str) else ir.text(), encoding="utf-8")
    if isinstance(ir, Ir):
        path.with_suffix(".bin").write_bytes(ir.data)
    return reader.read(path)


def ops_of(graph):
    return [op for _, op in graph.ops()]


def shapes_of(graph):
    return [tuple(map(str, tensor.shape)) for tensor in graph.outputs]


def test_a_convolution_without_its_file_of_weights_is_counted_all_the_same(tmp_path):
    graph = read(convolution_ir(), tmp_path)
    (op,) = ops_of(graph)
    assert (op.name, op.kind, op.source_type) == ("conv", "convolution", "Convolution")
    assert (graph.parameters, shapes_of(graph)) == (108, [("batch", "4", "8", "8")])
    assert graph.metadata["external_data"]["missing"] == {"model.bin": 1}


@pytest.mark.parametrize(
    "before", ["<!-- made by hand -->", "<!-- a - b\n-->\n<!---->", '<?xml version="1.0"?> <!-- x -->']
)
def test_comments_may_stand_before_the_network(tmp_path, before):
    text = convolution_ir()
    assert read(before + text[text.index("<net") :], tmp_path).parameters == 108


def test_a_folder_of_a_language_model_is_its_network_under_the_folders_name(tmp_path):
    folder = tmp_path / "chat"
    folder.mkdir()
    (folder / "openvino_model.xml").write_text(convolution_ir())
    found = reader.read(folder)
    assert (found.name, found.parameters, found.metadata["format"]) == ("chat", 108, "openvino-genai")


def test_groups_of_a_convolution_are_part_of_its_weights(tmp_path):
    ir = Ir()
    x, w = ir.parameter("x", (1, 6, 8, 8)), ir.const((6, 1, 1, 3, 3))
    window = {"strides": "2,2", "dilations": "1,1", "pads_begin": "0,0", "pads_end": "0,0"}
    y = ir.layer("GroupConvolution", [(x, (1, 6, 8, 8)), (w, (6, 1, 1, 3, 3))], [(1, 6, 3, 3)], name="dw", **window)
    ir.result(y, (1, 6, 3, 3))
    graph = read(ir, tmp_path)
    (op,) = ops_of(graph)
    assert (op["groups"], graph.parameters, shapes_of(graph)) == (6, 54, [("1", "6", "3", "3")])


@pytest.mark.parametrize("kind", ["GroupConvolution", "GroupConvolutionBackpropData"])
@pytest.mark.parametrize("side", [0, 1, 2, 3])
def test_weights_that_are_open_in_any_side_leave_a_grouped_convolution_that_is_named(tmp_path, kind, side):
    shape = [6, 1, 1, 3, 3]
    shape[side] = -1
    ir = Ir()
    x, w = ir.parameter("x", (1, 6, 8, 8)), ir.parameter("w", shape)
    y = ir.layer(kind, [(x, (1, 6, 8, 8)), (w, shape)], [(1, 6, 6, 6)], strides="1,1", dilations="1,1",
                 pads_begin="0,0", pads_end="0,0")  # fmt: skip
    ir.result(y, (1, 6, 6, 6))
    graph = read(ir, tmp_path)
    assert [(op.kind, op.source_type) for op in ops_of(graph)] == [("custom", kind)]
    assert shapes_of(graph) == [("1", "6", "6", "6")]


def test_weights_of_eight_bits_count_as_they_are_stored(tmp_path):
    ir = Ir()
    x, w = ir.parameter("x", (2, 16)), ir.const((8, 16), "i8", name="w")
    wide = ir.layer("Convert", [(w, (8, 16))], [(8, 16)], destination_type="f32")
    scale = ir.const((8, 1), name="scale")
    weights = ir.layer("Multiply", [(wide, (8, 16)), (scale, (8, 1))], [(8, 16)])
    y = ir.layer("MatMul", [(x, (2, 16)), (weights, (8, 16))], [(2, 8)], name="product", transpose_b="true")
    ir.result(y, (2, 8))
    (op,) = ops_of(read(ir, tmp_path))
    assert (op.kind, op["contracted"], op.outputs[0].shape) == ("linear", 16, (2, 8))
    assert [(tensor.name, tensor.dtype, tensor.stored_bytes) for tensor in op.weights] == [
        ("w", "i8", 128), ("scale", "f32", 32)
    ]  # fmt: skip


def test_shapes_that_the_network_computes_are_followed(tmp_path):
    ir = Ir()
    x = ir.parameter("x", (-1, -1, 64), "f32")
    shape = ir.layer("ShapeOf", [(x, (-1, -1, 64))], [((3,), "i64")], output_type="i64")
    begin, end, step = (ir.const((1,), "i64", [value]) for value in (0, 2, 1))
    ones = {"begin_mask": "0", "end_mask": "0"}
    lead = ir.layer(
        "StridedSlice", [(shape, (3,)), (begin, (1,)), (end, (1,)), (step, (1,))], [((2,), "i64")], **ones
    )  # fmt: skip
    tail = ir.const((2,), "i64", [8, 8])
    wanted = ir.layer("Concat", [(lead, (2,)), (tail, (2,))], [((4,), "i64")], axis="0")
    y = ir.layer("Reshape", [(x, (-1, -1, 64)), (wanted, (4,))], [(-1, -1, 8, 8)], special_zero="false")
    ir.result(y, (-1, -1, 8, 8))
    assert shapes_of(read(ir, tmp_path)) == [("batch", "x.1", "8", "8")]


def test_an_input_of_several_names_goes_by_the_first_of_them_in_order(tmp_path):
    ir = Ir()
    ir.result(ir.layer("ReLU", [(ir.parameter("mask,ids", (2, 3)), (2, 3))], [(2, 3)]), (2, 3))
    assert [tensor.name for tensor in read(ir, tmp_path).inputs] == ["ids"]


def test_what_a_split_leaves_is_what_its_outputs_say(tmp_path):
    ir = Ir()
    x, axis, lengths = ir.parameter("x", (1, 10)), ir.const((), "i64", [1]), ir.const((2,), "i64", [3, -1])
    parts = ir.layer("VariadicSplit", [(x, (1, 10)), (axis, ()), (lengths, (2,))], [(1, 3), (1, 7)], name="cut")
    ir.result((parts[0], parts[1] + 1), (1, 7))
    assert shapes_of(read(ir, tmp_path)) == [("1", "7")]


def test_a_layer_that_nobody_knows_is_named_and_keeps_its_shape(tmp_path):
    ir = Ir()
    y = ir.layer("Teleport", [(ir.parameter("x", (2, 3)), (2, 3))], [(5, 7)], name="away")
    ir.result(y, (5, 7))
    graph = read(ir, tmp_path)
    assert [(op.kind, op.source_type) for op in ops_of(graph)] == [("custom", "Teleport")]
    assert (shapes_of(graph), graph.metadata["coverage"]["share"]) == ([("5", "7")], 0.0)


def test_a_loop_keeps_its_weights(tmp_path):
    inner = Ir()
    h = inner.parameter("h", (1, 4))
    inner.result(inner.layer("Add", [(h, (1, 4)), (inner.const((1, 4)), (1, 4))], [(1, 4)]), (1, 4))
    body = inner.text().partition("<layers>")[2].rpartition("<rt_info>")[0]
    ir = Ir()
    x = ir.parameter("x", (1, 4))
    y = ir.layer("TensorIterator", [(x, (1, 4))], [(1, 4)], name="loop", extra=f"<body><layers>{body}</body>")
    ir.result(y, (1, 4))
    ir.data = inner.data
    (op,) = ops_of(read(ir, tmp_path))
    assert (op.kind, [tensor.shape for tensor in op.weights]) == ("custom", [(1, 4)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('<net name="a" version="7"><layers/></net>', "an IR of version 7"),
        ('<net name="a" version="11"><layers></layers></net>', "without layers"),
        ('<net name="a" version="11"><layers><layer id="x" type="Relu"/></layers></net>', "'x' as its id"),
        (convolution_ir().replace('offset="0"', 'offset="-1"'), "shape, offset and size"),
        (convolution_ir().replace('from-layer="1"', 'from-layer="9"'), "comes from nothing"),
        (convolution_ir()[:200], "no sound XML"),
        ('<net version="11"><!DOCTYPE a></net>', "no sound XML"),
    ],
)
def test_what_is_wrong_is_said(text, words, tmp_path):
    with pytest.raises(FormatError, match=words):
        read(text, tmp_path)


def test_a_tensor_has_as_many_dimensions_as_any_file_may_have_and_no_more(tmp_path):
    def made(rank):
        ir = Ir()
        ir.result(ir.layer("ReLU", [(ir.parameter("x", (1,) * rank), (1,) * rank)], [(1,) * rank]), (1,) * rank)
        return ir

    assert len(read(made(MAX_RANK), tmp_path).outputs[0].shape) == MAX_RANK
    with pytest.raises(FormatError, match=f"more than {MAX_RANK} dimensions"):
        read(made(MAX_RANK + 1), tmp_path)


def test_entities_are_not_expanded(tmp_path):
    text = convolution_ir().replace("\n", '\n<!DOCTYPE net [<!ENTITY a "aaaa">]>\n', 1)
    with pytest.raises(FormatError):
        read(text, tmp_path)


def test_weights_are_looked_for_beside_the_file_and_within_it(tmp_path):
    ir = Ir()
    w = ir.const((4,), name="w")
    ir.result(ir.layer("ReLU", [(w, (4,))], [(4,)]), (4,))
    ir.data = b"short"
    with pytest.raises(FormatError, match=r"byte 16 of 'model\.bin', which has 5"):
        read(ir, tmp_path)


def body_ir(*, first, second):
    """A body that takes x and k and has two results, of which `first` is the sum and `second` the product with k."""
    ir = Ir()
    x, k = ir.parameter("inner x", (2, 3)), ir.parameter("inner k", (3, 5))
    added = ir.layer(first, [(x, (2, 3))], [(2, 3)], name="turned")
    made = ir.layer(second, [(added, (2, 3)), (k, (3, 5))], [(2, 5)], name="product")
    ir.result(added, (2, 3))
    ir.result(made, (2, 5))
    return ir


def test_branches_read_what_is_passed_to_them_and_give_it_in_the_outer_order(tmp_path):
    """As OpenVINO writes an If: by port maps, whose results here stand the other way round than in the bodies."""

    def inside(ir, tag):
        return ir.text().partition("?>\n")[2].replace("<net ", f"<{tag} ").replace("</net>", f"</{tag}>")

    def ports(tag):
        read = "".join(
            f'<input external_port_id="{port}" internal_layer_id="{inner}"/>' for port, inner in ((1, 0), (2, 1))
        )
        # The body's results are its layers 4 (turned) and 5 (product); the If's ports 3 and 4 are product, turned.
        made = "".join(
            f'<output external_port_id="{port}" internal_layer_id="{inner}"/>' for port, inner in ((4, 4), (3, 5))
        )
        return f"<{tag}>{read}{made}</{tag}>"

    then, other = body_ir(first="Relu", second="MatMul"), body_ir(first="Tanh", second="MatMul")
    extra = inside(then, "then_body") + inside(other, "else_body") + ports("then_port_map") + ports("else_port_map")
    ir = Ir()
    c, x, k = ir.parameter("c", (), "boolean"), ir.parameter("x", (2, 3)), ir.parameter("k", (3, 5))
    number, place = ir.layer("If", [(c, ()), (x, (2, 3)), (k, (3, 5))], [(2, 5), (2, 3)], name="choice", extra=extra,
                             kinds=("boolean", "f32", "f32"))  # fmt: skip
    ir.result((number, place), (2, 5))
    ir.result((number, place + 1), (2, 3))
    graph = read(ir, tmp_path)
    (op,) = ops_of(graph)
    assert (op.kind, op["function"], shapes_of(graph)) == ("control", "if", [("2", "5"), ("2", "3")])
    assert [[inner.source_type for inner in body] for body in op["bodies"]] == [["Relu", "MatMul"], ["Tanh", "MatMul"]]
    first, second = op["bodies"][0]
    assert (first.inputs[0].name, second.inputs[1].name, first.outputs[0].name) == (
        "x",
        "k",
        "choice/then/choice/then_body/turned",
    )


def test_names_that_are_taken_or_made_up_are_told_apart(tmp_path):
    ir = Ir()
    x = ir.parameter("x", (2, 3))
    one = ir.layer("Relu", [(x, (2, 3))], [(2, 3)], name="same")
    two = ir.layer("Tanh", [(one, (2, 3))], [(2, 3)], name="same")
    ir.result(two, (2, 3))
    assert [op.outputs[0].name for op in ops_of(read(ir, tmp_path))] == ["same", "same#2"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('offset="0"', 'offset="-1"'), "without its shape, offset and size"),
        (('size="432"', 'size=""'), "without its shape, offset and size"),
        (('shape="4, 3, 3, 3"', 'shape="4, x"'), "without its shape, offset and size"),
        (
            ('type="Const" version="opset1"><data element_type="f32"', 'type="Const"><data element_type="f9"'),
            "'f9' is not known",
        ),
        (('to-port="1"', 'to-port="7"'), "its input 1 comes from nothing"),
        (('<layer id="0"', '<layer id="x"'), "with 'x' as its id"),
    ],
)
def test_a_network_that_is_not_whole_says_what_is_missing(tmp_path, change, why):
    text = convolution_ir()
    assert change[0] in text
    with pytest.raises(FormatError, match=why):
        read(text.replace(*change, 1), tmp_path)

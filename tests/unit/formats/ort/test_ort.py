"""ONNX Runtime's format: the same graph as the ONNX file it was made from."""

import struct

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.ort import reader
from unit.formats.ort.ort_bytes import INT64, attribute, graph, linear_ort, longs, node, session, tensor, value
from unit.formats.tflite.tflite_bytes import Table


def read(data, folder):
    path = folder / "model.ort"
    path.write_bytes(data)
    return reader.read(path)


def test_a_product_has_its_weights_and_its_open_size(tmp_path):
    found = read(linear_ort(), tmp_path)
    (op,) = found.blocks[0].ops
    assert (op.name, op.kind, op.source_type, found.parameters) == ("product", "linear", "MatMul", 12)
    assert [str(dim) for dim in op.outputs[0].shape] == ["batch", "3"]
    assert found.metadata["properties"]["ort_version"] == "1.31.1"


def test_numbers_that_shapes_need_are_read(tmp_path):
    to = tensor("to", (2,), struct.pack("<2q", 6, -1), INT64)
    body = graph([node("Reshape", ["x", "to"], ["y"])], [value("x", (3, 4))], ["x"], ["y"], [to])
    assert read(session(body), tmp_path).outputs[0].shape == (6, 2)


def test_attributes_lists_and_branches(tmp_path):
    then = graph([node("Relu", ["x"], ["t"])], [], [], ["t"])
    other = graph([node("Transpose", ["x"], ["o"], attribute("perm", 7, ints=longs(0, 1)))], [], [], ["o"])
    branch = node("If", ["c"], ["y"], attribute("then_branch", 5, g=then), attribute("else_branch", 5, g=other))
    body = graph([branch], [value("x", (3, 4)), value("c", (), 9)], ["x", "c"], ["y"])
    (op,) = read(session(body), tmp_path).blocks[0].ops
    assert [[inner.source_type for inner in part] for part in op["bodies"]] == [["Relu"], ["Transpose"]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (session(graph([], [], [], [], [tensor("w", (4, 3), bytes(40))])), "12 elements of f32 in 40 raw bytes"),
        (session(graph([], [], [], [], [tensor("w", (-4,), b"")])), r"shape \[-4\]"),
        (session(graph([], [], [], [], [tensor("w", (1,), b"", 99)])), "element type 99 is not known"),
        (session(graph([node("Relu", ["nothing"], ["y"])], [], [], ["y"])), "made by nothing"),
        (session(Table({}))[:60], "not a sound ORT file"),
    ],
)
def test_what_is_wrong_is_said(data, words, tmp_path):
    with pytest.raises(FormatError, match=words):
        read(data, tmp_path)


def test_a_sparse_tensor_is_dense_with_the_bytes_that_are_stored(tmp_path):
    values = tensor("w", (3,), bytes(12))
    places = tensor("", (3,), bytes(24), INT64)
    body = graph([node("MatMul", ["x", "w"], ["y"])], [value("x", (2, 4))], ["x"], ["y"])
    body = Table({**body.fields, 7: [Table({0: values, 1: places, 2: longs(4, 5)})]})
    (op,) = read(session(body), tmp_path).blocks[0].ops
    assert (op.weights[0].shape, op.weights[0].stored_bytes, op.outputs[0].shape) == ((4, 5), 36, (2, 5))
    empty = Table({**graph([], [], [], []).fields, 7: [Table({2: longs(4, 5)})]})
    with pytest.raises(FormatError, match="a sparse tensor without values"):
        read(session(empty), tmp_path)


def test_every_kind_of_attribute_has_its_own_field(tmp_path):
    """Softmax's axis, LeakyRelu's slope, a pool's ways, and numbers, words and tensors in lists."""
    x = value("x", (1, 3, 9, 9))
    pool = node("MaxPool", ["x"], ["p"], attribute("kernel_shape", 7, ints=longs(2, 2)),
                attribute("strides", 7, ints=longs(2, 2)), attribute("ceil_mode", 2, i=("q", 1)))  # fmt: skip
    same = node("MaxPool", ["p"], ["s"], attribute("kernel_shape", 7, ints=longs(3, 3)),
                attribute("auto_pad", 3, s="SAME_UPPER"), attribute("strides", 7, ints=longs(2, 2)))  # fmt: skip
    filled = node("ConstantOfShape", ["n"], ["y"], attribute("value", 4, t=tensor("", (1,), bytes(8), INT64)))
    stored = [tensor("n", (2,), struct.pack("<2q", 4, 6), INT64)]
    found = read(session(graph([pool, same, filled], [x], ["x"], ["s", "y"], stored)), tmp_path)
    made = [*(op.outputs[0] for _, op in found.ops()), *found.outputs]
    shapes = {one.name: (one.shape, one.dtype) for one in made}
    assert shapes == {"p": ((1, 3, 5, 5), "f32"), "s": ((1, 3, 3, 3), "f32"), "y": ((4, 6), "i64")}
    for kind in (4, 5):
        with pytest.raises(FormatError, match="attribute 'value' without its value"):
            read(
                session(
                    graph([node("ConstantOfShape", ["n"], ["y"], attribute("value", kind))], [], [], ["y"], stored)
                ),
                tmp_path,
            )


def test_a_size_below_nothing_or_without_a_name_is_open(tmp_path):
    body = graph([node("Relu", ["x"], ["y"])], [value("x", (-1, None, "n", 4))], ["x"], ["y"])
    (op,) = read(session(body), tmp_path).blocks[0].ops
    shape = op.outputs[0].shape
    assert (str(shape[2]), shape[3], len({str(size) for size in shape})) == ("n", 4, 4)


@pytest.mark.parametrize(
    "kind",
    [
        Table({1: ("B", 9), 2: Table({0: ("i", 1)})}),  # of a later version
        Table({1: ("B", 0), 2: Table({0: ("i", 1)})}),
        Table({1: ("B", 1)}),  # a tensor without its element
        Table({}),
    ],
)
def test_of_a_type_that_is_not_known_only_that_it_has_a_size_is_known(kind, tmp_path):
    given = Table({0: "x", 2: kind})
    body = graph([node("Identity", ["x"], ["y"])], [given], ["x"], ["y"])
    (made,) = read(session(body), tmp_path).inputs
    assert (made.dtype, [str(dim) for dim in made.shape]) == (None, ["x.size"])

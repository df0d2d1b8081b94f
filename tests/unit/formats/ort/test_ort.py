"""ONNX Runtime's format: the same graph as the ONNX file it was made from."""

import struct

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.onnx.faults import MAX_NESTING
from inferometer.formats.ort import reader
from inferometer.formats.ort.parse import parse_session
from unit.formats.ort.ort_bytes import INT64, attribute, graph, linear_ort, longs, node, session, tensor, value
from unit.formats.tflite.tflite_bytes import Numbers, Table


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


def test_attributes_and_types_come_out_as_they_went_in(tmp_path):
    inner = graph([node("Relu", ["x"], ["t"])], [], [], ["t"])
    given = (
        attribute("a", 1, f=("f", 0.5)), attribute("b", 2, i=("q", -7)), attribute("c", 3, s="word"),
        attribute("d", 6, floats=Numbers("f", (0.5, 2.0))), attribute("e", 7, ints=longs(3, -4)),
        attribute("f", 8, texts=["u", "v"]), attribute("g", 9, tensors=[tensor("k", (2,), bytes(8))]),
        attribute("h", 10, graphs=[inner, inner]), attribute("i", 99),
    )  # fmt: skip
    part = value("x", (3, "n")).fields[2]
    types = {
        "s": Table({1: ("B", 2), 2: Table({0: part})}), "m": Table({1: ("B", 3), 2: Table({0: ("i", 7), 1: part})}),
        "t": part,
    }  # fmt: skip
    body = graph([node("Act", ["x", "", "z"], ["y"], *given, name="n", domain="own")],
                 [Table({0: name, 2: kind}) for name, kind in types.items()], ["s", "m", "bare"], ["y"])  # fmt: skip
    found = parse_session(session(body), tmp_path / "m.ort").graph
    (called,) = found.nodes
    assert (called.op_type, called.domain, called.name) == ("Act", "own", "n")
    assert (called.inputs, called.outputs) == (("x", "", "z"), ("y",))
    values = {name: (one.value, one.count) for name, one in called.attributes.items()}
    assert {name: values[name] for name in "abcdefi"} == {
        "a": (0.5, 1), "b": (-7, 1), "c": ("word", 1), "d": ((0.5, 2.0), 2), "e": ((3, -4), 2), "f": (("u", "v"), 2),
        "i": (None, 1),
    }  # fmt: skip
    assert [(one.name, one.dims, one.dtype) for one in values["g"][0]] == [("k", (2,), "f32")]
    assert [[part.op_type for part in one.nodes] for one in values["h"][0]] == [["Relu"], ["Relu"]]
    kinds = {info.name: info.type for info in (*found.inputs, *found.outputs, *found.infos)}
    assert {name: kind and (kind.group, (kind.inner or kind).axes) for name, kind in kinds.items()} == {
        "s": ("sequence", (3, "n")), "m": ("map", (3, "n")), "t": ("tensor", (3, "n")), "bare": None, "y": None,
    }  # fmt: skip


def test_a_type_or_a_graph_within_itself_ends(tmp_path):
    kind, body = value("x", (3,)).fields[2], graph([], [], [], [])
    for _ in range(MAX_NESTING + 2):
        kind = Table({1: ("B", 2), 2: Table({0: kind})})
        body = graph([node("If", ["c"], ["y"], attribute("then_branch", 5, g=body))], [], [], [])
    for deep, words in ((graph([], [Table({0: "x", 2: kind})], [], []), "types nested"), (body, "graphs nested")):
        with pytest.raises(FormatError, match=f"{words} more than {MAX_NESTING} deep"):
            read(session(deep), tmp_path)

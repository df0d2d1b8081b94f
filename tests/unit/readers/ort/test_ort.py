"""ONNX Runtime's format: the same graph as the ONNX file it was made from."""

import struct

import pytest

from inferometer.errors import FormatError
from inferometer.readers.ort import reader
from unit.readers.ort.ort_bytes import INT64, attribute, graph, linear_ort, longs, node, session, tensor, value
from unit.readers.tflite.tflite_bytes import Table


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

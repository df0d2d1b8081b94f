"""Damaged and malicious files: refused by name, soon, and without memory."""

import tracemalloc
from pathlib import Path

import pytest

from inferometer.core.dims import Symbol
from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.onnx import read_bytes, reader
from inferometer.formats.onnx import value as value_module
from inferometer.formats.onnx.faults import Fault
from unit.formats.onnx.onnx_bytes import (
    FLOAT,
    INT64,
    GraphBytes,
    TensorBytes,
    attribute,
    field,
    fields,
    graph,
    ints,
    model,
    node,
    read,
    shape,
    tensor,
    value,
    varint,
)

X = value("x", ("batch", 8))


def whole_model():
    nodes = [
        node("Shape", "x", "s"), node("Reshape", "x s", "r"), node("MatMul", "r w", "m"), node("Add", "m b", "a"),
        node("Relu", "a", "y", name="last"),
    ]  # fmt: skip
    body = graph(nodes, [X], [value("y", ("batch", 4))], [tensor("w", (8, 4)), tensor("b", (4,))])
    return model(body, extra=field(14, field(1, "key") + field(2, "value")))


def test_a_file_cut_anywhere_is_read_or_refused_by_name(tmp_path):
    raw, path = whole_model(), tmp_path / "cut.onnx"
    read_whole = 0
    for size in range(len(raw)):
        path.write_bytes(raw[:size])
        try:
            read_whole += isinstance(reader.read(path), Graph)
        except FormatError as error:
            assert "cut.onnx" in str(error)
    assert read_whole <= 3, "only a cut after the operator set leaves a model"


def test_an_empty_file_is_called_so(tmp_path):
    (tmp_path / "void.onnx").write_bytes(b"")
    with pytest.raises(FormatError, match="the file is empty"):
        reader.read(tmp_path / "void.onnx")


def test_a_folder_or_nothing_is_an_error_that_names_it(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.onnx"):
        with pytest.raises(FormatError, match=path.name):
            reader.read(path)


def test_too_many_nodes_are_refused_before_the_rest_is_read():
    relu = field(1, node("Relu", "x", "y"))
    unreadable = b"\xff" * 100
    with pytest.raises(Fault, match="more than 200,000 nodes"):
        read_bytes(Path("m.onnx"), model(GraphBytes(relu * 200_001 + unreadable)))
    with pytest.raises(Fault, match="a number longer than ten bytes"):
        read_bytes(Path("m.onnx"), model(GraphBytes(relu * 10 + unreadable)))


def test_graphs_nested_a_million_deep_are_refused():
    """Each length is one level's: the file is as long as the square of the depth would be, so it only claims."""
    body = b""
    for _ in range(100_000 // 40):
        inner = field(6, field(1, field(4, "If") + field(5, body))) if body else field(6, b"")
        body = field(1, "then_branch") + inner
    with pytest.raises(Fault, match="nested more than"):
        read_bytes(Path("m.onnx"), model(GraphBytes(field(1, field(4, "If") + field(5, body)))))


def test_types_nested_without_end_are_refused():
    kind = b""
    for _ in range(2000):
        kind = field(4, field(1, kind))
    with pytest.raises(Fault, match="types nested"):
        read_bytes(Path("m.onnx"), model(graph([], [field(1, "x") + field(2, kind)])))


@pytest.mark.parametrize("claim", [2**31, 2**62, 2**63 - 1, 2**64 - 1])
def test_lengths_beyond_the_file_are_refused_at_their_offset(claim):
    raw = field(1, 8) + varint(7 << 3 | 2) + varint(claim) + b"rest"
    with pytest.raises(Fault, match="claims") as caught:
        read_bytes(Path("m.onnx"), raw)
    assert caught.value.offset is not None


@pytest.mark.parametrize(
    ("dims", "size", "why"),
    [
        ((2**62, 4), 16, "elements"),
        ((2**40,), 16, "raw bytes"),
        ((4, 4), 16, "16 elements of f32 in 16 raw bytes"),
        ((-1, 4), 16, "-1 as a size"),
        ((1,) * 65, 4, "more than 64 dimensions"),
    ],
)
def test_a_tensor_that_claims_more_than_it_holds(dims, size, why):
    stored = TensorBytes(fields(1, dims) + field(2, FLOAT) + field(8, "w") + field(9, bytes(size)))
    with pytest.raises(Fault, match=why):
        read([node("MatMul", "x w", "y")], [X], ["y"], [stored])


def test_an_element_type_from_the_future_is_refused_by_the_tensors_name():
    with pytest.raises(Fault, match="element type 99 is not known") as caught:
        read([node("Relu", "x", "y")], [X], ["y"], [TensorBytes(field(2, 99) + field(8, "w"))])
    assert "tensor 'w'" in str(caught.value)


def test_numbers_written_one_by_one_are_counted():
    loose = TensorBytes(field(1, 3) + field(2, INT64) + field(8, "s") + fields(7, [0, 4, 2]))
    graph_ = read([node("Reshape", "x s", "y")], [X], ["y"], [loose])
    assert graph_.outputs[0].shape[1:] == (4, 2)
    short = TensorBytes(field(1, 3) + field(2, INT64) + field(8, "s") + fields(7, [0, 4]))
    with pytest.raises(Fault, match="3 elements and 2 numbers"):
        read([node("Reshape", "x s", "y")], [X], ["y"], [short])


def test_weights_that_were_stripped_are_no_fault():
    stripped = TensorBytes(fields(1, (8, 4)) + field(2, FLOAT) + field(8, "w"))
    assert read([node("MatMul", "x w", "y")], [X], ["y"], [stripped]).parameters == 32


@pytest.mark.parametrize(
    ("nodes", "stored", "why"),
    [
        ([node("Relu", "x", "y"), node("Relu", "x", "y")], [], "a second tensor named 'y'"),
        ([node("Relu", "x", "w")], [tensor("w", (1,))], "a second tensor named 'w'"),
        ([node("Relu", "x", "y")], [tensor("w", (1,)), tensor("w", (2,))], "two stored tensors named 'w'"),
        ([node("Relu", "z", "y")], [], "its input 'z' is made by nothing"),
        ([node("Relu", "x", "h")], [], "output 'y' is made by nothing"),
    ],
)
def test_names_that_do_not_hold_together(nodes, stored, why):
    with pytest.raises(Fault, match=why):
        read(nodes, [X], ["y"], stored)


def test_two_graphs_or_none_are_no_model():
    with pytest.raises(Fault, match="two graphs"):
        read_bytes(Path("m.onnx"), model(graph([])) + field(7, graph([])))
    with pytest.raises(Fault, match="no graph"):
        read_bytes(Path("m.onnx"), field(1, 8) + field(8, field(2, 17)))
    with pytest.raises(Fault, match="names no operator set"):
        read_bytes(Path("m.onnx"), field(1, 8) + field(7, graph([])))


def test_constants_that_are_computed_without_end_are_followed_no_further(monkeypatch):
    """Sums of sums of a thousand numbers: after so many numbers the rest are not looked at."""
    nodes = [node("Add", "c c" if i == 0 else f"t{i - 1} c", f"t{i}") for i in range(50)]
    nodes += [node("ReduceSum", "t49", "n"), node("Reshape", "x n", "y")]
    stored = [tensor("c", (1024,), INT64, [1] + [0] * 1023)]
    assert read(nodes, [X], ["y"], stored, version=11).outputs[0].shape == (51,)
    monkeypatch.setattr(value_module, "MAX_FOLLOWED", 50_000)
    assert read(nodes, [X], ["y"], stored, version=11).outputs[0].shape == (Symbol("y.0"),)


def test_numbers_that_double_without_end_are_called_unknown():
    nodes = [node("Mul", "n n" if i == 0 else f"t{i - 1} t{i - 1}", f"t{i}") for i in range(200)]
    nodes += [node("ConstantOfShape", "t199", "y")]
    assert isinstance(read(nodes, [X], ["y"], [ints("n", 3)]), Graph)


def test_sizes_that_double_without_end_are_called_unknown():
    nodes = [node("Concat", "x x" if i == 0 else f"t{i - 1} t{i - 1}", f"t{i}", axis=0) for i in range(200)]
    graph_ = read(nodes, [X], ["t199"])
    assert graph_.metadata["unknown_shapes"]["count"] > 0
    with pytest.raises(Fault, match="would have the size"):
        read(nodes, [value("x", (2, 8))], ["t199"])


def test_ranges_and_fills_of_any_length_take_no_memory():
    nodes = [
        node("Range", "zero huge one", "r"), node("ConstantOfShape", "dims", "f"), node("Expand", "one dims", "e"),
        node("Tile", "one1 dims1", "t"), node("Relu", "x", "y"),
    ]  # fmt: skip
    stored = [tensor("zero", (), INT64, (0,)), tensor("huge", (), INT64, (2**60,)), tensor("one", (), INT64, (1,)),
              ints("dims", 2**30, 2**30), ints("one1", 1), ints("dims1", 2**60)]  # fmt: skip
    tracemalloc.start()
    read(nodes, [X], ["y"], stored)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6


def test_a_range_of_floats_without_end_is_refused():
    stored = [tensor(name, (), FLOAT, (number,)) for name, number in (("a", 0.0), ("b", 1e18), ("c", 1e-30))]
    with pytest.raises(Fault, match="would have the size"):
        read([node("Range", "a b c", "y")], [X], ["y"], stored)
    with pytest.raises(Fault, match="step of 0"):
        read([node("Range", "a b a", "y")], [X], ["y"], stored)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 3e38])
def test_numbers_that_are_none_are_not_followed(number):
    nodes = [
        node("Constant", "", "c", value_floats=(number, 1.0)), node("Floor", "c", "f"), node("Round", "f", "g"),
        node("Cast", "g", "s", to=INT64), node("ConstantOfShape", "s", "fill"), node("Relu", "x", "y"),
    ]  # fmt: skip
    assert isinstance(read(nodes, [X], ["y"]), Graph)


def test_an_empty_array_with_huge_other_sizes_is_not_walked():
    stored = [TensorBytes(fields(1, (2**40, 0)) + field(2, INT64) + field(8, "c")), ints("i", 0)]
    result = read([node("Gather", "c i", "y", axis=0), node("Relu", "x", "z")], [X], ["y", "z"], stored)
    assert result.outputs[0].shape == (1, 0)


def test_names_deep_in_nested_graphs_stay_short():
    body = graph([node("Relu", "x", "r")], (), ["r"])
    for _ in range(30):
        both = {"then_branch": body, "else_branch": body}
        body = graph([node("If", "c", "r", name="n" * 500, **both)] if len(body) < 200_000 else [], (), ["r"])
        if len(body) > 200_000:
            break
    result = read(
        [node("If", "c", "y", name="n" * 500, then_branch=body, else_branch=body)], [X, value("c", (), 9)], ["y"]
    )
    pending, longest = [op for _, op in result.ops()], 0
    while pending:
        op = pending.pop()
        longest = max(longest, len(op.name))
        pending += [inner for inside in op.get("bodies", ()) for inner in inside]
    assert longest < 6000


def test_a_list_attribute_of_any_length_is_counted_and_not_kept():
    packed = field(1, "coefficients") + field(7, bytes(40_000_000)) + field(20, 6)
    op = node("LinearRegressor", "x", "y", domain="ai.onnx.ml", targets=1) + field(5, packed)
    tracemalloc.start()
    result = read([op], [X], ["y"], domains=["ai.onnx.ml"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.parameters == 10_000_000
    assert peak < 200e6


def test_an_attribute_of_the_wrong_kind_is_refused():
    with pytest.raises(Fault, match="'axis' is not what Concat takes"):
        read([node("Concat", "x x", "y", axis="first")], [X], ["y"])
    broken = node("Relu", "x", "y") + field(5, field(1, "a") + varint(5 << 3) + varint(1))
    with pytest.raises(Fault, match="wire type"):
        read([broken], [X], ["y"])


def test_unknown_fields_are_skipped():
    raw = whole_model() + field(900, "from a later version") + field(901, 7)
    assert isinstance(read_bytes(Path("m.onnx"), raw), Graph)


def test_a_shape_of_too_many_dimensions_is_refused():
    kind = field(1, "x") + field(2, field(1, field(1, FLOAT) + field(2, shape([1] * 100))))
    with pytest.raises(Fault, match="more than 64 dimensions"):
        read([node("Relu", "x", "y")], [kind], ["y"])


def test_the_oldest_files_give_attributes_without_a_type():
    bare = node("Unsqueeze", "x", "y") + field(5, field(1, "axes") + fields(8, [0]))
    assert len(read([bare], [X], ["y"], version=5).outputs[0].shape) == 3
    assert attribute("axes", (0,)).endswith(field(20, 7))


@pytest.mark.parametrize("kind", [FLOAT, INT64])
def test_texts_in_a_tensor_of_numbers_are_no_numbers(kind):
    texts = TensorBytes(fields(1, (2,)) + field(2, kind) + field(8, "w") + field(6, "one") + field(6, "two"))
    made = read([node("Reshape", "x w", "y")], [value("x", (2, 3))], [value("y", None)], [texts])
    assert isinstance(made, Graph)

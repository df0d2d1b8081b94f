"""Damaged ONNX files: a graph that can be counted, or an error that names the file. Nothing else, and soon."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferometer.core.binding import Binding
from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.onnx import reader
from inferometer.formats.onnx.tables import table
from inferometer.predict.work.count import coverage, op_works
from unit.formats.onnx.onnx_bytes import (
    BOOL,
    FLOAT,
    INT8,
    INT64,
    TensorBytes,
    field,
    fields,
    function,
    graph,
    ints,
    model,
    node,
    scalar,
    tensor,
    value,
)

QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sample():
    """A small model with something of everything: weights, shapes it computes, a branch, a loop, a function."""
    then = graph([node("Relu", "h", "r")], (), ["r"])
    other = graph([node("MatMul", "h w2", "r")], (), ["r"], [tensor("w2", (8, 8))])
    body = graph(
        [node("Add", "c one", "c2"), node("Less", "c2 limit", "go"), node("Tanh", "v", "v2")],
        [value("i", (), INT64), value("cond", (), BOOL), value("c", (), INT64), value("v")],
        ["go", "c2", "v2"],
    )
    silu = function("Silu", "a", "b", [node("Sigmoid", "a", "s"), node("Mul", "a s", "b")])
    nodes = [
        node("Conv", "image k b", "f", strides=(2, 2), pads=(1, 1, 1, 1)),
        node("MaxPool", "f", "p", kernel_shape=(2, 2)),
        node("Shape", "p", "s"), node("Gather", "s zero", "n", axis=0), node("Unsqueeze", "n axis", "nv"),
        node("Concat", "nv minus", "target", axis=0), node("Reshape", "p target", "flat"),
        node("DequantizeLinear", "wq scale", "wd"), node("Slice", "flat zeros eights ones", "cut"),
        node("MatMul", "cut wd", "h"), node("If", "flag", "h2", then_branch=then, else_branch=other),
        node("Loop", "_ flag zero h2", "count h3", body=body), node("Silu", "h3", "a", domain="own"),
        node("LSTM", "seq lw lr", "y", hidden_size=4), node("TopK", "a two", "best where"),
        node("Softmax", "a", "prob"),
        node("Einsum", "a a", "gram", equation="ij,kj->ik"), node("Split", "a", "left right", axis=1),
    ]  # fmt: skip
    stored = [
        tensor("k", (4, 3, 3, 3)), tensor("b", (4,)), scalar("zero", 0), scalar("one", 1), ints("axis", 0),
        ints("minus", -1), tensor("wq", (8, 8), INT8), tensor("scale", (), FLOAT, (0.5,)), ints("zeros", 0),
        ints("eights", 8), ints("ones", 1), scalar("limit", 5), tensor("lw", (1, 16, 3)), tensor("lr", (1, 16, 4)),
        ints("two", 2),
    ]  # fmt: skip
    inputs = [value("image", ("N", 3, "height", "width")), value("flag", (), BOOL), value("seq", ("steps", "N", 3))]
    whole = graph(nodes, inputs, ["prob", "y"], stored, [value("h", ("N", 8))])
    return model(whole, domains=["own"], functions=[silu])


SAMPLE = sample()


def survives(raw):
    """Read it, and count what can be counted; only FormatErrors may come, and they name the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "damaged.onnx")
        path.write_bytes(raw)
        assert 0.0 <= reader.match(Peek(path=path, size=len(raw), head=raw[:4096])) <= 1.0
        try:
            result = reader.read(path)
        except FormatError as error:
            assert "damaged.onnx" in str(error)
            return
    assert isinstance(result, Graph)
    binding = Binding(sizes=dict.fromkeys(result.symbols, 3))
    coverage(result, binding)


def test_the_sample_itself_is_read_and_counted():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sample.onnx")
        path.write_bytes(SAMPLE)
        result = reader.read(path)
    assert result.metadata["coverage"]["share"] == 1.0
    sizes = {"batch": 1, "height": 16, "width": 16, "steps": 3}
    assert len(op_works(result, Binding(sizes=sizes))) == 18


@QUICK
@given(st.integers(0, len(SAMPLE)))
def test_cut_anywhere(size):
    survives(SAMPLE[:size])


@QUICK
@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_bytes_changed(changes):
    raw = bytearray(SAMPLE)
    for place, byte in changes:
        raw[place] = byte
    survives(bytes(raw))


@QUICK
@given(st.integers(0, len(SAMPLE) - 1), st.integers(0, 60), st.binary(max_size=40))
def test_pieces_replaced(place, length, piece):
    survives(SAMPLE[:place] + piece + SAMPLE[place + length :])


@QUICK
@given(st.binary(max_size=400))
def test_bytes_that_never_were_a_model(raw):
    survives(raw)


@QUICK
@given(st.binary(max_size=300))
def test_a_graph_of_anything_in_a_model_that_is_well_formed(raw):
    survives(model(raw))


NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 8, -9, 100, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63), 4097])
OPERATORS = st.sampled_from(sorted(table()))
NAMES = st.lists(st.sampled_from(["x", "z", "w", "n", "_"]), max_size=8)
ATTRIBUTES = st.dictionaries(
    st.sampled_from([
        "axis", "axes", "perm", "to", "group", "kernel_shape", "strides", "pads", "split", "num_heads", "kv_num_heads",
        "q_num_heads", "hidden_size", "N", "K", "bits", "block_size", "k", "equation", "auto_pad", "keepdims",
        "blocksize",
        "output_shape", "direction", "layout", "scales", "num_outputs", "batch_dims", "rotary_embedding_dim",
    ]),
    st.one_of(
        NUMBERS, st.lists(NUMBERS, min_size=1, max_size=5).map(tuple), st.sampled_from(["", "ij,jk->ik", "SAME_UPPER"]),
        st.floats(width=32, allow_nan=True),
    ),
    max_size=4,
)  # fmt: skip
DIMS = st.lists(st.one_of(st.sampled_from([0, 1, 2, 3, 4, 8, 2**40, "batch", "N", "a+1", None])), max_size=5)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(OPERATORS, NAMES, ATTRIBUTES, st.tuples(DIMS, DIMS), st.lists(NUMBERS, max_size=4))
def test_any_operator_with_any_inputs_and_attributes(operator, names, attributes, dims, numbers):
    (domain, op_type), (x, z) = operator, dims
    stored = [TensorBytes(fields(1, (3, 4)) + field(2, FLOAT) + field(8, "w")), ints("n", *numbers)]
    call = node(op_type, names, "y y2 y3", domain=domain, **attributes)
    survives(model(graph([call], [value("x", x), value("z", z)], ["y"], stored), domains=[domain] if domain else []))

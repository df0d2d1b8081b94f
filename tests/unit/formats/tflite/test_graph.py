from pathlib import Path

import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol
from inferometer.core.errors import FormatError
from inferometer.formats.tflite.graph import tflite_graph
from inferometer.formats.tflite.model import parse_model
from inferometer.predict.work.count import coverage, graph_work
from unit.formats.tflite.tflite_bytes import (
    F16,
    F32,
    I8,
    I32,
    Table,
    convolution,
    model,
    operator,
    quantised,
    subgraph,
    tensor,
)

FLOAT = {F32: 4, F16: 2, I8: 1, I32: 4}


class Maker:
    """A subgraph that is put together tensor by tensor; constants get their buffers."""

    def __init__(self):
        self.tensors, self.buffers, self.codes, self.steps = [], [], [], []

    def flows(self, name, *shape, kind=F32, **how):
        self.tensors.append(tensor(name, shape, kind, **how))
        return len(self.tensors) - 1

    def holds(self, name, *shape, kind=F32, values=None, **how):
        size = FLOAT[kind]
        for side in shape:
            size *= side
        raw = bytes(size) if values is None else b"".join(value.to_bytes(4, "little", signed=True) for value in values)
        self.buffers.append(raw)
        return self.flows(name, *shape, kind=kind, buffer=len(self.buffers), **how)

    def does(self, code, inputs, outputs, options=None, options_2=None):
        self.codes.append(code)
        self.steps.append(operator(len(self.codes) - 1, inputs, outputs, options, options_2))

    def graph(self, inputs=(0,), others=(), signature=None, **how):
        main = subgraph(self.tensors, inputs, (len(self.tensors) - 1,), self.steps)
        raw = model(self.codes, [main, *others], self.buffers, **how)
        return tflite_graph(parse_model(raw, Path("m.tflite")), name="m", label="m.tflite", signature=signature)


def only(graph):
    (op,) = (op for _, op in graph.ops())
    return op


def flops(graph, **sizes):
    return graph_work(graph, Binding(sizes=sizes)).total_flops


def test_a_convolution_has_its_strides_its_weights_and_its_fused_activation():
    graph = tflite_graph(parse_model(convolution(), Path("m")), name="m", label="m")
    assert (graph.metadata["sparse_tensors"], graph.metadata["subgraphs"]) == (0, 1)
    op = only(graph)
    assert (op.kind, op.source_type, op.name) == ("convolution", "CONV_2D", "y")
    assert (op["kernel"], op["strides"], op["groups"], op["fused_activation"]) == ((3, 3), (2, 2), 1, "relu6")
    assert graph.parameters == 108 + 4
    # 64 outputs, each a window of 27, and a bias
    assert flops(graph) == 2 * 64 * 27 + 64


def test_a_depthwise_convolution_has_a_group_for_each_channel():
    make = Maker()
    make.does(4, (make.flows("x", 1, 8, 8, 6), make.holds("w", 1, 3, 3, 6)), (make.flows("y", 1, 8, 8, 6),),
              (2, {1: ("i", 1), 2: ("i", 1), 3: ("i", 1)}))  # fmt: skip
    graph = make.graph()
    assert only(graph)["groups"] == 6
    assert flops(graph) == 2 * 8 * 8 * 6 * 9


def test_a_transposed_convolution_takes_its_input_third():
    make = Maker()
    shape = make.holds("shape", 4, kind=I32, values=[1, 8, 8, 5])
    filters, x = make.holds("w", 5, 2, 2, 3), make.flows("x", 1, 4, 4, 3)
    make.does(67, (shape, filters, x), (make.flows("y", 1, 8, 8, 5),), (49, {1: ("i", 2), 2: ("i", 2)}))
    graph = make.graph(inputs=(2,))
    op = only(graph)
    assert (op["transposed"], op["in_channels"], op["out_channels"], op.inputs[0].name) == (True, 3, 5, "x")
    assert flops(graph) == 2 * 4 * 4 * 3 * 5 * 4


def test_a_dense_layer_sees_rows_of_its_weights_width():
    make = Maker()
    x, w, b = make.flows("x", 1, 4, 4, 2), make.holds("w", 10, 32), make.holds("b", 10)
    make.does(9, (x, w, b), (make.flows("y", 1, 10),), (8, {}))
    graph = make.graph()
    assert only(graph).kind == "linear"
    assert flops(graph) == 2 * 32 * 10 + 10


def test_weights_that_flow_make_a_dense_layer_a_product():
    make = Maker()
    make.does(9, (make.flows("x", 2, 32), make.flows("w", 10, 32), -1), (make.flows("y", 2, 10),), (8, {}))
    graph = make.graph(inputs=(0, 1))
    assert (only(graph).kind, graph.parameters) == ("matmul", 0)
    assert flops(graph) == 2 * 2 * 32 * 10


def test_narrow_weights_with_wide_activations_multiply_narrow():
    make = Maker()
    x, w = make.flows("x", 1, 32), make.holds("w", 10, 32, kind=I8, quantization=quantised(10))
    make.does(9, (x, w, -1), (make.flows("y", 1, 10),), (8, {}))
    op = only(make.graph())
    assert op["compute"] == "i8"
    assert op["quantization"] == {"w": {"scales": 10, "zero_points": 10, "axis": 0}}


def test_constants_that_are_only_unpacked_stay_as_they_are_stored():
    make = Maker()
    x, half, wide = make.flows("x", 1, 32), make.holds("half", 10, 32, kind=F16), make.flows("wide", 10, 32)
    make.does(6, (half,), (wide,))
    make.does(9, (x, wide, -1), (make.flows("y", 1, 10),), (8, {}))
    graph = make.graph()
    weight = only(graph).weights[0]
    assert (weight.name, weight.dtype, weight.nbytes) == ("half", "f16", 640)
    assert graph.metadata["unpacked_constants"] == {"DEQUANTIZE": 1}
    assert "compute" not in only(graph).attributes


def test_no_two_operators_have_the_same_name():
    """Converters begin the names of several results with the same."""
    make = Maker()
    first, second = make.flows("div;sqrt", 4), make.flows("div;sqrt1", 4)
    make.does(76, (make.flows("x", 4),), (first,))
    make.does(18, (first, first), (second,))
    make.does(0, (second, second), (make.flows("sum;relu", 4),))
    assert [op.name for _, op in make.graph(inputs=(2,)).ops()] == ["div;sqrt", "div;sqrt1", "sum"]


def test_constants_that_shape_an_op_are_no_parameters():
    make = Maker()
    make.does(22, (make.flows("x", 2, 6), make.holds("shape", 2, kind=I32, values=[3, 4])), (make.flows("y", 3, 4),))
    graph = make.graph()
    assert graph.parameters == 0
    assert [t.role for t in only(graph).inputs] == ["activation", "constant"]


def test_one_buffer_under_two_names_counts_once_and_one_name_for_two_buffers_twice():
    make = Maker()
    x, w = make.flows("x", 4, 8), make.holds("w", 4, 8)
    again = make.flows("again", 4, 8, buffer=1)
    twin = make.holds("w", 4, 8)
    for weight in (w, again, twin):
        make.does(0, (x, weight), (make.flows(f"y{weight}", 4, 8),))
    assert make.graph().parameters == 2 * 32


def test_a_table_that_ids_look_up_is_an_embedding():
    make = Maker()
    table, ids = make.holds("table", 100, 16), make.flows("ids", 1, 7, kind=I32)
    make.does(36, (table, ids), (make.flows("y", 1, 7, 16),), (23, {}))
    graph = make.graph(inputs=(1,))
    assert only(graph).kind == "embedding"
    assert graph_work(graph, Binding()).weights == 7 * 16 * 4


def lstm(make, code=44, hidden=5, width=3):
    x = make.flows("x", 1, 9, width)
    gates = [make.holds(f"w{gate}", hidden, width) for gate in range(4)]
    loops = [make.holds(f"r{gate}", hidden, hidden) for gate in range(4)]
    biases = [make.holds(f"b{gate}", hidden) for gate in range(4)]
    states = [make.flows(name, 1, hidden, variable=True) for name in ("h", "c")]
    inputs = (x, *gates, *loops, -1, -1, -1, *biases, -1, -1, *states)
    make.does(code, inputs, (make.flows("y", 1, 9, hidden),), (71, {}))


def test_a_recurrent_layer_has_its_cell_its_steps_and_its_states():
    make = Maker()
    lstm(make)
    graph = make.graph()
    op = only(graph)
    assert (op["cell"], op["hidden"], op["steps"], op["directions"]) == ("lstm", 5, 9, 1)
    assert [t.name for t in op.inputs if t.role == "state"] == ["h", "c"]
    assert graph.parameters == 4 * (5 * 3 + 5 * 5 + 5)
    assert flops(graph) == 9 * 5 * (4 * (2 * (3 + 5) + 1) + 18)


def test_svdf_is_a_dense_layer_and_a_filter_in_time():
    make = Maker()
    x, features, time = make.flows("x", 1, 10), make.holds("f", 6, 10), make.holds("t", 6, 4)
    make.does(
        27, (x, features, time, -1, make.flows("s", 1, 24, variable=True)), (make.flows("y", 1, 3),), (6, {0: ("i", 2)})
    )
    graph = make.graph()
    assert [op.kind for _, op in graph.ops()] == ["linear", "convolution", "reduce"]
    assert graph.parameters == 60 + 24
    assert flops(graph) == 2 * 6 * 10 + 2 * 6 * 4 + 6


def test_an_open_batch_is_followed_through_the_graph():
    make = Maker()
    x = make.flows("x", 1, 8, 8, 3, signature=(-1, 8, 8, 3))
    w = make.holds("w", 4, 3, 3, 3)
    conv = make.flows("conv", 1, 4, 4, 4, signature=(-1, 4, 4, 4))
    make.does(3, (x, w, -1), (conv,), (1, {1: ("i", 2), 2: ("i", 2)}))
    rows = make.flows("rows", 1, 4, signature=(-1, 4))
    make.does(22, (conv, make.holds("to", 2, kind=I32, values=[-1, 4])), (rows,))
    weights, dense = make.holds("d", 7, 4), make.flows("dense", 1, 7, signature=(-1, 7))
    make.does(9, (rows, weights, -1), (dense,), (8, {}))
    graph = make.graph()
    assert graph.symbols == {"batch"}
    assert graph.outputs[0].shape == (Symbol("batch") * 16, 7)
    assert flops(graph, batch=3) == 3 * flops(graph, batch=1)


def test_shapes_that_the_graph_computes_are_followed_by_value():
    make = Maker()
    x = make.flows("x", 1, 6, 4, signature=(-1, 6, 4))
    shape = make.flows("shape", 3, kind=I32)
    make.does(77, (x,), (shape,))
    first = make.flows("first", kind=I32)
    marks = [make.holds(name, 1, kind=I32, values=[value]) for name, value in (("b", 0), ("e", 1), ("s", 1))]
    make.does(45, (shape, *marks), (first,), (32, {4: ("i", 1)}))
    six, four = (make.holds(name, kind=I32, values=[value]) for name, value in (("six", 24), ("one", 1)))
    packed = make.flows("packed", 3, kind=I32)
    make.does(83, (first, six, four), (packed,), (59, {0: ("i", 3)}))
    make.does(22, (x, packed), (make.flows("y", 1, 1, 1, signature=(-1, -1, -1)),))
    assert make.graph().outputs[0].shape == (Symbol("batch"), 24, 1)


def test_frames_of_a_signal_are_followed():
    """A range over the frames, and a slice up to a size that varies, as the framing of a spectrogram has them."""
    make = Maker()
    x = make.flows("x", 1, signature=(-1,))
    length = make.flows("length", 1, kind=I32)
    make.does(77, (x,), (length,))
    zero, one, hop = (
        make.holds(name, kind=I32, values=[value]) for name, value in (("zero", 0), ("one", 1), ("hop", 4))
    )
    frames = make.flows("frames", 1, kind=I32)
    make.does(90, (length, hop), (frames,))
    steps = make.flows("steps", 1, kind=I32, signature=(-1,))
    make.does(96, (zero, frames, one), (steps,))
    marks = [make.holds(name, 1, kind=I32, values=[value]) for name, value in (("begin", 0), ("stride", 1))]
    make.does(45, (x, marks[0], frames, marks[1]), (make.flows("y", 1, signature=(-1,)),), (32, {}))
    graph = make.graph()
    count = Symbol("x.0") // 4
    shapes = {op.source_type: op.outputs[0].shape for _, op in graph.ops()}
    assert (shapes["RANGE"], shapes["STRIDED_SLICE"]) == ((count,), (count,))
    assert coverage(graph).share == 1


def test_sizes_of_a_transform_and_of_marks():
    make = Maker()
    x = make.flows("x", 1, 1, 512, signature=(-1, 1, 512))
    sides = make.holds("sides", 2, kind=I32, values=[1, 512])
    make.does(131, (x, sides), (make.flows("y", 1, 1, 1, signature=(-1, -1, -1)),))
    assert make.graph().outputs[0].shape == (Symbol("batch"), 1, 257)
    make = Maker()
    ids = make.flows("ids", 1, 7, kind=I32, signature=(-1, 7))
    depth, on, off = (
        make.holds(name, kind=I32, values=[value]) for name, value in (("depth", 9), ("on", 1), ("off", 0))
    )
    make.does(85, (ids, depth, on, off), (make.flows("y", 1, 1, 1, signature=(-1, -1, -1)),), (61, {0: ("i", -1)}))
    assert make.graph().outputs[0].shape == (Symbol("batch"), 7, 9)


def test_a_weight_that_is_passed_to_a_branch_is_a_weight_there():
    make = Maker()
    chosen, x = make.flows("chosen", 1, kind=6), make.flows("x", 4, 8)
    w = make.holds("w", 6, 8)
    make.does(118, (chosen, x, w), (make.flows("y", 4, 6),), (92, {0: ("i", 1), 1: ("i", 2)}))
    make.codes.append(9)
    inner = [tensor("in", (4, 8)), tensor("weights", (6, 8)), tensor("out", (4, 6))]
    branch = subgraph(inner, (0, 1), (2,), [operator(1, (0, 1, -1), (2,), (8, {}))])
    op = only(make.graph(inputs=(0, 1), others=[branch, branch]))
    assert [weight.name for weight in op.weights] == ["w"]
    assert [inner.kind for inner in op["bodies"][0]] == ["linear"]


def test_a_size_that_cannot_be_told_is_named_after_its_tensor_and_axis():
    make = Maker()
    make.does(109, (make.flows("x", 5, kind=6),), (make.flows("found", 1, 1, kind=I32, signature=(-1, 1)),))
    graph = make.graph()
    assert graph.outputs[0].shape == (Symbol("found.0"), 1)
    assert coverage(graph).share == 0


def body(name, code_at, count=1):
    tensors = [tensor(f"{name}.x", (4, 8)), tensor(f"{name}.w", (4, 8), buffer=1), tensor(f"{name}.y", (4, 8))]
    return subgraph(tensors, (0,), (2,), [operator(code_at, (0, 1), (2,))] * count, name=name)


def branching(code, options, others, extra=()):
    make = Maker()
    make.buffers.append(bytes(128))
    condition, x = make.flows("condition", kind=6), make.flows("x", 4, 8)
    make.does(code, (condition, x), (make.flows("y", 4, 8),), options)
    make.codes.append(0)
    return make.graph(inputs=(0, 1), others=others, **dict(extra))


def test_a_branch_has_a_body_each_way_and_its_weights_can_be_seen():
    graph = branching(118, (92, {0: ("i", 1), 1: ("i", 2)}), [body("then", 1), body("else", 1, count=2)])
    op = only(graph)
    assert [len(inner) for inner in op["bodies"]] == [1, 2]
    assert op["trips"] is None
    assert graph.parameters == 32
    assert flops(graph) == 2 * 32  # the costlier branch


def test_a_loop_is_uncovered_because_its_trips_are_not_in_the_file():
    graph = branching(119, (93, {0: ("i", 1), 1: ("i", 2)}), [body("condition", 1), body("body", 1)])
    assert [len(inner) for inner in only(graph)["bodies"]] == [2]
    assert coverage(graph).uncovered[0].reason == "unknown number of trips"


def test_what_runs_once_at_the_start_costs_nothing_at_each_step():
    graph = branching(129, (103, {0: ("i", 1)}), [body("start", 1)])
    assert only(graph)["trips"] == 0
    assert flops(graph) == 0
    assert graph.parameters == 32


def test_a_composite_is_its_decomposition():
    make = Maker()
    make.buffers.append(bytes(128))
    make.does(206, (make.flows("x", 4, 8),), (make.flows("y", 4, 8),), None, (21, {0: "odml.rms_norm", 1: ("i", 1)}))
    make.codes.append(0)
    graph = make.graph(others=[body("norm", 1)])
    assert only(graph)["composite"] == "odml.rms_norm"
    assert flops(graph) == 32


@pytest.mark.parametrize(
    ("first", "says"), [(0, "subgraph 0 calls itself"), (9, "names subgraph 9 of 2"), (-1, "subgraph -1")]
)
def test_bodies_that_lead_nowhere_or_round_in_a_circle_are_refused(first, says):
    with pytest.raises(FormatError, match=says):
        branching(129, (103, {0: ("i", first)}), [body("start", 1)])


def test_bodies_that_call_bodies_come_to_an_end():
    """Each of 40 subgraphs calls the next one twice: a trillion ops if they were all written out."""
    codes = [129]
    steps = [[operator(0, (), (), (103, {0: ("i", index + 1)}))] * 2 for index in range(40)]
    graphs = [subgraph([tensor("t", (1,))], (), (), own) for own in steps]
    graphs.append(subgraph([tensor("t", (1,))], (), (), []))
    with pytest.raises(FormatError, match=r"more than [\d,]+ ops|calls"):
        tflite_graph(parse_model(model(codes, graphs), Path("m")), name="m", label="m")


def test_a_chain_of_bodies_has_a_greatest_depth():
    steps = [[operator(0, (), (), (103, {0: ("i", index + 1)}))] for index in range(2000)]
    graphs = [subgraph([tensor("t", (1,))], (), (), own) for own in steps]
    with pytest.raises(FormatError, match="more than 48 deep"):
        tflite_graph(parse_model(model([129], graphs), Path("m")), name="m", label="m")


def test_variables_are_states_by_the_name_they_share():
    make = Maker()
    x = make.flows("x", 1, 8)
    handle = make.flows("handle", kind=13)
    make.does(142, (), (handle,), (111, {1: "memory"}))
    old = make.flows("old", 1, 8)
    make.does(143, (handle,), (old,))
    new = make.flows("new", 1, 8)
    make.does(0, (x, old), (new,))
    make.does(144, (handle, new), ())
    make.flows("y", 1, 8)
    graph = make.graph()
    kinds = {op.source_type: op for _, op in graph.ops()}
    assert kinds["READ_VARIABLE"].inputs[0].role == "state"
    assert kinds["READ_VARIABLE"].inputs[0].name == kinds["ASSIGN_VARIABLE"].outputs[0].name == "memory"
    work = graph_work(graph, Binding())
    # read x and the state, write the sum; read the sum, write the state
    assert (work.reads, work.writes) == (3 * 32, 2 * 32)


def test_a_custom_operator_is_uncovered_by_name():
    make = Maker()
    make.codes.append((32, "MyOp"))
    make.steps.append(operator(0, (make.flows("x", 4),), (make.flows("y", 4),)))
    graph = make.graph()
    assert (only(graph).kind, only(graph).source_type) == ("custom", "MyOp")
    assert coverage(graph).share == 0


def test_an_operator_of_a_later_schema_is_uncovered_by_number():
    make = Maker()
    make.does(9999, (make.flows("x", 4),), (make.flows("y", 4),))
    assert only(make.graph()).source_type == "BUILTIN_9999"


def test_an_operator_without_the_tensors_it_needs_is_refused():
    make = Maker()
    make.does(3, (make.flows("x", 1, 8, 8, 3),), (make.flows("y", 1, 8, 8, 3),))
    with pytest.raises(FormatError, match=r"operator 0 \(CONV_2D\) of subgraph 0 lacks tensors"):
        make.graph()
    make = Maker()
    make.does(19, (make.flows("x", 4),), ())
    with pytest.raises(FormatError, match=r"operator 0 \(RELU\) of subgraph 0 has no output"):
        make.graph()


def test_a_signature_chooses_the_subgraph():
    make = Maker()
    make.buffers.append(bytes(128))
    make.does(19, (make.flows("x", 4),), (make.flows("y", 4),))
    make.codes.append(0)
    signatures = {"prefill": 0, "decode": 1}
    first = make.graph(others=[body("decode", 1)], signatures=signatures)
    assert "1 subgraphs that 'prefill' does not reach" in first.metadata["notes"][0]
    second = make.graph(others=[body("decode", 1)], signatures=signatures, signature="decode")
    assert second.parameters == 32
    assert "1 subgraphs that 'decode' does not reach" in second.metadata["notes"][0]
    unsigned = make.graph(others=[body("decode", 1)])
    assert "1 subgraphs that 'main' does not reach" in unsigned.metadata["notes"][0], "by its own name"
    with pytest.raises(FormatError, match="no signature 'train'"):
        make.graph(signatures={"prefill": 0}, signature="train")


def test_external_weights_are_counted_from_their_shapes():
    make = Maker()
    outside = Table({**tensor("w", (10, 32)).fields, 10: ("I", 3)})
    x = make.flows("x", 1, 32)
    make.tensors.append(outside)
    make.does(9, (x, 1, -1), (make.flows("y", 1, 10),), (8, {}))
    graph = make.graph()
    assert graph.parameters == 320
    assert graph_work(graph, Binding()).weights == 1280
    assert "another file" in graph.metadata["notes"][0]

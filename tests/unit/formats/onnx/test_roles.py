"""Parameters told from constants, indices and caches from activations."""

import pytest

from inferometer.core.binding import Binding
from inferometer.predict import graph_work
from unit.formats.onnx.onnx_bytes import FLOAT, HALF, INT64, ints, node, only, ops, read, scalar, tensor, value

HIDDEN = value("x", ("batch", "query", 64))


def weights(op):
    return {weight.name: weight.role for weight in op.weights}


def test_a_product_with_a_stored_matrix_is_linear():
    graph = read([node("MatMul", "x w", "y")], [HIDDEN], ["y"], [tensor("w", (64, 10))])
    op = only(graph)
    assert (op.kind, op["contracted"], weights(op)) == ("linear", 64, {"w": "weight"})
    assert graph.parameters == 640
    assert op.weights[0].stored_bytes == 2560


def test_a_stored_matrix_on_the_left_is_linear_too():
    graph = read([node("MatMul", "w x", "y")], [HIDDEN], ["y"], [tensor("w", (3, 9))], version=17)
    assert (only(graph).kind, only(graph)["contracted"]) == ("linear", 9)
    work = graph_work(graph, Binding(sizes={"batch": 2, "query": 9}))
    assert work.flops["f32"] == 2 * 3 * 9 * 64 * 2


def test_a_product_of_two_activations_is_a_matmul():
    graph = read([node("MatMul", "x z", "y")], [HIDDEN, value("z", ("batch", 64, "query"))], ["y"])
    assert (only(graph).kind, graph.parameters) == ("matmul", 0)


def test_a_gemm_has_weight_and_bias():
    stored = [tensor("w", (10, 64)), tensor("b", (10,))]
    graph = read([node("Gemm", "x w b", "y", transB=1)], [value("x", ("batch", 64))], ["y"], stored)
    assert weights(only(graph)) == {"w": "weight", "b": "weight"}
    assert graph_work(graph, Binding(sizes={"batch": 3})).flops == {"f32": 3 * 10 * (2 * 64 + 1)}


@pytest.mark.parametrize("through", ["Transpose", "Identity", "Cast", "Unsqueeze"])
def test_a_weight_is_known_through_ops_that_leave_it_itself(through):
    more = {"Transpose": {"perm": (1, 0)}, "Cast": {"to": FLOAT}}.get(through, {})
    inputs = "w axis" if through == "Unsqueeze" else "w"
    kind = HALF if through == "Cast" else FLOAT
    nodes = [node(through, inputs, "v", **more), node("MatMul", "x v", "y")]
    axis = [ints("axis", 0)] if through == "Unsqueeze" else []
    graph = read(nodes, [HIDDEN], ["y"], [tensor("w", (64, 64), kind), *axis])
    op = only(graph)
    assert weights(op) == {"w": "weight"}
    assert op.weights[0].dtype == ("f16" if through == "Cast" else "f32")
    assert graph.metadata["coverage"]["folded"] == 1


def test_a_weight_in_a_constant_node_is_a_weight():
    nodes = [node("Constant", "", "w", value=tensor("", (64, 10))), node("MatMul", "x w", "y")]
    assert read(nodes, [HIDDEN], ["y"]).parameters == 640


def test_a_weight_that_a_node_fills_is_a_weight_of_that_shape():
    nodes = [node("ConstantOfShape", "s", "w"), node("Conv", "x w", "y")]
    graph = read(nodes, [value("x", (1, 3, 8, 8))], ["y"], [ints("s", 4, 3, 1, 1)])
    (weight,) = only(graph).weights
    assert (weight.name, weight.shape, weight.role, weight.nbytes) == ("w", (4, 3, 1, 1), "weight", 48)


def test_a_weight_computed_from_others_counts_once():
    nodes = [node("Mul", "v g", "w"), node("MatMul", "x w", "y")]
    graph = read(nodes, [HIDDEN], ["y"], [tensor("v", (64, 10)), tensor("g", (1, 10))])
    assert (weights(only(graph)), graph.parameters) == ({"w": "weight"}, 640)


def test_a_weight_that_two_ops_share_counts_once():
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a w", "y")]
    assert read(nodes, [HIDDEN], ["y"], [tensor("w", (64, 64))]).parameters == 64 * 64


def test_running_statistics_are_constants():
    stored = [tensor(name, (3,)) for name in ("s", "b", "m", "v")]
    graph = read([node("BatchNormalization", "x s b m v", "y")], [value("x", (1, 3, 4, 4))], ["y"], stored)
    assert weights(only(graph)) == {"s": "weight", "b": "weight", "m": "constant", "v": "constant"}
    assert graph.parameters == 6


def test_biases_and_scales_written_as_plain_arithmetic_are_parameters():
    nodes = [node("MatMul", "x w", "a"), node("Add", "bias a", "b"), node("Mul", "b gamma", "y")]
    stored = [tensor("w", (64, 64)), tensor("bias", (64,)), tensor("gamma", (1, 1, 64))]
    assert read(nodes, [HIDDEN], ["y"], stored).parameters == 64 * 64 + 64 + 64


def test_scalars_masks_and_the_exporters_own_constants_are_not():
    nodes = [node("Mul", "x half", "a"), node("Add", "a /Constant_output_0", "b"), node("Where", "mask b low", "y")]
    stored = [scalar("half", 0.5, FLOAT), tensor("/Constant_output_0", (64,)), scalar("low", -1e9, FLOAT)]
    graph = read(nodes, [HIDDEN, value("mask", ("batch", "query", 64), 9)], ["y"], stored)
    assert graph.parameters == 0
    assert {weight.role for op in ops(graph) for weight in op.weights} == {"constant"}


def test_a_table_of_positions_that_is_added_is_a_parameter():
    graph = read([node("Add", "x table", "y")], [HIDDEN], ["y"], [tensor("table", (1, 9, 64))])
    assert graph.parameters == 9 * 64


def test_rows_of_a_stored_table_are_an_embedding():
    ids = value("ids", ("batch", "query"), INT64)
    graph = read([node("Gather", "table ids", "y")], [ids], ["y"], [tensor("table", (1000, 64))])
    op = only(graph)
    assert (op.kind, op.inputs[0].role, graph.inputs[0].role, graph.parameters) == (
        "embedding",
        "index",
        "index",
        64_000,
    )
    assert graph_work(graph, Binding(sizes={"batch": 1, "query": 5})).weights == 5 * 64 * 4


def test_a_list_of_whole_numbers_is_no_table():
    ids = value("ids", ("batch",), INT64)
    graph = read([node("Gather", "table ids", "y")], [ids], ["y"], [ints("table", *range(9))])
    assert (only(graph).kind, graph.parameters) == ("gather", 0)


@pytest.mark.parametrize(("kind", "made"), [(FLOAT, "embedding"), (HALF, "embedding"), (INT64, "gather")])
def test_a_table_of_whole_numbers_is_looked_up_and_not_learned(kind, made):
    """Such as the places of tokens in a window, which positions are looked up by."""
    ids = value("ids", ("batch",), INT64)
    graph = read([node("Gather", "table ids", "y")], [ids], ["y"], [tensor("table", (9, 4), kind)])
    assert (only(graph).kind, graph.parameters) == (made, 36 if made == "embedding" else 0)


def test_settings_are_no_tensors_of_the_op():
    graph = read([node("Reshape", "x s", "y")], [HIDDEN], ["y"], [ints("s", 0, -1)])
    assert (only(graph).kind, only(graph).weights) == ("view", ())


def test_what_no_node_reads_takes_room_and_no_time():
    graph = read([node("Relu", "x", "y")], [HIDDEN], ["y"], [tensor("left", (5, 5))])
    assert [block.name for block in graph.blocks] == ["graph", "stored"]
    assert (graph.parameters, graph.blocks[1].ops[0].weights[0].role) == (0, "constant")


def test_ops_of_constants_alone_are_computed_once_and_no_ops():
    nodes = [node("Sqrt", "c", "r"), node("Div", "x r", "y")]
    graph = read(nodes, [HIDDEN], ["y"], [scalar("c", 64.0, FLOAT)])
    assert [op.source_type for op in ops(graph)] == ["Div"]
    assert graph.metadata["coverage"] == {"nodes": 2, "covered": 2, "share": 1.0, "folded": 1, "uncovered": {}}


def test_random_numbers_are_drawn_at_every_run():
    graph = read([node("RandomUniformLike", "c", "r"), node("Add", "x r", "y")], [HIDDEN], ["y"], [tensor("c", (64,))])
    assert [op.source_type for op in ops(graph)] == ["RandomUniformLike", "Add"]


def test_old_files_list_stored_tensors_among_the_inputs():
    listed = [HIDDEN, value("w", (64, 10))]
    graph = read([node("MatMul", "x w", "y")], listed, ["y"], [tensor("w", (64, 10))], ir=3)
    assert [entry.name for entry in graph.inputs] == ["x"]
    assert graph.parameters == 640


def test_a_state_that_goes_in_and_comes_out_is_a_state():
    stored = [tensor("w", (1, 40, 7)), tensor("r", (1, 40, 10))]
    inputs = [value("x", (5, 1, 7)), value("h", (1, 1, 10)), value("c", (1, 1, 10))]
    lstm = node("LSTM", "x w r _ _ h c", "y hn cn", hidden_size=10)
    graph = read([lstm], inputs, ["y", "hn", "cn"], stored)
    assert [entry.role for entry in graph.inputs] == ["activation", "state", "state"]
    assert [entry.role for entry in graph.outputs] == ["activation", "state", "state"]

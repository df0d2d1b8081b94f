"""Each operator becomes the op whose rule counts its work."""

from dataclasses import replace

import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol
from inferometer.core.errors import FormatError
from inferometer.core.graph import KINDS
from inferometer.formats.torch.convert import program_graph
from inferometer.formats.torch.program import HeldInput, Ref, base_name, row_of, rows
from inferometer.predict import coverage, work_of
from unit.formats.torch.programs import B, W, X, Y, body, call, program, value

BATCH = Symbol("batch")


def only(found):
    ops = [op for _, op in program_graph(found).ops()]
    assert len(ops) == 1
    return ops[0]


def flops(op):
    return work_of(op, Binding(sizes={"batch": 2})).total_flops


def test_the_table_uses_the_graphs_vocabulary():
    assert {row.kind for row in rows().values()} <= KINDS | {"none"}


def test_an_operator_in_place_is_the_one_without_the_underscore():
    assert base_name("aten.relu_.default") == "relu"
    assert base_name("aten.__and__.Tensor") == "__and__"
    assert row_of("aten.add_.Tensor").kind == "elementwise"


def test_a_linear_layer_reads_its_weight_once():
    values = {"x": value(3, 4, 5), "w": value(7, 5), "b": value(7), "y": value(3, 4, 7)}
    op = only(program([call("linear.default", "y", input=X, weight=W, bias=B)], values, weights="w b"))
    assert (op.kind, [t.name for t in op.inputs], [t.name for t in op.weights]) == ("linear", ["x"], ["w", "b"])
    assert flops(op) == 12 * 7 * (2 * 5 + 1)


def test_a_product_of_two_activations_is_a_matmul():
    values = {"x": value(2, 3, 5), "z": value(2, 5, 7), "y": value(2, 3, 7)}
    op = only(program([call("bmm.default", "y", self=X, mat2=Ref("z"))], values, inputs="x z"))
    assert op.kind == "matmul"
    assert flops(op) == 2 * 3 * 7 * 2 * 5


def test_a_weight_seen_through_a_transpose_is_still_the_weight():
    values = {"x": value(3, 5), "w": value(7, 5), "t": value(5, 7), "b": value(7), "y": value(3, 7)}
    calls = [call("t.default", "t", self=W), call("addmm.default", "y", self=B, mat1=X, mat2=Ref("t"))]
    op = only(program(calls, values, weights="w b"))
    assert (op.kind, op.weights[0].name, op.weights[0].shape) == ("linear", "w", (7, 5))
    assert flops(op) == 3 * 7 * (2 * 5 + 1)


def test_a_weight_on_the_left_is_contracted_over_its_last_axis():
    values = {"x": value(5, 3), "w": value(7, 5), "y": value(7, 3)}
    op = only(program([call("mm.default", "y", self=W, mat2=X)], values, weights="w"))
    assert (op.kind, flops(op)) == ("linear", 7 * 3 * 2 * 5)


@pytest.mark.parametrize(
    ("equation", "shape", "contracted"),
    [("bij,bkj->bik", (2, 3, 4), 5), ("...ij,...kj->...ik", (2, 3, 4), 5), ("bij, bkj -> b", (2,), 3 * 4 * 5)],
)
def test_an_equation_sums_over_the_labels_its_result_lacks(equation, shape, contracted):
    values = {"x": value(2, 3, 5), "z": value(2, 4, 5), "y": value(*shape)}
    found = call("einsum.default", "y", equation=equation, tensors=(X, Ref("z")))
    assert only(program([found], values, inputs="x z"))["contracted"] == contracted


def test_an_equation_of_three_operands_is_custom():
    values = {"x": value(2, 2), "y": value(2, 2)}
    found = call("einsum.default", "y", equation="ij,jk,kl->il", tensors=(X, X, X))
    assert only(program([found], values)).kind == "custom"


def test_a_grouped_convolution():
    values = {"x": value(1, 8, 10, 10), "w": value(8, 1, 3, 3), "y": value(1, 8, 5, 5)}
    found = call("conv2d.default", "y", input=X, weight=W, bias=None, stride=(2, 2), padding=(1, 1), groups=8)
    op = only(program([found], values, weights="w"))
    assert (op["in_channels"], op["groups"], op["strides"], op["dilations"]) == (8, 8, (2, 2), (1, 1))
    assert flops(op) == 2 * 8 * 25 * 9


def test_a_transposed_convolution_has_its_channels_the_other_way():
    values = {"x": value(1, 8, 5, 5), "w": value(8, 2, 4, 4), "y": value(1, 4, 10, 10)}
    found = call("convolution.default", "y", input=X, weight=W, bias=None, transposed=True, groups=2)
    op = only(program([found], values, weights="w"))
    assert (op["in_channels"], op["out_channels"], op["transposed"]) == (8, 4, True)
    assert flops(op) == 2 * 8 * 25 * 2 * 16


def attention(query=6, keys=6, kv_heads=2, **rest):
    values = {
        "x": value(BATCH, 4, query, 8), "k": value(BATCH, kv_heads, keys, 8), "v": value(BATCH, kv_heads, keys, 16),
        "m": value(query, keys), "y": value(BATCH, 4, query, 16),
    }  # fmt: skip
    found = call("scaled_dot_product_attention.default", "y", query=X, key=Ref("k"), value=Ref("v"), **rest)
    return only(program([found], values, inputs="x k v m"))


def test_attention_says_its_heads_and_widths():
    op = attention()
    assert (op["heads"], op["kv_heads"], op["head_dim"], op["value_dim"]) == (4, 2, 8, 16)
    assert flops(op) == 2 * 4 * 36 * (2 * 24 + 5)


def test_causal_attention_counts_each_pair_once():
    assert flops(attention(is_causal=True)) == 2 * 4 * 21 * (2 * 24 + 5)


def test_a_mask_is_data_and_all_pairs_are_computed():
    op = attention(attn_mask=Ref("m"))
    assert op["masked"]
    assert [tensor.name for tensor in op.inputs] == ["x", "k", "v", "m"]
    assert flops(op) == 2 * 4 * 36 * (2 * 24 + 5)


def test_more_keys_than_queries_are_met_by_every_query():
    assert flops(attention(query=2, keys=9)) == 2 * 4 * 18 * (2 * 24 + 5)


@pytest.mark.parametrize(
    ("strides", "kind"), [((15, 5, 1), "view"), ((1, 2, 6), "copy"), (None, "view"), ((15, 1, 3), "copy")]
)
def test_a_reshape_copies_only_where_the_numbers_do_not_lie_in_order(strides, kind):
    values = {"x": value(2, 3, 5, strides=strides), "y": value(6, 5)}
    assert only(program([call("reshape.default", "y", self=X, shape=(6, 5))], values)).kind == kind


def test_contiguous_is_free_where_it_already_is():
    values = {"x": value(2, 3), "t": value(2, 3, strides=(1, 2)), "y": value(2, 3), "z": value(2, 3)}
    calls = [call("contiguous.default", "y", self=X), call("contiguous.default", "z", self=Ref("t"))]
    ops = [op.kind for _, op in program_graph(program(calls, values, inputs="x t", outputs="y z")).ops()]
    assert ops == ["view", "copy"]


def test_a_cast_to_the_same_format_is_free():
    values = {"x": value(4), "y": value(4), "z": value(4, dtype="bf16")}
    calls = [call("to.dtype", "y", self=X), call("to.dtype", "z", self=X)]
    assert [op.kind for _, op in program_graph(program(calls, values, outputs="y z")).ops()] == ["view", "cast"]


def test_dropout_does_nothing_except_in_training():
    values = {"x": value(4), "y": value(4)}
    assert only(program([call("dropout.default", "y", input=X, p=0.1, train=False)], values)).kind == "view"
    assert only(program([call("dropout.default", "y", input=X, p=0.1, train=True)], values)).kind == "elementwise"


def test_a_weight_used_in_pieces_is_as_many_weights():
    values = {
        "x": value(3, 4),
        "w": value(8, 4),
        "p": value(4, 4),
        "q": value(4, 4),
        "y": value(3, 4),
        "z": value(3, 4),
    }
    calls = [
        call("split.Tensor", "p q", self=W, split_size=4),
        call("linear.default", "y", input=X, weight=Ref("p")),
        call("linear.default", "z", input=X, weight=Ref("q")),
    ]
    graph = program_graph(program(calls, values, weights="w", outputs="y z"))
    assert [op.weights[0].name for _, op in graph.ops()] == ["w[0]", "w[1]"]
    assert graph.parameters == 32


def test_a_part_of_a_weight_leaves_the_weight_whole():
    values = {"x": value(1, 3, 4), "w": value(1, 9, 4), "s": value(1, 3, 4), "y": value(1, 3, 4)}
    calls = [call("slice.Tensor", "s", self=W, dim=1, end=3), call("add.Tensor", "y", self=X, other=Ref("s"))]
    graph = program_graph(program(calls, values, weights="w"))
    assert [op.kind for _, op in graph.ops()] == ["view", "elementwise"]
    assert graph.parameters == 36


def test_a_parameter_that_nothing_uses_is_counted():
    values = {"x": value(4), "w": value(4), "b": value(5), "y": value(4)}
    graph = program_graph(program([call("mul.Tensor", "y", self=X, other=W)], values, weights="w b"))
    assert graph.parameters == 9
    assert graph.blocks[-1].name == "stored"


def test_an_embedding_gathers_rows_of_its_table():
    values = {"x": value(2, 3, dtype="i64"), "w": value(100, 8), "y": value(2, 3, 8)}
    op = only(program([call("embedding.default", "y", weight=W, indices=X)], values, weights="w"))
    assert (op.kind, op.inputs[0].role) == ("embedding", "index")
    assert work_of(op, Binding()).weights == 6 * 8 * 4


def test_max_of_two_tensors_compares_and_of_one_reduces():
    values = {"x": value(4, 5), "y": value(4, 5), "z": value(4), "i": value(4, dtype="i64")}
    calls = [call("max.other", "y", self=X, other=X), call("max.dim", "z i", self=X, dim=1)]
    ops = [op.kind for _, op in program_graph(program(calls, values, outputs="y z")).ops()]
    assert ops == ["elementwise", "reduce"]


def test_adaptive_pools_say_the_windows_they_need():
    values = {"x": value(1, 2, 8, 6), "y": value(1, 2, 4, 3), "z": value(1, 2, 1, 1)}
    calls = [
        call("adaptive_avg_pool2d.default", "y", self=X, output_size=(4, 3)),
        call("adaptive_avg_pool2d.default", "z", self=X, output_size=(1, 1)),
    ]
    first, second = (op for _, op in program_graph(program(calls, values, outputs="y z")).ops())
    assert (first["kernel"], second["function"]) == ((2, 2), "global")


def test_a_quantised_weight_stays_as_it_is_stored():
    values = {
        "x": value(3, 4), "w": value(8, 4, dtype="i8"), "s": value(8), "z": value(8, dtype="i8"), "d": value(8, 4),
        "y": value(3, 8),
    }  # fmt: skip
    calls = [
        call(
            "quantized_decomposed.dequantize_per_channel.default", "d", input=W, scales=Ref("s"), zero_points=Ref("z")
        ),
        call("linear.default", "y", input=X, weight=Ref("d")),
    ]
    op = only(program(calls, values, buffers="w s z"))
    assert (op.weights[0].name, op.weights[0].dtype, op.weights[0].role) == ("w", "i8", "constant")
    assert work_of(op, Binding()).weights == 32 + 8 * 4 + 8


def test_a_changed_buffer_that_no_product_reads_is_a_state():
    values = {"x": value(4), "b": value(4), "m": value(4), "y": value(4), "c": value(4)}
    calls = [
        call("mul.Tensor", "m", self=B, other=X),
        call("add.Tensor", "y", self=Ref("m"), other=X),
        call("copy_.default", "c", self=B, src=Y),
    ]
    graph = program_graph(program(calls, values, buffers="b"))
    roles = {tensor.role for _, op in graph.ops() for tensor in (*op.inputs, *op.outputs) if tensor.name == "b"}
    assert roles == {"state"}
    written = sum(work_of(op, Binding()).writes for _, op in graph.ops())
    assert written == 3 * 16  # the product, the sum, and the state once


def test_a_buffer_that_is_filled_is_written_once():
    values = {"x": value(4), "b": value(6), "c": value(6), "y": value(4)}
    calls = [call("zero_.default", "c", self=B), call("relu.default", "y", self=X)]
    fill, _ = (op for _, op in program_graph(program(calls, values, buffers="b")).ops())
    assert (fill.outputs[0].name, fill.outputs[0].role) == ("b", "state")
    assert work_of(fill, Binding()).writes == 6 * 4


def test_a_buffer_called_like_a_call_keeps_its_name():
    values = {"x": value(2, 4), "relu": value(2, 4), "b": value(4, 4), "n": value(4, 4), "y": value(2, 4)}
    calls = [
        call("relu.default", "relu", path="act", self=X),
        call("copy_.default", "n", self=B, src=Ref("relu")),
        call("mm.default", "y", self=X, mat2=B),
    ]
    found = replace(program(calls, values, buffers="b"), held={"b": HeldInput(name="relu", role="constant")})
    names = {tensor.name for _, op in program_graph(found).ops() for tensor in op.inputs if tensor.role == "kv"}
    assert names == {"relu"}


def test_a_functional_cache_is_written_in_place():
    values = {"x": value(1, 2, 4), "b": value(1, 9, 4), "n": value(1, 9, 4), "y": value(1, 2, 9)}
    calls = [
        call("slice_scatter.default", "n", self=B, src=X, dim=1, start=0, end=2),
        call("bmm.default", "y", self=X, mat2=Ref("n")),
    ]
    write, read = (op for _, op in program_graph(program(calls, values, buffers="b", mutated="b")).ops())
    assert write["in_place"]
    assert work_of(write, Binding()).writes == 2 * 4 * 4
    assert work_of(read, Binding()).kv_reads == 9 * 4 * 4


def test_a_loop_runs_its_body_for_each_entry():
    inner = body("i w", "o", [call("mm.default", "o", self=Ref("i"), mat2=W)],
                 {"i": value(2, 3), "w": value(3, 3), "o": value(2, 3)})  # fmt: skip
    values = {"x": value(7, 2, 3), "w": value(3, 3), "y": value(7, 2, 3)}
    found = call("higher_order.map_impl", "y", f=inner, xs=(X,), args=(W,))
    graph = program_graph(program([found], values, weights="w"))
    op = graph.blocks[0].ops[0]
    assert (op.kind, op["trips"]) == ("control", 7)
    assert flops(op) == 7 * 2 * 3 * 2 * 3
    assert graph.parameters == 9


def test_a_while_loop_is_not_covered():
    step = body("i", "o", [call("add.Tensor", "o", self=Ref("i"))], {"i": value(2), "o": value(2)})
    values = {"x": value(2), "y": value(2)}
    found = call("higher_order.while_loop", "y", cond=step, body=step, carried=(X,), extra=())
    assert coverage(program_graph(program([found], values))).uncovered[0].reason == "unknown number of trips"


def test_a_region_without_gradients_is_as_if_it_were_not_there():
    inner = body("i", "o", [call("relu.default", "o", self=Ref("i"))], {"i": value(2), "o": value(2)})
    values = {"x": value(2), "g": value(2), "y": value(2)}
    calls = [
        call("higher_order.wrap_with_set_grad_enabled", "g", enabled=False, body=inner, first=X),
        call("neg.default", "y", self=Ref("g")),
    ]
    assert [op.kind for _, op in program_graph(program(calls, values)).ops()] == ["activation", "elementwise"]


def test_a_function_that_is_given_too_little_is_an_error():
    inner = body("i j", "i", [], {"i": value(2), "j": value(2)})
    found = call("higher_order.cond", "y", pred=X, yes=inner, no=inner, operands=(X,))
    with pytest.raises(FormatError, match="a function of 2 tensors and gives 1"):
        program_graph(program([found], {"x": value(2), "y": value(2)}))


def test_sizes_that_only_the_data_tells_are_reported():
    values = {"x": value(4), "y": value(Symbol("u0"), 1, dtype="i64")}
    graph = program_graph(program([call("nonzero.default", "y", self=X)], values))
    assert coverage(graph).uncovered[0].reason == "unknown size: u0"


def test_questions_about_sizes_are_no_ops():
    values = {"x": value(4), "y": value(4)}
    calls = [
        call("sym_size.int", "", self=X, dim=0),
        call("_assert_tensor_metadata.default", "", a=X),
        call("relu.default", "y", self=X),
    ]
    assert [op.kind for _, op in program_graph(program(calls, values)).ops()] == ["activation"]

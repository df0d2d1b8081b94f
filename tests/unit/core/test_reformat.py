"""A file's numbers in other formats, for what-ifs."""

from dataclasses import replace

import pytest

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.reformat import stored_in, with_formats


def graph():
    x, y = (Tensor(name=name, shape=(1, 4), dtype="f32") for name in "xy")
    ids = Tensor(name="ids", shape=(1,), dtype="i64")
    weight = Tensor(name="w", shape=(4, 4), dtype="f32", role="weight", stored_bytes=64)
    bias = Tensor(name="b", shape=(4,), dtype="f32", role="weight")
    ops = (
        Op(name="product", kind="linear", inputs=(x,), outputs=(y,), weights=(weight, bias)),
        Op(name="scale", kind="norm", inputs=(y, ids), outputs=(x,), weights=(weight,)),
    )
    return Graph(name="g", blocks=(Block(name="b", ops=ops),))


def test_multiplied_matrices_and_activations_change_and_biases_norms_and_whole_numbers_do_not():
    before = graph()
    product, scale = with_formats(before, weights="i8", activations="i8").blocks[0].ops
    assert [tensor.dtype for tensor in product.weights] == ["i8", "f32"]
    assert product.weights[0].nbytes == 16
    assert [tensor.dtype for tensor in (*product.inputs, *product.outputs, *scale.inputs)] == ["i8", "i8", "i8", "i64"]
    assert scale.weights[0].dtype == "f32"
    assert with_formats(before, weights="i8") is with_formats(before, weights="int8")


def test_activations_that_are_quantised_while_it_runs_are_so_for_some_kinds_of_op_and_only_where_they_are_read():
    before = graph()
    product, scale = with_formats(before, weights="i8", dynamic="i8", kinds=frozenset({"linear"})).blocks[0].ops
    assert (product.inputs[0].dtype, product.outputs[0].dtype, scale.inputs[0].dtype) == ("i8", "f32", "f32")
    (product, _) = with_formats(before, weights="i8", dynamic="i8").blocks[0].ops
    assert (product.weights[0].dtype, product.inputs[0].dtype) == ("i8", "f32")


def test_convolutions_in_groups_are_a_kind_of_their_own_among_those_that_are_quantised_while_it_runs():
    x = Tensor(name="x", shape=(1, 4, 8, 8), dtype="f32")
    ops = tuple(
        Op(name=f"g{groups}", kind="convolution", inputs=(x,), outputs=(x,), attributes={"groups": groups})
        for groups in (1, 4)
    )
    before = Graph(name="g", blocks=(Block(name="b", ops=ops),))
    some, every = (
        with_formats(before, dynamic="i8", kinds=frozenset(kinds)).blocks[0].ops
        for kinds in (("convolution",), ("convolution", "convolution:grouped"))
    )
    assert [(op.inputs[0].dtype, op.get("gathered")) for op in some] == [("i8", True), ("f32", None)]
    assert [op.inputs[0].dtype for op in every] == ["i8", "i8"]


def test_a_format_that_is_no_narrower_leaves_the_graph_as_it_is():
    before = graph()
    assert with_formats(before, weights="f32", activations="f32") is before


def test_a_tool_that_quantises_one_kind_of_op_leaves_the_others():
    before = graph()
    (product, _) = (
        with_formats(before, weights="i8", dynamic="i8", kinds=frozenset({"linear"}), only="linear").blocks[0].ops
    )
    assert (product.weights[0].dtype, product.inputs[0].dtype) == ("i8", "i8")
    other = with_formats(before, weights="i8", dynamic="i8", kinds=frozenset({"linear"}), only="convolution")
    assert other is before


def test_numbers_without_a_format_get_one_only_where_formats_are_named():
    weight = Tensor(name="w", shape=(4, 4), role="weight")
    x = Tensor(name="x", shape=(1, 4))
    ops = (Op(name="product", kind="linear", inputs=(x,), outputs=(x,), weights=(weight,)),)
    before = Graph(name="g", blocks=(Block(name="b", ops=ops),))
    assert with_formats(before, weights="i8", activations="i8") is before
    (product,) = with_formats(before, weights="i8", activations="i8", named=True).blocks[0].ops
    assert (product.weights[0].dtype, product.inputs[0].dtype, product.outputs[0].dtype) == ("i8", "i8", "i8")


@pytest.mark.parametrize(("stated", "becomes"), [("f8e4m3", "i4"), ("i4", "i4"), ("f16", "f16"), ("f32", "f32")])
@pytest.mark.parametrize(("source", "is_stated"), [(None, True), ("config", True), ("gguf", False), ("onnx", False)])
def test_what_a_config_states_in_few_bits_may_be_another_checkpoint_and_a_file_has_what_it_has(
    stated, becomes, source, is_stated
):
    weight = Tensor(name="w", shape=(4, 4), dtype=stated, role="weight")
    x = Tensor(name="x", shape=(1, 4), dtype=stated)
    ops = (Op(name="product", kind="linear", inputs=(x,), outputs=(x,), weights=(weight,)),)
    before = replace(Graph(name="g", blocks=(Block(name="b", ops=ops),)), metadata={"format": source} if source else {})
    (op,) = stored_in(before, "i4").blocks[0].ops
    assert op.weights[0].dtype == (becomes if is_stated else stated)
    assert op.inputs == (x,)  # activations are not stored
    assert stored_in(before, None) is before


def test_a_convolution_whose_result_is_joined_with_others_says_so_where_all_is_in_eight_bits():
    def plane(name, **more):
        return Tensor(name=name, shape=(1, 4, 8, 8), dtype="f32", **more)

    def op(kind, reads, makes):
        return Op(name=makes, kind=kind, inputs=tuple(map(plane, reads)), outputs=(plane(makes),))

    sizes = plane("sizes", role="index")
    ops = (
        op("convolution", ["x"], "at_once"), op("convolution", ["x"], "behind"), op("activation", ["behind"], "active"),
        op("norm", ["at_once"], "normed"), op("convolution", ["x"], "deep"), op("pool", ["deep"], "pooled"),
        op("copy", ["at_once", "active", "pooled"], "joined"),
        op("convolution", ["joined"], "alone"), op("copy", ["alone"], "moved"),
        op("convolution", ["joined"], "cut"), replace(op("copy", ["cut"], "part"), inputs=(plane("cut"), sizes)),
        op("convolution", ["joined"], "last"), op("activation", ["last"], "end"),
        Op(name="two", kind="convolution", outputs=(plane("left"), plane("right"))),
        op("copy", ["right", "end"], "wide"),
    )  # fmt: skip
    before = Graph(name="g", blocks=(Block(name="b", ops=ops),))

    def joined(**formats):
        return [op.name for op in with_formats(before, **formats).blocks[0].ops if op.get("joined")]

    assert joined(weights="i8", activations="i8") == ["at_once", "behind", "last", "two"]
    for other in ({"weights": "i8"}, {"activations": "i8"}, {"weights": "i4", "activations": "i4"}):
        assert joined(**other) == []

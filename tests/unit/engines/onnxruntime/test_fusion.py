"""From kernels back to nodes: graphs by hand, in the shapes the engine's optimiser makes of them."""

import pytest

from inferometer.engines.onnx_nodes import NodeRow, Topology
from inferometer.engines.onnxruntime.fusion import map_fusion, map_layout, needs_layout_step
from inferometer.engines.onnxruntime.recorder import NodeTime, printed_names


def node(name, kind, inputs, outputs, **more):
    flow = {"inputs": tuple(inputs.split()), "outputs": tuple(outputs.split())}
    return NodeRow(**{"name": name, "engine_name": name, "printed": name, "kind": kind, **flow, **more})


def graph(*nodes, stored=""):
    return Topology(nodes=nodes, inputs=("x",), outputs=("y",), stored=dict.fromkeys(stored.split(), 4.0))


CONV_BN_RELU = graph(
    node("conv", "Conv", "x w", "a"),
    node("bn", "BatchNormalization", "a s b m v", "c"),
    node("relu", "Relu", "c", "y"),
    stored="w s b m v",
)


def test_a_chain_that_became_one_node_is_all_in_it():
    fused = graph(node("conv", "FusedConv", "x w2 b2", "y"), stored="w2 b2")
    found = map_fusion(CONV_BN_RELU, fused)
    assert found.layers == {"conv": ("conv", "bn", "relu")}


def test_a_graph_that_was_left_alone_maps_to_itself():
    found = map_fusion(CONV_BN_RELU, CONV_BN_RELU)
    assert found.layers == {"conv": ("conv",), "bn": ("bn",), "relu": ("relu",)}


def test_a_node_that_was_copied_under_another_name_is_still_that_node():
    before = graph(node("conv", "Conv", "x w", "y"), stored="w")
    after = graph(
        node("in", "Transpose", "x", "t"), node("conv_token_115", "QLinearConv", "t w", "conv"),
        node("out", "Transpose", "conv", "y"), stored="w",
    )  # fmt: skip
    assert map_layout(before, after, map_fusion(before, before)).layers["conv_token_115"] == ("conv",)


def test_nameless_nodes_are_found_by_what_ran_before_them():
    """The first `Mul` lies in a branch that was not taken."""
    optimised = graph(
        node("if", "If", "x", "a"), node("then", "Mul", "x", "b", printed=""), node("conv", "Conv", "a", "c"),
        node("swish", "Mul", "c", "y", printed=""),
    )  # fmt: skip
    names = ("if", "If"), ("conv", "Conv"), ("Mul_571", "Mul"), ("Frob_3", "Mul")
    ran = [NodeTime(name=name, kind=kind, provider="", seconds=0.0, bytes=0.0) for name, kind in names]
    assert printed_names(optimised, ran) == {
        (None, "if"): "if", (None, "conv"): "conv", (None, "Mul_571"): "swish",
    }  # fmt: skip


def test_nodes_of_one_name_in_two_loops_are_told_apart_by_the_loop():
    optimised = graph(
        node("one", "Loop", "x", "a"), node("one/gemm", "Gemm", "x", "b", printed="gemm", inside="one"),
        node("two", "Loop", "a", "y"), node("two/gemm", "Gemm", "a", "c", printed="gemm", inside="two"),
    )  # fmt: skip
    shared = {"kind": "Gemm", "provider": "", "seconds": 0.0, "bytes": 0.0}
    ran = [NodeTime(name="gemm", inside=inside, **shared) for inside in ("one", "two")]
    assert printed_names(optimised, ran) == {("one", "gemm"): "one/gemm", ("two", "gemm"): "two/gemm"}


def test_a_layer_norm_in_many_nodes_is_in_the_one_it_became():
    names = "ReduceMean Sub Pow ReduceMean2 Add Sqrt Div Mul Add2".split()
    original = graph(
        node("ReduceMean", "ReduceMean", "x", "m"),
        node("Sub", "Sub", "x m", "d"),
        node("Pow", "Pow", "d two", "p"),
        node("ReduceMean2", "ReduceMean", "p", "q"),
        node("Add", "Add", "q eps", "r"),
        node("Sqrt", "Sqrt", "r", "t"),
        node("Div", "Div", "d t", "u"),
        node("Mul", "Mul", "u g", "v"),
        node("Add2", "Add", "v b", "y"),
        stored="two eps g b",
    )
    fused = graph(node("Mul/LayerNormFusion/", "LayerNormalization", "x g b", "y"), stored="g b")
    assert map_fusion(original, fused).layers == {"Mul/LayerNormFusion/": tuple(names)}


def test_what_depends_on_stored_tensors_alone_was_folded():
    original = graph(
        node("c", "Constant", "", "shape"),
        node("fill", "ConstantOfShape", "shape", "w"),
        node("add", "Add", "x w", "y"),
    )
    found = map_fusion(original, graph(node("add", "Add", "x w", "y"), stored="w"))
    assert found.layers == {"add": ("add",)}


def test_a_shape_of_a_fixed_size_was_folded_with_what_led_to_it():
    original = graph(
        node("shape", "Shape", "x", "s"),
        node("gather", "Gather", "s i", "n"),
        node("reshape", "Reshape", "x n", "y"),
        stored="i",
    )
    found = map_fusion(original, graph(node("reshape", "Reshape", "x n", "y"), stored="n"))
    assert found.layers == {"reshape": ("reshape",)}


def test_a_dropout_is_gone_and_no_layer_of_what_follows():
    original = graph(node("drop", "Dropout", "x", "d"), node("relu", "Relu", "d", "y"))
    found = map_fusion(original, graph(node("relu", "Relu", "x", "y")))
    assert found.layers == {"relu": ("relu",)}


def test_of_two_nodes_that_do_the_same_the_one_that_is_not_run_is_gone():
    original = graph(
        node("a", "Exp", "x", "p"),
        node("b", "Exp", "x", "q"),
        node("f", "Relu", "p", "r"),
        node("g", "Mul", "r q", "y"),
    )
    found = map_fusion(
        original, graph(node("a", "Exp", "x", "p"), node("f", "Relu", "p", "r"), node("g", "Mul", "r p", "y"))
    )
    assert found.layers == {"a": ("a",), "f": ("f",), "g": ("g",)}


def test_a_node_the_engine_made_stands_for_none():
    optimised = graph(node("cast", "Cast", "x", "x16"), node("relu", "Relu", "x16", "y"))
    found = map_fusion(graph(node("relu", "Relu", "x", "y")), optimised)
    assert found.layers == {"cast": (), "relu": ("relu",)}


# A residual block of ResNet-50 as the engine lays it out: tensors renamed, Add and Relu within the last Conv
BEFORE = graph(
    node("c1", "Conv", "x w1", "r1"),
    node("c2", "Conv", "x w2", "r2"),
    node("add", "Add", "r1 r2", "r3"),
    node("relu", "Relu", "r3", "y"),
    stored="w1 w2",
)
AFTER = graph(
    node("ReorderInput", "ReorderInput", "x", "t0", domain="com.microsoft.nchwc"),
    node("r2_nchwc", "Conv", "t0 w2", "t1", domain="com.microsoft.nchwc"),
    node("r1_nchwc", "Conv", "t0 w1 t1", "t2", domain="com.microsoft.nchwc"),
    node("ReorderOutput", "ReorderOutput", "t2", "y", domain="com.microsoft.nchwc"),
    stored="w1 w2",
)


def test_in_another_layout_what_vanished_is_in_the_kernel_that_ran_last():
    found = map_layout(BEFORE, AFTER, map_fusion(BEFORE, BEFORE))
    assert found.layers == {
        "ReorderInput": (), "r2_nchwc": ("c2",), "r1_nchwc": ("c1", "add", "relu"), "ReorderOutput": (),
    }  # fmt: skip


def test_a_norm_that_became_a_convolution_is_known_by_its_result():
    before = graph(node("norm", "BatchNormalization", "x s", "r8"), node("relu", "Relu", "r8", "y"), stored="s")
    after = graph(node("r8_bn_nchwc", "Conv", "x s", "t"), node("ReorderOutput", "ReorderOutput", "t", "y"), stored="s")
    assert map_layout(before, after, map_fusion(before, before)).layers["r8_bn_nchwc"] == ("norm", "relu")


def test_only_a_graph_with_another_layout_needs_that_step():
    assert needs_layout_step(AFTER)
    assert not needs_layout_step(BEFORE)


@pytest.mark.parametrize("optimised", [CONV_BN_RELU, graph(node("k", "FusedConv", "x w", "y"), stored="w")])
def test_nothing_is_lost_and_nothing_counted_twice(optimised):
    found = map_fusion(CONV_BN_RELU, optimised)
    layers = [name for names in found.layers.values() for name in names]
    assert sorted(layers) == sorted(each.name for each in CONV_BN_RELU.nodes)

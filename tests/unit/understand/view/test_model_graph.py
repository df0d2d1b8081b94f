"""Which boxes a model's graph is folded into, and which rows of a run their times are in."""

from dataclasses import replace

from inferometer import predict
from inferometer.core.profile import OpTime
from inferometer.core.request import distinct_ops
from inferometer.core.structure import Structure, StructureBlock
from inferometer.understand.view.model_graph import model_graph
from unit.hub.web.samples import network


def of(names, *, rows=None, blocks=None):
    """The graph of a run with these layers, in a chain, and with these rows."""
    rows = [OpTime(name=name, kind="linear", time_s=1e-3) for name in names] if rows is None else rows
    profile = network(1)
    forward = replace(profile.phases[-1], ops=tuple(rows))
    structure = Structure(
        names=tuple(names),
        kinds=("linear",) * len(names),
        blocks=blocks or (StructureBlock(name="all", ops=len(names)),),
        edges=tuple((at, at + 1, 1.0) for at in range(len(names) - 1)),
    )
    return model_graph(replace(profile, phases=(*profile.phases[:-1], forward), structure=structure))


def folds(graph):
    return [(fold["title"], fold["count"], fold["size"]) for fold in graph["folds"]]


def test_parts_with_the_same_layers_fold_into_one_and_others_stay_apart():
    names = ["stem", "layers.0.a", "layers.0.b", "layers.1.a", "layers.1.b", "layers.2.a", "layers.2.c", "head"]
    graph = of(names)
    assert folds(graph) == [("layers.0 – 1", 2, 2), ("layers.2", 1, 2)]
    assert graph["fold"] == [-1, 0, 0, 0, 0, 1, 1, -1]
    assert graph["place"] == [0, 0, 1, 0, 1, 0, 1, 0]


def test_names_of_onnx_nodes_fold_too_and_a_number_at_the_end_is_no_part():
    assert folds(of(["/enc/layer.0/MatMul", "/enc/layer.0/Add", "/enc/layer.1/MatMul", "/enc/layer.1/Add"])) == [
        ("enc/layer.0 – 1", 2, 2)
    ]
    assert folds(of(["Conv_0", "Relu_1", "Conv_2", "Relu_3"])) == []


def test_a_part_that_another_layer_interrupts_is_two_parts():
    graph = of(["layers.0.a", "layers.0.b", "between", "layers.1.a", "layers.1.b"])
    assert folds(graph) == [("layers.0", 1, 2), ("layers.1", 1, 2)]


def test_a_row_for_many_equal_layers_is_shared_by_them_and_its_time_counts_once():
    profile = predict("llama-3.1-8b", on="nvidia-h100-sxm")
    graph = model_graph(profile)
    assert folds(graph) == [("decoder", 32, 15)]
    parts = {}
    for _, row, part in graph["links"]:
        parts[row] = parts.get(row, 0.0) + part
    assert all(abs(whole - 1) < 1e-9 for whole in parts.values())


def test_products_that_a_prediction_joins_stand_at_the_first_and_none_of_the_time_is_lost():
    profile = predict("llama-3.1-8b", on="nvidia-h100-sxm")
    graph = model_graph(profile)
    rows = [op.name for op in distinct_ops(profile.phases).values()]
    joined = rows.index("layers.0.mlp.gate_proj+up_proj")
    at = {graph["name"][layer]: part for layer, row, part in graph["links"] if row == joined}
    assert (at["layers.0.mlp.gate_proj"], at["layers.31.mlp.gate_proj"], at["layers.31.mlp.up_proj"]) == (
        1 / 32,
        1 / 32,
        0,
    )
    linked = {row for _, row, _ in graph["links"]}
    times = [op.time_s for op in distinct_ops(profile.phases).values()]
    assert sum(time for row, time in enumerate(times) if row not in linked) < 1e-3 * sum(times)


def test_a_fused_row_stands_at_its_layer_and_those_that_ran_in_it_have_none_of_its_time():
    row = OpTime(name="conv", kind="convolution", time_s=1e-3, layers=("conv", "relu"))
    graph = of(["conv", "relu"], rows=[row])
    assert graph["links"] == [(0, 0, 1.0), (1, 0, 0.0)]


def test_an_engines_own_work_stands_at_the_layer_it_is_for_and_what_has_none_is_counted():
    rows = [OpTime(name="conv/ReorderInput", kind="copy", time_s=1e-4), OpTime(name="memcpy", kind="copy", time_s=1e-4)]
    graph = of(["conv"], rows=rows)
    assert (graph["links"], graph["left"]) == ([(0, 0, 1.0)], 1)


def test_a_run_without_structure_or_catalog_row_has_its_rows_in_order():
    graph = model_graph(network(8))
    assert graph["edges"][:2] == ((0, 1, None), (1, 2, None))
    assert "order of execution" in graph["note"]

"""A graph's weights are those of the checkpoint: the same names, the same shapes, nothing more, nothing less.

The truth was recorded from the libraries themselves (see tests/data/huggingface/record.py): for a tiny model of each
family the names and shapes in the safetensors file that the library saves, and the config.json it saves with it.
"""

import json
from math import prod
from pathlib import Path

from fakes.every import every
from inferometer.core.graph import Graph
from inferometer.formats.huggingface.graph import graph_from_config

FOLDER = Path(__file__).parents[3] / "data" / "huggingface"
CASES = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "cases")
# transformers holds the router's correction bias as a buffer; DeepSeek's own code and count have it as a parameter.
COUNTED_BUFFERS = "e_score_correction_bias"


def recorded(case):
    return json.loads((FOLDER / f"{case}.json").read_text())


def stored_tensors(graph: Graph) -> dict[str, tuple[list[int], str]]:
    """Every tensor of the checkpoint, each layer's and each expert's on its own, with its role."""
    found = {}
    for block, op in graph.ops():
        for tensor in op.weights:
            for repetition in range(block.count if "{}" in tensor.name else 1):
                name = block.full_name(tensor.name, repetition)
                if "*" in name:
                    for expert in range(tensor.shape[0]):
                        found[name.replace("*", str(expert))] = (list(tensor.shape[1:]), tensor.role)
                else:
                    assert found.setdefault(name, (list(tensor.shape), tensor.role))[0] == list(tensor.shape)
    return found


@every(CASES)
def test_weights_have_the_checkpoints_names_and_shapes(case):
    truth = recorded(case)
    found = stored_tensors(graph_from_config(truth["config"], name=case))
    expected = {**truth["parameters"], **truth["buffers"]}
    assert {name: shape for name, (shape, _) in found.items()} == expected


@every(CASES)
def test_parameters_are_told_from_buffers(case):
    truth = recorded(case)
    graph = graph_from_config(truth["config"], name=case)
    constants = {name for name, (_, role) in stored_tensors(graph).items() if role == "constant"}
    counted = {name for name in truth["buffers"] if name.endswith(COUNTED_BUFFERS)}
    assert constants == set(truth["buffers"]) - counted
    assert graph.parameters == truth["parameter_count"] + sum(prod(truth["buffers"][name]) for name in counted)


@every(CASES)
def test_the_config_that_the_library_saves_gives_the_same_graph(case):
    truth = recorded(case)
    graph = graph_from_config(truth["config"], name=case)
    for saved in (truth["saved_config"], *truth["other_configs"].values()):
        again = graph_from_config(saved, name=case)
        assert again.blocks == graph.blocks
        assert again.precision in {"f32", None}


@every(CASES)
def test_what_an_op_reads_was_made_before_it(case):
    """Names are unique, every input is an input of the graph or an earlier op's output, and sizes agree."""
    graph = graph_from_config(recorded(case)["config"], name=case)
    assert_runs(graph)


def assert_runs(graph: Graph) -> None:
    from inferometer.core.dims import evaluate, product

    sizes = {"batch": 3, "query": 5, "context": 7, "logits": 2, "image": 448, "frames": 200, "encoder": 11}
    made = {tensor.name: evaluate(product(tensor.shape), sizes) for tensor in graph.inputs}
    names = set()
    for block in graph.blocks:
        for repetition in range(min(block.count, 3)):
            for op in block.ops:
                full = block.full_name(op.name, repetition)
                assert full not in names
                names.add(full)
                for tensor in op.inputs:
                    if tensor.role not in {"index", "state"}:
                        read = block.full_name(tensor.name, repetition)
                        assert made.get(read) == evaluate(product(tensor.shape), sizes), (full, read)
                for tensor in op.outputs:
                    made[block.full_name(tensor.name, repetition)] = evaluate(product(tensor.shape), sizes)
    assert all(tensor.name in made for tensor in graph.outputs)

"""Which nodes an executed operation computes: rules on small graphs, and what OpenVINO executes on arm64, recorded.

`tests/data/openvino-arm64/record.py` wrote the recordings, with OpenVINO for aarch64 under qemu-user: times in them
only tell heavy kernels from light ones.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from inferometer.engines.onnx_nodes import NodeRow, Topology
from inferometer.engines.openvino.adopt import kernel_roles, known_names
from inferometer.engines.openvino.executed import Executed

DATA = Path(__file__).parents[3] / "data" / "openvino-arm64"
RECORDED = ("shufflenet", "ocr-cls", "mobilenet-v3")


def node(name, kind, inputs, outputs):
    return NodeRow(name=name, engine_name=name, kind=kind, inputs=tuple(inputs.split()), outputs=tuple(outputs.split()))


def graph(*nodes, stored=""):
    return Topology(nodes=nodes, inputs=("x",), outputs=("y",), stored=dict.fromkeys(stored.split(), 4.0))


def kernel(name, kind, originals, takers):
    return Executed(name=name, kind=kind, originals=originals, takers=tuple(takers.split()))


def layers(original, *kernels, idle=()):
    """By kernel, the nodes it computes. The model's input goes to the first kernel, the last one's result out."""
    first, last = kernels[0].name, kernels[-1].name
    executed = [kernel("x", "Input", "x", first), *kernels[:-1]]
    executed += [kernel(last, kernels[-1].kind, kernels[-1].originals, "out"), kernel("out", "Output", "out", "")]
    own = {row.name: row.name for row in original.nodes}
    ran = [each.name for each in kernels if each.name not in idle]
    return {name: " ".join(role.layers) for name, role in kernel_roles(original, executed, own, ran).items()}


NORMED = graph(
    node("conv", "Conv", "x w", "a"),
    node("norm", "BatchNormalization", "a s", "b"),
    node("add", "Add", "b three", "c"),
    node("clip", "Clip", "c", "d"),
    node("mul", "Mul", "b d", "e"),
    node("conv2", "Conv", "e w2", "f"),
    node("norm2", "BatchNormalization", "f s2", "y"),
    stored="w w2 s s2 three",
)


def test_a_convolution_whose_name_was_lost_is_in_the_kernel_that_lists_its_norm():
    """Light ResNet-50: the kernel Multiply_9004 lists n1 and n2, and computes the convolution n0."""
    original = graph(
        node("n0", "Conv", "x w", "r0"),
        node("n1", "BatchNormalization", "r0 s", "r1"),
        node("n2", "Relu", "r1", "r2"),
        node("n3", "MaxPool", "r2", "y"),
        stored="w s",
    )
    found = layers(
        original,
        kernel("Reorder", "Reorder", "", "Multiply_9004"),
        kernel("Multiply_9004", "Convolution", "Multiply_9004,n1,n2", "n3"),
        kernel("n3", "Pooling", "n3", ""),
    )
    assert found == {"Reorder": "n0 n1 n2", "Multiply_9004": "n0 n1 n2", "n3": "n3"}


def test_an_activation_fused_behind_a_convolution_is_not_in_the_next_one():
    """x86-64 fuses the activation and lists a name made up for it at the end; arm64 runs it by itself."""
    fused = layers(
        NORMED,
        kernel("M1", "Convolution", "M1,norm,HSwish_7", "M2"),
        kernel("M2", "Convolution", "M2,norm2", ""),
    )
    assert fused == {"M1": "conv norm add clip mul", "M2": "conv2 norm2"}
    apart = layers(
        NORMED,
        kernel("M1", "Convolution", "M1,norm", "HSwish_7"),
        kernel("HSwish_7", "Subgraph", "HSwish_7", "M2"),
        kernel("M2", "Convolution", "M2,norm2", ""),
    )
    assert apart == {"M1": "conv norm", "HSwish_7": "add clip mul", "M2": "conv2 norm2"}


def test_convolutions_in_a_row_without_a_known_name_get_a_node_each():
    original = graph(
        node("conv", "Conv", "x w", "a"),
        node("norm", "BatchNormalization", "a s", "b"),
        node("conv2", "Conv", "b w", "c"),
        node("norm2", "BatchNormalization", "c s", "d"),
        node("act", "HardSwish", "d", "y"),
        stored="w s",
    )
    found = layers(
        original,
        kernel("M1", "Convolution", "M1", "M2"),
        kernel("M2", "Convolution", "M2", "act"),
        kernel("act", "Subgraph", "act", ""),
    )
    assert found == {"M1": "conv norm", "M2": "conv2 norm2", "act": "act"}


def test_a_recurrent_node_is_the_loops_both_ways_between_its_neighbours():
    """`lengths` is computed once and hangs together with both nodes, so that they make one piece of the file."""
    original = graph(
        node("start", "Relu", "x", "s"),
        node("lengths", "TopK", "x", "n"),
        node("first", "GRU", "s n", "a"),
        node("between", "Relu", "a", "b"),
        node("second", "GRU", "b n", "c"),
        node("last", "Relu", "c", "y"),
    )
    found = layers(
        original,
        kernel("start", "Subgraph", "start", "GRUSequence_1 GRUSequence_2"),
        kernel("GRUSequence_1", "TensorIterator", "GRUSequence_1", "between"),
        kernel("GRUSequence_2", "TensorIterator", "GRUSequence_2", "between"),
        kernel("between", "Subgraph", "between", "GRUSequence_3 GRUSequence_4"),
        kernel("GRUSequence_3", "TensorIterator", "GRUSequence_3", "last"),
        kernel("GRUSequence_4", "TensorIterator", "GRUSequence_4", "last"),
        kernel("last", "Subgraph", "last", ""),
    )
    both = {name: found[name].split() for name in found if "GRU" in name}
    assert both["GRUSequence_1"] == both["GRUSequence_2"]
    assert "first" in both["GRUSequence_1"]
    assert both["GRUSequence_3"] == both["GRUSequence_4"] == ["second"]


def test_branches_without_a_known_name_are_computed_together_rather_than_mixed_up():
    original = graph(
        node("pool", "MaxPool", "x", "p"),
        node("left", "Conv", "p w", "a"),
        node("right", "Conv", "p w", "b"),
        node("join", "Concat", "a b", "y"),
        stored="w",
    )
    found = layers(
        original,
        kernel("pool", "Pooling", "pool", "C1 C2"),
        kernel("C1", "Convolution", "C1", "join"),
        kernel("C2", "Convolution", "C2", "join"),
        kernel("join", "Concatenation", "join", ""),
    )
    assert found == {"pool": "pool", "C1": "left right", "C2": "left right", "join": "join"}


def test_a_kernel_before_the_one_with_the_name_is_a_piece_of_that_layer():
    """A sum over an axis runs as ReduceSum_1, and its name stays with a view that costs nothing."""
    original = graph(node("relu", "Relu", "x", "r"), node("sum", "ReduceSum", "r", "s"), node("exp", "Exp", "s", "y"))
    kernels = (
        kernel("relu", "Eltwise", "relu", "ReduceSum_1"),
        kernel("ReduceSum_1", "Reduce", "ReduceSum_1", "sum"),
        kernel("sum", "Reshape", "sum", "exp"),
        kernel("exp", "Eltwise", "exp", ""),
    )
    assert layers(original, *kernels, idle={"sum"}) == {"relu": "relu", "ReduceSum_1": "sum", "exp": "exp"}
    together = {"relu": "relu", "ReduceSum_1": "sum", "sum": "sum", "exp": "exp"}
    assert layers(original, *kernels) == together


def test_the_end_of_a_model_is_in_the_last_kernel_before_it():
    original = graph(node("a", "MatMul", "x w", "b"), node("c", "Softmax", "b", "y"), stored="w")
    assert layers(original, kernel("k", "MatMul", "a", "")) == {"k": "a c"}


def test_shapes_are_known_at_load_and_views_cost_nothing():
    original = graph(
        node("shape", "Shape", "x", "s"),
        node("half", "Gather", "s i", "n"),
        node("relu", "Relu", "x", "r"),
        node("view", "Reshape", "r n", "v"),
        node("exp", "Exp", "v", "y"),
        stored="i",
    )
    found = layers(original, kernel("relu", "Eltwise", "relu", "exp"), kernel("exp", "Eltwise", "exp", ""))
    assert found == {"relu": "relu", "exp": "exp"}


class Recorded:
    """A model as OpenVINO executed it on arm64."""

    def __init__(self, name):
        document = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
        rows = [
            NodeRow(name=n, engine_name=engine, kind=kind, inputs=tuple(takes), outputs=tuple(gives))
            for n, engine, kind, takes, gives in document["nodes"]
        ]
        self.topology = Topology(
            nodes=tuple(rows), inputs=tuple(document["inputs"]), outputs=tuple(document["outputs"])
        )
        self.times = {n: micros for n, _, _, _, micros in document["ops"] if micros is not None}
        executed = [
            Executed(name=n, kind=kind, originals=originals, takers=tuple(takers))
            for n, kind, originals, takers, _ in document["ops"]
        ]
        own = {**known_names(self.topology), **document["pieces"]}
        self.roles = kernel_roles(self.topology, executed, own, list(self.times))
        self.kinds = {row.name: row.kind for row in rows}
        self.engine_kinds = {op.name: op.kind for op in executed}

    def computed_as(self, kernel):
        return [self.kinds[layer] for layer in self.roles[kernel].layers]


@pytest.fixture(scope="module", params=RECORDED)
def recorded(request):
    return Recorded(request.param)


def test_on_arm64_every_kernel_has_layers(recorded):
    found = sum(micros for name, micros in recorded.times.items() if recorded.roles[name].layers)
    assert found == sum(recorded.times.values())


def test_on_arm64_every_node_with_work_is_in_one_set_of_kernels(recorded):
    sets = {role.layers for role in recorded.roles.values() if not role.own}
    counts = Counter(layer for layers in sets for layer in layers)
    assert set(counts.values()) == {1}
    views = {"Reshape", "Flatten", "Identity"}
    assert {kind for name, kind in recorded.kinds.items() if name not in counts} <= views


def test_on_arm64_a_convolution_is_computed_as_a_convolution(recorded):
    heavy = {"Convolution": "Conv", "FullyConnected": "Gemm", "Pooling": "Pool", "Softmax": "Softmax"}
    for name in recorded.times:
        kind = heavy.get(recorded.engine_kinds[name])
        if kind is not None:
            kinds = recorded.computed_as(name)
            assert sum(each.endswith(kind) or (kind, each) == ("Gemm", "MatMul") for each in kinds) == 1, (name, kinds)


def test_on_arm64_a_convolution_in_groups_is_split_into_one_a_group_and_joined():
    shufflenet = Recorded("shufflenet")
    together = Counter(role.layers for role in shufflenet.roles.values())
    assert together[("n4",)] == 6  # a split, four convolutions and what joins them; the norm and Relu come after
    assert sum(count == 6 for count in together.values()) == 32


def test_on_arm64_an_activation_in_pieces_is_one_kernel():
    ocr = Recorded("ocr-cls")
    found = [ocr.computed_as(name) for name in ocr.times if name.startswith("HSwish_")]
    assert found == [["Add", "Clip", "Mul", "Div"]] * 18

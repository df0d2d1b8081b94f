import pytest

from inferometer.core import Block, Graph, Symbol
from inferometer.cost import graph_work
from inferometer.cost.work.substitute import with_sizes
from unit.cost.decoders import BATCH, LLAMA_3_1_8B, at, tensor
from unit.cost.examples import EXAMPLES, IDS, op

SIZES = {"batch": 2, "query": 6, "context": 9, "encoder": 7, "image": 8}


@pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
@pytest.mark.parametrize("fixed", [("image", "encoder"), ("query",), tuple(SIZES)])
def test_a_graph_with_sizes_put_in_has_the_same_work(example, fixed):
    graph = Graph(name="g", blocks=(Block(name="b", ops=(example,)),))
    bound = with_sizes(graph, {name: SIZES[name] for name in fixed})
    assert graph_work(bound, at(**SIZES)) == graph_work(graph, at(**SIZES))
    assert bound.symbols.isdisjoint(fixed)


def test_other_sizes_keep_their_names():
    x = tensor("x", BATCH, (Symbol("image") + 2) // 2 * BATCH, Symbol("image"))
    graph = Graph(name="g", blocks=(Block(name="b", ops=(op("view", [x], [x]),)),), inputs=(x,), outputs=(x,))
    bound = with_sizes(graph, {"image": 4})
    assert bound.symbols == {"batch"}
    assert bound.inputs[0].shape == (BATCH, 3 * BATCH, 4)


def test_nothing_to_put_in_leaves_the_graph_itself():
    assert with_sizes(LLAMA_3_1_8B, {}) is LLAMA_3_1_8B

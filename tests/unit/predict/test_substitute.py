from inferometer.core import Block, Graph, Symbol
from inferometer.predict.work.merge import with_sizes
from unit.predict.decoders import BATCH, LLAMA_3_1_8B, tensor
from unit.predict.examples import op


def test_other_sizes_keep_their_names():
    x = tensor("x", BATCH, (Symbol("image") + 2) // 2 * BATCH, Symbol("image"))
    graph = Graph(name="g", blocks=(Block(name="b", ops=(op("view", [x], [x]),)),), inputs=(x,), outputs=(x,))
    bound = with_sizes(graph, {"image": 4})
    assert bound.symbols == {"batch"}
    assert bound.inputs[0].shape == (BATCH, 3 * BATCH, 4)


def test_nothing_to_put_in_leaves_the_graph_itself():
    assert with_sizes(LLAMA_3_1_8B, {}) is LLAMA_3_1_8B

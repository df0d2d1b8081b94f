"""How the layers of a model hang together."""

from inferometer.core import Binding, Block, Graph, Op, Precision, Symbol, Tensor
from inferometer.core.structure import structure_of

BATCH = Symbol("batch")
BOUND = Binding(sizes={"batch": 2}, precision=Precision(weights="f32", activations="f32"))


def op(name, reads, writes, size=4):
    return Op(
        name=name,
        kind="elementwise",
        inputs=tuple(Tensor(name=each, shape=(BATCH, size)) for each in reads),
        outputs=(Tensor(name=writes, shape=(BATCH, size)),),
    )


def decoder(count):
    ends = (
        Block(name="embed", ops=(op("embed", (), "hidden"),)),
        Block(name="head", ops=(op("head", ["hidden"], "y"),)),
    )
    inner = (
        op("layers.{}.norm", ["hidden"], "layers.{}.norm"),
        op("layers.{}.sum", ["hidden", "layers.{}.norm"], "hidden"),
    )
    return Graph(name="g", blocks=(ends[0], Block(name="decoder", ops=inner, count=count), ends[1]))


def test_a_residual_stream_goes_from_each_repetition_to_the_next():
    structure = structure_of(decoder(2), BOUND)
    names = structure.names
    assert names == ("embed", "layers.0.norm", "layers.0.sum", "layers.1.norm", "layers.1.sum", "head")
    assert [(names[start], names[end]) for start, end, _ in structure.edges] == [
        ("embed", "layers.0.norm"),
        ("embed", "layers.0.sum"),
        ("layers.0.norm", "layers.0.sum"),
        ("layers.0.sum", "layers.1.norm"),
        ("layers.0.sum", "layers.1.sum"),
        ("layers.1.norm", "layers.1.sum"),
        ("layers.1.sum", "head"),
    ]
    assert [(block.name, block.ops, block.count) for block in structure.blocks] == [
        ("embed", 1, 1),
        ("decoder", 2, 2),
        ("head", 1, 1),
    ]


def test_an_edge_has_the_bytes_that_are_passed_and_none_where_a_size_is_open():
    assert {size for *_, size in structure_of(decoder(1), BOUND).edges} == {2 * 4 * 4.0}
    without = Binding(precision=BOUND.precision)
    assert {size for *_, size in structure_of(decoder(1), without).edges} == {None}


def test_weights_and_caches_are_no_edges():
    cached = Op(
        name="attention",
        kind="attention",
        inputs=(Tensor(name="hidden", shape=(BATCH, 4)), Tensor(name="cache", shape=(BATCH, 9), role="kv")),
        outputs=(Tensor(name="hidden", shape=(BATCH, 4)), Tensor(name="cache", shape=(BATCH, 9), role="kv")),
    )
    graph = Graph(name="g", blocks=(Block(name="b", ops=(op("embed", (), "hidden"), cached), count=1),))
    assert [edge[:2] for edge in structure_of(graph, BOUND).edges] == [(0, 1)]


def test_a_cache_that_another_op_wrote_is_no_edge_and_what_a_loop_reads_inside_is_one():
    def kept(name, role):
        return Tensor(name=name, shape=(BATCH, 9), role=role)

    writes = Op(name="a", kind="custom", outputs=(kept("cache", "kv"), kept("state", "state"), kept("w", "weight")))
    read = (kept("cache", "kv"), kept("state", "state"), kept("w", "weight"), kept("nobody's", "activation"))
    reads = Op(name="b", kind="custom", inputs=read)
    inner = op("inner", ["state"], "y", size=9)
    loop = Op(name="loop", kind="control", attributes={"bodies": ((inner, reads),)})
    graph = Graph(name="g", blocks=(Block(name="b", ops=(writes, reads, loop)),))
    assert structure_of(graph, BOUND).edges == ((0, 1, 72.0), (0, 2, 72.0))
    only_cached = Graph(name="g", blocks=(Block(name="b", ops=(writes, Op(
        name="c", kind="custom", inputs=(kept("cache", "kv"),)
    ))),))  # fmt: skip
    assert structure_of(only_cached, BOUND).edges == ()

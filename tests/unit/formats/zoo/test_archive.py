"""A graph comes out of a file as it went in, and what two graphs share is there once."""

import pytest

from inferometer.core.dims import Symbol
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.networks.archive import graph_in, read_tables
from workshop.networks.archive import write_archive

BATCH = Symbol("batch")


def _graph(name: str, *, classes: int = 10) -> Graph:
    image = Tensor(name="x", shape=(BATCH, 3, 8, 8))
    made = Tensor(name="conv", shape=(BATCH * 2, 4, 8, 8))
    conv = Op(
        name="conv",
        kind="convolution",
        inputs=(image,),
        outputs=(made,),
        weights=(Tensor(name="conv.weight", shape=(4, 3, 3, 3), role="weight"),),
        attributes={"kernel": (3, 3), "groups": BATCH * 4, "transposed": False, "note": None},
        source_type="aten.conv2d",
    )
    ids = Tensor(name="layers.{}.index", shape=(4,), dtype="i64", role="index")
    out = Tensor(name="head", shape=(BATCH, classes))
    head = Op(name="head", kind="linear", inputs=(made, ids), outputs=(out,), attributes={"in_features": 4})
    return Graph(
        name=name,
        blocks=(Block(name="stem", ops=(conv,)), Block(name="layers", ops=(head, head), count=3, first=1)),
        inputs=(image,),
        outputs=(out,),
        precision="f32",
    )


def test_a_graph_comes_back_as_it_was(tmp_path):
    written = {"a@8": (_graph("a"), 8), "b@16": (_graph("b", classes=20), 16)}
    write_archive(tmp_path / "family", written)
    tables = read_tables(tmp_path / "family")
    assert {name: graph_in(tables, name) for name in tables.graphs} == written


def test_what_two_graphs_share_is_written_once(tmp_path):
    write_archive(tmp_path / "one", {"a@8": (_graph("a"), 8)})
    write_archive(tmp_path / "two", {"a@8": (_graph("a"), 8), "b@8": (_graph("b"), 8)})
    one, two = read_tables(tmp_path / "one"), read_tables(tmp_path / "two")
    assert (one.ops, one.tensors, one.blocks) == (two.ops, two.tensors, two.blocks)


def test_the_same_graphs_give_the_same_file(tmp_path):
    for name in ("one", "two"):
        write_archive(tmp_path / name, {"a@8": (_graph("a"), 8)})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_an_attribute_that_no_table_can_hold_is_refused(tmp_path):
    bad = Graph(name="bad", blocks=(Block(name="b", ops=(Op(name="o", kind="view", attributes={"x": object()}),)),))
    with pytest.raises(TypeError, match="no place in an archive"):
        write_archive(tmp_path / "bad", {"bad@1": (bad, 1)})

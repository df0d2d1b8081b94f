"""Sizes that a file leaves open: their names, their places, and what is asked for."""

import pytest

from inferometer.core.dims import Symbol
from inferometer.core.errors import DomainError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.sizes import (
    default_prompt,
    in_graph_names,
    open_sizes,
    require_room,
    require_sizes,
    with_given_sizes,
)
from inferometer.core.workload import Workload

BATCH, WIDTH = Symbol("batch"), Symbol("width")


def graph(*inputs, **names):
    return Graph(name="net", blocks=(), inputs=inputs, metadata={"size_names": names})


IMAGE = graph(Tensor(name="x", shape=(BATCH, 3, 48, WIDTH)), Tensor(name="y", shape=(BATCH, WIDTH * 2)), W="width")


def test_a_size_says_where_it_stands():
    batch, width = open_sizes(IMAGE)
    assert (batch.places, width.places) == ((("x", 0), ("y", 0)), (("x", 3), ("y", 1)))
    assert str(width) == "width (W in the file; input x, axis 3; input y, axis 1)"


@pytest.mark.parametrize("name", ["width", "W", "x.3"])
def test_a_size_is_given_by_our_name_the_files_or_its_place(name):
    assert in_graph_names(IMAGE, {name: 320}) == {"width": 320}


def test_an_axis_that_is_a_product_is_no_name_for_its_size():
    with pytest.raises(DomainError, match=r"no size 'y\.1'.*width \(W in the file; input x, axis 3"):
        in_graph_names(IMAGE, {"y.1": 640})


def test_one_size_under_two_names_is_refused_unless_they_agree():
    assert in_graph_names(IMAGE, {"W": 320, "width": 320}) == {"width": 320}
    with pytest.raises(DomainError, match="given twice: as 320 and as 640"):
        in_graph_names(IMAGE, {"W": 320, "width": 640})


def test_a_batch_is_the_workloads():
    assert with_given_sizes(IMAGE, Workload(), {"batch": 4, "W": 8}) == (Workload(batch=4), {"width": 8})
    with pytest.raises(DomainError, match="batch is 2 and the size batch is 4"):
        with_given_sizes(IMAGE, Workload(batch=2), {"batch": 4})


def test_what_is_open_is_asked_for_with_what_to_type():
    require_sizes(IMAGE, {"batch", "width"})
    with pytest.raises(DomainError, match=r"one size of its inputs open: width .* Add --size width=N\."):
        require_sizes(IMAGE, {"batch"})
    odd = graph(Tensor(name="x y", shape=(Symbol("x y.0"),)))
    with pytest.raises(DomainError, match=r"Add --size 'x y\.0'=N\."):
        require_sizes(odd, ())


def test_only_a_prompt_of_token_ids_has_a_length_by_default():
    query = (BATCH, Symbol("query"))
    assert default_prompt(graph(Tensor(name="ids", shape=query, dtype="i64"))) == 512
    assert default_prompt(graph(Tensor(name="features", shape=(*query, 80), dtype="f32"))) is None


def windowed(kind):
    """A window of seven elements over the width."""
    op = Op(name="c", kind=kind, outputs=(Tensor(name="y", shape=(BATCH, (WIDTH - 7) // 2 + 1)),))
    return Graph(name="net", blocks=(Block(name="all", ops=(op,)),))


@pytest.mark.parametrize(("kind", "width"), [("convolution", 3), ("convolution", 6), ("pool", 6), ("elementwise", 3)])
def test_a_size_below_a_window_is_refused_and_named(kind, width):
    with pytest.raises(DomainError, match=rf"At width {width}, c of net would give .* smaller than its window"):
        require_room(windowed(kind), {"width": width})


def test_a_size_that_fills_a_window_or_that_nobody_gave_is_not():
    require_room(windowed("convolution"), {"width": 7})
    require_room(windowed("elementwise"), {"width": 6})  # nothing is there, as in a cache before the first token
    require_room(windowed("convolution"), {})

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.engines.results.assemble import nest

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda pair: (pair[0], pair[0] + pair[1])))


def union(intervals):
    covered = {moment for start, end in intervals for moment in range(start, end)}
    return len(covered)


@given(INTERVALS)
def test_exclusive_times_add_up_to_the_time_that_anything_was_open(intervals):
    nested = nest(intervals)
    assert math.fsum(nested.own) == union(intervals)
    for own, (start, end) in zip(nested.own, intervals, strict=True):
        assert 0 <= own <= end - start


@given(INTERVALS)
def test_a_parent_is_open_where_its_child_begins(intervals):
    for index, parent in enumerate(nest(intervals).parent):
        if parent is not None:
            start, end = intervals[parent]
            assert parent != index
            assert start <= intervals[index][0] < end


@given(INTERVALS, st.randoms())
def test_the_order_they_are_given_in_does_not_matter(intervals, random):
    distinct = list(dict.fromkeys(intervals))
    shuffled = random.sample(distinct, len(distinct))
    as_given = dict(zip(distinct, nest(distinct).own, strict=True))
    assert dict(zip(shuffled, nest(shuffled).own, strict=True)) == as_given


def test_a_child_and_a_grandchild():
    nested = nest([(0, 100), (10, 60), (20, 30), (70, 90)])
    assert nested.own == (30, 40, 10, 20)
    assert nested.parent == (None, 0, 1, 0)


def test_neighbours_are_no_children():
    assert nest([(0, 10), (10, 20)]).parent == (None, None)


@pytest.mark.parametrize("intervals", [[], [(5, 5)], [(0, 5), (5, 5)]])
def test_nothing_and_moments(intervals):
    assert sum(nest(intervals).own) == union(intervals)

"""Which span is inside which: pure functions from recorded times to parents, depths and exclusive times.

Spans arrive in the order they ended. In one lane (a thread, or a task) they nest like brackets, so when one ends, all
spans that ended before it, have no parent yet and began after it are its children. That takes one look at each span.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from inferometer.core.errors import SchemaError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def parents(starts: Ints, ends: Ints, lanes: Ints, within: Bools | None = None) -> Ints:
    """The row of each span's parent, −1 for none. What a clock that jumped makes end before its child is no parent.

    A span of no length that stands where another begins was over before it, and is no part of it; notes and segments
    are, for they are made `within` the span that they are about.
    """
    parent = np.full(len(starts), -1, dtype=np.int64)
    over = starts == ends
    if within is not None:
        over &= ~within
    for rows in by_lane(lanes):
        parent[rows] = np.append(rows, -1)[_bracket(starts[rows], over[rows])]
    parent[(parent >= 0) & (ends[np.maximum(parent, 0)] < ends)] = -1
    return parent


def follow_links(parent: Ints, links: Sequence[int | None], aboves: Sequence[int | None]) -> None:
    """Where tasks left links, these say the parent outright."""
    by_link = {link: row for row, link in enumerate(links) if link is not None}
    for row in by_link.values():
        above = aboves[row]
        if above is not None and above in by_link:
            parent[row] = by_link[above]


def require_tree(parent: Ints) -> None:
    """Refuse parents that are not there, and spans inside themselves: a file from elsewhere may have them."""
    count = len(parent)
    if bool((parent >= count).any()):
        raise SchemaError(f"A span names row {int(parent.max())} as its parent, and there are {count} spans.")
    if bool((parent < np.arange(count)).all()):
        return
    above, active, steps = parent.copy(), np.flatnonzero(parent >= 0), 0
    while len(active):
        steps += 1
        if steps > count:
            raise SchemaError(f"Span {int(active[0])} stands, through its parents, in itself.")
        above[active] = parent[above[active]]
        active = active[above[active] >= 0]


def by_lane(lanes: Ints) -> list[Ints]:
    """The rows of each lane, in the order the spans ended."""
    if len(lanes) == 0 or int(lanes.max()) == 0:
        return [np.arange(len(lanes))] if len(lanes) else []
    order = np.argsort(lanes, kind="stable")
    cuts = np.flatnonzero(np.diff(lanes[order])) + 1
    return list(np.split(order, cuts))


def _bracket(starts: Ints, over: Bools) -> Ints:
    """Of spans of one lane in the order they ended: the position of each one's parent, or their number for none.

    The parent is the next one to end that began no later; for one that was `over` at once, the next that began before.
    Each looks one further to begin with; who sees a later beginning goes on to where that one looks, which doubles the
    stride: a few rounds, each over arrays, find all.
    """
    count = len(starts)
    sight = np.arange(1, count + 1)
    begins = np.append(starts, np.iinfo(np.int64).min)  # beyond the last stands one that began before all
    latest = starts - over
    active = np.flatnonzero(begins[sight] > latest)
    while len(active):
        sight[active] = sight[sight[active]]
        active = active[begins[sight[active]] > latest[active]]
    return sight


def enclose(parent: Ints, starts: Ints, ends: Ints, inner: Ints, outer: Ints) -> None:
    """Give each of `inner` (rows without a parent) the innermost of `outer` that contains it in time."""
    if len(outer) == 0:
        return
    order = outer[np.argsort(starts[outer], kind="stable")]
    begins = starts[order]
    for row in inner.tolist():
        place = int(np.searchsorted(begins, starts[row], side="right")) - 1
        candidate = int(order[place]) if place >= 0 else -1
        while candidate >= 0 and ends[candidate] < ends[row]:
            candidate = int(parent[candidate])
        parent[row] = candidate


def depths(parent: Ints) -> Ints:
    """How many spans stand around each."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent.copy()
    active = np.flatnonzero(above >= 0)
    while len(active):
        depth[active] += 1
        above[active] = parent[above[active]]
        active = active[above[active] >= 0]
    return depth


def inherited(column: Ints, parent: Ints) -> Ints:
    """A column with its gaps (−1) filled from the nearest span around that has a value."""
    if bool((column < 0).all()):
        return column
    above = nearest(parent, column >= 0)
    return np.where((column < 0) & (above >= 0), column[above], column)


def nearest(parent: Ints, marked: Bools) -> Ints:
    """For every row, the nearest marked row around it; −1 where there is none."""
    above = parent.copy()
    astray = np.flatnonzero((above >= 0) & ~marked[above])
    while len(astray):
        above[astray] = parent[above[astray]]
        astray = astray[(above[astray] >= 0) & ~marked[above[astray]]]
    return above


def exclusive_ns(starts: Ints, ends: Ints, parent: Ints, lanes: Ints) -> Ints:
    """Each span's time less that of the spans directly inside it.

    Children in other lanes run at the same time as each other: of them the time that any ran is taken off once.
    """
    spent = ends - starts
    inside = np.flatnonzero(parent >= 0)
    same = inside[lanes[inside] == lanes[parent[inside]]]
    taken = np.zeros(len(spent), dtype=np.int64)
    np.add.at(taken, parent[same], spent[same])
    other = inside[lanes[inside] != lanes[parent[inside]]]
    order, first = children_of(parent) if len(other) else (inside, inside)
    for above in np.unique(parent[other]).tolist():
        rows = order[first[above + 1] : first[above + 2]]
        taken[above] = covered_ns(np.maximum(starts[rows], starts[above]), np.minimum(ends[rows], ends[above]))
    return np.asarray(np.maximum(spent - taken, 0), dtype=np.int64)


def covered_ns(starts: Ints, ends: Ints) -> int:
    """How long at least one of the intervals lasts."""
    if len(starts) == 0:
        return 0
    order = np.argsort(starts, kind="stable")
    begins, until = starts[order], np.maximum.accumulate(ends[order])
    before = np.concatenate(([begins[0]], until[:-1]))
    return int(np.sum(np.maximum(until - np.maximum(begins, before), 0)))


def nested_in_own_name(names: Ints, parent: Ints) -> Bools:
    """Which spans stand, at any depth, in a span of their own name: recursion, whose time must not count twice."""
    inside = np.zeros(len(names), dtype=np.bool_)
    above = parent.copy()
    active = np.flatnonzero(above >= 0)
    while len(active):
        same = names[above[active]] == names[active]
        inside[active[same]] = True
        active = active[~same]
        above[active] = parent[above[active]]
        active = active[above[active] >= 0]
    return inside


def children_of(parent: Ints) -> tuple[Ints, Ints]:
    """All rows grouped by parent, and where each group begins: children of `i` are `rows[first[i]:first[i + 1]]`.

    Group −1 (the roots) comes first, so `i` is offset by one: `first[i + 1]`.
    """
    order = np.argsort(parent, kind="stable")
    counts = np.bincount(parent + 1, minlength=len(parent) + 1)
    return order, np.concatenate(([0], np.cumsum(counts)))

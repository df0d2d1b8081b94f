"""Exclusive times of intervals that contain each other: a moment belongs to the innermost one that is open.

So the exclusive times add up to the time that anything at all was open, however the intervals lie.
"""

from collections.abc import Sequence

from inferometer.core.frozen import frozen

Bounds = tuple[float, float]  # start, end

_CLOSES, _OPENS = 0, 1  # at one moment, what ends goes before what begins


@frozen
class Nested:
    """Of each interval, in the order given: the time that is its own, and the interval around its start."""

    own: tuple[float, ...]
    parent: tuple[int | None, ...]


def nest(intervals: Sequence[Bounds]) -> Nested:
    """Of intervals of one thread. Of two that begin together the longer is the outer one."""
    own = [0.0] * len(intervals)
    parent: list[int | None] = [None] * len(intervals)
    closed = [False] * len(intervals)
    open_now: list[int] = []
    before = 0.0
    opens = [(start, _OPENS, -end, index) for index, (start, end) in enumerate(intervals)]
    closes = [(end, _CLOSES, 0.0, index) for index, (start, end) in enumerate(intervals) if end > start]
    for at, what, _, index in sorted([*opens, *closes]):
        while open_now and closed[open_now[-1]]:
            open_now.pop()
        if open_now:
            own[open_now[-1]] += at - before
        before = at
        if what == _CLOSES:
            closed[index] = True
            continue
        parent[index] = open_now[-1] if open_now else None
        if intervals[index][1] > at:
            open_now.append(index)
    return Nested(own=tuple(own), parent=tuple(parent))

"""Where a series of times went to another level."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from inferometer.measure.bench.verdict import Criteria, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NEIGHBOURS = 10  # times on either side of a change that it is judged by


def change_points(times: Sequence[float], *, threshold: float = 0.02, least: int = 5) -> tuple[int, ...]:
    """Where a series went to another level: the first run of each, found by halving, judged as `compare` judges.

    Of all places that leave `least` runs on either side, the one whose two levels are nearest to all runs is judged by
    the rank test on the runs next to it: further away there may be levels more. A part with no such place is one level.
    """
    return tuple(sorted(_splits(times, 0, Criteria(threshold=threshold, alpha=0.001), least)))


def _splits(times: Sequence[float], start: int, criteria: Criteria, least: int) -> Iterator[int]:
    places = range(least, len(times) - least + 1)
    if not places:
        return
    logs = [math.log(time) for time in times]

    def left(place: int) -> float:
        """How far the times lie from two levels that meet here: from medians, so that one far off moves neither."""
        sides = (logs[:place], logs[place:])
        return sum(abs(log - middle) for side in sides for middle in (median(side),) for log in side)

    place = min(places, key=left)
    near = slice(max(0, place - _NEIGHBOURS), place), slice(place, place + _NEIGHBOURS)
    found, counts = judge(*(times[side] for side in near), criteria=criteria), math.log1p(criteria.threshold)
    if found.verdict not in {"faster", "slower"} or abs(math.log(found.evidence.ratio)) < counts:
        return
    yield start + place
    yield from _splits(times[:place], start, criteria, least)
    yield from _splits(times[place:], start + place, criteria, least)

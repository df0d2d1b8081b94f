"""Find repetition in a sequence and equal shapes in a tree, so that sixteen equal layers become one block × 16."""

from collections.abc import Sequence
from dataclasses import dataclass

from inferometer.profiler.nest import children_of
from inferometer.profiler.recording import Recording

_LONGEST_PERIOD = 64
_SEARCHED = 20_000  # beyond this many in a row only equal neighbours are folded


@dataclass(frozen=True, slots=True)
class Repeat:
    """A run of items that comes `count` times in a row."""

    items: tuple[int, ...]
    count: int


def fold(sequence: Sequence[int]) -> tuple[Repeat, ...]:
    """The sequence as repeats, from the left: at each place the period that covers most, the shortest of those."""
    repeats: list[Repeat] = []
    place, end = 0, len(sequence)
    longest = _LONGEST_PERIOD if end <= _SEARCHED else 1
    while place < end:
        best = Repeat((sequence[place],), 1)
        for period in range(1, min(longest, (end - place) // 2) + 1):
            times = _times(sequence, place, period)
            if times > 1 and times * period > best.count * len(best.items):
                best = Repeat(tuple(sequence[place : place + period]), times)
        repeats.append(best)
        place += best.count * len(best.items)
    return tuple(repeats)


def _times(sequence: Sequence[int], place: int, period: int) -> int:
    """How often the `period` items at `place` come in a row."""
    if sequence[place] != sequence[place + period]:
        return 1
    items = sequence[place : place + period]
    times, after = 1, place + period
    while sequence[after : after + period] == items:
        times, after = times + 1, after + period
    return times


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """For each span the number of its shape: its name, its unit and the shapes inside it. `children` are in order."""

    of: list[int]
    folded: list[tuple[Repeat, ...]]
    children: list[list[int]]


def shapes_of(recording: Recording) -> Shapes:
    rows, first = children_of(recording.parent)
    order, begins = rows.tolist(), first.tolist()
    names, units = recording.name.tolist(), recording.unit.tolist()
    count = len(recording)
    children = [order[begins[row + 1] : begins[row + 2]] for row in range(count)]
    known: dict[tuple[int, ...], int] = {}
    folded: list[tuple[Repeat, ...]] = []
    of = [0] * count
    for row in _inside_out(recording, children):
        inner = [of[child] for child in children[row]]
        number = known.setdefault((names[row], units[row], *inner), len(known))
        if number == len(folded):
            folded.append(fold(inner))
        of[row] = number
    return Shapes(of=of, folded=folded, children=children)


def _inside_out(recording: Recording, children: list[list[int]]) -> list[int]:
    """Every row after all rows inside it. A child almost always began later; a clock that jumped makes exceptions."""
    parent = recording.parent
    if bool((parent < range(len(parent))).all()):
        return list(range(len(parent) - 1, -1, -1))
    order: list[int] = []
    waiting = [row for row, above in enumerate(parent.tolist()) if above < 0]
    while waiting:
        row = waiting.pop()
        order.append(row)
        waiting += children[row]
    return order[::-1]

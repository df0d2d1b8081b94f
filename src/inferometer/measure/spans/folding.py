"""Find repetition in a sequence and equal shapes in a tree, so that sixteen equal layers become one block × 16."""

from collections.abc import Sequence
from dataclasses import dataclass

from inferometer.measure.spans.nest import children_of
from inferometer.measure.spans.recording import Recording

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
class Stretch:
    """Items in a row: of no layer (one group), or of layers that are alike, with a group of items for each."""

    layered: bool
    groups: tuple[tuple[int, ...], ...]


def stretches(layers: Sequence[int | None], names: Sequence[int]) -> tuple[Stretch, ...]:
    """A sequence cut by the layer that each item names: what lies before, between and after stacks of layers.

    A layer may begin before the last one is over, and an item without a layer in the midst of a stack belongs to the
    layer before it. Layers that have less than half of their names in common are not of one stack.
    """
    found: list[Stretch] = []
    for first, last, layered in _stacks(layers):
        if not layered:
            found.append(Stretch(layered=False, groups=(tuple(range(first, last)),)))
            continue
        groups: dict[int, list[int]] = {}
        layer = 0
        for index in range(first, last):
            layer = layer if (own := layers[index]) is None else own
            groups.setdefault(layer, []).append(index)
        found += [Stretch(layered=True, groups=alike) for alike in _alike(list(groups.values()), names)]
    return tuple(found)


def _stacks(layers: Sequence[int | None]) -> list[tuple[int, int, bool]]:
    """First and last place of each stack, and of what lies between. Going back by more than a layer begins another."""
    cuts: list[tuple[int, int]] = []
    highest = 0
    for index, layer in enumerate(layers):
        if layer is None:
            continue
        if cuts and layer >= highest - 1:
            cuts[-1] = (cuts[-1][0], index + 1)
            highest = max(highest, layer)
        else:
            cuts.append((index, index + 1))
            highest = layer
    stacks: list[tuple[int, int, bool]] = []
    before = 0
    for first, last in cuts:
        stacks += [(before, first, False)] * (first > before) + [(first, last, True)]
        before = last
    return stacks + [(before, len(layers), False)] * (before < len(layers))


def _alike(groups: Sequence[list[int]], names: Sequence[int]) -> list[tuple[tuple[int, ...], ...]]:
    """Neighbouring layers together, as long as they share half of their names."""
    runs: list[list[tuple[int, ...]]] = []
    known: set[int] = set()
    for group in groups:
        own = {names[place] for place in group}
        if runs and 2 * len(own & known) >= len(own | known):
            runs[-1].append(tuple(group))
        else:
            runs.append([tuple(group)])
        known = own
    return [tuple(run) for run in runs]


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

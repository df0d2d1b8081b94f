"""A run from end to end, derived from its spans: the steps in order, repeats folded, and where the time went."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from inferometer.core import statistics
from inferometer.core.frozen import frozen
from inferometer.measure.spans.attribution import (
    Attribution,
    CallPart,
    CallTimes,
    LayerTimes,
    Trend,
    attribute,
    calls_of,
    time_by_layer,
    trend_of,
)
from inferometer.measure.spans.nest import Bools, Floats, Ints, children_of
from inferometer.measure.spans.recording import MISSING, Recording

# Find repetition in a sequence and equal shapes in a tree, so that sixteen equal layers become one block × 16.

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


def _times(sequence: Sequence[int], index: int, period: int) -> int:
    """How often the `period` items at `place` come in a row."""
    if sequence[index] != sequence[index + period]:
        return 1
    items = sequence[index : index + period]
    times, after = 1, index + period
    while sequence[after : after + period] == items:
        times, after = times + 1, after + period
    return times


@frozen
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


@frozen
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


_UNTAGGED = "run"  # the phase of a recording that names none
_OUTSIDE = "outside phases"


@frozen
class FlowRow:
    """A step. `time_s` is the mean of one occurrence; it occurs `count` times in the row around it.

    A row with `rows` is a container; `rest_s` is the time of one occurrence that none of them has. A container
    without a name is a sequence that repeats though no span was drawn around it.
    """

    name: str | None
    unit: str | None = None
    time_s: float = 0.0
    count: float = 1
    parts: tuple[CallPart, ...] = ()
    rows: tuple["FlowRow", ...] = ()
    rest_s: float | None = None

    @property
    def total_s(self) -> float:
        return self.time_s * self.count


@frozen
class PhaseFlow:
    """One phase, `runs` times; times are of one run."""

    name: str
    title: str | None
    runs: int
    wall_s: float
    rows: tuple[FlowRow, ...]
    rest_s: float
    attribution: Attribution
    layers: tuple[LayerTimes, ...]
    calls: tuple[CallTimes, ...]
    trend: Trend | None


@frozen
class Flow:
    wall_s: float
    phases: tuple[PhaseFlow, ...]


def flow(recording: Recording) -> Flow:
    """The flow of any span tree. Phases come from spans' `phase`; without one the whole recording is one phase."""
    view = _View(recording)
    return Flow(wall_s=recording.wall_s, phases=tuple(_phase(view, *phase) for phase in _phases(view)))


class _View:
    """A recording with what every part of the flow looks up."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.seconds: Floats = recording.durations_s
        self.phase: Ints = recording.phases()
        self.shapes: Shapes = shapes_of(recording)
        self.name: list[int] = recording.name.tolist()
        self.layer: list[int | None] = [None if layer == MISSING else layer for layer in recording.layer.tolist()]
        self.layered = any(layer is not None for layer in self.layer)
        segments = recording.segments
        order = np.argsort(segments.owner, kind="stable")
        self.part_owner: Ints = segments.owner[order]
        self.part_order: Ints = order

    def parts(self, rows: Ints) -> tuple[CallPart, ...]:
        """Mean seconds and bytes a call of each segment's name, in order of appearance."""
        segments = self.recording.segments
        if len(self.part_owner) == 0:
            return ()
        mine = self.part_order[np.isin(self.part_owner, rows)]
        parts = []
        for name in dict.fromkeys(segments.name[mine[np.argsort(segments.start[mine], kind="stable")]].tolist()):
            held = mine[segments.name[mine] == name]
            sizes = segments.bytes[held][~np.isnan(segments.bytes[held])]
            parts.append(
                CallPart(
                    name=self.recording.words[name],
                    time_s=float((segments.end[held] - segments.start[held]).sum()) * 1e-9 / len(rows),
                    bytes=float(sizes.sum()) / len(rows) if len(sizes) else None,
                )
            )
        return tuple(parts)


def _phases(view: _View) -> Iterator[tuple[str, Ints, Ints]]:
    """Name, outermost rows and all rows of each phase, in order of appearance."""
    recording, phase = view.recording, view.phase
    above = recording.parent
    named = list(dict.fromkeys(number for number in phase.tolist() if number >= 0))
    if not named:
        if len(recording):
            yield _UNTAGGED, np.flatnonzero(above < 0), np.arange(len(recording))
        return
    around = _holds_phase(view)
    loose = (phase < 0) & ~around
    tops = loose & ((above < 0) | around[np.maximum(above, 0)])
    groups = [(recording.words[number], phase == number) for number in named]
    phases = []
    for name, held in groups:
        outer = held & ((above < 0) | (phase[np.maximum(above, 0)] != phase))
        phases.append((name, np.flatnonzero(outer), np.flatnonzero(held)))
    if bool(tops.any()):
        phases.append((_OUTSIDE, np.flatnonzero(tops), np.flatnonzero(loose)))
    yield from sorted(phases, key=lambda entry: (entry[0] == _OUTSIDE, int(recording.start[entry[1][0]])))


def _holds_phase(view: _View) -> Bools:
    """Rows without a phase that contain one: they are around phases, not outside them."""
    above, holding = view.recording.parent, np.zeros(len(view.phase), dtype=np.bool_)
    edge = np.unique(above[(view.phase >= 0) & (above >= 0)])
    edge = edge[view.phase[edge] < 0]
    while len(edge):
        holding[edge] = True
        edge = np.unique(above[edge])
        edge = edge[edge >= 0]
        edge = edge[~holding[edge]]
    return holding


def _phase(view: _View, name: str, tops: Ints, held: Ints) -> PhaseFlow:
    recording = view.recording
    alike = len(np.unique(recording.name[tops])) == 1
    wrapped = alike and (len(tops) == 1 or any(view.shapes.children[row] for row in tops[:1].tolist()))
    runs = len(tops) if wrapped else 1
    starts, ends = recording.start[tops], recording.end[tops]
    wall_ns = int((ends - starts).sum() if wrapped else ends.max() - starts.min())
    leaf = wrapped and not any(view.shapes.children[row] for row in tops.tolist())
    in_a_row = _inside if wrapped and not leaf else _in_a_row
    rows = in_a_row(view, tops.tolist())
    wall_s = wall_ns * 1e-9 / runs
    return PhaseFlow(
        name=name,
        title=recording.words[int(recording.name[tops[0]])] if wrapped else None,
        runs=runs,
        wall_s=wall_s,
        rows=rows,
        rest_s=max(wall_s - statistics.total([row.total_s for row in rows]), 0.0),
        attribution=attribute(recording, held, wall_ns, runs),
        layers=time_by_layer(recording, tops, held, runs),
        calls=calls_of(recording, held, view.parts),
        trend=trend_of(recording, held),
    )


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _in_a_row(view: _View, rows: list[int]) -> tuple[FlowRow, ...]:
    """Rows that follow one another, folded."""
    return _by_layer(view, [rows]) or _folded(view, [rows])


def _inside(view: _View, parents: list[int]) -> tuple[FlowRow, ...]:
    """What happens inside equal spans: by layer where they say it, else place by place, or by name if they differ."""
    children = [view.shapes.children[row] for row in parents]
    shapes = {view.shapes.of[row] for row in parents}
    if (layered := _by_layer(view, children)) is not None:
        return layered
    return _aligned(view, children, view.shapes.folded[shapes.pop()]) if len(shapes) == 1 else _by_name(view, children)


def _folded(view: _View, sequences: Sequence[list[int]]) -> tuple[FlowRow, ...]:
    """Sequences of rows that are runs of the same: folded if they have one shape, by name where they differ."""
    shapes = [[view.shapes.of[row] for row in rows] for rows in sequences]
    alike = all(shape == shapes[0] for shape in shapes)
    return _aligned(view, sequences, fold(shapes[0])) if alike else _by_name(view, sequences)


def _by_layer(view: _View, sequences: Sequence[list[int]]) -> tuple[FlowRow, ...] | None:
    """Sequences that name their layers: a stack of them is one row, as often as it has layers. None if there is none.

    Layers of one stack need not be quite equal: one may run a kernel that the others do not.
    """
    if not view.layered:
        return None
    layer, name = view.layer, view.name
    cut = [stretches([layer[row] for row in rows], [name[row] for row in rows]) for rows in sequences]
    structure = [[(stretch.layered, len(stretch.groups)) for stretch in stretches_] for stretches_ in cut]
    if not any(count > 1 for _, count in structure[0]) or any(other != structure[0] for other in structure):
        return None
    found: list[FlowRow] = []
    for aligned in zip(*cut, strict=True):
        groups = [
            [rows[place] for place in group]
            for rows, stretch in zip(sequences, aligned, strict=True)
            for group in stretch.groups
        ]
        count = len(aligned[0].groups)
        found += _folded(view, groups) if count == 1 else [_stack(view, groups, count)]
    return tuple(found)


def _stack(view: _View, groups: Sequence[list[int]], count: int) -> FlowRow:
    """Layers that are alike as one row. If each is a span by itself, that span is the row."""
    if all(len(group) == 1 for group in groups) and len({view.name[group[0]] for group in groups}) == 1:
        return _row(view, [group[0] for group in groups], count)
    inner = _folded(view, groups)
    return FlowRow(name="layer", time_s=statistics.total([row.total_s for row in inner]), count=count, rows=inner)


def _aligned(view: _View, children: Sequence[list[int]], repeats: Sequence[Repeat]) -> tuple[FlowRow, ...]:
    aligned: list[FlowRow] = []
    place = 0
    for repeat in repeats:
        period, count = len(repeat.items), repeat.count
        groups = [
            [row[place + turn * period + step] for row in children for turn in range(count)] for step in range(period)
        ]
        inner = tuple(_row(view, group, 1 if period > 1 else count) for group in groups)
        if period == 1 or count == 1:
            aligned += inner
        else:
            once_s = statistics.total([row.total_s for row in inner])
            aligned.append(FlowRow(name=None, time_s=once_s, count=count, rows=inner))
        place += period * count
    return tuple(aligned)


def _by_name(view: _View, children: Sequence[list[int]]) -> tuple[FlowRow, ...]:
    """Grouped by name and unit, in the order in which they mostly come; `count` is then a mean."""
    recording = view.recording
    groups: dict[tuple[int, int], list[int]] = {}
    places: dict[tuple[int, int], float] = {}
    for held in children:
        for index, row in enumerate(held):
            key = (int(recording.name[row]), int(recording.unit[row]))
            groups.setdefault(key, []).append(row)
            places[key] = places.get(key, 0.0) + index / len(held)
    order = sorted(groups, key=lambda key: places[key] / len(groups[key]))
    return tuple(_row(view, groups[key], len(groups[key]) / len(children)) for key in order)


def _row(view: _View, group: list[int], count: float) -> FlowRow:
    recording, rows = view.recording, np.asarray(group)
    time_s = float(view.seconds[rows].mean())
    inner = _inside(view, group) if any(view.shapes.children[row] for row in group) else ()
    rest_s = max(time_s - statistics.total([row.total_s for row in inner]), 0.0) if inner else None
    return FlowRow(
        name=recording.words[int(recording.name[group[0]])],
        unit=recording.word(int(recording.unit[group[0]])),
        time_s=time_s,
        count=count,
        parts=view.parts(rows),
        rows=inner,
        rest_s=rest_s,
    )

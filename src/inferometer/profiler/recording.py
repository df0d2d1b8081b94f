"""A recording: every span of a run as columns, with the tree found. Reports, statistics and traces are made of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inferometer.core.trace import Segment, Span, Trace
from inferometer.profiler import nest
from inferometer.profiler.nest import Bools, Ints

__all__ = [
    "MISSING",
    "Floats",
    "Lane",
    "Power",
    "Quantity",
    "Recording",
    "Run",
    "Segments",
    "Series",
    "Words",
    "float_column",
    "inherited",
    "whole_column",
]

Floats = NDArray[np.float64]
MISSING = np.iinfo(np.int64).min  # a whole number that was not given


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Where spans follow one another: a thread of a process, or a task in it."""

    process: int
    thread: int
    task: int | None = None
    title: str = ""


Quantity = Literal["power", "energy", "temperature", "clock", "use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Readings of one sensor: watts, joules since some start, °C, hertz, or a share.

    `counted` series add up to the machine's energy without overlap. A counter of joules begins again at `range_j`.
    """

    name: str
    quantity: Quantity
    times_ns: tuple[int, ...]
    values: tuple[float, ...]
    counted: bool = False
    range_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What the sensors said. `missing` names each kind that is not measurable here, and why."""

    series: tuple[Series, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    interval_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What holds for a recording as a whole. `span_cost_s` is what recording one span took, measured beforehand."""

    clock: str = "perf_counter_ns"
    started_at: str | None = None
    dropped: int = 0
    notes: tuple[str, ...] = ()
    span_cost_s: float | None = None
    power: Power | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """Parts of spans: `owner` is the span's row."""

    owner: Ints
    name: Ints
    start: Ints
    end: Ints
    bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """Columns of equal length, one row a span, in the order they began.

    `name`, `unit`, `phase` and `kind` are indices into `words`, −1 where not given; `layer` and `token` are MISSING,
    floats NaN where not given; `parent` is a row, −1 at the top. Times are the clock's nanoseconds.
    """

    words: tuple[str, ...]
    name: Ints
    unit: Ints
    phase: Ints
    kind: Ints
    layer: Ints
    token: Ints
    flops: Floats
    bytes: Floats
    tokens: Floats
    start: Ints
    end: Ints
    failed: Bools
    lane: Ints
    parent: Ints
    lanes: tuple[Lane, ...]
    segments: Segments
    readings: Mapping[str, Floats] = field(default_factory=dict)
    device: tuple[Ints, Ints] | None = None
    run: Run = Run()

    def __len__(self) -> int:
        return len(self.start)

    @property
    def durations_s(self) -> Floats:
        return np.asarray((self.end - self.start) * 1e-9)

    @property
    def wall_s(self) -> float:
        """From the first beginning to the last end."""
        return 0.0 if len(self) == 0 else float(self.end.max() - self.start.min()) * 1e-9

    def exclusive_s(self) -> Floats:
        return np.asarray(nest.exclusive_ns(self.start, self.end, self.parent, self.lane) * 1e-9)

    def word(self, index: int) -> str | None:
        return None if index < 0 else self.words[index]

    def rows_named(self, name: str) -> Ints:
        """The rows of one name."""
        index = self.words.index(name) if name in self.words else -2
        return np.flatnonzero(self.name == index)

    def names(self) -> list[str]:
        """Every span's name once, in order of first appearance."""
        first = np.full(len(self.words), len(self), dtype=np.int64)
        np.minimum.at(first, self.name, np.arange(len(self)))
        used = np.flatnonzero(first < len(self))
        return [self.words[int(number)] for number in used[np.argsort(first[used])]]

    def phases(self) -> Ints:
        """The phase of each span: its own, or that of the nearest span around it that has one."""
        return inherited(self.phase, self.parent)

    def trace(self) -> Trace:
        """The recording as the value that documents hold."""
        return Trace(
            spans=tuple(_span(self, row, segments) for row, segments in enumerate(_segments_by_row(self))),
            clock=self.run.clock,
            started_at=self.run.started_at,
            dropped=self.run.dropped,
        )


def inherited(column: Ints, parent: Ints) -> Ints:
    """A column with its gaps (−1) filled from the nearest ancestor that has a value. Parents stand before children."""
    if bool((column < 0).all()):
        return column
    filled = column.tolist()
    for row, above in enumerate(parent.tolist()):
        if filled[row] < 0 <= above:
            filled[row] = filled[above]
    return np.asarray(filled, dtype=np.int64)


def _segments_by_row(recording: Recording) -> Iterable[tuple[Segment, ...]]:
    parts = recording.segments
    found: dict[int, list[Segment]] = {}
    for owner, name, start, end in zip(
        parts.owner.tolist(), parts.name.tolist(), parts.start.tolist(), parts.end.tolist(), strict=True
    ):
        found.setdefault(owner, []).append(Segment(name=recording.words[name], start_ns=start, end_ns=end))
    return (tuple(found.get(row, ())) for row in range(len(recording)))


def _span(recording: Recording, row: int, segments: tuple[Segment, ...]) -> Span:
    def whole(column: Ints) -> int | None:
        value = int(column[row])
        return None if value == MISSING else value

    def number(column: Floats | None) -> float | None:
        value = float("nan") if column is None else float(column[row])
        return None if np.isnan(value) else value

    delta, peak = (number(_memory(recording, what)) for what in ("delta", "peak"))
    tokens, parent = number(recording.tokens), int(recording.parent[row])
    return Span(
        name=recording.words[int(recording.name[row])],
        start_ns=int(recording.start[row]),
        end_ns=int(recording.end[row]),
        kind=recording.word(int(recording.kind[row])),
        unit=recording.word(int(recording.unit[row])),
        phase=recording.word(int(recording.phase[row])),
        layer=whole(recording.layer),
        token=whole(recording.token),
        thread=recording.lanes[int(recording.lane[row])].thread,
        parent=None if parent < 0 else parent,
        bytes=number(recording.bytes),
        flops=number(recording.flops),
        tokens=None if tokens is None else int(tokens),
        memory_delta_bytes=None if delta is None else int(delta),
        memory_peak_bytes=None if peak is None else int(peak),
        failed=bool(recording.failed[row]),
        segments=segments,
    )


def _memory(recording: Recording, what: str) -> Floats | None:
    """The process's memory where it was read; else the device's."""
    found = recording.readings.get(f"rss_{what}_bytes")
    return recording.readings.get(f"cuda_{what}_bytes") if found is None else found


def whole_column(values: Sequence[int | None] | None, count: int) -> Ints:
    if values is None:
        return np.full(count, MISSING, dtype=np.int64)
    given = values if values.count(None) == 0 else [MISSING if value is None else value for value in values]
    return np.asarray(given, dtype=np.int64)


def float_column(values: Sequence[float | None] | None, count: int) -> Floats:
    if values is None:
        return np.full(count, np.nan)
    return np.asarray([np.nan if value is None else value for value in values], dtype=np.float64)


class Words:
    """Names as numbers, in order of first appearance."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def column(self, values: Sequence[str | None] | None, count: int) -> Ints:
        if values is None:
            return np.full(count, -1, dtype=np.int64)
        for word in dict.fromkeys(values):
            if word is not None:
                self.known.setdefault(word, len(self.known))
        index: dict[str | None, int] = {None: -1}
        index.update(self.known)
        return np.fromiter(map(index.__getitem__, values), dtype=np.int64, count=count)

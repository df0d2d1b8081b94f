"""A recording: every span of a run as columns, nested into a tree. Reports, statistics and traces start from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.trace import Segment, Span, Trace
from inferometer.measure.spans import nest
from inferometer.measure.spans.nest import Bools, Floats, Ints
from inferometer.measure.spans.power import LEAST_INTERVALS, Power, energy_of_spans

MISSING = np.iinfo(np.int64).min  # a whole number that was not given


@frozen
class Lane:
    """Where spans follow one another: a thread of a process, or a task in it.

    Tasks of asyncio have numbers from 1 up; spans that callbacks end, as many lanes as overlap, from −1 down.
    """

    process: int
    thread: int
    task: int | None = None
    title: str = ""

    @property
    def task_name(self) -> str | None:
        if self.task is None:
            return None
        return f"task {self.task}" if self.task > 0 else f"callbacks {-self.task}"


@frozen
class RecordingRun:
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
    context: Floats
    start: Ints
    end: Ints
    failed: Bools
    lane: Ints
    parent: Ints
    lanes: tuple[Lane, ...]
    segments: Segments
    readings: Mapping[str, Floats] = field(default_factory=dict)
    device: tuple[Ints, Ints] | None = None
    energy: Floats | None = None
    run: RecordingRun = RecordingRun()  # noqa: RUF009 - a value: one for all
    _found: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # what was asked for once

    def __len__(self) -> int:
        return len(self.start)

    def _once(self, what: str, compute: Callable[[], Any]) -> Any:
        if what not in self._found:
            self._found[what] = compute()
        return self._found[what]

    @property
    def durations_s(self) -> Floats:
        durations: Floats = self._once("durations", lambda: (self.end - self.start) * 1e-9)
        return durations

    @property
    def wall_s(self) -> float:
        """From the first beginning to the last end."""
        return 0.0 if len(self) == 0 else float(self.end.max() - self.start.min()) * 1e-9

    def exclusive_s(self) -> Floats:
        """Each span's time less that of the spans directly inside it."""
        seconds: Floats = self._once(
            "exclusive", lambda: nest.exclusive_ns(self.start, self.end, self.parent, self.lane) * 1e-9
        )
        return seconds

    def depths(self) -> Ints:
        """How many spans stand around each."""
        depths: Ints = self._once("depths", lambda: nest.depths(self.parent))
        return depths

    def energy_j(self) -> Floats | None:
        """Joules that the machine used during each span; NaN where the sensors do not cover it, None without any."""
        power = self.run.power
        if power is None:
            return self.energy
        joules: Floats | None = self._once("energy", lambda: energy_of_spans(power, self.start, self.end))
        return joules

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
        phases: Ints = self._once("phases", lambda: nest.inherited(self.phase, self.parent))
        return phases

    def trace(self) -> Trace:
        """The recording as the value that documents hold."""
        return Trace(
            spans=tuple(_spans(self)),
            clock=self.run.clock,
            started_at=self.run.started_at,
            dropped=self.run.dropped,
        )


def _segments_by_row(recording: Recording) -> dict[int, list[Segment]]:
    parts = recording.segments
    by_row: dict[int, list[Segment]] = {}
    for owner, name, start, end in zip(
        parts.owner.tolist(), parts.name.tolist(), parts.start.tolist(), parts.end.tolist(), strict=True
    ):
        by_row.setdefault(owner, []).append(Segment(name=recording.words[name], start_ns=start, end_ns=end))
    return by_row


def _spans(recording: Recording) -> Iterable[Span]:
    segments, energy = _segments_by_row(recording), _energy_of_long_spans(recording)
    lanes = [recording.lanes[lane] for lane in recording.lane.tolist()]
    begun, done = (_wholes(column) for column in recording.device or (None, None))
    columns: dict[str, Sequence[Any]] = {
        **{what: [recording.word(index) for index in getattr(recording, what).tolist()] for what in _WORDS},
        **{what: _wholes(getattr(recording, what)) for what in ("layer", "token")},
        **{what: _numbers(getattr(recording, what)) for what in ("bytes", "flops")},
        **{f"memory_{what}_bytes": _counts(_memory(recording, what)) for what in ("delta", "peak")},
        "tokens": _counts(recording.tokens),
        "context": _counts(recording.context),
        "start_ns": recording.start.tolist(),
        "end_ns": recording.end.tolist(),
        "failed": recording.failed.tolist(),
        "parent": [None if above < 0 else above for above in recording.parent.tolist()],
        "process": [lane.process or None for lane in lanes],
        "thread": [lane.thread for lane in lanes],
        "task": [lane.task_name for lane in lanes],
        "device_start_ns": begun,
        "device_s": [None if a is None or b is None else (b - a) / 1e9 for a, b in zip(begun, done, strict=True)],
        "energy_j": _numbers(energy),
    }
    given = {name: column for name, column in columns.items() if len(column)}
    for row in range(len(recording)):
        parts = tuple(segments.get(row, ()))
        yield Span(**{name: column[row] for name, column in given.items()}, segments=parts)


_WORDS = ("name", "kind", "unit", "phase")


def _wholes(column: Ints | None) -> list[int | None]:
    return [] if column is None else [None if value == MISSING else value for value in column.tolist()]


def _numbers(column: Floats | None) -> list[float | None]:
    return [] if column is None else [None if np.isnan(value) else value for value in column.tolist()]


def _counts(column: Floats | None) -> list[int | None]:
    return [None if value is None else int(value) for value in _numbers(column)]


def _energy_of_long_spans(recording: Recording) -> Floats | None:
    """A span shorter than a few readings has no measurable energy."""
    joules, power = recording.energy_j(), recording.run.power
    if joules is None or power is None:
        return joules
    return np.where(recording.durations_s >= LEAST_INTERVALS * power.interval_s, joules, np.nan)


def _memory(recording: Recording, what: str) -> Floats | None:
    """The process's memory where it was read; else the device's."""
    resident = recording.readings.get(f"rss_{what}_bytes")
    return recording.readings.get(f"cuda_{what}_bytes") if resident is None else resident


def whole_column(values: Sequence[int | None] | None, count: int) -> Ints:
    if values is None:
        return np.full(count, MISSING, dtype=np.int64)
    return np.fromiter(map(_UNLESS_NONE, values, values), np.int64, count)


_UNLESS_NONE: Any = {None: MISSING}.get  # of a value and itself: MISSING for None, else the value


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
        known = self.known
        for word in sorted(set(values) - known.keys() - {None}, key=values.index):
            known[word] = len(known)  # type: ignore[index] # None was taken off
        numbers = itemgetter(*values, None, None)({None: -1, **known})  # of two keys or more it gives a tuple
        return np.fromiter(numbers, dtype=np.int64, count=count)

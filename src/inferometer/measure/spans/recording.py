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
from inferometer.measure.spans.record import Ended, Failure, Open

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


# Finished spans as plain columns, as files hold them and `Recording` is built from them. Nothing is computed yet.

WORDS = ("name", "unit", "phase", "kind")
NUMBERS = ("layer", "token", "tokens", "context", "flops", "bytes")
_ALWAYS = frozenset({"name", "start", "end", "thread"})
FLAGS = ("failed",)

# Columns of meters: in bytes, at the end of the span less at its beginning (delta), and the most in between (peak).
READINGS = (
    "rss_delta_bytes",
    "rss_peak_bytes",
    "python_delta_bytes",
    "python_peak_bytes",
    "cuda_delta_bytes",
    "cuda_peak_bytes",
    "cuda_reserved_bytes",
)
DEVICE = ("device_start", "device_end")

_Reads = dict[str, Callable[[Sequence[Any]], list[Any]]]

# Written out, since Python reads an attribute that stands in the code twice as fast as one by name.
_OF_SPANS: _Reads = {
    "name": lambda spans: [span.name for span in spans],
    "unit": lambda spans: [span.unit for span in spans],
    "phase": lambda spans: [span.phase for span in spans],
    "kind": lambda spans: [span.kind for span in spans],
    "layer": lambda spans: [span.layer for span in spans],
    "token": lambda spans: [span.token for span in spans],
    "tokens": lambda spans: [span.tokens for span in spans],
    "context": lambda spans: [span.context for span in spans],
    "flops": lambda spans: [span.flops for span in spans],
    "bytes": lambda spans: [span.bytes for span in spans],
    "thread": lambda spans: [span.thread for span in spans],
    "start": lambda spans: [span.start for span in spans],
}
# What an `Ended` never says.
_OF_CLOSED: _Reads = {
    "task": lambda entries: [entry.task for entry in entries],
    "link": lambda entries: [entry.link for entry in entries],
    "above": lambda entries: [entry.above for entry in entries],
}


@frozen
class SpanBatch:
    """Columns of equal length. A column that is not there holds nothing but None."""

    count: int
    columns: dict[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> Any:
        values = self.columns.get(name)
        return [None] * self.count if values is None else values


def batch_of(
    entries: Sequence[Any], devices: Iterable[tuple[int, int] | None] | None = None, *, arrays: bool = False
) -> SpanBatch:
    """The columns of ended spans. `devices` are the device's times of each, where there are any.

    With `arrays` times and threads come as arrays: half the way to a `Recording`, and no way into a file.
    """
    spans: list[Open] = [entry.span for entry in entries]
    columns: dict[str, Any] = {name: read(spans) for name, read in _OF_SPANS.items()}
    columns["end"] = [entry.end for entry in entries]
    errors: list[Failure] = [entry.error for entry in entries]
    if errors.count(None) != len(errors):
        # A generator that its consumer closes early has not failed.
        columns["failed"] = [error is not None and not issubclass(error, GeneratorExit) for error in errors]
    if not all(issubclass(kind, Ended) for kind in set(map(type, entries))):
        columns |= {name: read(entries) for name, read in _OF_CLOSED.items()}
        columns |= _readings([entry.readings for entry in entries])
    if devices is not None:
        pairs = list(devices)
        columns["device_start"] = [None if pair is None else pair[0] for pair in pairs]
        columns["device_end"] = [None if pair is None else pair[1] for pair in pairs]
    silent, well = [None] * len(spans), [False] * len(spans)
    kept = {
        name: column
        for name, column in columns.items()
        if name in _ALWAYS or column != (well if name in FLAGS else silent)
    }
    if arrays:
        kept |= {name: np.fromiter(kept[name], np.int64, len(spans)) for name in ("thread", "start", "end")}
    return SpanBatch(count=len(entries), columns=kept)


def _readings(readings: list[dict[str, float] | None]) -> dict[str, list[Any]]:
    if readings.count(None) == len(readings):
        return {}
    return {name: [None if reading is None else reading.get(name) for reading in readings] for name in READINGS}

"""Build a Recording from batches of spans or from a Trace: the passes between recording and reporting."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

import numpy as np

from inferometer.core.trace import Span, Trace
from inferometer.measure.spans import nest
from inferometer.measure.spans.nest import Bools, Floats, Ints
from inferometer.measure.spans.record import NOTE, SEGMENT
from inferometer.measure.spans.recording import (
    DEVICE,
    MISSING,
    NUMBERS,
    READINGS,
    WORDS,
    Lane,
    Recording,
    RecordingRun,
    Segments,
    SpanBatch,
    Words,
    float_column,
    whole_column,
)

Titles = Mapping[tuple[int, int], str]  # (process, thread) → the thread's name


@dataclass(slots=True, kw_only=True)
class _SpanTable:
    """Columns on their way: arrays by name, in the order the spans ended. `empty` ones hold their default alone."""

    words: Words
    columns: dict[str, Any]
    empty: frozenset[str]
    lanes: list[Lane]
    notes: list[str] = field(default_factory=list)


def build(
    batches: Iterable[SpanBatch], *, run: RecordingRun | None = None, titles: Titles | None = None, process: int = 0
) -> Recording:
    """Nest, repair and sort what was recorded. The run's notes say what had to be repaired.

    `process` is that of batches that name none.
    """
    table = _gathered(batches, titles or {}, _Lanes(process))
    # where the clock ran backwards, keep durations from being negative, and report it in a note
    starts, ends = table.columns["start"], table.columns["end"]
    backwards = ends < starts
    jumps, furthest = int(backwards.sum()), int((starts - ends).max(initial=0))
    for rows in nest.by_lane(table.columns["lane"]):
        steps = np.diff(ends[rows])  # spans of a lane are in the order they ended
        between = (steps < 0) & ~backwards[rows][1:]
        if table.columns["parent"] is None and between.any():
            jumps, furthest = jumps + int(between.sum()), max(furthest, int(-steps.min()))
    if jumps:
        table.notes.append(
            f"The clock went backwards {jumps} time{'s' if jumps > 1 else ''}, by up to {furthest} ns: "
            f"{int(backwards.sum())} spans that would end before they began have no duration."
        )
    table.columns["end"] = np.maximum(starts, ends)
    as_given = table.columns["parent"] is not None
    if as_given:
        nest.require_tree(table.columns["parent"])
    else:
        table.columns["parent"] = _nested(table)
    del table.columns["link"], table.columns["above"]
    _apply_notes(table)
    return _finished(table, run or RecordingRun(), as_given=as_given)


def _gathered(batches: Iterable[SpanBatch], titles: Titles, lanes: "_Lanes") -> _SpanTable:
    """Each batch becomes arrays at once, while it is at hand; then they are joined."""
    words = Words()
    parts: dict[str, list[Any]] = {name: [] for name in (*_ARRAYS, "lane", "link", "above")}
    counts: list[int] = []
    for batch in batches:
        for name, made in _ARRAYS.items():
            column = batch.columns.get(name)
            parts[name].append(None if column is None else made(words, column, batch.count))
        parts["lane"].append(lanes.column(batch))
        for name in ("link", "above"):
            parts[name].append(batch.columns.get(name))
        counts.append(batch.count)
    columns: dict[str, Any] = {name: _joined(words, name, parts[name], counts) for name in _ARRAYS}
    columns["lane"] = np.concatenate(parts["lane"]) if counts else _NONE
    for name in ("link", "above"):
        columns[name] = _listed(parts[name], counts)
    columns = {name: column for name, column in columns.items() if column is not None or name not in _OPTIONAL}
    columns.setdefault("parent", None)
    named = _titled([*lanes.known.values()], titles)
    empty = frozenset(name for name in _ARRAYS if name != "parent" and all(part is None for part in parts[name]))
    return _SpanTable(words=words, columns=columns, empty=empty, lanes=named)


def _joined(words: Words, name: str, parts: list[Any], counts: list[int]) -> Any:
    """One column of all batches, filled where a batch has none; a column that none has is made once."""
    if all(part is None for part in parts):
        return None if name in _OPTIONAL else _ARRAYS[name](words, None, sum(counts))
    filled = [
        _ARRAYS[name](words, None, count) if part is None else part for part, count in zip(parts, counts, strict=True)
    ]
    return filled[0] if len(filled) == 1 else np.concatenate(filled)


def _listed(parts: list[Any], counts: list[int]) -> list[Any] | None:
    if all(part is None for part in parts):
        return None
    filled = ([None] * count if part is None else part for part, count in zip(parts, counts, strict=True))
    return list(chain.from_iterable(filled))


def _times(values: Any, count: int) -> Ints:
    return values if isinstance(values, np.ndarray) else np.fromiter(values or (), dtype=np.int64, count=count)


_NONE: Ints = np.zeros(0, dtype=np.int64)
_OPTIONAL = frozenset({*READINGS, *DEVICE, "energy", "parent"})
_Made = Callable[[Words, list[Any] | None, int], Any]
_ARRAYS: dict[str, _Made] = {
    **dict.fromkeys(WORDS, Words.column),
    **dict.fromkeys(("layer", "token", *DEVICE, "parent"), lambda _, values, count: whole_column(values, count)),
    **dict.fromkeys(
        ("tokens", "context", "flops", "bytes", "energy", *READINGS),
        lambda _, values, count: float_column(values, count),
    ),
    **dict.fromkeys(("start", "end"), lambda _, values, count: _times(values, count)),
    "failed": lambda _, values, count: np.fromiter(map(bool, values or [False] * count), np.bool_, count),
}


def _is_constant(column: Any) -> bool:
    if isinstance(column, np.ndarray):
        return len(column) > 0 and bool(column.min() == column.max())
    return column is None or len(set(column)) == 1


class _Lanes:
    """A number for each process, thread and task, in order of appearance."""

    def __init__(self, process: int) -> None:
        self._process = process
        self.known: dict[tuple[Any, ...], Lane] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}

    def column(self, batch: SpanBatch) -> Ints:
        given = [batch.columns.get(name) for name in ("process", "thread", "task")]
        if all(_is_constant(column) for column in given):
            return np.full(batch.count, self._number(tuple(None if c is None else c[0] for c in given)))
        columns = [column if column is not None else [None] * batch.count for column in given]
        return np.fromiter(map(self._number, zip(*columns, strict=True)), dtype=np.int64, count=batch.count)

    def _number(self, key: tuple[Any, ...]) -> int:
        """Keys hold plain numbers or numpy's: both find the same entry."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            process, thread, task = key
            self.known[key] = Lane(
                process=self._process if process is None else process, thread=int(thread or 0), task=task
            )
        return number


_LARGEST_TID = 2**22  # of Linux; Python's own number of a thread is an address, which nobody can read


def _titled(lanes: list[Lane], titles: Titles) -> list[Lane]:
    """Each with its thread's name; a thread that ended before it was asked for its name gets the next number."""
    known, ended = dict(titles), Counter[int]()
    found: list[Lane] = []
    for lane in lanes:
        key = (lane.process, lane.thread)
        if not known.get(key):
            has_ended = lane.thread > _LARGEST_TID
            ended[lane.process] += has_ended
            known[key] = f"ended thread {ended[lane.process]}" if has_ended else f"thread {lane.thread}"
        found.append(replace(lane, title=known[key] if lane.task is None else f"{known[key]}, {lane.task_name}"))
    return found


def _nested(table: _SpanTable) -> Ints:
    columns = table.columns
    starts, ends, lanes = columns["start"], columns["end"], columns["lane"]
    within = np.isin(columns["kind"], [table.words.known.get(kind, -2) for kind in (NOTE, SEGMENT)])
    parent = nest.parents(starts, ends, lanes, within)
    if columns["link"] is not None and columns["above"] is not None:
        nest.follow_links(parent, columns["link"], columns["above"])
        nest.require_tree(parent)  # links may come from a file that is not whole
    # For each lane of a task the lane of its thread; −1 for a thread's own, and where that has no spans.
    threads = {(lane.process, lane.thread): number for number, lane in enumerate(table.lanes) if lane.task is None}
    found = [-1 if lane.task is None else threads.get((lane.process, lane.thread), -1) for lane in table.lanes]
    homes = np.asarray(found, dtype=np.int64)
    for home in np.unique(homes[homes >= 0]).tolist():
        inner = np.flatnonzero((homes[lanes] == home) & (parent < 0))
        nest.enclose(parent, starts, ends, inner, np.flatnonzero(lanes == home))
    return parent


def _apply_notes(table: _SpanTable) -> None:
    """Notes add facts to the span around them, and are spans no more."""
    columns = table.columns
    number = table.words.known.get(NOTE, -2)
    notes = np.flatnonzero(columns["kind"] == number)
    if len(notes) == 0:
        return
    for row in notes.tolist():
        above = int(columns["parent"][row])
        if above < 0:
            table.notes.append("Facts were noted outside any span, and belong to none.")
            continue
        for name in NUMBERS:
            value = columns[name][row]
            if not (value == MISSING or np.isnan(float(value))):
                columns[name][above] = value
    _select(table, columns["kind"] != number)


def _select(table: _SpanTable, kept: Bools) -> None:
    """Keep some rows; the children of those that go belong to the nearest one that stays."""
    if bool(kept.all()):
        return
    columns = table.columns
    parent = nest.nearest(columns["parent"], kept)
    columns["parent"] = np.where(parent >= 0, (np.cumsum(kept) - 1)[parent], -1)
    for name, column in columns.items():
        columns[name] = column[kept]


def _finished(table: _SpanTable, run: RecordingRun, *, as_given: bool) -> Recording:
    """Take segments out and sort by beginning.

    Of spans that began together the outer one, which ended last, is first, after those that were over by then; where
    parents were given, so was the order.
    """
    columns = table.columns
    part = (columns["kind"] == table.words.known.get(SEGMENT, -2)) & (columns["parent"] >= 0)
    owners = np.zeros(0, dtype=np.int64)
    if bool(part.any()):
        lifted = nest.nearest(columns["parent"], ~part)
        part &= lifted >= 0
        owners = (np.cumsum(~part) - 1)[lifted[part]]
    parts = {name: columns[name][part] for name in ("name", "start", "end", "bytes")}
    _select(table, ~part)
    order = _by_beginning(columns["start"], columns["end"], columns["parent"], as_given=as_given)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    parent = columns["parent"]
    columns["parent"] = np.where(parent >= 0, place[parent] if len(parent) else parent, -1)
    columns = {name: column if name in table.empty else column[order] for name, column in columns.items()}
    device = tuple(columns.pop(name) for name in DEVICE if name in columns)
    readings: dict[str, Floats] = {name: columns.pop(name) for name in READINGS if name in columns}
    energy: Floats | None = columns.pop("energy", None)
    segments = Segments(owner=place[owners], **parts)
    return Recording(
        words=tuple(table.words.known),
        **columns,
        lanes=tuple(table.lanes),
        segments=segments,
        readings=readings,
        energy=energy,
        device=(device[0], device[1]) if device else None,
        run=replace(run, notes=(*run.notes, *table.notes)),
    )


def _by_beginning(starts: Ints, ends: Ints, parent: Ints, *, as_given: bool) -> Ints:
    order = np.argsort(starts, kind="stable")
    if as_given or not bool((np.diff(starts[order]) == 0).any()):
        return order
    # What was over where others begin came before them, unless the span around it is one of these.
    around = np.where(parent >= 0, starts[np.maximum(parent, 0)], starts - 1)
    before = (starts == ends) & (around < starts)
    ended = np.arange(len(starts))
    return np.lexsort((np.where(before, ended, -ended), np.where(before, 0, -ends), ~before, starts))


def from_trace(trace: Trace) -> Recording:
    """A Trace's spans as a Recording. Parents are as the trace says them."""
    spans, parts = trace.spans, [(row, part) for row, span in enumerate(trace.spans) for part in span.segments]
    columns: dict[str, list[Any]] = {
        name: [getattr(span, name) for span in spans] + [None] * len(parts) for name in (*WORDS, *NUMBERS)
    }
    columns["name"][len(spans) :] = [part.name for _, part in parts]
    columns["kind"][len(spans) :] = [SEGMENT] * len(parts)
    columns["start"] = [span.start_ns for span in spans] + [part.start_ns for _, part in parts]
    columns["end"] = [span.end_ns for span in spans] + [part.end_ns for _, part in parts]
    columns |= _lanes_of(spans, [row for row, _ in parts])
    columns["parent"] = [-1 if span.parent is None else span.parent for span in spans] + [row for row, _ in parts]
    columns["failed"] = [span.failed for span in spans] + [False] * len(parts)
    begun = [None if span.device_s is None else span.device_start_ns for span in spans]
    extras: dict[str, list[Any]] = {
        "rss_delta_bytes": [span.memory_delta_bytes for span in spans],
        "rss_peak_bytes": [span.memory_peak_bytes for span in spans],
        "device_start": begun,
        "device_end": [
            None if start is None else start + round((span.device_s or 0.0) * 1e9)
            for start, span in zip(begun, spans, strict=True)
        ],
        "energy": [span.energy_j for span in spans],
    }
    for column, values in extras.items():
        if any(value is not None for value in values):
            columns[column] = values + [None] * len(parts)
    run = RecordingRun(clock=trace.clock, started_at=trace.started_at, dropped=trace.dropped)
    return build([SpanBatch(count=len(spans) + len(parts), columns=columns)], run=run)


def _lanes_of(spans: Sequence[Span], owners: Sequence[int]) -> dict[str, list[Any]]:
    """Where each span ran, and then each segment."""
    # Our own names say their number (see `Lane`); others get numbers that are free.
    names = {span.task for span in spans if span.task is not None}
    ours = {name: int(match[2]) * (1 if match[1] == "task" else -1) for name in names if (match := _TASK(name))}
    free = (number for number in count(1) if number not in ours.values())
    tasks = ours | {name: next(free) for name in sorted(names) if name not in ours}
    where: dict[str, list[Any]] = {
        "process": [span.process or 0 for span in spans],
        "thread": [span.thread or 0 for span in spans],
        "task": [None if span.task is None else tasks[span.task] for span in spans],
    }
    return {name: column + [column[row] for row in owners] for name, column in where.items()}


_TASK = re.compile(r"(task|callbacks) ([1-9][0-9]{0,17})", re.ASCII).fullmatch


def batches_of(recording: Recording, *, by_end: bool = False, rows: int = 8192) -> Iterator[SpanBatch]:
    """A recording as batches again, parents included: spans in its order, or in which they ended; then segments."""
    order = np.lexsort((-recording.start, recording.end)) if by_end else np.arange(len(recording))
    for first in range(0, len(recording), rows):
        yield _spans_of(recording, order[first : first + rows])
    parts = recording.segments
    if len(parts.owner):
        lanes = [recording.lanes[lane] for lane in recording.lane[parts.owner].tolist()]
        columns: dict[str, list[Any]] = {
            "name": [recording.words[index] for index in parts.name.tolist()],
            "kind": [SEGMENT] * len(lanes),
            "bytes": _known(parts.bytes),
            "start": parts.start.tolist(),
            "end": parts.end.tolist(),
            "parent": parts.owner.tolist(),
        }
        yield SpanBatch(count=len(lanes), columns=columns | _where(lanes))


def _spans_of(recording: Recording, rows: Ints) -> SpanBatch:
    lanes = [recording.lanes[lane] for lane in recording.lane[rows].tolist()]
    columns: dict[str, list[Any]] = {
        name: [recording.word(index) for index in getattr(recording, name)[rows].tolist()] for name in WORDS
    }
    columns |= {name: _known(getattr(recording, name)[rows]) for name in NUMBERS}
    columns |= {name: getattr(recording, name)[rows].tolist() for name in ("start", "end", "failed", "parent")}
    columns |= {name: _known(column[rows]) for name, column in recording.readings.items()}
    if recording.device is not None:
        columns |= {name: _known(column[rows]) for name, column in zip(DEVICE, recording.device, strict=True)}
    if (energy := recording.energy_j()) is not None:
        columns["energy"] = _known(energy[rows])
    return SpanBatch(count=len(lanes), columns=columns | _where(lanes))


def _where(lanes: Sequence[Lane]) -> dict[str, list[Any]]:
    return {name: [getattr(lane, name) for lane in lanes] for name in ("process", "thread", "task")}


def _known(column: Ints | Floats) -> list[Any]:
    """Values, with None for what was not given."""
    return [None if value == MISSING or value != value else value for value in column.tolist()]  # noqa: PLR0124 - NaN

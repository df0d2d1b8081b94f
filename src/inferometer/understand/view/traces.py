"""Recordings in the formats of common viewers: Chrome and Perfetto, speedscope, flame graphs.

`chrome` takes batches as they come and holds none of them, so a run of any length can be written.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, count
from typing import Any

import msgspec
import numpy as np

from inferometer.measure.spans.build import Titles, batches_of
from inferometer.measure.spans.nest import Ints, by_lane
from inferometer.measure.spans.power import Series
from inferometer.measure.spans.record import NOTE
from inferometer.measure.spans.recording import READINGS, Lane, Recording, RecordingRun, SpanBatch
from inferometer.version import __version__

_ARGUMENTS = ("phase", "layer", "token", "tokens", "context", "flops", "bytes", "energy", *READINGS)
_RENAMED = {"energy": "energy_j"}
_PIECE = 2048  # events made at a time
_REMEMBERED = 1024  # spans of a lane that a later one is compared with


def chrome(
    source: Recording | Iterable[SpanBatch],
    *,
    run: RecordingRun | None = None,
    titles: Titles | None = None,
    process: int = 0,
) -> Iterator[bytes]:
    """Trace Event Format, as chrome://tracing and ui.perfetto.dev open it: complete events, times in microseconds.

    `process` is that of batches that name none. Sensors' readings become counters.
    """
    if isinstance(source, Recording):
        run = run or source.run
        titles = {(lane.process, lane.thread): lane.title for lane in source.lanes if lane.task is None}
        process = source.lanes[0].process if source.lanes else process
        source = batches_of(source, by_end=True)
    about: dict[str, Any] = {"exporter": f"inferometer {__version__}", "clock": None if run is None else run.clock}
    if run is not None:
        about |= {"started_at": run.started_at, "dropped": run.dropped, "notes": list(run.notes)}
    lanes = _Lanes(titles or {}, process)
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n'.encode()
    yield _named("process_name", process, 0, _process_title(process)).removeprefix(",\n").encode()
    for batch in source:
        for first in range(0, batch.count, _PIECE):
            events = _events(batch, slice(first, first + _PIECE), lanes)
            yield "".join((*lanes.announced(), events)).encode()
    if run is not None and run.power is not None:
        for series in run.power.series:
            yield "".join(_counter(series, process)).encode()
    yield b"\n]}\n"


class _Lanes:
    """Threads, tasks and devices as small numbers; each, and each process, is named when it is first met.

    Viewers draw what nests, and drop what overlaps in part, such as the span of a generator that outlives the one
    around it. So what does not fit into a lane gets another one.
    """

    def __init__(self, titles: Titles, process: int) -> None:
        self._titles, self.process = titles, process
        self._known: dict[tuple[Any, ...], int] = {}
        self._processes = {process}
        self._new: list[str] = []
        self._past: dict[int, deque[tuple[int, int]]] = {}

    def thread(self, process: int, thread: int, task: int | None, start: int, end: int) -> int:
        lane = self._known.get((process, thread, task))
        if lane is None:
            lane = self._add((process, thread, task), self._title(process, thread, task))
        if self._fits(lane, start, end):
            return lane
        return self.free(process, f"{self._title(process, thread, task)}, overlapping", start, end)

    def free(self, process: int, title: str, start: int, end: int) -> int:
        """The first lane of this title in which the span fits."""
        for turn in count(1):
            lane = self._known.get((process, title, turn))
            if lane is None:
                lane = self._add((process, title, turn), title if turn == 1 else f"{title} {turn}")
            if self._fits(lane, start, end):
                return lane
        raise AssertionError  # an empty lane takes all

    def _fits(self, lane: int, start: int, end: int) -> bool:
        """Whether the span contains, follows or is inside what the lane has. Most come in the order they end."""
        past = self._past[lane]
        inside = []
        while past and past[-1][0] >= start:
            inside.append(past.pop())
        if (past and start < past[-1][1] < end) or any(began < end < until for began, until in inside):
            past.extend(reversed(inside))
            return False
        past.append((start, end))
        return True

    def announced(self) -> list[str]:
        new, self._new = self._new, []
        return new

    def _title(self, process: int, thread: int, task: int | None) -> str:
        title = self._titles.get((process, thread)) or f"thread {thread}"
        return title if task is None else f"{title}, {Lane(process=process, thread=thread, task=task).task_name}"

    def _add(self, key: tuple[Any, ...], title: str) -> int:
        process, number = key[0], len(self._known) + 1
        if process not in self._processes:
            self._processes.add(process)
            self._new.append(_named("process_name", process, number, _process_title(process)))
        self._known[key] = number
        self._past[number] = deque(maxlen=_REMEMBERED)
        self._new.append(_named("thread_name", process, number, title))
        return number


def _process_title(process: int) -> str:
    return f"process {process}" if process else "profile"


def _named(what: str, process: int, lane: int, title: str) -> str:
    return f',\n{{"ph":"M","name":"{what}","pid":{process},"tid":{lane},"args":{{"name":{json.dumps(title)}}}}}'


def _events(batch: SpanBatch, rows: slice, lanes: _Lanes) -> str:
    columns = {name: batch.columns[name][rows] for name in batch.columns}
    names, starts, ends = columns["name"], columns["start"], columns["end"]
    silent: list[Any] = [None] * len(names)
    processes = columns.get("process") or [lanes.process] * len(names)
    threads, tasks = columns.get("thread") or [0] * len(names), columns.get("task") or silent
    tids = list(map(lanes.thread, processes, threads, tasks, starts, ends))
    kinds = columns.get("kind") or silent
    categories = [unit or kind for unit, kind in zip(columns.get("unit") or silent, kinds, strict=True)]
    heads = list(map(_head, names, categories, processes, tids))
    tails = _tails(columns, len(names))
    if NOTE in kinds:
        kept = [row for row, kind in enumerate(kinds) if kind != NOTE]
        heads, starts, ends, tails = ([column[row] for row in kept] for column in (heads, starts, ends, tails))
    return _complete(heads, starts, ends, tails) + _on_devices(columns, processes, lanes)


def _on_devices(columns: Mapping[str, Any], processes: Sequence[int], lanes: _Lanes) -> str:
    """The device's times of spans that have some, in the order they end there."""
    if "device_start" not in columns:
        return ""
    rows = zip(columns["device_end"], columns["device_start"], columns["name"], processes, strict=True)
    known = sorted((end, -begin, name, process) for end, begin, name, process in rows if begin is not None)
    tids = [lanes.free(process, "device", -begin, end) for end, begin, _, process in known]
    heads = [_head(name, "device", process, tid) for (_, _, name, process), tid in zip(known, tids, strict=True)]
    return _complete(heads, [-begin for _, begin, _, _ in known], [end for end, _, _, _ in known], [""] * len(known))


@lru_cache(maxsize=4096)
def _head(name: str, category: str | None, pid: int, tid: int) -> str:
    """All of an event that spans of one name and lane share."""
    return (
        f',\n{{"ph":"X","name":{json.dumps(name)},"cat":{json.dumps(category or "span")},"pid":{pid},"tid":{tid},"ts":'
    )


def _tails(columns: Mapping[str, Any], rows: int) -> list[str]:
    """The arguments of each event: facts that were given. What is no number has no word in JSON, and is null."""
    given = [(_RENAMED.get(name, name), columns[name]) for name in _ARGUMENTS if name in columns]
    failed = columns.get("failed") or [False] * rows
    if not given and True not in failed:
        return [""] * rows
    tails = []
    for row in range(rows):
        facts = {name: column[row] for name, column in given if column[row] is not None}
        if failed[row]:
            facts["failed"] = True
        tails.append(f',"args":{msgspec.json.encode(facts).decode()}' if facts else "")
    return tails


def _complete(heads: list[str], starts: Sequence[int], ends: Sequence[int], tails: list[str]) -> str:
    """Events as text, all in one go. Nanoseconds become microseconds by moving the point, exactly."""
    begins, spent = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64) - starts
    if len(heads) == 0:
        return ""
    if int(begins.min()) < 0:
        heads = [f"{head}-" if start < 0 else head for head, start in zip(heads, starts, strict=True)]
    times = (
        part.tolist() for nanoseconds in (np.abs(begins), np.maximum(spent, 0)) for part in np.divmod(nanoseconds, 1000)
    )
    parts = chain.from_iterable(zip(heads, *times, tails, strict=True))
    return ('%s%d.%03d,"dur":%d.%03d%s}' * len(heads)) % tuple(parts)


def _counter(series: Series, process: int) -> Iterator[str]:
    """A sensor's readings, as a viewer draws them over the spans. A counter of joules is drawn as it counts."""
    unit = {"power": "W", "energy": "J", "temperature": "°C", "clock": "Hz", "use": "share"}[series.quantity]
    name = json.dumps(f"{series.name} {series.quantity}")
    for time_ns, value in zip(series.times_ns, series.values, strict=True):
        yield f',\n{{"ph":"C","name":{name},"pid":{process},"ts":{time_ns / 1000},"args":{{"{unit}":{value!r}}}}}'


# ── speedscope ──────────────────────────────────────────────────────────────────────────────────────────────────────


def speedscope(recording: Recording) -> Iterator[bytes]:
    """speedscope.app's evented format: one profile a lane, every beginning and end in order."""
    frames = [{"name": recording.words[name]} for name in range(len(recording.words))]
    head = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"inferometer {__version__}",
        "name": "profile",
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
    }
    yield json.dumps(head)[:-1].encode() + b', "profiles": ['
    origin = int(recording.start.min()) if len(recording) else 0
    written = False
    for rows in by_lane(recording.lane):
        events = list(_opened_and_closed(recording, rows, origin))
        profile = {
            "type": "evented",
            "name": recording.lanes[int(recording.lane[rows[0]])].title,
            "unit": "nanoseconds",
            "startValue": 0,
            "endValue": max(event["at"] for event in events),
            "events": events,
        }
        yield (b",\n" if written else b"\n") + json.dumps(profile).encode()
        written = True
    yield b"\n]}\n"


def _opened_and_closed(recording: Recording, rows: Ints, origin: int) -> Iterator[dict[str, Any]]:
    """Events that nest and never go back in time: a span that outlives the one around it is closed with it."""
    starts, ends = (recording.start[rows] - origin).tolist(), (recording.end[rows] - origin).tolist()
    names = recording.name[rows].tolist()
    open_spans: list[tuple[int, int]] = []
    now = 0
    for start, end, name in zip(starts, ends, names, strict=True):
        while open_spans and open_spans[-1][1] <= start:
            frame, until = open_spans.pop()
            now = max(now, until)
            yield {"type": "C", "frame": frame, "at": now}
        now = max(now, start)
        yield {"type": "O", "frame": name, "at": now}
        limit = open_spans[-1][1] if open_spans else end
        open_spans.append((name, max(min(end, limit), now)))
    while open_spans:
        frame, until = open_spans.pop()
        now = max(now, until)
        yield {"type": "C", "frame": frame, "at": now}


# ── folded stacks ───────────────────────────────────────────────────────────────────────────────────────────────────


def folded(recording: Recording) -> Iterator[bytes]:
    """`generate;decode;forward 49570000`: the nanoseconds each path has of its own, for any flame graph program."""
    own = np.rint(recording.exclusive_s() * 1e9).astype(np.int64).tolist()
    words = [word.replace(";", ":").replace("\n", " ") for word in recording.words]
    stacks: list[str] = []
    total: dict[str, int] = {}
    for row, (above, name) in enumerate(zip(recording.parent.tolist(), recording.name.tolist(), strict=True)):
        stack = words[name] if not 0 <= above < row else f"{stacks[above]};{words[name]}"
        stacks.append(stack)
        total[stack] = total.get(stack, 0) + own[row]
    for stack, spent in total.items():
        yield f"{stack} {spent}\n".encode()

"""Recordings for the viewers people have: Chrome and Perfetto, speedscope, flame graphs.

`chrome` takes batches as they come and holds none of them, so a run of any length can be written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from inferometer.profiler.batch import READINGS, Batch
from inferometer.profiler.build import Titles, batches_of
from inferometer.profiler.nest import Ints
from inferometer.profiler.record import NOTE
from inferometer.profiler.recording import Recording, Run
from inferometer.version import __version__

__all__ = ["chrome", "folded", "speedscope"]

_ARGUMENTS = ("phase", "layer", "token", "tokens", "flops", "bytes", *READINGS)
_PIECE = 4096  # events joined at a time
_DEVICE_LANE = 1_000_000  # above every thread's number: device times have lanes of their own


def chrome(
    source: Recording | Iterable[Batch], *, run: Run | None = None, titles: Titles | None = None
) -> Iterator[bytes]:
    """Trace Event Format, as chrome://tracing and ui.perfetto.dev open it: complete events, times in microseconds."""
    if isinstance(source, Recording):
        run = run or source.run
        titles = {(lane.process, lane.thread): lane.title for lane in source.lanes if lane.task is None}
        source = batches_of(source)
    about: dict[str, Any] = {"exporter": f"inferometer {__version__}", "clock": None if run is None else run.clock}
    if run is not None:
        about |= {"started_at": run.started_at, "dropped": run.dropped, "notes": list(run.notes)}
    yield f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n'.encode()
    lanes = _Lanes(titles or {})
    yield _event({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "profile"}}).encode()
    for batch in source:
        for first in range(0, batch.count, _PIECE):
            yield "".join(_events(batch, range(first, min(first + _PIECE, batch.count)), lanes)).encode()
    yield b"\n]}\n"


def _event(event: Mapping[str, Any]) -> str:
    return json.dumps(event)


class _Lanes:
    """Threads and tasks as small numbers; each is named when it is first met."""

    def __init__(self, titles: Titles) -> None:
        self._titles = titles
        self._known: dict[tuple[int, int, int | None], int] = {}
        self.new: list[str] = []

    def number(self, process: int, thread: int, task: int | None) -> int:
        key = (process, thread, task)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self._known) + 1
            self._announce(process, found, self._title(key))
        return found

    def device(self, process: int) -> int:
        if (process, _DEVICE_LANE, None) not in self._known:
            self._known[process, _DEVICE_LANE, None] = _DEVICE_LANE
            self._announce(process, _DEVICE_LANE, "device")
        return _DEVICE_LANE

    def _title(self, key: tuple[int, int, int | None]) -> str:
        process, thread, task = key
        title = self._titles.get((process, thread)) or f"thread {thread}"
        return title if task is None else f"{title}, {'task' if task > 0 else 'callbacks'} {abs(task)}"

    def _announce(self, process: int, number: int, title: str) -> None:
        self.new.append(
            ",\n" + _event({"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": title}})
        )


def _events(batch: Batch, rows: range, lanes: _Lanes) -> Iterator[str]:
    columns = {name: batch.columns[name] for name in _ARGUMENTS if name in batch.columns}
    process, thread, task, unit, kind, failed, begun, done = (
        batch.columns.get(name)
        for name in ("process", "thread", "task", "unit", "kind", "failed", "device_start", "device_end")
    )
    name, start, end = batch.columns["name"], batch.columns["start"], batch.columns["end"]
    for row in rows:
        if kind is not None and kind[row] == NOTE:
            continue
        pid = process[row] if process else 0
        tid = lanes.number(pid, thread[row] if thread else 0, task[row] if task else None)
        given = {key: column[row] for key, column in columns.items() if column[row] is not None} if columns else None
        if failed and failed[row]:
            given = {**(given or {}), "failed": True}
        head = _head(name[row], (unit[row] if unit else None) or (kind[row] if kind else None), pid, tid)
        yield _complete(head, start[row], end[row], given)
        if begun is not None and done is not None and begun[row] is not None:
            yield _complete(_head(name[row], "device", pid, lanes.device(pid)), begun[row], done[row], None)
        if lanes.new:
            yield "".join(lanes.new)
            lanes.new.clear()


@lru_cache(maxsize=4096)
def _head(name: str, category: str | None, pid: int, tid: int) -> str:
    """All of an event that spans of one name and lane share."""
    return (
        f',\n{{"ph":"X","name":{json.dumps(name)},"cat":{json.dumps(category or "span")},"pid":{pid},"tid":{tid},"ts":'
    )


def _complete(head: str, start: int, end: int, given: dict[str, Any] | None) -> str:
    arguments = f',"args":{json.dumps(given)}' if given else ""
    return f'{head}{_microseconds(start)},"dur":{_microseconds(max(end - start, 0))}{arguments}}}'


def _microseconds(nanoseconds: int) -> str:
    """Exactly, by moving the point three places: a division would cost more, and digits."""
    digits = str(nanoseconds)
    if nanoseconds >= 1000:
        return f"{digits[:-3]}.{digits[-3:]}"
    return f"0.{digits:0>3}" if nanoseconds >= 0 else f"-{_microseconds(-nanoseconds)}"


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
    for number, lane in enumerate(recording.lanes):
        rows = np.flatnonzero(recording.lane == number)
        if len(rows) == 0:
            continue
        events = list(_opened_and_closed(recording, rows, origin))
        profile = {
            "type": "evented",
            "name": lane.title,
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

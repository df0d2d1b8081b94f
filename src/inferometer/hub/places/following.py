"""Reading a job's folder while it runs, wherever the folder is."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from inferometer.core import notices
from inferometer.core.codec import decode, document
from inferometer.core.errors import InferometerError, PlaceError, SchemaError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEvent, JobResult

EVENTS, RESULT, JOB, LOG = "events.jsonl", "result.json", "job.json", "runner.log"
LOOK_S = 0.1
LOST = "The process that ran the job is gone and left no result: it was killed, or the device was restarted."


class JobFolder(Protocol):
    """The folder of a job as seen from here."""

    def read(self, name: str, offset: int = 0) -> bytes:
        """What a file has from there on; nothing if it is not there."""

    def alive(self) -> bool:
        """Whether the runner runs."""


def follow(  # noqa: PLR0913 - the seams of the loop
    folder: JobFolder,
    job: str,
    after: int = 0,
    *,
    look_s: float = LOOK_S,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> Iterator[JobEvent]:
    """The events after a number, as they come, until a final one. If the runner leaves none, it is made here."""
    rest, offset, last, gone = b"", 0, after, 0
    while True:
        data = folder.read(EVENTS, offset)
        offset += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for event in _decoded(lines):
            if event.number <= last:
                continue
            last = event.number
            yield event
            if event.final:
                return
        # Its last words may have come since we read: it is gone if it is gone at several looks.
        gone = 0 if data or folder.alive() else gone + 1
        if gone > 2:
            yield JobEvent(job=job, number=last + 1, at=now(), kind="state", state="inconclusive", text=LOST)
            return
        if not data:
            sleep(look_s)


def _decoded(lines: list[bytes]) -> Iterator[JobEvent]:
    for line in lines:
        try:
            yield decode(line, JobEvent)
        except SchemaError:
            continue  # a line that was cut off when the disk was full: the result says how it ended


def result_in(folder: JobFolder, job: Job) -> JobResult:
    """The result that the runner left; that it is lost, with its log, where there is none."""
    data = folder.read(RESULT)
    if data:
        return decode(data, JobResult)
    log = folder.read(LOG)[-64_000:].decode("utf-8", "replace")
    remedy = "Run it again; if it is lost again, the device may have run out of memory."
    return JobResult(job=job, ended="lost", error=LOST, remedy=remedy, error_kind="EngineError", log=log)


# Asking a place again that is away for a while: a job goes on there meanwhile.

T = TypeVar("T")

_WAITS_S = (0.5, 1.0, 2.0, 5.0, 10.0)


@frozen
class Patience:
    """How long to wait for a place."""

    title: str
    seconds: float
    sleep: Callable[[float], None]

    def ask(
        self,
        ask: Callable[[], T],
        *,
        away: type[InferometerError],
        says: Callable[[InferometerError], str],
        again: Callable[[], None] = lambda: None,
    ) -> T:
        """Ask; where `away` is raised say so, do what `again` does and ask again, until the patience is at its end."""
        waited = 0.0
        for pause in chain(_WAITS_S, repeat(_WAITS_S[-1])):
            try:
                return ask()
            except away as lost:
                if waited == 0.0:
                    notices.tell(says(lost))
                if waited >= self.seconds:
                    raise PlaceError(
                        f"{self.title} did not come back within {self.seconds:g} s. {lost.message}",
                        remedy="The job goes on there: the same command picks it up.",
                    ) from None
                again()
                self.sleep(pause)
                waited += pause
        raise AssertionError  # the pauses have no end


# What an agent has to tell of its job: a file of events, numbered by their lines, so that nothing is told twice.
#
# It outlives the agent: one that is started again reads where it was.

_PROGRESS_S = 1.0  # between two events of one stage: the hub keeps them all
_MOST = 500  # that are sent at once


class ToldLog:
    def __init__(self, path: Path, job: str, now: Callable[[], float] = time.time) -> None:
        self._path, self._job, self._now = path, job, now
        self._lines = self._read()
        self.sent = 0
        self._stage, self._at = "", 0.0

    def _read(self) -> list[dict[str, Any]]:
        try:
            lines = self._path.read_bytes().split(b"\n")[:-1]
        except OSError:
            return []
        return [json.loads(line) for line in lines]

    def heard(self, round_: int) -> int:
        """The last event of a runner that is in here."""
        return max((line["number"] for line in self._lines if line["round"] == round_), default=0)

    def note(self, text: str) -> None:
        self._add(0, 0, JobEvent(job=self._job, number=1, at=self._now(), kind="notice", text=text))

    def add(self, round_: int, event: JobEvent) -> None:
        """An event of a runner. Of one stage once a second at most; its last state comes with the result."""
        if event.final:
            return
        if event.kind == "progress":
            soon = 0 <= event.at - self._at < _PROGRESS_S  # a clock that was put back says nothing
            if event.stage == self._stage and soon and (event.share or 0.0) < 1:
                return
            self._stage, self._at = event.stage or "", event.at
        self._add(round_, event.number, replace(event, job=self._job))

    def _add(self, round_: int, number: int, event: JobEvent) -> None:
        line = {"round": round_, "number": number, "event": document(event)}
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        self._lines.append(line)

    def unsent(self) -> list[dict[str, Any]]:
        """As the hub takes them."""
        waiting = self._lines[self.sent : self.sent + _MOST]
        return [{"count": self.sent + index + 1, "event": line["event"]} for index, line in enumerate(waiting)]


class EventTail:
    """The events of a runner's folder as they are written."""

    def __init__(self, path: Path, after: int) -> None:
        self._path, self._offset, self._after = path, 0, after

    def read(self) -> list[JobEvent]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        lines = data.split(b"\n")[:-1]
        self._offset += sum(len(line) + 1 for line in lines)
        events = []
        for line in lines:
            try:
                events.append(decode(line, JobEvent))
            except SchemaError:
                continue  # cut off when the disk was full: the result says how it ended
        return [event for event in events if event.number > self._after]

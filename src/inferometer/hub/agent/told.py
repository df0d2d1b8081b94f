"""What an agent has to tell of its job: a file of events, numbered by their lines, so that nothing is told twice.

It outlives the agent: one that is started again reads where it was.
"""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.codec import decode, document
from inferometer.core.errors import SchemaError
from inferometer.core.job import JobEvent

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

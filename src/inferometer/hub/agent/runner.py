"""`python -m inferometer.hub.agent.runner FOLDER`: carry out the job in a folder, wherever the folder is.

`job.json` and `files/` go in; `events.jsonl`, `result.json` and what is printed (`runner.log`) come out. A file
`cancel` asks it to stop: what was measured until then is the result. A file `lease`, if there is one, says until when
it may run: somebody renews it, and if nobody does any more, the job is another device's and this one stops.

A job that came from elsewhere runs in a box (`warden.py`): it then writes into the folder `own` of the box alone.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core import notices
from inferometer.core.cache import held_alone
from inferometer.core.codec import decode, encode
from inferometer.core.errors import InferometerError
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.hub.agent.carrying_out import carry_out, failed, hide_places, without_places
from inferometer.hub.places.device_side import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.measure.bench.loop import LoopProgress

_PROGRESS_S = 0.25  # between two events of one stage
_LOOK_S = 0.2
LEASE = "lease"  # in a job's folder: until when it may run, by `time.monotonic`, which all processes share


class EventLog:
    """Writes events, one a line, numbered. Several threads may tell it something."""

    def __init__(self, path: Path, job: str, now: Callable[[], float] = time.time) -> None:
        self._path, self._job, self._now = path, job, now
        self._number, self._told, self._stage = 0, 0.0, ""
        self._lock = threading.Lock()

    def tell(self, **event: Any) -> None:
        with self._lock:
            self._number += 1
            made = JobEvent(job=self._job, number=self._number, at=self._now(), **event)
            with self._path.open("ab") as file:
                file.write(encode(made) + b"\n")

    def progress(self, step: LoopProgress) -> None:
        """Of one stage a few times a second at most: writing must not disturb what runs."""
        now = self._now()
        if step.stage == self._stage and 0 <= now - self._told < _PROGRESS_S:  # a clock may be put back
            return
        self._stage, self._told = step.stage, now
        self.tell(kind="progress", stage=step.stage, done=step.done, share=min(max(step.share, 0.0), 1.0))

    def notice(self, text: str) -> None:
        self.tell(kind="notice", text=text)


def run_folder(folder: Path, own: Path | None = None) -> JobResult:
    """Carry out the job of a folder. Nothing that the job does raises here: the result says how it went.

    In a box events and result go into `own`, and whoever keeps the box has seen to it that the job is alone.
    """
    job = decode((folder / "job.json").read_bytes(), Job)
    into = folder if own is None else own
    log = EventLog(into / "events.jsonl", job.id)
    log.tell(kind="state", state="running")
    watch = _Watch(folder / "cancel", job.seconds_at_most)
    started = _now()
    result: JobResult | None = None
    with notices.told_to(lambda text: log.notice(hide_places(text, folder))):
        # An interrupt may come at any point in here, also when the job has just ended: its result then counts.
        try:
            try:
                watch.start()
                lock = folder.parent.parent / "measuring.lock"
                with alone(lock, log.notice) if own is None else nullcontext():
                    watch.begin()
                    result = carry_out(job, folder / "files", log.progress, into)
            finally:
                watch.end()
        except KeyboardInterrupt:
            pass
    if result is None:
        result = JobResult(job=job, ended="stopped", error="It was stopped before anything was measured.")
    if watch.expired and result.ended == "stopped":
        result = JobResult(job=job, ended="lost", error="Its lease ran out: the hub could not be reached.")
    elif watch.overdue and result.ended == "stopped":
        result = replace(
            result, ended="hung", error=f"It was not done after {job.seconds_at_most:g} s, and was stopped.",
            remedy="Allow it more time, or measure less.", error_kind="EngineError",
        )  # fmt: skip
    result = without_places(replace(result, started=started, finished=_now()), folder)
    write_whole(into / "result.json", encode(result))
    log.tell(kind="state", state=result.state, text=result.error)
    return result


@contextmanager
def alone(lock: Path, tell: Callable[[str], None], sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """One job of a place at a time: two at once would measure each other. The lock ends with its process."""
    waits = False
    while True:
        with held_alone(lock) as mine:
            if mine:
                yield
                return
        if not waits:
            tell("Another job is being measured there: waiting for its end.")
        waits = True
        sleep(_LOOK_S)


class _Watch:
    """Interrupts the main thread if it is asked to, or if the job takes too long."""

    def __init__(
        self, cancel: Path, seconds_at_most: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cancel, self._clock, self._seconds = cancel, clock, seconds_at_most
        self._deadline: float | None = None
        self._over, self._lock = threading.Event(), threading.Lock()
        self.overdue = self.expired = False

    def start(self) -> None:
        threading.Thread(target=self._look, daemon=True).start()

    def begin(self) -> None:
        """The time of the job counts from here: what it waited for others is not its own."""
        self._deadline = None if self._seconds is None else self._clock() + self._seconds

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            deadline = self._deadline
            overdue, expired = deadline is not None and self._clock() >= deadline, self._lease_is_over()
            if overdue or expired or self._cancel.exists():
                with self._lock:
                    if not self._over.is_set():
                        self.overdue, self.expired = overdue, expired
                        _thread.interrupt_main()
                return

    def _lease_is_over(self) -> bool:
        try:
            return self._clock() > float(self._cancel.with_name(LEASE).read_bytes())
        except (OSError, ValueError):
            return False  # a job without a lease

    def end(self) -> None:
        """After this nothing is interrupted any more."""
        with self._lock:
            self._over.set()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """`FOLDER [OWN]`: in a box, `OWN` is the one folder that it may write to."""
    folder, own = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
    signal.signal(signal.SIGTERM, _interrupt)  # a device that shuts down: keep what is there
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have left it ignored
    try:
        run_folder(folder, own)
    except InferometerError as error:
        refuse(folder, error, own or folder)
    sys.stdout.flush()


def refuse(folder: Path, error: InferometerError, into: Path) -> None:
    """A job that cannot even be read, because it is of a newer version or damaged: its id is its folder's name."""
    job = Job(id=folder.name, verb="calibrate")
    result = without_places(failed(job, error), folder)
    write_whole(into / "result.json", encode(result))
    EventLog(into / "events.jsonl", job.id).tell(kind="state", state=result.state, text=result.error)


if __name__ == "__main__":
    main()

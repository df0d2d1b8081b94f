"""The place `local`: this machine, in a process of its own. Every other place runs a job as this one does."""

from __future__ import annotations

import json
import shutil
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core import notices
from inferometer.core.codec import decode, document
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.core.settings import cache_folder
from inferometer.hub.places import device_side
from inferometer.hub.places.base import Closing, Handle, LocalFiles, Missing, Place, PlaceAddress, Ready
from inferometer.hub.places.following import JOB, follow, result_in
from inferometer.measure.bench.loop import LoopProgress, Progress
from inferometer.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.hub.places.requests import PackedJob

_AGE_S = 7 * 86_400.0  # of folders that a killed command left


@frozen
class FolderHere:
    """A job's folder on this machine."""

    folder: Path

    def read(self, name: str, offset: int = 0) -> bytes:
        try:
            with (self.folder / name).open("rb") as file:
                file.seek(offset)
                return file.read()
        except OSError:
            return b""

    def alive(self) -> bool:
        return device_side.is_alive(str(self.folder))


class LocalPlace(Closing):
    resumes = False  # nothing is lost here that would have to be found again
    waits = False
    title = "this machine"

    def __init__(self, root: Path) -> None:
        self._root = root

    def submit(self, job: Job, files: LocalFiles) -> Handle:
        """Each submission is a run of its own, unless the job has been given to this place under the same id."""
        device_side.collect_garbage(str(self._root), older_s=_AGE_S)
        folder = self._root / "jobs" / job.id
        handle = Handle(address="local", job=job.id, folder=str(folder))
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            return handle
        except OSError as error:
            raise InferometerError(
                f"The folder {folder} for the job cannot be made: {error.strerror or error}.",
                remedy="Set INFEROMETER_CACHE to a folder you may write to.",
            ) from None
        for file in job.files:
            place = folder / "files" / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():  # a model may be its own reference
                device_side.link_or_copy(files[file.sha256], place)
        device_side.write_whole(folder / JOB, json.dumps(document(job)).encode())
        device_side.run_detached(folder, _paths(), {})
        return handle

    def events(self, handle: Handle, after: int = 0) -> Iterator[JobEvent]:
        return follow(FolderHere(folder=Path(handle.folder)), handle.job, after)

    def cancel(self, handle: Handle) -> None:
        with suppress(OSError):  # it is done and fetched
            device_side.ask_to_stop(handle.folder)

    def fetch(self, handle: Handle) -> JobResult:
        folder = FolderHere(folder=Path(handle.folder))
        data = folder.read(JOB)
        if not data:
            raise InferometerError(f"There is no job {handle.job} here: its result was fetched before.")
        result = result_in(folder, decode(data, Job))
        shutil.rmtree(handle.folder, ignore_errors=True)
        return result


def _paths() -> list[str]:
    """Where this Python found Inferometer, so that the child finds the same one."""
    return [str(Path(__file__).parents[3])]


def unique(job: Job) -> Job:
    """The job under an id that no other has."""
    return replace(job, id=f"{job.id}-{uuid.uuid4().hex[:8]}")


class LocalProvider:
    name = "local"
    title = "This machine"

    def probe(self) -> Ready | Missing:
        return Ready(version=__version__)

    def open(self, address: PlaceAddress) -> LocalPlace:
        address.require_options("root")
        root = address.options.get("root")
        return LocalPlace(Path(root).expanduser() if root else cache_folder() / "places")


provider: Any = LocalProvider()


# Giving a job to a place and waiting for what comes of it.


def run_at(place: Place, work: PackedJob, *, progress: Progress | None = None) -> JobResult | None:
    """The result of a job, however it ended; None if somebody has to carry it to its device first.

    Ctrl-C stops the job there and brings back what it has measured; a second Ctrl-C does not wait for that.
    """
    job = work.job if place.resumes else unique(work.job)
    handle = place.submit(job, work.files)
    try:
        last = _watch(place, handle, 0, progress)
    except KeyboardInterrupt:
        notices.tell(f"Stopping the job on {place.title}. Ctrl-C again does not wait for what it measured.")
        place.cancel(handle)
        last = _watch(place, handle, 0, None)
    return None if last is not None and not last.final else place.fetch(handle)


def _watch(place: Place, handle: Handle, after: int, progress: Progress | None) -> JobEvent | None:
    event = None
    for event in place.events(handle, after):
        if event.kind == "notice" and event.text:
            notices.tell(event.text)
        elif event.kind == "progress" and progress is not None:
            progress(LoopProgress(stage=event.stage or "", done=event.done or 0, share=event.share or 0.0))
    return event

"""Giving a job to a place and waiting for what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core import notices
from inferometer.hub.places.local import unique
from inferometer.measure.bench.loop import LoopProgress

if TYPE_CHECKING:
    from inferometer.core.job import JobEvent, JobResult
    from inferometer.hub.places.base import Handle, Place
    from inferometer.hub.places.requests import PackedJob
    from inferometer.measure.bench.loop import Progress


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

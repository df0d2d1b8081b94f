"""The events of a job: numbered here, so that those of several attempts are one row of numbers."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, insert, select

from inferometer.core.job import JobEvent, JobState
from inferometer.store import names
from inferometer.store.queue.rows import event_of, event_text
from inferometer.store.tables import fleet_events

_PAGE = 1000
_TEXT = 4000


def told(job: str, number: int, now_us: int, state: JobState, text: str | None = None) -> JobEvent:
    return JobEvent(job=job, number=number, at=now_us / 1e6, kind="state", state=state, text=text)


def add(connection: Connection, job_id: str, have: int, events: Iterable[JobEvent]) -> int:
    """Write events after the `have` that there are; gives how many there are then."""
    rows = numbered(job_id, have, events)
    write(connection, rows)
    return have + len(rows)


def numbered(job_id: str, have: int, events: Iterable[JobEvent]) -> list[dict[str, Any]]:
    """Rows of events after the `have` that there are."""
    rows = []
    for number, event in enumerate(events, start=have + 1):
        cleaned = replace(event, number=number, text=names.clean(event.text, most=_TEXT))
        rows.append({"job_id": job_id, "number": number, "document": event_text(cleaned)})
    return rows


def write(connection: Connection, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(fleet_events), rows)


def after(connection: Connection, job_id: str, number: int, *, most: int = _PAGE) -> tuple[JobEvent, ...]:
    query = (
        select(fleet_events.c.document)
        .where(fleet_events.c.job_id == job_id, fleet_events.c.number > number)
        .order_by(fleet_events.c.number)
        .limit(most)
    )
    return tuple(event_of(text) for text in connection.execute(query).scalars())

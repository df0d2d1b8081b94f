"""Rows of the queue's tables as values."""

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, RowMapping, Select, literal_column, select

from inferometer.core.codec import decode, encode
from inferometer.core.errors import UnknownNameError
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.store.finding import value_of
from inferometer.store.queue.values import FleetDevice, JobRow
from inferometer.store.queue.wanted import read as read_wanted
from inferometer.store.tables import HELD_ONLY, fleet_device_projects, fleet_devices, fleet_jobs, fleet_wants, projects
from inferometer.store.values import Sight

_SUGGESTED = 200
_UNSHOWN = {"document", "project_id", "wants_id", "sequence", "tags", "fetched_us"}
_SHOWN = tuple(column for column in fleet_jobs.c if column.name not in _UNSHOWN)


def jobs_query() -> Select[Any]:
    """Jobs as `job_row` reads them."""
    return (
        select(*_SHOWN, projects.c.name.label("project"), fleet_wants.c.document.label("wanted"))
        .join(projects, projects.c.id == fleet_jobs.c.project_id)
        .join(fleet_wants, fleet_wants.c.id == fleet_jobs.c.wants_id)
    )


def job_row(row: Mapping[str, Any] | RowMapping) -> JobRow:
    late, cancelling = row["late_us"] is not None, row["cancel_us"] is not None
    return value_of(JobRow, row, wanted=read_wanted(row["wanted"]), late=late, cancelling=cancelling)


def jobs_in_sight(sight: Sight | None) -> list[ColumnElement[bool]]:
    return [] if sight is None else [fleet_jobs.c.project_id.in_(sight.projects)]


def devices_in_sight(sight: Sight | None) -> list[ColumnElement[bool]]:
    """Somebody sees their own devices, and the devices of their projects."""
    if sight is None:
        return []
    return [(fleet_devices.c.user == sight.user) | working_for(*sight.projects)]


def working_for(*projects_: int) -> ColumnElement[bool]:
    """The condition on devices that take the jobs of one of these projects, given by number."""
    serving = select(fleet_device_projects.c.device).where(fleet_device_projects.c.project_id.in_(projects_))
    return fleet_devices.c.everyone | fleet_devices.c.name.in_(serving)


def job_of(connection: Connection, job: str, sight: Sight | None = None) -> JobRow:
    query = jobs_query().where(fleet_jobs.c.id == job, *jobs_in_sight(sight))
    row = connection.execute(query).mappings().first()
    if row is None:
        raise no_job(connection, job, sight)
    return job_row(row)


def no_job(connection: Connection, job: str, sight: Sight | None = None) -> UnknownNameError:
    query = select(fleet_jobs.c.id).where(*jobs_in_sight(sight)).order_by(fleet_jobs.c.created_us.desc())
    known = list(connection.execute(query.limit(_SUGGESTED)).scalars())
    return UnknownNameError("job", job, known, listing="The hub's page /fleet/queue lists them.")


def locked_job(connection: Connection, job: str) -> Any:
    """The row of a job that no other connection changes before this one has ended."""
    row = connection.execute(select(fleet_jobs).where(fleet_jobs.c.id == job).with_for_update()).first()
    if row is None:
        raise no_job(connection, job)
    return row


def devices_of(
    connection: Connection, sight: Sight | None = None, *, facts: bool = True, project: int | None = None
) -> tuple[FleetDevice, ...]:
    """All devices, or a project's; without their `facts`, which are long, if nobody needs them."""
    query = _devices(sight, facts=facts)
    if project is not None:
        query = query.where(working_for(project))
    return tuple(map(device_of, connection.execute(query.order_by(fleet_devices.c.name)).mappings()))


def device_named(
    connection: Connection, name: str, sight: Sight | None = None, *, facts: bool = True
) -> FleetDevice:  # fmt: skip
    query = _devices(sight, facts=facts).where(fleet_devices.c.name == name)
    row = connection.execute(query).mappings().first()
    if row is None:
        raise no_device(connection, name, sight)
    return device_of(row)


def _devices(sight: Sight | None, *, facts: bool) -> Select[Any]:
    """Devices as `device_of` reads them, each with the job that it has, if that is in sight."""
    jobs = select(fleet_jobs.c.device, fleet_jobs.c.id.label("job"))
    held = jobs.where(literal_column(HELD_ONLY), *jobs_in_sight(sight)).subquery()
    columns = [column for column in fleet_devices.c if facts or column.name != "facts"]
    query = select(*columns, held.c.job).outerjoin(held, held.c.device == fleet_devices.c.name)
    return query.where(*devices_in_sight(sight))


def no_device(connection: Connection, name: str, sight: Sight | None = None) -> UnknownNameError:
    known = list(connection.execute(select(fleet_devices.c.name).where(*devices_in_sight(sight))).scalars())
    return UnknownNameError("device of the fleet", name, known, listing="The hub's page /fleet lists them.")


def device_of(row: RowMapping) -> FleetDevice:
    facts = msgspec.json.decode(row["facts"]) if "facts" in row else {}
    probing = row["probe_us"] is not None and bool(row["probes"])
    return value_of(
        FleetDevice, row, labels=labels_of(row["labels"]), facts=facts, skew_s=row["skew_us"] / 1e6, probing=probing
    )


@lru_cache(maxsize=4096)
def labels_of(text: str) -> Mapping[str, tuple[str, ...]]:
    """Remembered, since devices are looked at far more often than they change."""
    return msgspec.json.decode(text, type=dict[str, tuple[str, ...]])


def packed_job(job: Job) -> bytes:
    return zlib.compress(encode(job), 3)


def unpacked_job(data: bytes) -> Job:
    return decode(zlib.decompress(data), Job)


def packed_result(result: JobResult) -> bytes:
    return zlib.compress(encode(result), 3)


def unpacked_result(data: bytes) -> JobResult:
    return decode(zlib.decompress(data), JobResult)


def event_text(event: JobEvent) -> str:
    return encode(event).decode()


def event_of(text: str) -> JobEvent:
    return decode(text, JobEvent)

"""Rows of the queue's tables as values."""

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Connection, RowMapping, Select, literal_column, select

from inferometer.core.codec import decode, encode
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.errors import UnknownNameError
from inferometer.store.finding import seconds
from inferometer.store.queue.values import FleetDevice, JobRow
from inferometer.store.queue.wanted import read as read_wanted
from inferometer.store.tables import HELD_ONLY, fleet_devices, fleet_jobs, fleet_wants, projects

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
    return JobRow(
        id=row["id"],
        key=row["key"],
        project=row["project"],
        user=row["user"],
        verb=row["verb"],
        state=row["state"],
        wanted=read_wanted(row["wanted"]),
        priority=row["priority"],
        attempts=row["attempts"],
        created=row["created_us"] / 1e6,
        name=row["name"],
        model=row["model"],
        runtime=row["runtime"],
        reason=row["reason"],
        device=row["device"],
        lease=row["lease"],
        lease_until=seconds(row["lease_until_us"]),
        not_before=row["not_before_us"] / 1e6,
        leased=seconds(row["leased_us"]),
        ended=seconds(row["ended_us"]),
        cancelling=row["cancel_us"] is not None,
        expected_s=row["expected_s"],
        expected_from=row["expected_from"],
        moved=row["moved"],
        run=row["run_id"],
        events=row["events"],
        heard=seconds(row["heard_us"]),
        late=row["late_us"] is not None,
    )


def job_of(connection: Connection, job: str) -> JobRow:
    row = connection.execute(jobs_query().where(fleet_jobs.c.id == job)).mappings().first()
    if row is None:
        raise no_job(connection, job)
    return job_row(row)


def no_job(connection: Connection, job: str) -> UnknownNameError:
    known = connection.execute(select(fleet_jobs.c.id).order_by(fleet_jobs.c.created_us.desc()).limit(_SUGGESTED))
    return UnknownNameError("job", job, list(known.scalars()), listing="The hub's page /fleet/queue lists them.")


def devices_of(connection: Connection, *, facts: bool = True) -> tuple[FleetDevice, ...]:
    """All devices; without their `facts` where nobody looks at them, since those may be long."""
    rows = connection.execute(_devices(facts=facts).order_by(fleet_devices.c.name)).mappings()
    return tuple(map(device_of, rows))


def device_named(connection: Connection, name: str, *, facts: bool = True) -> FleetDevice:
    row = connection.execute(_devices(facts=facts).where(fleet_devices.c.name == name)).mappings().first()
    if row is None:
        raise no_device(connection, name)
    return device_of(row)


def _devices(*, facts: bool) -> Select[Any]:
    """Devices as `device_of` reads them, each with the job that it has."""
    held = select(fleet_jobs.c.device, fleet_jobs.c.id.label("job")).where(literal_column(HELD_ONLY)).subquery()
    columns = [column for column in fleet_devices.c if facts or column.name != "facts"]
    return select(*columns, held.c.job).outerjoin(held, held.c.device == fleet_devices.c.name)


def no_device(connection: Connection, name: str) -> UnknownNameError:
    known = list(connection.execute(select(fleet_devices.c.name)).scalars())
    return UnknownNameError("device of the fleet", name, known, listing="The hub's page /fleet lists them.")


def device_of(row: RowMapping) -> FleetDevice:
    return FleetDevice(
        name=row["name"],
        user=row["user"],
        labels=labels_of(row["labels"]),
        facts=msgspec.json.decode(row["facts"]) if "facts" in row else {},
        version=row["version"],
        state=row["state"],
        reason=row["reason"],
        failures=row["failures"],
        skew_s=row["skew_us"] / 1e6,
        registered=row["registered_us"] / 1e6,
        heartbeat=row["heartbeat_us"] / 1e6,
        job=row["job"],
        probing=row["probe_us"] is not None and bool(row["probes"]),
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

"""Out of a device's hands: finished, lost, given back, cancelled or expired. A result is stored once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, literal_column, select, tuple_, update

from inferometer.core.job import Job, JobEnd, JobEvent, JobResult, JobState
from inferometer.store import ids, names, writing
from inferometer.store.errors import LeaseLostError
from inferometer.store.queue import devices, events, shares
from inferometer.store.queue.leasing import held_row
from inferometer.store.queue.rows import devices_of, job_of, no_job, packed_result, unpacked_job, unpacked_result
from inferometer.store.queue.values import HELD, Check, JobRow, Moment
from inferometer.store.queue.wanted import fits
from inferometer.store.queue.wanted import read as read_wanted
from inferometer.store.tables import (
    HELD_ONLY,
    QUEUED_ONLY,
    fleet_checks,
    fleet_jobs,
    fleet_results,
    fleet_wants,
    projects,
    runs,
)
from inferometer.store.upserts import put_new

_EXPIRED_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What an agent brings back: the result, packed with what lists show of it, and the reference beside it."""

    result: JobResult
    belongings: Sequence[writing.Belongings] = ()  # of each profile, in their order
    check: Check | None = None


def finish(connection: Connection, job_id: str, lease_id: str, brought: Finished, moment: Moment) -> bool:
    """Store a result; False if this lease has brought it already.

    A lease that ran out may still bring its result, as long as no other device has taken the job meanwhile.
    """
    row = connection.execute(select(fleet_jobs).where(fleet_jobs.c.id == job_id).with_for_update()).first()
    if row is None:
        raise no_job(connection, job_id)
    if row.lease != lease_id or row.state not in {"queued", *HELD}:
        kept = connection.execute(select(fleet_results.c.lease).where(fleet_results.c.job_id == job_id)).scalar()
        if kept == lease_id:
            return False
        raise LeaseLostError(f"Job {job_id} is not leased under {lease_id} any more: it is {row.state}.")
    if brought.check is not None:
        _note_check(connection, row, brought.check, moment.now_us)
    if brought.result.ended == "lost":
        lose(connection, row, brought.result.error or "The runner is gone.", moment)
        return True
    run = _store_runs(connection, row, brought, moment.now_us)
    _end(connection, row, brought.result, moment.now_us, {"run_id": run})
    devices.did_well(connection, row.device)
    return True


def _note_check(connection: Connection, row: Any, check: Check, now_us: int) -> None:
    values = {
        "id": row.lease, "device": row.device, "job_id": row.id, "at_us": now_us, "before_s": check.before_s,
        "after_s": check.after_s, "moved": check.moved, "waited_s": check.waited_s,
    }  # fmt: skip
    put_new(connection, "fleet_checks", values)
    connection.execute(update(fleet_jobs).where(fleet_jobs.c.id == row.id).values(moved=check.moved))


def _store_runs(connection: Connection, row: Any, brought: Finished, now_us: int) -> str | None:
    """A run for each profile; those after the first are below it."""
    if not brought.belongings:
        return None
    project = connection.execute(select(projects.c.name).where(projects.c.id == row.project_id)).scalar_one()
    moved = brought.check is not None and brought.check.moved
    tags = (*row.tags.split(), *(["reference-moved"] if moved else []))
    status = {"done": "finished", "failed": "failed", "cancelled": "killed"}[brought.result.state]
    first: str | None = None
    for belongings in brought.belongings:
        draft = writing.Draft(
            project=project, name=row.name, kind=row.verb, tags=tuple(sorted(set(tags))), parent=first, author=row.user,
            parameters={"job": row.id, "device": row.device or "", "submitted by": row.user},
        )  # fmt: skip
        columns = {
            "status": status, "reason": names.clean(brought.result.error, most=2000), "created_us": now_us,
            "started_us": row.leased_us, "ended_us": now_us, "heartbeat_us": now_us, **belongings.headline,
        }  # fmt: skip
        run = ids.new_id(now_us / 1e6)
        while not writing.begin(connection, run, draft, columns):
            run = ids.new_id(now_us / 1e6)
        writing.keep(connection, run, belongings, now_us)
        first = first or run
    return first


def _end(
    connection: Connection, row: Any, result: JobResult, now_us: int, values: dict[str, Any] | None = None
) -> None:
    """The last state of a job, its result and its last event, together. `row` is locked, and as it is now."""
    put_new(connection, "fleet_results", {"job_id": row.id, "lease": row.lease, "document": packed_result(result)})
    said = events.told(row.key, 0, now_us, result.state, result.error)
    reason = names.clean(result.error, most=2000)
    connection.execute(
        update(fleet_jobs)
        .where(fleet_jobs.c.id == row.id)
        .values(
            state=result.state, reason=reason, ended_us=now_us, **(values or {}),
            events=events.add(connection, row.id, row.events, [said]),
        )
    )  # fmt: skip
    if row.leased_us is not None and row.state in HELD:
        shares.charge(connection, row.project_id, (now_us - row.leased_us) / 1e6, now_us)


def _without_result(row: Any, ended: JobEnd, error: str, remedy: str | None = None) -> JobResult:
    job = unpacked_job(row.document)
    return JobResult(job=job, ended=ended, error=error, remedy=remedy, error_kind="EngineError")


def lose(connection: Connection, row: Any, reason: str, moment: Moment, *, counts: bool = True) -> None:
    """The device did not bring the job to an end: back into the queue, or failed after too many attempts.

    Unless it `counts`, neither the job nor the device is blamed: a device that is switched off gives its job back.
    """
    timing, now_us = moment.timing, moment.now_us
    if counts and row.device is not None:
        devices.failed(connection, row.device, reason, most=timing.failures)
    if row.cancel_us is not None:
        _end(connection, row, _without_result(row, "stopped", "It was cancelled."), now_us)
        return
    attempts = row.attempts if counts else row.attempts - 1
    if attempts >= timing.attempts:
        tried = f"It was lost {attempts} times. The last time on {row.device}: {reason}"
        remedy = "Look at the devices' logs; a smaller job may fit."
        _end(connection, row, _without_result(row, "lost", tried, remedy), now_us)
        return
    wait_s = timing.backoff(attempts) if counts else 0.0
    again = f" It is tried again in {wait_s:g} s." if wait_s else ""
    said = events.told(row.key, 0, now_us, "queued", f"{row.device}: {reason}{again}")
    connection.execute(
        update(fleet_jobs)
        .where(fleet_jobs.c.id == row.id)
        .values(
            state="queued", reason=names.clean(reason, most=2000), attempts=attempts, lease_until_us=None,
            not_before_us=now_us + round(wait_s * 1e6), events=events.add(connection, row.id, row.events, [said]),
        )
    )  # fmt: skip
    if row.leased_us is not None:
        shares.charge(connection, row.project_id, (now_us - row.leased_us) / 1e6, now_us)


def give_back(connection: Connection, held: tuple[str, str], reason: str, moment: Moment, *, counts: bool) -> None:
    """An agent cannot run the job after all: its disk is full, or it is being switched off.

    `held` are the job and the lease.
    """
    lose(connection, held_row(connection, *held), reason, moment, counts=counts)


def _expired(now_us: int) -> tuple[ColumnElement[bool], ...]:
    return literal_column(HELD_ONLY), fleet_jobs.c.lease_until_us < now_us


def some_expired(connection: Connection, now_us: int) -> bool:
    return connection.execute(select(fleet_jobs.c.id).where(*_expired(now_us)).limit(1)).first() is not None


def expire(connection: Connection, moment: Moment) -> tuple[str, ...]:
    """Take back what leases hold that have run out. Rows that somebody is busy with are left for the next time."""
    query = select(fleet_jobs).where(*_expired(moment.now_us)).limit(_EXPIRED_AT_ONCE)
    rows = connection.execute(query.with_for_update(skip_locked=True)).all()
    for row in rows:
        lose(connection, row, f"{row.device} gave no sign of life any more.", moment)
    return tuple(row.id for row in rows)


def cancel(connection: Connection, job_id: str, *, by: str, now_us: int) -> JobRow:
    """One that waits ends here; one that runs is told to stop at its next sign of life. May be repeated."""
    row = connection.execute(select(fleet_jobs).where(fleet_jobs.c.id == job_id).with_for_update()).first()
    if row is None:
        raise no_job(connection, job_id)
    if row.state == "queued":
        result = _without_result(row, "stopped", f"It was cancelled by {by} before it was measured.")
        _end(connection, row, result, now_us, {"cancel_us": now_us})
    elif row.state in HELD and row.cancel_us is None:
        notice = JobEvent(job=row.key, number=1, at=now_us / 1e6, kind="notice", text=f"Cancelled by {by}.")
        have = events.add(connection, row.id, row.events, [notice])
        connection.execute(update(fleet_jobs).where(fleet_jobs.c.id == job_id).values(cancel_us=now_us, events=have))
    return job_of(connection, job_id)


def strand(connection: Connection, now_us: int) -> list[str]:
    """Fail queued jobs that no device can take any more: they would wait for ever."""
    queued = (
        select(fleet_jobs.c.project_id, fleet_jobs.c.wants_id, fleet_wants.c.document)
        .join(fleet_wants, fleet_wants.c.id == fleet_jobs.c.wants_id)
        .where(literal_column(QUEUED_ONLY))
        .distinct()
    )
    wishes = connection.execute(queued).all()
    projects_ = {wish.project_id for wish in wishes}
    able = {project: devices_of(connection, facts=False, project=project) for project in projects_}
    hopeless = [
        (wish.project_id, wish.wants_id)
        for wish in wishes
        if not any(fits(read_wanted(wish.document), device.name, device.labels) for device in able[wish.project_id])
    ]
    if not hopeless:
        return []
    asked = tuple_(fleet_jobs.c.project_id, fleet_jobs.c.wants_id)
    query = select(fleet_jobs).where(literal_column(QUEUED_ONLY), asked.in_(hopeless))
    rows = connection.execute(query.with_for_update()).all()
    error = "No device of the fleet can take it any more: the last one that could has gone or changed."
    for row in rows:
        _end(connection, row, _without_result(row, "refused", error, "Submit it for another device."), now_us)
    return [row.id for row in rows]


def tell(
    connection: Connection, job_id: str, lease_id: str, said: Sequence[tuple[int, JobEvent]], moment: Moment
) -> tuple[int, bool]:
    """Write what an agent says of its job: gives the last of its numbers that is written, and whether it is to stop.

    `said` has the agent's own count with each event, so that what is sent twice is written once. Final states come
    with the result, and are not written here. It is a sign of life too.
    """
    row = held_row(connection, job_id, lease_id)
    fresh = [(count, event) for count, event in said if count > row.sequence]
    kept = [event for _, event in fresh if not event.final]
    state: JobState = "running" if any(event.state == "running" for event in kept) else row.state
    last = max([row.sequence, *(count for count, _ in fresh)])
    values = {
        "events": events.add(connection, job_id, row.events, kept), "sequence": last, "state": state,
        "lease_until_us": moment.now_us + round(moment.timing.lease_s * 1e6),
    }  # fmt: skip
    connection.execute(update(fleet_jobs).where(fleet_jobs.c.id == job_id).values(values))
    devices.beat(connection, row.device, now_us=moment.now_us)
    return last, row.cancel_us is not None


def result_of(connection: Connection, job_id: str) -> JobResult | None:
    data = connection.execute(select(fleet_results.c.document).where(fleet_results.c.job_id == job_id)).scalar()
    return None if data is None else unpacked_result(data)


def job_document(connection: Connection, job_id: str) -> Job:
    data = connection.execute(select(fleet_jobs.c.document).where(fleet_jobs.c.id == job_id)).scalar()
    if data is None:
        raise no_job(connection, job_id)
    return unpacked_job(data)


def checks_of(connection: Connection, device: str, most: int) -> tuple[Check, ...]:
    """The newest checks of a device, oldest first."""
    query = select(fleet_checks).where(fleet_checks.c.device == device).order_by(fleet_checks.c.at_us.desc())
    rows = connection.execute(query.limit(most)).all()
    return tuple(_check(row) for row in reversed(rows))


def _check(row: Any) -> Check:
    return Check(
        before_s=row.before_s,
        after_s=row.after_s,
        moved=row.moved,
        waited_s=row.waited_s,
        device=row.device,
        job=row.job_id,
        at=row.at_us / 1e6,
    )


def checks_since(connection: Connection, since_us: int, most: int) -> dict[str, list[Check]]:
    """The newest checks of every device since a time, oldest first."""
    query = select(fleet_checks).where(fleet_checks.c.at_us >= since_us).order_by(fleet_checks.c.at_us)
    found: dict[str, list[Check]] = {}
    for row in connection.execute(query):
        found.setdefault(row.device, []).append(_check(row))
    return {device: checks[-most:] for device, checks in found.items()}


def repeats_of(connection: Connection, device: str | None, most: int) -> dict[str, list[list[float]]]:
    """The times of the jobs that a device, or each, has measured more than once, from its newest runs."""
    time_s = func.coalesce(runs.c.latency_s, runs.c.tpot_s)
    query = (
        select(fleet_jobs.c.device, fleet_jobs.c.key, time_s.label("time_s"))
        .join(runs, runs.c.id == fleet_jobs.c.run_id)
        .where(fleet_jobs.c.state == "done", time_s > 0)
        .order_by(fleet_jobs.c.created_us.desc())
        .limit(most)
    )
    if device is not None:
        query = query.where(fleet_jobs.c.device == device)
    found: dict[tuple[str, str], list[float]] = {}
    for row in connection.execute(query):
        found.setdefault((row.device, row.key), []).append(row.time_s)
    repeated: dict[str, list[list[float]]] = {}
    for (name, _), times in found.items():
        if len(times) > 1:
            repeated.setdefault(name, []).append(times)
    return repeated

"""Out of a device's hands: finished, lost, given back, cancelled or expired. A result is stored once.

A model's own error is an answer, and the job `failed`. What a device, a network or a disk did to it is a loss: tried
again, on another device if one can, and `inconclusive` if it is lost too often. `cancelled` is what somebody cancelled.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, literal_column, or_, select, tuple_, update

from inferometer.core.frozen import frozen
from inferometer.core.job import FINAL, Job, JobEnd, JobEvent, JobResult, JobState
from inferometer.core.units import format_duration
from inferometer.store import names, writing
from inferometer.store.finding import value_of
from inferometer.store.queue import devices, events, shares
from inferometer.store.queue.leasing import held_row, others_can
from inferometer.store.queue.rows import (
    devices_of,
    job_of,
    locked_job,
    no_job,
    packed_result,
    unpacked_job,
    unpacked_result,
)
from inferometer.store.queue.values import HELD, DeviceFault, JobRow, LeaseCheck, Moment
from inferometer.store.queue.wanted import fits
from inferometer.store.queue.wanted import read as read_wanted
from inferometer.store.tables import (
    HELD_ONLY,
    QUEUED_ONLY,
    fleet_checks,
    fleet_device_projects,
    fleet_devices,
    fleet_faults,
    fleet_files,
    fleet_jobs,
    fleet_results,
    fleet_wants,
    projects,
    runs,
    tokens,
)
from inferometer.store.upserts import put_new

_AT_ONCE = 100  # jobs that are looked after in one transaction
_MOST_EVENTS = 20_000  # that are kept of a job while it runs
_MOVED = "The reference moved twice while it was measured: the device was not the same before and after."


@frozen
class Finished:
    """What an agent brings back: the result, packed with what lists show of it, and the reference beside it.

    `device` is the one that it speaks for. `doubt` says why it cannot be an answer to this job, if it cannot.
    """

    result: JobResult
    belongings: Sequence[writing.Belongings] = ()  # of each profile, in their order
    check: LeaseCheck | None = None
    device: str | None = None
    doubt: str | None = None


@frozen
class Taken:
    """What became of an answer: stored now, or known already. `refused` says why it was neither."""

    fresh: bool = False
    refused: str | None = None


@frozen
class Loss:
    """Why a device did not bring a job to an end.

    Unless it `counts`, it is no attempt of the job: a device that is switched off gives its job back. `blames`: it is
    the device's failure. `answer` is what it brought and what was not believed: it is set aside.
    """

    reason: str
    counts: bool = True
    blames: bool = True
    answer: JobResult | None = None


def finish(connection: Connection, job_id: str, lease_id: str, brought: Finished, moment: Moment) -> Taken:
    """Store a result, once.

    A lease that ran out may still bring its result, as long as no other device has taken the job meanwhile. Nothing is
    raised for an answer that is refused: that it came is written down.
    """
    row = locked_job(connection, job_id)
    if row.lease != lease_id or row.state not in {"queued", *HELD} or brought.device not in {None, row.device}:
        return _not_taken(connection, row, lease_id, brought, moment)
    if brought.check is not None:
        values = {
            "id": row.lease, "device": row.device, "job_id": row.id, "at_us": moment.now_us,
            "before_s": brought.check.before_s, "after_s": brought.check.after_s, "moved": brought.check.moved,
            "waited_s": brought.check.waited_s,
        }  # fmt: skip
        put_new(connection, "fleet_checks", values)
        connection.execute(update(fleet_jobs).where(fleet_jobs.c.id == row.id).values(moved=brought.check.moved))
    loss = _loss_in(connection, row, brought, moment)
    if loss is not None:
        # The lease has had its answer: another one under it is not taken.
        lose(connection, row, loss, moment, {"lease": None})
        return Taken(fresh=True)
    moved = brought.check is not None and brought.check.moved and brought.result.complete
    run = _store_runs(connection, row, brought, moment.now_us)
    _end(connection, row, brought.result, moment.now_us, {"run_id": run}, doubtful=_MOVED if moved else None)
    if not moved:
        devices.did_well(connection, row.device)
    return Taken(fresh=True)


def _not_taken(connection: Connection, row: Any, lease_id: str, brought: Finished, moment: Moment) -> Taken:
    """An answer that comes again is known; a second one, a late one or one of another device is refused and noted."""
    kept = connection.execute(select(fleet_results).where(fleet_results.c.job_id == row.id)).first()
    mine = kept is not None and kept.lease == lease_id and brought.device in {None, row.device}
    if kept is not None and mine:
        known = unpacked_result(kept.document)
        if known == brought.result or known.ended == "lost":  # `lost`: what it became here
            return Taken()
        refusal = f"Job {row.id} has its answer already, and this is another one: it is not taken."
    else:
        refusal = f"Job {row.id} is not leased under {lease_id} any more: it is {row.state}."
    if (device := brought.device or row.device) is None:
        return Taken(refused=refusal)
    what = "a second answer" if mine else "an answer that it had no lease for"
    reason = f"{device} brought {what}, which was not taken."
    fault = DeviceFault(device=device, job=row.id, at=moment.now_us / 1e6, reason=reason)
    if devices.mark(connection, fault, lease_id) and row.state not in FINAL:  # the final state is the last event
        said = JobEvent(job=row.key, number=1, at=moment.now_us / 1e6, kind="notice", text=reason)
        have = events.add(connection, row.id, row.events, [said])
        connection.execute(update(fleet_jobs).where(fleet_jobs.c.id == row.id).values(events=have))
    return Taken(refused=refusal)


def _loss_in(connection: Connection, row: Any, brought: Finished, moment: Moment) -> Loss | None:
    """Why an answer is none; None if it is one."""
    result = brought.result
    if result.ended == "lost":
        return Loss(reason=result.error or "The runner is gone.")
    if brought.doubt is not None:
        return Loss(reason=brought.doubt, answer=result)
    if result.ended == "stopped" and row.cancel_us is None:
        return Loss(reason="Its run was stopped there, and nobody had cancelled it.")
    moved = brought.check is not None and brought.check.moved and result.complete and row.cancel_us is None
    if moved and row.attempts < moment.timing.attempts and _untried(connection, row, moment):
        return Loss(reason=_MOVED, blames=False)
    return None


def _untried(connection: Connection, row: Any, moment: Moment) -> bool:
    """Whether a device is there that fits and had no fault with this job yet."""
    wish = connection.execute(select(fleet_wants.c.document).where(fleet_wants.c.id == row.wants_id)).scalar_one()
    faulty = connection.execute(select(fleet_faults.c.device).where(fleet_faults.c.job_id == row.id)).scalars()
    return others_can(connection, read_wanted(wish), row.project_id, {row.device, *faulty}, moment.now_us)


def _store_runs(connection: Connection, row: Any, brought: Finished, now_us: int) -> str | None:
    """A run for each profile; those after the first are below it."""
    if not brought.belongings:
        return None
    project = connection.execute(select(projects.c.name).where(projects.c.id == row.project_id)).scalar_one()
    moved = brought.check is not None and brought.check.moved
    tags = (*row.tags.split(), *(["reference-moved"] if moved else []))
    status = {"done": "finished", "cancelled": "killed"}.get(brought.result.state, "failed")
    agent = connection.execute(select(fleet_devices.c.user).where(fleet_devices.c.name == row.device)).scalar()
    first: str | None = None
    for belongings in brought.belongings:
        draft = writing.RunDraft(
            project=project, name=row.name, kind=row.verb, tags=tuple(sorted(set(tags))), parent=first, author=row.user,
            parameters={
                "job": row.id, "device": row.device or "", "submitted by": row.user,
                "measured by": f"{row.device}, an agent of {agent or 'nobody known'}",
            },
        )  # fmt: skip
        columns = {
            "status": status, "reason": names.clean(brought.result.error, most=2000), "created_us": now_us,
            "started_us": row.leased_us, "ended_us": now_us, "heartbeat_us": now_us, **belongings.headline,
        }  # fmt: skip
        run = names.new_id(now_us / 1e6)
        while not writing.begin(connection, run, draft, columns):
            run = names.new_id(now_us / 1e6)
        writing.keep(connection, run, belongings, now_us)
        first = first or run
    return first


def _end(  # noqa: PLR0913 - what ends, how, and when
    connection: Connection,
    row: Any,
    result: JobResult,
    now_us: int,
    values: dict[str, Any] | None = None,
    *,
    doubtful: str | None = None,
) -> None:
    """The last state of a job, its result and its last event, together. `row` is locked, and as it is now.

    `doubtful` says why a result that is kept is nothing to rely on.
    """
    put_new(connection, "fleet_results", {"job_id": row.id, "lease": row.lease, "document": packed_result(result)})
    state: JobState = "inconclusive" if doubtful is not None else result.state
    words = doubtful or result.error
    said = events.told(row.key, 0, now_us, state, words)
    reason = names.clean(words, most=2000)
    connection.execute(
        update(fleet_jobs)
        .where(fleet_jobs.c.id == row.id)
        .values(
            state=state, reason=reason, ended_us=now_us, **(values or {}),
            events=events.add(connection, row.id, row.events, [said]),
        )
    )  # fmt: skip
    if row.leased_us is not None and row.state in HELD:
        shares.charge(connection, row.project_id, (now_us - row.leased_us) / 1e6, now_us)


def _without_result(row: Any, ended: JobEnd, error: str, remedy: str | None = None) -> JobResult:
    job = unpacked_job(row.document)
    return JobResult(job=job, ended=ended, error=error, remedy=remedy, error_kind="PlaceError")


def lose(
    connection: Connection, row: Any, loss: Loss, moment: Moment, values: dict[str, Any] | None = None
) -> None:  # fmt: skip
    """The device did not bring the job to an end: back into the queue, or inconclusive after too many attempts."""
    timing, now_us, reason = moment.timing, moment.now_us, loss.reason
    if loss.counts and row.device is not None:
        fault = DeviceFault(device=row.device, job=row.id, at=now_us / 1e6, reason=reason)
        devices.mark(connection, fault, row.lease, None if loss.answer is None else packed_result(loss.answer))
        if loss.blames:
            devices.failed(connection, row.device, reason, moment, lied=loss.answer is not None)
    if row.cancel_us is not None:
        _end(connection, row, _without_result(row, "stopped", "It was cancelled."), now_us)
        return
    attempts = row.attempts if loss.counts else row.attempts - 1
    if attempts >= timing.attempts:
        tried = f"It was tried {attempts} times without an answer that counts. The last time on {row.device}: {reason}"
        remedy = "Look at the devices' pages; another device, or a smaller job, may do."
        _end(connection, row, _without_result(row, "lost", tried, remedy), now_us)
        return
    wait_s = timing.backoff(attempts) if loss.counts else 0.0
    again = f" It is tried again in {wait_s:g} s." if wait_s else ""
    said = events.told(row.key, 0, now_us, "queued", f"{row.device}: {reason}{again}")
    connection.execute(
        update(fleet_jobs)
        .where(fleet_jobs.c.id == row.id)
        .values(
            state="queued", reason=names.clean(reason, most=2000), attempts=attempts, lease_until_us=None,
            not_before_us=now_us + round(wait_s * 1e6), events=events.add(connection, row.id, row.events, [said]),
            **(values or {}),
        )
    )  # fmt: skip
    if row.leased_us is not None:
        shares.charge(connection, row.project_id, (now_us - row.leased_us) / 1e6, now_us)


def give_back(
    connection: Connection, held: tuple[str, str, str | None], reason: str, moment: Moment, *, counts: bool
) -> None:
    """An agent cannot run the job after all: its disk is full, or it is being switched off.

    `held` are the job, the lease and the device that speaks.
    """
    lose(connection, held_row(connection, *held), Loss(reason=reason, counts=counts), moment)


def _silent(now_us: int) -> ColumnElement[bool]:
    return and_(literal_column(HELD_ONLY), fleet_jobs.c.lease_until_us < now_us)


def _shut_out(now_us: int) -> ColumnElement[bool]:
    """Jobs of devices whose agent has a token that is revoked, has expired, or is gone with its user."""
    ended = or_(tokens.c.id.is_(None), tokens.c.revoked_us.is_not(None), tokens.c.expires_us <= now_us)
    devices_ = (
        select(fleet_devices.c.name)
        .outerjoin(tokens, tokens.c.id == fleet_devices.c.token)
        .where(fleet_devices.c.token.is_not(None), ended)
    )
    return and_(literal_column(HELD_ONLY), fleet_jobs.c.device.in_(devices_))


def _strayed() -> ColumnElement[bool]:
    """Jobs of devices that do not work for their project any more."""
    of = fleet_device_projects.c
    pairs = select(of.device).where(of.device == fleet_jobs.c.device, of.project_id == fleet_jobs.c.project_id)
    everyone = select(fleet_devices.c.name).where(fleet_devices.c.everyone)
    return and_(literal_column(HELD_ONLY), ~pairs.exists(), fleet_jobs.c.device.not_in(everyone))


def take_back(connection: Connection, moment: Moment) -> tuple[str, ...]:
    """Back into the queue with what devices hold of projects that they do not work for any more."""
    rows = _busy_rows(connection, _strayed())
    for row in rows:
        loss = Loss(reason=f"{row.device} does not work for the project any more.", counts=False)
        lose(connection, row, loss, moment)
    return tuple(row.id for row in rows)


def _late(moment: Moment) -> ColumnElement[bool]:
    """Jobs that take many times as long as they were expected to, of which it was not said yet."""
    timing, ran_us = moment.timing, moment.now_us - fleet_jobs.c.leased_us
    longer = (ran_us > timing.late_least_s * 1e6, ran_us > fleet_jobs.c.expected_s * (timing.late * 1e6))
    return and_(literal_column(HELD_ONLY), fleet_jobs.c.late_us.is_(None), *longer)


def some_to_look_after(connection: Connection, moment: Moment) -> bool:
    """Whether `look_after` has anything to do."""
    any_of = or_(_silent(moment.now_us), _shut_out(moment.now_us), _strayed(), _late(moment))
    return connection.execute(select(fleet_jobs.c.id).where(any_of).limit(1)).first() is not None


def look_after(connection: Connection, moment: Moment) -> tuple[str, ...]:
    """Take back what leases hold that have ended, and say of jobs that they are late; gives what was taken back.

    Rows that somebody is busy with are left for the next time.
    """
    silent = _busy_rows(connection, _silent(moment.now_us))
    for row in silent:
        lose(connection, row, Loss(reason=f"{row.device} gave no sign of life any more."), moment)
    shut_out = _busy_rows(connection, _shut_out(moment.now_us))
    for row in shut_out:
        lose(connection, row, Loss(reason="The token of its agent does not hold any more.", blames=False), moment)
    strayed = take_back(connection, moment)
    for row in _busy_rows(connection, _late(moment)):
        ran = format_duration((moment.now_us - row.leased_us) / 1e6)
        text = f"It has taken {ran}, and was expected to take {format_duration(row.expected_s)}: it may hang."
        said = JobEvent(job=row.key, number=1, at=moment.now_us / 1e6, kind="notice", text=text)
        changes = {"events": events.add(connection, row.id, row.events, [said]), "late_us": moment.now_us}
        connection.execute(update(fleet_jobs).where(fleet_jobs.c.id == row.id).values(changes))
    return (*(row.id for row in (*silent, *shut_out)), *strayed)


def _busy_rows(connection: Connection, which: ColumnElement[bool]) -> Sequence[Any]:
    query = select(fleet_jobs).where(which).limit(_AT_ONCE)
    return connection.execute(query.with_for_update(skip_locked=True)).all()


def lack_file(connection: Connection, sha256: str, job_id: str, now_us: int) -> tuple[str, ...]:
    """End a job whose file the hub has lost, and all that wait for the same one: no device can help them."""
    naming = select(fleet_files.c.job_id).where(fleet_files.c.sha256 == sha256)
    mine = or_(literal_column(QUEUED_ONLY), and_(literal_column(HELD_ONLY), fleet_jobs.c.id == job_id))
    rows = connection.execute(select(fleet_jobs).where(fleet_jobs.c.id.in_(naming), mine).with_for_update()).all()
    for row in rows:
        path = next((file.path for file in unpacked_job(row.document).files if file.sha256 == sha256), sha256[:12])
        error = f"The hub's copy of {path} was damaged or lost, and is thrown away."
        remedy = "Run the same command again: it sends the file anew."
        _end(connection, row, _without_result(row, "lost", error, remedy), now_us)
    return tuple(row.id for row in rows)


def cancel(connection: Connection, job_id: str, *, by: str, now_us: int) -> JobRow:
    """One that waits ends here; one that runs is told to stop at its next sign of life. May be repeated."""
    row = locked_job(connection, job_id)
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
    connection: Connection, held: tuple[str, str, str | None], said: Sequence[tuple[int, JobEvent]], moment: Moment
) -> tuple[int, bool]:
    """Write what an agent says of its job: gives the last of its numbers that is written, and whether it is to stop.

    `said` has the agent's own count with each event, so that what is sent twice is written once. Final states come
    with the result, and are not written here. It is a sign of life too. `held` are the job, the lease and the device
    that speaks, whose clock may be anything: nothing happened before the lease, or after now.
    """
    job_id, (row, now_us) = held[0], (held_row(connection, *held), moment.now_us)
    fresh = [(count, event) for count, event in said if count > row.sequence]
    first, last_us = row.leased_us / 1e6, now_us / 1e6
    room = max(_MOST_EVENTS - row.events, 0)  # what an agent says beyond that is heard, and not kept
    kept = [replace(event, at=min(max(event.at, first), last_us)) for _, event in fresh if not event.final][:room]
    state: JobState = "running" if any(event.state == "running" for event in kept) else row.state
    last = max([row.sequence, *(count for count, _ in fresh)])
    values = {
        "events": events.add(connection, job_id, row.events, kept), "sequence": last, "state": state,
        "lease_until_us": now_us + round(moment.timing.lease_s * 1e6), "heard_us": now_us if kept else row.heard_us,
    }  # fmt: skip
    connection.execute(update(fleet_jobs).where(fleet_jobs.c.id == job_id).values(values))
    devices.beat(connection, row.device, now_us=now_us)
    return last, row.cancel_us is not None


def result_of(connection: Connection, job_id: str) -> JobResult | None:
    data = connection.execute(select(fleet_results.c.document).where(fleet_results.c.job_id == job_id)).scalar()
    return None if data is None else unpacked_result(data)


def job_document(connection: Connection, job_id: str) -> Job:
    data = connection.execute(select(fleet_jobs.c.document).where(fleet_jobs.c.id == job_id)).scalar()
    if data is None:
        raise no_job(connection, job_id)
    return unpacked_job(data)


def checks_of(connection: Connection, device: str, most: int) -> tuple[LeaseCheck, ...]:
    """The newest checks of a device, oldest first."""
    query = select(fleet_checks).where(fleet_checks.c.device == device).order_by(fleet_checks.c.at_us.desc())
    rows = connection.execute(query.limit(most)).mappings().all()
    return tuple(value_of(LeaseCheck, row) for row in reversed(rows))


def checks_since(connection: Connection, since_us: int, most: int) -> dict[str, list[LeaseCheck]]:
    """The newest checks of every device since a time, oldest first."""
    query = select(fleet_checks).where(fleet_checks.c.at_us >= since_us).order_by(fleet_checks.c.at_us)
    found: dict[str, list[LeaseCheck]] = {}
    for row in connection.execute(query).mappings():
        found.setdefault(row["device"], []).append(value_of(LeaseCheck, row))
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

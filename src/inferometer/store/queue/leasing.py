"""Into the queue, and out of it: submit, lease, and the signs of life that keep a lease."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    bindparam,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from inferometer.core.errors import DomainError
from inferometer.core.job import Job
from inferometer.store import names
from inferometer.store.errors import LeaseLostError
from inferometer.store.finding import project_id
from inferometer.store.queue import devices, events, shares
from inferometer.store.queue.rows import (
    devices_of,
    job_of,
    job_row,
    jobs_query,
    labels_of,
    locked_job,
    packed_job,
    unpacked_job,
    working_for,
)
from inferometer.store.queue.values import HELD, JobRow, Lease, LeaseTiming, Moment, NewJob, Wanted
from inferometer.store.queue.wanted import fits, read, refuse_unfitting, written
from inferometer.store.tables import (
    HELD_ONLY,
    QUEUED_ONLY,
    fleet_device_projects,
    fleet_devices,
    fleet_faults,
    fleet_files,
    fleet_jobs,
    fleet_wants,
    tokens,
)
from inferometer.store.upserts import put_new
from inferometer.store.writing import ensure_project

_PRIORITIES = 100
_FRESH_US = 3_600_000_000  # a result that nobody fetched is picked up for so long; later it is measured again


def submit(connection: Connection, new: NewJob, *, now_us: int) -> tuple[str, bool]:
    """The id of the job in the queue, and whether it is new.

    Asked again while it waits or runs, or until its result is fetched, it is the job that is there: what was sent
    twice, because an answer was lost, runs once.
    """
    job, wanted = new.job, with_runtime(new.wanted, new.job)
    if not -_PRIORITIES <= new.priority <= _PRIORITIES:
        raise DomainError(f"A priority is from {-_PRIORITIES} to {_PRIORITIES}, and not {new.priority}.")
    project = ensure_project(connection, names.valid_name("project", new.project), now_us)
    # A thousand devices have few sets of labels between them: those are compared, and not the devices.
    query = select(fleet_devices.c.labels).where(working_for(project)).distinct()
    if wanted.device is not None:
        query = query.where(fleet_devices.c.name == wanted.device)
    asked = replace(wanted, device=None)
    some_device_fits = any(fits(asked, "", labels_of(labels)) for labels in connection.execute(query).scalars())
    if not some_device_fits:
        refuse_unfitting(wanted, devices_of(connection, facts=False, project=project))
    wants = _wants_id(connection, wanted)
    same = None if new.anew else _same(connection, job.id, (project, wants, new.user), now_us)
    if same is not None:
        return same, False
    while True:
        job_id = names.new_id(now_us / 1e6)
        row = {
            "id": job_id, "key": job.id, "project_id": project, "user": new.user,
            "name": None if new.name is None else names.valid_name("run", new.name),
            "tags": " ".join(sorted({names.valid_name("tag", tag) for tag in new.tags})),
            "verb": job.verb, "model": None if job.model is None else names.clean(job.model.name, most=200),
            "runtime": job.runtime, "wants_id": wants, "priority": new.priority, "state": "queued", "attempts": 0,
            "not_before_us": now_us, "created_us": now_us, "events": 1, "sequence": 0, "document": packed_job(job),
        }  # fmt: skip
        if put_new(connection, "fleet_jobs", row):
            break
    files = sorted({file.sha256 for file in job.files})
    if files:
        connection.execute(insert(fleet_files), [{"job_id": job_id, "sha256": sha256} for sha256 in files])
    events.add(connection, job_id, 0, [events.told(job.id, 1, now_us, "queued")])
    return job_id, True


def with_runtime(wanted: Wanted, job: Job) -> Wanted:
    """The runtime that a job names is one that its device must have."""
    asked = wanted.labels.get("runtime")
    if asked is not None and job.runtime is not None and asked.casefold() != job.runtime.casefold():
        raise DomainError(
            f"The job runs on {job.runtime}, and is for a device with runtime={asked}.", remedy="Leave one of them out."
        )
    needed = {"runtime": job.runtime} if job.runtime else {}
    return Wanted(device=wanted.device, labels={**wanted.labels, **needed})


def _wants_id(connection: Connection, wanted: Wanted) -> int:
    text = written(wanted)
    query = select(fleet_wants.c.id).where(fleet_wants.c.document == text)
    found = connection.execute(query).scalar()
    if found is None:
        put_new(connection, "fleet_wants", {"device": wanted.device, "document": text})
        found = connection.execute(query).scalar_one()
    return int(found)


def _same(connection: Connection, key: str, asked: tuple[int, int, str], now_us: int) -> str | None:
    project, wants, user = asked
    query = (
        select(fleet_jobs.c.id, fleet_jobs.c.state, fleet_jobs.c.ended_us, fleet_jobs.c.cancel_us)
        .where(
            fleet_jobs.c.key == key, fleet_jobs.c.project_id == project, fleet_jobs.c.wants_id == wants,
            fleet_jobs.c.user == user, fleet_jobs.c.fetched_us.is_(None),
        )
        .order_by(fleet_jobs.c.created_us.desc())
        .limit(1)
    )  # fmt: skip
    row = connection.execute(query).first()
    if row is None or row.cancel_us is not None or row.state in {"failed", "cancelled", "inconclusive"}:
        return None
    return str(row.id) if row.ended_us is None or now_us - row.ended_us < _FRESH_US else None


def lease(connection: Connection, asking: Mapping[str, int | None], moment: Moment) -> dict[str, Lease]:
    """The next jobs for these devices, as far as there are any; each device with the one project it works for, or None.

    Who comes first is served first. A device that has a job is given the same one again: the answer that named it may
    have been lost. Each statement is a trip to the database, and this is what a fleet does most: hence many at once.
    """
    timing, now_us = moment.timing, moment.now_us
    beat = update(fleet_devices).where(fleet_devices.c.name.in_(asking)).values(heartbeat_us=now_us)
    # What is not asked for here are the facts, which may be long. The rows are locked until the end.
    of = fleet_devices.c
    columns = (of.name, of.state, of.labels, of.failures, of.everyone, of.probes, of.probe_us, of.token)
    known = {row.name: row for row in connection.execute(beat.returning(*columns))}
    # What these devices have already, which they keep until then.
    until = now_us + round(timing.lease_s * 1e6)
    query = leased_query().where(fleet_jobs.c.device.in_(known), literal_column(HELD_ONLY))
    rows = connection.execute(query).mappings().all()
    if rows:
        mine = fleet_jobs.c.id.in_([row["id"] for row in rows])
        connection.execute(update(fleet_jobs).where(mine).values(lease_until_us=until))
    leases = {row["device"]: _leased({**row, "lease_until_us": until}, timing) for row in rows}
    free = [name for name in asking if name in known and name not in leases and _may_have_more(known[name])]
    free = _let_in(connection, {name: known[name].token for name in free}, now_us)
    limited = _limits(connection, [name for name in free if not known[name].everyone])
    lost = _left_to_others(connection, free, moment)
    alike: dict[tuple[tuple[int, ...], frozenset[int] | None, tuple[str, ...]], list[str]] = {}
    for name, wants in _fitting(connection, {name: labels_of(known[name].labels) for name in free}).items():
        only, token = limited.get(name), asking[name]
        if token is not None:
            only = frozenset({token}) if only is None else only & {token}
        alike.setdefault((wants, only, lost.get(name, ())), []).append(name)
    for (wants, only, not_these), names_ in alike.items():
        others = [fleet_jobs.c.id.not_in(not_these)] if not_these else []
        leases |= _give(connection, names_, [*ready(wants, now_us), *others], only, moment)
    return leases


def _may_have_more(device: Any) -> bool:
    """One that has failed often is probed first; an agent that cannot be probed is as good as it ever was."""
    return device.state == "ready" and not (device.probe_us is not None and device.probes)


def _let_in(connection: Connection, tokens_: Mapping[str, str | None], now_us: int) -> list[str]:
    """The devices whose agent's token still holds: it may have been revoked while the agent waited for a job."""
    known = {token for token in tokens_.values() if token is not None}
    if not known:
        return list(tokens_)
    holds = (tokens.c.revoked_us.is_(None), or_(tokens.c.expires_us.is_(None), tokens.c.expires_us > now_us))
    held = set(connection.execute(select(tokens.c.id).where(tokens.c.id.in_(known), *holds)).scalars())
    return [name for name, token in tokens_.items() if token is None or token in held]


def _limits(connection: Connection, devices_: Sequence[str]) -> dict[str, frozenset[int]]:
    """The projects that each of these devices works for."""
    of = fleet_device_projects.c
    found: dict[str, set[int]] = {name: set() for name in devices_}
    if devices_:
        for row in connection.execute(select(of.device, of.project_id).where(of.device.in_(devices_))):
            found[row.device].add(row.project_id)
    return {name: frozenset(numbers) for name, numbers in found.items()}


def _left_to_others(connection: Connection, names_: Sequence[str], moment: Moment) -> dict[str, tuple[str, ...]]:
    """The jobs that each device had a fault with and does not take again for as long as a lease, if another can."""
    now_us = moment.now_us
    since = now_us - round(moment.timing.lease_s * 1e6)
    query = (
        select(fleet_faults.c.device, fleet_jobs.c.id, fleet_jobs.c.project_id, fleet_wants.c.document)
        .join(fleet_jobs, fleet_jobs.c.id == fleet_faults.c.job_id)
        .join(fleet_wants, fleet_wants.c.id == fleet_jobs.c.wants_id)
        .where(*ready(None, now_us), fleet_faults.c.device.in_(names_), fleet_faults.c.at_us > since)
        .distinct()
    )
    left: dict[str, tuple[str, ...]] = {}
    for row in connection.execute(query.order_by(fleet_jobs.c.id)):
        if others_can(connection, read(row.document), row.project_id, {row.device}, now_us):
            left[row.device] = (*left.get(row.device, ()), row.id)
    return left


def others_can(connection: Connection, wanted: Wanted, project: int, without: Collection[str], now_us: int) -> bool:
    """Whether another device of the project, ready and not away, is what a job asks for."""
    return any(
        device.name not in without
        and device.state == "ready"
        and not device.away(now_us / 1e6)
        and fits(wanted, device.name, device.labels)
        for device in devices_of(connection, facts=False, project=project)
    )


def leased_query() -> Select[Any]:
    """Jobs as `_leased` reads them."""
    return jobs_query().add_columns(fleet_jobs.c.document)


def _fitting(
    connection: Connection, devices_: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> dict[str, tuple[int, ...]]:
    """For each device, given with its labels, the wishes that it fits; a device that fits none is left out."""
    if not devices_:
        return {}
    query = select(fleet_wants.c.id, fleet_wants.c.document)
    rows = connection.execute(query.where(fleet_wants.c.device.in_(devices_) | fleet_wants.c.device.is_(None)))
    wishes = [(row.id, read(row.document)) for row in rows]
    found = {
        name: tuple(number for number, wanted in wishes if fits(wanted, name, labels))
        for name, labels in devices_.items()
    }
    return {name: wants for name, wants in found.items() if wants}


def ready(wants: Sequence[int] | None, now_us: int) -> list[ColumnElement[bool]]:
    """Jobs that may be given away now. The condition is word for word the index's."""
    conditions: list[ColumnElement[bool]] = [literal_column(QUEUED_ONLY), fleet_jobs.c.not_before_us <= now_us]
    return conditions if wants is None else [*conditions, fleet_jobs.c.wants_id.in_(wants)]


def _give(
    connection: Connection,
    devices_: Sequence[str],
    conditions: Sequence[ColumnElement[bool]],
    only: frozenset[int] | None,
    moment: Moment,
) -> dict[str, Lease]:
    """Give jobs under these conditions to devices that are alike: of these projects, or of any (None)."""
    given: dict[str, Lease] = {}
    while len(given) < len(devices_):
        waiting = devices_[len(given) :]
        chosen = _chosen(connection, conditions, len(waiting), only, moment.now_us)
        if not chosen:
            break
        rows = connection.execute(leased_query().where(fleet_jobs.c.id.in_(chosen))).mappings()
        found = {row["id"]: row for row in rows}
        pairs = [(device, found[job]) for device, job in zip(waiting, chosen, strict=False)]
        given |= _handed_out(connection, pairs, moment)
    return given


def _chosen(
    connection: Connection,
    conditions: Sequence[ColumnElement[bool]],
    most: int,
    only: frozenset[int] | None,
    now_us: int,
) -> list[str]:
    """Jobs in their order, locked: the highest priority first; in it the project that uses least, and its oldest job.

    A job that another hub is giving away at this moment is skipped. It ends early where a project has no more of its
    highest priority: its next may come before what the others have.
    """
    chosen: list[str] = []
    turns = shares.turns(connection, conditions, now_us, only)
    queues: dict[int, list[str]] = {}
    while turns and len(chosen) < most:
        turn = min(turns, key=shares.rank)
        turns.remove(turn)
        if turn.project not in queues:
            query = (
                select(fleet_jobs.c.id)
                .where(*conditions, fleet_jobs.c.project_id == turn.project, fleet_jobs.c.priority == turn.priority)
                .order_by(fleet_jobs.c.created_us, fleet_jobs.c.id)
                .limit(most - len(chosen))
                .with_for_update(skip_locked=True)
            )
            queues[turn.project] = list(connection.execute(query).scalars())
            if not queues[turn.project]:
                continue
        elif not queues[turn.project]:
            break
        chosen.append(queues[turn.project].pop(0))
        turns.append(replace(turn, held=turn.held + 1))
    return chosen


def _handed_out(connection: Connection, pairs: Sequence[tuple[str, RowMapping]], moment: Moment) -> dict[str, Lease]:
    """Write down which device has which job now."""
    now_us, until = moment.now_us, moment.now_us + round(moment.timing.lease_s * 1e6)
    told, changed, leases = [], [], {}
    for device, row in pairs:
        said = events.told(row["key"], 0, now_us, "preparing", f"{device} takes it.")
        told += events.numbered(row["id"], row["events"], [said])
        changes = {
            "device": device, "state": "preparing", "lease": names.new_id(now_us / 1e6), "lease_until_us": until,
            "leased_us": now_us, "attempts": row["attempts"] + 1, "sequence": 0, "reason": None, "heard_us": None,
            "late_us": None,
            "events": row["events"] + 1,
        }  # fmt: skip
        changed.append({"job": row["id"], **changes})
        leases[device] = _leased({**row, **changes}, moment.timing)
    events.write(connection, told)
    connection.execute(update(fleet_jobs).where(fleet_jobs.c.id == bindparam("job")), changed)
    return leases


def _leased(row: Mapping[str, Any], timing: LeaseTiming) -> Lease:
    return Lease(id=row["lease"], job=unpacked_job(row["document"]), row=job_row(row), lease_s=timing.lease_s)


def held_row(connection: Connection, job_id: str, lease_id: str, device: str | None = None) -> Any:
    """The row of a job that this lease holds, locked; an error that says so if it does not hold it any more.

    `device` is the one that speaks: a lease is of no use to another.
    """
    row = locked_job(connection, job_id)
    if row.lease != lease_id or row.state not in HELD or device not in {None, row.device}:
        raise LeaseLostError(f"Job {job_id} is not leased under {lease_id} any more: it is {row.state}.")
    return row


def keep(connection: Connection, job_id: str, lease_id: str, moment: Moment, device: str | None = None) -> JobRow:
    """A sign of life of whoever runs the job: the lease holds on. The row says whether it is to stop."""
    row, now_us = held_row(connection, job_id, lease_id, device), moment.now_us
    until = now_us + round(moment.timing.lease_s * 1e6)
    connection.execute(update(fleet_jobs).where(fleet_jobs.c.id == job_id).values(lease_until_us=until))
    devices.beat(connection, row.device, now_us=now_us)
    return job_of(connection, job_id)


def may_read(connection: Connection, name: str, sha256: str) -> bool:
    """Whether the job that a device has now names this file. No other file is any of its business."""
    query = (
        select(fleet_files.c.job_id)
        .join(fleet_jobs, fleet_jobs.c.id == fleet_files.c.job_id)
        .where(fleet_jobs.c.device == name, literal_column(HELD_ONLY), fleet_files.c.sha256 == sha256)
    )
    return connection.execute(query.limit(1)).first() is not None


def project_of(connection: Connection, name: str | None) -> int | None:
    return None if name is None else project_id(connection, name)

"""The open queue: what the hub talks to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from sqlalchemy import Connection, delete, func, select, update

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.core.profile import Artifact
from inferometer.store import files as store_files
from inferometer.store import names, writing
from inferometer.store.engine import Database
from inferometer.store.errors import LeaseLostError
from inferometer.store.opened import OpenedStore
from inferometer.store.queue import devices, ending, events, leasing, shares
from inferometer.store.queue.ending import Finished, Taken
from inferometer.store.queue.rows import device_named, devices_of, job_of, job_row, jobs_in_sight, jobs_query
from inferometer.store.queue.values import (
    FAULTS_S,
    HELD,
    DeviceFault,
    DeviceState,
    FleetDevice,
    JobRow,
    Lease,
    LeaseCheck,
    LeaseTiming,
    Moment,
    NewDevice,
    NewJob,
)
from inferometer.store.tables import fleet_events, fleet_faults, fleet_files, fleet_jobs, fleet_wants, projects

# A grade for a device: how well what is measured there repeats.
#
# Before and after each lease an agent runs the same short reference. Two kinds of difference count: between the two of
# one lease (it changed while a job was measured), and of one lease from the median of all (it is not the device of
# yesterday). Jobs that were measured there more than once say it of themselves: each time from the median of that job.
# The grade is the worse of references and repeats. The limits of grade A are what repeats of the same job on a
# commercial device cloud show.

Grade = Literal["A", "B", "C", "ungraded"]
LEASES = 5  # that a grade needs
LIMITS: tuple[tuple[Grade, float, float], ...] = (("A", 0.005, 0.05), ("B", 0.02, 0.10))  # median and 90th percentile
MOVED = 0.05  # within one lease: the job is marked and measured again


@frozen
class DifferenceSpread:
    """Relative differences: half of them are within `typical`, nine in ten within `p90`."""

    count: int
    typical: float
    p90: float

    def within(self, typical: float, p90: float) -> bool:
        return self.typical <= typical and self.p90 <= p90


@frozen
class Trust:
    grade: Grade
    why: str
    leases: int
    moved: int = 0
    references: DifferenceSpread | None = None
    repeats: DifferenceSpread | None = None


def grade(checks: Sequence[LeaseCheck], repeated: Iterable[Sequence[float]] = ()) -> Trust:
    """`repeated` are the times of each job that was measured there more than once."""
    # Of each time from the median of its job.
    differences = [abs(time_s / median(times) - 1) for times in repeated if len(times) > 1 for time_s in times]
    moved, repeats = sum(check.moved for check in checks), _spread(differences)
    if len(checks) < LEASES:
        why = f"It has had {len(checks)} of the {LEASES} leases that a grade needs."
        return Trust(grade="ungraded", why=why, leases=len(checks), moved=moved, repeats=repeats)
    usual = median(check.before_s for check in checks)
    references = _spread([max(abs(check.change), abs(check.before_s / usual - 1)) for check in checks])
    assert references is not None  # noqa: S101 - there are leases
    spreads = [references, *([repeats] if repeats is not None and repeats.count >= LEASES else [])]
    fitting = (name for name, mid, far in LIMITS if all(spread.within(mid, far) for spread in spreads))
    given: Grade = next(fitting, "C")
    why = _words(references, repeats) + _bar(given)
    if moved:
        why += f" The reference moved by more than {MOVED:.0%} within {moved} of them: those jobs are marked."
    return Trust(grade=given, why=why, leases=len(checks), moved=moved, references=references, repeats=repeats)


def _spread(apart: Sequence[float]) -> DifferenceSpread | None:
    if not apart:
        return None
    ordered = sorted(apart)
    return DifferenceSpread(count=len(ordered), typical=median(ordered), p90=ordered[-(-9 * len(ordered) // 10) - 1])


def _words(references: DifferenceSpread, repeats: DifferenceSpread | None) -> str:
    text = (
        f"Over its last {references.count} leases the reference differed by {references.typical:.1%} typically and "
        f"{references.p90:.1%} in one lease of ten"
    )
    if repeats is None:
        return text
    return text + f"; {repeats.count} repeats of jobs by {repeats.typical:.1%} and {repeats.p90:.1%}"


def _bar(given: Grade) -> str:
    better = {"B": LIMITS[0], "C": LIMITS[1]}.get(given)
    if better is None:
        return "."
    name, mid, far = better
    return f". {name} allows {mid:.1%} and {far:.0%}."


_CHECKS, _REPEATS, _FAULTS = 50, 5000, 20
_EVENTS_US = 7 * 86_400_000_000  # of jobs that ended are kept for so long
_MOST_JOBS = 1000
_GRADED_US = 30 * 86_400_000_000


class Fleet(OpenedStore):
    """Every call is one transaction: all of it or nothing, durable when it returns."""

    def __init__(self, database: Database, *, timing: LeaseTiming | None = None, **opened: Any) -> None:
        super().__init__(database, **opened)
        self.timing = timing or LeaseTiming()

    @classmethod
    def of(cls, store: OpenedStore, timing: LeaseTiming | None = None) -> "Fleet":
        """The queue in a store's database, by the store's clock."""
        return cls(store.database, timing=timing, clock=store._clock)  # noqa: SLF001 - the same kind of object

    def now(self) -> float:
        return self._clock()

    def _moment(self) -> Moment:
        return Moment(timing=self.timing, now_us=self._now())

    # Devices

    def register(self, device: NewDevice, by: devices.Registrar | None = None) -> FleetDevice:
        now = self._now()

        def work(connection: Connection) -> FleetDevice:
            if devices.register(connection, device, by or devices.Registrar(), now_us=now):
                ending.strand(connection, now)  # it may have lost a label that jobs wait for
            return device_named(connection, device.name, facts=False)

        return self._write(work)

    def devices(self, *, facts: bool = True, project: str | None = None) -> tuple[FleetDevice, ...]:
        """All devices, or a project's; without `facts`, which are long, if nobody looks at them."""

        def work(connection: Connection) -> tuple[FleetDevice, ...]:
            number = leasing.project_of(connection, project)
            return devices_of(connection, self.sight, facts=facts, project=number)

        return self._read(work)

    def device(self, name: str, *, facts: bool = True) -> FleetDevice:
        return self._read(device_named, name, self.sight, facts=facts)

    def share(self, name: str, project: str | None, *, shared: bool = True) -> None:
        """Let a device take the jobs of a project, or of every one (None); or no more, nor keep one that it has."""
        moment = self._moment()

        def work(connection: Connection) -> None:
            devices.share(connection, name, project, shared=shared)
            ending.take_back(connection, moment)
            ending.strand(connection, moment.now_us)

        self._write(work)

    def projects_of(self, device: str) -> tuple[str, ...]:
        """The projects that a device was given to, by name. One that takes everybody's jobs needs none."""
        return tuple(self._read(devices.projects_of, device))

    def beat(self, name: str) -> None:
        self._write(devices.beat, name, now_us=self._now())

    def set_state(self, name: str, state: DeviceState, reason: str | None = None) -> FleetDevice:
        self._write(devices.set_state, name, state, reason, now_us=self._now())
        return self.device(name)

    def probed(self, name: str, reference_s: float | None) -> FleetDevice:
        """What came of a device's probe; None: it could not run its reference."""
        self._write(devices.probed, name, reference_s)
        return self.device(name, facts=False)

    def faults(self, name: str, most: int = _FAULTS) -> tuple[DeviceFault, ...]:
        """What a device did wrong, the newest first."""
        return self._read(devices.faults_of, name, most)

    def recent_faults(self) -> Mapping[str, int]:
        """How many each device has had in the last days."""
        return self._read(devices.faults_since, self._now() - round(FAULTS_S * 1e6))

    def remove(self, name: str) -> None:
        """Forget a device. Jobs that only it could take fail, and say so."""
        now = self._now()

        def work(connection: Connection) -> None:
            devices.remove(connection, name)
            ending.strand(connection, now)

        self._write(work)

    # Jobs

    def submit(self, new: NewJob) -> tuple[JobRow, bool]:
        """The job in the queue, and whether it is new: the same one given again is the one that is there."""
        now = self._now()

        def work(connection: Connection) -> tuple[JobRow, bool]:
            job_id, fresh = leasing.submit(connection, new, now_us=now)
            return job_of(connection, job_id), fresh

        return self._write(work)

    def job(self, job: str) -> JobRow:
        return self._read(job_of, job, self.sight)

    def document(self, job: str) -> Job:
        return self._read(ending.job_document, self.job(job).id)

    def jobs(
        self,
        *,
        states: Sequence[str] = (),
        project: str | None = None,
        device: str | None = None,
        run: str | None = None,
        limit: int = 100,
    ) -> tuple[JobRow, ...]:
        """Jobs, the newest first; waiting jobs alone come in the order in which they were sent."""
        if not 1 <= limit <= _MOST_JOBS:
            raise DomainError(f"A list has 1 to {_MOST_JOBS} jobs, and {limit} were asked for.")
        query = jobs_query().where(*jobs_in_sight(self.sight))
        if states:
            query = query.where(fleet_jobs.c.state.in_(states))
        if project is not None:
            query = query.where(projects.c.name == project)
        if device is not None:
            query = query.where(fleet_jobs.c.device == device)
        if run is not None:
            query = query.where(fleet_jobs.c.run_id == run)
        if set(states) == {"queued"}:
            query = query.order_by(fleet_jobs.c.priority.desc(), fleet_jobs.c.created_us, fleet_jobs.c.id)
        else:
            query = query.order_by(fleet_jobs.c.created_us.desc(), fleet_jobs.c.id.desc())

        def work(connection: Connection) -> tuple[JobRow, ...]:
            return tuple(job_row(row) for row in connection.execute(query.limit(limit)).mappings())

        return self._read(work)

    def counts(self) -> Mapping[str, int]:
        """How many jobs there are in each state."""
        query = select(fleet_jobs.c.state, func.count()).where(*jobs_in_sight(self.sight)).group_by(fleet_jobs.c.state)
        return self._read(lambda connection: {row[0]: row[1] for row in connection.execute(query)})

    def waiting(self) -> tuple[tuple[int, str], ...]:
        """What the jobs want that could be given away now: the number of jobs, and the wish as it is written."""
        ready = leasing.ready(None, self._now())
        query = (
            select(func.count(), fleet_wants.c.document)
            .join(fleet_wants, fleet_wants.c.id == fleet_jobs.c.wants_id)
            .where(*ready)
            .group_by(fleet_wants.c.document)
        )
        return self._read(lambda connection: tuple((row[0], row[1]) for row in connection.execute(query)))

    def used(self) -> Mapping[str, tuple[int, float]]:
        """The projects by name: the number of each, and the seconds of devices that it has used lately."""
        return self._read(shares.used, self._now())

    def lease(self, device: str, *, project: str | None = None) -> Lease | None:
        """The next job for a device, or again the one that it has. `project` limits it to that one."""
        leases = self.lease_all({device: project})
        if device not in leases:
            self.device(device, facts=False)  # says so if there is no such device
        return leases.get(device)

    def lease_all(self, asking: Mapping[str, str | None]) -> dict[str, Lease]:
        """The same for several devices, each with the project that it is limited to; in the order of their turns."""
        moment = self._moment()

        def work(connection: Connection) -> dict[str, Lease]:
            limits = {name: leasing.project_of(connection, name) for name in set(asking.values())}
            return leasing.lease(connection, {device: limits[name] for device, name in asking.items()}, moment)

        return self._write(work)

    # `device` is the one that an agent speaks for: with it, a lease of another device is refused.

    def keep(self, job: str, lease: str, *, device: str | None = None) -> JobRow:
        return self._write(leasing.keep, job, lease, self._moment(), device)

    def tell(
        self, job: str, lease: str, said: Sequence[tuple[int, JobEvent]], *, device: str | None = None
    ) -> tuple[int, bool]:
        """The last of an agent's numbers that is written, and whether the job is to stop."""
        return self._write(ending.tell, (job, lease, device), said, self._moment())

    def finish(  # noqa: PLR0913 - the lease, and all that comes with a result
        self,
        job: str,
        lease: str,
        result: JobResult,
        check: LeaseCheck | None = None,
        *,
        device: str | None = None,
        doubt: str | None = None,
        files: Mapping[str, Path | bytes] | None = None,
    ) -> bool:
        """Store a result and make its profiles runs; False if this lease has brought it already.

        `files` are what the job made, by name: they belong to its first run.

        `doubt` is why it cannot be an answer to this job: then it is set aside, and the job is for another device.
        """
        counts = result.ended != "lost" and doubt is None
        attached: tuple[Artifact, ...] = ()
        for name, source in (files or {}).items() if counts else ():  # they stand before a row names them
            kept = store_files.keep(self.location.artifacts, source)
            called = names.valid_name("file", name)
            attached = (*attached, Artifact(name=called, sha256=kept.sha256, size_bytes=kept.size_bytes))
        profiles = (result.profiles or ((None,) if attached else ())) if counts else ()
        made = [writing.belongings(profile, () if number else attached) for number, profile in enumerate(profiles)]
        brought = Finished(result=result, belongings=made, check=check, device=device, doubt=doubt)
        taken: Taken = self._write(ending.finish, job, lease, brought, self._moment())
        if taken.refused is not None:
            raise LeaseLostError(taken.refused)
        return taken.fresh

    def give_back(self, job: str, lease: str, reason: str, *, counts: bool, device: str | None = None) -> None:
        self._write(ending.give_back, (job, lease, device), reason, self._moment(), counts=counts)

    def look_after(self) -> tuple[str, ...]:
        """Take back the jobs whose leases have ended, and say which are late. If there is none, nothing is written."""
        moment = self._moment()
        if not self._read(ending.some_to_look_after, moment):
            return ()
        return self._write(ending.look_after, moment)

    def lack_file(self, sha256: str, job: str) -> tuple[str, ...]:
        """The hub lacks a file, or has it changed: this job ends, and so do all that wait for the same file."""
        return self._write(ending.lack_file, sha256, job, self._now())

    def cancel(self, job: str, *, by: str = "local") -> JobRow:
        return self._write(ending.cancel, job, by=by, now_us=self._now())

    def events(self, job: str, after: int = 0) -> tuple[JobEvent, ...]:
        if self.sight is not None:
            self.job(job)  # says so if it is not in sight
        return self._read(events.after, job, after)

    def result(self, job: str, *, fetched: bool = False) -> JobResult | None:
        """What came of a job; None while nothing has. `fetched`: it is with whoever asked, and need not be kept."""
        if self.sight is not None:
            self.job(job)
        result = self._read(ending.result_of, job)
        if result is not None and fetched:
            now = self._now()
            change = update(fleet_jobs).where(fleet_jobs.c.id == job).values(fetched_us=now)
            self._write(lambda connection: connection.execute(change))
        return result

    def expect(self, job: str, seconds: float | None, source: str) -> None:
        """How long a job should take, and how that is known."""
        change = update(fleet_jobs).where(fleet_jobs.c.id == job).values(expected_s=seconds, expected_from=source)
        self._write(lambda connection: connection.execute(change))

    # Files, trust, tidiness

    def may_read(self, device: str, sha256: str) -> bool:
        return self._read(leasing.may_read, device, sha256)

    def files_named(self, hashes: Sequence[str]) -> frozenset[str]:
        """Those of these files that a job in sight names."""
        query = (
            select(fleet_files.c.sha256)
            .join(fleet_jobs, fleet_jobs.c.id == fleet_files.c.job_id)
            .where(fleet_files.c.sha256.in_(hashes), *jobs_in_sight(self.sight))
            .distinct()
        )
        return self._read(lambda connection: frozenset(connection.execute(query).scalars()))

    def files_in_use(self) -> frozenset[str]:
        """The files of jobs that have not ended."""
        query = (
            select(fleet_files.c.sha256)
            .join(fleet_jobs, fleet_jobs.c.id == fleet_files.c.job_id)
            .where(fleet_jobs.c.state.in_(("queued", *HELD)))
            .distinct()
        )
        return self._read(lambda connection: frozenset(connection.execute(query).scalars()))

    def checks(self, device: str, most: int = _CHECKS) -> tuple[LeaseCheck, ...]:
        """Which job each belongs to is left out where that is not in sight."""
        checks = self._read(ending.checks_of, device, most)
        if self.sight is None:
            return checks
        query = select(fleet_jobs.c.id).where(fleet_jobs.c.device == device, *jobs_in_sight(self.sight))
        seen = set(self._read(lambda connection: connection.execute(query).scalars().all()))
        return tuple(check if check.job in seen else replace(check, job=None) for check in checks)

    def trust(self, device: str) -> Trust:
        repeated = self._read(ending.repeats_of, device, _REPEATS)
        return grade(self.checks(device), repeated.get(device, ()))

    def grades(self) -> Mapping[str, Trust]:
        """Of all devices that have had a lease in the last month."""
        checks = self._read(ending.checks_since, self._now() - _GRADED_US, _CHECKS)
        repeated = self._read(ending.repeats_of, None, _REPEATS)
        return {device: grade(own, repeated.get(device, ())) for device, own in checks.items()}

    def busy(self, seconds: float) -> Mapping[str, float]:
        """For how long of the last seconds each device has had a job."""
        now = self._now()
        began, since = fleet_jobs.c.leased_us, now - round(seconds * 1e6)
        spent = func.sum(func.coalesce(fleet_jobs.c.ended_us, now) - began)
        query = select(fleet_jobs.c.device, spent).where(began >= since, fleet_jobs.c.state != "queued")
        rows = query.group_by(fleet_jobs.c.device)
        return self._read(lambda connection: {row[0]: float(row[1]) / 1e6 for row in connection.execute(rows)})

    def tidy(self) -> int:
        """Drop the events of jobs that ended a week ago, and faults of a month ago; results stay."""
        now = self._now()
        old = select(fleet_jobs.c.id).where(fleet_jobs.c.ended_us < now - _EVENTS_US)
        change = delete(fleet_events).where(fleet_events.c.job_id.in_(old))

        def work(connection: Connection) -> int:
            connection.execute(delete(fleet_faults).where(fleet_faults.c.at_us < now - _GRADED_US))
            return int(connection.execute(change).rowcount)

        return self._write(work)

"""When each job that waits should begin: the queue played forward with the times that jobs are expected to take."""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.shares import Turn, rank
from inferometer.store.queue.values import JobRow
from inferometer.store.queue.wanted import fits, written

_WAITING = 500  # jobs whose turn is worked out


def starts_in(fleet: Fleet) -> Mapping[str, float | None]:
    """In how many seconds each job that waits should begin; None where a job before it has no expected time.

    Whatever device is free next takes the job whose turn it is then, by priority and fair shares as the queue does it.
    """
    now = fleet.now()
    waiting = fleet.jobs(states=("queued",), limit=_WAITING)
    held = fleet.jobs(states=("preparing", "running"), limit=_WAITING)
    running = {row.device: row for row in held}
    left = {
        row.device: None if row.expected_s is None else max((row.leased or now) + (row.expected_s or 0.0) - now, 0.0)
        for row in held
    }
    ready = [device for device in fleet.devices(facts=False) if device.state == "ready" and not device.away(now)]
    lanes = [(at, device.name) for device in ready if (at := left.get(device.name, 0.0)) is not None]
    wishes = {written(job.wanted): job.wanted for job in waiting}
    able = {
        device.name: {wish for wish, wanted in wishes.items() if fits(wanted, device.name, device.labels)}
        for device in ready
    }
    ends = [(at, row.project, row.expected_s or 0.0) for name, row in running.items() if (at := left[name]) is not None]
    projects = _Projects(fleet.used(), Counter(row.project for row in held), ends)
    return _played([(written(job.wanted), job) for job in waiting], lanes, able, projects, now)


def queue_place(fleet: Fleet, job: JobRow) -> dict[str, float | None]:
    """How many jobs should begin before one that waits, and in how many seconds it should; None: nobody can tell."""
    starts = starts_in(fleet)
    mine = starts.get(job.id)
    before = [other for name, other in starts.items() if name != job.id and other is not None]
    ahead = None if mine is None else sum(other < mine for other in before)
    return {"ahead": ahead, "begins_s": mine}


class _Projects:
    """What each project holds and has used, as time goes on."""

    def __init__(
        self, used: Mapping[str, tuple[int, float]], held: Counter[str], ends: list[tuple[float, str, float]]
    ) -> None:
        self._used, self._held, self._ends = dict(used), held, ends
        heapify(self._ends)

    def until(self, at: float) -> None:
        while self._ends and self._ends[0][0] <= at:
            _, project, took = heappop(self._ends)
            self._held[project] -= 1
            number, used = self._used[project]
            self._used[project] = number, used + took

    def takes(self, job: JobRow, at: float) -> None:
        self._held[job.project] += 1
        if job.expected_s is not None:
            heappush(self._ends, (at + job.expected_s, job.project, job.expected_s))

    def rank(self, job: JobRow) -> tuple[object, ...]:
        number, used = self._used[job.project]
        turn = Turn(project=number, priority=job.priority, held=self._held[job.project], used_s=used)
        return (*rank(turn), job.created, job.id)


def _played(
    waiting: Sequence[tuple[str, JobRow]],
    lanes: list[tuple[float, str]],
    able: Mapping[str, set[str]],
    projects: _Projects,
    now: float,
) -> dict[str, float | None]:
    """`lanes` are devices with the time at which each is free; one whose job has no expected time is never free."""
    starts: dict[str, float | None] = {job.id: None for _, job in waiting}
    left = list(waiting)
    heapify(lanes)
    while lanes and left:
        at, device = heappop(lanes)
        fitting = [pair for pair in left if pair[0] in able[device]]
        if not fitting:
            continue
        due = [pair for pair in fitting if pair[1].not_before - now <= at]
        if not due:
            heappush(lanes, (min(job.not_before for _, job in fitting) - now, device))
            continue
        projects.until(at)
        chosen = min(due, key=lambda pair: projects.rank(pair[1]))
        left.remove(chosen)
        job = chosen[1]
        starts[job.id] = at
        projects.takes(job, at)
        if job.expected_s is not None:
            heappush(lanes, (at + job.expected_s, device))
    return starts

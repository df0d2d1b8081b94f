"""The fleet at the hub: the queue, the files of its jobs, who may do what, and who waits for work."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from anyio import to_thread
from starlette.requests import Request

from inferometer.core.errors import InferometerError
from inferometer.core.job import PROOF, Job, JobResult
from inferometer.core.profile import Profile
from inferometer.core.units import format_duration, format_quantity
from inferometer.hub.fleet.forecasting import Forecaster
from inferometer.hub.fleet.own_agent import OwnAgent
from inferometer.hub.fleet.uploads import Note, Sender, Uploads
from inferometer.hub.places.artifacts import ArtifactFolder
from inferometer.hub.places.device_side import hash_file
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.guard.people import acting, seen, user_of, visitor_of
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.guard.security import ARRIVED
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import FleetDevice, Lease, LeaseTiming, Wanted
from inferometer.store.queue.wanted import fits, read
from inferometer.store.store import Store

# Who waits for work, and who gets it.
#
# A thousand agents may wait at once. None of them asks the database while it waits: one task looks what could be given
# away whenever something may have changed, and serves those that fit, who has waited longest first.

_LOG = logging.getLogger(__name__)
_TICK_S = 1.0  # so often it looks by itself: another hub on the same store may have taken a job, or a pause is over
_LOOK_AFTER_S = 1.0  # so often leases are looked after: one whose token was revoked ends at once
_AT_ONCE = 32  # leases in one transaction: more would let the first of them wait for the last
_BEAT_S = 20.0  # a sign of life that is younger need not be written down again
_REMEMBERED_S = 60.0  # since it was last looked up: somebody may have changed it at another hub of the same store
_TIDY_S = 3600.0


class _Waiter:
    def __init__(self, device: FleetDevice, project: str | None) -> None:
        self.device, self.labels, self.project = device.name, device.labels, project
        self.answer: asyncio.Future[Lease | None] = asyncio.get_running_loop().create_future()


class _Wish:
    """What some jobs want, and how many of them there are."""

    def __init__(self, count: int, wanted: Wanted) -> None:
        self.count, self.wanted = count, wanted


class Dispatcher:
    """Lives in the hub's event loop; `ring` may be called from any thread."""

    def __init__(self, fleet: Fleet, tidy: Callable[[], object] | None = None) -> None:
        """`tidy` is what is done about once an hour."""
        self._fleet, self._tidy = fleet, tidy or fleet.tidy
        self._waiters: dict[str, _Waiter] = {}
        self._unheard: set[str] = set()  # devices that were given a job while they were not listening
        self._idle: dict[str, FleetDevice] = {}  # devices that waited in vain, and will ask again at once
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._looked_at = self._tidied_at = time.monotonic()

    def ring(self) -> None:
        """Something may be given away: look now."""
        if self._loop is not None and self._bell is not None:
            with suppress(RuntimeError):  # the loop has ended: the hub is going down
                self._loop.call_soon_threadsafe(self._bell.set)

    async def wait(self, device: FleetDevice, project: str | None, seconds: float) -> Lease | None:
        """A job for the device, or None when the time is over. One that it has already is given again at once."""
        self.start()
        if seconds <= 0 or device.job is not None or device.state != "ready" or device.name in self._unheard:
            self._unheard.discard(device.name)
            lease = await to_thread.run_sync(partial(self._fleet.lease, device.name, project=project))
            if lease is None and seconds > 0:
                await asyncio.sleep(min(seconds, _TICK_S))  # in maintenance: it shall not ask again at once
            return lease
        waiter = _Waiter(device, project)
        before = self._waiters.pop(device.name, None)
        if before is not None:
            _answer_none(before)  # the agent has lost that connection
        self._waiters[device.name] = waiter
        self.ring()  # nobody asks the database for this one alone: the next look is for all
        try:
            if self._fleet.now() - device.heartbeat > _BEAT_S:
                await to_thread.run_sync(self._fleet.beat, device.name)
            return await asyncio.wait_for(waiter.answer, seconds)
        except TimeoutError:
            self._idle[device.name] = device
            return None
        finally:
            if self._waiters.get(device.name) is waiter:
                del self._waiters[device.name]

    def forget(self, name: str) -> None:
        """Somebody has changed a device: it is looked up when it asks again, which is at once."""
        self._idle.pop(name, None)
        waiter = self._waiters.get(name)
        if self._loop is not None and waiter is not None:
            with suppress(RuntimeError):  # as in `ring`
                self._loop.call_soon_threadsafe(_answer_none, waiter)

    def idle(self, name: str) -> FleetDevice | None:
        """The device, if it has just waited in vain: it has nothing, and need not be looked up again.

        Whether it is ready, or there at all, is looked at when it is given a job.
        """
        device = self._idle.pop(name, None)
        fresh = device is not None and self._fleet.now() - device.heartbeat < _REMEMBERED_S
        return device if fresh and name not in self._unheard else None

    def start(self) -> None:
        """From the event loop; where it runs already, nothing is done."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._loop is not loop:
            self._loop, self._bell = loop, asyncio.Event()
            self._task = loop.create_task(self._run(self._bell))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, bell: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), _TICK_S)
            bell.clear()
            try:
                await self._round()
            except InferometerError:
                continue  # a database that is away for a while is asked again at the next tick
            except Exception:  # noqa: BLE001 - whatever it is, jobs must be given away
                _LOG.exception("The hub could not give away jobs; it tries again.")

    async def _round(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_AFTER_S:
            self._looked_at = now
            await to_thread.run_sync(self._fleet.look_after)
        if now - self._tidied_at >= _TIDY_S:
            self._tidied_at = now
            await to_thread.run_sync(self._tidy)
        if not self._waiters:
            return
        waiting = await to_thread.run_sync(self._fleet.waiting)
        wishes = [_Wish(count, read(wish)) for count, wish in waiting]
        if not wishes:
            return
        untried = dict(self._waiters)
        while batch := _batch(untried, wishes):
            for waiter, _ in batch:
                del untried[waiter.device]
            asking = {waiter.device: waiter.project for waiter, _ in batch}
            leases = await to_thread.run_sync(self._fleet.lease_all, asking)
            for waiter, wish in batch:
                if waiter.device in leases:
                    self._answer(waiter, leases[waiter.device])
                else:
                    wish.count += 1  # the jobs may be of projects that this agent does not serve

    def _answer(self, waiter: _Waiter, lease: Lease) -> None:
        """The agent may have come back by another connection meanwhile; if it is gone, it hears when it asks again."""
        for asking in (waiter, self._waiters.get(waiter.device)):
            if asking is not None and not asking.answer.done():
                asking.answer.set_result(lease)
                return
        self._unheard.add(waiter.device)


def _answer_none(waiter: _Waiter) -> None:
    if not waiter.answer.done():
        waiter.answer.set_result(None)


def _batch(waiters: Mapping[str, _Waiter], wishes: list[_Wish]) -> list[tuple[_Waiter, _Wish]]:
    """Some of the devices that a wish fits, no more than there are jobs, longest waiting first; it is counted down."""
    batch: list[tuple[_Waiter, _Wish]] = []
    for waiter in waiters.values():
        fitting = (wish for wish in wishes if wish.count and fits(wish.wanted, waiter.device, waiter.labels))
        wish = next(fitting, None)
        if wish is None or waiter.answer.done():
            continue
        wish.count -= 1
        batch.append((waiter, wish))
        if len(batch) == _AT_ONCE:
            break
    return batch


# Whether what an agent brings is an answer to the question of its job.
#
# A device is somebody else's machine: it may be broken, of another version, or lie. What can be known here is compared:
# the job, its model, the number of cases, the machine, the engine, the workload; and no time is believed that is
# shorter than physics allows. Whoever forges all of that within these bounds is believed.

# Of its floor that a phase takes at least. Caches and algorithms with fewer operations let honest ones beat it: the
# boldest of 165 real files took 0.48 of it (benchmarks/recorded). A floor that only the document states may be one of
# figures that were measured beside others on a busy machine, and is many times too long.
_LEAST_OF_FLOOR, _OF_A_STATED_ONE = 0.25, 1 / 16
_LEAST_S = 1e-7  # that a call of an engine takes, whatever it computes
_HEADLINES = {"forward": "latency_s", "prefill": "ttft_s", "decode": "tpot_s"}


def mismatch(job: Job, result: JobResult, machine: str | None, model: str | None) -> str | None:
    """Why a result cannot be one of this job; None if it may be.

    `machine` is the id of the one that the device registered with, `model` the name that its file has; None: not known.
    """
    wrong = _other_question(job, result)
    if wrong is not None:
        return wrong
    if result.made and job.verb != "prepare":
        return "It brings files, and the job makes none."
    cases = cases_of(job)
    short = result.complete and job.verb != "prepare" and len(result.profiles) < len(cases)
    if len(result.profiles) > len(cases) or short:  # what was prepared may be proven without a time
        return f"It has {len(result.profiles)} profiles, and the job asks for {len(cases)}."
    for profile, case in zip(result.profiles, cases, strict=False):
        for what, asked, found in _compared(job, profile, case, machine, model):
            if asked is not None and asked != found:
                return f"Its {what} is {found}, and the job is about {asked}."
    return None


def _other_question(job: Job, result: JobResult) -> str | None:
    theirs = result.job
    if theirs.id != job.id:
        return f"It is the answer to another job, {theirs.id}."
    hashes = [None if each.model is None else (each.model.name, each.model.sha256) for each in (job, theirs)]
    if hashes[0] != hashes[1]:
        return "It is the answer for another model than the job's."
    if (theirs.verb, theirs.runtime, theirs.workload) != (job.verb, job.runtime, job.workload):
        return "It is the answer to another question: its verb, runtime or workload is not the job's."
    made = {"verify": result.verification, "calibrate": result.calibration, "prepare": result.prepared}
    if result.complete and job.verb in made and made[job.verb] is None:
        return f"It is done, and has nothing of what {job.verb} makes."
    return None


def cases_of(job: Job) -> list[Mapping[str, Any]]:
    """What each profile of the answer is of: lengths of a language model, or nothing more than the job says."""
    if job.verb not in {"profile", "bench", "prepare"}:
        return []
    return list(job.options.get("cases") or [{}])


def _compared(
    job: Job, profile: Profile, case: Mapping[str, Any], machine: str | None, model: str | None
) -> Iterator[tuple[str, Any, Any]]:
    """What it is, what the job asks for (None: anything), and what the profile says."""
    yield "kind", "measured", profile.kind
    yield "model", None if job.verb == "prepare" else model, profile.model.name  # a tool names what it makes
    yield "runtime", job.runtime, profile.runtime
    theirs = None if profile.environment is None else profile.environment.machine
    yield "machine", machine, machine if theirs is None else theirs.id  # an older agent does not say
    asked, found = job.workload, profile.workload
    if job.options.get("sizes"):
        return  # they may be given in the model's own names
    yield "batch", asked.batch, found.batch
    yield "image size", asked.image, found.image
    told = job.options.get("words") is not None or case.get("words") is not None  # a text has the tokens that it has
    yield "prompt", None if told else case.get("prompt", asked.prompt), found.prompt
    yield "number of generated tokens", case.get("generate", asked.generate), found.generate


def too_fast(result: JobResult, floors: list[Mapping[str, float]]) -> str | None:
    """Which time of a result is shorter than can be; None if none is. `floors` are ours, by phase, for each case."""
    for number, profile in enumerate(result.profiles):
        ours = floors[number] if number < len(floors) else {}
        for what, time_s, floor_s in _times(profile, ours):
            if time_s < _LEAST_S:
                return f"Its {what} takes {format_quantity(time_s, 's')}: no engine answers a call in that time."
            if time_s < _LEAST_OF_FLOOR * floor_s:
                return (
                    f"Its {what} takes {format_duration(time_s)}, and cannot take less than "
                    f"{format_duration(floor_s)} on this device."
                )
    return None


def _times(profile: Profile, ours: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """Each time that repeats, and its floor: ours, or a share of what the document itself says."""
    for phase in profile.phases:
        if phase.name not in _HEADLINES:
            continue  # loading, reading a text, or a phase that an engine made up, has no floor
        floor_s = ours.get(phase.name) or _OF_A_STATED_ONE * (phase.floor_s or 0.0)
        yield f"phase {phase.name}", phase.time_s, floor_s
        for sample_s in phase.samples_s or ():
            yield f"shortest {phase.name}", sample_s, floor_s
        if (headline := getattr(profile.summary, _HEADLINES[phase.name])) is not None:
            yield f"headline of {phase.name}", headline, floor_s


class FleetDesk:
    def __init__(self, store: Store, rules: Rules) -> None:
        self.store, self.rules = store, rules

    @cached_property
    def fleet(self) -> Fleet:
        return Fleet.of(self.store, LeaseTiming(lease_s=self.rules.lease_s))

    @cached_property
    def uploads(self) -> Uploads:
        return Uploads(self.root, self.rules.fleet_bytes, self.fleet.files_in_use)

    @cached_property
    def dispatcher(self) -> Dispatcher:
        return Dispatcher(self.fleet, self.tidy)

    @cached_property
    def forecaster(self) -> Forecaster:
        return Forecaster(self)

    @cached_property
    def own_agent(self) -> OwnAgent:
        return OwnAgent(self.rules)

    @property
    def root(self) -> Path:
        """Beside the files of runs: models are larger, and can be sent again."""
        artifacts = self.store.location.artifacts
        return artifacts.with_name(f"{artifacts.name}.fleet")

    @property
    def artifacts(self) -> ArtifactFolder:
        return ArtifactFolder(root=self.root)

    # Who

    def seen(self, request: Request) -> Fleet:
        """The queue as whoever asks may see it."""
        return seen(request, self.fleet)

    def acting(self, request: Request, action: str, **about: Any) -> Fleet:
        """The same, with what is written through it in the audit log."""
        return acting(request, self.fleet, action, **about)

    def owned(self, request: Request, name: str) -> FleetDevice:
        """The device that an agent speaks for: one of its own user, and with no job of a project it may not see."""
        return self._allowed(request, self.fleet.device(name, facts=False))

    def waiting(self, request: Request, name: str) -> FleetDevice:
        """The same for one that asks for work; most of them have asked just before."""
        device = self.dispatcher.idle(name)
        return self.owned(request, name) if device is None else self._allowed(request, device)

    def _allowed(self, request: Request, device: FleetDevice) -> FleetDevice:
        name, visitor = device.name, visitor_of(request)
        if visitor is None or visitor.sees_all:
            return device
        if visitor.user != device.user:
            raise HubError(403, f"{name} is a device of {device.user}, and this token is one of {visitor.user}.")
        if visitor.project is not None and device.job is not None:
            project = self.fleet.job(device.job).project
            if project != visitor.project:
                raise HubError(
                    403, f"{name} has a job of another project than {visitor.project}, which this token is for."
                )
        return device

    def skew_s(self, request: Request, theirs: float) -> float:
        """A sender's clock less ours when its request came, which may be long before somebody reads it."""
        waited_s: float = time.monotonic() - request.scope[ARRIVED]
        return theirs - (self.fleet.now() - waited_s)

    def doubt(self, job: str, lease: str, name: str, result: JobResult) -> str | None:
        """Why a result of a device cannot be an answer to the job; None if it may be.

        Of whoever has not got the job nothing is looked at: that answer is refused anyway.
        """
        row = self.fleet.job(job)
        if (row.lease, row.device) != (lease, name) or row.final:
            return None
        asked, device = self.fleet.document(job), self.fleet.device(name)
        machine = device.facts.get("machine")
        known_machine = machine.get("id") if isinstance(machine, dict) else None
        # Of a model in other formats the original's floors say nothing: it reads a quarter of the bytes, or less.
        floors = (
            {}
            if asked.verb == "prepare"
            else self.forecaster.floors(asked, device, result.profiles[: len(cases_of(asked))])
        )
        model = floors.get("model") if asked.model is None or asked.model.files else asked.model.name
        return mismatch(asked, result, known_machine, model) or too_fast(result, floors.get("floors", []))

    # Files

    def unbrought(self, request: Request, result: JobResult) -> str | None:
        """Which file of a result its agent did not bring, or may not call so; None if all is well."""
        for file in result.made:
            if file.path in {PROOF, "log.txt"}:
                return f"It calls a file {file.path}, as the hub calls one of its own."
            if not self.uploads.brought(file.sha256, sender_of(request)) or self.artifacts.missing([file.sha256]):
                return f"It names the file {file.path}, and has not brought it."
        return None

    def missing(self, request: Request, hashes: Sequence[str]) -> dict[str, int]:
        """Which of these files are not here for whoever asks, and how much of each has arrived from them.

        A hash is no key: a file is here for those who have brought it, and for those who see a job that names it.
        """
        visitor, sender = visitor_of(request), sender_of(request)
        lacking = self.artifacts.missing(hashes)
        if visitor is not None and not visitor.sees_all:
            known = self.seen(request).files_named(hashes)
            lacking = tuple(
                sha256
                for sha256 in dict.fromkeys(hashes)
                if sha256 in lacking or not (sha256 in known or self.uploads.brought(sha256, sender))
            )
        return {sha256: self.uploads.arrived(sha256, sender) for sha256 in lacking}

    def receive(self, request: Request, sha256: str, offset: int, size: int, data: bytes) -> int:
        """A piece of a file; gives how much of it has arrived. One that is here for them need not be sent."""
        if not self.missing(request, [sha256]):
            return size
        return self.uploads.receive(sha256, offset, data, Note(size=size, sender=sender_of(request)))

    def tidy(self) -> None:
        """Drop what is kept for a while only: events, faults, uploads that nobody goes on with, what forecasts left."""
        self.uploads.tidy()
        self.forecaster.tidy()
        self.fleet.tidy()

    def damaged(self, sha256: str, job: str) -> bool:
        """An agent says that a file of its job did not arrive as it should: whether it is our copy that is wrong.

        Then it is thrown away, and the jobs that need it end: whoever submits one again sends the file again.
        """
        folder = self.artifacts
        with self.uploads.alone(sha256):
            there = not folder.missing([sha256])
            if there and hash_file(folder.path(sha256)) == sha256:
                return False
            folder.path(sha256).unlink(missing_ok=True)
        self.fleet.lack_file(sha256, job)
        return True

    def touch(self, hashes: tuple[str, ...]) -> None:
        """They are about to be used: they are not the longest unused ones now."""
        now = time.time()
        for sha256 in hashes:
            with suppress(OSError):
                os.utime(self.artifacts.path(sha256), (now, now))


def sender_of(request: Request) -> Sender:
    visitor = visitor_of(request)
    return Sender(user=user_of(request), project=None if visitor is None else visitor.project)

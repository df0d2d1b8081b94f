"""The fleet at the hub: the queue, the files of its jobs, who may do what, and who waits for work."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from inferometer.hub.fleet.checking import cases_of, mismatch, too_fast
from inferometer.hub.fleet.dispatching import Dispatcher
from inferometer.hub.fleet.forecasting import Forecaster
from inferometer.hub.fleet.own_agent import OwnAgent
from inferometer.hub.fleet.uploads import Note, Sender, Uploads
from inferometer.hub.places.artifacts import ArtifactFolder
from inferometer.hub.places.device_side import hash_file
from inferometer.hub.web.failures import HubError
from inferometer.hub.web.guard.people import acting, seen, user_of, visitor_of
from inferometer.hub.web.guard.security import ARRIVED
from inferometer.store.queue.fleet import Fleet
from inferometer.store.queue.values import Timing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.requests import Request

    from inferometer.core.job import JobResult
    from inferometer.hub.web.guard.rules import Rules
    from inferometer.store.queue.values import FleetDevice
    from inferometer.store.store import Store


class FleetDesk:
    def __init__(self, store: Store, rules: Rules) -> None:
        self.store, self.rules = store, rules

    @cached_property
    def fleet(self) -> Fleet:
        return Fleet.of(self.store, Timing(lease_s=self.rules.lease_s))

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
        floors = self.forecaster.floors(asked, device, result.profiles[: len(cases_of(asked))])
        model = floors.get("model") if asked.model is None or asked.model.files else asked.model.name
        return mismatch(asked, result, known_machine, model) or too_fast(result, floors.get("floors", []))

    # Files

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

"""Places behind another company's interface: what they have in common, whatever each calls it.

Such a service keeps the job and tells its state when asked. What it cannot keep for us (which job of ours its own id
stands for) is a ticket in the cache folder, so that the same command picks a job up after it was killed. A ticket has
the job and the service's ids, and never a key: keys stay where the service's own client keeps them.
"""

import hashlib
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferometer.core import notices
from inferometer.core.codec import decode, document
from inferometer.core.errors import PlaceError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEvent, JobResult, JobState
from inferometer.core.settings import cache_folder
from inferometer.hub.places.base import Closing, Handle, LocalFiles, Missing, Place, PlaceAddress, Ready
from inferometer.hub.places.device_side import write_whole

_LOOK_S = 5.0  # services queue for minutes, and count requests
# Every job passes these in this order; a look that comes late tells those that it missed.
_ORDER: tuple[JobState, ...] = ("queued", "preparing", "running")


@frozen
class Ticket:
    """A job that a service has. `ids` are the service's own; `stopped`: its user no longer waits for it."""

    job: Job
    ids: Mapping[str, str]
    stopped: bool = False


@frozen
class Look:
    """What a service says of a job now."""

    state: JobState
    text: str | None = None


@frozen
class ServiceProvider:
    """The door to a kind of service: whether its client is installed, and its place at an address."""

    name: str  # also of the extra that has its client
    title: str
    client: str
    missing: str
    place: Callable[[PlaceAddress], Place]

    def probe(self) -> Ready | Missing:
        if find_spec(self.client.replace("-", "_")) is None:
            return Missing(reason=self.missing, remedy=f"pip install 'inferometer[{self.name}]'")
        return Ready(version=version(self.client))

    def open(self, address: PlaceAddress) -> Place:
        return self.place(address)


class ServicePlace(Closing):
    """A device of a service. A kind of service says how a job is sent, looked at, stopped and read."""

    resumes = True
    waits = False

    def __init__(self, address: PlaceAddress, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._address, self._sleep = address, sleep

    @property
    @abstractmethod
    def title(self) -> str: ...

    @abstractmethod
    def _send(self, job: Job, files: LocalFiles) -> dict[str, str]:
        """Give the job to the service: the ids that it has there."""

    @abstractmethod
    def _look(self, ticket: Ticket) -> Look: ...

    @abstractmethod
    def _stop(self, ticket: Ticket) -> None: ...

    @abstractmethod
    def _result(self, ticket: Ticket) -> JobResult: ...

    @abstractmethod
    def _clear(self, ticket: Ticket) -> None:
        """Remove what the service keeps for the job alone."""

    def submit(self, job: Job, files: LocalFiles) -> Handle:
        handle = Handle(address=self._address.text, job=job.id, folder=str(self._path(job.id)))
        if self._path(job.id).is_file():
            notices.tell(f"This job was begun on {self.title} before: it is picked up where it is.")
            return handle
        self._keep(Ticket(job=job, ids=self._send(job, files)))
        return handle

    def events(self, handle: Handle, after: int = 0) -> Iterator[JobEvent]:
        ticket, told = self._ticket(handle), 0
        while True:
            look = self._look(ticket)
            while told < len(_ORDER) and (look.state not in _ORDER or told <= _ORDER.index(look.state)):
                told += 1
                if told > after:
                    yield JobEvent(job=handle.job, number=told, at=time.time(), kind="state", state=_ORDER[told - 1])
            ticket = self._ticket(handle)  # whoever was told may have cancelled it
            if look.state not in _ORDER or ticket.stopped:
                break
            self._sleep(_LOOK_S)
        state = "cancelled" if ticket.stopped else look.state
        yield JobEvent(
            job=handle.job, number=told + 1, at=time.time(), kind="state", state=state, text=look.text
        )  # fmt: skip

    def cancel(self, handle: Handle) -> None:
        with suppress(PlaceError):  # it is done and fetched
            ticket = self._ticket(handle)
            if not ticket.stopped:
                self._keep(replace(ticket, stopped=True))
                self._stop(ticket)

    def fetch(self, handle: Handle) -> JobResult:
        ticket = self._ticket(handle)
        stopped = JobResult(job=ticket.job, ended="stopped", error="It was stopped before it was done.")
        result = stopped if ticket.stopped else self._result(ticket)
        self._clear(ticket)
        self._path(handle.job).unlink(missing_ok=True)
        return result

    def _path(self, job: str) -> Path:
        """One ticket a job and address: the same job on another device is another."""
        key = hashlib.sha256(self._address.text.encode()).hexdigest()[:16]
        return cache_folder() / "places" / self._address.scheme / key / f"{job}.json"

    def _keep(self, ticket: Ticket) -> None:
        path = self._path(ticket.job.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        plain: dict[str, Any] = {"job": document(ticket.job), "ids": dict(ticket.ids), "stopped": ticket.stopped}
        write_whole(path, json.dumps(plain).encode())

    def _ticket(self, handle: Handle) -> Ticket:
        try:
            plain = json.loads(self._path(handle.job).read_bytes())
        except OSError:
            raise PlaceError(f"There is no job {handle.job} on {self.title}: its result was fetched before.") from None
        job = decode(json.dumps(plain["job"]).encode(), Job)
        return Ticket(job=job, ids=plain["ids"], stopped=plain["stopped"])

"""The API of the fleet for agents: register, wait for a job, keep it, report on it, bring its result.

A token with the scope `agent` opens these and nothing else. An agent reads the files of the job that it has.
"""

from dataclasses import replace
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from inferometer.core.codec import decode, document
from inferometer.core.job import PROOF, JobEvent, JobResult
from inferometer.hub.fleet.desk import FleetDesk, sender_of
from inferometer.hub.fleet.uploads import Note
from inferometer.hub.web.answers import ERRORS, HubError, answer, json_response
from inferometer.hub.web.api.bodies import AgentBody, Hash, Name, PathHash, PathId
from inferometer.hub.web.api.fleet import BINARY
from inferometer.hub.web.guard.people import user_of, visitor_of
from inferometer.store.files import MOST_BYTES
from inferometer.store.queue.devices import Registrar
from inferometer.store.queue.values import Lease, LeaseCheck, NewDevice

PROTOCOL = 1  # what agents and hubs of different versions agree by
_MOST_EVENTS = 1000


class CalibrationFact(AgentBody):
    sha256: Annotated[str, Field(max_length=64)]
    device: Annotated[str, Field(max_length=200)] = ""
    runtime: Annotated[str, Field(max_length=200)] = ""
    dtype: Annotated[str, Field(max_length=50)] = ""
    created: Annotated[str, Field(max_length=50)] = ""
    document: dict[str, Any] | None = None


class Facts(AgentBody):
    """`device` is an inferometer.device document, to predict by; `machine` is what the machine is, for people."""

    machine: dict[str, Any] = Field(default={})
    runtimes: dict[Name, str | None] = Field(default={})
    device: dict[str, Any] | None = None
    calibrations: list[CalibrationFact] = Field(default=[])
    box: Annotated[str, Field(max_length=200)] = ""  # what holds a job there


class Registration(AgentBody):
    """An agent's account of its device. `now` is its clock, for the difference from ours.

    `probes`: it can be asked to run the reference alone.
    """

    name: Name
    protocol: int = Field(ge=1, le=10**6)
    labels: dict[Name, list[Name]] = Field(default={}, max_length=50)
    facts: Facts = Facts()
    version: Annotated[str, Field(max_length=100)] = ""
    probes: bool = False
    now: Annotated[float, Field(ge=0, le=1e11)]


class _OfDevice(AgentBody):
    device: Name


class _OfLease(_OfDevice):
    lease: Annotated[str, Field(max_length=12)]


class Poll(_OfDevice):
    wait_s: float = Field(default=0.0, ge=0, le=60)


class Beat(_OfDevice):
    """A sign of life; with a job and its lease, of the run as well. `wait_s`: until there is something to say."""

    job: Annotated[str, Field(pattern="^[0-9a-z]{12}$")] | None = None
    lease: Annotated[str, Field(max_length=12)] = ""


class ToldEvent(AgentBody):
    """`count` is the agent's own, from 1 for each lease: what is sent twice is written once."""

    count: int = Field(ge=1, le=10**9)
    event: dict[str, Any]


class Told(_OfLease):
    now: Annotated[float, Field(ge=0, le=1e11)]
    events: list[ToldEvent] = Field(max_length=_MOST_EVENTS)


class Reference(AgentBody):
    before_s: float = Field(gt=0, le=1e6)
    after_s: float = Field(gt=0, le=1e6)
    moved: bool = False
    waited_s: float = Field(default=0.0, ge=0, le=1e9)


class Brought(_OfLease):
    """`result` is an inferometer.job-result document."""

    result: dict[str, Any]
    reference: Reference | None = None


class Probed(_OfDevice):
    """The reference alone, in seconds; null: it could not be run."""

    reference_s: float | None = Field(default=None, gt=0, le=1e6)


class Damaged(_OfLease):
    """A file of a job that arrived with another hash than it should have, or was not there."""

    sha256: Hash


class Returned(_OfLease):
    """Why a job comes back. `fault`: something is wrong with the device, and not only its time over."""

    reason: Annotated[str, Field(max_length=2000)]
    fault: bool = True


def router(desk: FleetDesk) -> APIRouter:
    api = APIRouter(prefix="/fleet/agent", responses=ERRORS, tags=["agents"])
    _add_presence(api, desk)
    _add_work(api, desk)
    return api


def _add_presence(api: APIRouter, desk: FleetDesk) -> None:
    @api.post("/register", responses={200: json_response()})
    def register(request: Request, said: Registration) -> Response:
        """Register a device, or bring what is known of it up to date. It works for `projects`; null: all."""
        if said.protocol > PROTOCOL:
            raise HubError(400, "This agent is newer than the hub.", remedy="Upgrade Inferometer where the hub runs.")
        visitor = visitor_of(request)
        device = NewDevice(
            name=said.name,
            labels={key: tuple(values) for key, values in said.labels.items()},
            facts=said.facts.model_dump(),
            version=said.version,
            skew_s=desk.skew_s(request, said.now),
            token=None if visitor is None else visitor.token,
            probes=said.probes,
        )
        by = Registrar(
            user=user_of(request), project=None if visitor is None else visitor.project,
            everyone=not desk.rules.tokens, takes_over=visitor is not None and visitor.sees_all,
        )  # fmt: skip
        made = desk.acting(request, "device.register", project=by.project, subject=said.name).register(device, by)
        desk.dispatcher.ring()
        serves = None if made.everyone else desk.fleet.projects_of(made.name)
        return answer(
            request,
            {
                "name": made.name, "state": made.state, "protocol": PROTOCOL, "lease_s": desk.fleet.timing.lease_s,
                "projects": serves,
            },
        )  # fmt: skip

    @api.post("/poll", responses={200: json_response()})
    async def poll(request: Request, asked: Poll) -> Response:
        """The next job for a device: waits for one, and has none (`job` is null) when the time is over.

        `probe`: it has failed often, and gets none before it has run its reference (`/probe`).
        """
        visitor = visitor_of(request)
        device = await to_thread.run_sync(desk.waiting, request, asked.device)
        if device.probing and device.job is None and device.state == "ready":
            return answer(request, {"job": None, "probe": True})
        wait_s = min(asked.wait_s, desk.rules.poll_most_s)
        lease = await desk.dispatcher.wait(device, None if visitor is None else visitor.project, wait_s)
        return answer(request, {"job": None} if lease is None else _lease_document(lease))

    @api.post("/beat", responses={200: json_response()})
    def beat(request: Request, said: Beat) -> Response:
        """A sign of life. The answer says whether the job is to be stopped."""
        device = desk.owned(request, said.device)
        if said.job is None:
            desk.fleet.beat(device.name)
            return answer(request, {"cancel": False, "lease_s": desk.fleet.timing.lease_s, "state": device.state})
        row = desk.fleet.keep(said.job, said.lease, device=device.name)
        return answer(
            request, {"cancel": row.cancelling, "lease_s": desk.fleet.timing.lease_s, "state": device.state}
        )  # fmt: skip

    @api.post("/probe", responses={200: json_response()})
    def probe(request: Request, said: Probed) -> Response:
        """The result of the reference that a device has to measure before its next job."""
        device = desk.fleet.probed(desk.owned(request, said.device).name, said.reference_s)
        desk.dispatcher.forget(device.name)
        return answer(request, {"state": device.state, "reason": device.reason})


def _lease_document(lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.row.id,
        "lease": lease.id,
        "lease_s": lease.lease_s,
        "attempt": lease.row.attempts,
        "cancel": lease.row.cancelling,
        "job": document(lease.job),
    }


def _add_work(api: APIRouter, desk: FleetDesk) -> None:
    @api.get("/artifacts/{sha256}", response_class=FileResponse, responses={206: {"description": "A part of it."}})
    def send_file(
        request: Request, sha256: PathHash, device: Annotated[str, Query(min_length=1, max_length=100)]
    ) -> Response:
        """A file of the job that the device has now; with a Range header, from a byte on."""
        desk.owned(request, device)
        if not desk.fleet.may_read(device, sha256) or desk.artifacts.missing([sha256]):
            raise HubError(404, f"The job of {device} has no file {sha256[:12]}….")
        return FileResponse(desk.artifacts.path(sha256), media_type="application/octet-stream")

    @api.post("/jobs/{job}/events", responses={200: json_response()})
    def tell(request: Request, job: PathId, told: Told) -> Response:
        """A report on a job, which is a sign of life too. Times are corrected by the difference of the clocks."""
        desk.owned(request, told.device)
        skew = desk.skew_s(request, told.now)
        said = [(each.count, _event(each.event, skew)) for each in told.events]
        written, cancel = desk.fleet.tell(job, told.lease, said, device=told.device)
        return answer(request, {"written": written, "cancel": cancel, "lease_s": desk.fleet.timing.lease_s})

    @api.put("/jobs/{job}/files/{sha256}", responses={200: json_response()}, openapi_extra=BINARY)
    async def bring_file(  # noqa: PLR0913, PLR0917 - a piece of a file, and whose it is
        request: Request,
        job: PathId,
        sha256: PathHash,
        device: Annotated[str, Query(min_length=1, max_length=100)],
        lease: Annotated[str, Query(max_length=12)],
        offset: Annotated[int, Query(ge=0, le=10**15)],
        size: Annotated[int, Query(ge=0, le=10**15)],
    ) -> Response:
        """A piece of a file that a job made, from byte `offset` of `size`. The result that comes after it names it."""
        data = await request.body()

        def received() -> int:
            desk.owned(request, device)
            desk.fleet.keep(job, lease, device=device)
            if size > MOST_BYTES:
                raise HubError(413, f"A run's file has {MOST_BYTES:,} bytes at most, and this one {size:,}.")
            return desk.uploads.receive(sha256, offset, data, Note(size=size, sender=sender_of(request)))

        arrived = await to_thread.run_sync(received)
        return answer(request, {"arrived": arrived, "complete": arrived == size})

    @api.post("/jobs/{job}/result", responses={200: json_response()})
    def bring(request: Request, job: PathId, brought: Brought) -> Response:
        """The result of a job. It may be brought again until it is known to be here: it is stored once.

        One that cannot be an answer to the job is set aside (`doubt` says why), and the job is for another device.
        """
        desk.owned(request, brought.device)
        result = decode(msgspec.json.encode(brought.result), JobResult)
        given = brought.reference
        check = None if given is None else LeaseCheck(**given.model_dump())
        doubt = desk.doubt(job, brought.lease, brought.device, result) or desk.unbrought(request, result)
        files: dict[str, Any] = {file.path: desk.artifacts.path(file.sha256) for file in result.made}
        if result.prepared is not None:
            files[PROOF] = msgspec.json.format(msgspec.json.encode(result.prepared), indent=2)
        fresh = desk.fleet.finish(job, brought.lease, result, check, device=brought.device, doubt=doubt, files=files)
        desk.dispatcher.ring()
        return answer(request, {"stored": doubt is None, "again": not fresh, "doubt": doubt})

    @api.post("/jobs/{job}/damaged", responses={200: json_response()})
    def complain(request: Request, job: PathId, said: Damaged) -> Response:
        """A file of the job is not what its name says. `damaged`: nor is the hub's own copy, and the job has ended."""
        desk.owned(request, said.device)
        desk.fleet.keep(job, said.lease, device=said.device)
        if not desk.fleet.may_read(said.device, said.sha256):
            raise HubError(404, f"The job of {said.device} has no file {said.sha256[:12]}….")
        return answer(request, {"damaged": desk.damaged(said.sha256, job)})

    @api.post("/jobs/{job}/return", responses={200: json_response()})
    def give_back(request: Request, job: PathId, returned: Returned) -> Response:
        """A job that the device cannot run after all: back into the queue."""
        desk.owned(request, returned.device)
        desk.fleet.give_back(job, returned.lease, returned.reason, counts=returned.fault, device=returned.device)
        desk.dispatcher.ring()
        return answer(request, {"returned": True})


def _event(plain: dict[str, Any], skew_s: float) -> JobEvent:
    event = decode(msgspec.json.encode(plain), JobEvent)
    return replace(event, at=event.at - skew_s)

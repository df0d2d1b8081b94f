"""The API of the fleet for those who submit jobs: devices, jobs, their events and results, and files."""

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

import anyio
import msgspec
from anyio import to_thread
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from inferometer.core.codec import decode, document, encode
from inferometer.core.errors import DomainError
from inferometer.core.job import Job, JobEvent
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.fleet.starting import queue_place
from inferometer.hub.places.requests import require_known
from inferometer.hub.web.answers import ERRORS, HubError, answer, json_response
from inferometer.hub.web.api.bodies import Body, Bytes, Hash, LongName, Name, PathHash, PathId, PathName
from inferometer.hub.web.guard.people import (
    acting,
    founding,
    may,
    require_cancelling,
    require_control,
    require_priority,
    require_role,
    seen,
    user_of,
)
from inferometer.store.queue.fleet import Trust
from inferometer.store.queue.values import FleetDevice, JobRow, NewJob, Wanted, fails_often

State = Literal["queued", "preparing", "running", "done", "failed", "cancelled", "inconclusive"]
_LOOK_S, _LOOK_MOST_S = 0.25, 1.0  # between two looks at a job's events, longer while nothing happens
BINARY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class Submission(Body):
    """A job for the queue. `job` is an inferometer.job document; `device` a name, or labels that one must have."""

    job: dict[str, Any]
    device: Name | None = None
    labels: dict[Name, Name] = Field(default={}, max_length=20)
    project: Name = "default"
    priority: int = Field(default=0, ge=-100, le=100)
    name: LongName | None = None
    tags: list[Name] = Field(default=[], max_length=50)


class NamedFile(Body):
    sha256: Hash
    size_bytes: Bytes


class Again(Body):
    """Where to run a job once more: a device by name or by labels; without either, wherever the first could.

    `name` is what its run is called, if not as the first.
    """

    device: Name | None = None
    labels: dict[Name, Name] = Field(default={}, max_length=20)
    name: LongName | None = None


class DeviceChange(Body):
    state: Literal["ready", "maintenance", "quarantined"]
    reason: Annotated[str, Field(max_length=2000)] | None = None


def router(desk: FleetDesk) -> APIRouter:
    api = APIRouter(prefix="/fleet", responses=ERRORS, tags=["fleet"])
    _add_devices(api, desk)
    _add_jobs(api, desk)
    _add_submissions(api, desk)
    _add_progress(api, desk)
    _add_files(api, desk)
    return api


def _add_devices(api: APIRouter, desk: FleetDesk) -> None:
    @api.get("/devices", responses={200: json_response([None])})
    def list_fleet(request: Request) -> Response:
        """The devices that take jobs, with what they are doing and how far they are to be trusted."""
        grades, faults = desk.fleet.grades(), desk.fleet.recent_faults()
        rows = [
            device_document(desk, device, grades.get(device.name), faults.get(device.name, 0))
            for device in desk.seen(request).devices()
        ]
        return answer(request, rows)

    @api.get("/devices/{name}", responses={200: json_response()})
    def show_fleet_device(request: Request, name: PathName) -> Response:
        return answer(request, device_document(desk, desk.seen(request).device(name)))

    @api.patch("/devices/{name}", responses={200: json_response()})
    def change_fleet_device(request: Request, name: PathName, change: DeviceChange) -> Response:
        """Take a device out (`maintenance`, `quarantined`) or put it back (`ready`).

        Its owner may, and an owner of a project that it was given to.
        """
        require_control(request, desk.seen(request).device(name, facts=False), desk.fleet.projects_of(name))
        changing = desk.acting(request, "device.state", subject=name, detail=f"{change.state} {change.reason or ''}")
        device = changing.set_state(name, change.state, _signed(change, user_of(request)))
        desk.dispatcher.forget(name)
        desk.dispatcher.ring()
        return answer(request, device_document(desk, device))

    @api.delete("/devices/{name}", status_code=204)
    def forget_fleet_device(request: Request, name: PathName) -> Response:
        """Forget a device. Jobs that only it could take fail. Its owner and administrators may."""
        desk.seen(request).device(name, facts=False)
        desk.owned(request, name)
        desk.acting(request, "device.remove", subject=name).remove(name)
        return Response(status_code=204)

    @api.put("/devices/{name}/projects/{project}", status_code=204)
    def give_device(request: Request, name: PathName, project: PathName) -> Response:
        """Let a device take the jobs of a project. Its owner may, who must be a writer of that project."""
        desk.seen(request).device(name, facts=False)
        desk.owned(request, name)
        seen(request, desk.store).project(project)
        require_role(request, "writer", project)
        desk.acting(request, "device.share", project=project, subject=name).share(name, project)
        desk.dispatcher.ring()
        return Response(status_code=204)

    @api.delete("/devices/{name}/projects/{project}", status_code=204)
    def take_device_back(request: Request, name: PathName, project: PathName) -> Response:
        """Let it take no more of them, and give back what it has. Its owner may, and an owner of the project."""
        device = desk.seen(request).device(name, facts=False)
        seen(request, desk.store).project(project)
        require_control(request, device, (project,))
        desk.acting(request, "device.unshare", project=project, subject=name).share(name, project, shared=False)
        return Response(status_code=204)


def _signed(change: DeviceChange, user: str) -> str | None:
    """Why a device is not to be used, with who says so."""
    if change.state == "ready":
        return change.reason
    return f"{change.reason} ({user})" if change.reason else f"Taken out by {user}."


def device_document(
    desk: FleetDesk, device: FleetDevice, trust: Trust | None = None, faults: int | None = None
) -> dict[str, Any]:
    """With what it says of itself, but for whole calibrations: their hashes are enough to tell them apart.

    `faults` are those of the last days.
    """
    if faults is None:
        faults = desk.fleet.recent_faults().get(device.name, 0)
    calibrations = [
        {key: value for key, value in each.items() if key != "document"}
        for each in device.facts.get("calibrations") or ()
    ]
    facts = {**device.facts, "calibrations": calibrations}
    trusted = trust or desk.fleet.trust(device.name)
    return {
        **asdict(device), "facts": facts, "away": device.away(desk.fleet.now()), "trust": asdict(trusted),
        "faults": faults, "fails_often": fails_often(device.failures, faults),
    }  # fmt: skip


def job_document(row: JobRow) -> dict[str, Any]:
    """Without its lease, which is between the hub and the device."""
    shown = {**asdict(row), "link": f"/fleet/jobs/{row.id}", "run_link": row.run and f"/runs/{row.run}"}
    del shown["lease"]
    return shown


def _add_jobs(api: APIRouter, desk: FleetDesk) -> None:
    @api.get("/jobs", responses={200: json_response([None])})
    def list_jobs(
        request: Request,
        state: Annotated[list[State] | None, Query()] = None,
        project: str | None = None,
        device: str | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> Response:
        """Jobs, the newest first."""
        rows = desk.seen(request).jobs(states=tuple(state or ()), project=project, device=device, limit=limit)
        return answer(request, [job_document(row) for row in rows])

    @api.get("/jobs/{job}", responses={200: json_response()})
    def show_job(request: Request, job: PathId) -> Response:
        """The job as it is now; with its place in the queue while it waits there."""
        row = desk.seen(request).job(job)
        place = queue_place(desk.fleet, row) if row.state == "queued" else {}
        return answer(request, {**job_document(row), **place})

    @api.get("/jobs/{job}/document", responses={200: json_response()})
    def show_job_document(request: Request, job: PathId) -> Response:
        """The submitted job: an inferometer.job document."""
        return answer(request, document(desk.seen(request).document(job)))


def _add_submissions(api: APIRouter, desk: FleetDesk) -> None:
    @api.post("/jobs", status_code=201, responses={200: json_response(), 201: json_response()})
    def submit_job(request: Request, submission: Submission) -> Response:
        """Put a job into the queue. Its files must be here. The same one again is the one that is there (200)."""
        row, fresh = submitted(desk, submission, request)
        headers = {"location": f"/api/v1/fleet/jobs/{row.id}"}
        return answer(request, job_document(row), status=201 if fresh else 200, headers=headers)

    @api.post("/jobs/{job}/again", status_code=201, responses={201: json_response()})
    def run_again(request: Request, job: PathId, again: Again) -> Response:
        """Submit a job once more, on the same or another device."""
        row, first = desk.seen(request).job(job), desk.fleet.document(job)
        require_role(request, "writer", row.project)
        missing = desk.artifacts.missing([file.sha256 for file in first.files])
        if missing:
            raise DomainError("The files of this job are not here any more.", remedy="Submit it from where they are.")
        chosen = Wanted(device=again.device, labels=again.labels)
        wanted = chosen if again.device or again.labels else row.wanted
        new = NewJob(
            job=first, wanted=wanted, project=row.project, user=user_of(request), name=again.name or row.name, anew=True
        )
        made, _ = desk.acting(request, "job.submit", project=row.project, subject=_made).submit(new)
        desk.dispatcher.ring()
        desk.forecaster.ask(made, first)
        return answer(request, job_document(made), status=201)

    @api.post("/jobs/{job}/cancel", responses={200: json_response()})
    def cancel_job(request: Request, job: PathId) -> Response:
        """Take a job out of the queue, or have its device stop it. What it has measured is kept. May be repeated.

        Its submitter may, and an owner of its project.
        """
        asked = desk.seen(request).job(job)
        require_cancelling(request, asked)
        row = desk.acting(request, "job.cancel", project=asked.project, subject=job).cancel(job, by=user_of(request))
        return answer(request, job_document(row))


def _made(submitted: tuple[JobRow, bool]) -> str:
    return submitted[0].id


def submitted(desk: FleetDesk, submission: Submission, request: Request) -> tuple[JobRow, bool]:
    """The job in the queue, and whether it is new."""
    job, project = decode(msgspec.json.encode(submission.job), Job), submission.project
    require_known(job)
    queue = founding(request, desk.fleet, project)
    require_priority(request, desk.store, project, submission.priority)
    for sha256 in desk.missing(request, [file.sha256 for file in job.files]):
        raise DomainError(f"The file {sha256[:12]}… of the job is not here.", remedy="Send it first.")
    desk.touch(tuple(file.sha256 for file in job.files))
    row, fresh = acting(request, queue, "job.submit", project=project, subject=_made).submit(
        NewJob(
            job=job, wanted=Wanted(device=submission.device, labels=submission.labels), project=project,
            user=user_of(request), priority=submission.priority, name=submission.name, tags=tuple(submission.tags),
        )
    )  # fmt: skip
    if fresh:
        desk.dispatcher.ring()
        desk.forecaster.ask(row, job)
    return row, fresh


def _event_document(event: JobEvent, *, inconclusive: bool) -> dict[str, Any]:
    known = event.state != "inconclusive" or inconclusive
    return document(event if known else replace(event, state="failed"))


def _add_progress(api: APIRouter, desk: FleetDesk) -> None:
    @api.get("/jobs/{job}/events", responses={200: json_response([None])})
    async def list_events(
        request: Request,
        job: PathId,
        after: Annotated[int, Query(ge=0, le=10**9)] = 0,
        wait_s: Annotated[float, Query(ge=0, le=60)] = 0.0,
        *,
        inconclusive: bool = False,
    ) -> Response:
        """The events of a job after a number; if there is none yet, waits for one so long.

        Whoever knows the state `inconclusive` says so; all others read `failed` in its place.
        """
        fleet = desk.seen(request)
        await to_thread.run_sync(fleet.job, job)
        ends, look_s = anyio.current_time() + min(wait_s, desk.rules.poll_most_s), _LOOK_S
        while True:
            events = await to_thread.run_sync(fleet.events, job, after)
            if events or anyio.current_time() >= ends or await request.is_disconnected():
                return answer(request, [_event_document(event, inconclusive=inconclusive) for event in events])
            await anyio.sleep(look_s)
            look_s = min(1.5 * look_s, _LOOK_MOST_S)

    @api.get("/jobs/{job}/result", responses={200: json_response()})
    def show_result(request: Request, job: PathId, *, fetched: bool = False) -> Response:
        """The result of a job: an inferometer.job-result document. `fetched` says that its submitter has it then."""
        row = desk.seen(request).job(job)
        result = desk.fleet.result(
            job, fetched=fetched and (row.user == user_of(request) or may(request, "owner", row.project))
        )
        if result is None:
            raise HubError(409, f"Job {job} has no result yet: it is {row.state}.")
        return Response(encode(result), media_type="application/json")


def _add_files(api: APIRouter, desk: FleetDesk) -> None:
    @api.post("/artifacts/missing", responses={200: json_response()})
    def list_missing(
        request: Request, files: Annotated[list[NamedFile], Field(max_length=10_000)]
    ) -> Response:  # fmt: skip
        """Which of these files are not here for whoever asks, and how much of each has arrived from them."""
        return answer(request, {"missing": desk.missing(request, [file.sha256 for file in files])})

    @api.put("/artifacts/{sha256}", responses={200: json_response()}, openapi_extra=BINARY)
    async def send_piece(
        request: Request,
        sha256: PathHash,
        offset: Annotated[int, Query(ge=0, le=10**15)],
        size: Annotated[int, Query(ge=0, le=10**15)],
    ) -> Response:
        """A piece of a file, from byte `offset` of `size`. One that was sent before is not written again."""
        arrived = await to_thread.run_sync(desk.receive, request, sha256, offset, size, await request.body())
        return answer(request, {"arrived": arrived, "complete": arrived == size})

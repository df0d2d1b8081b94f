"""The API of runs and projects: list, take in, change, delete, compare, save as."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from inferometer.bench.compare import compare, comparison_document
from inferometer.core.codec import decode, document
from inferometer.core.profile import Profile
from inferometer.core.run import Status
from inferometer.errors import DomainError, FormatError, SchemaError
from inferometer.hub.answers import ERRORS, Made, answer, shape
from inferometer.hub.compare_page import profiles_of
from inferometer.hub.failures import HubError
from inferometer.hub.rules import Rules
from inferometer.report.runs import run_document
from inferometer.store.archive import Limits
from inferometer.store.listing import MOST_ROWS
from inferometer.store.recording import hub_link
from inferometer.store.store import Store
from inferometer.store.values import SORTS, Filter, Metric, Page, Project

_SORTS = tuple(sign + name for name in SORTS for sign in ("", "-"))
Sort = Literal[_SORTS]  # type: ignore[valid-type] # made from the store's own table
Name = Annotated[str, Field(min_length=1, max_length=200)]
_PROFILE: dict[str, Any] = {"requestBody": {
    "required": True,
    "content": {"application/json": {"schema": {
        "type": "object", "required": ["schema", "kind", "model", "device", "workload", "phases", "summary"],
        "properties": {"schema": {"const": "inferometer.profile/1"}},
    }}},
}}  # fmt: skip
_ARCHIVE: dict[str, Any] = {"requestBody": {
    "required": True, "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
}}  # fmt: skip


_LINES: dict[str, Any] = {"requestBody": {
    "required": True, "content": {"application/x-ndjson": {"schema": {"type": "string", "format": "binary"}}},
}}  # fmt: skip


class NewProject(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Name
    description: str | None = Field(default=None, max_length=2000)


class Change(BaseModel):
    """What to change of a run; what is not given stays."""

    model_config = ConfigDict(extra="forbid")
    name: Name | None = None
    add_tags: list[Name] = Field(default=[], max_length=50)
    remove_tags: list[Name] = Field(default=[], max_length=50)


def router(store: Store, rules: Rules) -> APIRouter:
    made = APIRouter(responses=ERRORS)
    _reading(made, store)
    _taking_in(made, store, rules)
    _changing(made, store)
    return made


def _reading(made: APIRouter, store: Store) -> None:
    @made.get("/runs", tags=["runs"], responses={200: shape(Page)})
    def list_runs(  # noqa: PLR0913, PLR0917 - everything a list is narrowed by; FastAPI passes them by name
        request: Request,
        project: str | None = None,
        status: Annotated[list[Status] | None, Query()] = None,
        tag: Annotated[list[str] | None, Query()] = None,
        model: str | None = None,
        device: str | None = None,
        runtime: str | None = None,
        kind: str | None = None,
        since: Annotated[float | None, Query(ge=0, le=1e11)] = None,
        until: Annotated[float | None, Query(ge=0, le=1e11)] = None,
        words: Annotated[str | None, Query(max_length=500)] = None,
        sort: Sort = "-created",
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
        after: Annotated[str | None, Query(max_length=2000)] = None,
    ) -> Response:
        """Runs, newest first; `after` of an answer asks for the next page."""
        wanted = Filter(
            project=project, status=tuple(status or ()), tags=tuple(tag or ()), model=model, device=device,
            runtime=runtime, kind=kind, since=since, until=until, words=words,
        )  # fmt: skip
        return answer(request, store.list(wanted, sort=sort, limit=limit, after=after))

    @made.get("/runs/{run}", tags=["runs"], responses={200: shape()})
    def show_run(request: Request, run: str) -> Response:
        """One run with its profile, parameters, metrics and files. `run` is an id, a part of one, a name or `last`."""
        found = store.get(run)
        return answer(
            request, run_document(found, store.row(found.id), store.metrics(found.id), hub_link(found.id))
        )  # fmt: skip

    @made.get("/runs/{run}/profile", tags=["runs"], responses={200: shape()})
    def show_profile(request: Request, run: str) -> Response:
        """The profile alone, as `--format json` prints it."""
        found = store.get(run)
        if found.profile is None:
            raise HubError(404, f"Run {found.id} has no profile: it is {found.status}.")
        return answer(request, document(found.profile))

    @made.get("/runs/{run}/metrics", tags=["runs"], responses={200: shape([Metric])})
    def list_metrics(request: Request, run: str, name: str | None = None) -> Response:
        return answer(request, store.metrics(run, name))

    @made.get("/projects", tags=["projects"], responses={200: shape([Project])})
    def list_projects(request: Request) -> Response:
        return answer(request, store.projects())

    @made.get("/compare", tags=["runs"], responses={200: shape()})
    def compare_runs(
        request: Request, run: Annotated[list[str], Query(min_length=2, max_length=8)]
    ) -> Response:  # fmt: skip
        """Each run against the first: the verdict, with its ratio, interval and reason, per metric and per op."""
        (first, baseline), *others = profiles_of([store.get(each) for each in run])
        found = [comparison_document(compare(baseline, profile, names=(first, name))) for name, profile in others]
        return answer(request, {"comparisons": found})


def _taking_in(made: APIRouter, store: Store, rules: Rules) -> None:
    @made.post("/profiles", tags=["runs"], status_code=201, responses={201: shape(Made)}, openapi_extra=_PROFILE)
    async def add_profile(
        request: Request,
        project: Name = "default",
        name: Name | None = None,
        tag: Annotated[list[Name] | None, Query(max_length=50)] = None,
    ) -> Response:
        """Take in a profile document as a finished run. It is durable when the answer comes."""
        _require_type(request, "application/json")
        body = await request.body()

        def work() -> str:
            profile = _profile(body)
            return store.add(profile, project, name=name, tags=tuple(tag or ()), kind="import")

        return _made(request, await to_thread.run_sync(work), rules)

    @made.post("/profiles/batch", tags=["runs"], status_code=201, responses={201: shape([Made])}, openapi_extra=_LINES)
    async def add_profiles(
        request: Request, project: Name = "default", tag: Annotated[list[Name] | None, Query(max_length=50)] = None
    ) -> Response:
        """Take in many profile documents, one a line: all of them or none. A line that does not hold is named."""
        _require_type(request, "application/x-ndjson")
        lines = [line for line in (await request.body()).split(b"\n") if line.strip()]
        if not lines:
            raise DomainError("There is no profile in it.", remedy="Send one document a line.")

        def work() -> tuple[str, ...]:
            profiles = [_numbered(number, line) for number, line in enumerate(lines, start=1)]
            return store.add_all(profiles, project, tags=tuple(tag or ()), kind="import")

        runs = await to_thread.run_sync(work)
        return answer(request, [Made(id=run, link=hub_link(run, port=rules.port)) for run in runs], status=201)

    @made.post("/runs/import", tags=["runs"], status_code=201, responses={201: shape(Made)}, openapi_extra=_ARCHIVE)
    async def import_archive(request: Request, project: Name | None = None) -> Response:
        """Take in an archive that `inferometer runs export` made."""
        _require_type(request, "application/zip")
        body = await request.body()

        def work() -> str:
            with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
                path = Path(folder, "archive.zip")
                path.write_bytes(body)
                try:
                    return store.import_(path, project=project, limits=_limits(rules))
                except FormatError as error:
                    words = error.message.replace(f"{path}: ", "")
                    raise FormatError(words, remedy=error.remedy) from None

        return _made(request, await to_thread.run_sync(work), rules)

    @made.post("/projects", tags=["projects"], status_code=201, responses={201: shape()})
    def create_project(request: Request, wanted: NewProject) -> Response:
        store.create_project(wanted.name, description=wanted.description)
        return answer(request, {"name": wanted.name.strip()}, status=201)


def _limits(rules: Rules) -> Limits:
    usual = Limits()
    return replace(
        usual,
        total_bytes=min(usual.total_bytes, 8 * rules.archive_bytes),
        document_bytes=min(usual.document_bytes, rules.document_bytes),
    )


def _profile(body: bytes) -> Profile:
    try:
        return decode(body, Profile)
    except RecursionError:
        raise DomainError("The document is nested too deep.") from None


def _numbered(number: int, line: bytes) -> Profile:
    try:
        return _profile(line)
    except (SchemaError, DomainError) as error:
        raise type(error)(f"Line {number}: {error.message}", remedy=error.remedy) from None


def _require_type(request: Request, wanted: str) -> None:
    """A form of another page cannot say this type without asking the browser first."""
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found != wanted:
        raise HubError(415, f"The body is {found or 'of no type'!r}; {wanted} is taken.")


def _made(request: Request, run: str, rules: Rules) -> Response:
    made = Made(id=run, link=hub_link(run, port=rules.port))
    return answer(request, made, status=201, headers={"location": f"/api/v1/runs/{run}"})


def _changing(made: APIRouter, store: Store) -> None:
    @made.patch("/runs/{run}", tags=["runs"], responses={200: shape()})
    def change_run(request: Request, run: str, change: Change) -> Response:
        """Give a run another name, add tags, take tags off."""
        found = store.resolve(run)
        if change.add_tags or change.remove_tags:
            store.retag(found, add=change.add_tags, remove=change.remove_tags)
        if change.name is not None:
            store.rename(found, change.name)
        return answer(request, store.row(found))

    @made.delete("/runs/{run}", tags=["runs"], status_code=204)
    def delete_run(run: str) -> Response:
        """Delete a run for good, with its files. Only its whole id is taken, so that nothing else is deleted."""
        if store.resolve(run) != run:
            raise DomainError(f"{run!r} is no whole id of a run.", remedy="Give all twelve letters.")
        store.delete(run)
        return Response(status_code=204)

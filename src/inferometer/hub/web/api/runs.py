"""The API of runs and projects: list, import, change, delete, compare."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from inferometer.core.codec import decode, document
from inferometer.core.errors import DomainError, FormatError, SchemaError
from inferometer.core.profile import Profile, Status
from inferometer.hub.web.answers import ERRORS, HubError, ImportedRun, answer, json_response
from inferometer.hub.web.api.bodies import Body, LongName
from inferometer.hub.web.guard.people import acting, author_of, founding, require_change, seen, visitor_of
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.pages.compare import profiles_of
from inferometer.measure.bench.compare import compare, comparison_document
from inferometer.store.archive import ArchiveLimits
from inferometer.store.errors import ConflictError
from inferometer.store.finding import MOST_ROWS
from inferometer.store.recording import hub_link
from inferometer.store.store import Store
from inferometer.store.values import SORTS, Filter, Metric, Page, Project
from inferometer.understand.view.runs import run_document

_SORTS = tuple(sign + name for name in SORTS for sign in ("", "-"))
Sort = Literal[_SORTS]  # type: ignore[valid-type] # made from the store's own table


def _body(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Describe a request body that the operation reads itself."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


_BINARY = {"type": "string", "format": "binary"}
_PROFILE = {
    "type": "object",
    "required": ["schema", "kind", "model", "device", "workload", "phases", "summary"],
    "properties": {"schema": {"const": "inferometer.profile/1"}},
}
_JSON, _LINES, _ZIP = "application/json", "application/x-ndjson", "application/zip"


class NewProject(Body):
    name: LongName
    description: str | None = Field(default=None, max_length=2000)


class RunChange(Body):
    """What to change in a run; the rest stays."""

    name: LongName | None = None
    add_tags: list[LongName] = Field(default=[], max_length=50)
    remove_tags: list[LongName] = Field(default=[], max_length=50)
    note: str | None = Field(default=None, max_length=4000)
    project: LongName | None = None


def router(store: Store, rules: Rules) -> APIRouter:
    api = APIRouter(responses=ERRORS)
    _add_reads(api, store, rules)
    _add_profiles(api, store, rules)
    _add_archives(api, store, rules)
    _add_changes(api, store)
    return api


def _add_reads(api: APIRouter, store: Store, rules: Rules) -> None:
    @api.get("/runs", tags=["runs"], responses={200: json_response(Page)})
    def list_runs(  # noqa: PLR0913, PLR0917 - everything a list is narrowed by; FastAPI passes them by name
        request: Request,
        project: str | None = None,
        status: Annotated[list[Status] | None, Query()] = None,
        tag: Annotated[list[str] | None, Query()] = None,
        model: str | None = None,
        device: str | None = None,
        runtime: str | None = None,
        machine: str | None = None,
        author: str | None = None,
        precision: str | None = None,
        kind: str | None = None,
        since: Annotated[float | None, Query(ge=0, le=1e11)] = None,
        until: Annotated[float | None, Query(ge=0, le=1e11)] = None,
        words: Annotated[str | None, Query(max_length=500)] = None,
        sort: Sort = "-created",
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
        after: Annotated[str | None, Query(max_length=2000)] = None,
    ) -> Response:
        """Runs, newest first. Pass the `after` of one page to get the next."""
        wanted = Filter(
            project=project, status=tuple(status or ()), tags=tuple(tag or ()), model=model, device=device,
            runtime=runtime, machine=machine, author=author, precision=precision, kind=kind, since=since,
            until=until, words=words,
        )  # fmt: skip
        return answer(request, seen(request, store).list(wanted, sort=sort, limit=limit, after=after))

    @api.get("/runs/{run}", tags=["runs"], responses={200: json_response()})
    def show_run(request: Request, run: str) -> Response:
        """One run with its profile, parameters, metrics and files. `run` is an id, a part of one, a name or `last`."""
        stored = seen(request, store).get(run)
        row, metrics = store.row(stored.id), store.metrics(stored.id)
        return answer(request, run_document(stored, row, metrics, _link(request, stored.id, rules)))

    @api.get("/runs/{run}/profile", tags=["runs"], responses={200: json_response()})
    def show_profile(request: Request, run: str) -> Response:
        """The profile alone, as `--format json` prints it."""
        stored = seen(request, store).get(run)
        if stored.profile is None:
            raise HubError(404, f"Run {stored.id} has no profile: it is {stored.status}.")
        return answer(request, document(stored.profile))

    @api.get("/runs/{run}/metrics", tags=["runs"], responses={200: json_response([Metric])})
    def list_metrics(request: Request, run: str, name: str | None = None) -> Response:
        return answer(request, seen(request, store).metrics(run, name))

    @api.get("/projects", tags=["projects"], responses={200: json_response([Project])})
    def list_projects(request: Request) -> Response:
        return answer(request, seen(request, store).projects())

    @api.get("/compare", tags=["runs"], responses={200: json_response()})
    def compare_runs(
        request: Request, run: Annotated[list[str], Query(min_length=2, max_length=8)]
    ) -> Response:  # fmt: skip
        """Each run against the first: the verdict, with its ratio, interval and reason, per metric and per op."""
        (first, baseline), *others = profiles_of([seen(request, store).get(name) for name in run])
        comparisons = [comparison_document(compare(baseline, profile, names=(first, name))) for name, profile in others]
        return answer(request, {"comparisons": comparisons})


def _add_profiles(api: APIRouter, store: Store, rules: Rules) -> None:
    @api.post(
        "/profiles",
        tags=["runs"],
        status_code=201,
        responses={201: json_response(ImportedRun)},
        openapi_extra=_body(_JSON, _PROFILE),
    )
    async def add_profile(
        request: Request,
        project: LongName = "default",
        name: LongName | None = None,
        tag: Annotated[list[LongName] | None, Query(max_length=50)] = None,
    ) -> Response:
        """Import a profile document as a finished run. It is on disk when the response comes."""
        _require_type(request, _JSON)
        body = await request.body()

        def work() -> str:
            profile = _profile(body)
            return _adding(request, founding(request, store, project), project).add(
                profile, project, name=name, tags=tuple(tag or ()), kind="import", author=author_of(request)
            )

        return _created(request, await to_thread.run_sync(work), rules)

    @api.post(
        "/profiles/batch",
        tags=["runs"],
        status_code=201,
        responses={201: json_response([ImportedRun])},
        openapi_extra=_body(_LINES, _BINARY),
    )
    async def add_profiles(
        request: Request,
        project: LongName = "default",
        tag: Annotated[list[LongName] | None, Query(max_length=50)] = None,
    ) -> Response:
        """Import many profile documents, one per line: all of them or none. The error names the line that is wrong."""
        _require_type(request, _LINES)
        lines = [line for line in (await request.body()).split(b"\n") if line.strip()]
        if not lines:
            raise DomainError("The body has no profile.", remedy="Send one document per line.")

        def work() -> tuple[str, ...]:
            profiles = [_profile_in_line(number, line) for number, line in enumerate(lines, start=1)]
            adding = _adding(request, founding(request, store, project), project)
            return adding.add_all(profiles, project, tags=tuple(tag or ()), kind="import", author=author_of(request))

        runs = await to_thread.run_sync(work)
        return answer(request, [ImportedRun(id=run, link=_link(request, run, rules)) for run in runs], status=201)


def _add_archives(api: APIRouter, store: Store, rules: Rules) -> None:
    @api.post(
        "/runs/import",
        tags=["runs"],
        status_code=201,
        responses={200: json_response(ImportedRun), 201: json_response(ImportedRun)},
        openapi_extra=_body(_ZIP, _BINARY),
    )
    async def import_archive(request: Request, project: LongName | None = None) -> Response:
        """Import an archive from `inferometer export`, or one that a program pushes.

        A run that is here already is not doubled (200); another one under its id is refused (409).
        """
        _require_type(request, _ZIP)
        taken_in = partial(
            _adding(request, store, project).take_in, project=project, limits=_limits(rules), author=author_of(request),
            admit=partial(founding, request),
        )  # fmt: skip
        run, fresh = await to_thread.run_sync(_from_archive, await request.body(), taken_in)
        return _created(request, run, rules, fresh=fresh)


def _adding(request: Request, store: Store, project: str | None) -> Store:
    """The store that new runs go into, each of which stands in the audit log."""
    return acting(request, store, "run.add", project=project, subject=_named)


def _named(made: str | tuple[str, ...]) -> str:
    return made if isinstance(made, str) else " ".join(made)


def _from_archive(body: bytes, taken_in: Callable[[Path], tuple[str, bool]]) -> tuple[str, bool]:
    with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        path = Path(folder, "archive.zip")
        path.write_bytes(body)
        try:
            return taken_in(path)
        except (FormatError, ConflictError) as error:
            message = error.message.replace(f"{path}: ", "")  # the client knows nothing of our path
            raise type(error)(message[:1].upper() + message[1:], remedy=error.remedy) from None


def _limits(rules: Rules) -> ArchiveLimits:
    default = ArchiveLimits()
    return replace(
        default,
        total_bytes=min(default.total_bytes, 8 * rules.archive_bytes),
        document_bytes=min(default.document_bytes, rules.document_bytes),
    )


def _profile(body: bytes) -> Profile:
    try:
        return decode(body, Profile)
    except RecursionError:
        raise DomainError("The document is nested too deeply.") from None


def _profile_in_line(number: int, line: bytes) -> Profile:
    try:
        return _profile(line)
    except (SchemaError, DomainError) as error:
        raise type(error)(f"Line {number}: {error.message}", remedy=error.remedy) from None


def _require_type(request: Request, wanted: str) -> None:
    """A form on another site cannot send these types without the browser asking us first (CORS)."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise HubError(415, f"The content type is {given or 'missing'!r}; it must be {wanted}.")


def _link(request: Request, run: str, rules: Rules) -> str:
    """Where the run can be seen by whoever asks: the hub's own address for others, else that they asked at."""
    return hub_link(run, base=rules.url or str(request.base_url.replace(path="")))


def _created(request: Request, run: str, rules: Rules, *, fresh: bool = True) -> Response:
    imported = ImportedRun(id=run, link=_link(request, run, rules))
    return answer(request, imported, status=201 if fresh else 200, headers={"location": f"/api/v1/runs/{run}"})


def _add_changes(api: APIRouter, store: Store) -> None:
    @api.post("/projects", tags=["projects"], status_code=201, responses={201: json_response()})
    def create_project(request: Request, wanted: NewProject) -> Response:
        visitor = visitor_of(request)
        if visitor is not None and visitor.project is not None:
            raise HubError(403, f"This token is for the project {visitor.project} only.")
        making = acting(request, store, "project.create", project=wanted.name.strip())
        making.create_project(wanted.name, description=wanted.description, owner=author_of(request))
        return answer(request, {"name": wanted.name.strip()}, status=201)

    @api.patch("/runs/{run}", tags=["runs"], responses={200: json_response()})
    def change_run(request: Request, run: str, change: RunChange) -> Response:
        """Rename a run, tag it, note something about it (empty: nothing), or move it to another project.

        Its author may, and an owner of its project; to move it, they must be a writer there too.
        """
        row = seen(request, store).row(run)
        require_change(request, row)
        to = None if change.project is None or change.project.strip() == row.project else change.project
        into = store if to is None else founding(request, store, to)
        run_id = row.id
        changing = partial(acting, request, store=store, action="run.change", project=row.project, subject=run_id)
        if change.add_tags or change.remove_tags:
            detail = " ".join([*(f"+{tag}" for tag in change.add_tags), *(f"-{tag}" for tag in change.remove_tags)])
            changing(detail=detail).retag(run_id, add=change.add_tags, remove=change.remove_tags)
        if change.name is not None:
            changing(detail=f"name {change.name}").rename(run_id, change.name)
        if change.note is not None:
            changing(detail="note").note(run_id, change.note)
        if to is not None:
            changing(store=into, detail=f"to {to}").move(run_id, to)
        return answer(request, store.row(run_id))

    @api.delete("/runs/{run}", tags=["runs"], status_code=204)
    def delete_run(request: Request, run: str) -> Response:
        """Delete a run permanently, with its files. It must be the complete id, so that nothing else is deleted.

        With tokens, only whose run it is may, and an owner of its project.
        """
        row = seen(request, store).row(run)
        if row.id != run:
            raise DomainError(f"{run!r} is not the complete id of a run.", remedy="Give all twelve letters.")
        require_change(request, row, deleting=True)
        acting(request, store, "run.delete", project=row.project, subject=run, detail=row.name).delete(run)
        return Response(status_code=204)

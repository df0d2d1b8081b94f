"""Responses of the API: JSON with an ETag, errors as HTTP, and their schemas for the OpenAPI description."""

import hashlib
import logging
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from inferometer.core.errors import InferometerError, MissingDependencyError, SchemaError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.hub.web.rendering import render_template
from inferometer.store.errors import ConflictError, LeaseLostError, NotAllowedError, StoreError
from inferometer.store.values import Metric, Page, Project, RunRow, StoredDevice

# Errors as HTTP: the one place that decides the status of an error and what the client gets to read.

_LOG = logging.getLogger(__name__)
_SHOWN = (ConflictError, LeaseLostError, NotAllowedError)  # which speak of runs, jobs and projects alone
RETRY_S = 5  # after which a program asks again, where the store is away

# The schema of every error of the API, for its description.
PROBLEM: dict[str, Any] = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "remedy": {"type": ["string", "null"]}},
    "required": ["error"],
}


class HubError(InferometerError):
    """A request that the hub itself refuses, with the HTTP status."""

    def __init__(self, status: int, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


# Of each kind; what comes first counts.
_STATUSES: tuple[tuple[type[InferometerError], int], ...] = (
    (UnknownNameError, 404), (ConflictError, 409), (LeaseLostError, 409), (NotAllowedError, 403), (StoreError, 503),
    (MissingDependencyError, 501), (SchemaError, 422),
)  # fmt: skip


def status_of(error: InferometerError) -> int:
    if isinstance(error, HubError):
        return error.status
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 400)


def problem(message: str, remedy: str | None = None) -> dict[str, Any]:
    return {"error": message, "remedy": remedy}


def headers_of(error: InferometerError) -> dict[str, str]:
    """A store that is away comes back by itself, mostly within seconds: programs are told to ask again."""
    return {"retry-after": str(RETRY_S)} if status_of(error) == 503 else {}


async def failure(_request: Request, error: Exception) -> Response:
    """Handle one of our errors in the API."""
    assert isinstance(error, InferometerError)  # noqa: S101 - it is registered for those
    return json_problem(error)


def told(error: InferometerError) -> tuple[str, str | None]:
    """The visitor's text of an error, with a remedy.

    Where the store is, and what its database says, is for whoever runs the hub: it is in the log.
    """
    if not isinstance(error, StoreError) or isinstance(error, _SHOWN):
        return error.message, error.remedy
    _LOG.warning("%s", error)
    return error.told or "The store cannot do this now.", "Try again; if it stays so, tell whoever runs the hub."


def json_problem(error: InferometerError) -> Response:
    return JSONResponse(problem(*told(error)), status_code=status_of(error), headers=headers_of(error))


def error_page(error: InferometerError) -> Response:
    """The same for people."""
    message, remedy = told(error)
    values = {"message": message, "remedy": remedy, "here": ""}
    return HTMLResponse(render_template("error.html", values), status_code=status_of(error), headers=headers_of(error))


def shown_failure(request: Request, error: InferometerError) -> Response:
    """A page, or JSON for programs."""
    return json_problem(error) if request.scope["path"].startswith("/api/") else error_page(error)


@frozen
class ImportedRun:
    """A run that was imported, and where to see it."""

    id: str
    link: str


_TYPES = (RunRow, Page, Project, Metric, StoredDevice, ImportedRun)
_SHAPES, _COMPONENTS = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
SCHEMAS: dict[str, Any] = {**_COMPONENTS, "Problem": PROBLEM}


def json_response(kind: Any = None) -> dict[str, Any]:
    """The OpenAPI description of a JSON response: one of our values, a list of them, or any object."""
    if kind is None:
        schema: dict[str, Any] = {"type": "object"}
    elif isinstance(kind, list):
        schema = {"type": "array", "items": json_response(kind[0])["content"]["application/json"]["schema"]}
    elif isinstance(kind, dict):
        schema = kind
    else:
        schema = _SHAPES[_TYPES.index(kind)]
    return {"description": "Done.", "content": {"application/json": {"schema": schema}}}


def _error(description: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": description, "content": content}


ERRORS: dict[int | str, dict[str, Any]] = {
    400: _error("The request is impossible; the error says why."),
    403: _error("The token does not allow this."),
    404: _error("An unknown name; the error suggests similar ones."),
    409: _error("Another run has this id; or the job is not leased under this lease, or has not ended yet."),
    413: _error("The request is too large."),
    415: _error("The body has the wrong content type."),
    422: _error("The body does not match the schema."),
    429: _error("Too many requests."),
    501: _error("A package is not installed."),
    503: _error("The store cannot be read or written."),
}


def answer(request: Request, value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """The value as JSON. A client that already has it, by its ETag, gets 304 and no body."""
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    all_headers = {**(headers or {}), "etag": tag, "cache-control": "private, no-cache"}
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if status == 200 and request.method in {"GET", "HEAD"} and (tag in known or known == ["*"]):
        return Response(status_code=304, headers=all_headers)
    return Response(body, status_code=status, media_type="application/json", headers=all_headers)

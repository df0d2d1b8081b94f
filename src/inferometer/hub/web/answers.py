"""Responses of the API: JSON with an ETag, and their schemas for the OpenAPI description."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from inferometer.core.frozen import frozen
from inferometer.hub.web.failures import PROBLEM
from inferometer.store.values import Metric, Page, Project, RunRow, StoredDevice

if TYPE_CHECKING:
    from starlette.requests import Request


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

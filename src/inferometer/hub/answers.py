"""How the API answers: JSON with an ETag, and the shapes of it for the description."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from inferometer.hub.failures import PROBLEM
from inferometer.store.values import Device, Metric, Page, Project, RunRow

if TYPE_CHECKING:
    from starlette.requests import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A run that was taken in."""

    id: str
    link: str


_TYPES = (RunRow, Page, Project, Metric, Device, Made)
_SHAPES, _COMPONENTS = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
SCHEMAS: dict[str, Any] = {**_COMPONENTS, "Problem": PROBLEM}


def shape(what: Any = None) -> dict[str, Any]:
    """A JSON answer in an operation's description: of one of our values, of a list of them, or any object."""
    if what is None:
        schema: dict[str, Any] = {"type": "object"}
    elif isinstance(what, list):
        schema = {"type": "array", "items": shape(what[0])["content"]["application/json"]["schema"]}
    elif isinstance(what, dict):
        schema = what
    else:
        schema = _SHAPES[_TYPES.index(what)]
    return {"description": "Done.", "content": {"application/json": {"schema": schema}}}


def _error(words: str) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": words, "content": content}


ERRORS: dict[int | str, dict[str, Any]] = {
    400: _error("It cannot be: the words say why."),
    404: _error("A name that is not known; near ones are suggested."),
    413: _error("Too much at once."),
    415: _error("Not of the type that is taken."),
    422: _error("Not of the shape that is asked for."),
    429: _error("Too often."),
    501: _error("A package is not installed."),
    503: _error("The store cannot be read or written."),
}


def answer(request: Request, value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """The value as JSON. Whoever has it already, by its ETag, is told so and sent nothing."""
    body = value if isinstance(value, bytes) else msgspec.json.encode(value)
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    given = {**(headers or {}), "etag": tag, "cache-control": "private, no-cache"}
    known = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if status == 200 and request.method in {"GET", "HEAD"} and (tag in known or known == ["*"]):
        return Response(status_code=304, headers=given)
    return Response(body, status_code=status, media_type="application/json", headers=given)

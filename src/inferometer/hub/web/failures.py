"""Errors as HTTP: the one place that decides the status of an error and what the client gets to read."""

import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from inferometer.core.errors import InferometerError, MissingDependencyError, SchemaError, UnknownNameError
from inferometer.hub.web.rendering import render_template
from inferometer.store.errors import ConflictError, LeaseLostError, NotAllowedError, StoreError

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
    """What a visitor reads of an error, and what they can do.

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

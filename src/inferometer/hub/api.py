"""The API under /api/v1: what the pages can do, for programs, described by OpenAPI.

msgspec writes the responses from the values themselves, and the description comes from the same values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from inferometer.errors import InferometerError
from inferometer.hub import api_catalog, api_runs
from inferometer.hub.answers import SCHEMAS
from inferometer.hub.failures import failure, problem
from inferometer.version import __version__

if TYPE_CHECKING:
    from starlette.requests import Request

    from inferometer.hub.rules import Rules
    from inferometer.store.store import Store


def create_api(store: Store, rules: Rules) -> FastAPI:
    app = FastAPI(
        title="Inferometer",
        version=__version__,
        summary="Runs, predictions, devices and formulas. Numbers are SI, the unit in the key; null is unknown.",
        openapi_url="/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from other sites
        redoc_url=None,
        root_path_in_servers=False,
        servers=[{"url": "/api/v1"}],
    )
    app.include_router(api_runs.router(store, rules))
    app.include_router(api_catalog.router(rules))
    app.add_exception_handler(InferometerError, failure)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Add the schemas of our values to FastAPI's description."""
    original = app.openapi

    def described() -> dict[str, Any]:
        description = original()
        description.setdefault("components", {}).setdefault("schemas", {}).update(SCHEMAS)
        return description

    app.openapi = described  # type: ignore[method-assign] # FastAPI's documented way


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for those
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse(problem(f"{where}: {first['msg']}"), status_code=422)


async def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for those
    return JSONResponse(problem(str(error.detail)), status_code=error.status_code, headers=error.headers)

"""The API under /api/v1: what the pages can do, for programs, described by OpenAPI.

msgspec writes the responses from the values themselves, and the description comes from the same values.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from inferometer.core.errors import InferometerError
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.web.answers import ERRORS, SCHEMAS, answer, failure, json_problem, json_response, problem
from inferometer.hub.web.api import agents as api_agents
from inferometer.hub.web.api import catalog as api_catalog
from inferometer.hub.web.api import fleet as api_fleet
from inferometer.hub.web.api import new_runs as api_new_runs
from inferometer.hub.web.api import people as api_people
from inferometer.hub.web.api import runs as api_runs
from inferometer.hub.web.guard.rules import Rules
from inferometer.store.errors import StoreError
from inferometer.store.store import Store
from inferometer.version import __version__


def create_api(store: Store, rules: Rules, desk: FleetDesk | None = None) -> FastAPI:
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
    app.include_router(api_people.router(store, rules))
    app.include_router(api_catalog.router(rules))
    app.include_router(api_catalog.atlas_router())
    desk = desk or FleetDesk(store, rules)
    app.include_router(api_fleet.router(desk))
    app.include_router(api_new_runs.router(desk))
    app.include_router(api_agents.router(desk))
    app.add_exception_handler(InferometerError, failure)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    _add_health(app, store)
    _describe(app)
    return app


def _add_health(app: FastAPI, store: Store) -> None:
    @app.get("/health", tags=["hub"], responses={**ERRORS, 200: json_response()})
    def health(request: Request) -> Response:
        """Whether the hub can do its work: read its runs (else 503), and store new ones (`writes`)."""
        try:
            store.readable()
            writes = store.takes_writes()
        except StoreError as error:
            return json_problem(error)
        status = "ok" if writes else "read-only"
        return answer(request, {"status": status, "version": __version__, "writes": writes})


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

"""The application: the pages, the API that loads when first used, and the guard in front of both."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from inferometer.core.errors import InferometerError, MissingDependencyError
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.web.assets import vega_bundle
from inferometer.hub.web.failures import problem, shown_failure
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.guard.security import RequestGuard, sign_in_limit
from inferometer.hub.web.guard.sign_in import sign_in_routes
from inferometer.hub.web.live import LiveStreams
from inferometer.hub.web.page_cache import ListCache
from inferometer.hub.web.pages.fleet import fleet_routes
from inferometer.hub.web.pages.people import people_routes
from inferometer.hub.web.pages.routes import routes
from inferometer.hub.web.pages.shared import shared_routes
from inferometer.hub.web.rendering import STATIC, render_template
from inferometer.hub.web.store_mark import StoreMark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from inferometer.store.store import Store

_FIRST_S, _DAY_S = 300.0, 86_400.0
_WEEK = "public, max-age=604800"


def create_app(store: Store, rules: Rules | None = None) -> ASGIApp:
    chosen = rules or Rules()
    wrong_tokens = sign_in_limit(chosen)
    desk = FleetDesk(store, chosen)

    @asynccontextmanager
    async def open_desk(_app: Starlette) -> AsyncIterator[None]:
        """Leases run out whether or not an agent asks for work: the hub looks after them from its start on."""
        desk.dispatcher.start()
        daily = [asyncio.create_task(task) for task in (_forget_old_deeds(store, chosen), retain_daily(store))]
        yield
        for task in daily:
            task.cancel()
        desk.own_agent.stop()
        desk.dispatcher.stop()

    inner = Starlette(
        lifespan=open_desk,
        routes=[
            *routes(store, own_machine=desk.own_agent.offered),
            *sign_in_routes(store, chosen, wrong_tokens),
            *people_routes(store),
            *shared_routes(store, wrong_tokens),
            *fleet_routes(desk),
            *LiveStreams(store, chosen).routes(),
            Route("/favicon.ico", _icon, methods=["GET"]),
            Route("/static/vega.js", _vega, methods=["GET"]),
            Mount("/static", StaticFiles(directory=STATIC)),
            Mount("/api/v1", LazyApi(store, chosen, desk)),
        ],
        exception_handlers={404: _not_found, 405: _not_found, 500: _server_error, InferometerError: _refused},
    )
    mark = StoreMark(store)
    return RequestGuard(ListCache(_Compressed(inner), mark, store.reap), store, chosen, wrong_tokens, mark=mark)


async def _forget_old_deeds(store: Store, rules: Rules) -> None:
    """Entries of the audit log go when they are old: looked at when the hub starts, and once a day."""
    while True:
        with suppress(InferometerError):  # a store that cannot be written to now is tried tomorrow
            await to_thread.run_sync(partial(store.forget_audit, older_s=rules.audit_s))
        await asyncio.sleep(86_400)


async def retain_daily(store: Store, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Apply the projects' rules of retention soon after the start, so that a restart a day is no way around them."""
    await pause(_FIRST_S)
    while True:
        with suppress(InferometerError):  # a database that is away, or read-only: the next day will do
            await to_thread.run_sync(store.apply_retention)
        await pause(_DAY_S)


class _Compressed:
    """Compresses responses for browsers that ask for it, except live streams, whose events must not wait."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._compressed = app, GZipMiddleware(app, minimum_size=2000, compresslevel=3)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        live = scope["type"] != "http" or scope["path"].endswith("/live")
        await (self._app if live else self._compressed)(scope, receive, send)


class LazyApi:
    """The API, made when it is first used: importing FastAPI takes a while."""

    def __init__(self, store: Store, rules: Rules, desk: FleetDesk) -> None:
        self._store, self._rules, self._desk = store, rules, desk
        self._lock = threading.Lock()
        self._api: ASGIApp | None = None

    def api(self) -> ASGIApp:
        with self._lock:
            if self._api is None:
                from inferometer.hub.web.api.routes import create_api  # noqa: PLC0415 - FastAPI, behind the first page

                self._api = create_api(self._store, self._rules, self._desk)
            return self._api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._api if self._api is not None else await to_thread.run_sync(self.api)
        await app(scope, receive, send)


def _icon(_request: Request) -> Response:
    return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml", headers={"cache-control": _WEEK})


async def _vega(_request: Request) -> Response:
    """The URL does not change with Vega's version, so browsers ask again once a week."""
    try:
        script = await asyncio.to_thread(vega_bundle)
    except MissingDependencyError as error:
        return PlainTextResponse(f"// {error}\n", status_code=404, media_type="text/javascript")
    return Response(script, media_type="text/javascript", headers={"cache-control": _WEEK})


def _not_found(request: Request, error: Exception) -> Response:
    """A page, or JSON for programs: some API paths, such as a name with a line break, match no route there."""
    status = getattr(error, "status_code", 404)
    if request.url.path.startswith("/api/"):
        return JSONResponse(problem("There is nothing at this address."), status_code=status)
    values = {"message": "There is no such page.", "remedy": "The menu above leads to every page.", "here": ""}
    return HTMLResponse(render_template("error.html", values), status_code=status)


async def _refused(request: Request, error: Exception) -> Response:
    """One of our errors that no page has answered by itself, such as a store that is away."""
    assert isinstance(error, InferometerError)  # noqa: S101 - it is registered for those
    return shown_failure(request, error)


def _server_error(_request: Request, error: Exception) -> Response:
    message = f"The hub failed on this page ({type(error).__name__}). Its terminal says more."
    return HTMLResponse(
        render_template("error.html", {"message": message, "remedy": None, "here": ""}), status_code=500
    )

"""The application: pages at once, the API behind a door that opens on the first knock, the guard in front of both."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from inferometer.hub.assets import vega_bundle
from inferometer.hub.failures import problem
from inferometer.hub.live import Live
from inferometer.hub.pages import routes, sign_in_routes
from inferometer.hub.rendering import STATIC, render
from inferometer.hub.rules import Rules
from inferometer.hub.security import Guard

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from inferometer.store.store import Store

_WEEK = "public, max-age=604800"


def create_app(store: Store, rules: Rules | None = None) -> ASGIApp:
    chosen = rules or Rules()
    inner = Starlette(
        routes=[
            *routes(store),
            *sign_in_routes(store),
            *Live(store, chosen).routes(),
            Route("/favicon.ico", _icon, methods=["GET"]),
            Route("/static/vega.js", _vega, methods=["GET"]),
            Mount("/static", StaticFiles(directory=STATIC)),
            Mount("/api/v1", Behind(store, chosen)),
        ],
        exception_handlers={404: _nothing, 405: _nothing, 500: _broken},
    )
    return Guard(_Packed(inner), store, chosen)


class _Packed:
    """Answers packed for browsers that ask for it, but never a live stream, which must not wait to be packed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._packed = app, GZipMiddleware(app, minimum_size=2000, compresslevel=3)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        live = scope["type"] != "http" or scope["path"].endswith("/live")
        await (self._app if live else self._packed)(scope, receive, send)


class Behind:
    """The API, made when it is first asked for or when the hub has nothing else to do: FastAPI takes its time."""

    def __init__(self, store: Store, rules: Rules) -> None:
        self._store, self._rules = store, rules
        self._lock = threading.Lock()
        self._made: ASGIApp | None = None

    def made(self) -> ASGIApp:
        with self._lock:
            if self._made is None:
                from inferometer.hub.api import create_api  # noqa: PLC0415 - FastAPI, behind the first page

                self._made = create_api(self._store, self._rules)
            return self._made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._made if self._made is not None else await to_thread.run_sync(self.made)
        await app(scope, receive, send)


def _icon(_request: Request) -> Response:
    return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml", headers={"cache-control": _WEEK})


async def _vega(_request: Request) -> Response:
    """Vega's file name changes with its version in no address, so browsers ask again once a week."""
    from inferometer.errors import MissingDependencyError  # noqa: PLC0415 - beside its only use

    try:
        script = await asyncio.to_thread(vega_bundle)
    except MissingDependencyError as error:
        return PlainTextResponse(f"// {error}\n", status_code=404, media_type="text/javascript")
    return Response(script, media_type="text/javascript", headers={"cache-control": _WEEK})


def _nothing(request: Request, error: Exception) -> Response:
    """No page; for programs in their own form, as with a line break in a name, which no route of the API takes."""
    status = getattr(error, "status_code", 404)
    if request.url.path.startswith("/api/"):
        return JSONResponse(problem("There is nothing at this address."), status_code=status)
    values = {"message": "There is no such page.", "remedy": "The menu above leads to all there is.", "here": ""}
    return HTMLResponse(render("error.html", values), status_code=status)


def _broken(_request: Request, error: Exception) -> Response:
    words = f"The hub failed on this page ({type(error).__name__}). Its terminal says more."
    return HTMLResponse(render("error.html", {"message": words, "remedy": None, "here": ""}), status_code=500)

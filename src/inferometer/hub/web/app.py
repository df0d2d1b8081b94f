"""The application: the pages, the API that loads when first used, and the guard in front of both."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import anyio
import msgspec
from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from inferometer.core.errors import InferometerError, MissingDependencyError, UnknownNameError
from inferometer.core.profile import Status
from inferometer.hub.fleet.desk import FleetDesk
from inferometer.hub.mcp.server import HubMcp
from inferometer.hub.web.answers import answer, json_problem, problem, shown_failure, told
from inferometer.hub.web.assets import STATIC, WEEK, compressed, static_asset, vega_bundle
from inferometer.hub.web.caches import ListCache
from inferometer.hub.web.guard.people import seen as seen_store
from inferometer.hub.web.guard.people import visitor_of
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.guard.security import RequestGuard, StoreMark, client_of, sign_in_limit
from inferometer.hub.web.guard.sign_in import sign_in_routes
from inferometer.hub.web.pages.fleet import fleet_routes
from inferometer.hub.web.pages.people import people_routes, shared_routes
from inferometer.hub.web.pages.routes import routes
from inferometer.hub.web.pages.serving import serving_routes
from inferometer.hub.web.rendering import render_template
from inferometer.store import names
from inferometer.store.store import Store
from inferometer.store.values import Filter, Metric

Look = Callable[[Store], tuple[str, Any, bool]]  # the event's name, its value, and whether it is the last


# Live pages: server-sent events from the store, which is polled while somebody watches.

_OPEN: tuple[Status, ...] = ("pending", "running")
_QUIET_S = 15.0  # so often a comment keeps the connection open
_MOST_METRICS = 500
_MOST_SEEN = 100


def event(name: str, value: Any) -> bytes:
    """One server-sent event. Encoded JSON has no line breaks, so the value is a single line."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


class LiveStreams:
    """Streams for programs, and the same as single answers for pages.

    A page asks again and again while it is looked at. A browser keeps six connections to a hub, and a stream in each of
    six tabs would leave none for the seventh.
    """

    def __init__(self, store: Store, rules: Rules, pause: Callable[[float], Awaitable[None]] = anyio.sleep) -> None:
        self._store, self._rules, self._pause = store, rules, pause
        self._streams: Counter[str] = Counter()  # by whose they are

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/live", self.all, methods=["GET"]),
            Route("/api/v1/runs/{run}/live", self.one, methods=["GET"]),
        ]

    async def all(self, request: Request) -> Response:
        """Events named `runs`: the pending and running ones, and those that ended since the stream began.

        With `once`, one answer; `seen` then names the runs that were open before.
        """
        seen = request.query_params.get("seen", "").split(",")[:_MOST_SEEN]
        return await self._answered(request, self._open_runs({run for run in seen if names.normal_id(run) == run}))

    async def one(self, request: Request) -> Response:
        """Events named `run`: its status and its metrics so far. The stream ends when the run does."""
        try:
            run = await to_thread.run_sync(seen_store(request, self._store).resolve, request.path_params["run"])
            return await self._answered(request, self._one_run(run))
        except InferometerError as error:
            return json_problem(error)

    async def _answered(self, request: Request, look: Look) -> Response:
        if request.query_params.get("once"):
            _, value, _ = await to_thread.run_sync(look, seen_store(request, self._store))
            return answer(request, value)
        visitor = visitor_of(request)
        whose = client_of(request) if visitor is None else visitor.session or visitor.token or visitor.user
        if self._streams.total() >= self._rules.streams or self._streams[whose] >= self._rules.streams_each:
            return JSONResponse(
                problem("Too many live streams are open.", "Close one, or ask with ?once=1 from time to time."),
                status_code=503,
            )
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        events = self._counted(whose, self._changes(request, look))
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _counted(self, whose: str, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self._streams[whose] += 1
        try:
            async for encoded in events:
                yield encoded
        finally:
            self._streams[whose] -= 1
            self._streams += Counter()  # forgets those who have none

    async def _changes(self, request: Request, look: Look) -> AsyncIterator[bytes]:
        """What changed, until the store is away: then the reason is the last event, and whoever watches comes back."""
        try:
            async for encoded in self._looks(request, look):
                yield encoded
        except InferometerError as error:
            yield event("end", {"reason": told(error)[0]})

    async def _looks(self, request: Request, look: Look) -> AsyncIterator[bytes]:
        """Poll with `look` and yield what changed, until the last event, or until nobody watches or may watch."""
        before, quiet, visitor = b"", 0.0, visitor_of(request)
        store = seen_store(request, self._store)
        while not await request.is_disconnected():
            if visitor is not None:
                now = await to_thread.run_sync(self._store.visitor_again, visitor)
                if now is None:
                    yield event("end", {"reason": "This session has ended, or its token has expired or was revoked."})
                    return
                if not visitor.sees_all:
                    store = self._store.seen_with(now.sight)  # they may have been removed from a project
            try:
                name, value, last = await to_thread.run_sync(look, store)
            except UnknownNameError:
                yield event("end", {"reason": "This run is not there any more."})
                return
            encoded = event(name, value)
            if encoded != before:
                before, quiet = encoded, 0.0
                yield encoded
            elif quiet >= _QUIET_S:
                quiet = 0.0
                yield b": still here\n\n"
            if last:
                return
            quiet += self._rules.poll_s
            await self._pause(self._rules.poll_s)

    def _open_runs(self, seen: set[str]) -> Look:
        def look(store: Store) -> tuple[str, Any, bool]:
            now = store.list(Filter(status=_OPEN)).rows
            seen.update(row.id for row in now)
            ended = []
            for run in sorted(seen - {row.id for row in now}):
                with suppress(UnknownNameError):  # deleted since, or out of sight
                    ended.append(store.row(run))
            shown = [{**asdict(row), "metrics": _last(store.metrics(row.id))} for row in now]
            return "runs", {"open": shown, "ended": [asdict(row) for row in ended]}, False

        return look

    def _one_run(self, run: str) -> Look:
        def look(store: Store) -> tuple[str, Any, bool]:
            row = store.row(run)
            newest = sorted(store.metrics(run), key=_when)[-_MOST_METRICS:]
            value = {"run": asdict(row), "metrics": [asdict(metric) for metric in newest]}
            return "run", value, row.status not in _OPEN

        return look


def _last(metrics: Iterable[Metric]) -> dict[str, dict[str, float]]:
    """The latest value of each metric, with its step."""
    return {metric.name: {"value": metric.value, "step": metric.step} for metric in sorted(metrics, key=_when)}


def _when(metric: Metric) -> tuple[float, int]:
    """Sort by time, because each part of a measurement counts its steps from the start."""
    return metric.at or 0.0, metric.step


_FIRST_S, _DAY_S = 300.0, 86_400.0
_SOON_S = 3.0  # after the start, by when the first page is there


def create_app(store: Store, rules: Rules | None = None) -> ASGIApp:
    chosen = rules or Rules()
    wrong_tokens = sign_in_limit(chosen)
    desk = FleetDesk(store, chosen)
    agents_door = HubMcp(desk)
    api = LazyApi(store, chosen, desk)

    @asynccontextmanager
    async def open_desk(_app: Starlette) -> AsyncIterator[None]:
        """Leases run out whether or not an agent asks for work: the hub looks after them from its start on."""
        desk.dispatcher.start()
        beside = (api.make_soon(), _forget_old_deeds(store, chosen), retain_daily(store))
        tasks = [asyncio.create_task(each) for each in beside]
        yield
        for task in tasks:
            task.cancel()
        await agents_door.stop()
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
            *serving_routes(desk),
            *LiveStreams(store, chosen).routes(),
            Route("/favicon.ico", _icon, methods=["GET"]),
            Route("/static/vega.js", _vega, methods=["GET"]),
            Route("/static/{path:path}", static_asset, methods=["GET"]),
            Mount("/api/v1", api),
            Route("/mcp", agents_door, methods=["POST"]),
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
    """The API, made when it is first used, or soon after the first page: importing FastAPI takes a while."""

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

    async def make_soon(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Make it before somebody waits for it. What fails now is told to whoever asks."""
        await pause(_SOON_S)
        with suppress(ImportError, InferometerError):
            await to_thread.run_sync(self.api)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._api if self._api is not None else await to_thread.run_sync(self.api)
        await app(scope, receive, send)


def _icon(_request: Request) -> Response:
    return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml", headers={"cache-control": WEEK})


async def _vega(request: Request) -> Response:
    """The URL does not change with Vega's version, so browsers ask again once a week."""
    try:
        script = await asyncio.to_thread(vega_bundle)
        return await asyncio.to_thread(compressed, request, script, "text/javascript", {"cache-control": WEEK})
    except MissingDependencyError as error:
        return PlainTextResponse(f"// {error}\n", status_code=404, media_type="text/javascript")


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

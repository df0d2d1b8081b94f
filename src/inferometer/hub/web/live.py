"""Live pages: server-sent events from the store, which is polled while somebody watches."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio import to_thread
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from inferometer.core.errors import InferometerError, UnknownNameError
from inferometer.hub.web.answers import answer
from inferometer.hub.web.failures import json_problem, problem, told
from inferometer.hub.web.guard.people import seen as seen_store
from inferometer.hub.web.guard.people import visitor_of
from inferometer.hub.web.guard.security import client_of
from inferometer.store import ids
from inferometer.store.values import Filter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from starlette.requests import Request

    from inferometer.core.run import Status
    from inferometer.hub.web.guard.rules import Rules
    from inferometer.store.store import Store
    from inferometer.store.values import Metric

    Look = Callable[[Store], tuple[str, Any, bool]]  # the event's name, its value, and whether it is the last

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
        return await self._answered(request, self._open_runs({run for run in seen if ids.normal(run) == run}))

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

"""Live pages: server-sent events from the store, which is polled while somebody watches."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio import to_thread
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from inferometer.errors import InferometerError, UnknownNameError
from inferometer.hub.failures import problem, status_of
from inferometer.store.values import Filter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request

    from inferometer.core.run import Status
    from inferometer.hub.rules import Rules
    from inferometer.store.store import Store
    from inferometer.store.values import Metric

_OPEN: tuple[Status, ...] = ("pending", "running")
_QUIET_S = 15.0  # so often a comment keeps the connection open
_MOST_METRICS = 500


def event(name: str, value: Any) -> bytes:
    """One server-sent event. Encoded JSON has no line breaks, so the value is a single line."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


class LiveStreams:
    def __init__(self, store: Store, rules: Rules, pause: Callable[[float], Awaitable[None]] = anyio.sleep) -> None:
        self._store, self._rules, self._pause = store, rules, pause
        self._streams = 0

    def routes(self) -> list[Route]:
        return [
            Route("/api/v1/live", self.all, methods=["GET"]),
            Route("/api/v1/runs/{run}/live", self.one, methods=["GET"]),
        ]

    async def all(self, request: Request) -> Response:
        """Events named `runs`: the pending and running ones, and those that ended since the stream began."""
        return self._streamed(self._changes(request, self._open_runs(set())))

    async def one(self, request: Request) -> Response:
        """Events named `run`: its status and its metrics so far. The stream ends when the run does."""
        try:
            run = await to_thread.run_sync(self._store.resolve, request.path_params["run"])
        except InferometerError as error:
            return JSONResponse(problem(error.message, error.remedy), status_code=status_of(error))
        return self._streamed(self._changes(request, self._one_run(run)))

    def _streamed(self, events: AsyncIterator[bytes]) -> Response:
        if self._streams >= self._rules.streams:
            return JSONResponse(
                problem("Too many live pages are open.", "Close one, and reload this page."), status_code=503
            )
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._counted(events), media_type="text/event-stream", headers=headers)

    async def _counted(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            async for encoded in events:
                yield encoded
        finally:
            self._streams -= 1

    async def _changes(
        self, request: Request, look: Callable[[], tuple[str, Any, bool]]
    ) -> AsyncIterator[bytes]:  # fmt: skip
        """Poll with `look` and yield what changed, until the last event or until nobody watches."""
        before, quiet = b"", 0.0
        while not await request.is_disconnected():
            name, value, last = await to_thread.run_sync(look)
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

    def _open_runs(self, seen: set[str]) -> Callable[[], tuple[str, Any, bool]]:
        def look() -> tuple[str, Any, bool]:
            now = self._store.list(Filter(status=_OPEN)).rows
            seen.update(row.id for row in now)
            ended = []
            for run in sorted(seen - {row.id for row in now}):
                with suppress(UnknownNameError):  # deleted since
                    ended.append(self._store.row(run))
            shown = [{**asdict(row), "metrics": self._last(row.id)} for row in now]
            return "runs", {"open": shown, "ended": [asdict(row) for row in ended]}, False

        return look

    def _one_run(self, run: str) -> Callable[[], tuple[str, Any, bool]]:
        def look() -> tuple[str, Any, bool]:
            row = self._store.row(run)
            newest = sorted(self._store.metrics(run), key=_when)[-_MOST_METRICS:]
            value = {"run": asdict(row), "metrics": [asdict(metric) for metric in newest]}
            return "run", value, row.status not in _OPEN

        return look

    def _last(self, run: str) -> dict[str, dict[str, float]]:
        """The latest value of each metric, with its step."""
        metrics = sorted(self._store.metrics(run), key=_when)
        return {metric.name: {"value": metric.value, "step": metric.step} for metric in metrics}


def _when(metric: Metric) -> tuple[float, int]:
    """Sort by time, because each part of a measurement counts its steps from the start."""
    return metric.at or 0.0, metric.step

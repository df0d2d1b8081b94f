"""A hub's caches: lists of runs while nobody writes to the store, and the runs looked at last.

Two hundred people who look at one list make it once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferometer.core.errors import InferometerError
from inferometer.hub.web.guard.security import VISITOR, StoreMark

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.profile import Run
    from inferometer.hub.web.pages.run import PageExplanation
    from inferometer.store.store import Store
    from inferometer.store.values import RunRow, Visitor

Key = tuple[object, ...]
Kept = tuple[Message, ...]

_MOST_BYTES = 32_000_000
_LOOK_S = 2.0  # a process that was killed writes nothing: whoever asks for a list looks for such this often


class ListCache:
    """In front of the application. Each list is answered from here while the store's mark stays the same."""

    def __init__(
        self,
        app: ASGIApp,
        mark: StoreMark,
        reap: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`reap` marks the runs whose process is gone; if there is one, the store's mark changes."""
        self._app, self._mark, self._reap, self._clock = app, mark, reap, clock
        self._looked = float("-inf")
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._coming: dict[Key, asyncio.Future[Kept]] = {}
        self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = await self._key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        messages = self._kept.get(key)
        if messages is None:
            messages = await self._shared(key, scope, receive)
        else:
            self._kept.move_to_end(key)
        for message in messages:
            await send(message)

    async def _key(self, scope: Scope) -> Key | None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _is_list(scope["path"]):
            return None
        headers = Headers(scope=scope)
        if self._clock() - self._looked > _LOOK_S:
            self._looked = self._clock()  # before: those who come meanwhile need not look too
            with suppress(InferometerError):
                await to_thread.run_sync(self._reap)
        mark = None if "if-none-match" in headers else await self._mark.now()
        if mark is None:
            return None
        packed = "gzip" in headers.get("accept-encoding", "")
        return scope["path"], scope["query_string"], _who(scope), packed, mark

    async def _shared(self, key: Key, scope: Scope, receive: Receive) -> Kept:
        """Whoever asks while the answer is being made waits for it instead of making it too."""
        coming = self._coming.get(key)
        if coming is not None:
            return await asyncio.shield(coming)
        coming = self._coming[key] = asyncio.get_running_loop().create_future()
        try:
            messages = await _made(self._app, scope, receive)
        except BaseException as error:
            coming.set_exception(error if isinstance(error, Exception) else RuntimeError("The hub is going down."))
            coming.exception()  # seen, also where nobody else waits
            raise
        finally:
            self._coming.pop(key)
        coming.set_result(messages)
        if messages[0]["status"] == 200:
            self._kept[key] = messages
            self._bytes += _size(messages)
            while self._bytes > _MOST_BYTES:
                self._bytes -= _size(self._kept.popitem(last=False)[1])
        return messages


def _is_list(path: str) -> bool:
    return path in {"/", "/runs", "/api/v1/runs"} or path.startswith("/projects/")


def _who(scope: Scope) -> tuple[object, ...] | None:
    """A page names its reader, shows what they may see and offers what they may do: all of it is in the key."""
    visitor: Visitor | None = scope.get(VISITOR)
    if visitor is None:
        return None
    return visitor.user, visitor.scopes, None if visitor.roles is None else frozenset(visitor.roles.items())


async def _made(app: ASGIApp, scope: Scope, receive: Receive) -> Kept:
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    await app(scope, receive, keep)
    return tuple(messages)


def _size(messages: Kept) -> int:
    return sum(len(message.get("body", b"")) for message in messages)


# A cache of the runs that were just looked at: the profile of a run that has ended never changes.

_MOST = 16
_MOST_OPS = 200_000  # of all cached profiles together


class RunCache:
    """Reads runs for the pages. Names, tags, project and status may change, so they always come from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._runs: OrderedDict[tuple[str, float | None], Run] = OrderedDict()
        self._explanations: OrderedDict[tuple[str, float | None], PageExplanation] = OrderedDict()

    def get(self, name: str, seen: Store | None = None) -> tuple[Run, RunRow]:
        """`seen` is the store as whoever asks may see it: what they may not see is not there, cached or not."""
        row = (seen or self._store).row(name)
        key = (row.id, row.ended)
        with self._lock:
            run = self._runs.get(key)
        if run is None:
            run = self._store.get(row.id)
            if row.ended is not None and run.profile is not None:
                self._keep(key, run)
        return replace(run, name=row.name, tags=row.tags, project=row.project, status=row.status), row

    def _keep(self, key: tuple[str, float | None], run: Run) -> None:
        with self._lock:
            self._runs[key] = run
            while len(self._runs) > _MOST or (len(self._runs) > 1 and self._ops() > _MOST_OPS):
                self._runs.popitem(last=False)

    def _ops(self) -> int:
        return sum(len(phase.ops) for run in self._runs.values() if run.profile for phase in run.profile.phases)

    def cached_explanation(self, row: RunRow) -> PageExplanation | None:
        """The explanation of a run, if somebody has already asked for it."""
        with self._lock:
            return self._explanations.get((row.id, row.ended))

    def explanation(self, name: str, seen: Store | None = None) -> tuple[Run, PageExplanation]:
        from inferometer.hub.web.pages.run import PageExplanation, page_explanation  # noqa: PLC0415 - numpy, behind lists

        run, row = self.get(name, seen)
        if run.profile is None:
            return run, PageExplanation()
        explanation = self.cached_explanation(row)
        if explanation is None:
            explanation = page_explanation(run.profile, name=run.id)
            with self._lock:
                self._explanations[row.id, row.ended] = explanation
                while len(self._explanations) > _MOST:
                    self._explanations.popitem(last=False)
        return run, explanation

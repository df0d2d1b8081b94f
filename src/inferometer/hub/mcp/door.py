"""The same tools at a hub's /mcp, for whoever's token it is: their own runs, the catalog, and nothing of this machine.

The guard in front of the hub has let them in, and says what they may do. Each request stands for itself, so that a
token that is revoked opens nothing more, and every replica of a hub answers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from inferometer.core.errors import DomainError, MissingDependencyError
from inferometer.hub.mcp.access import Access
from inferometer.hub.mcp.server import create_server
from inferometer.hub.web.failures import problem
from inferometer.hub.web.guard.people import seen, visitor_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Receive, Scope, Send

    from inferometer.hub.fleet.desk import FleetDesk


class HubMcp:
    """An ASGI app that starts with its first request: importing the SDK takes a while, and few hubs are asked so."""

    def __init__(self, desk: FleetDesk) -> None:
        self._desk = desk
        self._starting = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._starting:
                manager = self._manager or await self._started()
        except MissingDependencyError as error:
            await JSONResponse(problem(error.message, error.remedy), 501)(scope, receive, send)
            return
        await manager.handle_request(scope, receive, send)

    async def _started(self) -> StreamableHTTPSessionManager:
        server = create_server(self._access)
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415 - the extra

        manager = StreamableHTTPSessionManager(app=server, json_response=True, stateless=True)
        ready = asyncio.Event()

        async def serve() -> None:
            async with manager.run():
                ready.set()
                await asyncio.Event().wait()  # until the hub stops

        self._serving = asyncio.create_task(serve())
        await ready.wait()
        self._manager = manager
        return manager

    async def stop(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                await self._serving

    def _access(self, context: ServerRequestContext[Any]) -> Access:
        request = context.request
        if not isinstance(request, Request):
            raise DomainError("This server answers requests alone.", remedy="Send them one by one, by HTTP.")
        visitor = visitor_of(request)
        writes = visitor is None or visitor.allows("write")
        submit = (lambda wish: self._submitted(request, wish)) if writes else None
        return Access(seen=seen(request, self._desk.store), submit=submit)

    def _submitted(self, request: Request, wish: Mapping[str, Any]) -> dict[str, Any]:
        """As the page of a new run does it: whoever asks must be a writer of the project."""
        from inferometer.hub.web.api.new_runs import submitted_wish  # noqa: PLC0415 - FastAPI, behind the first page

        return submitted_wish(self._desk, request, wish)

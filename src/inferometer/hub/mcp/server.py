"""The edge to the Model Context Protocol: the official SDK speaks it, on stdio or on this machine's loopback.

A call runs in a thread, one at a time: predictions keep what they prepared, and a measurement wants the machine for
itself. Errors of ours are answers with `isError`, so that a client can read the sentence and ask again.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse

from inferometer.core.errors import DomainError, InferometerError, MissingDependencyError
from inferometer.hub.mcp.access import Access
from inferometer.hub.mcp.tools import call_tool, profile_question, tools_for
from inferometer.hub.web.answers import problem
from inferometer.hub.web.guard.people import seen, visitor_of
from inferometer.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, PaginatedRequestParams
    from starlette.types import ASGIApp, Receive, Scope, Send

    from inferometer.hub.fleet.desk import FleetDesk

INSTRUCTIONS = (
    "Inferometer predicts, measures and explains how fast AI models run on devices. Times are in seconds, sizes in "
    "bytes; a null is unknown, never zero. Predictions have an interval: say it with the figure. `devices` and "
    "`models` have the names that other tools take."
)
_CONSENT = "consent"
_NOTHING_TO_FILL_IN: dict[str, Any] = {"type": "object", "properties": {}}


def create_server(access_of: Callable[[ServerRequestContext[Any]], Access]) -> Server[Any]:
    """A server of the tools that whoever asks may use."""
    try:
        import mcp_types as types  # noqa: PLC0415 - the extra
        from anyio import CapacityLimiter, to_thread  # noqa: PLC0415 - as above
        from mcp.server.lowlevel import Server  # noqa: PLC0415 - as above
    except ImportError:
        raise MissingDependencyError(
            "The Model Context Protocol needs a package that is not installed.",
            remedy="pip install 'inferometer[mcp]'",
        ) from None
    limits: list[CapacityLimiter] = []  # made in the loop that serves

    async def list_tools(
        context: ServerRequestContext[Any], _asked: PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.schema(),
                    annotations=types.ToolAnnotations(
                        read_only_hint=not tool.runs_something, destructive_hint=False, open_world_hint=False
                    ),
                )
                for tool in tools_for(access_of(context))
            ]
        )

    async def on_call(
        context: ServerRequestContext[Any], asked: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        limits[:] = limits or [CapacityLimiter(1)]
        arguments = asked.arguments or {}
        try:
            access = access_of(context)
            if asked.name in {each.name for each in tools_for(access) if each.runs_something}:
                question = await _consent(context, asked, profile_question(arguments))
                if question is not None:
                    return question
            answer = await to_thread.run_sync(
                partial(call_tool, asked.name, arguments, access), abandon_on_cancel=True, limiter=limits[0]
            )
        except InferometerError as error:
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(error))], is_error=True)
        plain = json.dumps(answer.document, ensure_ascii=False, allow_nan=False)
        return types.CallToolResult(  # the JSON also as text, for clients that hand on texts alone
            content=[types.TextContent(type="text", text=text) for text in (answer.text, plain)],
            structured_content=json.loads(plain),
        )

    return Server(
        "inferometer", version=__version__, title="Inferometer", instructions=INSTRUCTIONS,
        on_list_tools=list_tools, on_call_tool=on_call,
    )  # fmt: skip


async def _consent(
    context: ServerRequestContext[Any], asked: CallToolRequestParams, question: str
) -> InputRequiredResult | None:
    """None once the user has agreed; a refusal where the client cannot ask.

    Clients of 2026-07-28 and later are answered with the question and call again; older ones are asked while the call
    waits.
    """
    import mcp_types as types  # noqa: PLC0415 - the extra
    from mcp_types.version import is_version_at_least  # noqa: PLC0415 - as above

    answered = (asked.input_responses or {}).get(_CONSENT)
    if answered is None:
        capabilities = context.session.client_params.capabilities if context.session.client_params else None
        if capabilities is None or capabilities.elicitation is None:
            raise DomainError(
                "A measurement needs the user's word, and this client cannot ask for it.",
                remedy="Let the user run `inferometer profile` in a terminal.",
            )
        form = types.ElicitRequestFormParams(message=question, requested_schema=_NOTHING_TO_FILL_IN)
        if is_version_at_least(context.protocol_version, "2026-07-28"):
            return types.InputRequiredResult(input_requests={_CONSENT: types.ElicitRequest(params=form)})
        answered = await context.session.elicit_form(question, _NOTHING_TO_FILL_IN, context.request_id)
    if not isinstance(answered, types.ElicitResult) or answered.action != "accept":
        raise DomainError("The user did not agree to the measurement, and nothing was run.")
    return None


def serve_stdio(access: Access) -> None:
    """Serve until the client closes our input. What engines print goes to stderr: stdout is the protocol's."""
    server = create_server(lambda _: access)
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 - as above

    async def serve() -> None:
        async with stdio_server() as (reading, writing), anyio.create_task_group() as tasks:
            passed, heard = anyio.create_memory_object_stream[Any](0)
            tasks.start_soon(_answer_no_messages, reading, passed, writing)
            await server.run(heard, writing, server.create_initialization_options())

    anyio.run(serve)


async def _answer_no_messages(reading: Any, passed: Any, writing: Any) -> None:
    """Pass messages on. A line that is none is answered, as JSON-RPC asks for; the SDK says nothing to it."""
    from mcp.shared.message import SessionMessage  # noqa: PLC0415 - there, since the server is
    from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError  # noqa: PLC0415 - as above

    words = "A line was no message of JSON-RPC. Send one JSON object a line; the server goes on."
    told = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=PARSE_ERROR, message=words))
    async with reading, passed:
        async for item in reading:
            if isinstance(item, Exception):
                await writing.send(SessionMessage(told))
            else:
                await passed.send(item)


def http_app(access: Access, token: str) -> ASGIApp:
    """The same tools at /mcp, for who has the token. Only names of this machine are answered (DNS rebinding)."""
    inner = create_server(lambda _: access).streamable_http_app()

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _has_token(scope, token):
            from starlette.responses import JSONResponse  # noqa: PLC0415 - there, since the server is

            refusal = {"error": "This server needs its token: `Authorization: Bearer TOKEN`."}
            await JSONResponse(refusal, 401, {"www-authenticate": "Bearer"})(scope, receive, send)
            return
        await inner(scope, receive, send)

    return guarded


def _has_token(scope: Scope, token: str) -> bool:
    given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    return hmac.compare_digest(given, b"Bearer " + token.encode())


# The same tools at a hub's /mcp, for whoever's token it is: their own runs, the catalog, and nothing of this machine.
#
# The guard in front of the hub has let them in, and says what they may do. Each request stands for itself, so that a
# token that is revoked opens nothing more, and every replica of a hub answers.


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

"""The guard in front of every page and call: host, rate, origin, token and size, and the headers of every response.

A page of another site must neither read from the hub nor make it do anything: host names that are not ours are refused
(DNS rebinding), writes must come from our own pages or from no page at all, and nothing is shared with other origins.
"""

import math
import time
from collections.abc import Callable
from typing import Literal
from urllib.parse import quote, urlsplit

from anyio import to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferometer.hub.failures import problem
from inferometer.hub.rate_limit import RateLimit
from inferometer.hub.rules import Rules
from inferometer.store.store import Store

COOKIE = "inferometer_token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE = {"GET", "HEAD", "OPTIONS"}
_OPEN = ("/static/", "/sign-in", "/api/v1/health")  # needed to sign in, and reveals nothing about runs


class _TooLargeError(HTTPException):
    """An HTTPException, so that the application behind the guard answers with it wherever it was reading."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"That is more than the {most:,} bytes allowed.")


class RequestGuard:
    def __init__(self, app: ASGIApp, store: Store, rules: Rules, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._store, self._rules = app, store, rules
        self._requests = RateLimit(rules.per_s, rules.burst, clock=clock)
        self._wrong_tokens = RateLimit(rules.sign_ins / 60, rules.sign_ins, clock=clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._refusal(request) or await self._unauthorised(request)
        with_headers = _HeaderSender(send, "no-cache" if request.scope["path"].startswith("/static/") else "no-store")
        if refused is not None:
            await refused(scope, receive, with_headers)
            return
        await self._app(scope, _counted(receive, self._most(request)), with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The response to a request that is refused unread; None for one that may pass."""
        name = _name(request.headers.get("host", ""))
        if name not in self._rules.hosts:
            message = "This hub does not have that name. Use its address, or start it with --allow-host NAME."
            return _refuse(request, 421, message)
        wait = self._requests.wait(_client(request))
        if wait > 0:
            return _refuse(request, 429, "Too many requests.", {"retry-after": str(math.ceil(wait))})
        if request.method not in _SAFE and not _ours(request.headers):
            return _refuse(request, 403, "Pages of another origin may not change anything here.")
        if request.headers.get("content-encoding", "identity") != "identity":
            return _refuse(request, 415, "Compressed bodies are not accepted: send the document as it is.")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._most(request):
            return _refuse(request, 413, f"That is more than the {self._most(request):,} bytes allowed.")
        return None

    def _most(self, request: Request) -> int:
        if request.scope["path"] in {"/api/v1/profiles", "/api/v1/profiles/batch"}:
            return self._rules.document_bytes
        if request.scope["path"] == "/api/v1/runs/import":
            return self._rules.archive_bytes
        return self._rules.body_bytes

    async def _unauthorised(self, request: Request) -> Response | None:
        """The response to a request without a valid token, if one is needed."""
        if not self._rules.tokens or request.scope["path"].startswith(_OPEN):
            return None
        client = _client(request)
        if self._wrong_tokens.spent(client):
            return _refuse(request, 429, "Too many wrong tokens.", {"retry-after": "60"})
        text = _token(request.headers)
        scope: Literal["read", "write"] = "read" if request.method in _SAFE else "write"
        if text and await to_thread.run_sync(self._store.admitted, text, scope) is not None:
            return None
        if text:
            self._wrong_tokens.wait(client)
        if request.method in _SAFE and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"/sign-in?to={quote(request.scope['path'])}", status_code=303)
        message = f"This needs a token with the scope {scope}."
        return _refuse(request, 401, message, {"www-authenticate": "Bearer"})


class _HeaderSender:
    """Adds our headers to every response."""

    def __init__(self, send: Send, cache_control: str) -> None:
        self._send, self._cache_control = send, cache_control

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", self._cache_control)
        await self._send(message)


def _counted(receive: Receive, most: int) -> Receive:
    """Count the body as it arrives, in case its length was missing or wrong."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise _TooLargeError(most)
        return message

    return counted


def _name(host: str) -> str:
    """The Host header without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() and not port.endswith("]") else host).lower()


def _client(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _ours(headers: Headers) -> bool:
    """Whether a write comes from a page of this hub, or from a program that has no pages.

    Browsers send `Origin` with every write; if it is missing, `Sec-Fetch-Site` decides, which pages cannot forge.
    """
    origin = headers.get("origin")
    if origin is not None:
        try:
            return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
        except ValueError:
            return False
    return headers.get("sec-fetch-site", "none") in {"none", "same-origin"}


def _token(headers: Headers) -> str | None:
    authorization = headers.get("authorization", "")
    if authorization[:7].lower() == "bearer ":
        return authorization[7:].strip()
    return cookie_parser(headers.get("cookie", "")).get(COOKIE)


def _refuse(request: Request, status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    if request.scope["path"].startswith("/api/"):
        return JSONResponse(problem(message), status_code=status, headers=headers)
    return PlainTextResponse(message + "\n", status_code=status, headers=headers)

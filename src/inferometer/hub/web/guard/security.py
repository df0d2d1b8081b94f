"""The guard in front of every page and call: host, rate, origin, token and size, and the headers of every response.

A page of another site must neither read from the hub nor make it do anything: host names that are not ours are refused
(DNS rebinding), writes must come from our own pages or from no page at all, and nothing is shared with other origins.
"""

import asyncio
import hashlib
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Literal
from urllib.parse import quote, urlsplit

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from inferometer.hub.web.answers import problem, shown_failure
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.rendering import signed_in
from inferometer.store.errors import StoreError
from inferometer.store.store import Store
from inferometer.store.values import Visitor

# The store's mark, for the many who ask at once: whether anybody has written since a list was made.


class StoreMark:
    """A file is asked on the spot. A server is asked in a thread, once for all who came before the question was put."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._order = count(1)
        self._put = 0  # when the last question was put, by that order
        self._mark: object = None
        self._turn = asyncio.Lock()
        self._thread = CapacityLimiter(1)  # of its own: those of the pages may all be at work

    async def now(self) -> object:
        """As the store was at some moment since this was called; None where that cannot be told."""
        if self._store.location.file is not None:
            return self._store.mark()
        came = next(self._order)
        async with self._turn:
            if self._put < came:
                put = next(self._order)
                self._mark = await to_thread.run_sync(self._store.mark, limiter=self._thread)
                self._put = put  # only now: a question that was given up answers nobody
            return self._mark


# How often one client may ask: a token bucket that refills at a steady rate and holds a burst.

_MOST_CLIENTS = 4096


class RateLimit:
    """One bucket per client; the clients that asked longest ago are forgotten first."""

    def __init__(self, per_s: float, burst: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, float(burst), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, cost: float = 1.0) -> float:
        """Take `cost` from the client's bucket and return 0, or take nothing and return the seconds to wait."""
        now = self._clock()
        left = self._left(client, now)
        if left < cost:
            return (cost - left) / self._per_s
        self._buckets[client] = (left - cost, now)
        self._buckets.move_to_end(client)
        while len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0

    def spent(self, client: str) -> bool:
        """Whether nothing is left for this client, without taking anything."""
        return self._left(client, self._clock()) < 1.0

    def _left(self, client: str, now: float) -> float:
        left, since = self._buckets.get(client, (self._burst, now))
        return min(self._burst, left + (now - since) * self._per_s)


COOKIE = "inferometer_session"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Within the hub only. With no-referrer a browser would call the origin of our own forms `null`, as a foreign one's.
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_ENCODED_HEADERS = tuple((name.encode(), value.encode()) for name, value in _HEADERS.items())
_BUFFERED = 16_384
_SAFE = {"GET", "HEAD", "OPTIONS"}
# Questions whose parameters do not fit into an address: they change nothing, so a token to read is enough.
# At /mcp the tools that a token does not allow are not offered.
_QUESTIONS = re.compile(r"/api/v1/(predict|sweeps|formulas/[^/]+/calculate)|/mcp")
# What is somebody's own: whoever may read may end their sessions and tokens, and make a token that reads.
_OWN = re.compile(r"/api/v1/(sessions/[^/]+|tokens|tokens/[^/]+)")
_NOTED_S = 60.0
_MOST_HELD = 4096  # tokens and cookies that are remembered to have held
# What a token and a cookie look like: anything else need not be looked up.
_FORMS = {"token": re.compile(r"ifm_[\w-]{43}"), "session": re.compile(r"ifs_[\w-]{43}")}
AGENTS = "/api/v1/fleet/agent/"  # what only agents do; their tokens open nothing else
_PIECES = re.compile(r"/api/v1/fleet/(artifacts|agent/jobs/[^/]+/files)/")  # of files that are sent piece by piece
VISITOR = "inferometer.visitor"  # where it is kept, for those who answer a request, who asks
ARRIVED = "inferometer.arrived"  # when a request came, by the monotonic clock: it may wait before it is answered
# Needed to sign in, and reveals nothing about runs; what a share link opens is decided by the link.
_OPEN = ("/static/", "/sign-in", "/sign-out", "/api/v1/health", "/shared/")
_NOBODY = Visitor(user="nobody", scopes=())  # sees and owns nothing: not the same as a hub without tokens


class _TooLargeError(HTTPException):
    """An HTTPException, so that the application behind the guard answers with it wherever it was reading."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"That is more than the {most:,} bytes allowed.")


class RequestGuard:
    def __init__(
        self,
        app: ASGIApp,
        store: Store,
        rules: Rules,
        wrong_tokens: RateLimit | None = None,
        mark: StoreMark | None = None,
    ) -> None:
        self._app, self._store, self._rules = app, store, rules
        self._store_mark = mark or StoreMark(store)
        # Visitors that were admitted, by the marks of what they sent, the latest last; with the store's mark then.
        self._held: OrderedDict[str, tuple[Visitor, object]] = OrderedDict()
        self._requests = RateLimit(rules.per_s, rules.burst)
        self._agents = RateLimit(rules.agents_per_s, rules.agents_burst)
        self._wrong_tokens = wrong_tokens or sign_in_limit(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        scope[ARRIVED] = time.monotonic()
        request = Request(scope)
        try:
            refused = self._refusal(request) or await self._unauthorised(request)
        except StoreError as error:  # whose token it is cannot be looked up
            refused = shown_failure(request, error)
        cache_control = "no-cache" if request.scope["path"].startswith("/static/") else "no-store"
        with_headers = _HeaderSender(send, cache_control, self._rules.idle_s)
        if refused is not None:
            await refused(scope, receive, with_headers)
            return
        visitor: Visitor | None = request.scope.get(VISITOR)
        signed_in.set(None if visitor is _NOBODY else visitor)
        await self._app(scope, _counted(receive, self._most(request), self._rules.idle_s), with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The response to a request that is refused unread; None for one that may pass."""
        if _name(request.headers.get("host", "")) not in self._rules.hosts:
            message = "This hub does not have that name. Use its address, or start it with --allow-host NAME."
            return _refuse(request, 421, message)
        if request.method not in _SAFE and not _ours(request, self._rules):
            return _refuse(request, 403, "Pages of another origin may not change anything here.")
        if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:
            return _refuse(request, 400, "An address has no NUL.")  # PostgreSQL does not take one, nor does any name
        if request.headers.get("content-encoding", "identity") != "identity":
            return _refuse(request, 415, "Compressed bodies are not accepted: send the document as it is.")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._most(request):
            return _refuse(request, 413, f"That is more than the {self._most(request):,} bytes allowed.")
        return None

    def _paced(self, request: Request, client: str) -> Response | None:
        """Whoever asks too often waits. One address may be a whole office or a proxy: a visitor has their own pace.

        The sign-in form counts for itself (`sign_in`): a flood from an address does not shut it for others there.
        """
        if request.scope["path"] == "/sign-in" and request.method == "POST":
            return None
        limit = self._agents if request.scope["path"].startswith(AGENTS) else self._requests
        wait = limit.wait(client)
        if wait > 0:
            return _refuse(request, 429, "Too many requests.", {"retry-after": str(math.ceil(wait))})
        return None

    def _most(self, request: Request) -> int:
        if request.scope["path"] in {"/api/v1/profiles", "/api/v1/profiles/batch"}:
            return self._rules.document_bytes
        if request.scope["path"] == "/api/v1/runs/import":
            return self._rules.archive_bytes
        if _PIECES.match(request.scope["path"]):
            return self._rules.chunk_bytes
        if request.scope["path"].startswith(AGENTS) and request.scope["path"].endswith("/result"):
            return self._rules.document_bytes
        return self._rules.body_bytes

    async def _unauthorised(self, request: Request) -> Response | None:
        """The response to a request of somebody who is not known, if that is needed, or may not do what they ask.

        A program that sends a token where none is needed is known by it; one that does not hold is refused here too.
        What was sent is looked up before anything is counted: a token that holds passes, whatever others send from the
        same address. Guessing 256 bits is as hopeless at full speed as it is slowed down.
        """
        request.scope[VISITOR] = _NOBODY if self._rules.tokens else None
        kind, text = _credential(request, self._rules)
        if request.scope["path"].startswith(_OPEN) or not (self._rules.tokens or kind == "token"):
            return self._paced(request, client_of(request))
        visitor = await self._admitted(kind, text, request)
        if visitor is None:
            return self._unknown(request, text)
        if not visitor.allows(_scope(request)):
            held = ", ".join(visitor.scopes)
            return _refuse(request, 403, f"This needs a token with the scope {_scope(request)}; this one has {held}.")
        request.scope[VISITOR] = visitor if self._rules.tokens else replace(visitor, roles=None)
        return self._paced(request, f"visitor {visitor.token or visitor.session}")

    async def _admitted(self, kind: str, text: str, request: Request) -> Visitor | None:
        """Who this lets in. It is looked up again as soon as anybody has written to the store: it may be revoked.

        And once a minute, since that is noted down as when it was last used. Agents write with most of their requests:
        theirs is looked up each time.
        """
        if not text or not _FORMS[kind].fullmatch(text):
            return None
        # A token as a key to count by: not the text, which should be in as few places as possible.
        mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        agent = request.scope["path"].startswith(AGENTS)
        state, now = None if agent else await self._store_mark.now(), time.time()
        if mark in self._held:
            visitor, then = self._held[mark]
            held = visitor.until is None or visitor.until > now
            if state is not None and state == then and held and now - visitor.noted < _NOTED_S:
                return visitor
        admitted = await to_thread.run_sync(partial(self._store.visitor, **{kind: text}))
        if admitted is None:
            self._held.pop(mark, None)
            return None
        if admitted.session is not None:
            admitted = replace(admitted, noted=now)  # looked at again in a minute, whenever it was written down
        self._held[mark] = (admitted, state)  # as it was before: what was written since is looked at next time
        self._held.move_to_end(mark)
        while len(self._held) > _MOST_HELD:
            self._held.popitem(last=False)
        return admitted

    def _unknown(self, request: Request, text: str) -> Response:
        """No token, or one that does not hold. People are led to the sign-in and back to where they were."""
        client = client_of(request)
        if text and self._wrong_tokens.wait(client) > 0:
            return _refuse(request, 429, "Too many wrong tokens.", {"retry-after": "60"})
        if not text and (slowed := self._paced(request, client)) is not None:
            return slowed
        if request.method in _SAFE and "text/html" in request.headers.get("accept", ""):
            query = request.scope["query_string"].decode("latin-1")
            to = quote(request.scope["path"]) + (f"?{query}" if query else "")
            address = f"/sign-in?to={quote(to, safe='/')}{'&ended=1' if text else ''}"
            return RedirectResponse(address, status_code=303)
        message = f"This needs a token with the scope {_scope(request)}."
        if text:
            message = "This token is not valid: it is unknown, expired or revoked."
        return _refuse(request, 401, message, {"www-authenticate": "Bearer"})


def sign_in_limit(rules: Rules) -> RateLimit:
    """How many wrong tokens one address may send, in requests and in the form together."""
    return RateLimit(rules.sign_ins / 60, rules.sign_ins)


def _scope(request: Request) -> Literal["read", "write", "agent"]:
    if request.scope["path"].startswith(AGENTS):
        return "agent"
    path = request.scope["path"]
    reads = request.method in _SAFE or _QUESTIONS.fullmatch(path) is not None or _OWN.fullmatch(path) is not None
    return "read" if reads else "write"


class _HeaderSender:
    """Adds our headers to every response."""

    def __init__(self, send: Send, cache_control: str, idle_s: float) -> None:
        self._send, self._cache_control, self._idle_s = send, cache_control, idle_s

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            there = {name for name, _ in headers}
            wanted = (*_ENCODED_HEADERS, (b"cache-control", self._cache_control.encode()))
            message = {**message, "headers": headers + [pair for pair in wanted if pair[0] not in there]}
        if not message.get("more_body") and len(message.get("body", b"")) < _BUFFERED:
            await self._send(message)  # the socket takes it at once
            return
        with anyio.fail_after(self._idle_s):  # whoever stops reading is let go
            await self._send(message)


def _counted(receive: Receive, most: int, idle_s: float) -> Receive:
    """Count the body as it arrives, in case its length was missing or wrong, and do not wait for it for ever."""
    seen, complete = 0, False

    async def counted() -> Message:
        nonlocal seen, complete
        if complete:  # what comes now is the end of the connection
            return await receive()
        with anyio.move_on_after(idle_s) as limit:
            message = await receive()
        if limit.cancelled_caught:
            raise HTTPException(408, "The rest of the request did not arrive in time.", {"connection": "close"})
        seen += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if seen > most:
            raise _TooLargeError(most)
        return message

    return counted


def _name(host: str) -> str:
    """The Host header without its port, in lower case."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() and not port.endswith("]") else host).lower()


def client_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"


def _ours(request: Request, rules: Rules) -> bool:
    """Whether a write comes from a page of this hub, or from a program that has no pages.

    Browsers send `Origin` with every write: scheme, host and port must be those of the hub. If it is missing,
    `Sec-Fetch-Site` decides, which pages cannot forge.
    """
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
    return _place(origin) is not None and _place(origin) == _place(own_address(request, rules))


def own_address(request: Request, rules: Rules) -> str:
    """The hub's address as the browser has it. A proxy may speak https where the hub does not: its address is `url`."""
    host, own = request.headers.get("host", ""), None if rules.url is None else _place(rules.url)
    if rules.url is not None and own is not None and _place(f"{own[0]}://{host}") == own:
        return rules.url
    return f"{request.scope.get('scheme', 'http')}://{host}"


def _place(address: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of an address; None if it is none."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)


def cookie_name(*, secure: bool) -> str:
    """Browsers take a cookie of this prefix from the host itself and over https alone: no neighbour can plant one."""
    return f"__Host-{COOKIE}" if secure else COOKIE


def speaks_https(request: Request, rules: Rules) -> bool:
    return own_address(request, rules).startswith("https:")


def session_text(request: Request, rules: Rules) -> str:
    return cookie_parser(request.headers.get("cookie", "")).get(cookie_name(secure=speaks_https(request, rules)), "")


def _credential(request: Request, rules: Rules) -> tuple[Literal["token", "session"], str]:
    """The credential of a request: a program's header goes before a cookie."""
    authorization = request.headers.get("authorization", "")
    if authorization:
        return "token", authorization[7:].strip() if authorization[:7].lower() == "bearer " else authorization
    return "session", session_text(request, rules)


def _refuse(request: Request, status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    if request.scope["path"].startswith("/api/"):
        return JSONResponse(problem(message), status_code=status, headers=headers)
    return PlainTextResponse(message + "\n", status_code=status, headers=headers)

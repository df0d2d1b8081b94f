"""HTTP/1.1 as a load generator needs it: one request at a time on a kept connection, bodies passed on as they arrive.

Written by hand because it is measured: a third of the time of the quickest library (design/0011-load.md), and nothing
between the socket and the clock. It never pauses reading, so that no buffer of ours holds back a long stream. It reads
bodies by length, in chunks and until the end of the connection; it does not follow redirects and refuses compression.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from inferometer.serving.load.faults import Fault, fault_of

MOST_HEAD = 65_536
_MOST_LINE = 4_096  # of a chunk's size or a trailer

Headers = dict[bytes, bytes]


class Exchange(Protocol):
    """What takes an answer in. `now` is when the bytes were read."""

    def on_head(self, status: int, headers: Headers, now: float) -> None: ...
    def on_body(self, data: bytes, now: float) -> None: ...
    def on_end(self, now: float) -> None: ...
    def on_fault(self, fault: Fault, now: float) -> None: ...


_HEAD, _LENGTH, _CHUNKS, _TRAILER, _UNTIL_CLOSE = range(5)


class Connection(asyncio.Protocol):
    """`released` is called when an answer is over, with whether the connection may take another request."""

    __slots__ = (
        "_clock", "_exchange", "_keep", "_left", "_mode", "_rest", "_skip", "answered", "closed", "released",
        "transport",
    )  # fmt: skip

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self.transport: asyncio.Transport | None = None
        self.released: Callable[[Connection, bool], None] | None = None
        self._exchange: Exchange | None = None
        self._mode, self._left, self._skip = _HEAD, 0, 0
        self._rest = b""
        self._keep = True
        self.closed = False
        self.answered = 0  # answers that it has brought

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment] # of a stream, which both kinds of transport here are

    def send(self, request: bytes, exchange: Exchange) -> None:
        self._exchange, self._mode, self._rest, self._keep = exchange, _HEAD, b"", True
        assert self.transport is not None  # noqa: S101 - it is connected before it is handed out
        self.transport.write(request)

    @property
    def silent(self) -> bool:
        """Whether nothing of the answer has come yet."""
        return self._mode == _HEAD and not self._rest

    def abort(self) -> None:
        self._exchange = None
        self.closed = True
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        now = self._clock()
        exchange = self._exchange
        if exchange is None:  # bytes that nobody asked for: the connection cannot be trusted any more
            self.abort()
            return
        try:
            self._take(data, exchange, now)
        except Fault as fault:
            self._fail(fault, now)

    def _take(self, data: bytes, exchange: Exchange, now: float) -> None:
        while data:
            if self._mode == _CHUNKS or self._mode == _TRAILER:  # noqa: PLR1714 - a set costs more, in the hottest line
                data = self._take_chunks(data, exchange, now)
            elif self._mode == _HEAD:
                data = self._take_head(data, exchange, now)
            elif self._mode == _LENGTH:
                data = self._take_length(data, exchange, now)
            else:
                exchange.on_body(data, now)
                return
            if self._exchange is not exchange:
                return

    def _take_head(self, data: bytes, exchange: Exchange, now: float) -> bytes:
        self._rest += data
        end = self._rest.find(b"\r\n\r\n")
        if end < 0:
            if len(self._rest) > MOST_HEAD:
                raise Fault("malformed", f"more than {MOST_HEAD} bytes of headers")
            return b""
        head, rest = self._rest[:end], self._rest[end + 4 :]
        self._rest = b""
        status, version, headers = parse_head(head)
        if 100 <= status < 200:  # 100 Continue and 103 Early Hints come before the answer
            return rest
        self._keep = _keeps(version, headers)
        self._begin_body(status, headers)
        exchange.on_head(status, headers, now)
        if self._mode == _LENGTH and self._left == 0:
            self._end(exchange, now)
            return b""
        return rest

    def _begin_body(self, status: int, headers: Headers) -> None:
        self._left = self._skip = 0
        if b"chunked" in headers.get(b"transfer-encoding", b"").lower():
            self._mode = _CHUNKS
        elif status in {204, 304}:
            self._mode = _LENGTH
        elif (length := headers.get(b"content-length")) is not None:
            if not length.isdigit():
                raise Fault("malformed", f"a content-length of {length[:20]!r}")
            self._mode, self._left = _LENGTH, int(length)
        else:
            self._mode, self._keep = _UNTIL_CLOSE, False

    def _take_length(self, data: bytes, exchange: Exchange, now: float) -> bytes:
        body, rest = (data, b"") if len(data) <= self._left else (data[: self._left], data[self._left :])
        self._left -= len(body)
        exchange.on_body(body, now)
        if self._left == 0 and self._exchange is exchange:
            self._keep &= not rest
            self._end(exchange, now)
        return b""

    def _take_chunks(self, data: bytes, exchange: Exchange, now: float) -> bytes:
        """Bodies of all chunks in these bytes go on together: they came at the same moment."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, size, pieces = 0, len(data), []
        while at < size and self._mode == _CHUNKS:
            if self._left:
                take = min(self._left, size - at)
                pieces.append(data[at : at + take])
                at += take
                self._left -= take
                self._skip = 0 if self._left else 2
                continue
            if self._skip:
                if size - at < 2:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise Fault("malformed", "a chunk is longer than its size says")
                at, self._skip = at + 2, 0
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            self._left = _chunk_size(data[at:end])
            at = end + 2
            if self._left == 0:
                self._mode = _TRAILER
        if pieces:
            exchange.on_body(pieces[0] if len(pieces) == 1 else b"".join(pieces), now)
        if self._exchange is not exchange:
            return b""
        if self._mode == _TRAILER:
            return self._take_trailer(data[at:], exchange, now)
        self._rest = data[at:]
        if len(self._rest) > _MOST_LINE:
            raise Fault("malformed", "a chunk without a size")
        return b""

    def _take_trailer(self, data: bytes, exchange: Exchange, now: float) -> bytes:
        """Lines until an empty one; what they say is not needed."""
        while (end := data.find(b"\r\n")) >= 0:
            if end == 0:
                self._keep &= len(data) == 2
                self._end(exchange, now)
                return b""
            data = data[end + 2 :]
        self._rest = data
        if len(data) > _MOST_LINE:
            raise Fault("malformed", "a trailer without an end")
        return b""

    def _end(self, exchange: Exchange, now: float) -> None:
        self._exchange, self._mode = None, _HEAD
        self.answered += 1
        self._release()  # first, so that whoever sends the next request finds this connection free
        exchange.on_end(now)

    def _release(self) -> None:
        usable = self._keep and not self.closed and self.transport is not None and not self.transport.is_closing()
        if not usable and self.transport is not None:
            self.transport.close()
        if self.released is not None:
            self.released(self, usable)

    def _fail(self, fault: Fault, now: float) -> None:
        exchange, self._exchange = self._exchange, None
        self._keep = False
        self.closed = True
        if self.transport is not None:
            self.transport.abort()
        if exchange is not None:
            exchange.on_fault(fault, now)
            self._release()

    def eof_received(self) -> bool:
        return False  # close our side too

    def connection_lost(self, error: Exception | None) -> None:
        now = self._clock()
        self.closed = True
        exchange = self._exchange
        if exchange is None:
            return
        if self._mode == _UNTIL_CLOSE and error is None:
            self._end(exchange, now)
            return
        words = "before any answer" if self.silent else "in the middle of an answer"
        self._fail(
            fault_of(error) if error else Fault("closed_early", f"the server closed the connection {words}"), now
        )


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    try:
        if not digits[:1].isalnum() or b"_" in digits:
            raise ValueError  # noqa: TRY301 - what int() would take and HTTP does not
        return int(digits, 16)
    except ValueError:
        raise Fault("malformed", f"a chunk with the size {line[:20]!r}") from None


def parse_head(head: bytes) -> tuple[int, bytes, Headers]:
    """Status, version and headers, with names in small letters."""
    first, *lines = head.split(b"\r\n")
    parts = first.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit() or len(parts[1]) != 3:
        raise Fault("malformed", f"an answer that begins with {first[:40]!r}")
    headers: Headers = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise Fault("malformed", f"a header without a colon: {line[:40]!r}")
        headers[name.strip().lower()] = value.strip()
    return int(parts[1]), parts[0], headers


def _keeps(version: bytes, headers: Headers) -> bool:
    wanted = headers.get(b"connection", b"").lower()
    return b"keep-alive" in wanted if version == b"HTTP/1.0" else b"close" not in wanted

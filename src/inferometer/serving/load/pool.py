"""Connections to one server: kept open between requests, made when there is no free one."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.serving.load.apis import Address, Proxy, bracketed, proxy_headers
from inferometer.serving.load.faults import Fault, fault_of
from inferometer.serving.load.wire import MOST_HEAD, Connection, parse_head

if TYPE_CHECKING:
    from collections.abc import Callable


_TOGETHER = 64  # connections that are being made at once, beyond which a server's queue of them overflows


@frozen
class Security:
    """How a server's certificate is checked: by the system's authorities, by those in a file, or not at all."""

    authorities: Path | None = None
    insecure: bool = False


def tls_context(address: Address, security: Security) -> ssl.SSLContext | None:
    if address.scheme != "https":
        return None
    try:
        context = ssl.create_default_context(cafile=security.authorities)
    except (OSError, ssl.SSLError) as error:
        raise DomainError(f"{security.authorities} holds no certificates ({error}).") from None
    if security.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _Tunnel(asyncio.Protocol):
    """The words with a proxy until it lets a secure connection through: `opened` is done then, or has a Fault."""

    def __init__(self, address: Address, proxy: Proxy, opened: asyncio.Future[None]) -> None:
        self._address, self._proxy, self.opened = address, proxy, opened
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = f"{bracketed(self._address.host)}:{self._address.port}"
        lines = {"host": server, **proxy_headers(self._proxy)}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        transport.write(f"CONNECT {server} HTTP/1.1\r\n{head}\r\n".encode())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if end:
            try:
                status, _, _ = parse_head(head)
            except Fault as fault:
                self._fail(fault.message)
                return
            if 200 <= status < 300:
                if not self.opened.done():
                    self.opened.set_result(None)
            else:
                self._fail(f"it answers {status} to the wish for a tunnel")
        elif len(self._head) > MOST_HEAD:
            self._fail("its answer has no end")

    def connection_lost(self, error: Exception | None) -> None:
        self._fail("it closed the connection" if error is None else fault_of(error).message)

    def _fail(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(Fault("proxy", f"the proxy {self._proxy.shown}: {why}"))


class Pool:
    def __init__(
        self,
        address: Address,
        security: Security,
        *,
        connect_s: float = 10.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._address, self._connect_s, self.clock = address, connect_s, clock
        self._tls = tls_context(address, security)
        self._free: list[Connection] = []
        self._gate = asyncio.Semaphore(_TOGETHER)
        self.made = 0

    def take(self) -> Connection | None:
        """A connection that is free now; the one used last, whose window is open."""
        while self._free:
            connection = self._free.pop()
            if not connection.closed:
                return connection
        return None

    async def connect(self) -> Connection:
        """A new connection, or a Fault."""
        address = self._address
        try:
            async with self._gate, asyncio.timeout(self._connect_s):
                connection = await (self._direct() if address.proxy is None else self._by_way_of(address.proxy))
        except (OSError, ssl.SSLError, TimeoutError) as error:
            raise fault_of(error) from None
        self.made += 1
        connection.released = self._release
        return connection

    async def _direct(self) -> Connection:
        loop, address = asyncio.get_running_loop(), self._address
        name = address.host if self._tls is not None else None
        _, connection = await loop.create_connection(
            lambda: Connection(self.clock), address.host, address.port, ssl=self._tls, server_hostname=name
        )
        return connection

    async def _by_way_of(self, proxy: Proxy) -> Connection:
        """One to a proxy, which is asked for a tunnel where the server's is to be secure."""
        loop, connection = asyncio.get_running_loop(), Connection(self.clock)
        first = connection if self._tls is None else _Tunnel(self._address, proxy, loop.create_future())
        try:
            transport, _ = await loop.create_connection(lambda: first, proxy.host, proxy.port)
        except OSError as error:
            raise Fault("proxy", f"the proxy {proxy.shown}: {fault_of(error).message}") from None
        if isinstance(first, _Tunnel) and self._tls is not None:
            try:
                await first.opened
                secured = await loop.start_tls(transport, connection, self._tls, server_hostname=self._address.host)
            except BaseException:
                transport.abort()
                raise
            if secured is None:
                raise Fault("proxy", f"the proxy {proxy.shown} closed the connection")
            connection.connection_made(secured)
        return connection

    def _release(self, connection: Connection, usable: bool) -> None:
        if usable:
            self._free.append(connection)

    async def warm(self, count: int) -> None:
        """Open so many ahead, so that the first requests do not pay for it; one that fails is tried again later."""

        async def one() -> None:
            try:
                self._free.append(await self.connect())
            except Fault:
                return

        await asyncio.gather(*(one() for _ in range(max(0, count - len(self._free)))))

    def close(self) -> None:
        for connection in self._free:
            connection.abort()
        self._free.clear()

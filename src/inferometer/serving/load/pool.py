"""Connections to one server: kept open between requests, made when there is no free one."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.serving.load.faults import Fault, fault_of
from inferometer.serving.load.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.serving.load.apis import Address

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
        loop = asyncio.get_running_loop()
        address = self._address
        name = address.host if self._tls is not None else None
        try:
            async with self._gate, asyncio.timeout(self._connect_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(self.clock), address.host, address.port, ssl=self._tls, server_hostname=name
                )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            raise fault_of(error) from None
        self.made += 1
        connection.released = self._release
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

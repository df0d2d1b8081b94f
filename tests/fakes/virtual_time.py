"""An event loop whose time passes only when nothing is left to do at the present: no test waits, every figure is exact.

`VirtualPool` stands for the connections to a server: its transports hand a request to a script of `scripted_server` and
bring the answer's bytes back at the times the script says, through the real reader of HTTP.
"""

from __future__ import annotations

import asyncio
import json
import selectors
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fakes.scripted_server import Asked, Close, Reset, Send, Wait
from inferometer.serving.load.apis import parse_address
from inferometer.serving.load.pool import Pool, Security
from inferometer.serving.load.wire import Connection

if TYPE_CHECKING:
    from fakes.scripted_server import Script


class _Selector(selectors.BaseSelector):
    """Waiting moves the clock instead."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._map: dict = {}

    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("nothing will ever happen: a test would hang")
        self.now += max(timeout, 0.0)
        return []

    def register(self, fileobj, events, data=None):
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj):
        return self._map.pop(fileobj)

    def get_map(self):
        return self._map

    def get_key(self, fileobj):
        return self._map[fileobj]


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


class _Transport(asyncio.Transport):
    def __init__(self, pool: VirtualPool, connection: Connection) -> None:
        super().__init__()
        self._pool, self._connection, self._closing = pool, connection, False

    def write(self, data: bytes) -> None:
        _, _, body = data.partition(b"\r\n\r\n")
        pool = self._pool
        head = data.split(b" ", 2)
        asked = Asked(len(pool.asked), head[1].decode(), {}, json.loads(body or b"{}"), pool.clock())
        pool.asked.append(asked)
        asyncio.get_running_loop().create_task(self._answer(asked))

    async def _answer(self, asked: Asked) -> None:
        due = self._pool.clock()
        for what, value in self._pool.script(asked):
            if what == Wait:
                due += value
                await asyncio.sleep(due - self._pool.clock())
            if self._closing:
                return
            if what == Send:
                asked.sent.append(self._pool.clock())
                self._connection.data_received(value)
            elif what in {Reset, Close}:
                self._closing = True
                self._connection.connection_lost(ConnectionResetError() if what == Reset else None)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close


class VirtualPool(Pool):
    """`connect_s` is how long a connection takes."""

    def __init__(self, script: Script, *, connect_s: float = 0.0) -> None:
        super().__init__(parse_address("http://scripted"), Security(), clock=asyncio.get_running_loop().time)
        self.script, self.asked, self._takes_s = script, [], connect_s

    async def connect(self) -> Connection:
        await asyncio.sleep(self._takes_s)
        self.made += 1
        connection = Connection(self.clock)
        connection.connection_made(_Transport(self, connection))
        connection.released = self._release
        return connection


def virtually(test):
    """Run a coroutine in virtual time; in a thread, since a test of the browser has a loop in its own."""

    def run():
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(test)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()

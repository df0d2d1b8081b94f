"""A server that answers by a script: every latency is known, every fault comes when it is asked for.

`ScriptedServer` listens on a real socket, in a thread of its own. A script is a list of steps: wait so long, send these
bytes, reset, close. `speak` writes the steps of a good answer; the model's name in a request chooses another.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import ssl

Wait, Send, Reset, Close = "wait", "send", "reset", "close"
Step = tuple[str, Any]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Asked:
    """A request as the server saw it; `sent` is when each piece of the answer was written."""

    index: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float
    sent: list[float] = field(default_factory=list)


Script = Callable[[Asked], Iterator[Step]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str | None = None, **more: Any) -> bytes:
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    return (
        b"data: "
        + json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": choices, **more}).encode()
        + b"\n\n"
    )


def role() -> bytes:
    """What many servers send first, and which holds no token."""
    return b'data: {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}\n\n'


def ending(prompt: int, generated: int) -> bytes:
    usage = {"prompt_tokens": prompt, "completion_tokens": generated}
    stop = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}\n\n'
    return stop + event(usage=usage) + b"data: [DONE]\n\n"


def words_in(asked: Asked) -> int:
    body = asked.body
    text = body.get("prompt") or body.get("input") or " ".join(str(m["content"]) for m in body.get("messages", ()))
    return len(str(text).split())


def speak(asked: Asked, *, first_s: float, step_s: float, per_chunk: int = 1, added: int = 3) -> Iterator[Step]:
    """A good stream: a first token after `first_s`, then `per_chunk` tokens every `step_s`."""
    total = int(asked.body.get("max_tokens") or asked.body.get("max_completion_tokens") or 1)
    yield Send, HEAD + chunk(role())
    yield Wait, first_s
    yield Send, chunk(event("t"))
    left = total - 1
    while left > 0:
        held = min(per_chunk, left)
        yield Wait, step_s
        yield Send, chunk(event("t" * held))
        left -= held
    yield Send, chunk(ending(words_in(asked) + added, total)) + b"0\r\n\r\n"


def whole(asked: Asked, *, seconds: float = 0.0, added: int = 3) -> Iterator[Step]:
    """An answer in one piece."""
    total = int(asked.body.get("max_tokens", 0))
    usage = {"prompt_tokens": words_in(asked) + added, "completion_tokens": total}
    body = json.dumps({"choices": [{"message": {"content": "t" * total}, "text": "t" * total}], "usage": usage})
    yield Wait, seconds
    yield Send, plain(200, body.encode())


def plain(status: int, body: bytes = b"{}", *, headers: str = "") -> bytes:
    return (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}".encode()
        + f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )


class ScriptedServer:
    """`script` answers everything but the pages about the server itself (`pages`: path to JSON)."""

    def __init__(
        self, script: Script, *, pages: dict[str, Any] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._script, self._tls = script, tls
        self.pages = {"/v1/models": {"data": [{"id": "scripted", "owned_by": "tests"}]}, **(pages or {})}
        self.asked: list[Asked] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(240)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.run(self._listen())

    async def _listen(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0, ssl=self._tls, backlog=4096)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = first.split(" ")[1]
        if path in self.pages:
            page = self.pages[path]
            if callable(page):
                page = page(json.loads(body or b"{}"))
            data = page.encode() if isinstance(page, str) else json.dumps(page).encode()
            writer.write(plain(200, data))
            return True
        if path.startswith(("/metrics", "/tokenize", "/version", "/props", "/v1/models")):
            writer.write(plain(404))
            return True
        asked = Asked(len(self.asked), path, headers, json.loads(body or b"{}"), time.perf_counter())
        self.asked.append(asked)
        return await self._play(asked, writer)

    async def _play(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        due = asyncio.get_running_loop().time()
        for what, value in self._script(asked):
            if what == Wait:
                due += value  # from the last due time and not from now: delays do not add up
                await asyncio.sleep(due - asyncio.get_running_loop().time())
            elif what == Send:
                writer.write(value)
                asked.sent.append(time.perf_counter())
            elif what == Reset:
                sock: socket.socket = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return False
            else:
                await writer.drain()
                return False
        return True


class ScriptedProxy(ScriptedServer):
    """Lets through what it is asked for: a tunnel by CONNECT, or a request with its whole address."""

    def __init__(self, *, password: str | None = None) -> None:
        super().__init__(lambda _asked: [])
        self._password = password
        self.let_through: list[str] = []

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        origin: asyncio.StreamWriter | None = None
        back: asyncio.Task[None] | None = None
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, target, _ = head.split(" ", 2)
                if self._password and f"basic {self._password}" not in head.lower():
                    writer.write(plain(407, b"{}"))
                    return
                self.let_through.append(f"{method} {target}")
                place = target if method == "CONNECT" else target.removeprefix("http://").partition("/")[0]
                if origin is None:
                    answers, origin = await asyncio.open_connection("127.0.0.1", int(place.rpartition(":")[2]))
                    back = asyncio.create_task(_pipe(answers, writer))
                if method == "CONNECT":
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    await _pipe(reader, origin)
                    return
                length = re.search(r"content-length: (\d+)", head)
                origin.write(head.replace(f"http://{place}", "", 1).encode())
                origin.write(await reader.readexactly(int(length[1]) if length else 0))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, *((origin,) if origin else ())):
                end.close()
            if back is not None:
                back.cancel()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)

"""Single requests outside the load: what a server says of itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from inferometer.core.frozen import frozen
from inferometer.serving.load.apis import plain_request
from inferometer.serving.load.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.serving.load.apis import Address
    from inferometer.serving.load.pool import Pool
    from inferometer.serving.load.wire import Connection, Headers

_MOST_BODY = 16_000_000


@frozen
class Fetched:
    status: int
    server: str | None
    body: bytes

    @property
    def json(self) -> Any:
        """The JSON in it, or None."""
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError:
            return None


class _Collecting:
    def __init__(self, done: asyncio.Future[Fetched]) -> None:
        self._done, self._pieces, self._size = done, [], 0  # type: tuple[asyncio.Future[Fetched], list[bytes], int]
        self._status, self._server = 0, None  # type: tuple[int, str | None]

    def on_head(self, status: int, headers: Headers, now: float) -> None:  # noqa: ARG002 - the exchange's signature
        self._status = status
        self._server = headers.get(b"server", b"").decode(errors="replace") or None

    def on_body(self, data: bytes, now: float) -> None:  # noqa: ARG002 - as above
        self._size += len(data)
        if self._size > _MOST_BODY:
            raise Fault("malformed", "a page of more than 16 MB")
        self._pieces.append(data)

    def on_end(self, now: float) -> None:  # noqa: ARG002 - as above
        if not self._done.done():
            self._done.set_result(Fetched(status=self._status, server=self._server, body=b"".join(self._pieces)))

    def on_fault(self, fault: Fault, now: float) -> None:  # noqa: ARG002 - as above
        if not self._done.done():
            self._done.set_exception(fault)


async def fetch(  # noqa: PLR0913 - the parts of a request
    pool: Pool,
    address: Address,
    method: str,
    path: str,
    *,
    body: Any = None,
    headers: Sequence[tuple[str, str]] = (),
    timeout_s: float = 10.0,
) -> Fetched:
    """One answer in full, or a Fault. `body` is sent as JSON, or as it is where it is bytes."""
    data = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    request = plain_request(address, method, address.base + path, data, headers)
    kept = pool.take()
    if kept is not None:
        try:
            return await _answer(kept, request, path, timeout_s)
        except Fault as fault:
            if fault.kind not in {"closed_early", "reset"}:  # else it was closed while it was idle
                raise
    return await _answer(await pool.connect(), request, path, timeout_s)


async def _answer(connection: Connection, request: bytes, path: str, timeout_s: float) -> Fetched:
    done: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
    try:
        connection.send(request, _Collecting(done))
        async with asyncio.timeout(timeout_s):
            return await done
    except TimeoutError:
        raise Fault("timeout", f"no answer from {path} in {timeout_s:g} s") from None
    finally:
        if not done.done() or done.cancelled():
            connection.abort()

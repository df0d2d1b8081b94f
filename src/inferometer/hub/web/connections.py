"""Connections that do not keep others out: a request that does not arrive in time is not waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

if TYPE_CHECKING:
    import asyncio

    from inferometer.hub.web.guard.rules import Rules


def impatient_protocol(rules: Rules) -> type[H11Protocol]:
    """Uvicorn's protocol, which waits for the first byte of a request, and for the end of its headers, for ever.

    So does this one not: it waits `header_s`, and where too many wait, the one that has waited longest goes. Uvicorn
    itself closes a connection that is idle after a response.
    """
    waiting: dict[Any, None] = {}  # connections without a whole request, the longest waiting first

    class ImpatientProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle = cast("RequestResponseCycle | None", self.cycle)  # none before the first request
            if cycle is not None and not cycle.response_complete:
                self._stop_waiting()
            elif self._deadline is None:
                self._wait()

        def on_response_complete(self) -> None:
            self._stop_waiting()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait(self) -> None:
            if self.transport.is_closing():
                return
            self._deadline = self.loop.call_later(rules.header_s, self._give_up)
            waiting[self] = None
            if len(waiting) > rules.waiting:
                next(iter(waiting))._give_up()  # noqa: SLF001 - another one of this class

        def _stop_waiting(self) -> None:
            waiting.pop(self, None)
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _give_up(self) -> None:
            self._stop_waiting()
            self.transport.abort()

    return ImpatientProtocol

"""An event loop that wakes on time, and its limits on this machine."""

import asyncio
import gc
import select
import selectors
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


def new_loop() -> asyncio.AbstractEventLoop:
    """The loop of asyncio. On Linux its timers are made finer: epoll counts in milliseconds, select in microseconds."""
    if hasattr(selectors, "EpollSelector") and hasattr(select, "select"):
        return asyncio.SelectorEventLoop(_FineSelector())
    return asyncio.new_event_loop()


if hasattr(selectors, "EpollSelector"):

    class _FineSelector(selectors.EpollSelector):
        """Waits for the epoll descriptor itself with select(), whose time limit is in microseconds."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0:
                ready = super().select(0)
                if ready:
                    return ready
                with suppress(InterruptedError):
                    select.select([self.fileno()], [], [], min(timeout, 86_400.0))
                return super().select(0)
            return super().select(timeout)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without the garbage collector, whose pauses would count as latencies: it looks once before."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def raise_descriptor_limit(wanted: int) -> int | None:
    """Ask for room for that many connections; returns how many there are, None if unknown."""
    try:
        import resource  # noqa: PLC0415 - not on Windows, which has no such limit
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    aim: Any = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < aim:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
            soft = aim
    return None if soft == resource.RLIM_INFINITY else soft

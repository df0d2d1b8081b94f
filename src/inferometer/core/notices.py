"""Notices: one line for whoever waits. The library tells them; the command line, which has a screen, shows them.

In a program that uses the library nobody listens, and nothing is shown. What an engine tells in a measuring child is
shown as the progress of the measurement.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(message: str) -> None:
    show = listener.get()
    if show is not None:
        show(message)


@contextmanager
def told_to(show: Callable[[str], None]) -> Iterator[None]:
    token = listener.set(show)
    try:
        yield
    finally:
        listener.reset(token)

"""Notices: one line for whoever waits. The library tells them; the command line, which has a screen, shows them.

In a program that uses the library nobody listens, and nothing is shown.
"""

from collections.abc import Callable
from contextvars import ContextVar

listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def tell(message: str) -> None:
    show = listener.get()
    if show is not None:
        show(message)

"""Ctrl-C and SIGTERM: at whatever moment they come, a command ends, and leaves nothing half-written."""

import _thread
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TERMINATED = 128 + signal.SIGTERM  # what shells give for it


def interrupted_again(unraisable: Any) -> None:
    """Python drops an exception in a callback, such as a weak reference's; Ctrl-C is meant at that moment too."""
    if unraisable.exc_type is KeyboardInterrupt:
        _thread.interrupt_main()
    else:
        sys.__unraisablehook__(unraisable)


@contextmanager
def interrupted_by_sigterm() -> Iterator[Callable[[], bool]]:
    """SIGTERM would end the process at once, with runs and files half-written and children that go on.

    It interrupts instead, as Ctrl-C does, so that whatever Ctrl-C keeps is kept. Yields whether it came.
    """
    came = False

    def interrupt(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGTERM, before)

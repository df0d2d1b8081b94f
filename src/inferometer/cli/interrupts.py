"""Ctrl-C and SIGTERM: at whatever moment they come, a command ends, and leaves nothing half-written."""

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_TERMINATED = 128 + signal.SIGTERM  # what shells give for it


def interrupted_again(unraisable: Any) -> None:
    """Python drops an exception in a callback, such as a weak reference's; Ctrl-C is meant at that moment too."""
    if unraisable.exc_type is KeyboardInterrupt:
        _thread.interrupt_main()
    else:
        sys.__unraisablehook__(unraisable)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM would end the process at once, with files half-written and children that go on: it interrupts instead."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def interrupt(_: int, __: FrameType | None) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if not came:
            raise
        sys.stderr.write("inferometer: Ended by SIGTERM.\n")
        raise SystemExit(_TERMINATED) from None
    finally:
        signal.signal(signal.SIGTERM, before)

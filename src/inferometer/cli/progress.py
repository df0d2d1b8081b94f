"""The progress line on stderr, for every command that takes a while."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from inferometer.cli.encoding import write_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.measure.bench.loop import LoopProgress

T = TypeVar("T")
_WIDTH = 24
_REDRAW_S = 0.1  # faster than the eye follows
_SLOW_S = 1.0
_LOG_S = 20.0  # between two lines of a log
_WIPE = "\r\x1b[K"


@contextmanager
def progress_line(describe: Callable[[T], str]) -> Iterator[Callable[[T], None]]:
    """Yield a function that draws over the line before, which is wiped at the end.

    Where stderr is no terminal it writes a line now and then: minutes without a word look like a command that hangs.
    """
    if not sys.stderr.isatty():
        yield _lines(describe)
        return
    drawn, before = 0.0, ""

    def draw(progress: T) -> None:
        nonlocal drawn, before
        now, line = time.monotonic(), describe(progress)
        if now - drawn < _REDRAW_S and line.partition(" ")[0] == before.partition(" ")[0]:
            return
        drawn, before = now, line
        sys.stderr.write(f"{_WIPE}{line}")
        sys.stderr.flush()

    try:
        yield draw
    finally:
        sys.stderr.write(_WIPE)


def _lines(describe: Callable[[T], str]) -> Callable[[T], None]:
    written = time.monotonic()

    def write(progress: T) -> None:
        nonlocal written
        now = time.monotonic()
        if now - written >= _LOG_S:
            written = now
            write_message(f"{describe(progress)}\n")

    return write


@contextmanager
def said_if_slow(message: str, *, after_s: float = _SLOW_S) -> Iterator[None]:
    """Say on stderr what is being done, if it is not done soon: nobody should wonder whether anything happens."""
    timer = threading.Timer(after_s, _say_now, (message,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say_now(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def bar(share: float) -> str:
    full = round(_WIDTH * share)
    return f"{'█' * full}{'·' * (_WIDTH - full)} {share:4.0%}"


def step_text(step: LoopProgress) -> str:
    return f"{step.stage:<8} {bar(step.share)}  {step.done}" if step.done or step.share else f"{step.stage} …"

"""What is shown while a calibration runs: a bar, what is measured now, and the time that is left."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.calibrate.run import Progress

_BAR = 24
_REDRAW_S = 0.1
_WORDS = 44


def line_of(progress: Progress) -> str:
    """One line: how far, how long still, what now."""
    share = min(1.0, progress.spent_s / progress.budget_s) if progress.budget_s > 0 else 1.0
    full = round(_BAR * share)
    left = max(0.0, progress.budget_s - progress.spent_s)
    bar = "█" * full + "·" * (_BAR - full)
    return f"{bar} {share:4.0%}  {left:4.0f} s left  {progress.done} of {progress.of}  {progress.current[:_WORDS]}"


def drawn(
    stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Callable[[Progress], None] | None:
    """A line that is drawn over again; None where nobody would see it."""
    target = stream or sys.stderr
    if not target.isatty():
        return None
    last = float("-inf")

    def draw(progress: Progress) -> None:
        nonlocal last
        if clock() - last < _REDRAW_S:
            return
        last = clock()
        target.write(f"\r\x1b[K{line_of(progress)}")
        target.flush()

    return draw

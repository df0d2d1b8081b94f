"""What a running calibration shows: a bar, what it measures now, and the time left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.measure.bench.loop import LoopProgress

if TYPE_CHECKING:
    from inferometer.measure.calibrate.run import CalibrationProgress

_BAR = 24  # letters: bar, figures and a case's name fit into 120 columns
_WORDS = 72  # letters of a case's name


def line_of(progress: CalibrationProgress) -> str:
    """One line: how far it is, how long it will take, what it measures."""
    share = min(1.0, progress.spent_s / progress.budget_s) if progress.budget_s > 0 else 1.0
    full = round(_BAR * share)
    left = max(0.0, progress.budget_s - progress.spent_s)
    bar = "█" * full + "·" * (_BAR - full)
    return f"{bar} {share:4.0%}  {left:4.0f} s left  {progress.done} of {progress.of}  {progress.current[:_WORDS]}"


def step_of(progress: CalibrationProgress) -> LoopProgress:
    """The same for whoever watches from elsewhere: by time, since the budget is a time."""
    share = min(1.0, progress.spent_s / progress.budget_s) if progress.budget_s > 0 else 1.0
    return LoopProgress(stage="calibrate", done=progress.done, share=share)

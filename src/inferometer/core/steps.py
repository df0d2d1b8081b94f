"""A phase whose steps differ: the time of each, and of an op in each.

**Which steps are kept.** An op has a sample for each instrumented step of its phase, at most `KEPT_STEPS` of them: the
first, the last and others evenly between, so that a model of 1,000 ops keeps 40,000 numbers however long it generates.
`Phase.op_context` says how many tokens were in the cache before each.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from inferometer.core.statistics import median

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.profile import OpTime, Phase

KEPT_STEPS = 40


def kept_steps(count: int, most: int = KEPT_STEPS) -> tuple[int, ...]:
    """Which of so many steps are kept: all, or the first, the last and others evenly between."""
    if count <= most:
        return tuple(range(count))
    return tuple(round(index * (count - 1) / (most - 1)) for index in range(most))


def step_times(phase: Phase) -> dict[int, float]:
    """Seconds of the step at each context: the median over the generations, in the order of the contexts."""
    readings: dict[int, list[float]] = {}
    for context, seconds in zip(phase.context or (), phase.samples_s or (), strict=False):
        readings.setdefault(context, []).append(seconds)
    return {context: median(seconds) for context, seconds in sorted(readings.items())}


def sampled_steps(phase: Phase) -> tuple[float, ...] | None:
    """The clean time of each step that the ops have a sample of; None where the steps are not told apart."""
    if not phase.op_context:
        return None
    times = step_times(phase)
    if any(context not in times for context in phase.op_context):
        return None
    return tuple(times[context] for context in phase.op_context)


def pace(phase: Phase) -> float:
    """The phase's time over the mean of its sampled steps: it has more steps than its ops have samples."""
    steps = sampled_steps(phase)
    return 1.0 if not steps else phase.time_s * len(steps) / fsum(steps)


def summed_samples(ops: Iterable[OpTime]) -> tuple[float, ...] | None:
    """The time of several ops together in each step; None where one has no samples, or of other steps."""
    columns = [op.samples_s for op in ops]
    if not columns or any(column is None or len(column) != len(columns[0] or ()) for column in columns):
        return None
    return tuple(fsum(step) for step in zip(*(column or () for column in columns), strict=True))

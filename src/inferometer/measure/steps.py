"""Each instrumented step by itself: the ops' times in it, at the pace of the clean run.

A kernel's readings of one step are compared only with the other kernels' of that step, so what slowed the machine for a
moment is not taken for one op's time. What a step took without instruments is known where steps differ by their
context (decode); where they are all alike, a step is as long as the phase, times how it compared with the others.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING

from inferometer.core.steps import sampled_steps
from inferometer.measure.correct import capped, steady_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.profile import OpTime, Phase


def with_steps(phase: Phase, ops: Sequence[OpTime], walls_s: Sequence[float]) -> tuple[OpTime, ...]:
    """The ops with their corrected times in each step, and with the mean of these as their time.

    Over the ops each step adds up to that step's share of what they all took; over the steps each op adds up to its
    time, at the pace of the phase: for decode is longer than the steps that were instrumented.
    """
    count = len(walls_s)
    inside_s = fsum(op.time_s for op in ops)
    known = any(op.samples_s is not None and len(op.samples_s) == count for op in ops)
    columns = [_readings(op, count) for op in ops]
    totals = [fsum(step) for step in zip(*columns, strict=True)]
    if not known or inside_s <= 0 or not all(total > 0 for total in totals):
        return tuple(replace(op, samples_s=None) for op in ops)
    steps = sampled_steps(phase) or _like_each_other(phase, walls_s)
    share = inside_s / phase.time_s
    factors = [share * seconds / total for seconds, total in zip(steps, totals, strict=True)]
    pace = phase.time_s / fsum(steps)
    stepped = []
    for op, readings in zip(ops, columns, strict=True):
        samples = tuple(seconds * factor for seconds, factor in zip(readings, factors, strict=True))
        stepped.append(replace(op, time_s=pace * fsum(samples), samples_s=samples))
    return tuple(stepped)


def _readings(op: OpTime, count: int) -> tuple[float, ...]:
    """The op's readings with its correction: its timers' cost is taken out. An op without readings is always alike."""
    raw = op.samples_s
    if raw is None or len(raw) != count:
        return (op.time_s,) * count
    mean_s = steady_mean(raw)
    if mean_s <= 0:
        return (op.time_s,) * count
    return tuple(reading * op.time_s / mean_s for reading in capped(raw))


def _like_each_other(phase: Phase, walls_s: Sequence[float]) -> tuple[float, ...]:
    """Equal steps: each as far from the phase's time as its wall is from the mean wall, interruptions capped."""
    walls = capped(walls_s)
    mean_s = fsum(walls) / len(walls)
    return tuple(phase.time_s * wall / mean_s if mean_s > 0 else phase.time_s for wall in walls)

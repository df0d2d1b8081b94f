"""Each instrumented step by itself: the ops' times in it, at the pace of the clean run.

A kernel's readings of one step are compared only with the other kernels' of that step, so what slowed the machine for a
moment is not taken for one op's time. What a step took without instruments is known where steps differ by their
context (decode); where they are all alike, a step is as long as the phase, times how it compared with the others.

What a device timed by its own clock stays as it is. Only the waits before its kernels are made to fit the step.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING

from inferometer.core.steps import sampled_steps
from inferometer.measure.run.correct import capped, steady_mean

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
    readings = [_readings(op, count) for op in ops]
    on_device = [_on_device(op, column) for op, column in zip(ops, readings, strict=True)]
    totals = [fsum(step) for step in zip(*readings, strict=True)]
    if not known or inside_s <= 0 or not all(total > 0 for total in totals):
        return tuple(replace(op, samples_s=None) for op in ops)
    steps = sampled_steps(phase) or _like_each_other(phase, walls_s)
    share = inside_s / phase.time_s
    fixed = [fsum(step) for step in zip(*on_device, strict=True)]
    factors = [_factors(share * step_s, *each) for step_s, *each in zip(steps, fixed, totals, strict=True)]
    pace = phase.time_s / fsum(steps)
    stepped = []
    for op, column, device in zip(ops, readings, on_device, strict=True):
        samples = tuple(
            kept * at_work + stretched * (reading - at_work)
            for reading, at_work, (kept, stretched) in zip(column, device, factors, strict=True)
        )
        stepped.append(replace(op, time_s=pace * fsum(samples), samples_s=samples))
    return tuple(stepped)


def _on_device(op: OpTime, readings: Sequence[float]) -> tuple[float, ...]:
    """The part of each reading that the device worked, by its own clock."""
    share = min(op.device_s / op.time_s, 1.0) if op.device_s and op.time_s > 0 else 0.0
    return tuple(share * reading for reading in readings)


def _factors(wanted_s: float, fixed_s: float, total_s: float) -> tuple[float, float]:
    """What a device's own times and all others are multiplied by, so that the step comes to what it took."""
    waits_s = total_s - fixed_s
    if wanted_s < fixed_s or waits_s <= 0:
        return wanted_s / total_s, wanted_s / total_s
    return 1.0, (wanted_s - fixed_s) / waits_s


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

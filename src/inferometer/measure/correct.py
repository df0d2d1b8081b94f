"""From what an engine's timers said to times that add up to the clean run.

Timers cost time, part of it inside the very kernels they time: on small models the raw sum is far above the true
latency. So the cost is taken out of each kernel, what still exceeds the clean run is scaled down to it, and what is
left of the clean run is `unattributed`: the engine's own work between kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from inferometer.runtimes.base import Kernel

__all__ = ["Corrected", "correct"]

_LEAST = 0.1  # of what the timer said: a kernel shorter than the timer's own cost still took time
_FAR = 3.0  # a reading this many times the median was interrupted
_TICK_S = 2e-6  # … unless it is only the clock's coarse step: timers count whole microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """`times_s` stand in the kernels' order; they and `unattributed_s` add up to the clean run exactly."""

    times_s: tuple[float, ...]
    unattributed_s: float
    raw_s: float  # what the timers' readings add up to
    cost_s: float  # taken out of each kernel on the host's clock
    scale: float  # what the corrected times were multiplied with, at most 1


def correct(
    kernels: Sequence[Kernel],
    *,
    clean_s: float,
    walls_s: Sequence[float] = (),
    paired_s: Sequence[float] = (),
    cost_s: float | None = None,
) -> Corrected:
    """Times of one step. `walls_s` are whole instrumented steps: no timer can have cost more than they grew by.

    `paired_s` are clean steps taken in turns with them. Where those took longer or shorter than the clean run, the
    machine was slower or faster meanwhile, and the kernels' times are brought to its pace.
    """
    if not clean_s > 0:
        raise DomainError(f"The clean run must take more than 0 s, and took {clean_s!r} s.")
    pace = clean_s / median(paired_s) if paired_s else 1.0
    raw = [pace * steady_mean(kernel.device_s or kernel.samples_s) for kernel in kernels]
    on_host = sum(1 for kernel in kernels if kernel.device_s is None)
    cost = _cost(cost_s, clean_s, [pace * wall for wall in walls_s], on_host)
    taken = [
        seconds if kernel.device_s is not None else max(seconds - cost, _LEAST * seconds)
        for kernel, seconds in zip(kernels, raw, strict=True)
    ]
    total = sum(taken)
    scale = min(1.0, clean_s / total) if total > 0 else 1.0
    times = tuple(seconds * scale for seconds in taken)
    return Corrected(
        times_s=times,
        unattributed_s=max(clean_s - sum(times), 0.0),
        raw_s=sum(raw),
        cost_s=cost,
        scale=scale,
    )


def _cost(estimated_s: float | None, clean_s: float, walls_s: Sequence[float], kernels: int) -> float:
    if estimated_s is None or kernels == 0:
        return 0.0
    if not walls_s:
        return estimated_s
    return min(estimated_s, max(median(walls_s) - clean_s, 0.0) / kernels)


def steady_mean(samples: Iterable[float]) -> float:
    """The mean, with readings that were interrupted cut to the usual: a median would round to the timer's tick."""
    readings = list(samples)
    if not readings:
        return 0.0
    most = _FAR * median(readings) + _TICK_S
    return fmean(min(reading, most) for reading in readings)

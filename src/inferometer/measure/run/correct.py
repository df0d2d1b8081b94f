"""From an engine's timers to kernel times that add up to the clean run.

Timers cost time, part of it inside the very kernels they time: on small models the raw sum is far above the true
latency. So that cost is taken out of each kernel, and the kernels are scaled to their share of the clean run. The rest
is `unattributed`: the engine's own work between kernels.

If an engine is known to do nothing but run one kernel after another, all of a clean step but its start and end is in
kernels. Then the step itself shows what timing a kernel costs in this model. An estimate made elsewhere misses part of
it: timers push the model's own data out of the caches.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Kernel

_LEAST = 0.1  # of a reading: a kernel shorter than the timer's own cost still took time
_DUST = 1e-12  # relative error of adding floating-point numbers
_LITTLE = 0.2  # of a step: timers that take less do not blur the kernels' share of it
_APART = 2.0  # a cost found in place is at most this factor from its estimate
_FAR = 3.0  # a reading this many times the median was interrupted
_BEGIN_S = 1e-6  # a device needs about this long between two kernels that are both ready
_TICK_S = 2e-6  # … unless it is only the clock's coarse step: timers count whole microseconds


@frozen
class Corrected:
    """`times_s` are in the kernels' order; with `unattributed_s` they add up to the clean run exactly."""

    times_s: tuple[float, ...]
    unattributed_s: float
    raw_s: float  # the sum of the timers' readings, at the clean run's pace
    cost_s: float  # taken out of each kernel on the host's clock
    scale: float  # factor that made the corrected times fit the clean run


def correct(  # noqa: PLR0913 - what was read, and what is known of the instruments
    kernels: Sequence[Kernel],
    *,
    clean_s: float,
    walls_s: Sequence[float] = (),
    paired_s: Sequence[float] = (),
    cost_s: float | None = None,
    idle_s: float | None = None,
) -> Corrected:
    """Times of one step. `walls_s` are whole instrumented steps, `paired_s` clean steps taken in turns with them.

    `cost_s` is the estimated cost of the engine's timers inside a kernel's time, `idle_s` the time of a step outside
    all kernels, if known.

    Timers cannot have cost more than the steps grew by. The kernels' share of a step is read from each instrumented
    step itself: what slowed the machine meanwhile slowed both, so a busy machine does not show as unattributed.
    """
    if not clean_s > 0:
        raise DomainError(f"The clean run must take more than 0 s, and took {clean_s!r} s.")
    if kernels and all(kernel.device_s is not None for kernel in kernels):
        return _on_device_clock(kernels, clean_s=clean_s, walls_s=walls_s)
    pace = clean_s / median(paired_s) if paired_s else 1.0
    raw = [steady_mean(kernel.device_s or kernel.samples_s) for kernel in kernels]
    grown = _grown(walls_s, paired_s or (clean_s,))
    host = sum(1 for kernel in kernels if kernel.device_s is None)
    cost = _cost(cost_s, grown, host)
    if idle_s is not None and host == len(kernels) > 0:
        inside_s = steady_mean(paired_s or (clean_s,)) - idle_s
        cost = _closing(sum(raw) - inside_s, host, cost)
    taken = [
        seconds if kernel.device_s is not None else _less(seconds, cost)
        for kernel, seconds in zip(kernels, raw, strict=True)
    ]
    total = pace * sum(taken)
    # An idle time that leaves kernels next to nothing was measured while the machine was busier than in this step.
    if idle_s is not None and clean_s - idle_s < _LEAST * min(total, clean_s):
        idle_s = None
    share = _share(kernels, walls_s, paired_s, cost) if idle_s is None else 1 - idle_s / clean_s
    inside = min(total, clean_s) if share is None else share * clean_s
    scale = inside / total if total > 0 else 1.0
    times = tuple(pace * seconds * scale for seconds in taken)
    return Corrected(
        times_s=times,
        unattributed_s=rest_of(clean_s, sum(times)),
        raw_s=pace * sum(raw),
        cost_s=cost,
        scale=scale,
    )


def _on_device_clock(kernels: Sequence[Kernel], *, clean_s: float, walls_s: Sequence[float]) -> Corrected:
    """A device's own clock is not disturbed by timers, but the host is, and the device waits for it longer.

    So kernels keep their times, each with the moment that the device takes to begin it. The waits for the host share
    what the clean run leaves, as long as they were.
    """
    waited = [steady_mean(kernel.waited_s or ()) for kernel in kernels]
    worked = [
        steady_mean(kernel.device_s or ()) + min(wait, _BEGIN_S) for kernel, wait in zip(kernels, waited, strict=True)
    ]
    hosted = [max(0.0, wait - _BEGIN_S) for wait in waited]
    busy_s = sum(worked)
    scale = min(1.0, clean_s / busy_s) if busy_s > 0 else 1.0
    idle_s = max(fmean(walls_s) - busy_s if walls_s else 0.0, sum(hosted))
    share = min(1.0, max(0.0, clean_s - busy_s) / idle_s) if idle_s > 0 else 0.0
    times = tuple(scale * work + share * wait for work, wait in zip(worked, hosted, strict=True))
    return Corrected(
        times_s=times, unattributed_s=rest_of(clean_s, sum(times)), raw_s=busy_s, cost_s=0.0, scale=scale
    )  # fmt: skip


def _less(seconds: float, cost: float) -> float:
    return max(seconds - cost, _LEAST * seconds)


def _grown(walls_s: Sequence[float], clean_s: Sequence[float]) -> float | None:
    """How much longer the timers made a step: the smaller of two estimates, since noise only enlarges them."""
    if not walls_s or not clean_s:
        return None
    by_median, by_least = median(walls_s) - median(clean_s), min(walls_s) - min(clean_s)
    return max(min(by_median, by_least), 0.0)


def rest_of(clean_s: float, inside_s: float) -> float:
    """The rest of the clean run, rounding errors aside."""
    left_s = clean_s - inside_s
    return left_s if left_s > _DUST * clean_s else 0.0


def _closing(excess_s: float, kernels: int, estimated_s: float) -> float:
    """What timing a kernel cost in these very steps, kept near the estimate: a long step's noise exceeds it by far."""
    return min(max(excess_s / kernels, estimated_s / _APART), estimated_s * _APART)


def _cost(estimated_s: float | None, grown_s: float | None, kernels: int) -> float:
    """The engine's estimate, at most what the steps grew by."""
    if estimated_s is None or kernels == 0:
        return 0.0
    return estimated_s if grown_s is None else min(estimated_s, grown_s / kernels)


def _share(kernels: Sequence[Kernel], walls_s: Sequence[float], paired_s: Sequence[float], cost: float) -> float | None:
    """The share of a step that is in kernels; None if steps and readings do not match.

    If the timers hardly lengthened a step, each step shows its own share, whatever slowed it. If they did, the quickest
    step is compared with the quickest clean one.
    """
    columns = [kernel.device_s or kernel.samples_s for kernel in kernels]
    if not walls_s or any(len(column) != len(walls_s) for column in columns):
        return None
    costs = [0.0 if kernel.device_s is not None else cost for kernel in kernels]
    inside = [
        sum(_less(seconds, own) for seconds, own in zip(readings, costs, strict=True))
        for readings in zip(*columns, strict=True)
    ]
    grown = _grown(walls_s, paired_s) or 0.0
    if paired_s and grown > _LITTLE * median(walls_s):
        return min(min(inside) / min(paired_s), 1.0)
    if not paired_s:
        return None
    return median(part / max(wall - grown, part, _TICK_S) for part, wall in zip(inside, walls_s, strict=True))


def steady_mean(samples: Iterable[float]) -> float:
    """The mean, with interrupted readings capped: a median would be a whole number of the timer's ticks."""
    readings = capped(samples)
    return fmean(readings) if readings else 0.0


def capped(samples: Iterable[float]) -> tuple[float, ...]:
    """The readings, with interrupted ones cut to a few times the median."""
    readings = tuple(samples)
    if not readings:
        return ()
    most = _FAR * median(readings) + _TICK_S
    return tuple(min(reading, most) for reading in readings)

"""The reference job: a fraction of a second of the same arithmetic and the same copying, before and after each lease.

It says nothing about the model, only whether the device is the one that it was. It runs on the CPU through numpy, in
the agent's own process, so that it costs little; a GPU or NPU that is slowed by heat shows here as far as it shares
power and cooling with the CPU.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.measure.bench.guard import Guard

_SIDE, _COPY_BYTES = 320, 16_000_000
_SECONDS, _LEAST = 0.4, 15
LIMIT = 0.05  # a reference that moved by more marks the result, which is measured again
COOL_DOWN_S = 60.0
_LOOK_S = 3.0
_WAITED_FOR = ("temperature-high", "cpu-throttled", "gpu-throttled", "cpu-hog", "cpu-busy", "cpu-clock-capped")


def measure_reference(
    *, seconds: float = _SECONDS, clock: Callable[[], float] = time.perf_counter
) -> float:  # fmt: skip
    """The median time of a round of it, in seconds."""
    import numpy as np  # noqa: PLC0415 - only a device that measures needs it

    factor = np.random.default_rng(0).random((_SIDE, _SIDE), dtype=np.float32)
    source = np.ones(_COPY_BYTES // 8)
    target = np.empty_like(source)
    times: list[float] = []
    began = clock()
    while len(times) < _LEAST or clock() - began < seconds:
        start = clock()
        for _ in range(4):
            factor @ factor
        np.copyto(target, source)
        times.append(clock() - start)
    return median(times[2:])


def moved(before_s: float, after_s: float) -> bool:
    return abs(after_s / before_s - 1) > LIMIT


def cool_down(
    guard: Guard,
    tell: Callable[[str], None],
    *,
    most_s: float = COOL_DOWN_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Wait until the device is neither hot, slowed nor busy, but not for ever; gives how long it took."""
    began, told = clock(), False
    while True:
        reasons = [each for each in guard.before().disturbances if each.code in _WAITED_FOR]
        waited = clock() - began
        if not reasons:
            return waited if told else 0.0
        if waited >= most_s:
            tell(f"The device is not quiet after {waited:.0f} s ({reasons[0].found}): it is measured as it is.")
            return waited
        if not told:
            tell(f"Waiting until the device is quiet: {reasons[0].found}.")
        told = True
        sleep(_LOOK_S)

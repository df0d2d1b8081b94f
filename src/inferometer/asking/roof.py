"""The roof of this machine, measured in a second: how fast it multiplies matrices and how fast it copies memory.

It is no calibration: it says what the machine can do through numpy, and nothing of any runtime. It gives a machine that
no catalog row describes peaks to hold a measurement against.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.device import Device, Memory, Sourced

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.profile import Profile

__all__ = ["copy_bytes_per_s", "product_flop_per_s", "raised", "with_ceilings"]

_SIDE = 1536  # large enough to be bound by arithmetic, small enough to be done many times a second
_COPY_BYTES = 256_000_000  # beyond any cache
_SHARE_S = 0.4
_TELLING = 0.01  # of a phase: an op that takes less is read too coarsely to lift a roof


def with_ceilings(
    device: Device, *, clock: Callable[[], float] = time.perf_counter, share_s: float = _SHARE_S
) -> Device:
    """The device with a peak of f32 and the bandwidth of its main memory, where it has none."""
    date = datetime.now(tz=UTC).date().isoformat()

    def measured(value: float, what: str) -> Sourced:
        return Sourced(value=value, origin="measured", source=f"numpy {np.__version__}: {what}", date=date)

    peaks, memories = dict(device.peaks), device.memories
    if not peaks:
        best = product_flop_per_s(clock=clock, seconds=share_s)
        peaks["f32"] = measured(best, f"the best of several products of {_SIDE} × {_SIDE} matrices")
    if memories and memories[0].bandwidth_bytes_per_s is None:
        rate = copy_bytes_per_s(clock=clock, seconds=share_s)
        words = f"the best of several copies of {_COPY_BYTES // 1_000_000} MB, read and written bytes"
        memories = (_with_bandwidth(memories[0], measured(rate, words)), *memories[1:])
    return replace(device, peaks=peaks, memories=memories)


def raised(device: Device, profile: Profile) -> Device:
    """The device with its measured peak at least as high as what the profile's ops reached.

    An engine may multiply faster than numpy, and numpy may have had the machine in a slow moment: what was reached can
    be reached, so nothing is quicker than its floor.
    """
    peak = device.peaks.get("f32")
    if peak is None or peak.origin != "measured":
        return device
    reached = max(
        (
            op.flops / op.time_s
            for phase in profile.phases
            for op in phase.ops
            if op.flops and op.time_s > _TELLING * phase.time_s
        ),
        default=0.0,
    )
    if reached <= float(peak):
        return device
    found = replace(peak, value=reached, source=f"{profile.runtime or 'the engine'}: the best of the ops it ran")
    return replace(device, peaks={**device.peaks, "f32": found})


def _with_bandwidth(memory: Memory, rate: Sourced) -> Memory:
    return replace(memory, bandwidth_bytes_per_s=rate)


def product_flop_per_s(*, clock: Callable[[], float], seconds: float, side: int = _SIDE) -> float:
    """The best rate of a product of two f32 matrices, with as many threads as numpy uses."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((side, side), np.float32) for _ in range(2))
    out = np.empty_like(a)
    return 2 * side**3 / _best(lambda: np.matmul(a, b, out=out), clock, seconds)


def copy_bytes_per_s(*, clock: Callable[[], float], seconds: float, nbytes: int = _COPY_BYTES) -> float:
    """The best rate of a copy; what is read and what is written both count."""
    source = np.ones(nbytes // 8)
    target = np.zeros_like(source)
    return 2 * source.nbytes / _best(lambda: np.copyto(target, source), clock, seconds)


def _best(work: Callable[[], object], clock: Callable[[], float], seconds: float) -> float:
    """The shortest of the runs that fit into the time, three at least; the first only warms up."""
    work()
    shortest, begun, runs = float("inf"), clock(), 0
    while runs < 3 or clock() - begun < seconds:
        start = clock()
        work()
        shortest = min(shortest, clock() - start)
        runs += 1
    return shortest

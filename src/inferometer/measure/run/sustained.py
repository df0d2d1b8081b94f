"""Speed that lasts: what a step takes at first and after a while, and what clock and temperature did meanwhile.

A machine that warms up slows down, in steps or by and by. Where that happens is found in the times themselves, as a
change of level, and no temperature or clock is taken for a sign of it: they are beside it, to say why.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.profile import Sustained
from inferometer.measure.bench.levels import change_points

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from inferometer.core.profile import Profile
    from inferometer.measure.run.watch import Resident

_WINDOWS = 120  # of a run, however long it is: a quarter of a minute each in half an hour
_LEAST = 5  # windows of a level
_SLOWER = 0.02  # of a time: below it nobody speaks of throttling
_KEPT = 5_000  # samples of a phase that stay in the profile, evenly taken
_SENSED = {"clock_hz": 1.0, "temperature_c": 1e-3}  # what a watch's whole numbers are worth


def sensor_readers() -> Mapping[str, Callable[[], int | None]]:
    """What can be read here without rights, in whole numbers: the clock in Hz, the hottest place in 0.001 °C."""
    import psutil  # noqa: PLC0415 - only where something runs

    def clock_hz() -> int | None:
        found = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
        return round(found.current * 1e6) if found is not None and found.current else None

    def temperature() -> int | None:
        chips = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
        known = [place.current for places in chips.values() for place in places if place.current]
        return round(1e3 * max(known)) if known else None

    readers = {"clock_hz": clock_hz, "temperature_c": temperature}
    return {name: read for name, read in readers.items() if read() is not None}


def with_sustained(profile: Profile, span_s: float, sensed: Mapping[str, Resident]) -> Profile:
    """The profile with what became of its steady phase, whose samples are then thinned; as it is if there are few."""
    phase = profile.steady
    if phase is None or not phase.samples_s or len(phase.samples_s) < 2 * _LEAST:
        return profile
    found = sustained(phase.samples_s, span_s)
    end = sensed_at(sensed, found)
    every = -(-len(phase.samples_s) // _KEPT)
    thinned = replace(phase, samples_s=phase.samples_s[::every])
    return replace(
        profile,
        phases=tuple(thinned if each is phase else each for each in profile.phases),
        sustained=replace(found, clock_hz=end.get("clock_hz", ()), temperature_c=end.get("temperature_c", ())),
    )


def sustained(samples_s: Sequence[float], span_s: float) -> Sustained:
    """Medians of windows of equal time, and the levels that they went through."""
    samples = np.asarray(samples_s, float)
    ends = np.cumsum(samples)
    at = ends * (span_s / ends[-1])  # what lies between two steps is spread over all of them
    count = min(_WINDOWS, len(samples) // 2)
    window = np.minimum((at / span_s * count).astype(int), count - 1)
    filled = np.unique(window)
    middles = [float(np.median(samples[window == each])) for each in filled]
    times = [float((each + 1) * span_s / count) for each in filled]
    changes = change_points(middles, threshold=_SLOWER, least=_LEAST) or _drift(middles)
    first, last = (0, *changes)[0], (0, *changes)[-1]
    first_end = changes[0] if changes else len(middles)
    return Sustained(
        span_s=span_s,
        at_s=tuple(times),
        latency_s=tuple(middles),
        first_s=median(middles[first:first_end]),
        steady_s=median(middles[last:]),
        steady_after_s=0.0 if not last else times[last - 1],
        changes_s=tuple(times[change - 1] for change in changes),
    )


def _drift(middles: Sequence[float]) -> tuple[int, ...]:
    """Of times that went by and by from one level to another: where the first was left, and where the last began.

    Between the two no place stands out, so that no change of level is found there.
    """
    part = max(_LEAST, len(middles) // 10)
    begun, ended = middles[:part], middles[-part:]
    first, last = median(begun), median(ended)
    apart = min(ended) > max(begun) or max(ended) < min(begun)
    if len(middles) < 3 * part or not apart or abs(last / first - 1) <= _SLOWER:
        return ()
    left, reached = (abs(np.asarray(middles) / level - 1) > _SLOWER for level in (first, last))
    return tuple(sorted({max(1, int(left.argmax())), len(middles) - int(reached[::-1].argmax())}))


def sensed_at(sensed: Mapping[str, Resident], found: Sustained) -> dict[str, tuple[float, float]]:
    """The clock and the temperature at first and in the steady state, where they were read."""
    ends: dict[str, tuple[float, float]] = {}
    for name, series in sensed.items():
        values = [value * _SENSED[name] for value in series.nbytes]
        late = [value for at, value in zip(series.at_s, values, strict=True) if at >= found.steady_after_s]
        if values and late:
            ends[name] = values[0], median(late)
    return ends

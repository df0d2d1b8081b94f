"""Speed that lasts: what a step takes at first and after a while, and what clock, temperature and power did meanwhile.

A machine that warms up slows down, in steps or by and by. Where that happens is found in the times themselves, as a
change of level, and no temperature or clock is taken for a sign of it: they are beside it, to say why. Temperature and
power together say what the cooling takes away, for predictions of other models (`cooling_fit`).
"""

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from inferometer.core.errors import DomainError, FormatError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile, SensedSeries, Sustained
from inferometer.core.units import format_quantity
from inferometer.known.machine.detect import LocalMachine
from inferometer.measure.bench.verdict import change_points
from inferometer.measure.run.raw import Resident
from inferometer.measure.spans.energy import EnergyMeter, energy_meter
from inferometer.measure.spans.sensors import Channel

_WINDOWS = 120  # of a run, however long it is: a quarter of a minute each in half an hour
_LEAST = 5  # windows of a level
_SLOWER = 0.02  # of a time: below it nobody speaks of throttling
_KEPT = 5_000  # samples of a phase that stay in the profile, evenly taken
_SENSED = {"clock_hz": 1.0, "temperature_c": 1e-3, "power_w": 1e-3}  # what a watch's whole numbers are worth
_COOL_EVERY_S, _COOL_SPAN_S, _COOL_C = 5.0, 60.0, 1.0  # cool: it fell by less than this in so long
_RECORD = {  # columns of a board's record, and what one of their unit is in ours
    "time_s": ("time", 1.0), "latency_s": ("latency", 1.0), "latency_ms": ("latency", 1e-3),
    "clock_hz": ("clock_hz", 1.0), "clock_mhz": ("clock_hz", 1e6), "temperature_c": ("temperature_c", 1.0),
    "power_w": ("power_w", 1.0), "power_mw": ("power_w", 1e-3),
}  # fmt: skip


@frozen
class CoolingFit:
    """What a machine draws at work and at rest, what its cooling takes away for good, and how fast it warms.

    `resistance_c_per_w` is the rise of its temperature for each watt. `throttled`: the watts are what it drew after it
    had slowed down; otherwise they follow from the limit of its temperature.
    """

    power_w: float
    idle_w: float
    cooling_w: float
    resistance_c_per_w: float
    warms_s: float | None
    throttled: bool


def sensor_readers() -> Mapping[str, Callable[[], int | None]]:
    """What can be read here, in whole numbers: the clock in Hz, the hottest place in 0.001 °C, the power in mW."""

    def clock_hz() -> int | None:
        found = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
        return round(found.current * 1e6) if found is not None and found.current else None

    def temperature() -> int | None:
        chips = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
        known = [place.current for places in chips.values() for place in places if place.current]
        return round(1e3 * max(known)) if known else None

    readers = {
        "clock_hz": clock_hz,
        "temperature_c": temperature,
        "power_w": power_reader(energy_meter(LocalMachine())),
    }
    for read in readers.values():
        read()  # a counter of energy says how much it moved since it was read before
    return {name: read for name, read in readers.items() if read() is not None}


def power_reader(meter: EnergyMeter, clock: Callable[[], float] = time.monotonic) -> Callable[[], int | None]:
    """The milliwatts of the channels that count, all together: as they say, or by how far a counter of energy moved."""
    before: dict[str, tuple[float, float]] = {}

    def of_counter(channel: Channel, value: float) -> float | None:
        now, (then, last) = clock(), before.get(channel.name, (None, 0.0))
        before[channel.name] = now, value
        if then is None or now <= then:
            return None
        moved = value - last
        return (moved + (channel.range_j or 0.0) if moved < 0 else moved) / (now - then)

    def read() -> int | None:
        watts: list[float | None] = []
        for channel in meter.channels:
            value = channel.read()
            if value is not None and channel.quantity == "energy":
                value = of_counter(channel, value)
            watts.append(value)
        known = [each for each in watts if each is not None]
        return round(1e3 * sum(known)) if known and len(known) == len(watts) else None

    return read


def hottest_limit() -> float | None:
    """The lowest temperature at which a sensor of this machine says that it slows down; None without one."""
    chips = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    stated = [place.high or place.critical for places in chips.values() for place in places]
    return min((limit for limit in stated if limit and limit > 0), default=None)


def cool_down(
    most_s: float,
    read: Callable[[], int | None] | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> str:
    """Wait until the machine no longer becomes cooler, at most so long; the sentence says what became of it."""
    first = None if read is None else read()
    if read is None or first is None:
        raise DomainError(
            "No temperature can be read here, so nobody can tell when the machine has cooled down.",
            remedy="Leave --cool-down out, and let the machine rest before.",
        )
    begun, seen = clock(), [(0.0, first * _SENSED["temperature_c"])]
    while (now := clock() - begun) < most_s:
        past = [heat for at, heat in seen if at <= now - _COOL_SPAN_S]
        if past and past[-1] - seen[-1][1] < _COOL_C:
            break
        sleep(min(_COOL_EVERY_S, most_s - now))
        value = read()
        seen.append((clock() - begun, seen[-1][1] if value is None else value * _SENSED["temperature_c"]))
    (_, hot), (waited, cool) = seen[0], seen[-1]
    still = "" if waited < most_s else ", and was still cooling"
    return f"It rested for {format_quantity(waited, 's')} before: {hot:.0f} to {cool:.0f} °C{still}."


def with_sustained(profile: Profile, span_s: float, sensed: Mapping[str, Resident]) -> Profile:
    """The profile with what became of its steady phase, whose samples are then thinned; as it is if there are few."""
    phase = profile.steady
    if phase is None or not phase.samples_s or len(phase.samples_s) < 2 * _LEAST:
        return profile
    found = sustained(phase.samples_s, span_s)
    end: dict[str, Any] = dict(sensed_at(sensed, found))
    over_time = (
        SensedSeries(name=name, at_s=series.at_s, values=tuple(value * _SENSED[name] for value in series.nbytes))
        for name, series in sensed.items()
    )
    every = -(-len(phase.samples_s) // _KEPT)
    thinned = replace(phase, samples_s=phase.samples_s[::every])
    return replace(
        profile,
        phases=tuple(thinned if each is phase else each for each in profile.phases),
        summary=replace(profile.summary, sustained_s=found.steady_s),
        sustained=replace(found, **end, limit_c=hottest_limit() if sensed else None, sensed=tuple(over_time)),
    )


def sustained(samples_s: Sequence[float], span_s: float) -> Sustained:
    """Medians of windows of equal time, and the levels that they went through."""
    ends = np.cumsum(np.asarray(samples_s, float))
    return _by_time(samples_s, ends * (span_s / ends[-1]), span_s)  # what lies between two steps is spread over all


def _by_time(samples_s: Sequence[float], at_s: Sequence[float], span_s: float) -> Sustained:
    samples, at = np.asarray(samples_s, float), np.asarray(at_s, float)
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
    """The clock, the temperature and the power at first and in the steady state, where they were read."""
    ends: dict[str, tuple[float, float]] = {}
    for name, series in sensed.items():
        values = [value * _SENSED[name] for value in series.nbytes]
        late = [value for at, value in zip(series.at_s, values, strict=True) if at >= found.steady_after_s]
        if values and late:
            ends[name] = values[0], median(late)
    return ends


def read_record(path: Path) -> tuple[Sustained, float | None]:
    """What a board's record of a long run shows, and what it drew at rest: rows without a latency are of before.

    A record is a CSV: time_s, latency_s or latency_ms, and of clock_hz, clock_mhz, temperature_c, power_w, power_mw
    what the board could read.
    """
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.") from None
    names = [name.strip().lower() for name in lines[0]] if lines else []
    unit = {_RECORD[name][0]: (at, _RECORD[name][1]) for at, name in enumerate(names) if name in _RECORD}
    if not {"time", "latency"} <= unit.keys():
        raise FormatError(
            f"{path} is no record of a long run: its columns are {', '.join(names)[:200] or 'none'}.",
            remedy=f"It needs time_s and latency_s, and may have {', '.join(list(_RECORD)[3:])}.",
        )
    rows: list[dict[str, float]] = []
    for line in lines[1:]:
        row = {}
        for name, (at, factor) in unit.items():
            with suppress(ValueError, IndexError):
                row[name] = float(line[at]) * factor
        if np.isfinite(list(row.values())).all() and "time" in row:
            rows.append(row)
    work = [row for row in rows if row.get("latency", 0.0) > 0]
    if len(work) < 2 * _LEAST or any(after["time"] < before["time"] for before, after in pairwise(work)):
        raise FormatError(
            f"{path} has {len(work)} rows with a time and a latency, and {2 * _LEAST} in the order of time are needed."
        )
    begun, span_s = work[0]["time"], work[-1]["time"] - work[0]["time"]
    found = _by_time([row["latency"] for row in work], [row["time"] - begun for row in work], span_s)
    sensed = tuple(
        SensedSeries(name=name, at_s=tuple(row["time"] - begun for row in work if name in row),
                     values=tuple(row[name] for row in work if name in row))
        for name in _SENSED if any(name in row for row in work)
    )  # fmt: skip
    rest = [row for row in rows if row["time"] < begun and "power_w" in row]
    ends: dict[str, Any] = {each.name: _ends(each, found) for each in sensed}
    return replace(found, **ends, sensed=sensed), median(row["power_w"] for row in rest) if rest else None


def _ends(series: SensedSeries, found: Sustained) -> tuple[float, float]:
    late = [value for at, value in zip(series.at_s, series.values, strict=True) if at >= found.steady_after_s]
    return series.values[0], median(late or series.values[-1:])


def cooling_fit(found: Sustained, *, idle_w: float | None = None, limit_c: float | None = None) -> CoolingFit:
    """What the cooling takes away, of a long run in which temperature and power were read.

    A machine warms as one body: T(t) = T(0) + rise · (1 − e^(−t / warms)), and rise = resistance · (power − idle).
    One that slowed down draws what is taken away. Of one that did not, it is what would bring it to its limit.
    """
    series = {each.name: each for each in found.sensed}
    if not {"temperature_c", "power_w"} <= series.keys():
        missing = " and ".join(sorted({"temperature_c", "power_w"} - series.keys()))
        raise DomainError(
            f"The run has no {missing} over time, so what its cooling takes away is not known.",
            remedy="Run `inferometer profile MODEL --sustained 30min` where both can be read; docs/measuring.md.",
        )
    idle, throttled = idle_w or 0.0, found.slower > _SLOWER
    until = found.changes_s[0] if throttled else found.span_s
    watts = [value for at, value in zip(series["power_w"].at_s, series["power_w"].values, strict=True) if at <= until]
    drawn = median(watts or series["power_w"].values)
    heat = [(at, value) for at, value in zip(series["temperature_c"].at_s, series["temperature_c"].values, strict=True)
            if at <= until]  # fmt: skip
    rise, warms = _warming(heat)
    resistance = rise / max(drawn - idle, 1e-9)
    if throttled:
        cooling = found.power_w[1]
    else:
        limit = limit_c or found.limit_c
        if limit is None:
            raise DomainError(
                f"The run never slowed down at {drawn:.3g} W, and nobody says at which temperature it would.",
                remedy="Give it, as in --limit 85, or run something that draws more.",
            )
        cooling = idle + (limit - heat[0][1]) / resistance if resistance > 0 else drawn
    return CoolingFit(power_w=drawn, idle_w=idle, cooling_w=cooling, resistance_c_per_w=resistance, warms_s=warms,
                      throttled=throttled)  # fmt: skip


def _warming(heat: Sequence[tuple[float, float]]) -> tuple[float, float | None]:
    """The rise that a machine was on the way to, and its time constant: least squares over a grid of such."""
    at, values = (np.asarray(column, float) for column in zip(*heat, strict=True))
    above = values - values[0]
    if len(heat) < _LEAST or above.max() < _COOL_C:
        return float(above.max()), None
    constants = np.geomspace(max(at[-1] / 100, 1e-3), 3 * at[-1], 200)  # slower than that, the run was too short
    shapes = 1 - np.exp(-at[None, :] / constants[:, None])
    rises = shapes @ above / (shapes**2).sum(axis=1)
    best = int((((rises[:, None] * shapes) - above) ** 2).sum(axis=1).argmin())
    return float(rises[best]), float(constants[best])

"""Power, clocks, temperature and utilisation as series of readings, and the energy of spans derived from them."""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.known.formulas.energy import energy_by_integration
from inferometer.measure.spans.nest import Floats, Ints

LEAST_INTERVALS = 2  # what ran for less than this many readings has no energy of its own

Quantity = Literal["power", "energy", "temperature", "clock", "use"]


@frozen
class Series:
    """Readings of one sensor: watts, joules since some start, °C, hertz, or a share.

    `counted` series add up to the machine's energy without overlap. A counter of joules begins again at `range_j`.
    """

    name: str
    quantity: Quantity
    times_ns: tuple[int, ...]
    values: tuple[float, ...]
    counted: bool = False
    range_j: float | None = None


@frozen
class Power:
    """What the sensors read. `missing` names each kind that cannot be measured here, and why."""

    series: tuple[Series, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    interval_s: float = 0.0


@frozen
class EnergyUse:
    """One series over the whole recording: joules and watts of a power series, the range of any other."""

    name: str
    quantity: str
    mean: float
    min: float
    max: float
    energy_j: float | None = None


def energy_curve(series: Series) -> tuple[Ints, Floats]:
    """Joules used since the first reading, at the time of each reading.

    A counter says it outright; where it went back to zero, it had reached its range. Between readings of power a
    straight line is taken: half the sum of the two, times the time between them.
    """
    times = np.asarray(series.times_ns, dtype=np.int64)
    values = np.asarray(series.values)
    if len(values) < 2:
        return times, np.zeros(len(values))
    if series.quantity == "energy":
        steps = np.diff(values)
        steps = np.where(steps < 0, steps + (series.range_j or 0.0), steps)
        steps = np.maximum(steps, 0.0)  # a counter that was reset, its range unknown: nothing is known of that interval
    else:
        pairs = np.stack((values[:-1], values[1:]), axis=-1)
        seconds = np.diff(times) * 1e-9
        held = np.maximum(seconds, 1e-12)
        steps = np.asarray(energy_by_integration(powers=pairs, interval=held))
    return times, np.concatenate(([0.0], np.cumsum(steps)))


def energy_of_spans(power: Power, starts: Ints, ends: Ints) -> Floats | None:
    """Joules of each span, of all counted series together; None where nothing was read, NaN where not all of a span."""
    curves = [energy_curve(series) for series in power.series if series.counted and len(series.values) >= 2]
    if not curves:
        return None
    total = np.zeros(len(starts))
    for times, joules in curves:
        within = (starts >= times[0]) & (ends <= times[-1])
        used = np.interp(ends, times, joules) - np.interp(starts, times, joules)
        total += np.where(within, used, np.nan)
    return total


def uses(power: Power) -> list[EnergyUse]:
    """Each series in a line."""
    return [_use(series) for series in power.series if len(series.values)]


def _use(series: Series) -> EnergyUse:
    values = np.asarray(series.values)
    times, joules = energy_curve(series) if series.quantity in {"energy", "power"} else (None, None)
    energy = None if joules is None or len(joules) < 2 else float(joules[-1])
    if series.quantity == "energy" and times is not None and joules is not None and len(joules) > 1:
        values = np.diff(joules) / np.maximum(np.diff(times) * 1e-9, 1e-12)  # a counter's watts, reading by reading
    return EnergyUse(
        name=series.name,
        quantity=series.quantity,
        mean=float(values.mean()),
        min=float(values.min()),
        max=float(values.max()),
        energy_j=energy,
    )

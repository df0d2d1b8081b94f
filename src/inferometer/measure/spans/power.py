"""Power, clocks, temperature and utilisation as series of readings, and the energy of spans derived from them."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.known.formulas.energy import energy_by_integration
from inferometer.known.machine.detect.machine import LocalMachine, Machine
from inferometer.measure.spans.nest import Floats, Ints
from inferometer.measure.spans.record import Clock
from inferometer.measure.spans.sensors import Sensors, find_sensors

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


# The thread that reads the sensors while spans are recorded.

_READINGS_AT_MOST = 200_000  # of each channel; then every second one goes, and half as many are taken


class Sampler:
    """Reads every channel each `interval_s`: all that the machine has, or those of the given sensors.

    `wait` sleeps and says whether to stop: tests pass their own.
    """

    def __init__(
        self,
        machine: Machine | None,
        clock: Clock,
        *,
        interval_s: float,
        wait: Callable[[float], bool] | None = None,
        sensors: Sensors | None = None,
    ) -> None:
        self._sensors = sensors or find_sensors(machine or LocalMachine())
        self._clock, self.interval_s = clock, interval_s
        self._times: list[int] = []
        self._values: list[list[float | None]] = [[] for _ in self._sensors.channels]
        self._stop = threading.Event()
        self._wait = wait or self._stop.wait
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        if self._sensors.channels and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="inferometer sensors", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Take one last reading, so that the end of the run is covered."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            self.sample()
        self._sensors.close()

    def _run(self) -> None:
        self.sample()
        while not self._wait(self.interval_s):
            self.sample()

    def sample(self) -> None:
        """One reading of each channel, all at the time the first was read."""
        now = self._clock()
        values = [None if channel.log else channel.read() for channel in self._sensors.channels]
        with self._lock:
            self._times.append(now)
            for column, value in zip(self._values, values, strict=True):
                column.append(value)
            if len(self._times) > _READINGS_AT_MOST:
                self._thin()

    def _thin(self) -> None:
        self._times[:] = self._times[::2]
        for column in self._values:
            column[:] = column[::2]
        self.interval_s *= 2

    def power(self) -> Power:
        """What has been read so far. A reading that failed once is left out of its series."""
        with self._lock:
            series = []
            for channel, column in zip(self._sensors.channels, self._values, strict=True):
                known = [(time, value) for time, value in zip(self._times, column, strict=True) if value is not None]
                if channel.log is not None and self._times:
                    known = channel.log(self._times[0], self._times[-1])
                series.append(
                    Series(
                        name=channel.name,
                        quantity=channel.quantity,
                        times_ns=tuple(time for time, _ in known),
                        values=tuple(value for _, value in known),
                        counted=channel.counted,
                        range_j=channel.range_j,
                    )
                )
        return Power(series=tuple(series), missing=dict(self._sensors.missing), interval_s=self.interval_s)

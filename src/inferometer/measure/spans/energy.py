"""The energy of work: joules that a counter advanced by, or power that was read while the work ran.

A sensor changes its value now and then, RAPL each millisecond, an NVIDIA GPU ten times a second, a battery every few
seconds. Work that is shorter than some of these updates has no energy that could be measured: it is repeated until it
is long enough, or it gets none.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.profile import EnergyFacts, EnergySensor
from inferometer.core.settings import value_of
from inferometer.core.units import format_quantity
from inferometer.known.machine.detect import LocalMachine, Machine
from inferometer.measure.spans.power import Power, Series, energy_of_spans
from inferometer.measure.spans.record import Clock
from inferometer.measure.spans.sensors import Channel, Sensors, find_sensors

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


T = TypeVar("T")
LEAST_UPDATES = 10  # of the slowest sensor: its value may be one update old at either end of the work
LEAST_S = 0.25  # below this what else the machine does at the moment shows too much
EVERY_S = 0.1  # between two readings while work runs: a tenth of a millisecond each, a thousandth of the time
_REST_S = 1.0
_REST_UPDATES = 3
_ENERGY_KINDS = frozenset({"rapl", "amdsmi", "hwmon", "ina3221", "nvml", "powermetrics", "pmic", "battery"})
_BUSY = 1.25  # an accelerator that draws this much more than at rest was used


@frozen
class EnergyWindow:
    """The readings from just before some work to just after it."""

    power: Power
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) * 1e-9

    def joules(self, start_ns: int | None = None, end_ns: int | None = None) -> float | None:
        """Of all of it, or of the part between two moments. None where a sensor did not answer all the time."""
        start = self.start_ns if start_ns is None else start_ns
        end = self.end_ns if end_ns is None else end_ns
        used = energy_of_spans(self.power, np.asarray([start]), np.asarray([end]))
        return None if used is None or np.isnan(used[0]) else float(used[0])


@frozen
class EnergyStretch:
    """Joules and seconds of `count` equal pieces of work."""

    joules: float
    seconds: float
    count: int

    @property
    def each_j(self) -> float:
        return self.joules / self.count

    def __add__(self, other: "EnergyStretch") -> "EnergyStretch":
        return EnergyStretch(
            joules=self.joules + other.joules, seconds=self.seconds + other.seconds, count=self.count + other.count
        )


@frozen
class EnergyMeter:
    """The sensors that count, and what they read at rest. Without any channel it measures nothing, and says why."""

    sensors: Sensors
    channels: tuple[Channel, ...]
    idle: EnergyWindow | None = None
    clock_ns: Callable[[], int] = time.perf_counter_ns
    sleep: Callable[[float], object] = time.sleep
    every_s: float | None = EVERY_S  # None: nothing is read while the work runs

    @property
    def least_s(self) -> float:
        """How long work must be to be measured."""
        return max([LEAST_S, *(LEAST_UPDATES * channel.update_s for channel in self.channels)])

    @property
    def least_part_s(self) -> float:
        """How long a part of the work must be, whose ends fall between two readings."""
        return max(self.least_s, LEAST_UPDATES * (self.every_s or 0.0))

    @property
    def candidates(self) -> tuple[Channel, ...]:
        """Every channel that may count, whatever the work will use."""
        return tuple(channel for channel in self.sensors.channels if channel.counted or channel.whole)

    def at_rest(self) -> "EnergyMeter":
        """The meter, after it has read what the machine draws while nothing is asked of it."""
        everything = replace(self, channels=self.candidates)
        if not everything.channels:
            return self
        # A battery's gauge averages by itself: for the draw at rest nobody waits many of its updates. A meter's log
        # has only what it wrote meanwhile.
        named = max((_REST_UPDATES * channel.update_s for channel in everything.channels if channel.named), default=0.0)
        _, window = everything.over(lambda: self.sleep(min(self.least_s, max(_REST_S, named))))
        return replace(self, idle=window)

    def for_unit(self, unit: str) -> "EnergyMeter":
        """The meter for work on a unit (`cpu`, `gpu:1`): sensors of other accelerators do not count."""
        used = f"{unit}:0" if unit in {"gpu", "npu"} else unit
        return replace(self, channels=_chosen(self.sensors, lambda channel: _measures(channel, used)))

    def for_busy(self, window: EnergyWindow) -> "EnergyMeter":
        """The meter for work that went on in the window, wherever it ran: accelerators that were busy count."""
        rest = {} if self.idle is None else _watts(self.idle)
        busy = {name for name, watts in _watts(window).items() if watts > _BUSY * rest.get(name, watts)}
        return replace(self, channels=_chosen(self.sensors, lambda channel: channel.name in busy))

    def over(self, work: Callable[[], T]) -> tuple[T, EnergyWindow]:
        """Do the work, and read the sensors before it, after it and now and then meanwhile."""
        quiet = Sensors(channels=self.channels, missing={}, close=lambda: None)
        sampler = Sampler(None, self.clock_ns, interval_s=self.every_s or 0.0, sensors=quiet)
        sampler.sample()
        if self.every_s is not None:
            sampler.start()
        start = self.clock_ns()
        try:
            done = work()
        finally:
            end = self.clock_ns()
            sampler.stop()
        sampler.sample()
        return done, EnergyWindow(power=sampler.power(), start_ns=start, end_ns=end)

    def counted(self, window: EnergyWindow) -> EnergyWindow:
        """The window as read by the sensors that count."""
        names = {(channel.name, channel.quantity) for channel in self.channels}
        series = tuple(series for series in window.power.series if (series.name, series.quantity) in names)
        return replace(window, power=replace(window.power, series=series))

    def repeated(self, once: Callable[[], int], *, seconds: float | None = None) -> EnergyStretch | None:
        """Do a piece of work over and over, for as long as the sensors need. It returns how many pieces it did.

        None where it did none, or where a sensor failed meanwhile.
        """
        wanted_ns = (seconds or self.least_s) * 1e9

        def all_of_it() -> int:
            begun, done = self.clock_ns(), 0
            while (more := once()) > 0:
                done += more
                if self.clock_ns() - begun >= wanted_ns:
                    break
            return done

        count, window = self.over(all_of_it)
        joules = window.joules()
        return (
            None if joules is None or not count else EnergyStretch(joules=joules, seconds=window.seconds, count=count)
        )

    def idle_w(self) -> float | None:
        """What the sensors that count read at rest."""
        joules = None if self.idle is None else self.counted(self.idle).joules()
        return None if joules is None or self.idle is None else joules / self.idle.seconds

    def too_slow(self, budget_s: float) -> str | None:
        """Why the sensors cannot measure in so many seconds. A meter that the user named is waited for."""
        if self.least_s <= budget_s or any(channel.named for channel in self.channels):
            return None
        slowest = max(self.channels, key=lambda channel: channel.update_s)
        every, least, spent = (format_quantity(value, "s") for value in (slowest.update_s, self.least_s, budget_s))
        return f"{slowest.name} changes only every {every}: it needs {least} of runs, and there were {spent}"

    @property
    def trouble(self) -> str:
        """Why there are no joules of work that was measured."""
        return next(filter(None, (channel.trouble() for channel in self.channels)), "a sensor stopped answering")

    def facts(self, stretches: Mapping[str, EnergyStretch], reason: str | None = None) -> EnergyFacts:
        """What a profile says of how its energy was measured."""
        if not self.channels:
            return EnergyFacts(reason=self.sensors.why_none)
        return EnergyFacts(
            sensors=tuple(
                EnergySensor(name=channel.name, covers=channel.covers, update_s=channel.update_s)
                for channel in self.channels
            ),
            idle_w=self.idle_w(),
            window_s={phase: stretch.seconds for phase, stretch in stretches.items()},
            counts={phase: stretch.count for phase, stretch in stretches.items()},
            reason=reason,
        )

    def close(self) -> None:
        self.sensors.close()


NO_ENERGY = EnergyMeter(sensors=Sensors(channels=(), missing={}, close=lambda: None), channels=())


def energy_meter(machine: Machine, *, unit: str | None = None) -> EnergyMeter:
    """The meter of a machine; without a unit it reads every sensor of energy, for one to be chosen later.

    A meter that the settings name measures all of the machine, and is the only one then.
    """
    if named := value_of("INFEROMETER_POWER_METER"):
        from inferometer.measure.spans.power_meter import named_meter  # noqa: PLC0415 - sockets, for who has one

        sensors = named_meter(named)
        return EnergyMeter(sensors=sensors, channels=sensors.channels, every_s=sensors.channels[0].update_s)
    sensors = find_sensors(machine, kinds=_ENERGY_KINDS)
    meter = EnergyMeter(sensors=sensors, channels=_chosen(sensors, lambda _: True))
    return meter if unit is None else meter.for_unit(unit)


def _chosen(sensors: Sensors, accelerator: Callable[[Channel], bool]) -> tuple[Channel, ...]:
    """What adds up to the energy without overlap. A battery measures all of it: it counts where nothing else does."""
    counted = [channel for channel in sensors.channels if channel.counted]
    chosen = [channel for channel in counted if channel.unit is None or accelerator(channel)]
    if not chosen:
        chosen = [replace(channel, counted=True) for channel in sensors.channels if channel.whole]
    return tuple(chosen)


def _measures(channel: Channel, used: str) -> bool:
    return channel.unit in {used, used.partition(":")[0]}


def _watts(window: EnergyWindow) -> dict[str, float]:
    """The mean power of each series."""
    watts = {}
    for series in window.power.series:
        joules = replace(window, power=replace(window.power, series=(series,))).joules()
        if joules is not None and window.seconds > 0:
            watts[series.name] = joules / window.seconds
    return watts

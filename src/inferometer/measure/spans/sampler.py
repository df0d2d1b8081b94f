"""The thread that reads the sensors while spans are recorded."""

import threading
from collections.abc import Callable

from inferometer.known.machine.detect.machine import LocalMachine, Machine
from inferometer.measure.spans.power import Power, Series
from inferometer.measure.spans.record import Clock
from inferometer.measure.spans.sensors import Sensors, find_sensors

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

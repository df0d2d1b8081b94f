"""What a measuring child reported, unprocessed, and its memory seen from outside.

If the child dies, everything it reported before is kept.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import psutil

from inferometer.core.frozen import frozen
from inferometer.core.profile import Environment
from inferometer.engines.base import Event, Kernel, Opened
from inferometer.measure.bench.loop import LoopSamples
from inferometer.measure.run.energy import CaseEnergy
from inferometer.measure.run.order import TextOrder

# The memory of a measuring child over time, read from outside, so that it costs the child nothing.

MOST = 200  # points of a series, however long it is


@frozen
class Resident:
    """Resident bytes of the process, at seconds since the steady phase began."""

    at_s: tuple[float, ...] = ()
    nbytes: tuple[int, ...] = ()


@dataclass(slots=True)
class MemoryWatch:
    """Reads at most every `step_s`. A full series drops every other point, and the step doubles."""

    read: Callable[[], int | None]
    clock: Callable[[], float] = time.monotonic
    step_s: float = 0.02
    most: int = MOST
    _begun: float | None = None
    _ended: bool = False
    _points: list[tuple[float, int]] = field(default_factory=list)

    def begin(self) -> None:
        if self._begun is None:
            self._begun = self.clock()
            self._keep(0.0)

    def end(self) -> None:
        self.look()
        self._ended = True

    def look(self) -> None:
        if self._begun is None or self._ended:
            return
        now = self.clock() - self._begun
        if not self._points or now - self._points[-1][0] >= self.step_s:
            self._keep(now)

    def _keep(self, now: float) -> None:
        held = self.read()
        if held is None:
            return
        if len(self._points) == self.most:
            del self._points[1::2]
            self.step_s *= 2
        self._points.append((now, held))

    @property
    def series(self) -> Resident:
        return Resident(at_s=tuple(at for at, _ in self._points), nbytes=tuple(held for _, held in self._points))


def resident_of(pid: int) -> Callable[[], int | None]:
    """Reads the process's resident bytes; None once it is gone."""

    def read() -> int | None:
        try:
            return int(process.memory_info().rss) if process is not None else None
        except psutil.Error:
            return None

    try:
        process = psutil.Process(pid)
    except psutil.Error:
        process = None
    return read


Ended = Literal["done", "refused", "failed", "crashed", "hung", "too-big", "stopped"]
Tell = Callable[[str, Any], None]  # sends the parent a field of Raw: its name and value


@frozen
class Shape:
    """The instrumented steps of one phase: the kernels, and how long each whole step took with the timers on.

    `paired_s` are clean steps taken in turns with them: they show how fast the machine was meanwhile. Of a language
    model's steps both are the part in which the engine ran the layers, if it says so and the host's clock timed them.
    `cost_s` is what the engine's timers add to each kernel's time, `idle_s` the time of a step outside all kernels.
    `context` are the tokens in the cache before each step, and `order` the length, for a language model.
    """

    phase: str
    kernels: tuple[Kernel, ...]
    walls_s: tuple[float, ...]
    paired_s: tuple[float, ...] = ()
    cost_s: float | None = None
    idle_s: float | None = None
    context: tuple[int, ...] = ()
    order: TextOrder | None = None


@frozen
class MemoryReadings:
    """Memory of the process before the model was opened, after, and at its peak; and the accelerator's peak."""

    before_bytes: int | None = None
    opened_bytes: int | None = None
    peak_bytes: int | None = None
    device_peak_bytes: int | None = None

    def of_model(self, held_bytes: int | None) -> int | None:
        """Memory of the model: what the process holds, less what it held before the model was opened."""
        if held_bytes is None or self.before_bytes is None:
            return None
        return max(held_bytes - self.before_bytes, 0)


@frozen
class Generation:
    """One answer of a language model. `first`: the first after loading. `disturbed`: what disturbed it, if anything."""

    order: TextOrder
    events: tuple[Event, ...]
    first: bool = False
    tokenise_s: float | None = None
    detokenise_s: float | None = None
    disturbed: tuple[str, ...] = ()


@frozen
class StepCounters:
    """The processor's counts in one step, by name; or why there are none."""

    counts: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None


@frozen
class Raw:
    ended: Ended
    opened: Opened | None = None
    first_s: float | None = None
    clean: LoopSamples | None = None
    launch_s: float | None = None  # of a step of arrays: the host starts a device's work; None: it does not tell
    host_call_s: float | None = None  # of the host of a device that is no CPU: known/machine/health/host_calls.py
    host_module_s: float | None = None  # what that host took between the runs to call a small module of the engine's
    reported: tuple[tuple[float, ...], ...] = ()  # of the clean run, as it went: all there is if it ended early
    generations: tuple[Generation, ...] = ()
    shapes: tuple[Shape, ...] = ()
    memory: MemoryReadings = field(default_factory=MemoryReadings)
    resident: Resident = field(default_factory=Resident)
    sensed: Mapping[str, Resident] = field(default_factory=dict)  # other readings beside a long run, by name
    environment: Environment | None = None
    energies: tuple[CaseEnergy, ...] = ()
    counters: StepCounters | None = None  # None: nobody looked for counters
    kept: Mapping[str, str] = field(default_factory=dict)  # files the child wrote, by what is in them
    error: str | None = None
    remedy: str | None = None
    log: str = ""  # what the engine printed

    @property
    def partial_s(self) -> tuple[float, ...]:
        return tuple(chain.from_iterable(self.reported))


def memory_over_time(raw: Raw) -> dict[float, int]:
    """Bytes of the model in the host's memory, by seconds since its first step; its peak is of the same bytes."""
    readings = zip(raw.resident.at_s, raw.resident.nbytes, strict=True)
    return {at_s: held for at_s, nbytes in readings if (held := raw.memory.of_model(nbytes)) is not None}


def series_of(raw: Raw) -> dict[str, dict[int, float]]:
    """What is stored over time beside a profile, by name and millisecond."""
    points = {round(at_s * 1e3): float(size) for at_s, size in memory_over_time(raw).items()}
    on_device = raw.memory.device_peak_bytes is not None  # then the peak is not of these bytes
    return {"host_memory_bytes" if on_device else "memory_bytes": points} if points else {}


def event_seconds(event: Event) -> float:
    return (event.end_ns - event.start_ns) * 1e-9

"""Memory at both ends of a span and its peak in between: of the process, of Python's objects, of a CUDA device.

A high-water mark is one number for the whole process. To have one for each span, it is read and put back whenever a
span begins or ends, and its value goes to every span that was open: nested spans and threads each get their own
peak. Where the system does not let it be put back, a peak is known only for spans that raised it.
"""

import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from inferometer.known.machine.detect.fields import kib
from inferometer.measure.spans.record import Open


class MeterLevel(NamedTuple):
    current: int
    peak: int | None  # since it was last put back, or ever
    reserved: int | None = None  # held for the process, in use or not


class Gauge(Protocol):
    """A memory that can be read. `columns` begin with `prefix`."""

    prefix: str

    def read(self) -> MeterLevel: ...

    def restart(self) -> bool:
        """Put the high-water mark back to now; False where that is not allowed."""


class _Standing:
    """An open span's memory: what it began with, and the most seen since."""

    __slots__ = ("begin", "mark", "peak")

    def __init__(self, begin: int, mark: int | None) -> None:
        self.begin, self.peak, self.mark = begin, begin, mark


class PeakMeter:
    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._lock = threading.Lock()
        self._open: list[_Standing] = []
        self._restarts = gauge.restart()

    def begin(self, span: Open) -> _Standing:  # noqa: ARG002 - the meters' signature
        with self._lock:
            level = self._look()
            standing = _Standing(level.current, level.peak)
            self._open.append(standing)
            return standing

    def end(self, span: Open, state: Any) -> dict[str, float]:  # noqa: ARG002 - the meters' signature
        with self._lock:
            level = self._look()
            self._open.remove(state)
        prefix = self._gauge.prefix
        readings: dict[str, float] = {f"{prefix}_delta_bytes": level.current - state.begin}
        if self._restarts:
            readings[f"{prefix}_peak_bytes"] = state.peak
        elif level.peak is not None and state.mark is not None and level.peak > state.mark:
            readings[f"{prefix}_peak_bytes"] = level.peak  # the span raised it: the mark is its own
        if level.reserved is not None:
            readings[f"{prefix}_reserved_bytes"] = level.reserved
        return readings

    def _look(self) -> MeterLevel:
        level = self._gauge.read()
        highest = level.current if level.peak is None else max(level.current, level.peak)
        for standing in self._open:
            standing.peak = max(standing.peak, highest)
        if self._restarts and highest > level.current:  # else it stands where it would be put
            self._gauge.restart()
        return level


class ProcessMemory:
    """Resident memory as Linux counts it: VmRSS and VmHWM; writing 5 to clear_refs puts the mark back."""

    prefix = "rss"

    def __init__(self, folder: Path = Path("/proc/self")) -> None:
        self._status, self._clear = folder / "status", folder / "clear_refs"

    def read(self) -> MeterLevel:
        current = peak = None
        for line in self._status.read_text("ascii", "replace").splitlines():
            if line.startswith("VmRSS:"):
                current = kib(line[6:])
            elif line.startswith("VmHWM:"):
                peak = kib(line[6:])
        return MeterLevel(current or 0, peak)

    def restart(self) -> bool:
        try:
            self._clear.write_text("5")
        except OSError:
            return False
        return True


class PsutilMemory:
    """Resident memory on other systems. Their high-water mark stays for the life of the process."""

    prefix = "rss"

    def __init__(self) -> None:
        import psutil  # noqa: PLC0415 - only where /proc is not there

        self._process = psutil.Process()

    def read(self) -> MeterLevel:
        info = self._process.memory_info()
        return MeterLevel(int(info.rss), _highest(info))

    def restart(self) -> bool:
        return False


def _highest(info: Any) -> int | None:
    if (peak := getattr(info, "peak_wset", None)) is not None:
        return int(peak)
    try:
        import resource  # noqa: PLC0415 - not there on Windows
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else most * 1024)  # macOS counts bytes, others KiB


class PythonMemory:
    """What Python's allocator handed out. Tracing every allocation slows Python code several times over."""

    prefix = "python"

    def __init__(self) -> None:
        import tracemalloc  # noqa: PLC0415 - asked for by few

        self._tracer = tracemalloc
        self._started = not tracemalloc.is_tracing()
        if self._started:
            tracemalloc.start()

    def read(self) -> MeterLevel:
        current, peak = self._tracer.get_traced_memory()
        return MeterLevel(current, peak)

    def restart(self) -> bool:
        if self._tracer.is_tracing():
            self._tracer.reset_peak()
        return True

    def close(self) -> None:
        """Stop tracing, unless the program had begun it itself."""
        if self._started:
            self._tracer.stop()


def process_memory() -> Gauge:
    """The best gauge of this process's memory that this system has."""
    return ProcessMemory() if Path("/proc/self/status").exists() else PsutilMemory()

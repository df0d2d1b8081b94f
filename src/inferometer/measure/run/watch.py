"""The memory of a measuring child over time, read from outside, so that it costs the child nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from inferometer.core.frozen import frozen

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
    import psutil  # noqa: PLC0415 - only where something runs

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

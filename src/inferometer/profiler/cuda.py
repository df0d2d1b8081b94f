"""Time and memory on a CUDA device, through torch.

A kernel runs after the call that launched it has returned, so a host clock times the launch. An event recorded on the
stream at both ends of a span gives the device's own times. Events are read when they are due or when the profile is
asked for; a span never waits for the device.

Two events can be compared to about half a microsecond, but their distance is a 32-bit float of milliseconds, which
after a quarter of an hour counts in steps of 60 µs. So an anchor is recorded every second, and a span is placed by the
anchor before it.
"""
# torch comes as a module, never by an import at the top: that would load it for everyone

import importlib
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from inferometer.errors import MissingDependencyError
from inferometer.profiler.meters import Level
from inferometer.profiler.record import Clock, Open

__all__ = ["CudaEvents", "CudaMemory", "Mark", "cuda_missing", "load_torch"]

_ANCHOR_EVERY_NS = 1_000_000_000
_WAITING_AT_MOST = 4096  # pairs of events; beyond it those that are done are read and used again
_ANCHOR_TRIES = 5


def cuda_missing() -> str | None:
    """Why device time cannot be measured here; None where it can."""
    if find_spec("torch") is None:
        return "torch is not installed"
    torch = importlib.import_module("torch")
    return None if torch.cuda.is_available() else "torch finds no CUDA device"


def load_torch() -> Any:
    missing = cuda_missing()
    if missing is not None:
        raise MissingDependencyError(
            f"Device time was asked for, and {missing}.",
            remedy="Install torch with CUDA on a machine with an NVIDIA GPU, or leave Measure(cuda=True) out.",
        )
    return importlib.import_module("torch")


class Mark:
    """A span on the device: two events until they are read, then two times on the host's clock."""

    __slots__ = ("anchor", "begin", "end", "times")

    def __init__(self, anchor: "_Anchor", begin: Any) -> None:
        self.anchor, self.begin = anchor, begin
        self.end: Any = None
        self.times: tuple[int, int] | None = None


class _Anchor:
    """An event whose time on the host's clock is known, or follows from the anchor before it."""

    __slots__ = ("before", "event", "host_ns")

    def __init__(self, event: Any, host_ns: float | None, before: "_Anchor | None") -> None:
        self.event, self.host_ns, self.before = event, host_ns, before

    def time(self) -> float:
        if self.host_ns is None:
            assert self.before is not None  # noqa: S101 - the first anchor is made with its time
            self.host_ns = self.before.time() + self.before.event.elapsed_time(self.event) * 1e6
            self.before = None
        return self.host_ns


class CudaEvents:
    """Marks spans on the current stream of the current device. With `nvtx` each span is also a range for nsys."""

    def __init__(self, torch: Any, clock: Clock, *, nvtx: bool = False) -> None:
        self._torch, self._clock = torch, clock
        self._ranges = torch.cuda.nvtx if nvtx else None
        self._anchors: dict[int, tuple[_Anchor, int]] = {}
        self._free: list[Any] = []
        self._waiting: deque[Mark] = deque()
        self._lock = threading.Lock()
        self.uncertain_ns = 0  # how well the device's clock could be placed on the host's
        self._anchor()

    def begin(self, span: Open) -> Mark | None:
        if self._ranges is not None:
            self._ranges.range_push(span.name)
        if self._torch.cuda.is_current_stream_capturing():
            return None  # a graph being captured runs later, and events inside it cannot be timed
        mark = Mark(self._anchor(), self._event())
        mark.begin.record()
        return mark

    def end(self, span: Open, state: Mark | None) -> Mark | None:  # noqa: ARG002 - the device's signature
        if self._ranges is not None:
            self._ranges.range_pop()
        if state is None or self._torch.cuda.is_current_stream_capturing():
            return None
        state.end = self._event()
        state.end.record()
        self._waiting.append(state)
        if len(self._waiting) > _WAITING_AT_MOST:
            self._read_done()
        return state

    def resolve(self, marks: Sequence[Mark | None]) -> Iterable[tuple[int, int] | None]:
        """The times of every mark. This waits for the device, once."""
        if any(mark is not None and mark.times is None for mark in marks):
            for device in list(self._anchors):
                self._torch.cuda.synchronize(device)
        with self._lock:
            while self._waiting:
                self._read(self._waiting.popleft())
        return [None if mark is None else mark.times for mark in marks]

    def _event(self) -> Any:
        try:
            return self._free.pop()
        except IndexError:
            return self._torch.cuda.Event(enable_timing=True)

    def _read_done(self) -> None:
        """Read what the device has finished, the oldest first, without waiting for the rest."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            while self._waiting and self._waiting[0].end.query():
                self._read(self._waiting.popleft())
        finally:
            self._lock.release()

    def _read(self, mark: Mark) -> None:
        begin = mark.anchor.time() + mark.anchor.event.elapsed_time(mark.begin) * 1e6
        mark.times = (round(begin), round(begin + mark.begin.elapsed_time(mark.end) * 1e6))
        self._free += (mark.begin, mark.end)
        mark.begin = mark.end = None

    def _anchor(self) -> _Anchor:
        device, now = self._torch.cuda.current_device(), self._clock()
        known = self._anchors.get(device)
        if known is not None and now - known[1] < _ANCHOR_EVERY_NS:
            return known[0]
        event = self._torch.cuda.Event(enable_timing=True)
        if known is None:
            anchor = self._first(event)
        else:
            event.record()
            anchor = _Anchor(event, None, known[0])
        self._anchors[device] = (anchor, now)
        return anchor

    def _first(self, event: Any) -> _Anchor:
        """An idle device runs an event at once: its time lies between two readings of the host's clock."""
        self._torch.cuda.synchronize()
        for _ in range(_ANCHOR_TRIES):  # the first of them wake the device up; the last one counts
            before = self._clock()
            event.record()
            event.synchronize()
            after = self._clock()
        self.uncertain_ns = max(self.uncertain_ns, (after - before) // 2)
        return _Anchor(event, (before + after) / 2, None)


class CudaMemory:
    """What torch's allocator handed out on the current device."""

    prefix = "cuda"

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda

    def read(self) -> Level:
        return Level(int(self._cuda.memory_allocated()), int(self._cuda.max_memory_allocated()))

    def restart(self) -> bool:
        self._cuda.reset_peak_memory_stats()
        return True

    def reserved(self) -> dict[str, float]:
        """What the allocator holds from the driver, free blocks included."""
        return {"cuda_reserved_bytes": float(self._cuda.memory_reserved())}

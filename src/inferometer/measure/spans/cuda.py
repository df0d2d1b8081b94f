"""Time and memory on a CUDA device, through torch.

A kernel runs after the call that launched it has returned, so a host clock times the launch. An event recorded on the
stream at both ends of a span gives the device's own times. Events are read when they are done or when the profile is
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

from inferometer.core.errors import MissingDependencyError
from inferometer.measure.spans.meters import MeterLevel
from inferometer.measure.spans.record import Clock, Open

_ANCHOR_EVERY_NS = 1_000_000_000
_WAITING_AT_MOST = 4096  # spans; beyond it those that are done are read, and their events used again
_READ_AT_A_TIME = 4  # so that no one span pays for all
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

    __slots__ = ("anchor", "begin", "device", "end", "times")

    def __init__(self, device: int, anchor: "_Anchor", begin: Any) -> None:
        self.device, self.anchor, self.begin = device, anchor, begin
        self.end: Any = None
        self.times: tuple[int, int] | None = None


class _Anchor:
    """An event whose time on the host's clock is known, or follows from the anchor before it."""

    __slots__ = ("before", "event", "host_ns", "made_ns")

    def __init__(self, event: Any, made_ns: int, host_ns: float | None, before: "_Anchor | None") -> None:
        self.event, self.made_ns, self.host_ns, self.before = event, made_ns, host_ns, before

    def time(self) -> float:
        chain = [self]
        while chain[-1].host_ns is None and chain[-1].before is not None:
            chain.append(chain[-1].before)
        known = chain.pop()
        at, event = known.host_ns or 0.0, known.event
        for anchor in reversed(chain):
            at += event.elapsed_time(anchor.event) * 1e6
            anchor.host_ns, anchor.before, event = at, None, anchor.event
        return at


class _Streams:
    """The current stream of a device, as an object that an event can be recorded on.

    torch makes a new object each time it is asked, which takes longer than to record an event. It also says the
    stream's number, and for each number one object is kept. Where it does not say it, each event asks for itself.
    """

    def __init__(self, torch: Any) -> None:
        self._current = getattr(torch.cuda, "current_stream", None)
        self._number = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        self._known: dict[tuple[int, int], Any] = {}

    def current(self, device: int) -> Any:
        if self._current is None:
            return None
        if self._number is None:
            return self._current(device)
        key = (device, self._number(device))
        stream = self._known.get(key)
        if stream is None:
            stream = self._known[key] = self._current(device)
        return stream


class CudaEvents:
    """Marks spans on the current stream of the current device.

    An event belongs to the device it was first recorded on, so each device has a pool of its own.
    """

    def __init__(self, torch: Any, clock: Clock) -> None:
        self._cuda, self._clock, self._streams = torch.cuda, clock, _Streams(torch)
        self._capturing, self._current_device = torch.cuda.is_current_stream_capturing, torch.cuda.current_device
        self._anchors: dict[int, _Anchor] = {}
        self._free: dict[int, list[Any]] = {}
        self._waiting: deque[Mark] = deque()
        self._lock = threading.Lock()
        self.uncertain_ns = 0  # how well the device's clock could be placed on the host's
        self._anchor(self._current_device())

    def begin(self, span: Open) -> Mark | None:  # noqa: ARG002 - the device's signature
        if self._capturing():
            return None  # a graph being captured runs later, and events inside it cannot be timed
        device = self._current_device()
        mark = Mark(device, self._anchor(device), self._event(device))
        mark.begin.record(self._streams.current(device))
        return mark

    def end(self, span: Open, state: Mark | None) -> Mark | None:  # noqa: ARG002 - the device's signature
        if state is None or self._capturing():
            return None
        state.end = self._event(state.device)
        state.end.record(self._streams.current(state.device))
        self._waiting.append(state)
        if len(self._waiting) > _WAITING_AT_MOST:
            self._read_done()
        return state

    def resolve(self, marks: Sequence[Mark | None]) -> Iterable[tuple[int, int] | None]:
        """The times of every mark. This waits for the device, once."""
        if any(mark is not None and mark.times is None for mark in marks):
            for device in list(self._anchors):
                self._cuda.synchronize(device)
        with self._lock:
            while self._waiting:
                self._read(self._waiting.popleft())
        return [None if mark is None else mark.times for mark in marks]

    def forget(self) -> None:
        """Let go of what was not read: the events can be used again, done or not."""
        with self._lock:
            while self._waiting:
                self._give_back(self._waiting.popleft())

    def _event(self, device: int) -> Any:
        free = self._free[device]
        try:
            return free.pop() if free else self._cuda.Event(enable_timing=True)
        except IndexError:  # another thread took the last one
            return self._cuda.Event(enable_timing=True)

    def _read_done(self) -> None:
        """Read a few that the device has finished, the oldest first."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            for _ in range(_READ_AT_A_TIME):
                if not self._waiting or not self._waiting[0].end.query():
                    break
                self._read(self._waiting.popleft())
        finally:
            self._lock.release()

    def _read(self, mark: Mark) -> None:
        begin = mark.anchor.time() + mark.anchor.event.elapsed_time(mark.begin) * 1e6
        mark.times = (round(begin), round(begin + mark.begin.elapsed_time(mark.end) * 1e6))
        self._give_back(mark)

    def _give_back(self, mark: Mark) -> None:
        self._free[mark.device] += (mark.begin, mark.end)
        mark.begin = mark.end = None

    def _anchor(self, device: int) -> _Anchor:
        known, now = self._anchors.get(device), self._clock()
        if known is not None and now - known.made_ns < _ANCHOR_EVERY_NS:
            return known
        event = self._cuda.Event(enable_timing=True)
        if known is None:
            self._free[device] = []
            anchor = self._first(device, event)
        else:
            event.record(self._streams.current(device))
            anchor = _Anchor(event, now, None, known)
        self._anchors[device] = anchor
        return anchor

    def _first(self, device: int, event: Any) -> _Anchor:
        """An idle device runs an event at once: its time lies between two readings of the host's clock."""
        self._cuda.synchronize(device)
        for _ in range(_ANCHOR_TRIES):  # the first of them wake the device up; the last one counts
            before = self._clock()
            event.record(self._streams.current(device))
            event.synchronize()
            after = self._clock()
        self.uncertain_ns = max(self.uncertain_ns, (after - before) // 2)
        return _Anchor(event, after, (before + after) / 2, None)


class NvtxRanges:
    """Each span as a range for NVIDIA's tools."""

    def __init__(self, torch: Any) -> None:
        self._push, self._pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop

    def begin(self, span: Open) -> None:
        self._push(span.name)

    def end(self, span: Open, state: None) -> dict[str, float]:  # noqa: ARG002 - the meters' signature
        self._pop()
        return {}


class CudaMemory:
    """What torch's allocator handed out on the current device, and what it holds from the driver.

    All is read in one call: `torch.cuda.memory_allocated` and its like make every statistic there is into text first,
    and take a hundred microseconds each.
    """

    prefix = "cuda"

    def __init__(self, torch: Any) -> None:
        self._statistics, self._reset = torch.cuda.memory_stats_as_nested_dict, torch.cuda.reset_peak_memory_stats

    def read(self) -> MeterLevel:
        statistics = self._statistics()
        allocated, reserved = statistics["allocated_bytes"]["all"], statistics["reserved_bytes"]["all"]
        return MeterLevel(allocated["current"], allocated["peak"], reserved["current"])

    def restart(self) -> bool:
        self._reset()
        return True

"""Clocks for torch: seconds of a call on a CUDA device or, in tests, on the CPU.

Kernel time is read between two CUDA events around replays of a captured graph, so the host's launches are not in it;
wall time is read around a synchronised call. Every timing begins with a single call that shows how many more fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.engines.torch.capture import capture_graph

_LEAST, _MOST = 3, 60
_LONG_S, _MOST_AGAIN = 4e-4, 40  # a replay starts in some 8 µs: calls are captured so often that this shows no more


@frozen
class KernelTiming:
    """The median of `runs` timings. One run means that the case was too slow for more."""

    seconds: float
    runs: int


@frozen
class Clock:
    """`torch` is the module, `place` a torch device name, `limit_s` the most that one case may take."""

    torch: Any
    place: str = "cuda"
    limit_s: float = 2.0
    now: Callable[[], float] = time.perf_counter

    @property
    def cuda(self) -> bool:
        return self.place.startswith("cuda")

    def sync(self) -> None:
        if self.cuda:
            self.torch.cuda.synchronize()

    def tidy(self) -> None:
        """Free the memory of what was measured last."""
        if self.cuda:
            self.torch.cuda.empty_cache()

    def wall(self, call: Callable[[], object]) -> KernelTiming:
        """Synchronised calls, one by one."""
        first = self._first(call)
        if first > self.limit_s:
            return KernelTiming(seconds=first, runs=1)
        times = [self.once(call) for _ in range(self._runs(first))]
        return KernelTiming(seconds=median(times), runs=len(times))

    def replayed(self, call: Callable[[], object], *, calls: int = 1, wall: bool = False) -> KernelTiming:
        """A call captured in a CUDA graph and replayed: seconds per call of its `calls`. Without CUDA, just called.

        `wall` reads the synchronised wall clock instead of the device's.
        """
        first = self._first(call)
        if first > self.limit_s or not self.cuda:
            timing = KernelTiming(seconds=first, runs=1) if first > self.limit_s else self.wall(call)
            return KernelTiming(seconds=timing.seconds / calls, runs=timing.runs)
        replay, _ = capture_graph(self.torch, call, warm=2)
        once = self.once(replay)
        again = 1 if wall else min(_MOST_AGAIN, int(_LONG_S / max(once, 1e-6)) + 1)
        if again > 1:
            replay, _ = capture_graph(self.torch, lambda: [call() for _ in range(again)], warm=1)
        runs = self._runs(max(again * once, 1e-6))
        read = self.once if wall else self._between_events
        self.once(replay)
        times = [read(replay) / (again * calls) for _ in range(runs)]
        return KernelTiming(seconds=median(times), runs=len(times))

    def _first(self, call: Callable[[], object]) -> float:
        """Seconds of a warm call: the one before it compiles, allocates and chooses algorithms."""
        self.once(call)
        return self.once(call)

    def _runs(self, once: float) -> int:
        return max(_LEAST, min(_MOST, int(0.2 * self.limit_s / max(once, 1e-9))))

    def once(self, call: Callable[[], object]) -> float:
        """Seconds of one synchronised call."""
        self.sync()
        begun = self.now()
        call()
        self.sync()
        return self.now() - begun

    def _between_events(self, call: Callable[[], object]) -> float:
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
        self.sync()
        return float(first.elapsed_time(last)) / 1e3

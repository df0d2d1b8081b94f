"""How fast the machine is at the moment: a fixed piece of work before and after each timed step.

A core's speed changes with its neighbours (two threads of one core, a shared power budget) by half and more, for
seconds at a time, and the load does not show it. A step counts if the pieces before and after it took hardly longer
than the fastest ever, and if it was not preempted meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from inferometer.core.frozen import frozen

FAST = 1.2  # times the fastest piece: the longest that a piece may take beside a step that counts
PREEMPTED = 1.03  # a step whose wall clock ran this much longer than its process's clock was interrupted
_ELEMENTS, _ROUNDS = 4096, 40  # within the first cache: some 0.15 ms
_REWARM = 8  # rounds before the clock starts: the step before it has used the caches
_FELT = 0.35  # exponent: a step beside a piece of twice its time took 1.3 times as long
_SLOWEST = 2.5  # times the fastest: beyond it the piece itself was interrupted
_LEARN_S = 0.5  # some thousand pieces: enough to meet the machine's full clock once
_RESTING, _NAP_S = 0.2, 2e-3  # of the clock, that a process at rest uses of all CPUs; how long it is looked at
_NAPS = 60  # at most: threads that never sleep are waited for no longer than a step's share of its limit
_FLOOD_BYTES = 128_000_000  # at least: more than most caches, and some are not told to a virtual machine


@frozen
class Timed:
    """A step on the wall and on the process's own clock, and the slower of the two pieces beside it."""

    wall_s: float
    own_s: float
    beside_s: float = 0.0


def _piece() -> Callable[[int], None]:
    x = np.linspace(0.0, 1.0, _ELEMENTS, dtype=np.float32)
    y, z = np.empty_like(x), x[::-1].copy()

    def work(rounds: int) -> None:
        for _ in range(rounds):
            np.exp(x, out=y)
            np.multiply(y, z, out=y)
            np.add(y, x, out=y)

    return work


class Flood:
    """Reads as much memory as the largest cache holds, to evict what is in it. A large model does that to itself.

    It writes nothing: what a cache holds of it would have to go back to memory while the next step reads its weights.
    """

    def __init__(self, cache_bytes: float = 0.0) -> None:
        self.nbytes = int(max(_FLOOD_BYTES, cache_bytes))
        self._water: Any = None

    def __call__(self) -> None:
        if self._water is None:  # zeros that nobody wrote to would all be one page
            self._water = np.ones(self.nbytes // 8)
        self._water.sum()


@dataclass(slots=True)
class MachinePace:
    """Times steps with a piece of work on each side. One for a whole run: its fastest piece is the reference."""

    piece: Callable[[int], None] = field(default_factory=_piece)
    clock: Callable[[], float] = time.perf_counter
    own: Callable[[], float] = time.process_time
    thread: Callable[[], float] = time.thread_time
    sleep: Callable[[float], None] = time.sleep
    fastest_s: float = float("inf")

    def beside(self) -> float:
        self.piece(_REWARM)
        start = self.thread()
        self.piece(_ROUNDS)
        taken = self.thread() - start
        self.fastest_s = min(self.fastest_s, taken)
        return taken

    def learn(self, seconds: float = _LEARN_S) -> None:
        """Find out how fast the piece can be, before the first step is judged."""
        until = self.clock() + seconds
        while self.clock() < until:
            self.beside()

    def rest(self) -> None:
        """Wait until no thread of this process works: those of an engine look for more for some milliseconds."""
        for _ in range(_NAPS):
            mine, start = self.own(), self.clock()
            self.sleep(_NAP_S)
            if self.own() - mine <= _RESTING * (self.clock() - start):
                return

    def timed(self, step: Callable[[], object]) -> Timed:
        before = self.beside()
        mine, start = self.own(), self.clock()
        step()
        wall, own = self.clock() - start, self.own() - mine
        return Timed(wall_s=wall, own_s=own, beside_s=max(before, self.beside()))

    def is_fast(self, step: Timed) -> bool:
        return step.beside_s <= FAST * self.fastest_s

    def felt(self, step: Timed) -> float:
        """The time of a step at the fastest pace, divided by its actual time."""
        slower = min(max(1.0, step.beside_s / self.fastest_s), _SLOWEST)
        return float(slower**-_FELT)


def first_decile(values: Sequence[float]) -> float:
    """The first decile: a busy machine only ever adds to a time."""
    ordered = sorted(values)
    # The least of all would be one lucky reading.
    return ordered[len(ordered) // 10]


def steady_places(steps: Sequence[Timed], pace: MachinePace, *, threads: int) -> list[int]:
    """The indices of the steps that count. With several threads the two clocks cannot be compared."""
    return [
        index
        for index, step in enumerate(steps)
        if pace.is_fast(step) and (threads > 1 or step.wall_s <= PREEMPTED * step.own_s)
    ]


def nearly(steps: Sequence[Timed]) -> list[int]:
    """If no step counts: the quarter of the steps beside which the piece took least."""
    order = sorted(range(len(steps)), key=lambda place: steps[place].beside_s)
    # A quarter still averages out what is left of the disturbance; a single step would be a matter of luck.
    return order[: max(1, len(order) // 4)]


def usual_seconds(steps: Sequence[Timed], *, threads: int) -> float:
    """The median of all steps, at whatever pace: a long step meets all of them on the way."""
    return median(step.wall_s if threads > 1 else min(step.wall_s, step.own_s) for step in steps)


def steady_seconds(steps: Sequence[Timed], pace: MachinePace, *, threads: int) -> float:
    """The time of a step on a fast, undisturbed machine. With one thread, its process's clock leaves out interruptions.

    If no step counts, it is estimated from those beside which the piece took least, corrected for the pace.
    """
    kept = steady_places(steps, pace, threads=threads)
    own = [step.wall_s if threads > 1 else min(step.wall_s, step.own_s) for step in steps]
    if kept:
        return first_decile([own[place] for place in kept])
    return first_decile([own[place] * pace.felt(steps[place]) for place in nearly(steps)])

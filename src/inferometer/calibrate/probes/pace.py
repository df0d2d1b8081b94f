"""How fast the machine goes at the moment: a fixed piece of work beside each step that is timed.

A core's speed changes with its neighbours (two threads of one core, a shared power budget) by a half and more, for
seconds at a time, and nothing in the load says so. A step counts where the piece before it and the one after it took
hardly longer than the fastest ever, and where nobody took the processor away meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

FAST = 1.2  # times the fastest that the piece may take beside a step that counts
PREEMPTED = 1.03  # a step whose clock on the wall ran this much longer than its own was interrupted
_ELEMENTS, _ROUNDS = 4096, 40  # within the first cache: some 0.15 ms
_REWARM = 8  # rounds before the clock runs: the step that went before has taken the caches
_FELT = 0.35  # of a change of pace that a step shows: one with the piece at twice its time took 1.3 times as long
_SLOWEST = 2.5  # times the fastest: beyond it the piece itself was interrupted
_LEARN_S = 0.5
_FLOOD_BYTES = 128_000_000  # more than a core's share of any cache


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Streams through memory, so that what was in the caches is not. A large model does that to itself."""

    def __init__(self, nbytes: int = _FLOOD_BYTES) -> None:
        self._water = np.zeros(nbytes // 8)

    def __call__(self) -> None:
        np.add(self._water, 1.0, out=self._water)


@dataclass(slots=True)
class Pace:
    """Times steps with a piece of work on each side. One for a whole run: its fastest piece is the measure."""

    piece: Callable[[int], None] = field(default_factory=_piece)
    clock: Callable[[], float] = time.perf_counter
    own: Callable[[], float] = time.process_time
    thread: Callable[[], float] = time.thread_time
    fastest_s: float = float("inf")

    def beside(self) -> float:
        self.piece(_REWARM)
        start = self.thread()
        self.piece(_ROUNDS)
        taken = self.thread() - start
        self.fastest_s = min(self.fastest_s, taken)
        return taken

    def learn(self, seconds: float = _LEARN_S) -> None:
        """Find out how fast it can be, before the first step is judged."""
        until = self.clock() + seconds
        while self.clock() < until:
            self.beside()

    def timed(self, step: Callable[[], object]) -> Timed:
        before = self.beside()
        mine, start = self.own(), self.clock()
        step()
        wall, own = self.clock() - start, self.own() - mine
        return Timed(wall_s=wall, own_s=own, beside_s=max(before, self.beside()))

    def is_fast(self, step: Timed) -> bool:
        return step.beside_s <= FAST * self.fastest_s

    def felt(self, step: Timed) -> float:
        """What a step would take at the fastest pace, over what it took."""
        slower = min(max(1.0, step.beside_s / self.fastest_s), _SLOWEST)
        return float(slower**-_FELT)


def quiet(values: Sequence[float]) -> float:
    """The first decile: a busy machine only ever adds to a time."""
    ordered = sorted(values)
    return ordered[len(ordered) // 10]


def steady(steps: Sequence[Timed], pace: Pace, *, threads: int) -> list[int]:
    """The places of the steps that count. Of several threads the clocks cannot be held against each other."""
    return [
        place
        for place, step in enumerate(steps)
        if pace.is_fast(step) and (threads > 1 or step.wall_s <= PREEMPTED * step.own_s)
    ]


def nearly(steps: Sequence[Timed]) -> list[int]:
    """The quarter of the steps beside which the piece took least, where none counts."""
    order = sorted(range(len(steps)), key=lambda place: steps[place].beside_s)
    return order[: max(1, len(order) // 4)]


def usual_seconds(steps: Sequence[Timed], *, threads: int) -> float:
    """The middle of all steps, at whatever pace: what a step that lasts long meets on the way."""
    return median(step.wall_s if threads > 1 else min(step.wall_s, step.own_s) for step in steps)


def steady_seconds(steps: Sequence[Timed], pace: Pace, *, threads: int) -> float:
    """What a step takes when the machine is fast and ours; of one thread its own clock leaves out who came between.

    Where no step counts, those beside which the piece took least stand in, less what the pace has added to them.
    """
    kept = steady(steps, pace, threads=threads)
    own = [step.wall_s if threads > 1 else min(step.wall_s, step.own_s) for step in steps]
    if kept:
        return quiet([own[place] for place in kept])
    return quiet([own[place] * pace.felt(steps[place]) for place in nearly(steps)])

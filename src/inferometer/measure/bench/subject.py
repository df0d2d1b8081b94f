"""What is measured: anything that can run once and report how long it took, or why it failed."""

from __future__ import annotations

import inspect
import math
import time
from typing import TYPE_CHECKING, Any, Protocol

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

_SHORT_S = 20e-6  # a call shorter than this is repeated within a run …
_LONG_ENOUGH_S = 100e-6  # … until the run is this long: the clock's own cost is then below a hundredth of it
_TRIES = 3  # runs in which the number of calls may still change


@frozen
class RunOutcome:
    """One run: its time, or its error. `lost`: the process it ran in is gone, and a new one has to warm up."""

    seconds: float | None
    error: str | None = None
    calls: int = 1
    peak_bytes: int | None = None
    lost: bool = False


class Subject(Protocol):
    @property
    def name(self) -> str: ...

    def run(self, *, watched: bool = False) -> RunOutcome:
        """Run once. `watched` asks for the peak memory too, which may cost time: warm-up runs are watched."""

    def close(self) -> None:
        """Let go of processes; nothing is run afterwards."""


class Stopwatch:
    """Times calls of one function. It runs in this process or, unchanged, in a child.

    `calls` None finds the number during its first runs, which are warm-up: one call, then, where that is shorter than
    `short_s`, as many as make a run of `enough_s`. No run does more than it times, so that a limit on a run is a limit
    on that.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        calls: int | None,
        *,
        short_s: float = _SHORT_S,
        enough_s: float = _LONG_ENOUGH_S,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._function = function
        self._calls = calls or 1
        self._tries = _TRIES if calls is None else 0
        self._short_s, self._enough_s = short_s, enough_s
        self._clock_ns = clock_ns

    def run(self) -> RunOutcome:
        calls = self._calls
        try:
            seconds = self._timed(calls)
        except InferometerError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises is a result: a failed run
            return RunOutcome(seconds=None, error=f"{type(error).__name__}: {error}", calls=calls)
        if self._tries > 0:
            self._tries -= 1
            self._calls = 1 if seconds >= self._short_s else math.ceil(self._enough_s / max(seconds, 1e-9))
        return RunOutcome(seconds=seconds, calls=calls)

    def _timed(self, calls: int) -> float:
        function, clock = self._function, self._clock_ns
        result = None
        start = clock()
        for _ in range(calls):
            result = function()
        end = clock()
        if inspect.iscoroutine(result):
            result.close()
            raise InferometerError(
                f"{name_of(function)} is asynchronous: calling it only makes a coroutine, which takes no time.",
                remedy="Measure `lambda: asyncio.run(…)`, or a function that waits for the result.",
            )
        if end < start:
            raise RuntimeError(f"the clock went back by {start - end} ns during the run, which gives no time")
        return (end - start) * 1e-9 / calls


@frozen
class FunctionSubject:
    """A function called in this process: no limit can be enforced, and its memory cannot be separated from ours."""

    name: str
    stopwatch: Stopwatch

    def run(self, *, watched: bool = False) -> RunOutcome:  # noqa: ARG002 - the seam's signature
        return self.stopwatch.run()

    def close(self) -> None:
        pass


def calls_for(calls: int | None, warmup: int | None) -> int | None:
    """Finding the number of calls takes a few warm-up runs: with fewer than that, each run is one call."""
    return 1 if calls is None and warmup is not None and warmup < _TRIES else calls


def name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return str(name).replace("<locals>.", "").replace("<lambda>", "lambda")

"""Measure a function in its own process, so that a run that hangs or uses too much memory can be killed.

On Linux the child is forked where this process has a single thread: closures and loaded models are simply there. Else
it is started afresh, for which the function must be one that can be imported; where that fails and forking is possible,
it is forked after all. Windows can only start afresh.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import sys
import threading
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import InferometerError
from inferometer.measure.bench.processes import Tree, kill_tree, own_peak_bytes
from inferometer.measure.bench.subject import RunOutcome, Stopwatch, name_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess

_LOOK_S = 0.01
_GOODBYE_S = 1.0
_START_S = 60.0  # importing an engine afresh takes its time


def start_method(function: Callable[[], Any]) -> str:
    """How to start the child: `fork` or `spawn`."""
    available = multiprocessing.get_all_start_methods()
    if "fork" in available and sys.platform == "linux" and threading.active_count() == 1:
        return "fork"
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        if "fork" in available:
            return "fork"
        raise InferometerError(
            f"{name_of(function)} cannot be sent to another process, which a time or memory limit needs here.",
            remedy="Measure a function defined at the top of a module, or leave the limits out.",
        ) from None
    return "spawn"


class ChildSubject:
    """Runs the function in a child, one run a request. A child that had to be killed is replaced on the next run."""

    def __init__(  # noqa: PLR0913 - the limits and the seams
        self,
        function: Callable[[], Any],
        *,
        name: str | None = None,
        calls: int | None = None,
        timeout_s: float | None = None,
        memory_bytes: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name or name_of(function)
        self._function, self._calls = function, calls
        self._timeout_s, self._memory_bytes = timeout_s, memory_bytes
        self._clock = clock
        self._context: BaseContext = multiprocessing.get_context(start_method(function))
        self._process: BaseProcess | None = None
        self._pipe: Connection[Any, Any] | None = None
        self._tree: Tree | None = None

    def run(self, *, watched: bool = False) -> RunOutcome:  # noqa: ARG002 - the child reports its peak at no cost
        pipe = self._pipe if self._pipe is not None else self._start()
        try:
            pipe.send("run")
            verdict = self._wait(pipe)
            answer: Any = None if verdict else pipe.recv()
        except (EOFError, OSError):
            if self._process is not None:
                self._process.join(_GOODBYE_S)
            code = None if self._process is None else self._process.exitcode
            death = f"the process of the run ended by itself with exit code {code}"
            verdict, answer = death, None
        if verdict is not None:
            self._end()
            return RunOutcome(seconds=None, error=verdict, lost=True)
        if isinstance(answer, InferometerError):
            raise answer
        return self._within_limit(answer)

    def close(self) -> None:
        if self._pipe is not None and self._process is not None:
            with contextlib.suppress(OSError):
                self._pipe.send("end")
            self._process.join(_GOODBYE_S)
        self._end()

    def _start(self) -> Connection[Any, Any]:
        ours, theirs = self._context.Pipe()
        arguments = (theirs, self._function, self._calls)
        process: BaseProcess = self._context.Process(target=_serve, args=arguments, daemon=True)  # type: ignore[attr-defined]
        with warnings.catch_warnings():
            # Python warns of forking beside native threads; numpy's idle ones are harmless, and closures need the fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        self._process, self._pipe, self._tree = process, ours, Tree(process.pid or 0)
        if not self._greeted(ours):
            code = process.exitcode
            self._end()
            raise InferometerError(
                f"The child process for {self.name} could not be started (exit code {code}).",
                remedy="Put the measuring script under `if __name__ == '__main__':`; its output says what went wrong.",
            )
        return ours

    def _greeted(self, pipe: Connection[Any, Any]) -> bool:
        """The child is up and has the function: only then does the time of a run begin."""
        try:
            return pipe.poll(_START_S) and pipe.recv() == "ready"
        except (EOFError, OSError):
            if self._process is not None:
                self._process.join(_GOODBYE_S)
            return False

    def _wait(self, pipe: Connection[Any, Any]) -> str | None:
        """Wait for the answer within the limits; the verdict, if one was broken."""
        deadline = None if self._timeout_s is None else self._clock() + self._timeout_s
        while True:
            left = None if deadline is None else max(deadline - self._clock(), 0.0)
            looks = None if self._memory_bytes is None else _LOOK_S
            waits = [wait for wait in (left, looks) if wait is not None]
            if pipe.poll(min(waits) if waits else None):
                return None
            if left == 0.0:
                return f"timed out: killed after {self._timeout_s:g} s"
            size = self._tree.nbytes() if self._tree is not None and self._memory_bytes is not None else None
            if size is not None and self._memory_bytes is not None and size > self._memory_bytes:
                return f"too much memory: killed at {size} bytes, {self._memory_bytes} are allowed"

    def _within_limit(self, outcome: RunOutcome) -> RunOutcome:
        """A peak between two looks is seen afterwards: that run does not count either, and its process goes."""
        limit, peak = self._memory_bytes, outcome.peak_bytes
        if limit is None or peak is None or peak <= limit:
            return outcome
        self._end()
        error = f"too much memory: {peak} bytes at the peak, {limit} are allowed"
        return replace(outcome, seconds=None, error=error, lost=True)

    def _end(self) -> None:
        if self._process is not None and self._process.pid is not None:
            kill_tree(self._process.pid)
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = self._tree = None


def _serve(pipe: Connection[Any, Any], function: Callable[[], Any], calls: int | None) -> None:
    """The child: a run for each request, until it is asked to end or its parent is gone."""
    stopwatch = Stopwatch(function, calls)
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        pipe.send("ready")
        while pipe.recv() == "run":
            try:
                answer: Any = replace(stopwatch.run(), peak_bytes=own_peak_bytes())
            except InferometerError as error:
                answer = InferometerError(error.message, remedy=error.remedy)
            pipe.send(answer)

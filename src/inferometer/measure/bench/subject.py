"""What is measured: anything that can run once and report how long it took, or why it failed."""

import inspect
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.measure.bench.processes import Watchdog, kill_tree, own_peak_bytes

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


# Benchmark command lines: each run is a new process, timed from start to exit.
#
# Its output goes nowhere and its input is empty; the last line of its errors is kept for a run that fails. No shell is
# between: `sh -c '…'` asks for one. On POSIX the kernel's own count of the peak memory is used where it can be
# trusted: Linux lets a new process inherit the peak of the one that started it, so that a smaller one than ours says
# nothing, and is taken from looks during the warm-up runs instead, as on Windows.

_TAIL_BYTES = 4096


def split_command(text: str) -> tuple[str, ...]:
    """A command line as its words, quoted as in the system's shell."""
    try:
        words = tuple(shlex.split(text, posix=os.name != "nt"))
    except ValueError as error:
        raise InferometerError(
            f"{text!r} is not a command line: {error}.", remedy="Close the quotation, or escape the quote."
        ) from None
    if not words:
        raise InferometerError("An empty command line cannot be measured.", remedy="Name a program to run.")
    return words


@frozen
class CommandSubject:
    argv: tuple[str, ...]
    name: str
    timeout_s: float | None = None
    memory_bytes: int | None = None
    folder: Path | None = None
    clock: Callable[[], float] = time.perf_counter

    def run(self, *, watched: bool = False) -> RunOutcome:
        with tempfile.TemporaryFile() as errors:
            start = self.clock()
            process = self._started(errors)
            try:
                watchdog = Watchdog(
                    process.pid, timeout_s=self.timeout_s, memory_bytes=self.memory_bytes, watched=watched,
                    clock=self.clock,
                )  # fmt: skip
                try:
                    peak = _ended(process)
                    seconds = self.clock() - start
                finally:
                    watchdog.stop()
            except BaseException:
                kill_tree(process.pid)  # an interrupted measurement leaves nothing running
                process.wait()
                raise
            peaks = [size for size in (peak, watchdog.peak_bytes) if size is not None]
            error = watchdog.verdict or self._too_much(peak) or _failure(process.returncode, errors)
            if error is None and seconds < 0:
                error = f"the clock went back by {-seconds:g} s during the run, which gives no time"
        return RunOutcome(
            seconds=seconds if error is None else None, error=error, peak_bytes=max(peaks) if peaks else None
        )

    def close(self) -> None:
        pass

    def _started(self, errors: BinaryIO) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - the user's own command line is what is measured
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=self.folder,
                start_new_session=os.name == "posix",
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise InferometerError(
                f"{self.argv[0]!r} cannot be started: {why}.",
                remedy="Check the spelling and the path. A shell's own words and pipes need a shell: sh -c '…'.",
            ) from None

    def _too_much(self, peak: int | None) -> str | None:
        if self.memory_bytes is None or peak is None or peak <= self.memory_bytes:
            return None
        return f"too much memory: {peak} bytes at the peak, {self.memory_bytes} are allowed"


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for the end; returns the peak memory where the kernel reports one that can be trusted."""
    if not hasattr(os, "wait4"):
        process.wait()
        return None
    ours = own_peak_bytes() or 0
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    peak = usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024
    return peak if peak > ours else None


def _failure(code: int, errors: BinaryIO) -> str | None:
    if code == 0:
        return None
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(size - _TAIL_BYTES, 0))
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {lines[-1].strip()}" if lines else how

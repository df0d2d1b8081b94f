"""Watch and kill process trees: how much memory one holds, and how to end all of it.

psutil does it the same way on Linux, macOS and Windows. A grandchild that made itself a session of its own and was
left by its parent is no longer in the tree, and cannot be found.
"""

import sys
import threading
import time
from collections.abc import Callable

import psutil

from inferometer.core.frozen import frozen


@frozen
class OwnUse:
    """CPU time of this process and its children, living and ended, and the processes that are ours now."""

    cpu_s: float | None
    pids: frozenset[int]


_LOOK_S = 0.01  # memory can grow by some tens of megabytes between two looks
_SEARCH_S = 0.2
_REAP_S = 1.0


def own_peak_bytes() -> int | None:
    """The most memory this process has held, on Windows by psutil; None where the system does not count it."""
    try:
        import resource  # noqa: PLC0415 - POSIX only
    except ImportError:
        import psutil  # noqa: PLC0415 - as above

        return getattr(psutil.Process().memory_info(), "peak_wset", None)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class Tree:
    """The memory of a process and its descendants.

    Finding descendants means looking at every process of the machine, so that is done a few times a second; those that
    are known are asked at every look.
    """

    def __init__(self, pid: int, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._pid, self._clock = pid, clock
        self._known: list[psutil.Process] = []
        self._search_at = 0.0

    def nbytes(self) -> int | None:
        """Resident bytes now; None if the process has ended."""
        now = self._clock()
        try:
            if now >= self._search_at or not self._known:
                root = psutil.Process(self._pid)
                self._known = [root, *root.children(recursive=True)]
                self._search_at = now + _SEARCH_S
        except psutil.Error:
            return None
        total = 0
        for process in self._known:
            try:
                total += process.memory_info().rss
            except psutil.Error:
                continue
        return total or None


def kill_tree(pid: int) -> None:
    """End a process and its descendants, at once and for good. Never the first one: all others are its descendants."""
    if pid <= 1:
        raise ValueError(f"{pid} is no process of ours to end.")
    try:
        root = psutil.Process(pid)
        doomed = [*root.children(recursive=True), root]
    except psutil.Error:
        return
    for process in doomed:
        _kill(process)
    psutil.wait_procs([process for process in doomed if process.pid != pid], timeout=_REAP_S)


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return


def own_use() -> OwnUse:
    """What this process and its children have used. Windows forgets the times of children that have ended."""
    me = psutil.Process()
    ours = (me, *me.children(recursive=True))
    pids = frozenset(process.pid for process in ours)
    if sys.platform == "win32":
        return OwnUse(cpu_s=None, pids=pids)
    total = 0.0
    for process in ours:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return OwnUse(cpu_s=total, pids=pids)


class Watchdog:
    """A thread beside one process: kills its tree when the time is up or the memory is too much, and says which.

    While nothing is limited and nobody wants the peak, there is no thread.
    """

    def __init__(
        self,
        pid: int,
        *,
        timeout_s: float | None,
        memory_bytes: int | None,
        watched: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.verdict: str | None = None
        self.peak_bytes: int | None = None
        self._pid, self._timeout_s, self._memory_bytes = pid, timeout_s, memory_bytes
        self._tree = Tree(pid, clock=clock)
        self._looks = watched or memory_bytes is not None
        self._clock = clock
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if self._looks or timeout_s is not None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        deadline = None if self._timeout_s is None else self._clock() + self._timeout_s
        while not self._ended.is_set():
            if self._looks and self._too_big():
                break
            left = None if deadline is None else deadline - self._clock()
            if left is not None and left <= 0:
                self.verdict = f"timed out: killed after {self._timeout_s:g} s"
                break
            waits = [wait for wait in (left, _LOOK_S if self._looks else None) if wait is not None]
            if self._ended.wait(min(waits)):
                return
        if self.verdict is not None:
            kill_tree(self._pid)

    def _too_big(self) -> bool:
        size = self._tree.nbytes()
        if size is None:
            return False
        self.peak_bytes = max(self.peak_bytes or 0, size)
        if self._memory_bytes is None or size <= self._memory_bytes:
            return False
        self.verdict = f"too much memory: killed at {size} bytes, {self._memory_bytes} are allowed"
        return True

"""Running an order in a child process, and keeping everything it reports, however it ends."""

import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from inferometer.core.frozen import frozen
from inferometer.core.units import format_quantity
from inferometer.measure.bench.loop import LoopSamples, Progress
from inferometer.measure.bench.processes import Tree, kill_tree
from inferometer.measure.run.child import LENGTH
from inferometer.measure.run.order import MeasureOrder
from inferometer.measure.run.raw import Ended, MemoryWatch, Raw, resident_of

_LOOK_S = 0.05  # between two looks at the limits
_LOG_BYTES = 64_000  # of what the engine printed: the end is kept
_GOODBYE_S = 5.0  # that a child with unread answers gets to end by itself


@frozen
class ChildLimits:
    """When a child is killed. `silence_s`: no load, compilation or step should take that long without a report."""

    silence_s: float = 600.0
    seconds: float | None = None
    memory_bytes: int | None = None


def isolated(
    order: MeasureOrder,
    *,
    limits: ChildLimits | None = None,
    progress: Progress | None = None,
    sensors: Mapping[str, Callable[[], int | None]] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Raw:
    """What the child reported. Nothing that the child does raises here: `ended` and `error` say how it went.

    `sensors` are read beside it while it runs, every second or less often.
    """
    with tempfile.TemporaryDirectory(prefix="inferometer-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "engine.log"
        child = _Child(order, log)
        try:
            watch = MemoryWatch(resident_of(child.process.pid), clock)
            sensed = {name: MemoryWatch(read, clock, step_s=1.0) for name, read in (sensors or {}).items()}
            raw = _listen(child, limits or ChildLimits(), progress, (watch, *sensed.values()), clock)
            series = {name: each.series for name, each in sensed.items()}
            raw = replace(raw, resident=watch.series, sensed=series)
        finally:
            child.end()
        return replace(_with_partial(raw), log=_tail(log))


@dataclass(slots=True)
class _Child:
    order: MeasureOrder
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)
    answers: queue.SimpleQueue[tuple[str, Any] | None] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        # -P: a file of the user such as glob.py must not stand in for a module of Python
        command = [sys.executable, "-P", "-m", "inferometer.measure.run.child", str(self.log)]
        self.process = subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must reach only the parent, which keeps what is there
        )
        threading.Thread(target=self._read, daemon=True).start()
        stdin = self.process.stdin
        if stdin is not None:
            with suppress(OSError), stdin:
                stdin.write(pickle.dumps(self.order))

    def _read(self) -> None:
        stream = self.process.stdout
        while stream is not None and (answer := _answer(stream)) is not None:
            self.answers.put(answer)
        self.answers.put(None)

    def end(self) -> None:
        if self.process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0 if self.answers.empty() else _GOODBYE_S)
        kill_tree(self.process.pid)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _answer(stream: IO[bytes]) -> tuple[str, Any] | None:
    """The next answer; None at the end, and if the answer is cut off."""
    try:
        head = stream.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        (size,) = LENGTH.unpack(head)
        data = stream.read(size)
        if len(data) < size:
            return None
        answer: tuple[str, Any] = pickle.loads(data)  # noqa: S301 - written by our own child
    except (OSError, ValueError):
        return None
    return answer


def _listen(
    child: _Child,
    limits: ChildLimits,
    progress: Progress | None,
    watches: tuple[MemoryWatch, ...],
    clock: Callable[[], float],
) -> Raw:
    raw, tree = Raw(ended="crashed"), Tree(child.process.pid)
    begun = heard = clock()
    try:
        while True:
            for watch in watches:
                watch.look()
            try:
                answer = child.answers.get(timeout=_LOOK_S)
            except queue.Empty:
                broken = _broken(limits, tree, silent_s=clock() - heard, spent_s=clock() - begun)
                if broken is not None:
                    return replace(raw, ended=broken[0], error=broken[1])
                continue
            if answer is None:
                return _crashed(raw, child)
            heard = clock()
            name, value = answer
            if name == "ended":
                ended, error, remedy = value
                return replace(raw, ended=ended, error=error, remedy=remedy)
            if name == "progress":
                if progress is not None:
                    progress(value)
                continue
            _follow(watches, name)
            raw = _with(raw, name, value)
    except KeyboardInterrupt:
        child.process.kill()  # who asks for the end does not wait for what the child has still to say
        return replace(raw, ended="stopped", error="It was stopped before it was done.")


def _follow(watches: tuple[MemoryWatch, ...], name: str) -> None:
    """The steady phase lasts from the first step, or generation, to the end of the clean run."""
    for watch in watches:
        if name in {"first_s", "generation"}:
            watch.begin()
        elif name == "memory":
            watch.end()


def _with(raw: Raw, name: str, value: Any) -> Raw:
    if name == "generation":
        return replace(raw, generations=(*raw.generations, value))
    if name == "energy":
        return replace(raw, energies=(*raw.energies, value))
    if name == "shape":
        return replace(raw, shapes=(*raw.shapes, value))
    if name == "samples":
        return replace(raw, reported=(*raw.reported, value))
    if name == "kept":
        return replace(raw, kept={**raw.kept, **value})
    fields: dict[str, Any] = {name: value}
    return replace(raw, **fields)


def _with_partial(raw: Raw) -> Raw:
    """A clean run that was cut short is a clean run of the times so far, marked as not complete."""
    if raw.clean is not None or not raw.partial_s:
        return raw
    clean = LoopSamples(
        name="forward",
        samples_s=raw.partial_s,
        warmup_s=(),
        failures=(),
        runs=len(raw.partial_s),
        discarded=0,
        settled=None,
        complete=False,
        calls=1,
        peak_memory_bytes=None,
        disturbances=(),
    )
    return replace(raw, clean=clean)


def _broken(limits: ChildLimits, tree: Tree, *, silent_s: float, spent_s: float) -> tuple[Ended, str] | None:
    if silent_s >= limits.silence_s:
        return "hung", f"It reported nothing for {format_quantity(limits.silence_s, 's')}, and was stopped."
    if limits.seconds is not None and spent_s >= limits.seconds:
        return "hung", f"It was not done after {format_quantity(limits.seconds, 's')}, and was stopped."
    if limits.memory_bytes is None:
        return None
    size = tree.nbytes()
    if size is None or size <= limits.memory_bytes:
        return None
    allowed, held = (format_quantity(number, "B") for number in (limits.memory_bytes, size))
    return "too-big", f"It held {held} of memory, {allowed} are allowed, and it was stopped."


def _crashed(raw: Raw, child: _Child) -> Raw:
    """The child ended without reporting it. A kill by the system's out-of-memory killer looks like any other."""
    child.process.wait()
    code = child.process.returncode
    if code < 0:
        import signal  # noqa: PLC0415 - only a crash asks

        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        why = " That is what the system does when it runs out of memory." if name == "SIGKILL" else ""
        return replace(raw, error=f"The engine's process was ended by {name}.{why}")
    return replace(raw, error=f"The engine's process ended by itself with exit code {code}.")


def _tail(log: Path) -> str:
    try:
        data = log.read_bytes()
    except OSError:
        return ""
    return data[-_LOG_BYTES:].decode("utf-8", "replace")

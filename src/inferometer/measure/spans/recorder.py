"""The recording side of a profiler: where spans go, what is metered, and how tasks, threads and forks are handled."""

import os
import platform
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count, repeat
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns, time_ns
from typing import Any, Protocol

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.units import format_quantity
from inferometer.known.machine.detect import LocalMachine, Machine
from inferometer.measure.spans.cuda import CudaEvents, CudaMemory, NvtxRanges, load_torch
from inferometer.measure.spans.energy import Sampler
from inferometer.measure.spans.files import SpanFile, SpanWriter
from inferometer.measure.spans.keeping import Everything, Keep, Log, Spilling, log_for
from inferometer.measure.spans.meters import PeakMeter, PythonMemory, process_memory
from inferometer.measure.spans.places import (
    Link,
    Places,
    asyncio_loaded,
    look,
    running_loop,
    running_tasks,
    when_asyncio_is_imported,
)
from inferometer.measure.spans.record import (
    Clock,
    Closed,
    Ended,
    Failure,
    Making,
    Open,
    Switched,
    in_tasks,
    methods_in_c,
    quick,
    watched,
)
from inferometer.measure.spans.recording import RecordingRun, SpanBatch, batch_of

# What is recorded besides time when enabled: asyncio tasks, memory, device events.


class Meter(Protocol):
    """Reads something at both ends of a span; what it found goes into columns by name."""

    def begin(self, span: Open) -> Any: ...

    def end(self, span: Open, state: Any) -> dict[str, float]: ...


class DeviceMarks(Protocol):
    """Marks both ends of a span on a device's own time line, without waiting for it."""

    def begin(self, span: Open) -> Any: ...

    def end(self, span: Open, state: Any) -> Any: ...


class Watcher:
    """Keeps the meters' readings at the beginning of each open span until its end. `places` is None without tasks."""

    def __init__(
        self,
        keep: Callable[[Closed], None],
        places: Places | None,
        meters: Sequence[Meter],
        device: DeviceMarks | None,
        *,
        numbers: Callable[[], int] | None = None,
    ) -> None:
        self._keep, self._places, self._meters, self._device = keep, places, tuple(meters), device
        self._numbers = numbers
        self._open: dict[int, tuple[Link | None, list[Any], Any]] = {}

    def begin(self, span: Open) -> None:
        link = None if self._places is None else self._places.enter()
        states = [meter.begin(span) for meter in self._meters] if self._meters else _NO_STATES
        mark = None if self._device is None else self._device.begin(span)
        if link is not None or states or self._device is not None:
            self._open[id(span)] = (link, states, mark)

    def end(self, span: Open, error: Failure, end_ns: int) -> None:
        number = -1 if self._numbers is None else self._numbers()
        held = self._open.pop(id(span), None) if self._open else None
        if held is None:
            self._keep(Closed(span, end_ns, number, error))
            return
        link, states, mark = held
        device = None if self._device is None else self._device.end(span, mark)
        readings: dict[str, float] = {}
        for meter, state in zip(reversed(self._meters), reversed(states), strict=True):
            readings |= meter.end(span, state)
        if link is not None and self._places is not None:
            self._places.leave(link)
        self._keep(
            Closed(
                span=span,
                end=end_ns,
                number=number,
                error=error,
                task=None if link is None else link.task,
                link=None if link is None else link.number,
                above=None if link is None or link.above is None else link.above.number,
                readings=readings or None,
                device=device,
            )
        )


_NO_STATES: list[Any] = []


# What recording a span costs, measured in the process that records: only a known overhead can be corrected for.

_SPANS, _ROUNDS = 50, 20  # short rounds: on a busy machine some of them are left in peace


def span_cost_s(
    make: Making, *, clock: Callable[[], int] = time.perf_counter_ns, spans: int = _SPANS, rounds: int = _ROUNDS
) -> float:
    """Seconds that one empty span takes, the loop around it taken off: the least of a few rounds.

    The least, because everything that disturbs makes it longer. About half of it falls inside the span itself.
    """
    with_spans = min(_timed(make, clock, spans) for _ in range(rounds))
    without = min(_timed(None, clock, spans) for _ in range(rounds))
    return max(with_spans - without, 0) / spans * 1e-9


def _timed(make: Making | None, clock: Callable[[], int], spans: int) -> int:
    begin = clock()
    if make is None:
        for _ in repeat(None, spans):
            pass
    else:
        for _ in repeat(None, spans):
            with make("cost"):
                pass
    return clock() - begin


_AT_A_TIME = 2048  # spans turned into columns together: few enough to stay in a core's cache meanwhile
_SPILL_EVERY = 8192  # spans in memory at a time, where they go to a file


@frozen
class Measure:
    """What is read beside time. Each costs something for every span; what it costs is measured and reported.

    `memory`: the process's resident memory, about 40 µs a span. `allocations`: Python's own, by tracemalloc.
    `cuda`: device time by events, about 10 µs. `cuda_memory`: what torch's allocator handed out, some 40 µs; it puts
    `torch.cuda.max_memory_allocated` back. `nvtx`: ranges for NVIDIA's tools. `power_every_s`: a thread that reads
    power, clocks, heat and use that often. `tasks`: follow asyncio tasks from the first span on; without it they are
    followed from the first span that ends in one.
    """

    memory: bool = False
    allocations: bool = False
    cuda: bool = False
    cuda_memory: bool = False
    nvtx: bool = False
    power_every_s: float | None = None
    tasks: bool = False

    def __post_init__(self) -> None:
        if self.power_every_s is not None and not self.power_every_s > 0:
            raise DomainError(f"power_every_s must be greater than 0, and is {self.power_every_s!r}.")

    def on_cuda(self) -> bool:
        return self.cuda or self.cuda_memory or self.nvtx


class SpanRecorder:
    """`changed` is called with a new `p.span` when another one must be used: when tasks appear, and after a fork."""

    def __init__(
        self, *, clock: Clock, keep: Keep, measure: Measure, file: Path | None, changed: Callable[[Making], None]
    ) -> None:
        if file is not None and not isinstance(keep, Everything):
            raise DomainError("A file holds every span: give either `file` or a bounded `keep`, not both.")
        self.clock, self.measure, self._keep, self._changed = clock, measure, keep, changed
        self._file, self.process = file, os.getpid()
        self._device: CudaEvents | None = None
        self._tracing: PythonMemory | None = None
        self._cuda_meters: list[Meter] = []
        self._meters = self._found_meters()
        self._start_anew()
        self.span_cost_s = self._own_cost()
        _recorders.add(self)
        when_asyncio_is_imported(_asyncio_comes)
        if self._sampler is not None:
            self._sampler.start()

    def _start_anew(self) -> None:
        """An empty log, and all that hangs on it. Spans that are open now will end in the old one, and are not kept."""
        self.started_ns, self.epoch_ns = self.clock(), time_ns()
        self.started_at = datetime.now(tz=UTC).isoformat(timespec="seconds")
        self._places, self._lock = Places(), threading.Lock()
        self._started: dict[int, tuple[Open, int]] = {}
        self._notes: dict[str, int] = {}
        self._remarks: list[str] = []
        self._writer: SpanWriter | None = None
        self._failure: InferometerError | None = None
        self._spilling_ns, self._finished = 0, False
        self._switches, self._awaited = 0, dict[int, int]()
        self._sampler = self._found_sampler()
        self.log: Log = log_for(self._keep) if self._file is None else Spilling(self._spill, batch=_SPILL_EVERY)
        self._following = self.measure.tasks or running_loop() is not None
        self.making = self._make(self.clock, self.log.keep, self.log.numbers, self._places)

    def _make(
        self, clock: Clock, keep: Callable[[Any], None], numbers: Callable[[], int] | None, places: Places
    ) -> Making:
        tasks = self._following or asyncio_loaded()
        if self._following or self._meters or self._device:
            watcher = Watcher(keep, places if tasks else None, self._meters, self._device, numbers=numbers)
            return watched(clock, watcher)
        if not tasks:
            return quick(clock, keep, numbers=numbers)
        running = running_tasks(self.remake)
        seen = look(running, self._seen)
        if seen is None or numbers is not None or methods_in_c() is None:
            return in_tasks(clock, keep, self._leave, running=running, numbers=numbers)
        return quick(clock, keep, look=seen)

    def remake(self) -> None:
        """Use the `p.span` that fits what is now followed and loaded."""
        self.making = self._make(self.clock, self.log.keep, self.log.numbers, self._places)
        self._changed(self.making)

    def _found_meters(self) -> list[Meter]:
        meters: list[Meter] = []
        if self.measure.memory:
            meters.append(PeakMeter(process_memory()))
        if self.measure.allocations:
            self._tracing = PythonMemory()
            meters.append(PeakMeter(self._tracing))
        if self.measure.on_cuda():
            torch = load_torch()
            self._cuda_meters += [NvtxRanges(torch)] if self.measure.nvtx else []
            self._cuda_meters += [PeakMeter(CudaMemory(torch))] if self.measure.cuda_memory else []
            if self.measure.cuda:
                self._device = CudaEvents(torch, self.clock)
        return meters + self._cuda_meters

    def _found_sampler(self, machine: Machine | None = None) -> Sampler | None:
        every = self.measure.power_every_s
        return None if every is None else Sampler(machine or LocalMachine(), self.clock, interval_s=every)

    def _own_cost(self) -> float:
        """Measured on a log that is thrown away, with everything else as it will be."""
        aside: list[Any] = []
        numbers = None if self.log.numbers is None else count().__next__
        made = self._make(perf_counter_ns, aside.append, numbers, Places())
        slow = self._following or self._meters or self._device
        cost_s = span_cost_s(made, spans=20, rounds=5) if slow else span_cost_s(made)
        if self._device is not None:
            self._device.forget()
        return cost_s

    # ── spans that end otherwise ────────────────────────────────────────────────────────────────────────────────────

    def _number(self) -> int:
        return -1 if self.log.numbers is None else self.log.numbers()

    def _leave(self, span: Open, error: Failure, end_ns: int) -> None:
        """A span that ends badly, or while a task runs; if one does in this thread, tasks are followed from now on."""
        task = self._places.task()
        self.log.keep(Closed(span=span, end=end_ns, number=self._number(), error=error, task=task))
        if task is not None:
            self._follow()

    def _seen(self) -> None:
        """A task was seen to run while a span of this thread ends. If it runs in this thread, that goes before it."""
        task = self._places.task()
        if task is not None:
            self._switches += 1
            self.log.keep(Switched(get_ident(), task))
            self._follow()

    def _follow(self) -> None:
        self._note(
            "ended in an asyncio task before tasks were followed; tasks started inside are not placed there "
            "(Measure(tasks=True) follows them from the first)"
        )
        if not self._following:
            self._following = True
            self.remake()

    def start(self, span: Open) -> Open:
        """Begin a span that another function will stop. Such overlap as they like, so each has a lane of its own."""
        with self._lock:
            taken = {lane for _, lane in self._started.values()}
            lane = next(number for number in range(-1, -len(taken) - 2, -1) if number not in taken)
            self._started[id(span)] = (span, lane)
        span.start = self.clock()
        return span

    def stop(self, wanted: Open | str, *, error: Failure = None) -> None:
        end_ns = self.clock()
        with self._lock:
            name = wanted if isinstance(wanted, str) else wanted.name
            running = [(key, span) for key, (span, _) in self._started.items()]
            key = next((key for key, span in reversed(running) if span is wanted or span.name == wanted), None)
            started = None if key is None else self._started.pop(key)
        if started is None:
            known = ", ".join(dict.fromkeys(span.name for _, span in running)) or "none"
            raise DomainError(
                f"Span {name!r} was to be stopped, and is not running. Running: {known}.",
                remedy="Begin it with `p.start(name)`; a span stops once.",
            )
        span, lane = started
        self.log.keep(Closed(span=span, end=end_ns, number=self._number(), error=error, task=lane))

    def still_running(self) -> list[str]:
        with self._lock:
            return [span.name for span, _ in self._started.values()]

    # ── what was recorded ───────────────────────────────────────────────────────────────────────────────────────────

    def batches(self, *, arrays: bool = False) -> Iterator[SpanBatch]:
        """All that is kept: what went to the file first, then what is in memory."""
        if self._writer is not None:
            yield from SpanFile.open(self._writer.path).batches()
        kept = self.log.entries()
        entries = _placed(kept, {}) if self._switches else kept
        for first in range(0, len(entries), _AT_A_TIME):
            yield self._batch(entries[first : first + _AT_A_TIME], arrays=arrays)

    def _batch(self, entries: Sequence[Any], *, arrays: bool = False) -> SpanBatch:
        if self._device is None:
            return batch_of(entries, arrays=arrays)
        return batch_of(entries, self._device.resolve([entry.device for entry in entries]), arrays=arrays)

    def header(self) -> dict[str, Any]:
        boot = LocalMachine().read("/proc/sys/kernel/random/boot_id")
        return {
            "clock": getattr(self.clock, "__name__", type(self.clock).__name__),
            "started_at": self.started_at,
            "started_ns": self.started_ns,
            "epoch_ns": self.epoch_ns,
            "process": self.process,
            "host": platform.node(),
            "boot": None if boot is None else boot.strip(),
        }

    def threads(self) -> dict[int, str]:
        """The names of the threads that live; others keep their number."""
        return {thread.ident: thread.name for thread in threading.enumerate() if thread.ident is not None}

    def run(self) -> RecordingRun:
        return RecordingRun(
            clock=self.header()["clock"],
            started_at=self.started_at,
            dropped=self.log.dropped(),
            notes=tuple(self._said()),
            span_cost_s=self.span_cost_s,
            power=None if self._sampler is None else self._sampler.power(),
        )

    def _note(self, text: str) -> None:
        self._notes[text] = self._notes.get(text, 0) + 1

    def _said(self) -> Iterator[str]:
        yield from self._remarks
        for text, times in self._notes.items():
            yield f"{times} span{'s' if times > 1 else ''} {text}."
        if running := self.still_running():
            yield f"Still running, and not counted: {', '.join(running)}."
        if self._spilling_ns:
            yield f"Writing spans to {self._file} took {self._spilling_ns * 1e-9:.3g} s of the run."
        if self._failure is not None:
            yield f"{self._failure.message} Spans that came later are not kept."
        if self._device is not None:
            uncertain = format_quantity(self._device.uncertain_ns * 1e-9, "s", digits=3)
            yield f"The device's clock is placed on the host's to ± {uncertain}."

    # ── files, forks, the end ───────────────────────────────────────────────────────────────────────────────────────

    def _spill(self, entries: list[Any]) -> int:
        """Write a batch; how many spans of it were lost. A disk that is full ends the writing, not the program."""
        begin = self.clock()
        try:
            if self._failure is not None or self._file is None or self._finished:
                return len(entries)
            if self._writer is None:
                self._writer = SpanWriter(self._file, self.header())
            self._writer.write(self._batch(_placed(entries, self._awaited)))
        except InferometerError as error:
            self._failure = error
            return len(entries)
        finally:
            self._spilling_ns += self.clock() - begin
        return 0

    def clear(self) -> None:
        """Forget what was recorded; a file begins anew."""
        if self._writer is not None:
            self._writer.abandon()
        if self._sampler is not None:
            self._sampler.stop()
        self._start_anew()
        if self._sampler is not None:
            self._sampler.start()
        self._changed(self.making)

    def close(self, last: Callable[[RecordingRun], dict[str, Any]]) -> None:
        """Stop the sensors and complete the file. What could not be written is an error now, at the latest."""
        if self._sampler is not None:
            self._sampler.stop()
        if self._tracing is not None:
            self._tracing.close()
        if isinstance(self.log, Spilling):
            self.log.flush()
        if self._file is not None and self._failure is None and not self._finished:
            if self._writer is None:
                self._writer = SpanWriter(self._file, self.header())
            threads = {str(ident): name for ident, name in self.threads().items()}
            self._writer.finish({**last(self.run()), "threads": threads})
            self._finished = True
        if self._failure is not None:
            if self._writer is not None:
                self._writer.abandon()
            raise self._failure

    def forked(self) -> None:
        """In a child process: an empty log, and a file of its own beside the parent's."""
        self.process = os.getpid()
        without_cuda = [meter for meter in self._meters if meter not in self._cuda_meters]
        lost = self._device is not None or len(without_cuda) < len(self._meters)
        self._meters, self._device = without_cuda, None
        if self._file is not None:
            self._file = self._file.with_name(f"{self._file.stem}.{self.process}{self._file.suffix}")
        self._start_anew()
        if lost:
            self._remarks.append("This process was forked from one that uses CUDA, and cannot: no device is measured.")
        if self._sampler is not None:
            self._sampler.start()
        self._changed(self.making)


def _placed(entries: Sequence[Any], awaited: dict[int, int]) -> Sequence[Any]:
    """Entries without the words on tasks, which go to the spans they are about; `awaited` are those still to come."""
    if not awaited and not any(type(entry) is Switched for entry in entries):
        return entries
    placed: list[Any] = []
    for entry in entries:
        if type(entry) is Switched:
            awaited[entry.thread] = entry.task
        elif isinstance(entry, Ended) and (task := awaited.pop(entry.span.thread, None)) is not None:
            ended: Any = entry
            placed.append(Closed(span=ended.span, end=ended.end, error=ended.error, task=task))
        else:
            placed.append(entry)
    return placed


_recorders: "weakref.WeakSet[SpanRecorder]" = weakref.WeakSet()


def _asyncio_comes() -> None:
    for recorder in list(_recorders):
        recorder.remake()


def _after_fork() -> None:
    for recorder in list(_recorders):
        recorder.forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_after_fork)

"""The profiler: spans around your own code, and the reports, statistics and files made of them."""

import functools
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast

from inferometer.core import settings
from inferometer.core.cache import write_asked_for
from inferometer.core.errors import UnknownNameError
from inferometer.core.lazy import late
from inferometer.core.trace import Trace
from inferometer.measure.spans.build import build
from inferometer.measure.spans.files import run_facts, write_batches
from inferometer.measure.spans.keeping import Everything, Keep
from inferometer.measure.spans.record import NOTE, SEGMENT, Clock, Making, Open, nothing
from inferometer.measure.spans.recorder import Measure, SpanRecorder
from inferometer.measure.spans.recording import NUMBERS, Recording, RecordingRun, SpanBatch
from inferometer.measure.spans.span_stats import SpanStats, stats

# Functions with a span around every call: plain, async, generators and async generators.
#
# A generator's span is opened anew each time it runs: what its consumer does between two items is not its time.

F = TypeVar("F", bound=Callable[..., Any])


def wrap(function: F, opened: Callable[[], AbstractContextManager[Any]]) -> F:
    """`opened` makes the span; it is asked at every call, so that switching the profiler on and off is seen."""
    if inspect.isasyncgenfunction(function):
        wrapped: Callable[..., Any] = _async_generator(function, opened)
    elif inspect.isgeneratorfunction(function):
        wrapped = _generator(function, opened)
    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            with opened():
                return await function(*args, **kwargs)
    else:

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with opened():
                return function(*args, **kwargs)

    return cast("F", wrapped)


def _generator(
    function: Callable[..., Generator[Any, Any, Any]], opened: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., Generator[Any, Any, Any]]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        inner = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, inner)
        while True:
            with opened():
                item, ended = _stepped(step)
            if ended:
                return item
            try:
                sent = yield item
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:  # noqa: BLE001 - whatever is thrown in goes to the generator itself
                step = functools.partial(inner.throw, error)
            else:
                step = functools.partial(inner.send, sent)

    return wrapped


def _stepped(step: Callable[[], Any]) -> tuple[Any, bool]:
    """An item, or what the generator returned: its end is no error, and must not mark the span as failed."""
    try:
        return step(), False
    except StopIteration as stop:
        return stop.value, True


def _async_generator(
    function: Callable[..., AsyncGenerator[Any, Any]], opened: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(inner.asend, None)
        try:
            while True:
                with opened():
                    item, ended = await _async_stepped(step)
                if ended:
                    return
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - whatever is thrown in goes to the generator itself
                    step = functools.partial(inner.athrow, error)
                else:
                    step = functools.partial(inner.asend, sent)
        finally:
            await inner.aclose()

    return wrapped


async def _async_stepped(step: Callable[[], Any]) -> tuple[Any, bool]:
    try:
        return await step(), False
    except StopAsyncIteration:
        return None, True


# As `late` finds them: a program that only records loads no renderer.
EXPORTS: dict[str, str] = {
    ".speedscope.json": "traces:speedscope",
    ".stats.json": "spans_page:statistics_document",
    ".json": "traces:chrome",
    ".folded": "traces:folded",
    ".csv": "spans_page:csv_rows",
    ".md": "spans_page:markdown",
    ".txt": "spans_page:text",
    ".html": "spans_page:page",
    ".svg": "drawing:drawn",
}
_REPORT = "spans_page:report"
_DATAFLOW = "dataflow:dataflow"


class ShownFlow(Protocol):
    """What `dataflow()` gives: `inferometer.understand.view.dataflow.Dataflow`."""

    def text(self) -> str: ...

    def svg(self) -> str: ...


class Profiler:
    """Records spans. `with p.span("forward", unit="gpu", layer=3):` costs less than three readings of the clock pair.

    `span` takes a name and, as keywords, `unit` (cpu, gpu, npu …), `layer`, `token`, `flops`, `bytes`, `tokens`,
    `phase`, `kind` and `context` (tokens in the cache before it). Look it up each time (`p.span(…)`): it is another
    object when the profiler is switched off.
    One profiler serves all threads and tasks of a process; after a fork the child has its own, empty one.
    """

    span: Making

    def __init__(
        self,
        *,
        enabled: bool | None = None,
        keep: Keep | None = None,
        measure: Measure | None = None,
        file: str | Path | None = None,
        clock: Clock = time.perf_counter_ns,
    ) -> None:
        self._options = (clock, keep or Everything(), measure or Measure(), None if file is None else Path(file))
        self._recorder: SpanRecorder | None = None
        self._built: tuple[object, Recording] | None = None
        self.span = nothing
        self.enabled = settings.profiling() if enabled is None else enabled

    @property
    def enabled(self) -> bool:
        return self.span is not nothing

    @enabled.setter
    def enabled(self, wanted: bool) -> None:
        if not wanted:
            self.span = nothing
            return
        if self._recorder is None:
            clock, keep, measure, file = self._options
            self._recorder = SpanRecorder(clock=clock, keep=keep, measure=measure, file=file, changed=self._use)
        self.span = self._recorder.making

    def _use(self, making: Making) -> None:
        if self.enabled:
            self.span = making

    # ── recording ───────────────────────────────────────────────────────────────────────────────────────────────────

    def segment(self, name: str, *, bytes: float | None = None) -> AbstractContextManager[Any]:  # noqa: A002 - the quantity
        """A part of the span around it, such as `write`, `run` and `read` of one accelerator call."""
        return self.span(name, bytes=bytes, kind=SEGMENT)

    def note(self, **facts: float) -> None:
        """Add facts that are known only now (`tokens`, `context`, `bytes`, `flops` …) to the span around this."""
        unknown = facts.keys() - set(NUMBERS)
        if unknown:
            raise UnknownNameError("fact of a span", min(unknown), NUMBERS)
        with self.span("", kind=NOTE, **facts):  # type: ignore[arg-type] # counts may come as floats
            pass

    def start(self, name: str, **facts: Any) -> Open | None:
        """Begin a span that another function will `stop`, perhaps in another thread. None while switched off."""
        if not self.enabled or self._recorder is None:
            return None
        return self._recorder.start(Open(name, **facts))

    def stop(self, span: Open | str | None, *, error: type[BaseException] | None = None) -> None:
        """End what `start` began: what it returned, or the name, which ends the latest of that name."""
        if span is None or self._recorder is None:
            return
        if self.enabled or not isinstance(span, str) or span in self._recorder.still_running():
            self._recorder.stop(span, error=error)

    def wrap(self, function: F | None = None, *, name: str | None = None, **facts: Any) -> Any:
        """A decorator: a span around every call. `@p.wrap`, or `@p.wrap(name="forward", unit="gpu")`.

        Async functions are timed until they return; a generator each time it runs, not while its consumer does.
        """
        if function is None:
            return lambda wrapped: self.wrap(wrapped, name=name, **facts)
        title = name or str(getattr(function, "__qualname__", repr(function)))
        return wrap(function, lambda: self.span(title, **facts))

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def recording(self) -> Recording:
        """Every span that has ended, as columns, with the tree found."""
        if self._recorder is None:
            return build([])
        run = self._recorder.run()
        key = (self._recorder.started_ns, self._recorder.log.mark(), run.dropped, run.notes)
        if self._built is None or self._built[0] != key or run.power is not None:
            batches, process = self._recorder.batches(arrays=True), self._recorder.process
            self._built = (key, build(batches, run=run, titles=self._titles(), process=process))
        return self._built[1]

    def batches(self) -> Iterator[SpanBatch]:
        """The recorded facts a batch at a time: a long run need not fit in memory."""
        return iter(()) if self._recorder is None else self._recorder.batches()

    def _titles(self) -> dict[tuple[int, int], str]:
        if self._recorder is None:
            return {}
        return {(self._recorder.process, ident): name for ident, name in self._recorder.threads().items()}

    def stats(self, name: str) -> SpanStats:
        return stats(self.recording(), name)

    def trace(self) -> Trace:
        return self.recording().trace()

    def report(self, style: str = "full") -> str:
        """The profile as text: `full` (tree, phases, statistics, time line), or `operations`, a block for each name."""
        return str(_named(_REPORT)(self.recording(), style))

    def dataflow(self) -> ShownFlow:
        """The run from end to end: rows in order, repeated blocks folded, the time by unit, layer, call and token."""
        made: ShownFlow = _named(_DATAFLOW)(self.recording())
        return made

    # ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def export(self, path: str | Path) -> Path:
        """Write what the suffix asks for; see `EXPORTS`. A trace of any length is written as it is read."""
        target = Path(path)
        if _suffix(target) == ".json":
            run, process = (
                (RecordingRun(), 0) if self._recorder is None else (self._recorder.run(), self._recorder.process)
            )
            chrome = _named(EXPORTS[".json"])
            write_asked_for(target, chrome(self.batches(), run=run, titles=self._titles(), process=process))
            return target
        return export(self.recording(), target)

    def save(self, path: str | Path) -> Path:
        """Keep the recording itself, to `load` or `merge` later."""
        target = Path(path)
        recorder = self._recorder
        header = {} if recorder is None else recorder.header()
        run, threads = (RecordingRun(), {}) if recorder is None else (recorder.run(), recorder.threads())
        last = {**run_facts(run), "threads": {str(ident): name for ident, name in threads.items()}}
        write_batches(target, header, self.batches(), last)
        return target

    def clear(self) -> None:
        """Forget everything recorded so far."""
        if self._recorder is not None:
            self._recorder.clear()
        self._built = None

    def close(self) -> None:
        """Stop the sensors and complete the file, if there are any. What was recorded can still be read."""
        self.enabled = False
        if self._recorder is not None:
            self._recorder.close(run_facts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def export(recording: Recording, path: str | Path) -> Path:
    """Write a recording (a loaded or merged one, say) as what the suffix asks for; see `EXPORTS`."""
    target = Path(path)
    write_asked_for(target, _named(EXPORTS[_suffix(target)])(recording))
    return target


def _suffix(path: Path) -> str:
    for suffix in EXPORTS:
        if path.name.endswith(suffix):
            return suffix
    raise UnknownNameError("export", path.name, (), listing=f"The name must end in one of {', '.join(EXPORTS)}.")


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return late(module, name)

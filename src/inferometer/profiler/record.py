"""The hot path: what happens when a span begins and ends. Everything else is computed later, from what this leaves.

Why it looks as it does. The budget of a recorded span is three times a bare pair of clock readings, and a call of a
Python function costs half a pair. So no Python code runs when a span begins: `p.span(…)` makes a msgspec struct, whose
facts, thread and start time are filled in by C. When it ends, one small method appends one object to one list. The
structs are kept from the garbage collector (`gc=False`): they hold names and numbers, and no cycles.
"""
# ruff: noqa: PLR0913, PLR0917, ARG001 - `p.span` takes a span's facts in one call, and switched off uses none

import gc
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any, ClassVar, Protocol

import msgspec

__all__ = [
    "NOTE",
    "NOTHING",
    "SEGMENT",
    "Clock",
    "Closed",
    "Ended",
    "Making",
    "Open",
    "Watching",
    "nothing",
    "quick",
    "running_tasks",
    "watched",
]

Clock = Callable[[], int]
Failure = type[BaseException] | None

SEGMENT = "segment"  # the kind of a part of a span (write, run, read)
NOTE = "note"  # the kind of a record that adds facts to the span around it


class Making(Protocol):
    """`p.span`: makes what a `with` takes. A recording and a switched-off profiler have different ones."""

    def __call__(
        self,
        name: str,
        unit: str | None = None,
        layer: int | None = None,
        token: int | None = None,
        flops: float | None = None,
        bytes: float | None = None,  # noqa: A002 - the quantity's name
        tokens: int | None = None,
        phase: str | None = None,
        kind: str | None = None,
    ) -> AbstractContextManager[Any]: ...


class Open(msgspec.Struct, gc=False):
    """A span that has begun: the facts it was given, and where and when it began."""

    name: str
    unit: str | None = None
    layer: int | None = None
    token: int | None = None
    flops: float | None = None
    bytes: float | None = None
    tokens: int | None = None
    phase: str | None = None
    kind: str | None = None
    thread: int = msgspec.field(default_factory=get_ident)
    start: int = 0


class Ended(msgspec.Struct, gc=False):
    """A span that ended as spans do: without an error and outside any asyncio task."""

    span: Open
    end: int

    number: ClassVar[int] = -1
    failed: ClassVar[bool] = False
    task: ClassVar[int | None] = None
    link: ClassVar[int | None] = None
    above: ClassVar[int | None] = None
    readings: ClassVar[dict[str, float] | None] = None
    device: ClassVar[Any] = None


class Closed(msgspec.Struct, gc=False):
    """A span with more to say about its end.

    `link` is its number among the spans of tasks and `above` its parent's; `readings` are memory figures by column;
    `device` is a pair of device events.
    """

    span: Open
    end: int
    number: int = -1
    failed: bool = False
    task: int | None = None
    link: int | None = None
    above: int | None = None
    readings: dict[str, float] | None = None
    device: Any = None


class _RunningLoop:
    """True while an event loop runs in this thread: for Pythons that keep no table of running tasks."""

    __slots__ = ()

    def __bool__(self) -> bool:
        import asyncio  # noqa: PLC0415 - only where a span asks

        return asyncio._get_running_loop() is not None  # noqa: SLF001 - documented for libraries


def running_tasks() -> Any:
    """What is true while an asyncio task runs: asyncio's own table of them, empty in synchronous code.

    To look at it costs five nanoseconds; to ask asyncio for the running loop costs forty.
    """
    import asyncio.tasks  # noqa: PLC0415 - takes 30 ms, which only a profiler should pay

    return getattr(asyncio.tasks, "_current_tasks", None) if sys.version_info < (3, 14) else _RunningLoop()


def quick(
    clock: Clock,
    keep: Callable[[Any], None],
    leave: Callable[[Open, Failure, int], None],
    *,
    numbers: Callable[[], int] | None = None,
) -> Making:
    """The class behind `p.span` where nothing but time is recorded.

    `leave` takes over where a span ends with an error, or while a task runs. `numbers` counts the spans that ended,
    for keepers that let some go.
    """
    running = running_tasks()
    end_fields = {"end": (int, msgspec.field(default_factory=clock))}
    if numbers is not None:
        end_fields["number"] = (int, msgspec.field(default_factory=numbers))
    end = msgspec.defstruct("End", [(name, *rest) for name, rest in end_fields.items()], bases=(Ended,), gc=False)

    class Quick(Open, gc=False):
        start: int = msgspec.field(default_factory=clock)

        # A C function without arguments, since `with` must call something: its answer is thrown away.
        __enter__ = gc.isenabled

        def __exit__(self, kind: type[BaseException] | None, error: object, trace: object, /) -> None:
            if kind is None and not running:
                keep(end(self))
            else:
                leave(self, kind, clock())

    return Quick


class Watching(Protocol):
    """Told of every beginning and end: memory meters, device events, the place among tasks."""

    def begin(self, span: Open) -> None: ...

    def end(self, span: Open, kind: Failure, end_ns: int) -> None: ...


def watched(clock: Clock, watch: Watching) -> Making:
    """The class behind `p.span` where more than time is recorded.

    The start is read after the watcher has begun, and the end before it ends: its work is outside the span.
    """
    begin, finish = watch.begin, watch.end

    class Watched(Open, gc=False):
        def __enter__(self) -> None:
            begin(self)
            self.start = clock()

        def __exit__(self, kind: type[BaseException] | None, error: object, trace: object, /) -> None:
            finish(self, kind, clock())

    return Watched


class Nothing:
    """The span of a profiler that is switched off: cheaper than two readings of the clock."""

    __slots__ = ()

    __enter__ = gc.isenabled

    @staticmethod
    def __exit__(kind: object, error: object, trace: object, /) -> None:  # noqa: PYI036 - without self it is cheaper
        pass


NOTHING = Nothing()


def nothing(
    name: str,
    unit: str | None = None,
    layer: int | None = None,
    token: int | None = None,
    flops: float | None = None,
    bytes: float | None = None,  # noqa: A002 - the quantity's name
    tokens: int | None = None,
    phase: str | None = None,
    kind: str | None = None,
) -> AbstractContextManager[Any]:
    """`p.span` of a profiler that is switched off."""
    return NOTHING

"""The hot path: what happens when a span begins and ends. Everything else is computed later, from this record.

Why it looks as it does. The budget of a recorded span is three times a bare pair of clock readings, and to enter a
Python function costs half a pair. So no Python code runs: `p.span(…)` makes a msgspec struct, whose facts, thread and
start time are filled in by C, and when it ends another struct is made, whose making puts it into the log. They are
kept from the garbage collector (`gc=False`): they hold names and numbers, and no cycles.

Once asyncio has been imported an ending span must also look whether a task runs. See `places.look` for how C does it;
where it cannot, a small Python method looks.
"""
# ruff: noqa: PLR0913, PLR0917, ARG001 - `p.span` takes a span's facts in one call, and switched off uses none

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from threading import get_ident
from typing import Any, ClassVar, Protocol

import msgspec

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
        context: int | None = None,
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
    context: int | None = None
    thread: int = msgspec.field(default_factory=get_ident)
    start: int = 0


class Ended(msgspec.Struct, gc=False):
    """A span that ended outside any asyncio task. It also has `end`, and `error`, which is None where it ended well."""

    span: Open

    number: ClassVar[int] = -1
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
    error: Failure = None
    task: int | None = None
    link: int | None = None
    above: int | None = None
    readings: dict[str, float] | None = None
    device: Any = None


class Switched(msgspec.Struct, gc=False):
    """No span, but a word on the next one that ends in this thread: it ends in this task."""

    thread: int
    task: int


def _ending(
    clock: Clock,
    keep: Callable[[Any], None],
    numbers: Callable[[], int] | None,
    *given: str,
    look: Callable[[], None] | None = None,
    **more: Any,
) -> Callable[..., Any]:
    """Ended spans that are kept by being made: msgspec calls `__post_init__` with each one.

    After the span itself they take what is `given`; `more` is what all of them have in common.
    """
    fields: list[Any] = [*((name, Any, None) for name in given), ("end", int, msgspec.field(default_factory=clock))]
    if numbers is not None:
        fields.append(("number", int, msgspec.field(default_factory=numbers)))
    if look is not None:
        fields.append(("looked", None, msgspec.field(default_factory=look)))
    return msgspec.defstruct("End", fields, bases=(Ended,), gc=False, namespace={"__post_init__": keep, **more})


def _goes_on(ended: Any) -> bool:
    """The answer of `__exit__` is asked whether it is true, and the error forgotten, only after an error: no.

    What went wrong is let go of: it holds on to all that the failed function had.
    """
    ended.value = ended.trace = None
    return False


@cache
def methods_in_c() -> Callable[[Any], Any] | None:
    """What makes anything callable a method, which gets the instance first, without Python code in between.

    Python's own functions are methods by themselves; a class, such as a struct, is not. None where C cannot be asked.
    """
    try:
        import ctypes  # noqa: PLC0415 - not in every Python

        return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(("PyInstanceMethod_New", ctypes.pythonapi))
    except (ImportError, AttributeError):
        return None


def quick(
    clock: Clock,
    keep: Callable[[Any], None],
    *,
    numbers: Callable[[], int] | None = None,
    look: Callable[[], None] | None = None,
) -> Making:
    """The class behind `p.span` where nothing but time is recorded.

    `numbers` counts the spans that ended, for keepers that let some go. `look` is called as a span ends.
    """
    end = _ending(clock, keep, numbers, "error", "value", "trace", look=look, __bool__=_goes_on)
    method = methods_in_c()

    def leave(self: Open, error: Failure, value: object, trace: object, /) -> None:
        end(self, error)

    class Quick(Open, gc=False):
        start: int = msgspec.field(default_factory=clock)

        __enter__ = bool  # `with` must call something, and an ExitStack gives it the span: C, and without effect
        __exit__ = leave if method is None else method(end)

    return Quick


def in_tasks(
    clock: Clock,
    keep: Callable[[Any], None],
    leave: Callable[[Open, Failure, int], None],
    *,
    running: object,
    numbers: Callable[[], int] | None = None,
) -> Making:
    """The same with Python's own look for tasks: `leave` takes over where a span ends badly, or `running` is true."""
    end = _ending(clock, keep, numbers, error=None)

    class Quick(Open, gc=False):
        start: int = msgspec.field(default_factory=clock)

        __enter__ = bool

        def __exit__(self, error: Failure, value: object, trace: object, /) -> None:  # noqa: PYI036 - a type, or None
            if error is None and not running:
                end(self)
            else:
                leave(self, error, clock())

    return Quick


class Watching(Protocol):
    """Told of every beginning and end: memory meters, device events, the place among tasks."""

    def begin(self, span: Open) -> None: ...

    def end(self, span: Open, error: Failure, end_ns: int) -> None: ...


def watched(clock: Clock, watch: Watching) -> Making:
    """The class behind `p.span` where more than time is recorded.

    The start is read after the watcher has begun, and the end before it ends: its work is outside the span.
    """
    begin, finish = watch.begin, watch.end

    class Watched(Open, gc=False):
        def __enter__(self) -> None:
            begin(self)
            self.start = clock()

        def __exit__(self, error: Failure, value: object, trace: object, /) -> None:  # noqa: PYI036 - a type, or None
            finish(self, error, clock())

    return Watched


class Nothing:
    """The span of a profiler that is switched off: cheaper than two readings of the clock."""

    __slots__ = ()

    __enter__ = bool

    @staticmethod  # without self it is cheaper; an ExitStack gives one more
    def __exit__(error: object, value: object, trace: object, more: object = None, /) -> None:
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
    context: int | None = None,
) -> AbstractContextManager[Any]:
    """`p.span` of a profiler that is switched off."""
    return NOTHING

"""Which asyncio task a span ran in, and which span started that task.

A task copies the context it was created in. A span that begins in a task leaves a `Link` in the context, so that the
spans of tasks (and of threads by `asyncio.to_thread`) which are started inside it find it as their parent.

asyncio is never imported here: as long as the program has not done so, it has no tasks.
"""

import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary


def asyncio_loaded() -> bool:
    """Whether there may be tasks: also while the import is under way."""
    return "asyncio" in sys.modules or _finder.asked


def running_loop() -> Any:
    """The event loop that runs in this thread, or None."""
    events = sys.modules.get("asyncio.events")
    ask = getattr(events, "_get_running_loop", None)  # documented for libraries; never raises
    return None if ask is None else ask()


class _Asking:
    """True while an event loop runs in this thread: for Pythons that keep no table of running tasks."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return running_loop() is not None


class _Importing:
    """asyncio while it is being imported. Once it is there, `ready` is called, and switches to a quicker check."""

    __slots__ = ("_ready",)

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready

    def __bool__(self) -> bool:
        if hasattr(sys.modules.get("asyncio"), "current_task"):
            self._ready()
        return running_loop() is not None


def running_tasks(ready: Callable[[], None]) -> object:
    """What is true while an asyncio task runs: asyncio's own table of them, empty in synchronous code.

    To look at it costs five nanoseconds; to ask asyncio for the running loop costs forty. `ready` is called when there
    is something quicker to look at than what this gave.
    """
    if not hasattr(sys.modules.get("asyncio"), "current_task"):
        return _Importing(ready)
    table: object = getattr(sys.modules["asyncio.tasks"], "_current_tasks", None)
    return _Asking() if sys.version_info >= (3, 14) or table is None else table


class _Asked:
    """A key that is in no table, and calls back when a table asks for its hash."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        self._tell()
        return 0


def look(running: object, tell: Callable[[], None]) -> Callable[[], None] | None:
    """A look for running tasks that is all C unless there are some: then `tell` is called.

    The table of running tasks is asked to give up a key that it does not have. An empty table says so at once; one that
    holds something first asks the key for its hash, which is where Python comes in. Nothing is taken from the table.
    None where asyncio keeps no table.
    """
    return partial(running.pop, _Asked(tell), None) if type(running) is dict else None


class _Finder:
    """Finds no module, but notices the first import of asyncio."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] | None = None
        self.asked = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002 - a finder's
        if name == "asyncio" and not self.asked:
            self.asked = True
            sys.meta_path.remove(self)
            if self.tell is not None:
                self.tell()


_finder = _Finder()


def when_asyncio_is_imported(tell: Callable[[], None]) -> None:
    """Call this once, when the import begins. Nothing happens where it has been imported."""
    _finder.tell = tell
    if not asyncio_loaded() and _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


@dataclass(frozen=True, slots=True)
class Link:
    number: int
    above: "Link | None"
    task: int | None


class Places:
    def __init__(self) -> None:
        self._here: ContextVar[Link | None] = ContextVar("inferometer_span", default=None)
        self._numbers = count(1)
        self._tasks: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # a task's id() is used again after its end

    def task(self) -> int | None:
        """The number of the task that runs in this thread."""
        loop = running_loop()
        task = None if loop is None else sys.modules["asyncio"].current_task(loop)
        if task is None:
            return None
        number = self._tasks.get(task)
        if number is None:
            number = self._tasks[task] = next(self._numbers)
        return number

    def enter(self) -> Link | None:
        """A link for a span that begins here; None in synchronous code that no task handed on to."""
        above, task = self._here.get(), self.task()
        if above is None and task is None:
            return None  # no loop, or a callback of one: it runs to its end, as synchronous code does
        link = Link(next(self._numbers), above, task)
        self._here.set(link)
        return link

    def leave(self, link: Link) -> None:
        """Spans of one context end in the order of a stack; one that a generator ends elsewhere changes nothing."""
        if self._here.get() is link:
            self._here.set(link.above)

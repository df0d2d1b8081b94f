"""Where a span stands among asyncio tasks: which task it ran in, and which span started that task.

A task copies the context it was created in. A span that begins in a task leaves a `Link` in the context, so that the
spans of tasks (and of threads by `asyncio.to_thread`) which are started inside it find it as their parent.
"""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["Link", "Places"]

_running_loop = asyncio._get_running_loop  # noqa: SLF001 - documented for libraries; never raises


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
        loop = _running_loop()
        task = None if loop is None else asyncio.current_task(loop)
        if task is None:
            return None
        number = self._tasks.get(task)
        if number is None:
            number = self._tasks[task] = next(self._numbers)
        return number

    def enter(self) -> Link | None:
        """A link for a span that begins here; None in synchronous code that no task handed on to."""
        above = self._here.get()
        if above is None and _running_loop() is None:
            return None
        task = self.task()
        if above is None and task is None:
            return None  # a callback of the loop: it runs to its end, as synchronous code does
        link = Link(next(self._numbers), above, task)
        self._here.set(link)
        return link

    def leave(self, link: Link) -> None:
        """Spans of one context end in the order of a stack; one that a generator ends elsewhere changes nothing."""
        if self._here.get() is link:
            self._here.set(link.above)

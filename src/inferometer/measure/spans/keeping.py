"""How many spans are kept: all, the last ones, or an even sample. Dropped spans are counted."""

import random
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen


@frozen
class Everything:
    """Every span. A million of them take about 300 MB.

    Memory for the first `reserve` spans is touched at the start: otherwise the system hands it out page by page while
    spans are being timed, which on some machines costs as much as the recording itself.
    """

    reserve: int = 32_768

    def __post_init__(self) -> None:
        if type(self.reserve) is not int or self.reserve < 0:
            raise DomainError(f"A whole number of spans can be reserved for, and {self.reserve!r} was asked for.")


@frozen
class Ring:
    """The last `spans` spans."""

    spans: int

    def __post_init__(self) -> None:
        _require_room(self.spans)


@frozen
class Reservoir:
    """An even sample of `spans` spans of the whole run: each that ended is as likely to be in it as any other."""

    spans: int
    seed: int = 0

    def __post_init__(self) -> None:
        _require_room(self.spans)


Keep = Everything | Ring | Reservoir


class Log(Protocol):
    """Where ended spans go. `keep` takes one; `numbers` is what a span must draw its number from, if it needs one."""

    keep: Callable[[Any], None]
    numbers: Callable[[], int] | None

    def entries(self) -> list[Any]:
        """What is kept, in the order the spans ended."""

    def mark(self) -> object:
        """Something that is equal as long as nothing new has come."""

    def dropped(self) -> int: ...

    def clear(self) -> None: ...


_SPAN_BYTES = 296  # two structs, three whole numbers and a place in a list
_BLOCK = 512  # the largest object that Python's own allocator serves
_PIN_EVERY = 1024  # one of so many blocks is held, or the allocator would give the memory back at once


class _All:
    def __init__(self, reserve: int) -> None:
        self._entries: list[Any] = []
        # Make the allocator own room for so many spans; what is returned keeps it from giving the room back.
        held = [bytes(_BLOCK - 33) for _ in range(reserve * _SPAN_BYTES // _BLOCK)]
        self._pins = held[::_PIN_EVERY]
        self.keep: Callable[[Any], None] = self._entries.append  # atomic: threads share it without a lock
        self.numbers: Callable[[], int] | None = None

    def entries(self) -> list[Any]:
        return self._entries[:]

    def mark(self) -> object:
        return len(self._entries)

    def dropped(self) -> int:
        return 0

    def clear(self) -> None:
        self._entries.clear()


class _Last:
    def __init__(self, room: int) -> None:
        self._entries: deque[Any] = deque(maxlen=room)
        self.keep: Callable[[Any], None] = self._entries.append
        self._counter = count()
        self.numbers: Callable[[], int] | None = self._counter.__next__
        self._first = 0

    def entries(self) -> list[Any]:
        return list(self._entries)

    def mark(self) -> object:
        return (len(self._entries), self._entries[-1].number if self._entries else -1)

    def dropped(self) -> int:
        """Numbers are drawn in order; what was drawn and is not here has been pushed out."""
        kept = self.entries()
        return 0 if not kept else max(entry.number for entry in kept) + 1 - self._first - len(kept)

    def clear(self) -> None:
        self._entries.clear()
        self._first = next(self._counter) + 1


class _Sample:
    """Vitter's algorithm R: entry n replaces a kept one with chance room/n."""

    def __init__(self, room: int, seed: int) -> None:
        self._entries: list[Any] = []
        self._room, self._seen = room, 0
        self._random = random.Random(seed)  # noqa: S311 - an even sample, not a secret
        self._lock = threading.Lock()
        self.numbers: Callable[[], int] | None = count().__next__
        self.keep: Callable[[Any], None] = self._keep

    def _keep(self, entry: Any) -> None:
        with self._lock:
            self._seen += 1
            if len(self._entries) < self._room:
                self._entries.append(entry)
            elif (place := self._random.randrange(self._seen)) < self._room:
                self._entries[place] = entry

    def entries(self) -> list[Any]:
        with self._lock:
            return sorted(self._entries, key=lambda entry: int(entry.number))

    def mark(self) -> object:
        return self._seen

    def dropped(self) -> int:
        return self._seen - len(self._entries)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._seen = 0


class Spilling:
    """Every span, handed on in batches, so that a run of any length fits in memory.

    `spill` gets each batch in the thread that filled it; the time this takes is inside whatever span is then open.
    """

    def __init__(self, spill: Callable[[list[Any]], int], *, batch: int) -> None:
        self._entries: list[Any] = []
        self._spill, self._batch, self._lost, self._spilled = spill, batch, 0, 0
        self._lock = threading.RLock()
        self.numbers: Callable[[], int] | None = None
        self.keep: Callable[[Any], None] = self._keep

    def _keep(self, entry: Any) -> None:
        self._entries.append(entry)
        if len(self._entries) >= self._batch:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            size = len(self._entries)
            batch = self._entries[:size]
            del self._entries[:size]  # what other threads append meanwhile stands behind
            self._spilled += size
            self._lost += self._spill(batch) if batch else 0

    def entries(self) -> list[Any]:
        return self._entries[:]

    def mark(self) -> object:
        return (self._spilled, len(self._entries))

    def dropped(self) -> int:
        return self._lost

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


def log_for(keep: Keep) -> Log:
    if isinstance(keep, Ring):
        return _Last(keep.spans)
    if isinstance(keep, Reservoir):
        return _Sample(keep.spans, keep.seed)
    return _All(keep.reserve)


def _require_room(spans: int) -> None:
    if type(spans) is not int or spans < 1:
        raise DomainError(f"Room for a whole number of 1 or more spans can be kept, and {spans!r} was asked for.")

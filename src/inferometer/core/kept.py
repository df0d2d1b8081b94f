"""Values that take long to make and are asked for again: kept, each made once, by any number of threads."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class _Entry:
    """A value, or the place of one that is being made, with what it is made of."""

    __slots__ = ("lock", "made", "parts", "value", "weight")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts, self.lock = parts, Lock()
        self.made, self.weight = False, 1
        self.value: Any = None


class Kept:
    """The last values made. A key may hold identities (`id`), so an entry also keeps the `parts` they are of.

    The first part counts by identity, since it is large, the others by value: a key that fits by chance does not.
    `most` is how many values are kept or, with `weigh`, how much they may weigh together.
    """

    def __init__(self, most: int = 256, weigh: Callable[[Any], int] | None = None) -> None:
        self._most, self._weigh, self._lock = most, weigh, Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_make(self, key: Hashable, parts: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Who comes while another thread makes the value waits for it; others are not held up."""
        entry = self._entry(key, parts)
        if not entry.made:
            with entry.lock:
                if not entry.made:
                    entry.value = make()
                    self._weighed(key, entry)
                    entry.made = True
        found: T = entry.value
        return found

    def _entry(self, key: Hashable, parts: tuple[Any, ...]) -> _Entry:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not _same(entry.parts, parts):
                self._weight += 1 if entry is None else 1 - entry.weight
                entry = self._entries[key] = _Entry(parts)
                self._drop()
            self._entries.move_to_end(key)
            return entry

    def _weighed(self, key: Hashable, entry: _Entry) -> None:
        if self._weigh is not None:
            with self._lock:
                if self._entries.get(key) is entry:  # and not dropped while it was made
                    weight = self._weigh(entry.value)
                    self._weight += weight - entry.weight
                    entry.weight = weight
                    self._drop()

    def _drop(self) -> None:
        """The oldest first; the newest stays, whatever it weighs."""
        while self._weight > self._most and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self._weight -= oldest.weight


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return one[0] is other[0] and all(a is b or a == b for a, b in zip(one[1:], other[1:], strict=True))

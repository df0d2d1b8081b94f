"""Values that take long to make and are asked for again: kept, each made once, by any number of threads."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["Kept"]

T = TypeVar("T")


class _Entry:
    """A value, or the place of one that is being made, with what it is made of."""

    __slots__ = ("lock", "made", "parts", "value")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts, self.lock = parts, Lock()
        self.made = False
        self.value: Any = None


class Kept:
    """The last values made. A key may hold identities (`id`), so an entry also keeps the `parts` they are of.

    The first part counts by identity, since it is large, the others by value: a key that fits by chance does not.
    """

    def __init__(self, most: int = 256) -> None:
        self._most, self._lock = most, Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_make(self, key: Hashable, parts: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Who comes while another thread makes the value waits for it; others are not held up."""
        entry = self._entry(key, parts)
        if not entry.made:
            with entry.lock:
                if not entry.made:
                    entry.value, entry.made = make(), True
        found: T = entry.value
        return found

    def _entry(self, key: Hashable, parts: tuple[Any, ...]) -> _Entry:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not _same(entry.parts, parts):
                entry = self._entries[key] = _Entry(parts)
            self._entries.move_to_end(key)
            if len(self._entries) > self._most:
                self._entries.popitem(last=False)
            return entry


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return one[0] is other[0] and all(a is b or a == b for a, b in zip(one[1:], other[1:], strict=True))

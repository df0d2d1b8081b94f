"""Values that take long to make and are asked for again: kept for the things they are made of, each made once."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class _Entry:
    """A value, or the place of one that is being made, with what it is made of."""

    __slots__ = ("alike", "lock", "made", "of", "value", "weight")

    def __init__(self, of: tuple[Any, ...], alike: tuple[Any, ...]) -> None:
        self.of, self.alike, self.lock = of, alike, Lock()
        self.made, self.weight = False, 1
        self.value: Any = None


class Kept:
    """The last values made, by any number of threads: the one kind of cache for what is made of large values.

    A graph, a device or a calibration is too large to be compared or hashed whenever something is asked of it. It
    counts by identity, which Python gives to another object once it is gone; so an entry holds on to what it is `of`.
    The rest of what a value depends on counts by value: hashed as the key, or compared where it cannot be hashed
    (`alike`). `most` is how many values are kept or, with `weigh`, how much they may weigh together.
    """

    def __init__(self, most: int = 256, weigh: Callable[[Any], int] | None = None) -> None:
        self._most, self._weigh, self._lock = most, weigh, Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_make(
        self, key: Hashable, of: tuple[Any, ...], make: Callable[[], T], *, alike: tuple[Any, ...] = ()
    ) -> T:
        """Who comes while another thread makes the value waits for it; others are not held up."""
        key = (key, *map(id, of))
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or (alike and entry.alike != alike):
                self._weight += 1 if entry is None else 1 - entry.weight
                entry = self._entries[key] = _Entry(of, alike)
                self._entries.move_to_end(key)  # the newest, and never what is dropped
                self._drop()
            else:
                self._entries.move_to_end(key)
        if not entry.made:
            with entry.lock:
                if not entry.made:
                    entry.value = make()
                    self._weighed(key, entry)
                    entry.made = True
        found: T = entry.value
        return found

    def found(self, key: Hashable, of: tuple[Any, ...], *, alike: tuple[Any, ...] = ()) -> Any:
        """What was made before; None where nothing was, or is just being made."""
        with self._lock:
            entry = self._entries.get((key, *map(id, of)))
        return entry.value if entry is not None and entry.made and entry.alike == alike else None

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

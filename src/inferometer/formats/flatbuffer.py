"""Tables of a flatbuffer, read where they lie and never beyond the file.

A table starts with a signed distance back to its vtable; the vtable holds, for each field by number, how far into the
table its value lies, or 0 where the default holds. Vectors, texts and other tables are reached by unsigned distances
forward. Any of these may be wrong in a damaged file, and many may point to the same place in a hostile one, so every
step is checked against the file's end and everything visited is counted.
"""

import struct
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError

_VISITS = 1 << 23  # vector elements and tables; real models have some ten thousand
_TEXT_LIMIT = 1 << 16  # bytes of a name; longer ones are cut
_LAYOUTS = {letter: struct.Struct("<" + letter) for letter in "bBhHiIqQfd?"}


class Buffer:
    """A whole file's bytes and how many more things may be visited in it. `kind` is what such files are called."""

    def __init__(self, data: mmap | bytes, path: Path, *, label: str | None = None, kind: str = "TFLite") -> None:
        self.kind = kind
        self.data = data
        self.size = len(data)
        self.label = label or str(path)
        self._left = _VISITS

    def fault(self, problem: str, at: int | None = None) -> FormatError:
        place = "" if at is None else f" at byte {at:,}"
        return FormatError(
            f"{self.label!r} is not a sound {self.kind} file: {problem}{place}.",
            remedy="Fetch or convert the file again: it is cut short or damaged.",
        )

    def visit(self, count: int, what: str, at: int) -> None:
        self._left -= count
        if self._left < 0:
            raise self.fault(f"{what} brings the elements to more than {_VISITS:,}", at)

    def number(self, letter: str, at: int, what: str) -> Any:
        layout = _LAYOUTS[letter]
        if not 0 <= at <= self.size - layout.size:
            raise self.fault(f"{what} lies outside the {self.size:,} bytes of the file", at)
        return layout.unpack_from(self.data, at)[0]

    def follow(self, at: int, what: str) -> int:
        """Where a forward distance leads."""
        distance: int = self.number("I", at, what)
        target = at + distance
        if distance == 0 or target > self.size - 4:
            raise self.fault(f"{what} points to byte {target:,} of {self.size:,}", at)
        return target

    def root(self) -> "FlatTable":
        return FlatTable(self, self.follow(0, "the root"), "the model")


class FlatTable:
    """One table. `what` names it in messages."""

    __slots__ = ("_buffer", "_position", "_vtable", "_vtable_bytes", "what")

    def __init__(self, buffer: Buffer, position: int, what: str) -> None:
        buffer.visit(1, what, position)
        self._buffer, self._position, self.what = buffer, position, what
        self._vtable = position - buffer.number("i", position, what)
        self._vtable_bytes = buffer.number("H", self._vtable, f"the vtable of {what}")
        if self._vtable_bytes < 4 or self._vtable + self._vtable_bytes > buffer.size:
            raise buffer.fault(f"the vtable of {what} claims {self._vtable_bytes} bytes", self._vtable)

    def fault(self, problem: str) -> FormatError:
        return self._buffer.fault(f"{self.what} {problem}", self._position)

    def _place(self, field: int) -> int | None:
        """Where a field's value lies, or None where it has its default."""
        entry = 4 + 2 * field
        if entry + 2 > self._vtable_bytes:
            return None
        offset = self._buffer.number("H", self._vtable + entry, f"the vtable of {self.what}")
        return self._position + offset if offset else None

    def number(self, field: int, letter: str, default: Any = 0) -> Any:
        place = self._place(field)
        return default if place is None else self._buffer.number(letter, place, f"field {field} of {self.what}")

    def table(self, field: int, what: str) -> "FlatTable | None":
        place = self._place(field)
        return None if place is None else FlatTable(self._buffer, self._buffer.follow(place, what), what)

    def text(self, field: int, what: str) -> str | None:
        span = self.span(field, 1, what)
        if span is None:
            return None
        start, length = span
        raw = bytes(self._buffer.data[start : start + min(length, _TEXT_LIMIT)])
        return raw.decode("utf-8", errors="replace")

    def span(self, field: int, width: int, what: str) -> tuple[int, int] | None:
        """Where a vector's elements start and how many there are, once the file is seen to hold them all."""
        place = self._place(field)
        if place is None:
            return None
        start = self._buffer.follow(place, what)
        count = self._buffer.number("I", start, f"the length of {what}")
        if start + 4 + count * width > self._buffer.size:
            raise self._buffer.fault(f"{what} claims {count:,} elements, more than the file holds", start)
        return start + 4, count

    def count(self, field: int, width: int, what: str) -> int:
        span = self.span(field, width, what)
        return 0 if span is None else span[1]

    def numbers(self, field: int, letter: str, what: str, *, most: int) -> tuple[Any, ...]:
        span = self.span(field, _LAYOUTS[letter].size, what)
        if span is None:
            return ()
        start, count = span
        if count > most:
            raise self._buffer.fault(f"{what} has {count:,} elements; more than {most:,} are not read", start)
        self._buffer.visit(count, what, start)
        return struct.unpack_from(f"<{count}{letter}", self._buffer.data, start)

    def texts(self, field: int, what: str, *, most: int) -> tuple[str, ...]:
        """A vector of texts, each cut at the limit."""
        places = self.span(field, 4, f"the list of {what}s")
        if places is None:
            return ()
        start, count = places
        if count > most:
            raise self._buffer.fault(f"the list of {what}s claims {count:,}; more than {most:,} are not read", start)
        self._buffer.visit(count, what, start)
        return tuple(self._text_at(self._buffer.follow(start + 4 * index, what), what) for index in range(count))

    def _text_at(self, start: int, what: str) -> str:
        length = self._buffer.number("I", start, f"the length of {what}")
        if start + 4 + length > self._buffer.size:
            raise self._buffer.fault(f"{what} claims {length:,} bytes, more than the file holds", start)
        return bytes(self._buffer.data[start + 4 : start + 4 + min(length, _TEXT_LIMIT)]).decode("utf-8", "replace")

    @property
    def position(self) -> int:
        """Where it lies in the file."""
        return self._position

    def tables(self, field: int, what: str, *, most: int) -> Iterator["FlatTable"]:
        span = self.span(field, 4, f"the list of {what}s")
        if span is None:
            return
        start, count = span
        if count > most:
            raise self._buffer.fault(f"the list of {what}s claims {count:,}; more than {most:,} are not read", start)
        for index in range(count):
            label = f"{what} {index}"
            yield FlatTable(self._buffer, self._buffer.follow(start + 4 * index, label), label)

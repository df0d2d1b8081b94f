"""A position in a GGUF file that only moves forward and never past the end.

A hostile header is refused for what it claims before anything is allocated: the bounds below lie far above what real
files hold (a vocabulary of 262,144 tokens and its merges are some 800,000 strings in 20 MB).
"""

import struct
from mmap import mmap
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError

_HEADER_LIMIT = 1 << 28  # bytes of metadata and tensor infos
_WALK_LIMIT = 1 << 23  # strings and nested arrays stepped over one by one
_NAME_LIMIT = 1 << 16  # bytes of a key or a tensor's name


class Cursor:
    """Reads numbers and strings in the file's byte order; every failure names the file and the byte."""

    def __init__(self, data: mmap | bytes, path: Path, *, position: int = 0) -> None:
        self.path = path
        self.position = position
        self.order = "<"
        self._data = data
        self._end = min(len(data), _HEADER_LIMIT)
        self._whole = len(data)
        self._walked = 0

    def fault(self, problem: str, *, at: int | None = None, remedy: str | None = None) -> FormatError:
        place = self.position if at is None else at
        return FormatError(f"{str(self.path)!r} is not a sound GGUF file: {problem} at byte {place:,}.", remedy=remedy)

    def room(self, size: int, what: str) -> None:
        """Refuse what reaches beyond the file, before it is read or allocated."""
        if size <= self._end - self.position:
            return
        if self._end < self._whole:
            raise self.fault(f"{what} reaches beyond the {_HEADER_LIMIT:,} bytes a header may have")
        left = max(self._whole - self.position, 0)
        raise self.fault(f"{what} needs {_size(size)} bytes where {left:,} are left", remedy=_TRUNCATED)

    def number(self, letter: str, what: str) -> Any:
        size = struct.calcsize(self.order + letter)
        self.room(size, what)
        (value,) = struct.unpack_from(self.order + letter, self._data, self.position)
        self.position += size
        return value

    def numbers(self, letter: str, count: int, what: str) -> tuple[Any, ...]:
        layout = struct.Struct(f"{self.order}{count}{letter}")
        self.room(layout.size, what)
        values = layout.unpack_from(self._data, self.position)
        self.position += layout.size
        return values

    def raw(self, size: int, what: str) -> bytes:
        self.room(size, what)
        start, self.position = self.position, self.position + size
        return bytes(self._data[start : self.position])

    def name(self, what: str) -> str:
        """A key or a tensor's name: text that must be UTF-8 and of a sensible length."""
        start = self.position
        length = self.number("Q", f"the length of {what}")
        if length > _NAME_LIMIT:
            raise self.fault(f"{what} is said to have {_size(length)} bytes", at=start)
        try:
            return self.raw(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise self.fault(f"{what} is not UTF-8 text", at=start) from None

    def skip(self, size: int, what: str) -> None:
        self.room(size, what)
        self.position += size

    def skip_strings(self, count: int, what: str) -> None:
        """Step over strings without keeping them: the one loop whose length a vocabulary decides."""
        self.walk(count, what, least=8)
        unpack, data, position = struct.Struct(self.order + "Q").unpack_from, self._data, self.position
        last = self._end - 8
        for _ in range(count):
            if position > last:
                position += 8
                break
            position += 8 + unpack(data, position)[0]
        self.skip(position - self.position, f"a string of {what}")

    def walk(self, count: int, what: str, *, least: int) -> None:
        """Account for `count` things of at least `least` bytes each that will be visited one by one."""
        self.room(count * least, what)
        self._walked += count
        if self._walked > _WALK_LIMIT:
            raise self.fault(f"{what} brings the strings and arrays to more than {_WALK_LIMIT:,}")


_TRUNCATED = "Fetch the file again: it is cut short or damaged."


def _size(number: int) -> str:
    return f"{number:,}" if number < 1 << 50 else f"2^{number.bit_length() - 1} or more"

"""Protobuf's wire format: fields of a message, one after the other, without a schema and without copying.

A message is a run of (tag, value); a tag is a varint of field number × 8 + wire type. Payloads are skipped by their
length, so a weight of a gigabyte costs as much as a name.
"""

import mmap
import struct
from collections.abc import Iterator
from typing import Any

from inferometer.formats.onnx.faults import MAX_FIELDS, MAX_TEXT, Fault

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# Field number, wire type, and then a varint's value and the offset after it, or the bounds of a payload.
Field = tuple[int, int, int, int]


class Wire:
    """The bytes of one file, and how many fields of it have been read."""

    __slots__ = ("data", "size", "spent")

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        self.size = len(data)
        self.spent = 0

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """The fields between two offsets. Whatever they claim, nothing outside is touched."""
        data, position = self.data, start
        while position < end:
            self.spent += 1
            if self.spent > MAX_FIELDS:
                raise Fault(f"more than {MAX_FIELDS:,} fields", offset=position)
            tag = data[position]
            position += 1
            if tag > 0x7F:
                tag, position = self._varint(position - 1, end)
            number, kind = tag >> 3, tag & 7
            if number == 0 or number > 0x1FFFFFFF:
                raise Fault(f"field number {number} cannot be", offset=position - 1)
            if kind == BYTES:
                if position < end and data[position] < 0x80:
                    length = data[position]
                    position += 1
                else:
                    length, position = self._varint(position, end)
            elif kind == VARINT:
                value, position = self._varint(position, end)
                yield number, kind, value, position
                continue
            elif kind in {FIXED32, FIXED64}:
                length = 4 if kind == FIXED32 else 8
            else:
                raise Fault(f"wire type {kind} is not one ONNX uses", offset=position - 1)
            if length > end - position:
                message = f"field {number} claims {length:,} bytes and {end - position:,} are left"
                raise Fault(message, offset=position)
            yield number, kind, position, position + length
            position += length

    def first(self, position: int, available: int, end: int) -> Field:
        """The field at an offset, of which only `available` bytes are at hand; its payload may lie beyond them."""
        tag, position = self._varint(position, available)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, after = self._varint(position, available)
            return number, kind, value, after
        if kind == BYTES:
            length, position = self._varint(position, available)
        else:
            length = {FIXED32: 4, FIXED64: 8}.get(kind, end)
        if length > end - position:
            raise Fault("a payload beyond the end", offset=position)
        return number, kind, position, position + length

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        """Seven bits a byte, the lowest first; at most ten bytes."""
        data, value, shift, start = self.data, 0, 0, position
        while position < end:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, position
            shift += 7
            if shift > 63:
                raise Fault("a number longer than ten bytes", offset=start)
        raise Fault("the message ends within a number", offset=start)

    def text(self, start: int, end: int) -> str:
        if end - start > MAX_TEXT:
            raise Fault(f"a name of {end - start:,} bytes", offset=start)
        try:
            return str(self.data[start:end], "utf-8")
        except UnicodeDecodeError:
            raise Fault("a name that is not UTF-8", offset=start) from None

    def excerpt(self, start: int, end: int) -> str:
        """Free text, for people: cut where it is long, and never refused."""
        return str(self.data[start : min(end, start + MAX_TEXT)], "utf-8", "replace")

    def varints(self, start: int, end: int) -> Iterator[int]:
        """Packed numbers."""
        position = start
        while position < end:
            self.spent += 1
            if self.spent > MAX_FIELDS:
                raise Fault(f"more than {MAX_FIELDS:,} fields", offset=position)
            value, position = self._varint(position, end)
            yield value

    def unpack(self, layout: str, start: int, end: int) -> tuple[Any, ...]:
        """Little-endian numbers of one fixed layout (a struct letter) that fill the payload."""
        count, rest = divmod(end - start, struct.calcsize(layout))
        if rest:
            raise Fault(f"{end - start} bytes are no whole count of numbers", offset=start)
        return struct.unpack(f"<{count}{layout}", self.data[start:end])


def signed(value: int) -> int:
    """A varint as the two's complement 64-bit number it stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value

"""A flatbuffer, written from front to back: tables first, large vectors last, so that weights need not fit in memory.

Whatever a table refers to lies behind it, since distances are counted forward. Each table has its vtable right before
it. Numbers lie at multiples of their own size, and so do the numbers of a vector.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

_HEAD = 8  # the way to the root, and the identifier
_WIDTHS = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "f": 4}
_REFERENCE = 4
_BLOB_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number in a table; `letter` is that of struct."""

    letter: str
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class TableNode:
    """Fields by number. What is not a Scalar is referred to."""

    fields: Mapping[int, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    tables: tuple[TableNode, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FlatText:
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class FlatNumbers:
    letter: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Blob:
    """Bytes that are made when they are written. They begin at a multiple of 16."""

    nbytes: int
    make: Callable[[], Iterable[bytes | memoryview]]


Node = TableNode | Tables | FlatText | FlatNumbers | Blob


def placed(root: TableNode) -> tuple[list[tuple[Node, int]], int]:
    """Every node with where it begins, in the order they are written, and the size of the whole.

    A table begins at its distance to the vtable, a vector at its length.
    """
    small: list[Node] = []
    blobs: list[Node] = []
    waiting = deque[Node]([root])
    while waiting:
        node = waiting.popleft()
        (blobs if isinstance(node, Blob) else small).append(node)
        waiting.extend(_children(node))
    starts: list[tuple[Node, int]] = []
    end = _HEAD
    for node in (*small, *blobs):
        start = _start(node, end)
        starts.append((node, start))
        end = start + _size(node)
    return starts, end


def write(file: IO[bytes], root: TableNode, identifier: bytes) -> int:
    """Write it all; the number of bytes."""
    nodes, total = placed(root)
    where = {id(node): start for node, start in nodes}
    file.write(struct.pack("<I4s", where[id(root)], identifier))
    end = _HEAD
    for node, start in nodes:
        vtable = _vtable(node) if isinstance(node, TableNode) else b""
        file.write(bytes(start - len(vtable) - end) + vtable)
        end = start
        for piece in _pieces(node, start, where):
            file.write(piece)
            end += len(piece)
    return total


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node, TableNode):
        yield from (value for value in node.fields.values() if not isinstance(value, Scalar))
    elif isinstance(node, Tables):
        yield from node.tables


def _start(node: Node, end: int) -> int:
    if isinstance(node, TableNode):
        return _aligned(end + _vtable_size(node), 4)
    if isinstance(node, Blob):
        return _aligned(end + 4, _BLOB_ALIGNMENT) - 4
    return _aligned(end, 4)


def _size(node: Node) -> int:
    match node:
        case TableNode():
            return _layout(node)[1]
        case Tables():
            return 4 + 4 * len(node.tables)
        case FlatText():
            return 4 + len(node.text.encode()) + 1
        case FlatNumbers():
            return 4 + _WIDTHS[node.letter] * len(node.values)
        case Blob():
            return 4 + node.nbytes


def _layout(table: TableNode) -> tuple[dict[int, int], int]:
    """How far into the table each field lies, wide ones first, and the size of the table."""
    widths = {number: _width(value) for number, value in table.fields.items()}
    offsets, end = {}, 4
    for number in sorted(widths, key=lambda number: (-widths[number], number)):
        offsets[number] = end
        end += widths[number]
    return offsets, _aligned(end, 4)


def _width(value: Any) -> int:
    return _WIDTHS[value.letter] if isinstance(value, Scalar) else _REFERENCE


def _vtable_size(table: TableNode) -> int:
    return 4 + 2 * (max(table.fields, default=-1) + 1)


def _vtable(table: TableNode) -> bytes:
    offsets, size = _layout(table)
    entries = [offsets.get(number, 0) for number in range(max(table.fields, default=-1) + 1)]
    return struct.pack(f"<{2 + len(entries)}H", _vtable_size(table), size, *entries)


def _pieces(node: Node, start: int, where: Mapping[int, int]) -> Iterator[bytes | memoryview]:
    match node:
        case TableNode():
            yield _table(node, start, where)
        case Tables():
            indices = [where[id(table)] - (start + 4 + 4 * number) for number, table in enumerate(node.tables)]
            yield struct.pack(f"<{1 + len(indices)}I", len(indices), *indices)
        case FlatText():
            raw = node.text.encode()
            yield struct.pack("<I", len(raw)) + raw + b"\0"
        case FlatNumbers():
            yield struct.pack(f"<I{len(node.values)}{node.letter}", len(node.values), *node.values)
        case Blob():
            yield struct.pack("<I", node.nbytes)
            yield from (memoryview(piece).cast("B") for piece in node.make())


def _table(table: TableNode, start: int, where: Mapping[int, int]) -> bytes:
    offsets, size = _layout(table)
    raw = bytearray(size)
    struct.pack_into("<i", raw, 0, _vtable_size(table))  # back to the vtable, which ends where the table begins
    for number, value in table.fields.items():
        at = offsets[number]
        if isinstance(value, Scalar):
            struct.pack_into(f"<{value.letter}", raw, at, value.value)
        else:
            struct.pack_into("<I", raw, at, where[id(value)] - (start + at))
    return bytes(raw)


def _aligned(size: int, to: int) -> int:
    return -(-size // to) * to

"""What an ONNX file says, as plain values: the messages of onnx.proto that a reader of headers needs."""

import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferometer.core.dtypes import dtype
from inferometer.core.frozen import frozen
from inferometer.formats.onnx.faults import MAX_FIELDS, MAX_TEXT, Fault

# Protobuf's wire format: fields of a message, one after the other, without a schema and without copying.
#
# A message is a run of (tag, value); a tag is a varint of field number × 8 + wire type. Payloads are skipped by their
# length, so a weight of a gigabyte costs as much as a name.

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


# ONNX's element types: their numbers in a file, the format each is stored in, and how raw bytes are unpacked.


@frozen
class Element:
    """`name` is ours for the format; `layout` is a struct letter where raw bytes can be unpacked without more ado."""

    name: str
    layout: str | None = None
    integer: bool = False


def _integer(name: str, layout: str | None = None) -> Element:
    return Element(name=name, layout=layout, integer=True)


# onnx.proto, TensorProto.DataType. Formats that differ only in how they say infinity or NaN are stored alike.
ELEMENTS: dict[int, Element] = {
    1: Element(name="f32", layout="f"),
    2: _integer("u8", "B"),
    3: _integer("i8", "b"),
    4: _integer("u16", "H"),
    5: _integer("i16", "h"),
    6: _integer("i32", "i"),
    7: _integer("i64", "q"),
    8: Element(name="string"),
    9: _integer("bool", "B"),
    10: Element(name="f16", layout="e"),
    11: Element(name="f64", layout="d"),
    12: _integer("u32", "I"),
    13: _integer("u64", "Q"),
    14: Element(name="c64"),
    15: Element(name="c128"),
    16: Element(name="bf16"),
    17: Element(name="f8e4m3"),
    18: Element(name="f8e4m3"),  # fnuz: no negative zero
    19: Element(name="f8e5m2"),
    20: Element(name="f8e5m2"),  # fnuz
    21: _integer("u4"),
    22: _integer("i4"),
    23: Element(name="f4e2m1"),
    24: Element(name="f8e8m0"),
    25: _integer("u2"),
    26: _integer("i2"),
    27: Element(name="f6e2m3"),
    28: Element(name="f6e3m2"),
}

_INTEGERS = frozenset(element.name for element in ELEMENTS.values() if element.integer)
_BITS = {"string": None, "f8e8m0": 8, "u2": 2, "f6e2m3": 6, "f6e3m2": 6}  # formats the core has no row for


def element_bytes(name: str, count: int) -> int | None:
    """Bytes that `count` elements take when stored raw; None for text, which has no size of its own."""
    if name in _BITS:
        bits = _BITS[name]
        return None if bits is None else -(-count * bits // 8)
    size: int = dtype(name).nbytes(count)
    return size


def is_integer(name: str | None) -> bool:
    return name in _INTEGERS


def is_float(name: str | None) -> bool:
    return name is not None and name not in _INTEGERS and name != "string"


# A size as the file gives it: a number, a name, or nothing.
Axis = int | str | None


@frozen
class External:
    """Where a tensor's data lies outside the file: beside it, from `offset`, `length` bytes (None: to the end)."""

    location: str
    offset: int = 0
    length: int | None = None


@frozen
class TensorDef:
    """A stored tensor. `payload` is where its bytes lie in the file and how they are written, never the bytes."""

    name: str
    dims: tuple[int, ...]
    dtype: str
    start: int  # of the message in the file
    data_type: int
    payload: tuple[str, int, int] | None = None  # "raw" | "f32" | "i32" | "i64" | "f64" | "u64" | "text", start, end
    loose: tuple[Any, ...] = ()  # numbers written one by one instead of packed; the first MAX_ITEMS of them
    loose_count: int = 0
    external: External | None = None
    sparse: int | None = None  # bytes of a sparse tensor's values and indices


@frozen
class TypeDef:
    """`group` is tensor, sparse, sequence, map, optional or opaque; the others hold an `inner` type."""

    group: str
    dtype: str | None = None
    axes: tuple[Axis, ...] | None = None  # None: not even the rank is given
    inner: "TypeDef | None" = None


@frozen
class ValueInfo:
    name: str
    type: TypeDef | None = None


@frozen
class Attribute:
    """`value` is an int, float, str, TensorDef, GraphDef or TypeDef, or a tuple of those.

    `count` is how many there are in the file, of which a long list keeps the first.
    """

    name: str
    value: Any
    count: int = 1
    reference: str | None = None  # within a function: the name of the caller's attribute that stands here


@frozen
class Node:
    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    overload: str = ""
    start: int = 0
    source: str = ""  # what it is called in a file of another format that is read in ONNX's terms


@frozen
class GraphDef:
    name: str
    nodes: tuple[Node, ...] = ()
    initializers: tuple[TensorDef, ...] = ()
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    infos: tuple[ValueInfo, ...] = ()


@frozen
class Function:
    """An operator the file defines itself."""

    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    opsets: Mapping[str, int]
    overload: str = ""
    defaults: Mapping[str, Attribute] = field(default_factory=dict)
    infos: tuple[ValueInfo, ...] = ()


@frozen
class OnnxModel:
    graph: GraphDef
    ir_version: int = 0
    opsets: Mapping[str, int] = field(default_factory=dict)
    functions: Mapping[tuple[str, str, str], Function] = field(default_factory=dict)
    producer: str = ""
    producer_version: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


# A layer of another format, written as nodes of ONNX: what the readers of such formats share.

_MOST = 16  # nodes of one layer: their places in the file lie between its own and the next one's


@dataclass(slots=True)
class NodeWriter:
    """Where a layer stands: its name, type, inputs and outputs in its own format, and its number in the file."""

    name: str
    type: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    number: int
    made: int = 0

    def node(
        self, op_type: str, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None, *,
        part: str = "", domain: str = "", **attributes: Any,
    ) -> Node:  # fmt: skip
        """A node of this layer. Attributes that are None are left out; a `part` is one of several nodes."""
        self.made += 1
        return Node(
            op_type=op_type,
            domain=domain,
            name=f"{self.name}/{part}" if part else self.name,
            inputs=tuple(self.inputs if inputs is None else inputs),
            outputs=tuple(self.outputs if outputs is None else outputs),
            attributes={
                key: Attribute(name=key, value=value, count=len(value) if isinstance(value, tuple) else 1)
                for key, value in attributes.items()
                if value is not None
            },
            start=self.number * _MOST + self.made,
            source=self.type,
        )

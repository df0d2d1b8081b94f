"""The TFLite network while it grows: tensors and operators as plain values, and how they become tables of the file."""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import IO, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.formats.synth.weights import Array
from inferometer.formats.tflite.schema import ACTIVATIONS, OPERATORS, OPTIONS, TENSOR_TYPES

# A flatbuffer, written from front to back: tables first, large vectors last, so that weights need not fit in memory.
#
# Whatever a table refers to lies behind it, since distances are counted forward. Each table has its vtable right
# before it. Numbers lie at multiples of their own size, and so do the numbers of a vector.

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


_CODES = {operator.name: number for number, operator in OPERATORS.items()}
_TYPES = {name: number for number, name in TENSOR_TYPES.items()}
_FUSED = {name: number for number, name in ACTIVATIONS.items()}
_LARGEST_OLD_CODE = 127  # operators above it stand in a field that came later
_VERSION = 3  # of the schema

# The member of the union BuiltinOptions that an operator's options are; operators without options are not named.
_OPTIONS = {
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "MAX_POOL_2D": 5, "AVERAGE_POOL_2D": 5, "FULLY_CONNECTED": 8, "SOFTMAX": 9,
    "CONCATENATION": 10, "ADD": 11, "RESHAPE": 17, "MUL": 21, "MEAN": 27, "SUB": 28, "GELU": 116,
}  # fmt: skip


@frozen
class TfliteStored:
    """A tensor. `open` says that its first size is the batch, which may change; `make` gives a constant's numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    open: bool = False
    make: Callable[[], Array] | None = None

    @property
    def nbytes(self) -> int:
        return 4 * prod(self.shape)


@frozen
class WrittenOperator:
    kind: str  # TFLite's name
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


class Network:
    """Collects tensors and operators. A constant is stored once, however many operators read it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensors: list[TfliteStored] = []
        self.operators: list[WrittenOperator] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self._constants: dict[Any, int] = {}
        self._names: dict[str, int] = {}

    def tensor(self, stored: TfliteStored) -> int:
        self.tensors.append(stored)
        return len(self.tensors) - 1

    def weight(self, name: str, shape: tuple[int, ...], make: Callable[[], Array], *, folded: str = "") -> int:
        """A constant that has a name of its own. With another op `folded` into it, it is another one."""
        key = ("weight", name, folded)
        if key not in self._constants:
            self._constants[key] = self.tensor(TfliteStored(name=name, shape=shape, make=make))
        return self._constants[key]

    def wholes(self, values: Any) -> int:
        """A constant of int32: axes, shapes, paddings."""
        return self._constant(np.array(values, np.int32), "i32")

    def number(self, value: float) -> int:
        return self._constant(np.array([value], np.float32), "f32")

    def zeros(self, count: int) -> int:
        return self.weight(f"constants/zeros-{count}", (count,), lambda: np.zeros(count, np.float32))

    def _constant(self, array: Array, dtype: str) -> int:
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constants/{len(self._constants)}"
            self._constants[key] = self.tensor(
                TfliteStored(name=name, shape=array.shape, dtype=dtype, make=lambda: array)
            )
        return self._constants[key]

    def add(self, kind: str, inputs: tuple[int, ...], result: TfliteStored, **options: Any) -> int:
        """An operator with one result; its tensor."""
        # Several operators of a kind may serve one layer.
        name = result.name
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        made = self.tensor(replace(result, name=name if count == 0 else f"{name}_{count}"))
        if "fused" in options:
            options["fused"] = _FUSED[options["fused"]]
        self.operators.append(WrittenOperator(kind=kind, inputs=inputs, outputs=(made,), options=options))
        return made


def model_of(network: Network, description: str) -> TableNode:
    """The root table. Buffer 0 is the empty one, which everything that flows names."""
    constants = [index for index, tensor in enumerate(network.tensors) if tensor.make is not None]
    buffers = {place: number for number, place in enumerate(constants, start=1)}
    kinds = tuple(dict.fromkeys(operator.kind for operator in network.operators))
    subgraph = TableNode(
        {
            0: Tables(tuple(_tensor(tensor, buffers.get(index, 0)) for index, tensor in enumerate(network.tensors))),
            1: FlatNumbers("i", tuple(network.inputs)),
            2: FlatNumbers("i", tuple(network.outputs)),
            3: Tables(tuple(_operator(operator, kinds.index(operator.kind)) for operator in network.operators)),
            4: FlatText(network.name),
        }
    )
    return TableNode(
        {
            0: Scalar("I", _VERSION),
            1: Tables(tuple(_code(kind) for kind in kinds)),
            2: Tables((subgraph,)),
            3: FlatText(description),
            4: Tables((TableNode({}), *(_buffer(network.tensors[place]) for place in constants))),
        }
    )


def _tensor(tensor: TfliteStored, buffer: int) -> TableNode:
    fields: dict[int, Any] = {
        0: FlatNumbers("i", tensor.shape),
        1: Scalar("b", _TYPES[tensor.dtype]),
        2: Scalar("I", buffer),
        3: FlatText(tensor.name),
        8: Scalar("?", True),  # noqa: FBT003 - the value of a field: its rank is known
    }
    if tensor.open:
        fields[7] = FlatNumbers("i", (-1, *tensor.shape[1:]))
    return TableNode(fields)


def _buffer(tensor: TfliteStored) -> TableNode:
    def make() -> list[memoryview]:
        if tensor.make is None:
            return []
        kind = "<i4" if tensor.dtype == "i32" else "<f4"
        array = np.ascontiguousarray(tensor.make(), kind)
        if array.size != prod(tensor.shape):
            raise ValueError(f"{tensor.name} holds {array.size} numbers, and {prod(tensor.shape)} are needed.")
        return [array.reshape(-1).data]

    return TableNode({0: Blob(tensor.nbytes, make)})


def _code(kind: str) -> TableNode:
    number = _CODES[kind]
    return TableNode({0: Scalar("b", min(number, _LARGEST_OLD_CODE)), 2: Scalar("i", 1), 3: Scalar("i", number)})


def _operator(operator: WrittenOperator, code: int) -> TableNode:
    fields: dict[int, Any] = {
        0: Scalar("I", code),
        1: FlatNumbers("i", operator.inputs),
        2: FlatNumbers("i", operator.outputs),
    }
    member = _OPTIONS.get(operator.kind)
    if member is not None:
        fields |= {3: Scalar("B", member), 4: TableNode(_options(member, operator.options))}
    return TableNode(fields)


def _options(member: int, given: Mapping[str, Any]) -> dict[int, Any]:
    """Options by the numbers their fields have; an option that is not given has the file's default."""
    fields: dict[int, Any] = {}
    for name, value in given.items():
        number, letter, _ = OPTIONS[member][name]
        fields[number] = FlatNumbers(letter[1:], tuple(value)) if letter.startswith("*") else Scalar(letter, value)
    return fields

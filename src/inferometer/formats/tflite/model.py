"""A TFLite file as values: subgraphs of tensors and operators, as the file has them. Buffers are measured, not read."""

import struct
from collections.abc import Mapping
from dataclasses import field
from math import prod
from mmap import mmap
from pathlib import Path
from typing import Any

from inferometer.core.dtypes import DTYPES
from inferometer.core.frozen import frozen
from inferometer.formats.flatbuffer import Buffer, FlatTable
from inferometer.formats.tflite.schema import (
    CUSTOM,
    IDENTIFIER,
    OPTIONS,
    OPTIONS_2,
    TENSOR_TYPES,
    Fields,
    TfliteOperator,
    operator_of,
)

_MANY_SUBGRAPHS = 1 << 12
_MANY_TENSORS = 1 << 18
_MANY_OPERATORS = 1 << 18
_MANY_BUFFERS = 1 << 20
_MANY_CODES = 1 << 14
_MANY_AXES = 64
_MANY_OPERANDS = 1 << 14
_FEW_NUMBERS = 64  # constants of more integers than this are not shapes, axes or permutations
_DETAILS = {1: "custom", 2: "blockwise", 3: "multi_axis"}


@frozen
class Quantization:
    """How real numbers follow from the stored ones. `axis` is None where one scale holds for all."""

    scales: int
    zero_points: int
    axis: int | None = None
    details: str | None = None
    block: int | None = None


@frozen
class TfliteTensor:
    """`shape` has −1 for sizes that are not fixed. `nbytes` is what the file holds of it; None: not a constant."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str | None
    buffer: int = 0
    nbytes: int | None = None
    values: tuple[int, ...] | None = None  # of small integer constants: shapes, axes, permutations
    variable: bool = False
    sparse: bool = False
    external: bool = False  # its numbers lie in another file
    quantization: Quantization | None = None


@frozen
class OperatorInfo:
    index: int
    operator: TfliteOperator
    inputs: tuple[int, ...]  # −1: an optional input that is not given
    outputs: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@frozen
class SubGraph:
    name: str
    tensors: tuple[TfliteTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[OperatorInfo, ...]


@frozen
class TfliteModel:
    version: int
    description: str
    subgraphs: tuple[SubGraph, ...]
    signatures: Mapping[str, int]  # what callers name a subgraph
    metadata: tuple[str, ...]
    buffer_bytes: int  # all buffers together
    file_bytes: int


def parse_model(data: mmap | bytes, path: Path, *, label: str | None = None) -> TfliteModel:
    buffer = Buffer(data, path, label=label)
    if bytes(data[4:8]) != IDENTIFIER:
        raise buffer.fault("the identifier TFL3 is missing", 4)
    root = buffer.root()
    version = root.number(0, "I")
    if version != 3:
        raise buffer.fault(f"schema version {version} is not 3")
    buffers = _Buffers(buffer, root)
    codes = [_code(entry) for entry in root.tables(1, "operator code", most=_MANY_CODES)]
    tables = root.tables(2, "subgraph", most=_MANY_SUBGRAPHS)
    parser = _Parser(buffer, buffers, codes)
    subgraphs = tuple(parser.subgraph(index, entry) for index, entry in enumerate(tables))
    if not subgraphs:
        raise buffer.fault("it has no subgraph")
    signatures = {
        entry.text(2, "a signature's key") or f"signature_{index}": entry.number(4, "I")
        for index, entry in enumerate(root.tables(7, "signature", most=_MANY_SUBGRAPHS))
    }
    entries = root.tables(6, "metadata entry", most=_MANY_CODES)
    return TfliteModel(
        version=version,
        description=root.text(3, "the description") or "",
        subgraphs=subgraphs,
        signatures=signatures,
        metadata=tuple(entry.text(0, "a metadata name") or "" for entry in entries),
        buffer_bytes=buffers.total,
        file_bytes=buffer.size,
    )


def _code(entry: FlatTable) -> TfliteOperator:
    """Numbers above 127 have a field of their own; older files know only the small one."""
    code = max(entry.number(0, "b"), entry.number(3, "i"))
    return operator_of(code, (entry.text(1, "a custom operator's name") or "") if code == CUSTOM else "")


class _Buffers:
    """Where each buffer's bytes lie. Those of a file beyond 2 GB lie behind the flatbuffer, by offset and size."""

    def __init__(self, buffer: Buffer, root: FlatTable) -> None:
        self._buffer = buffer
        self._spans = [self._span(entry) for entry in root.tables(4, "buffer", most=_MANY_BUFFERS)]
        self.total = sum(size for _, size in self._spans)

    def _span(self, entry: FlatTable) -> tuple[int, int]:
        if span := entry.span(0, 1, f"the data of {entry.what}"):
            return span
        offset, size = entry.number(1, "Q"), entry.number(2, "Q")
        if offset <= 1:  # 0: none, 1: written by a converter before it knew where
            return 0, 0
        if offset + size > self._buffer.size:
            shown = f"{offset + size:,}" if offset + size < 1 << 63 else "2^63 or more"
            raise entry.fault(f"ends at byte {shown} of a file that has {self._buffer.size:,}; it stands")
        return offset, size

    def size(self, index: int, what: str) -> int:
        return self._at(index, what)[1]

    def whole_numbers(self, index: int, dtype: str, what: str) -> tuple[int, ...] | None:
        """The values of a small integer constant."""
        start, size = self._at(index, what)
        width, letter = {"i32": (4, "i"), "i64": (8, "q")}[dtype]
        if size % width or size // width > _FEW_NUMBERS:
            return None
        return struct.unpack_from(f"<{size // width}{letter}", self._buffer.data, start)

    def _at(self, index: int, what: str) -> tuple[int, int]:
        if index >= len(self._spans):
            raise self._buffer.fault(f"{what} names buffer {index:,} of {len(self._spans):,}")
        return self._spans[index]


class _Parser:
    def __init__(self, buffer: Buffer, buffers: _Buffers, codes: list[TfliteOperator]) -> None:
        self._buffer, self._buffers, self._codes = buffer, buffers, codes

    def subgraph(self, index: int, entry: FlatTable) -> SubGraph:
        tensors = tuple(
            self._tensor(index, item) for index, item in enumerate(entry.tables(0, "tensor", most=_MANY_TENSORS))
        )
        what = f"subgraph {index}"
        operators = tuple(
            self._operator(index, item, len(tensors))
            for index, item in enumerate(entry.tables(3, "operator", most=_MANY_OPERATORS))
        )
        return SubGraph(
            name=entry.text(4, f"the name of {what}") or f"subgraph_{index}",
            tensors=tensors,
            inputs=self._operands(entry, 1, f"the inputs of {what}", len(tensors)),
            outputs=self._operands(entry, 2, f"the outputs of {what}", len(tensors)),
            operators=operators,
        )

    def _tensor(self, index: int, entry: FlatTable) -> TfliteTensor:
        what = f"tensor {index}"
        kind = entry.number(1, "b")
        if kind not in TENSOR_TYPES:
            raise entry.fault(f"has the unknown type {kind}")
        buffer = entry.number(2, "I")
        dtype = TENSOR_TYPES[kind]
        size = self._buffers.size(buffer, what) if buffer else 0
        shape = _shape(entry, what)
        sparsity = entry.table(6, f"the sparsity of {what}")
        if size and dtype is not None and sparsity is None:
            _require_room(entry, shape, dtype, size)
        name = (entry.text(3, f"the name of {what}") or f"tensor_{index}").replace("{}", "{ }")
        return TfliteTensor(
            index=index,
            name=name,
            shape=shape,
            dtype=dtype,
            buffer=buffer,
            nbytes=size + (0 if sparsity is None else _index_bytes(sparsity, what)) if size else None,
            values=self._buffers.whole_numbers(buffer, dtype, what) if size and dtype in {"i32", "i64"} else None,
            variable=entry.number(5, "?", default=False),
            sparse=sparsity is not None,
            external=entry.number(10, "I") != 0,
            quantization=_quantization(entry, what),
        )

    def _operator(self, index: int, entry: FlatTable, tensors: int) -> OperatorInfo:
        what = f"operator {index}"
        code = entry.number(0, "I")
        if code >= len(self._codes):
            raise entry.fault(f"names operator code {code:,} of {len(self._codes):,}")
        return OperatorInfo(
            index=index,
            operator=self._codes[code],
            inputs=self._operands(entry, 1, f"the inputs of {what}", tensors),
            outputs=self._operands(entry, 2, f"the outputs of {what}", tensors),
            options=_options(entry, (3, 4), OPTIONS, what) | _options(entry, (11, 12), OPTIONS_2, what),
        )

    def _operands(self, entry: FlatTable, number: int, what: str, tensors: int) -> tuple[int, ...]:
        operands = entry.numbers(number, "i", what, most=_MANY_OPERANDS)
        for index in operands:
            if not -1 <= index < tensors:
                raise entry.fault(f"names tensor {index:,} of {tensors:,} in {what}")
        return operands


def _shape(entry: FlatTable, what: str) -> tuple[int, ...]:
    """The signature where there is one: it has −1 for what the plain shape shows as 1."""
    plain = entry.numbers(0, "i", f"the shape of {what}", most=_MANY_AXES)
    signature = entry.numbers(7, "i", f"the shape signature of {what}", most=_MANY_AXES)
    shape = signature if len(signature) == len(plain) and signature else plain
    if any(size < -1 for size in shape):
        raise entry.fault(f"has the shape {shape}")
    return shape


def _require_room(entry: FlatTable, shape: tuple[int, ...], dtype: str, size: int) -> None:
    """A constant that claims more numbers than its buffer holds is a damaged one."""
    needed = DTYPES[dtype].nbytes(prod(shape))
    if min(shape, default=0) >= 0 and needed > size:
        shown = f"{needed:,}" if needed < 1 << 63 else "2^63 or more"
        raise entry.fault(f"has the shape {shape} of {dtype}, {shown} bytes, in a buffer of {size:,}; it stands")


def _index_bytes(sparsity: FlatTable, what: str) -> int:
    """Bytes that say where a sparse tensor's numbers belong: segments and indices of each axis that is compressed."""
    total = 0
    for axis in sparsity.tables(2, f"sparse axis of {what}", most=_MANY_AXES):
        for kind, place in ((2, 3), (4, 5)):
            width = {1: 4, 2: 2, 3: 1}.get(axis.number(kind, "B"))
            table = axis.table(place, f"the indices of {axis.what}") if width else None
            if width and table is not None:
                total += width * table.count(0, width, f"the indices of {axis.what}")
    return total


def _quantization(entry: FlatTable, what: str) -> Quantization | None:
    table = entry.table(4, f"the quantisation of {what}")
    if table is None:
        return None
    scales = table.count(2, 4, f"the scales of {what}")
    details = _DETAILS.get(table.number(4, "B"))
    if not scales and details is None:
        return None
    inner = table.table(5, f"the quantisation details of {what}") if details in {"blockwise", "multi_axis"} else None
    return Quantization(
        scales=scales,
        zero_points=table.count(3, 8, f"the zero points of {what}"),
        axis=table.number(6, "i") if scales > 1 else None,
        details=details,
        block=None if inner is None else inner.number(2, "i"),
    )


def _options(entry: FlatTable, numbers: tuple[int, int], known: Mapping[int, Fields], what: str) -> dict[str, Any]:
    """The options that decide the work; an operator that has them and leaves them out has the defaults."""
    kind, place = numbers
    fields = known.get(entry.number(kind, "B"))
    if fields is None:
        return {}
    table = entry.table(place, f"the options of {what}")
    if table is None:
        return {name: default for name, (_, _, default) in fields.items()}
    return {name: _option(table, number, letter, default) for name, (number, letter, default) in fields.items()}


def _option(table: FlatTable, number: int, letter: str, default: Any) -> Any:
    if letter == "s":
        return table.text(number, f"field {number} of {table.what}") or default
    if letter.startswith("*"):
        return table.numbers(number, letter[1:], f"field {number} of {table.what}", most=_MANY_OPERANDS)
    return table.number(number, letter, default)

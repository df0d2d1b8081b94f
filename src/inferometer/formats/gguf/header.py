"""The header of a GGUF file: metadata and tensor infos. The weights themselves are never read."""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from inferometer.core.dtypes import DTYPES, DType
from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen

# A position in a GGUF file that only moves forward and never past the end.
#
# A hostile header is refused for what it claims before anything is allocated: the bounds below lie far above what real
# files hold (a vocabulary of 262,144 tokens and its merges are some 800,000 strings in 20 MB).

_HEADER_LIMIT = 1 << 28  # bytes of metadata and tensor infos
_WALK_LIMIT = 1 << 23  # strings and nested arrays stepped over one by one
_NAME_LIMIT = 1 << 16  # bytes of a key or a tensor's name


class Cursor:
    """Reads numbers and strings in the file's byte order; every failure names the file and the byte."""

    def __init__(self, data: mmap.mmap | bytes, path: Path, *, position: int = 0) -> None:
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


# GGUF's numbers for things: types of metadata values and of tensors.
#
# Source: the GGUF specification (ggml, docs/gguf.md) and ggml.h. The block sizes of tensor types are `core.dtype`'s.

# value type → struct letter
SCALARS: dict[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
STRING, ARRAY = 8, 9
VALUE_NAMES: dict[int, str] = {
    0: "u8", 1: "i8", 2: "u16", 3: "i16", 4: "u32", 5: "i32", 6: "f32", 7: "bool", 8: "string", 9: "array",
    10: "u64", 11: "i64", 12: "f64",
}  # fmt: skip

# Tensor type → the format, and how many numbers a row must be a multiple of. Types 31–33 and 36–38 are q4_0 and iq4_nl
# with their rows interleaved for one processor: withdrawn from the format, met in old files, of the same size.
_INTERLEAVED = {31: "q4_0", 32: "q4_0", 33: "q4_0", 36: "iq4_nl", 37: "iq4_nl", 38: "iq4_nl"}
_ROWS = {"nvfp4": 64}  # stored four blocks at a time

TENSOR_TYPES: dict[int, tuple[DType, int]] = {
    number: (entry, _ROWS.get(entry.name, entry.elements))
    for number, entry in [
        *((entry.gguf_type, entry) for entry in DTYPES.values() if entry.gguf_type is not None),
        *((number, DTYPES[name]) for number, name in _INTERLEAVED.items()),
    ]
}


MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MANY_KEYS = 1 << 16
_MANY_TENSORS = 1 << 17
_MANY_AXES = 8  # ggml has at most 4
_DEEP = 4  # arrays within arrays
_KEPT_NUMBERS = 4096  # a longer array is kept as its count
_KEPT_STRINGS = 64
_KEPT_TEXT = 1 << 20  # bytes; a longer text is kept as its length
_KEPT_BYTES = 1 << 24  # of all texts together
_ALIGNMENT = 32  # where general.alignment does not say another


@frozen
class CountedValue:
    """A value too large to keep, such as a vocabulary: what it is made of, and how much of it there is."""

    type: str
    count: int


@frozen
class GgufTensor:
    """`shape` has the outermost axis first, as everywhere but in GGUF itself; `offset` counts from the file's start."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    nbytes: int


@frozen
class GgufHeader:
    path: Path
    version: int
    byte_order: str
    alignment: int
    metadata: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]
    data_offset: int  # where tensor data begins: the header and its padding end here
    file_bytes: int

    @property
    def tensor_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def padding_bytes(self) -> int:
        """Bytes after the header that belong to no tensor."""
        return self.file_bytes - self.data_offset - self.tensor_bytes


def read_header(path: Path) -> GgufHeader:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return parse_header(data, path)
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise FormatError(f"{str(path)!r} cannot be read as a GGUF file: {error}.") from None


def parse_header(data: mmap.mmap | bytes, path: Path) -> GgufHeader:
    cursor = Cursor(data, path)
    version = _version(cursor)
    tensor_count = _count(cursor, "tensors", most=_MANY_TENSORS, least=24)
    key_count = _count(cursor, "metadata keys", most=_MANY_KEYS, least=13)
    metadata = _Values(cursor).read(key_count)
    alignment = metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 30 or alignment & (alignment - 1):
        raise cursor.fault(f"general.alignment is {alignment!r}, which is not a power of two")
    infos = [_tensor_info(cursor) for _ in range(tensor_count)]
    data_offset = -(-cursor.position // alignment) * alignment
    tensors = tuple(_placed(cursor, info, data_offset, alignment, len(data)) for info in infos)
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise cursor.fault(f"the tensor {tensor.name!r} stands twice")
        names.add(tensor.name)
    end, last = 0, ""
    for tensor in sorted((tensor for tensor in tensors if tensor.nbytes), key=lambda tensor: tensor.offset):
        if tensor.offset < end:
            raise cursor.fault(f"the tensors {last!r} and {tensor.name!r} overlap", at=tensor.offset)
        end, last = tensor.offset + tensor.nbytes, tensor.name
    return GgufHeader(
        path=path,
        version=version,
        byte_order="little" if cursor.order == "<" else "big",
        alignment=alignment,
        metadata=metadata,
        tensors=tensors,
        data_offset=min(data_offset, len(data)),
        file_bytes=len(data),
    )


def _version(cursor: Cursor) -> int:
    """The version also reveals the byte order: only in one of the two is it a small number."""
    if cursor.raw(4, "the magic number") != MAGIC:
        raise cursor.fault("the magic number GGUF is missing", at=0)
    version: int = cursor.number("I", "the version")
    if version & 0xFFFF == 0 and version != 0:
        cursor.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in _VERSIONS:
        raise cursor.fault(
            f"version {version} is not one of {_VERSIONS}",
            at=4,
            remedy="Convert the model again with a current llama.cpp.",
        )
    return version


def _count(cursor: Cursor, what: str, *, most: int, least: int) -> int:
    """How many there are of something that takes at least `least` bytes each."""
    start = cursor.position
    count: int = cursor.number("Q", f"the number of {what}")
    if count > most:
        raise cursor.fault(f"the header claims {count:,} {what}; more than {most:,} are not read", at=start)
    cursor.room(count * least, f"the header's {count:,} {what}")
    return count


class _Values:
    """Reads the metadata and remembers how much text it has kept."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._kept = 0

    def read(self, count: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for index in range(count):
            start = self._cursor.position
            key = self._cursor.name(f"metadata key {index}")
            if key in metadata:
                raise self._cursor.fault(f"the metadata key {key!r} stands twice", at=start)
            kind = self._cursor.number("I", f"the type of {key!r}")
            metadata[key] = self._value(kind, key, depth=0)
        return metadata

    def _value(self, kind: int, key: str, *, depth: int) -> Any:
        cursor = self._cursor
        if kind in SCALARS:
            return cursor.number(SCALARS[kind], f"the value of {key!r}")
        if kind == STRING:
            length = self._cursor.number("Q", f"the length of {key!r}")
            if length > _KEPT_TEXT or self._kept + length > _KEPT_BYTES:
                self._cursor.skip(length, f"the text of {key!r}")
                return CountedValue(type="string", count=length)
            self._kept += length
            return self._cursor.raw(length, f"the text of {key!r}").decode("utf-8", errors="replace")
        if kind == ARRAY:
            return self._array(key, depth=depth)
        raise cursor.fault(f"{key!r} has the unknown value type {kind}", at=cursor.position - 4)

    def _array(self, key: str, *, depth: int) -> tuple[Any, ...] | CountedValue:
        cursor = self._cursor
        if depth >= _DEEP:
            raise cursor.fault(f"{key!r} nests arrays more than {_DEEP} deep")
        kind = cursor.number("I", f"the element type of {key!r}")
        count = cursor.number("Q", f"the length of {key!r}")
        if kind in SCALARS:
            return self._numbers(key, kind, count)
        if kind == STRING and count > _KEPT_STRINGS:
            cursor.skip_strings(count, f"the array {key!r}")
            return CountedValue(type="string", count=count)
        cursor.walk(count, f"the array {key!r}", least=8 if kind == STRING else 12)
        if count <= _KEPT_STRINGS:
            return tuple(self._value(kind, key, depth=depth + 1) for _ in range(count))
        for _ in range(count):  # arrays within an array: none is kept
            self._value(kind, key, depth=depth + 1)
        return CountedValue(type=VALUE_NAMES[kind], count=count)

    def _numbers(self, key: str, kind: int, count: int) -> tuple[Any, ...] | CountedValue:
        letter = SCALARS[kind]
        if count > _KEPT_NUMBERS:
            self._cursor.skip(count * struct.calcsize(f"={letter}"), f"the array {key!r}")
            return CountedValue(type=VALUE_NAMES[kind], count=count)
        return self._cursor.numbers(letter, count, f"the array {key!r}")


@dataclass(frozen=True, slots=True)
class _Info:
    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int  # from the start of the data
    place: int  # where in the header it stands


def _tensor_info(cursor: Cursor) -> _Info:
    place = cursor.position
    name = cursor.name("a tensor's name")
    axes = cursor.number("I", f"the number of axes of {name!r}")
    if axes > _MANY_AXES:
        raise cursor.fault(f"tensor {name!r} has {axes:,} axes", at=place)
    shape = cursor.numbers("Q", axes, f"the shape of {name!r}")
    kind, offset = cursor.number("I", f"the type of {name!r}"), cursor.number("Q", f"the offset of {name!r}")
    return _Info(name, shape[::-1], kind, offset, place)


def _placed(cursor: Cursor, info: _Info, data_offset: int, alignment: int, size: int) -> GgufTensor:
    """The tensor with its exact bytes, which must lie inside the file."""
    if info.kind not in TENSOR_TYPES:
        raise cursor.fault(
            f"tensor {info.name!r} has the unknown type {info.kind}",
            at=info.place,
            remedy=f"Known: {', '.join(f'{number} {entry.name}' for number, (entry, _) in TENSOR_TYPES.items())}.",
        )
    entry, multiple = TENSOR_TYPES[info.kind]
    if info.shape and info.shape[-1] % multiple:
        raise cursor.fault(
            f"tensor {info.name!r} has rows of {info.shape[-1]:,}, which is no multiple of {entry.name}'s {multiple}",
            at=info.place,
        )
    if info.offset % alignment:
        raise cursor.fault(
            f"tensor {info.name!r} starts at {info.offset:,}, not a multiple of {alignment}", at=info.place
        )
    nbytes: int = entry.nbytes(prod(info.shape))
    start = data_offset + info.offset
    if nbytes and start + nbytes > size:
        shown = f"{start + nbytes:,}" if start + nbytes < 1 << 63 else "2^63 or more"
        raise cursor.fault(
            f"tensor {info.name!r} ends at byte {shown} of a file that has {size:,}; its info stands",
            at=info.place,
            remedy="Fetch the file again: it is cut short or damaged.",
        )
    return GgufTensor(name=info.name, shape=info.shape, dtype=entry.name, offset=start, nbytes=nbytes)

"""The header of a safetensors file: an 8-byte length, then JSON that says where each tensor lies.

The format's own rules are checked: tensors fill the rest of the file without holes or overlaps, and each takes the
bytes its shape and format need. Nothing but the header is read.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.formats.base import look
from inferometer.formats.foreign import foreign_content

HEADER_LIMIT = 100_000_000  # the format's own
_MANY_TENSORS = 1 << 18
_MANY_AXES = 64
_LARGEST = 1 << 62

# The format's name of a number format → ours, and its bits. Where the core has no row the name is None.
_FORMATS: dict[str, tuple[str, int]] = {
    "BOOL": ("bool", 8), "U8": ("u8", 8), "I8": ("i8", 8), "U16": ("u16", 16), "I16": ("i16", 16), "U32": ("u32", 32),
    "I32": ("i32", 32), "U64": ("u64", 64), "I64": ("i64", 64), "F16": ("f16", 16), "BF16": ("bf16", 16),
    "F32": ("f32", 32), "F64": ("f64", 64), "C64": ("c64", 64), "F8_E4M3": ("f8e4m3", 8), "F8_E5M2": ("f8e5m2", 8),
    "F8_E4M3FNUZ": ("f8e4m3", 8), "F8_E5M2FNUZ": ("f8e5m2", 8), "F8_E8M0": ("f8e8m0", 8), "F6_E2M3": ("f6e2m3", 6),
    "F6_E3M2": ("f6e3m2", 6), "F4": ("f4e2m1", 4), "I4": ("i4", 4), "U4": ("u4", 4),
}  # fmt: skip


@frozen
class SafetensorsTensor:
    """`dtype` is None where `core.dtype` has no row for the format, which `stored_as` names."""

    name: str
    shape: tuple[int, ...]
    dtype: str | None
    stored_as: str
    offset: int  # from the start of the file
    nbytes: int


@frozen
class SafetensorsHeader:
    path: Path
    tensors: tuple[SafetensorsTensor, ...]
    metadata: Mapping[str, str]
    header_bytes: int
    file_bytes: int


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_header(path: Path) -> SafetensorsHeader:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, HEADER_LIMIT):
                if (foreign := foreign_content(look(path))) is not None:  # a folder was read by the names in it
                    raise FormatError(f"{str(path)!r} is {foreign.title}.", remedy=foreign.remedy)
                shown = f"{length:,}" if length < 1 << 50 else f"2^{length.bit_length() - 1} or more"
                problem = f"its header is said to have {shown} bytes at byte 0, of a file of {size:,}"
                raise _fault(path, problem, cut=True)
            raw = file.read(length)
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except OSError as error:
        raise FormatError(f"{str(path)!r} cannot be read: {error}.") from None
    return _parsed(path, raw, size)


def _fault(path: Path, problem: str, *, cut: bool = False) -> FormatError:
    remedy = "Fetch the file again: it is cut short or damaged." if cut else None
    return FormatError(f"{str(path)!r} is not a sound safetensors file: {problem}.", remedy=remedy)


def _parsed(path: Path, raw: bytes, size: int) -> SafetensorsHeader:
    if raw.count(b'"data_offsets"') > _MANY_TENSORS:
        raise _fault(path, f"it claims more than {_MANY_TENSORS:,} tensors")
    try:
        entries: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        described = entries.pop("__metadata__", None)
        metadata = {} if described is None else msgspec.json.decode(described, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _fault(path, f"its header is not the JSON it should be ({error})") from None
    start = 8 + len(raw)
    tensors = tuple(_tensor(path, name, entry, start) for name, entry in entries.items())
    # one tensor after the other from the header to the end of the file
    reached, last = start, "the header"
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != reached:
            relation = "overlaps" if tensor.offset < reached else "leaves a hole after"
            raise _fault(path, f"tensor {tensor.name[:200]!r} at byte {tensor.offset:,} {relation} {last}")
        reached, last = tensor.offset + tensor.nbytes, repr(tensor.name[:200])
    if reached != size:
        cut = reached > size
        what = "ends before the last tensor does" if cut else "goes on after the last tensor"
        raise _fault(path, f"the file of {size:,} bytes {what}, at byte {reached:,}", cut=cut)
    return SafetensorsHeader(path=path, tensors=tensors, metadata=metadata, header_bytes=start, file_bytes=size)


def _tensor(path: Path, name: str, raw: Any, start: int) -> SafetensorsTensor:
    try:
        entry = msgspec.json.decode(raw, type=_Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _fault(path, f"tensor {name[:200]!r} is not described as it should be ({error})") from None
    if entry.dtype not in _FORMATS:
        raise FormatError(
            f"{str(path)!r}: tensor {name[:200]!r} has the unknown format {entry.dtype[:40]!r}.",
            remedy=f"Known: {', '.join(_FORMATS)}.",
        )
    begin, end = entry.data_offsets
    if len(entry.shape) > _MANY_AXES or any(not 0 <= size < _LARGEST for size in entry.shape) or not 0 <= begin <= end:
        raise _fault(path, f"tensor {name[:200]!r} has an impossible shape or place")
    ours, bits = _FORMATS[entry.dtype]
    needed = -(-prod(entry.shape) * bits // 8)
    if end - begin != needed:
        shown = f"{needed:,}" if needed < _LARGEST else "2^62 or more"
        raise _fault(path, f"tensor {name[:200]!r} has {end - begin:,} bytes where its shape needs {shown}")
    return SafetensorsTensor(
        name=name,
        shape=tuple(entry.shape),
        dtype=ours if ours in DTYPES else None,
        stored_as=entry.dtype,
        offset=start + begin,
        nbytes=needed,
    )

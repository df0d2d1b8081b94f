"""GGUF version 3 on disk: header, metadata, tensor infos, then the tensors, one piece at a time.

Source: the GGUF specification (ggml, docs/gguf.md).
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from inferometer.core.dtypes import DTYPES
from inferometer.formats.gguf.write.blocks import BLOCK_FORMATS, pack
from inferometer.formats.gguf.write.names import WrittenTensor
from inferometer.formats.safetensors.write import as_stored
from inferometer.formats.synth.weights import Array, Weight, numbers, units

ALIGNMENT = 32
Value = bool | int | float | str | Sequence[str] | Sequence[int] | Sequence[float] | Sequence[bool]
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


def write(
    file: IO[bytes], metadata: Mapping[str, Value], tensors: Sequence[tuple[WrittenTensor, str]], seed: int
) -> None:
    """With random numbers."""
    write_tensors(file, metadata, tensors, lambda target, dtype: _random(target, dtype, seed))


def write_tensors(
    file: IO[bytes],
    metadata: Mapping[str, Value],
    tensors: Sequence[tuple[WrittenTensor, str]],
    stored: Callable[[WrittenTensor, str], Iterable[bytes]],
) -> None:
    """`tensors` are with their formats, in the order they are stored in; `stored` gives each one's bytes in pieces."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + _value(value) for key, value in metadata.items())
    offset = 0
    for target, dtype in tensors:
        # The innermost axis stands first.
        axes = target.shape[::-1]
        number = DTYPES[dtype].gguf_type
        head += _text(target.name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, number, offset)
        offset += _padded(DTYPES[dtype].nbytes(target.elements))
    file.write(head + bytes(-len(head) % ALIGNMENT))
    for target, dtype in tensors:
        for piece in stored(target, dtype):
            file.write(piece)
        file.write(bytes(-DTYPES[dtype].nbytes(target.elements) % ALIGNMENT))


def data_bytes(tensors: Sequence[tuple[WrittenTensor, str]]) -> int:
    return sum(_padded(DTYPES[dtype].nbytes(target.elements)) for target, dtype in tensors)


def _random(target: WrittenTensor, dtype: str, seed: int) -> Iterator[Any]:
    for part in target.parts:
        if dtype in BLOCK_FORMATS:
            yield from (pack(piece, part.spread, dtype).data for piece in turned(units(part, seed), part, target))
        else:
            yield from (as_stored(piece, dtype).data for piece in turned(numbers(part, seed), part, target))


def turned(pieces: Iterator[Array], part: Weight, target: WrittenTensor) -> Iterator[Array]:
    """GPT-2's matrices are stored the other way round, and llama's heads interleaved: both fit into memory."""
    if not target.transposed and not target.heads:
        yield from pieces
        return
    whole = np.concatenate(list(pieces)).reshape(part.shape)
    if target.heads:
        halves = whole.reshape(target.heads, 2, part.shape[0] // target.heads // 2, *part.shape[1:])
        whole = halves.swapaxes(1, 2).reshape(part.shape)
    turned = whole.T if target.transposed else whole
    yield np.ascontiguousarray(turned).reshape(-1)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    if isinstance(value, Sequence) and not isinstance(value, str):
        kind, letter = _kind(value[0])
        if kind == _UINT32:
            kind, letter = _INT32, "i"  # llama.cpp takes token types in no other format
        head = struct.pack("<IIQ", _ARRAY, kind, len(value))
        if kind == _STRING:
            return head + b"".join(_text(str(text)) for text in value)
        return head + struct.pack(f"<{len(value)}{letter}", *value)
    kind, letter = _kind(value)
    if kind == _STRING:
        return struct.pack("<I", kind) + _text(str(value))
    return struct.pack(f"<I{letter}", kind, value)


def _kind(value: Any) -> tuple[int, str]:
    match value:
        case bool():
            return _BOOL, "?"
        case int():
            return (_UINT32, "I") if value >= 0 else (_INT32, "i")
        case float():
            return _FLOAT32, "f"
        case str():
            return _STRING, ""
        case _:
            raise TypeError(f"GGUF metadata cannot hold {value!r}.")

"""GGUF version 3 on disk: header, metadata, tensor infos, then the tensors, one piece at a time.

Source: the GGUF specification (ggml, docs/gguf.md).
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.formats.gguf.write.names import WrittenTensor
from inferometer.formats.safetensors.write import as_stored
from inferometer.formats.synth.weights import Array, Weight, numbers, units

# Quantised blocks, packed as ggml lays them out.
#
# The numbers are uniform in ±spread, so one scale serves every block and each number takes the nearest of `levels`
# equal steps: a true quantisation of the same weights a plain format would hold, without a search. Formats come in two
# sorts: x = d · (q − half), and x = d · q − m.
#
# Layouts: ggml's ggml-common.h (block_q4_0 … block_q6_K) and the reference de-quantisers in ggml-quants.c.


def pack(units: Array, spread: float, dtype: str) -> Array:
    """int16 units (2¹⁵ is one), a whole number of blocks of them, as the bytes of the format."""
    packed: Array = _PACKERS[dtype](units.reshape(-1, DTYPES[dtype].elements), spread)
    return packed


def _centred(units: Array, levels: int) -> Array:
    """Levels 1 … levels − 1 around levels / 2; the lowest is left out, so that the mean is zero."""
    return (((units.astype(np.int32) * (levels - 1) + 32768) >> 16) + levels // 2).astype(np.uint8)


def _raised(units: Array, levels: int) -> Array:
    """Each number as a level, from 0 for the lowest up to levels − 1."""
    return (((units.astype(np.int32) + 32768) * (levels - 1) + 32768) >> 16).astype(np.uint8)


def _halves(count: int, *values: float) -> Array:
    """f16 values, the same in every block."""
    return np.tile(np.array(values, "<f2").view(np.uint8), (count, 1))


def _bytes(count: int, *values: int) -> Array:
    return np.tile(np.array(values, np.uint8), (count, 1))


def _nibbles(levels: Array) -> Array:
    """A block's first half in the low nibbles, its second in the high ones."""
    half = levels.shape[-1] // 2
    return (levels[..., :half] & 15) | (levels[..., half:] << 4)


def _fifth_bits(levels: Array) -> Array:
    """The fifth bits of 32 numbers as four bytes, the first number in the lowest bit."""
    return np.packbits(levels >> 4, axis=-1, bitorder="little")


def _flat(*parts: Array) -> Array:
    return np.concatenate(parts, axis=1)


def _q8_0(units: Array, spread: float) -> Array:
    levels = (units.astype(np.int32) * 127 + 16384) >> 15
    return _flat(_halves(len(units), spread / 127), levels.astype(np.int8).view(np.uint8))


def _q4_0(units: Array, spread: float) -> Array:
    return _flat(_halves(len(units), spread / 7.5), _nibbles(_centred(units, 16)))


def _q4_1(units: Array, spread: float) -> Array:
    return _flat(_halves(len(units), 2 * spread / 15, -spread), _nibbles(_raised(units, 16)))


def _q5_0(units: Array, spread: float) -> Array:
    levels = _centred(units, 32)
    return _flat(_halves(len(units), spread / 15.5), _fifth_bits(levels), _nibbles(levels))


def _q5_1(units: Array, spread: float) -> Array:
    levels = _raised(units, 32)
    return _flat(_halves(len(units), 2 * spread / 31, -spread), _fifth_bits(levels), _nibbles(levels))


# In the K formats each group of 16 or 32 numbers has a small whole-number scale (and minimum) of its own: all are 1.


def _q2_k(units: Array, spread: float) -> Array:
    levels = _raised(units, 4).reshape(-1, 2, 4, 32)
    quants = _stacked(levels, (0, 2, 4, 6)).reshape(-1, 64)
    scales = _bytes(len(units), *[0x11] * 16)
    return _flat(scales, quants, _halves(len(units), 2 * spread / 3, spread))


def _q3_k(units: Array, spread: float) -> Array:
    levels = _centred(units, 8).reshape(-1, 2, 4, 32)
    quants = _stacked(levels & 3, (0, 2, 4, 6)).reshape(-1, 64)
    masks = _stacked((levels >> 2).reshape(-1, 1, 8, 32), range(8)).reshape(-1, 32)
    # scales are stored + 32, as 6 bits: the low nibbles of all sixteen, then their upper two bits
    scales = _bytes(len(units), *[0x11] * 8, *[0xAA] * 4)
    return _flat(masks, quants, scales, _halves(len(units), spread / 3.5))


def _q4_k(units: Array, spread: float) -> Array:
    quants = _nibbles(_raised(units, 16).reshape(-1, 4, 64)).reshape(-1, 128)
    return _flat(_halves(len(units), 2 * spread / 15, spread), _sixes(len(units)), quants)


def _q5_k(units: Array, spread: float) -> Array:
    levels = _raised(units, 32)
    upper = _stacked((levels >> 4).reshape(-1, 1, 8, 32), range(8)).reshape(-1, 32)
    quants = _nibbles(levels.reshape(-1, 4, 64)).reshape(-1, 128)
    return _flat(_halves(len(units), 2 * spread / 31, spread), _sixes(len(units)), upper, quants)


def _q6_k(units: Array, spread: float) -> Array:
    levels = _centred(units, 64)
    lower = _nibbles(levels.reshape(-1, 2, 128)).reshape(-1, 128)
    upper = _stacked((levels >> 4).reshape(-1, 2, 4, 32), (0, 2, 4, 6)).reshape(-1, 64)
    return _flat(lower, upper, _bytes(len(units), *[1] * 16), _halves(len(units), spread / 31.5))


def _stacked(levels: Array, shifts: Any) -> Array:
    """[…, parts, 32] → […, 32]: each part's bits at its own place in the byte."""
    places = np.array(list(shifts), np.uint8)[:, None]
    packed: Array = np.bitwise_or.reduce(levels << places, axis=-2)
    return packed


def _sixes(count: int) -> Array:
    """Eight scales and eight minima of 6 bits in 12 bytes, all 1."""
    return _bytes(count, *[1] * 8, *[0x11] * 4)


_PACKERS: dict[str, Callable[[Array, float], Array]] = {
    "q8_0": _q8_0, "q4_0": _q4_0, "q4_1": _q4_1, "q5_0": _q5_0, "q5_1": _q5_1, "q2_k": _q2_k, "q3_k": _q3_k,
    "q4_k": _q4_k, "q5_k": _q5_k, "q6_k": _q6_k,
}  # fmt: skip
BLOCK_FORMATS = tuple(_PACKERS)


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


# Which format each tensor of a GGUF file has.
#
# A format's plain name (`q4_0`, `q6_k`) means every matrix in it. `q4_k_m` and `q5_k_m` are llama.cpp's mixtures: more
# bits where they help most. Norms, biases, routers and other small tensors stay f32, as llama.cpp keeps them. Rows
# that are no whole number of blocks take the next format that fits. Source: llama.cpp, src/llama-quant.cpp.

# our name → llama.cpp's number for the file
_FILE_TYPES = {
    "f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "q4_0": 2, "q4_1": 3, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k": 11,
    "q4_k": 14, "q5_k": 16, "q6_k": 18, "q4_k_m": 15, "q5_k_m": 17,
}  # fmt: skip
FORMATS = tuple(_FILE_TYPES)
_MIXTURES = {"q4_k_m": "q4_k", "q5_k_m": "q5_k"}
# where rows are no multiple of 256, and then of 32
_NARROWER = {"q2_k": "q4_0", "q3_k": "q4_0", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}


@frozen
class GgufFacts:
    """What the mixtures look at."""

    layers: int
    heads: int = 1
    kv_heads: int = 1
    experts: int = 0
    tied: bool = False


def require_format(name: str) -> None:
    if name not in _FILE_TYPES:
        raise InferometerError(
            f"GGUF cannot be written with {name} weights here.", remedy=f"Choose one of {', '.join(FORMATS)}."
        )


def file_type(name: str) -> int:
    return _FILE_TYPES[name]


def format_of(target: WrittenTensor, name: str, model: GgufFacts) -> str:
    """The format of one tensor in a file of that format."""
    if not target.matrix:
        return "f32"
    chosen = _mixed(target, name, model) if name in _MIXTURES else name
    row = target.shape[-1]
    if chosen in _NARROWER and row % 256:
        chosen = _NARROWER[chosen]
    return "f16" if chosen in BLOCK_FORMATS and row % DTYPES[chosen].elements else chosen


def _mixed(target: WrittenTensor, name: str, model: GgufFacts) -> str:
    """The mixture's own rules, the first that holds; its base where none does."""
    base, part = _MIXTURES[name], target.stem
    more, eight = _more(target.layer, model.layers), model.experts == 8
    large = model.layers == 80 and model.kv_heads < model.heads
    rules = (
        (part == "output" or (part == "token_embd" and model.tied), "q6_k"),
        (eight and part in {"attn_k", "attn_v"}, "q8_0"),
        (more and part in {"attn_v", "ffn_down", "ffn_down_exps", "ffn_down_shexp"}, "q6_k"),
        (large and part == "attn_v", "q5_k"),
        (eight and part == "attn_output", "q5_k"),
        (part == "attn_qkv", "q5_k" if base == "q4_k" else "q6_k"),
    )
    return next((chosen for holds, chosen in rules if holds), base)


def _more(layer: int, layers: int) -> bool:
    """The first and last eighth of the layers, and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2

"""Quantised blocks, packed as ggml lays them out.

The numbers are uniform in ±spread, so one scale serves every block and each number takes the nearest of `levels` equal
steps: a true quantisation of the same weights a plain format would hold, without a search. Formats come in two sorts:
x = d · (q − half), and x = d · q − m.

Layouts: ggml's ggml-common.h (block_q4_0 … block_q6_K) and the reference de-quantisers in ggml-quants.c.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from inferometer.core.dtypes import DTYPES

Array = np.ndarray[Any, Any]


def pack(units: Array, spread: float, dtype: str) -> Array:
    """int16 units (2¹⁵ is one), a whole number of blocks of them, as the bytes of the format."""
    packed: Array = _PACKERS[dtype](units.reshape(-1, DTYPES[dtype].elements), spread)
    return packed


def _centred(units: Array, levels: int) -> Array:
    """Levels 1 … levels − 1 around levels / 2; the lowest is left out, so that the mean is zero."""
    return (((units.astype(np.int32) * (levels - 1) + 32768) >> 16) + levels // 2).astype(np.uint8)


def _raised(units: Array, levels: int) -> Array:
    """Levels 0 … levels − 1 from the lowest number up."""
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
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
}
BLOCK_FORMATS = tuple(_PACKERS)

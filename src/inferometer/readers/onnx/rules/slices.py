"""How long a slice is, of sizes that may be symbols."""

from inferometer.core.dims import Dim
from inferometer.readers.onnx import algebra
from inferometer.readers.onnx.faults import Fault
from inferometer.readers.onnx.value import Call

__all__ = ["slice_length", "slice_positions"]

_TO_THE_END = 1 << 24  # writers say "to the end" with a number beyond all sizes, often the largest of 32 or 64 bits


def slice_positions(size: int, start: int, end: int, step: int) -> range:
    """What is kept of `size` elements; out-of-range bounds are moved to the ends."""
    if step == 0:
        raise Fault("a slice with a step of 0")
    first, last = (0, size) if step > 0 else (-1, size - 1)
    start = min(max(start + size if start < 0 else start, 0 if step > 0 else -1), last if step < 0 else size)
    end = min(max(end + size if end < 0 else end, first), size if step > 0 else last)
    return range(start, end, step)


def slice_length(call: Call, size: Dim, start: Dim | None, end: Dim | None, step: int) -> Dim | None:
    """Bounds that are symbols are taken to lie within the tensor; None where the length cannot be told."""
    if step == 0:
        raise Fault("a slice with a step of 0")
    if start is None or end is None:
        return None
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(slice_positions(size, start, end, step))
    if step < 0:
        return _backwards(size, start, end, step)
    low, high = _bound(size, start), _bound(size, end)
    if low == 0 and high == size:
        return algebra.ceildiv(size, step)
    if high != size and not (isinstance(end, int) and end < 0):
        call.assume(f"a slice that ends at {high} lies within {size}")
    length = algebra.ceildiv(algebra.sub(high, low), step)
    return max(length, 0) if isinstance(length, int) else length


def _bound(size: Dim, bound: Dim) -> Dim:
    """A bound counted from the front."""
    if isinstance(bound, int):
        if bound >= _TO_THE_END:
            return size
        if bound <= -_TO_THE_END:
            return 0
        return bound if bound >= 0 else algebra.add(size, bound)
    return algebra.add(size, bound) if algebra.is_negative(bound) else bound


def _backwards(size: Dim, start: Dim, end: Dim, step: int) -> Dim | None:
    """A reversal of the whole axis, the one backward slice that models use on sizes that vary."""
    from_last = start == -1 or (isinstance(start, int) and start >= _TO_THE_END) or start == algebra.sub(size, 1)
    to_first = isinstance(end, int) and end <= -_TO_THE_END
    return algebra.ceildiv(size, -step) if from_last and to_first else None

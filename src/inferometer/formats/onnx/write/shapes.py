"""Shapes: fixing sizes, comparing them, and turning one shape into another.

The graph says that a tensor is looked at in another shape, not how: what moves is read off the two shapes.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.core.dims import Dim, Expression, Symbol, evaluate, symbols_in
from inferometer.core.errors import InferometerError
from inferometer.formats.onnx.write.nodes import Nodes, WrittenValue

_OPERATIONS: dict[str, Any] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_PRIMES = (7919, 104_729, 1_299_709, 15_485_863, 179_424_673, 2_038_074_743)


def fixed(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """The dimension with the symbols that `sizes` knows replaced."""
    if isinstance(dim, Symbol):
        return sizes.get(dim.name, dim)
    if isinstance(dim, Expression):
        combined: Dim = _OPERATIONS[dim.operation](fixed(dim.left, sizes), fixed(dim.right, sizes))
        return combined
    return dim


def probe(dims: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes as plain numbers, for comparing: each symbol stands for a prime of its own that no real size is."""
    names = sorted({"batch", "query", "context"} | set().union(*(symbols_in(dim) for dim in dims)))
    values = {name: _PRIMES[index % len(_PRIMES)] + 2 * (index // len(_PRIMES)) for index, name in enumerate(names)}
    return tuple(int(evaluate(dim, values)) for dim in dims)


def reshaped(nodes: Nodes, value: WrittenValue, shape: Sequence[Dim]) -> WrittenValue:
    """The same numbers in another shape. Sizes that stay in place, and one more, need not be computed at run time."""
    shape = tuple(shape)
    if value.shape == shape:
        return value
    kept = [index < len(value.shape) and dim == value.shape[index] for index, dim in enumerate(shape)]
    target: list[int] = []
    for dim, same in zip(shape, kept, strict=True):
        target.append(dim if isinstance(dim, int) else 0 if same else -1)
    if target.count(-1) <= 1:
        name = nodes.add("Reshape", value.name, nodes.wholes(*target))
    else:
        name = nodes.add("Reshape", value.name, nodes.shape(shape))
    return WrittenValue(name, shape)


def transposed(nodes: Nodes, value: WrittenValue, *order: int) -> WrittenValue:
    name = nodes.add("Transpose", value.name, perm=list(order))
    return WrittenValue(name, tuple(value.shape[axis] for axis in order))


def _sliced(nodes: Nodes, value: WrittenValue, axis: int, start: int, end: int) -> WrittenValue:
    """`end` may lie beyond the axis."""
    name = nodes.add("Slice", value.name, nodes.wholes(start), nodes.wholes(end), nodes.wholes(axis))
    length = end - start
    return WrittenValue(name, (*value.shape[:axis], length, *value.shape[axis + 1 :]))


def reinterpreted(nodes: Nodes, value: WrittenValue, shape: Sequence[Dim], *, last: bool = False) -> WrittenValue:
    """Look at a value in another shape: a reshape, a transpose, or a part of it (`last`: from the end)."""
    shape = tuple(shape)
    have, want = probe((*value.shape, *shape))[: len(value.shape)], probe((*value.shape, *shape))[len(value.shape) :]
    if have == want:
        return WrittenValue(value.name, shape)
    if sorted(have) == sorted(want):
        return transposed(nodes, value, *_order(have, want))
    if len(have) == 4 and want == (have[0], have[2] * have[3], have[1]):  # a plane as a sequence of tokens
        rows = reshaped(nodes, value, (value.shape[0], value.shape[1], shape[1]))
        return transposed(nodes, rows, 0, 2, 1)
    if len(want) == 4 and have == (want[0], want[2] * want[3], want[1]):  # and back
        columns = transposed(nodes, value, 0, 2, 1)
        return reshaped(nodes, columns, shape)
    if _product(have) == _product(want):
        return reshaped(nodes, value, shape)
    return _part(nodes, value, shape, (have, want), last=last)


def _part(
    nodes: Nodes,
    value: WrittenValue,
    shape: tuple[Dim, ...],
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    last: bool,
) -> WrittenValue:
    """One axis dropped (its first or last entry), or one axis shortened."""
    have, want = sizes
    if len(want) == len(have) - 1:
        axis = next(axis for axis in range(len(have)) if have[:axis] + have[axis + 1 :] == want)
        name = nodes.add("Gather", value.name, nodes.scalar(-1 if last else 0), axis=axis)
        return WrittenValue(name, shape)
    differing = [axis for axis in range(len(have)) if len(have) == len(want) and have[axis] != want[axis]]
    if len(differing) == 1 and isinstance(shape[differing[0]], int):
        axis, count = differing[0], want[differing[0]]
        start, end = (-count, 2**62) if last else (0, count)
        part = _sliced(nodes, value, axis, start, end)
        return WrittenValue(part.name, shape)
    raise InferometerError(
        f"{nodes.scope!r} looks at {shown(value.shape)} as {shown(shape)}, which cannot be lowered to ONNX."
    )


def _order(have: tuple[int, ...], want: tuple[int, ...]) -> list[int]:
    left = list(enumerate(have))
    order = []
    for size in want:
        place = next(index for index, (_, other) in enumerate(left) if other == size)
        order.append(left.pop(place)[0])
    return order


def concat_axis(parts: Sequence[tuple[Dim, ...]], whole: tuple[Dim, ...]) -> int | None:
    """The axis along which the parts make the whole, or None."""
    flat = probe([*whole, *(dim for part in parts for dim in part)])
    rank = len(whole)
    if any(len(part) != rank for part in parts):
        return None
    total, rest = flat[:rank], flat[rank:]
    sizes = [rest[start : start + rank] for start in range(0, len(rest), rank)]
    for axis in range(rank - 1, -1, -1):
        others = all(size[:axis] + size[axis + 1 :] == total[:axis] + total[axis + 1 :] for size in sizes)
        if others and sum(size[axis] for size in sizes) == total[axis]:
            return axis
    return None


def shown(shape: Sequence[Dim]) -> str:
    """A shape in a message."""
    return "[" + ", ".join(str(dim) for dim in shape) + "]"


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total

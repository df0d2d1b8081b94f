"""Sizes that a TFLite file leaves open, followed from the inputs.

A file with an open batch marks every size that follows from it as unknown too. Each operator's outputs are worked out
from its inputs here; only what cannot be inferred stays a symbol of its own, named after its tensor and axis. Small
integer tensors that compute shapes (SHAPE → STRIDED_SLICE → PACK → RESHAPE) are followed by value.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inferometer.core.dims import Dim, Expression, product
from inferometer.core.frozen import frozen
from inferometer.formats.tflite.model import OperatorInfo
from inferometer.formats.tflite.schema import TfliteOperator

Shape = tuple[Dim, ...]
_PARTS = 64  # symbols and operators in one size; longer expressions are called unknown


@frozen
class Operand:
    """What is known of an input: its shape, and its values where it is a small vector of sizes."""

    shape: Shape
    values: Shape | None = None


@frozen
class _Case:
    """An operator with the inputs it is given, looked at for one of its outputs."""

    operator: TfliteOperator
    options: Mapping[str, Any]
    given: Sequence[Operand]
    place: int = 0

    def shape(self, index: int = 0) -> Shape:
        return self.given[index].shape

    def values(self, index: int) -> Shape:
        values = self.given[index].values
        if values is None:
            raise _UntoldError
        return values

    def numbers(self, index: int) -> tuple[int, ...]:
        """Values that are plain numbers."""
        numbers = tuple(value for value in self.values(index) if isinstance(value, int))
        if len(numbers) != len(self.values(index)):
            raise _UntoldError
        return numbers


class _UntoldError(Exception):
    """The size does not follow from what the file says."""


# What goes wrong where options and shapes do not belong together: then nothing can be told either.
_UNTOLD = (_UntoldError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)
_Infer = Callable[[_Case], Shape]


def output_shapes(info: OperatorInfo, operands: list[Operand | None], ranks: list[int]) -> list[Shape | None]:
    """The shape of each output, or None where the operator's rule cannot infer it."""
    given = [operand for operand in operands if operand is not None]
    called = info.operator
    infer = _BY_NAME.get(called.name) or _BY_FORM.get(called.form) or _BY_KIND.get(called.kind)
    if infer is None or not given:
        return [None] * len(ranks)
    result: list[Shape | None] = []
    for index, rank in enumerate(ranks):
        try:
            shape = infer(_Case(operator=called, options=info.options, given=given, place=index))
        except _UNTOLD:
            shape = ()
        sound = len(shape) == rank and all(_short(dim) for dim in shape)
        result.append(shape if sound else None)
    return result


def _short(dim: Dim) -> bool:
    return isinstance(dim, int) or _size(dim) <= _PARTS


def _size(dim: Any) -> int:
    return 1 + _size(dim.left) + _size(dim.right) if hasattr(dim, "left") else 1


def _axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def _broadcast(case: _Case) -> Shape:
    return _aligned([operand.shape for operand in case.given])


def _aligned(shapes: list[Shape]) -> Shape:
    """Shapes aligned at their last axis; where sizes differ, the one that is not 1."""
    rank = max(len(shape) for shape in shapes)
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((dim for dim in dims if dim != 1), 1) for dims in zip(*aligned, strict=True))


def _same(case: _Case) -> Shape:
    return case.shape()


def _window(side: Dim, kernel: int, stride: int, dilation: int, padding: int) -> Dim:
    if padding == 0:  # SAME
        return (side + (stride - 1)) // stride
    return (side + (stride - (kernel - 1) * dilation - 1)) // stride


def _convolution(case: _Case) -> Shape:
    options, x, filters = case.options, case.shape(), case.shape(1)
    kernel = [size if isinstance(size, int) else 1 for size in filters[1:3]]
    channels = filters[3] if case.operator.form == "depthwise" else filters[0]
    return (x[0], *_sides(options, x[1:3], kernel), channels)


def _sides(options: Mapping[str, Any], sides: Shape, kernel: list[int]) -> Shape:
    strides = (options["stride_h"], options["stride_w"])
    dilations = (options.get("dilation_h", 1), options.get("dilation_w", 1))
    padding = options["padding"]
    return tuple(
        _window(side, k, s, d, padding) for side, k, s, d in zip(sides, kernel, strides, dilations, strict=True)
    )


def _pool(case: _Case) -> Shape:
    x = case.shape()
    return (x[0], *_sides(case.options, x[1:3], [case.options["filter_h"], case.options["filter_w"]]), x[3])


def _transposed(case: _Case) -> Shape:
    """The first input is the output's shape, which usually is fixed but for the batch."""
    return (case.shape(2)[0], *case.values(0)[1:])


def _fully_connected(case: _Case) -> Shape:
    x, (units, width) = case.shape(), case.shape(1)
    return (*x[:-1], units) if case.options.get("keep_dims") else (_quotient(product(x), width), units)


def _quotient(total: Dim, part: Dim) -> Dim:
    """The quotient, with common factors cancelled, so that sizes stay readable."""
    factors, whole = _factors(total)
    others, number = _factors(part)
    rest = list(factors)
    for factor in others:
        if factor not in rest:
            return total // part
        rest.remove(factor)
    return product((*rest, whole // number)) if whole % number == 0 else total // part


def _factors(dim: Dim) -> tuple[list[Dim], int]:
    """A product as its open factors and the number they are multiplied by."""
    if isinstance(dim, int):
        return [], dim
    if isinstance(dim, Expression) and dim.operation == "*":
        left, a = _factors(dim.left)
        right, b = _factors(dim.right)
        return left + right, a * b
    return [dim], 1


def _reshape(case: _Case) -> Shape:
    """At most one size is −1: what is left of the elements when the others are taken."""
    wanted: Shape = case.values(1) if len(case.given) > 1 else case.options["new_shape"]
    if sum(1 for dim in wanted if dim == -1) > 1:
        raise _UntoldError
    if -1 not in wanted:
        return wanted
    index = wanted.index(-1)
    rest = _quotient(product(case.shape()), product((*wanted[:index], *wanted[index + 1 :])))
    return (*wanted[:index], rest, *wanted[index + 1 :])


def _transpose(case: _Case) -> Shape:
    order = case.options.get("permutation") or case.numbers(1)
    return tuple(case.shape()[axis] for axis in order)


def _concat(case: _Case) -> Shape:
    first = case.shape()
    axis = _axis(case.options["axis"], len(first))
    total: Dim = 0
    for operand in case.given:
        total = operand.shape[axis] + total
    return (*first[:axis], total, *first[axis + 1 :])


def _pack(case: _Case) -> Shape:
    first = case.shape()
    axis = _axis(case.options["axis"], len(first) + 1)
    return (*first[:axis], len(case.given), *first[axis:])


def _unpack(case: _Case) -> Shape:
    x = case.shape()
    axis = _axis(case.options["axis"], len(x))
    return (*x[:axis], *x[axis + 1 :])


def _pad(case: _Case) -> Shape:
    x, amounts = case.shape(), case.numbers(1)
    return tuple(side + (amounts[2 * axis] + amounts[2 * axis + 1]) for axis, side in enumerate(x))


def _expand_dims(case: _Case) -> Shape:
    x = case.shape()
    axis = _axis(case.numbers(1)[0], len(x) + 1)
    return (*x[:axis], 1, *x[axis:])


def _squeeze(case: _Case) -> Shape:
    x = case.shape()
    axes = {_axis(axis, len(x)) for axis in case.options["axes"]}
    return tuple(dim for axis, dim in enumerate(x) if (axis not in axes if axes else dim != 1))


def _reduce(case: _Case) -> Shape:
    x = case.shape()
    axes = {_axis(axis, len(x)) for axis in (case.options.get("axes") or case.numbers(1))}
    kept = case.options.get("keep_dims", False)
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(x) if kept or axis not in axes)


def _strided(case: _Case) -> Shape:
    """Plain slices: no ellipsis and no new axis. What begins at b, ends at e and takes every s-th has ⌈(e − b)/s⌉."""
    options, x = case.options, case.shape()
    begins, ends, steps = case.values(1), case.values(2), case.numbers(3)
    if options["ellipsis_mask"] or options["new_axis_mask"]:
        raise _UntoldError
    shape: list[Dim] = []
    for axis, side in enumerate(x):
        if axis >= len(begins):
            shape.append(side)
        elif not options["shrink_axis_mask"] >> axis & 1:
            begin = None if options["begin_mask"] >> axis & 1 else begins[axis]
            end = None if options["end_mask"] >> axis & 1 else ends[axis]
            shape.append(_sliced(side, begin, end, steps[axis]))
    return tuple(shape)


def _sliced(side: Dim, begin: Dim | None, end: Dim | None, step: int) -> Dim:
    """What is left of a side. An end that varies is taken to lie within it, and so is one in a side that varies."""
    if isinstance(side, int) and isinstance(begin, int | None) and isinstance(end, int | None):
        return len(range(side)[begin:end:step])
    if step < 0:
        if (begin, end) != (None, None):
            raise _UntoldError
        return (side + (-step - 1)) // -step
    start = _from_front(side, 0 if begin is None else begin)
    stop = side if end is None else _from_front(side, end)
    return (stop - start + (step - 1)) // step


def _from_front(side: Dim, bound: Dim) -> Dim:
    return side + bound if isinstance(bound, int) and bound < 0 else bound


def _slice(case: _Case) -> Shape:
    x, begins, sizes = case.shape(), case.numbers(1), case.numbers(2)
    return tuple(side - begin if size == -1 else size for side, begin, size in zip(x, begins, sizes, strict=True))


def _gather(case: _Case) -> Shape:
    x, ids = case.shape(), case.shape(1)
    axis, batch = _axis(case.options["axis"], len(x)), case.options["batch_dims"]
    return (*x[:axis], *ids[batch:], *x[axis + 1 :])


def _lookup(case: _Case) -> Shape:
    return (*case.shape(), *case.shape(1)[1:])


def _matmul(case: _Case) -> Shape:
    a, b = case.shape(), case.shape(1)
    batch = _aligned([a[:-2], b[:-2]])
    return (*batch, a[-1 if case.options["adjoint_a"] else -2], b[-2 if case.options["adjoint_b"] else -1])


def _resize(case: _Case) -> Shape:
    x = case.shape()
    return (x[0], *case.values(1), x[3])


def _first_says(case: _Case) -> Shape:
    return case.values(0)


def _second_says(case: _Case) -> Shape:
    return case.values(1)


def _tile(case: _Case) -> Shape:
    return tuple(side * by for side, by in zip(case.shape(), case.values(1), strict=True))


def _rearranged(case: _Case) -> Shape:
    """SPACE_TO_DEPTH and back: sides by the block, channels by its square."""
    (batch, height, width, channels), block = case.shape(), case.options["block_size"]
    if case.operator.name == "SPACE_TO_DEPTH":
        return (batch, height // block, width // block, channels * block * block)
    return (batch, height * block, width * block, _quotient(channels, block * block))


def _range(case: _Case) -> Shape:
    """From a start up to a limit by a step: ⌈(limit − start) / step⌉ numbers."""
    (start,), (limit,), (step,) = case.values(0), case.values(1), case.numbers(2)
    if step < 0:
        start, limit, step = limit, start, -step
    length = (limit - start + (step - 1)) // step
    return (max(length, 0) if isinstance(length, int) else length,)


def _one_hot(case: _Case) -> Shape:
    ids, (depth,) = case.shape(), case.values(1)
    axis = case.options["axis"] % (len(ids) + 1)
    return (*ids[:axis], depth, *ids[axis:])


def _transform(case: _Case) -> Shape:
    """RFFT2D keeps the half of the last axis that the other half mirrors."""
    height, width = case.values(1)
    return (*case.shape()[:-2], height, width // 2 + 1)


def _split(case: _Case) -> Shape:
    if case.operator.name == "SPLIT":
        axis, x, parts = case.numbers(0)[0], case.shape(1), case.options["splits"]
        axis = _axis(axis, len(x))
        return (*x[:axis], _quotient(x[axis], parts), *x[axis + 1 :])
    x, sizes, axis = case.shape(), case.numbers(1), case.numbers(2)[0]
    axis = _axis(axis, len(x))
    return (*x[:axis], sizes[case.place], *x[axis + 1 :])


_BY_NAME: dict[str, _Infer] = {
    "RESHAPE": _reshape, "STABLEHLO_RESHAPE": _reshape, "TRANSPOSE": _transpose, "STABLEHLO_TRANSPOSE": _transpose,
    "CONCATENATION": _concat, "STABLEHLO_CONCATENATE": _concat, "PACK": _pack, "UNPACK": _unpack, "PAD": _pad,
    "PADV2": _pad, "MIRROR_PAD": _pad, "EXPAND_DIMS": _expand_dims, "SQUEEZE": _squeeze, "STRIDED_SLICE": _strided,
    "SLICE": _slice, "GATHER": _gather, "EMBEDDING_LOOKUP": _lookup, "BATCH_MATMUL": _matmul, "FILL": _first_says,
    "BROADCAST_TO": _second_says, "TILE": _tile, "SPACE_TO_DEPTH": _rearranged, "DEPTH_TO_SPACE": _rearranged,
    "SPLIT": _split, "SPLIT_V": _split, "ZEROS_LIKE": _same, "REVERSE_V2": _same, "REVERSE_SEQUENCE": _same,
    "BITCAST": _same, "TRANSPOSE_CONV": _transposed, "CUMSUM": _same, "DYNAMIC_UPDATE_SLICE": _same,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _same, "UNIDIRECTIONAL_SEQUENCE_RNN": _same, "RANGE": _range, "ONE_HOT": _one_hot,
    "RFFT2D": _transform, "RANDOM_UNIFORM": _first_says, "RANDOM_STANDARD_NORMAL": _first_says,
}  # fmt: skip
_BY_FORM: dict[str, _Infer] = {
    "convolution": _convolution, "depthwise": _convolution, "pool": _pool, "fully_connected": _fully_connected,
    "reduce": _reduce,
}  # fmt: skip
_BY_KIND: dict[str, _Infer] = {
    "elementwise": _broadcast, "activation": _same, "softmax": _same, "norm": _same, "cast": _same, "quantize": _same,
    "dequantize": _same, "resize": _resize,
}  # fmt: skip


def output_values(info: OperatorInfo, operands: list[Operand | None]) -> Shape | None:
    """The values of a small vector of sizes that this operator computes, where its inputs' are known."""
    given = [operand for operand in operands if operand is not None]
    follow = _VALUES.get(info.operator.name)
    if follow is None or not given:
        return None
    try:
        values = follow(_Case(operator=info.operator, options=info.options, given=given))
    except _UNTOLD:
        return None
    return values if len(values) <= _PARTS and all(_short(value) for value in values) else None


def _sliced_values(case: _Case) -> Shape:
    """One axis of a vector: `shape[1:3]`, `shape[0]`."""
    begin, end, step = (case.numbers(place)[0] for place in (1, 2, 3))
    values, options = case.values(0), case.options
    if options["shrink_axis_mask"]:
        return (values[begin],)
    return values[None if options["begin_mask"] else begin : None if options["end_mask"] else end : step]


def _cut_values(case: _Case) -> Shape:
    (begin,), (size,), values = case.numbers(1), case.numbers(2), case.values(0)
    return values[begin:] if size == -1 else values[begin : begin + size]


def _paired(combine: Callable[[Dim, Dim], Dim]) -> _Infer:
    def follow(case: _Case) -> Shape:
        left, right = case.values(0), case.values(1)
        length = max(len(left), len(right))
        left, right = (side * length if len(side) == 1 else side for side in (left, right))
        return tuple(combine(a, b) for a, b in zip(left, right, strict=True))

    return follow


def _chained(case: _Case) -> Shape:
    return tuple(value for index in range(len(case.given)) for value in case.values(index))


def _picked(case: _Case) -> Shape:
    return tuple(case.values(0)[index] for index in case.numbers(1))


def _counted(case: _Case) -> Shape:
    """A range of plain numbers, as indices of frames are."""
    (start,), (limit,), (step,) = (case.numbers(index) for index in range(3))
    numbers = range(start, limit, step)
    if len(numbers) > _PARTS:
        raise _UntoldError
    return tuple(numbers)


def _larger(case: _Case) -> Shape:
    return _paired(_largest)(case)


def _largest(one: Dim, other: Dim) -> Dim:
    """Of two sizes, where both are numbers, or one is no larger than nothing: sizes are not negative."""
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    if isinstance(one, int) and one <= 0:
        return other
    if isinstance(other, int) and other <= 0:
        return one
    raise _UntoldError


def _multiplied(case: _Case) -> Shape:
    return (product(case.values(0)),)


_VALUES: dict[str, _Infer] = {
    "SHAPE": _same, "STRIDED_SLICE": _sliced_values, "PACK": _chained, "CONCATENATION": _chained,
    "RESHAPE": _first_says, "SQUEEZE": _first_says, "EXPAND_DIMS": _first_says, "CAST": _first_says, "GATHER": _picked,
    "ADD": _paired(operator.add), "SUB": _paired(operator.sub), "MUL": _paired(operator.mul),
    "FLOOR_DIV": _paired(operator.floordiv), "DIV": _paired(operator.floordiv), "FLOOR_MOD": _paired(operator.mod),
    "REDUCE_PROD": _multiplied, "RANGE": _counted, "MAXIMUM": _larger, "SLICE": _cut_values,
}  # fmt: skip

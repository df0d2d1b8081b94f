"""Sizes that a TFLite file leaves open, followed from the inputs.

A file with an open batch marks every size that follows from it as unknown too. Each operator's outputs are worked out
from its inputs here; only what cannot be told stays a symbol of its own, named after its tensor and axis. Small integer
tensors that compute shapes (SHAPE → STRIDED_SLICE → PACK → RESHAPE) are followed by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inferometer.core.dims import Dim, product, symbols_in
from inferometer.readers.tflite.model import OperatorInfo

__all__ = ["Operand", "output_shapes", "output_values"]

Shape = tuple[Dim, ...]
_PARTS = 64  # symbols and operators in one size; longer expressions are called unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """What is known of an input: its shape, and its values where it is a small vector of sizes."""

    shape: Shape
    values: Shape | None = None


_Infer = Callable[[OperatorInfo, list[Operand], int], "Shape | None"]


def output_shapes(info: OperatorInfo, operands: list[Operand | None], ranks: list[int]) -> list[Shape | None]:
    """The shape of each output, or None where the operator's rule cannot tell it."""
    given = [operand for operand in operands if operand is not None]
    infer = _BY_NAME.get(info.operator.name) or _BY_FORM.get(info.operator.form) or _BY_KIND.get(info.operator.kind)
    if infer is None or not given:
        return [None] * len(ranks)
    found = []
    for place, rank in enumerate(ranks):
        try:
            shape = infer(info, given, place)
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
            shape = None  # options and shapes that do not belong together: nothing can be told
        sound = shape is not None and len(shape) == rank and all(_short(dim) for dim in shape)
        found.append(shape if sound else None)
    return found


def _short(dim: Dim) -> bool:
    return isinstance(dim, int) or _size(dim) <= _PARTS


def _size(dim: Any) -> int:
    return 1 + _size(dim.left) + _size(dim.right) if hasattr(dim, "left") else 1


def _known(values: Shape | None) -> list[int]:
    """Values that are plain numbers; a KeyError where they are not, which means: cannot tell."""
    if values is None or not all(isinstance(value, int) for value in values):
        raise KeyError("values")
    return [value for value in values if isinstance(value, int)]


def _axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def _broadcast(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    """Shapes aligned at their last axis; where sizes differ, the one that is not 1."""
    rank = max(len(operand.shape) for operand in given)
    aligned = [(1,) * (rank - len(operand.shape)) + operand.shape for operand in given]
    return tuple(next((dim for dim in dims if dim != 1), 1) for dims in zip(*aligned, strict=True))


def _same(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    return given[0].shape


def _window(side: Dim, kernel: int, stride: int, dilation: int, padding: int) -> Dim:
    if padding == 0:  # SAME
        return (side + (stride - 1)) // stride
    return (side + (stride - (kernel - 1) * dilation - 1)) // stride


def _convolution(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    options, x, filters = info.options, given[0].shape, given[1].shape
    kernel = [size if isinstance(size, int) else 1 for size in filters[1:3]]
    channels = filters[3] if info.operator.form == "depthwise" else filters[0]
    return (x[0], *_sides(options, x[1:3], kernel), channels)


def _sides(options: Mapping[str, Any], sides: Shape, kernel: list[int]) -> Shape:
    strides = (options["stride_h"], options["stride_w"])
    dilations = (options.get("dilation_h", 1), options.get("dilation_w", 1))
    padding = options["padding"]
    return tuple(
        _window(side, k, s, d, padding) for side, k, s, d in zip(sides, kernel, strides, dilations, strict=True)
    )


def _pool(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x = given[0].shape
    return (x[0], *_sides(info.options, x[1:3], [info.options["filter_h"], info.options["filter_w"]]), x[3])


def _transposed(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    """The first input is the output's shape, which usually is fixed but for the batch."""
    shape, x = given[0].values, given[2].shape
    if shape is None:
        raise KeyError("values")
    return (x[0], *shape[1:])


def _fully_connected(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x, (units, width) = given[0].shape, given[1].shape
    return (*x[:-1], units) if info.options.get("keep_dims") else (_quotient(product(x), width), units)


def _quotient(total: Dim, part: Dim) -> Dim:
    """total ÷ part, with a factor that stands on the right of a product cancelled, so that sizes stay readable."""
    if isinstance(total, int) and isinstance(part, int):
        return total // part
    factors, whole = _factors(total)
    if isinstance(part, int) and part and whole % part == 0:
        return product((*factors, whole // part))
    if factors and part == product(tuple(factors)):
        return whole
    return total // part


def _factors(dim: Dim) -> tuple[list[Dim], int]:
    """A product as its open factors and the number they are multiplied by."""
    if isinstance(dim, int):
        return [], dim
    if getattr(dim, "operation", None) == "*":
        left, a = _factors(dim.left)  # type: ignore[union-attr]  # only expressions have an operation
        right, b = _factors(dim.right)  # type: ignore[union-attr]
        return left + right, a * b
    return [dim], 1


def _reshape(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    """At most one size is −1: what is left of the elements when the others are taken."""
    wanted: Shape | None = given[1].values if len(given) > 1 else None
    wanted = wanted if wanted is not None else info.options["new_shape"]
    if wanted is None or sum(1 for dim in wanted if dim == -1) > 1:
        raise KeyError("shape")
    if -1 not in wanted:
        return wanted
    place = wanted.index(-1)
    rest = _quotient(product(given[0].shape), product((*wanted[:place], *wanted[place + 1 :])))
    return (*wanted[:place], rest, *wanted[place + 1 :])


def _transpose(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    order = info.options.get("permutation") or _known(given[1].values)
    return tuple(given[0].shape[axis] for axis in order)


def _concat(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    first = given[0].shape
    axis = _axis(info.options["axis"], len(first))
    total: Dim = 0
    for operand in given:
        total = operand.shape[axis] + total
    return (*first[:axis], total, *first[axis + 1 :])


def _pack(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    first = given[0].shape
    axis = _axis(info.options["axis"], len(first) + 1)
    return (*first[:axis], len(given), *first[axis:])


def _unpack(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x = given[0].shape
    axis = _axis(info.options["axis"], len(x))
    return (*x[:axis], *x[axis + 1 :])


def _pad(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x, amounts = given[0].shape, _known(given[1].values)
    return tuple(side + (amounts[2 * axis] + amounts[2 * axis + 1]) for axis, side in enumerate(x))


def _expand_dims(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x = given[0].shape
    axis = _axis(_known(given[1].values)[0], len(x) + 1)
    return (*x[:axis], 1, *x[axis:])


def _squeeze(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x = given[0].shape
    axes = {_axis(axis, len(x)) for axis in info.options["axes"]}
    return tuple(dim for axis, dim in enumerate(x) if (axis not in axes if axes else dim != 1))


def _reduce(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x = given[0].shape
    axes = {_axis(axis, len(x)) for axis in (info.options.get("axes") or _known(given[1].values))}
    kept = info.options.get("keep_dims", False)
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(x) if kept or axis not in axes)


def _strided(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    """Plain slices: no ellipsis and no new axis. What begins at b, ends at e and takes every s-th has ⌈(e − b)/s⌉."""
    options, x = info.options, given[0].shape
    begins, ends, steps = (_known(operand.values) for operand in given[1:4])
    if options["ellipsis_mask"] or options["new_axis_mask"]:
        raise KeyError("mask")
    shape: list[Dim] = []
    for axis, side in enumerate(x):
        if axis >= len(begins):
            shape.append(side)
        elif not options["shrink_axis_mask"] >> axis & 1:
            begin = None if options["begin_mask"] >> axis & 1 else begins[axis]
            end = None if options["end_mask"] >> axis & 1 else ends[axis]
            shape.append(_sliced(side, begin, end, steps[axis]))
    return tuple(shape)


def _sliced(side: Dim, begin: int | None, end: int | None, step: int) -> Dim:
    if isinstance(side, int):
        return len(range(side)[begin:end:step])
    if step < 0:
        if (begin, end) != (None, None):
            raise KeyError("step")
        return (side + (-step - 1)) // -step
    start, stop = begin or 0, 0 if end is None else end
    if end is not None and end >= 0:
        raise KeyError("end")  # whether the side reaches that far is not known
    taken = (side if start >= 0 else 0) + (stop - start)
    return (taken + (step - 1)) // step


def _slice(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x, begins, sizes = given[0].shape, _known(given[1].values), _known(given[2].values)
    return tuple(side - begin if size == -1 else size for side, begin, size in zip(x, begins, sizes, strict=True))


def _gather(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x, ids = given[0].shape, given[1].shape
    axis, batch = _axis(info.options["axis"], len(x)), info.options["batch_dims"]
    return (*x[:axis], *ids[batch:], *x[axis + 1 :])


def _lookup(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    return (*given[0].shape, *given[1].shape[1:])


def _matmul(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    a, b = given[0].shape, given[1].shape
    batch = _broadcast(info, [Operand(shape=a[:-2]), Operand(shape=b[:-2])], 0)
    return (*batch, a[-1 if info.options["adjoint_a"] else -2], b[-2 if info.options["adjoint_b"] else -1])


def _resize(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    x, size = given[0].shape, given[1].values
    if size is None:
        raise KeyError("values")
    return (x[0], *size, x[3])


def _by_values(place_of_shape: int) -> _Infer:
    """The shape stands among the inputs as a vector."""

    def infer(info: OperatorInfo, given: list[Operand], place: int) -> Shape | None:
        return given[place_of_shape].values

    return infer


def _tile(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    times = given[1].values
    if times is None:
        raise KeyError("values")
    return tuple(side * by for side, by in zip(given[0].shape, times, strict=True))


def _rearranged(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    """SPACE_TO_DEPTH and back: sides by the block, channels by its square."""
    (batch, height, width, channels), block = given[0].shape, info.options["block_size"]
    if info.operator.name == "SPACE_TO_DEPTH":
        return (batch, height // block, width // block, channels * block * block)
    return (batch, height * block, width * block, _quotient(channels, block * block))


def _split(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    if info.operator.name == "SPLIT":
        axis, x, parts = _known(given[0].values)[0], given[1].shape, info.options["splits"]
        axis = _axis(axis, len(x))
        return (*x[:axis], _quotient(x[axis], parts), *x[axis + 1 :])
    x, sizes, axis = given[0].shape, _known(given[1].values), _known(given[2].values)[0]
    axis = _axis(axis, len(x))
    return (*x[:axis], sizes[place], *x[axis + 1 :])


def _last_replaced(info: OperatorInfo, given: list[Operand], place: int) -> Shape:
    """A recurrent layer keeps batch and time; its units are in the file. SVDF likewise."""
    x, units = given[0].shape, given[1].shape[0]
    return (*x[:-1], units)


_BY_NAME: dict[str, _Infer] = {
    "RESHAPE": _reshape, "STABLEHLO_RESHAPE": _reshape, "TRANSPOSE": _transpose, "STABLEHLO_TRANSPOSE": _transpose,
    "CONCATENATION": _concat, "STABLEHLO_CONCATENATE": _concat, "PACK": _pack, "UNPACK": _unpack, "PAD": _pad,
    "PADV2": _pad, "MIRROR_PAD": _pad, "EXPAND_DIMS": _expand_dims, "SQUEEZE": _squeeze, "STRIDED_SLICE": _strided, "SLICE": _slice,
    "GATHER": _gather, "EMBEDDING_LOOKUP": _lookup, "BATCH_MATMUL": _matmul, "FILL": _by_values(0),
    "BROADCAST_TO": _by_values(1), "TILE": _tile, "SPACE_TO_DEPTH": _rearranged, "DEPTH_TO_SPACE": _rearranged,
    "SPLIT": _split, "SPLIT_V": _split, "ZEROS_LIKE": _same, "REVERSE_V2": _same, "REVERSE_SEQUENCE": _same,
    "BITCAST": _same, "TRANSPOSE_CONV": _transposed, "CUMSUM": _same, "UNIDIRECTIONAL_SEQUENCE_LSTM": _same,
    "ONE_HOT": lambda info, given, place: None, "RANGE": lambda info, given, place: None,
    "RFFT2D": lambda info, given, place: None, "DYNAMIC_UPDATE_SLICE": _same, "READ_VARIABLE": _same,
    "Convolution2DTransposeBias": lambda info, given, place: None,
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
        values = follow(info, given)
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    return values if len(values) <= 64 and all(_short(value) for value in values) else None


def _vector(operand: Operand) -> Shape:
    if operand.values is None:
        raise KeyError("values")
    return operand.values


def _sliced_values(info: OperatorInfo, given: list[Operand]) -> Shape:
    """One axis of a vector: `shape[1:3]`, `shape[0]`."""
    begin, end, step = (_known(operand.values)[0] for operand in given[1:4])
    values = _vector(given[0])
    if info.options["shrink_axis_mask"]:
        return (values[begin],)
    return values[None if info.options["begin_mask"] else begin : None if info.options["end_mask"] else end : step]


def _paired(combine: Callable[[Dim, Dim], Dim]) -> Callable[[OperatorInfo, list[Operand]], Shape]:
    def follow(info: OperatorInfo, given: list[Operand]) -> Shape:
        left, right = _vector(given[0]), _vector(given[1])
        length = max(len(left), len(right))
        left, right = (side * length if len(side) == 1 else side for side in (left, right))
        return tuple(combine(a, b) for a, b in zip(left, right, strict=True))

    return follow


def _chained(info: OperatorInfo, given: list[Operand]) -> Shape:
    return tuple(value for operand in given for value in _vector(operand))


def _first_values(info: OperatorInfo, given: list[Operand]) -> Shape:
    return _vector(given[0])


_VALUES: dict[str, Callable[[OperatorInfo, list[Operand]], Shape]] = {
    "SHAPE": lambda info, given: given[0].shape,
    "STRIDED_SLICE": _sliced_values,
    "PACK": _chained,
    "CONCATENATION": _chained,
    "RESHAPE": _first_values,
    "SQUEEZE": _first_values,
    "EXPAND_DIMS": _first_values,
    "CAST": _first_values,
    "GATHER": lambda info, given: tuple(_vector(given[0])[index] for index in _known(given[1].values)),
    "ADD": _paired(lambda a, b: a + b),
    "SUB": _paired(lambda a, b: a - b),
    "MUL": _paired(lambda a, b: a * b),
    "FLOOR_DIV": _paired(lambda a, b: a // b),
    "REDUCE_PROD": lambda info, given: (product(_vector(given[0])),),
}


def open_sizes(shape: Shape) -> frozenset[str]:
    return frozenset().union(*(symbols_in(dim) for dim in shape))

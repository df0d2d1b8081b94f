"""Ops that slide a window over space: convolutions, pooling; and ops that change the size of an image."""

from collections.abc import Callable
from fractions import Fraction
from math import prod
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import Fault, UnknownShapeError
from inferometer.formats.onnx.rules.common import as_dim, static
from inferometer.formats.onnx.value import Call, Loose, Out, Shape


@frozen
class SlidingWindow:
    """`pads` None: as much as keeps ⌈size / stride⌉ (SAME)."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...] | None
    after: tuple[int, ...] | None
    ceil: bool = False


def window_of(call: Call, kernel: tuple[int, ...]) -> SlidingWindow:
    rank = len(kernel)
    strides = _per_axis(call, "strides", rank, 1)
    dilations = _per_axis(call, "dilations", rank, 1)
    auto = call.text("auto_pad", "NOTSET")
    before: tuple[int, ...] | None = (0,) * rank
    after: tuple[int, ...] | None = (0,) * rank
    if auto in {"SAME_UPPER", "SAME_LOWER"}:
        before = after = None
    elif auto != "VALID" and (pads := call.integers("pads")) is not None:
        if len(pads) != 2 * rank:
            raise Fault(f"{len(pads)} pads for a window of {rank} dimensions")
        before, after = pads[:rank], pads[rank:]
    if any(k < 1 for k in (*kernel, *strides, *dilations)):
        raise Fault(f"a window of {kernel} with strides {strides} and dilations {dilations}")
    ceil = bool(call.integer("ceil_mode"))
    return SlidingWindow(kernel=kernel, strides=strides, dilations=dilations, before=before, after=after, ceil=ceil)


def _per_axis(call: Call, name: str, rank: int, default: int) -> tuple[int, ...]:
    given = call.integers(name) or (default,) * rank
    if len(given) != rank:
        raise Fault(f"{len(given)} {name} for a window of {rank} dimensions")
    return given


def windowed(space: Shape, window: SlidingWindow) -> Shape:
    """Places the window fits: ⌊(size + pads − reach) / stride⌋ + 1 in each dimension."""
    if len(space) != len(window.kernel):
        raise Fault(f"a window of {len(window.kernel)} dimensions over {len(space)}")
    return tuple(_places(size, window, axis) for axis, size in enumerate(space))


def _places(size: Dim, window: SlidingWindow, axis: int) -> Dim:
    stride = window.strides[axis]
    if window.before is None or window.after is None:
        return algebra.ceildiv(size, stride)
    before, after = window.before[axis], window.after[axis]
    reach = (window.kernel[axis] - 1) * window.dilations[axis] + 1
    room = algebra.add(size, before + after - reach)
    if isinstance(room, int) and room < 0:
        raise Fault(f"a window of {reach} over {size} elements")
    if not window.ceil:
        return algebra.add(algebra.floordiv(room, stride), 1)
    indices = algebra.add(algebra.ceildiv(room, stride), 1)
    # a window that would begin in the padding at the end is left out
    starts_outside = isinstance(indices, int) and isinstance(size, int) and (indices - 1) * stride >= size + before
    return algebra.sub(indices, 1) if starts_outside else indices


def _spatial(call: Call, x: int) -> tuple[Shape, Shape]:
    shape = call.shape(x)
    if len(shape) < 3:
        raise Fault(f"{call.node.op_type} of {len(shape)} dimensions")
    return shape[:2], shape[2:]


def kernel_of(call: Call, weight: int, rank: int) -> tuple[int, ...]:
    """The window's size, from the attribute or else from the weight."""
    kernel = call.integers("kernel_shape")
    if kernel is None:
        sides = static(call.shape(weight)[2:])
        if sides is None:
            raise UnknownShapeError
        kernel = sides
    if len(kernel) != rank:
        raise Fault(f"a window of {len(kernel)} dimensions over {rank}")
    return kernel


def _filters(call: Call, weight: int, space: Shape) -> tuple[Shape, Dim]:
    """The weight's shape, and its second axis times the groups: a convolution's channels in, a transposed one's out."""
    filters = call.shape(weight)
    if len(filters) != len(space) + 2:
        raise Fault(f"a weight of {len(filters)} dimensions for an input of {len(space) + 2}")
    return filters, algebra.mul(filters[1], max(1, call.integer("group", 1)))


def conv(x: int = 0, weight: int = 1, dtype_from: int | str = 0) -> Callable[[Call], list[Out]]:
    """A rule for convolutions whose data and weight stand at these inputs.

    The result has the format of an input, or a fixed one.
    """

    def infer(call: Call) -> list[Out]:
        (batch, channels), space = _spatial(call, x)
        filters, expected = _filters(call, weight, space)
        if isinstance(channels, int) and isinstance(expected, int) and channels != expected:
            raise Fault(f"{channels} channels go into a weight for {expected}")
        kernel = kernel_of(call, weight, len(space))
        result = windowed(space, window_of(call, kernel))
        dtype = dtype_from if isinstance(dtype_from, str) else call.dtype(dtype_from)
        return [Out((batch, filters[0], *result), dtype)]

    return infer


def conv_transpose(call: Call) -> list[Out]:
    (batch, _), space = _spatial(call, 0)
    _, channels = _filters(call, 1, space)
    return [Out((batch, channels, *_transposed_space(call, space, kernel_of(call, 1, len(space)))), call.dtype(0))]


def _transposed_space(call: Call, space: Shape, kernel: tuple[int, ...]) -> Shape:
    """stride·(size − 1) + reach + what is asked for, less the pads, in each dimension."""
    asked = call.integers("output_shape")
    if asked:
        return asked[-len(space) :]
    window = window_of(call, kernel)
    extra = call.integers("output_padding") or (0,) * len(space)
    if len(extra) != len(space):
        raise Fault(f"{len(extra)} output paddings for {len(space)} dimensions")
    result: list[Dim] = []
    for axis, size in enumerate(space):
        if window.before is None or window.after is None:
            result.append(algebra.mul(size, window.strides[axis]))
            continue
        reach = (kernel[axis] - 1) * window.dilations[axis] + 1
        fixed = extra[axis] + reach - window.before[axis] - window.after[axis] - window.strides[axis]
        result.append(algebra.add(algebra.mul(size, window.strides[axis]), fixed))
    return tuple(result)


def pooled(call: Call, *, channels_last: bool = False) -> Shape:
    shape = call.shape(0)
    if len(shape) < 3:
        raise Fault(f"{call.node.op_type} of {len(shape)} dimensions")
    kernel = call.integers("kernel_shape")
    if kernel is None:
        raise Fault("a pool without a window")
    if channels_last:
        return (shape[0], *windowed(shape[1:-1], window_of(call, kernel)), shape[-1])
    return (*shape[:2], *windowed(shape[2:], window_of(call, kernel)))


def pool(call: Call) -> list[Out]:
    """The second output of MaxPool is where each maximum stood."""
    shape = pooled(call)
    return [Out(shape, call.dtype(0)), Out(shape, "i64")]


def global_pool(call: Call) -> list[Out]:
    shape = call.shape(0)
    if len(shape) < 2:
        raise Fault(f"{call.node.op_type} of {len(shape)} dimensions")
    return [Out((*shape[:2], *((1,) * (len(shape) - 2))), call.dtype(0))]


def max_unpool(call: Call) -> list[Out]:
    (batch, channels), space = _spatial(call, 0)
    if call.has(2):
        items = call.items(2)
        if items is None:
            return [Out((None,) * (len(space) + 2), call.dtype(0))]
        return [Out(tuple(as_dim(item) for item in items), call.dtype(0))]
    kernel = call.integers("kernel_shape")
    if kernel is None or len(kernel) != len(space):
        raise Fault("an unpool without a window")
    window = window_of(call, kernel)
    before, after = window.before or (0,) * len(space), window.after or (0,) * len(space)
    result = tuple(
        algebra.add(algebra.mul(algebra.sub(size, 1), stride), k - b - a)
        for size, stride, k, b, a in zip(space, window.strides, kernel, before, after, strict=True)
    )
    return [Out((batch, channels, *result), call.dtype(0))]


def roi_align(call: Call) -> list[Out]:
    height, width = call.integer("output_height", 1), call.integer("output_width", 1)
    return [Out((call.shape(1)[0], call.shape(0)[1], height, width), call.dtype(0))]


def roi_pool(call: Call) -> list[Out]:
    pooled_shape = call.integers("pooled_shape")
    if pooled_shape is None:
        raise Fault("a pool without a window")
    return [Out((call.shape(1)[0], call.shape(0)[1], *pooled_shape), call.dtype(0))]


# Ops that change the size of an image, or sample it at other places.


def resize(call: Call) -> list[Out]:
    """By scales or to sizes, of all axes or of some. Inputs moved with the operator set: 9 and 10 have no roi."""
    shape = call.shape(0)
    axes = call.integers("axes") or tuple(range(len(shape)))
    axes = tuple(call.axis(axis, len(shape)) for axis in axes)
    result: list[Dim | None] = list(shape)
    first = 2 if call.opset >= 11 else 1
    asked = call.items(3) if call.has(3) else None
    if call.has(3) and asked is None:
        return [Out((None,) * len(shape), call.dtype(0))]
    if asked:
        for axis, size in zip(axes, _sizes(call, shape, axes, tuple(as_dim(item) for item in asked)), strict=True):
            result[axis] = size
        return [Out(tuple(result), call.dtype(0))]
    scales = _scales(call, first)
    if scales is None:
        return [Out((None,) * len(shape), call.dtype(0))]
    if len(scales) != len(axes):
        raise Fault(f"{len(scales)} scales for {len(axes)} axes")
    for axis, scale in zip(axes, scales, strict=True):
        result[axis] = scaled(shape[axis], scale)
    return [Out(tuple(result), call.dtype(0))]


def _scales(call: Call, index: int) -> tuple[float | None, ...] | None:
    items: tuple[Any, ...] | None = call.items(index)
    if call.has_attribute("scales"):
        value = call.node.attributes["scales"].value
        items = value if isinstance(value, tuple) else ()
    if items is None:
        return None
    return tuple(float(item) if isinstance(item, int | float) else None for item in items)


def _sizes(call: Call, shape: Shape, axes: tuple[int, ...], asked: Loose) -> Loose:
    """The sizes asked for or, where the aspect ratio is kept, the largest or smallest that fit them."""
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if len(asked) != len(axes):
        raise Fault(f"{len(asked)} sizes for {len(axes)} axes")
    whole = static(tuple(shape[axis] for axis in axes))
    wanted = static(asked)
    if policy == "stretch":
        return asked
    if whole is None or wanted is None or 0 in whole:
        return (None,) * len(axes)
    ratios = [Fraction(want, size) for want, size in zip(wanted, whole, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return tuple(int(scale * size + Fraction(1, 2)) for size in whole)


def scaled(size: Dim, scale: float | None) -> Dim | None:
    """⌊size × scale⌋. Scales of sizes that vary are taken as ratios of small numbers."""
    if scale is None or scale <= 0 or scale > 1e6:
        return None
    if isinstance(size, int):
        return int(size * scale)
    ratio = Fraction(scale).limit_denominator(1024)
    return algebra.floordiv(algebra.mul(size, ratio.numerator), ratio.denominator)


def grid_sample(call: Call) -> list[Out]:
    x, grid = call.shape(0), call.shape(1)
    return [Out((*x[:2], *grid[1:-1]), call.dtype(0))]


def affine_grid(call: Call) -> list[Out]:
    size = call.items(1)
    if size is None:
        raise UnknownShapeError
    dims = tuple(as_dim(item) for item in size)
    return [Out((dims[0], *dims[2:], len(dims) - 2), call.dtype(0))]


def col2im(call: Call) -> list[Out]:
    (batch, channels, *_), image, block = call.shape(0), call.items(1), call.whole(2)
    if image is None:
        raise UnknownShapeError
    patch = None
    if block is not None:
        patch = algebra.floordiv(channels, max(1, prod(block)))
    return [Out((batch, patch, *(as_dim(item) for item in image)), call.dtype(0))]


def center_crop_pad(call: Call) -> list[Out]:
    shape, items = call.shape(0), call.items(1)
    axes = call.integers("axes") or tuple(range(len(shape)))
    if items is None or len(items) != len(axes):
        raise UnknownShapeError
    result: list[Dim | None] = list(shape)
    for axis, item in zip(axes, items, strict=True):
        result[call.axis(axis, len(shape))] = as_dim(item)
    return [Out(tuple(result), call.dtype(0))]


def upsample(call: Call) -> list[Out]:
    """Operator set 1 had two attributes for two axes."""
    if not call.has_attribute("height_scale"):
        return resize(call)
    n, c, h, w = call.shape(0)
    height, width = call.number("height_scale", 1.0), call.number("width_scale", 1.0)
    return [Out((n, c, scaled(h, height), scaled(w, width)), call.dtype(0))]

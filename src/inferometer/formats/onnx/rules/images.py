"""Ops that change the size of an image, or sample it at other places."""

from fractions import Fraction
from math import prod
from typing import Any

from inferometer.core.dims import Dim
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import Fault, UnknownShapeError
from inferometer.formats.onnx.rules.common import as_dim, static
from inferometer.formats.onnx.value import Call, Loose, Out, Shape


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

"""Convolutions, pooling, norms, recurrent layers, lookups and the rest that needs more than a name."""

from collections.abc import Callable
from typing import Any

from inferometer.core.graph import Op
from inferometer.readers.onnx.elements import is_float
from inferometer.readers.onnx.faults import UnknownShapeError
from inferometer.readers.onnx.rules.common import static
from inferometer.readers.onnx.rules.layers import directions_of, hidden_size
from inferometer.readers.onnx.rules.reductions import reduce_axes
from inferometer.readers.onnx.rules.signals import transform_axis
from inferometer.readers.onnx.rules.windows import kernel_of
from inferometer.readers.onnx.step import Lowering, Maker, Step

__all__ = [
    "lower_clip", "lower_conv", "lower_deform_conv", "lower_gather", "lower_lrn", "lower_norm", "lower_pool",
    "lower_recurrent", "lower_reduce", "lower_resize", "lower_scatter", "lower_sort", "lower_transform",
]  # fmt: skip


def lower_conv(
    x: int = 0, weight: int = 1, bias: int = 2, *, transposed: bool = False, compute: str | None = None
) -> Lowering:
    def lower(step: Step, maker: Maker) -> list[Op]:
        call = step.call
        filters = call.value(weight).shape
        whole = None if filters is None else static(filters)
        if whole is None or len(whole) < 3:
            return maker.custom(step, "the shape of its weight is not known")
        groups = max(1, call.integer("group", 1))
        narrow = groups * whole[1]
        attributes: dict[str, Any] = {
            "in_channels": whole[0] if transposed else narrow,
            "out_channels": narrow if transposed else whole[0],
            "groups": groups,
            "kernel": kernel_of(call, weight, len(whole) - 2),
            "strides": call.integers("strides") or (1,) * (len(whole) - 2),
            "dilations": call.integers("dilations") or (1,) * (len(whole) - 2),
            "transposed": transposed,
        }
        if compute or (call.value(x).dequantized and call.value(weight).dequantized):
            attributes["compute"] = compute or "i8"
        if call.has_attribute("activation"):
            attributes["activation"] = call.text("activation").casefold()
        return [_conv_op(step, maker, (x, weight, bias), attributes)]

    return lower


def _conv_op(step: Step, maker: Maker, places: tuple[int, int, int], attributes: dict[str, Any]) -> Op:
    inputs = step.call.inputs
    main = [inputs[i] for i in places if i < len(inputs)]
    others = [value for i, value in enumerate(inputs) if i not in places]
    ordered = [value for value in (*main, *others) if value is not None]
    weights = [value for value in (*main[1:], *others, main[0])]
    return maker.op_of(step, "convolution", [v for v in ordered if not v.constant], weights, attributes)


def lower_deform_conv(step: Step, maker: Maker) -> list[Op]:
    """X, W, offset, bias, mask. Reading between pixels, four neighbours an element, is left out."""
    return lower_conv(0, 1, 3)(step, maker)


def lower_pool(function: str) -> Lowering:
    def lower(step: Step, maker: Maker) -> list[Op]:
        kernel = step.call.integers("kernel_shape")
        kernel = kernel or step.call.integers("pooled_shape")
        return [maker.op(step, function=function, kernel=kernel, strides=step.call.integers("strides"))]

    return lower


def lower_norm(norm: str) -> Lowering:
    def lower(step: Step, maker: Maker) -> list[Op]:
        return [maker.op(step, norm=norm)]

    return lower


def lower_lrn(step: Step, maker: Maker) -> list[Op]:
    return [maker.op(step, norm="lrn", size=step.call.integer("size", 5))]


def lower_recurrent(cell: str) -> Lowering:
    def lower(step: Step, maker: Maker) -> list[Op]:
        hidden = hidden_size(step.call)
        x = step.call.value(0).shape
        if not isinstance(hidden, int) or x is None or len(x) != 3:
            return maker.custom(step, "the sizes of its input or state are not known")
        steps = x[1] if step.call.integer("layout") else x[0]
        return [maker.op(step, cell=cell, hidden=hidden, directions=directions_of(step.call), steps=steps)]

    return lower


def lower_gather(step: Step, maker: Maker) -> list[Op]:
    """Rows of a stored table of numbers are an embedding; anything else is a gather."""
    data = step.call.value(0)
    is_table = data.constant and data.shape is not None and len(data.shape) == 2 and step.call.integer("axis") == 0
    learned = is_table and data.stored[0].name in maker.parameters
    return [maker.op(step, "embedding" if learned else "gather")]


def lower_scatter(step: Step, maker: Maker) -> list[Op]:
    return [maker.op(step, reduction=step.call.text("reduction", "none"))]


def lower_sort(step: Step, maker: Maker) -> list[Op]:
    call = step.call
    items: Any = (call.integer("k"),) if call.has_attribute("k") else call.items(1)
    k = items[0] if items else None
    axis = call.integer("axis", -1)
    if not call.shape(0):
        return maker.custom(step, "it sorts a scalar")
    return [maker.op(step, axis=axis, k=None if isinstance(k, float) else k)]


def lower_reduce(function: str) -> Lowering:
    def lower(step: Step, maker: Maker) -> list[Op]:
        shape = step.call.value(0).shape
        axes = None if shape is None else reduce_axes(step.call, len(shape))
        return [maker.op(step, function=function, axes=axes)]

    return lower


def lower_arg(function: str) -> Lowering:
    def lower(step: Step, maker: Maker) -> list[Op]:
        return [maker.op(step, function=function, axes=(step.call.integer("axis"),))]

    return lower


def lower_resize(step: Step, maker: Maker) -> list[Op]:
    return [maker.op(step, mode=step.call.text("mode", "nearest"))]


def lower_clip(step: Step, maker: Maker) -> list[Op]:
    return [maker.op(step, function="clip")]


def lower_transform(step: Step, maker: Maker) -> list[Op]:
    """A fast Fourier transform of n points takes about 5·n·log₂ n operations on pairs of numbers: 2.5·log₂ n a number."""
    call = step.call
    try:
        points = call.shape(0)[transform_axis(call, len(call.shape(0)))] if call.node.op_type == "DFT" else None
        if call.node.op_type == "STFT" and step.outs[0].shape is not None:
            points = step.outs[0].shape[2]
    except UnknownShapeError:
        points = None
    if not isinstance(points, int) or points < 1:
        return maker.custom(step, "the length of the transform is not known")
    stages = max(1, (points - 1).bit_length())
    return [maker.op(step, "elementwise", function="fft", flops_per_element=-(-5 * stages // 2))]


def is_learned_table(shape: tuple[Any, ...] | None, dtype: str | None) -> bool:
    return shape is not None and len(shape) >= 2 and is_float(dtype)


def fixed(**attributes: Any) -> Callable[[Step, Maker], list[Op]]:
    """One op with these attributes more."""

    def lower(step: Step, maker: Maker) -> list[Op]:
        return [maker.op(step, **attributes)]

    return lower

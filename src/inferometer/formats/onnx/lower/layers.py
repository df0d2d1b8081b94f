"""Products, convolutions, pooling, norms, recurrent layers, lookups and the rest that needs more than a name."""

from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Tensor
from inferometer.formats.onnx.content import SizeRatio
from inferometer.formats.onnx.rules.common import static
from inferometer.formats.onnx.rules.pointwise import reduce_axes
from inferometer.formats.onnx.rules.products import (
    contraction,
    directions_of,
    einsum_contracted,
    hidden_size,
    parse_einsum,
    product_shapes,
)
from inferometer.formats.onnx.rules.sequences import transform_axis
from inferometer.formats.onnx.rules.windows import kernel_of
from inferometer.formats.onnx.step import Lowering, Maker, OnnxStep

# Matrix products: with a stored operand they are `linear`, of two activations `matmul`.

_PACKED = {1: "i1", 2: "i2", 4: "i4", 8: "i8"}


def lower_product(
    a: int = 0, b: int = 1, bias: int | None = None, *, compute: str | None = None, activation: str | None = None
) -> Lowering:
    """Lowering of a product of the inputs at these places."""

    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        contracted = contraction(step.call, *product_shapes(step.call, a, b)).contracted
        fused = step.call.text("activation").casefold() or activation
        extra = {"activation": fused} if fused else {}
        return [product_op(step, maker, (a, b, bias), contracted, compute=compute, **extra)]

    return lower


def product_op(
    step: OnnxStep,
    maker: Maker,
    indices: tuple[int, int, int | None],
    contracted: Dim,
    *,
    compute: str | None = None,
    **attributes: Any,
) -> Op:
    """Scales and zero points among the inputs come last."""
    call = step.call
    a, b = call.value(indices[0]), call.value(indices[1])
    added = call.inputs[indices[2]] if indices[2] is not None and call.has(indices[2]) else None
    others = [value for i, value in enumerate(call.inputs) if i not in indices]
    given: dict[str, Any] = {"contracted": contracted, **attributes}
    if compute or (a.dequantized and b.dequantized):
        given["compute"] = compute or "i8"
    activations = [value for value in (a, b, added, *others) if value is not None and not value.constant]
    if a.constant or b.constant:
        weight = b if b.constant else a
        return maker.op_of(step, "linear", activations, (weight, added, *others), given)
    return maker.op_of(step, "matmul", activations, (added, *others), given)


def lower_einsum(step: OnnxStep, maker: Maker) -> list[Op]:
    """Two operands with a label that the result has not are a product; else it is sums, or element by element."""
    equation = parse_einsum(step.call)
    gone = set(equation.sizes) - set(equation.result)
    if len(equation.operands) == 2 and gone:
        return [product_op(step, maker, (0, 1, None), einsum_contracted(step.call))]
    if len(equation.operands) == 1:
        kind = "reduce" if gone else "copy"
        return [maker.op(step, kind, function="sum" if gone else "transpose")]
    if len(equation.operands) == 2:
        return [maker.op(step, "elementwise", function="mul")]
    return maker.custom(step, "an einsum of three operands or more has no single order of products")


def unpacked(tensor: Tensor, shape: tuple[Dim, ...], bits: int) -> Tensor:
    """A packed weight as the matrix it stands for: its elements are parameters, its bytes are those of the file."""
    return replace(tensor, shape=shape, dtype=_PACKED.get(bits, "u8"), stored_bytes=tensor.nbytes)


def lower_conv(
    x: int = 0, weight: int = 1, bias: int | None = 2, *, transposed: bool = False, compute: str | None = None
) -> Lowering:
    """Lowering of a convolution whose data, weight and bias stand at these inputs.

    One of whole numbers without a bias is ConvInteger, whose inputs are gathered group by group (`core/engine.py`). A
    deformable one also reads between pixels, four neighbours an element; that is left out.
    """

    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        call = step.call
        whole = static(call.value(weight).shape)
        if whole is None or len(whole) < 3:
            return maker.custom(step, "the shape of its weight is not known")
        rank, groups = len(whole) - 2, max(1, call.integer("group", 1))
        narrow = groups * whole[1]
        attributes: dict[str, Any] = {
            "in_channels": whole[0] if transposed else narrow,
            "out_channels": narrow if transposed else whole[0],
            "groups": groups,
            "kernel": kernel_of(call, weight, rank),
            "strides": call.integers("strides") or (1,) * rank,
            "dilations": call.integers("dilations") or (1,) * rank,
            "transposed": transposed,
        }
        if compute or (call.value(x).dequantized and call.value(weight).dequantized):
            attributes["compute"] = compute or "i8"
        if compute and bias is None:
            attributes["gathered"] = True
        if call.has_attribute("activation"):
            attributes["activation"] = call.text("activation").casefold()
        indices = (x, weight, bias)
        inputs = step.call.inputs
        main = [inputs[i] for i in indices if i is not None and i < len(inputs)]
        others = [value for i, value in enumerate(inputs) if i not in indices]
        activations = [value for value in (*main, *others) if value is not None and not value.constant]
        return [maker.op_of(step, "convolution", activations, (*main[1:], *others, main[0]), attributes)]

    return lower


def lower_pool(function: str) -> Lowering:
    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        kernel = step.call.integers("kernel_shape")
        return [maker.op(step, function=function, kernel=kernel, strides=step.call.integers("strides"))]

    return lower


def lower_roi_align(step: OnnxStep, maker: Maker) -> list[Op]:
    """Each result is the mean of ratio² samples between four pixels: 7 operations a sample, and one to add it."""
    ratio = step.call.integer("sampling_ratio")
    if ratio < 1:
        return maker.custom(step, "how many samples it takes depends on the regions it is given")
    return [maker.op(step, "elementwise", function="roi_align", flops_per_element=8 * ratio * ratio)]


def lower_lrn(step: OnnxStep, maker: Maker) -> list[Op]:
    return [maker.op(step, norm="lrn", size=step.call.integer("size", 5))]


def lower_recurrent(cell: str) -> Lowering:
    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        hidden = hidden_size(step.call)
        x = step.call.value(0).shape
        if not isinstance(hidden, int) or x is None or len(x) != 3:
            return maker.custom(step, "the sizes of its input or state are not known")
        steps = x[1] if step.call.integer("layout") else x[0]
        return [maker.op(step, cell=cell, hidden=hidden, directions=directions_of(step.call), steps=steps)]

    return lower


def lower_gather(step: OnnxStep, maker: Maker) -> list[Op]:
    """Rows of a learned table are an embedding; anything else is a gather."""
    data = step.call.value(0)
    is_table = data.constant and data.shape is not None and len(data.shape) > 1 and step.call.integer("axis") == 0
    learned = is_table and data.stored[0].name in maker.parameters
    return [maker.op(step, "embedding" if learned else "gather")]


def lower_scatter(step: OnnxStep, maker: Maker) -> list[Op]:
    return [maker.op(step, reduction=step.call.text("reduction", "none"))]


def lower_sort(step: OnnxStep, maker: Maker) -> list[Op]:
    call = step.call
    items: Any = (call.integer("k"),) if call.has_attribute("k") else call.items(1)
    k = items[0] if items else None
    if not call.value(0).shape:
        return maker.custom(step, "the shape of what it sorts is not known")
    return [maker.op(step, axis=call.integer("axis", -1), k=None if isinstance(k, float | SizeRatio) else k)]


def lower_unique(step: OnnxStep, maker: Maker) -> list[Op]:
    if not step.call.value(0).shape:
        return maker.custom(step, "the shape of what it sorts is not known")
    return [maker.op(step, axis=step.call.integer("axis", -1))]


def lower_suppression(step: OnnxStep, maker: Maker) -> list[Op]:
    """The scores are sorted; how many boxes are then compared depends on the data and is left out."""
    boxes, scores = step.call.value(0), step.call.value(1)
    if not scores.shape:
        return maker.custom(step, "the shape of its scores is not known")
    kept = step.call.whole(2) if step.call.has(2) else None
    inputs = [value for value in (scores, boxes) if not value.constant]
    if not inputs or inputs[0] is boxes:
        return maker.custom(step, "its scores are stored")
    return [maker.op_of(step, "sort", inputs, (boxes,), {"axis": -1, "k": kept[0] if kept and kept[0] > 0 else None})]


def lower_reduce(function: str) -> Lowering:
    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        shape = step.call.value(0).shape
        axes = None if shape is None else reduce_axes(step.call, len(shape))
        return [maker.op(step, function=function, axes=axes)]

    return lower


def lower_arg(function: str) -> Lowering:
    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        return [maker.op(step, function=function, axes=(step.call.integer("axis"),))]

    return lower


def lower_resize(step: OnnxStep, maker: Maker) -> list[Op]:
    return [maker.op(step, mode=step.call.text("mode", "nearest"))]


def lower_sampling(step: OnnxStep, maker: Maker) -> list[Op]:
    """GridSample and CropAndResize: where they do not say how, they read between pixels."""
    return [maker.op(step, mode=step.call.text("mode", "bilinear"))]


def lower_gelu(step: OnnxStep, maker: Maker) -> list[Op]:
    tanh = step.call.text("approximate", "none") == "tanh"
    return [maker.op(step, function="gelu_tanh" if tanh else "gelu")]


def lower_clip(step: OnnxStep, maker: Maker) -> list[Op]:
    """Between 0 and 6 it is relu6, from 0 up it is relu."""
    call = step.call
    if call.has_attribute("min") or call.has_attribute("max"):
        low, high = call.number("min", float("-inf")), call.number("max", float("inf"))
    else:
        low, high = (_bound(step, index) for index in (1, 2))
    named = {(0.0, 6.0): "relu6", (0.0, float("inf")): "relu"}
    return [maker.op(step, function=named.get((low, high), "clip"))]


def _bound(step: OnnxStep, index: int) -> float:
    """A limit of a clip: infinite where there is none, not a number where it is not known."""
    if not step.call.has(index):
        return float("-inf") if index == 1 else float("inf")
    items = step.call.items(index)
    value = items[0] if items else None
    return float(value) if isinstance(value, int | float) else float("nan")


def lower_transform(step: OnnxStep, maker: Maker) -> list[Op]:
    """A fast Fourier transform of n points takes about 5·n·log₂ n operations on 2·n numbers: 2.5·log₂ n a number."""
    points = _points(step)
    if not isinstance(points, int) or points < 1:
        return maker.custom(step, "the length of the transform is not known")
    stages = max(1, (points - 1).bit_length())
    odd = {} if points.bit_count() == 1 else {"odd": _by_bluestein(points, stages)}
    return [maker.op(step, "elementwise", function="fft", flops_per_element=-(-5 * stages // 2), **odd)]


def _by_bluestein(points: int, stages: int) -> float:
    """How many times the operations of a transform it takes where the plain recursion needs a power of 2.

    Bluestein's method makes it a convolution: three transforms of the next power of 2 that holds it twice.
    """
    wide = (2 * points - 2).bit_length()
    return round(3 * (1 << wide) * wide / (points * stages), 1)


def _points(step: OnnxStep) -> Any:
    """Along the last axis of the signal for ONNX Runtime's own two, behind which an inverse one has the parts."""
    call, result = step.call, step.outs[0].shape
    if call.node.domain:
        return call.shape(0)[-1 if call.node.op_type == "Rfft" else -2]
    if result is None or call.value(0).shape is None:
        return None
    if call.node.op_type == "STFT":
        bins = result[2]
        return 2 * (bins - 1) if call.integer("onesided", 1) and isinstance(bins, int) else bins
    return call.shape(0)[transform_axis(call, len(call.shape(0)))]


def lower_determinant(step: OnnxStep, maker: Maker) -> list[Op]:
    """By elimination: ⅔·n³ operations a matrix."""
    shape = step.call.value(0).shape
    n = shape[-1] if shape else None
    if not isinstance(n, int):
        return maker.custom(step, "the size of its matrices is not known")
    return [maker.op(step, "elementwise", function="determinant", flops_per_element=max(1, 2 * n**3 // 3))]

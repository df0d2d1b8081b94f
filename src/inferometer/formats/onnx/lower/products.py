"""Matrix products: with a stored operand they are `linear`, of two activations `matmul`."""

from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Tensor
from inferometer.formats.onnx.rules.products import contraction, einsum_contracted, parse_einsum, product_shapes
from inferometer.formats.onnx.step import Lowering, Maker, OnnxStep

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

"""Matrix products: with a stored operand they are `linear`, of two activations `matmul`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Tensor
from inferometer.readers.onnx import algebra
from inferometer.readers.onnx.faults import UnknownShapeError
from inferometer.readers.onnx.rules.products import contraction, einsum_contracted, parse_einsum, product_shapes
from inferometer.readers.onnx.step import Lowering, Maker, Step
from inferometer.readers.onnx.value import Value

__all__ = ["lower_einsum", "lower_gemm", "lower_product", "packed_weight", "product", "product_op"]


def lower_product(
    a: int = 0, b: int = 1, bias: int | None = None, *, compute: str | None = None, activation: str | None = None
) -> Lowering:
    """Lowering of a product of the inputs at these places."""

    def lower(step: Step, maker: Maker) -> list[Op]:
        try:
            contracted = contraction(step.call, *product_shapes(step.call, a, b)).contracted
        except UnknownShapeError:
            return maker.custom(step, "the shapes of its operands are not known")
        extra = {"activation": activation} if activation else {}
        if step.call.has_attribute("activation"):
            extra = {"activation": step.call.text("activation").casefold()}
        return [product_op(step, maker, (a, b, bias), contracted, compute=compute, **extra)]

    return lower


lower_gemm = lower_product(0, 1, 2)


def product_op(
    step: Step,
    maker: Maker,
    places: tuple[int, int, int | None],
    contracted: Dim,
    *,
    compute: str | None = None,
    **attributes: Any,
) -> Op:
    call = step.call
    a, b = call.value(places[0]), call.value(places[1])
    added = call.inputs[places[2]] if places[2] is not None and call.has(places[2]) else None
    given: dict[str, Any] = {"contracted": contracted, **attributes}
    if compute or (a.dequantized and b.dequantized):
        given["compute"] = compute or "i8"
    activations = [value for value in (a, b, added) if value is not None and not value.constant]
    if a.constant or b.constant:
        weight = b if b.constant else a
        others = _others(step, {places[0], places[1], places[2]})
        return maker.op_of(step, "linear", activations, (weight, added, *others), given)
    return maker.op_of(step, "matmul", activations, (added, *_others(step, set(places))), given)


def _others(step: Step, taken: set[int | None]) -> list[Value | None]:
    """Scales and zero points among the inputs."""
    return [value for i, value in enumerate(step.call.inputs) if i not in taken]


def lower_einsum(step: Step, maker: Maker) -> list[Op]:
    """Two operands that share a label which the result has not are a product; else it is sums and element by element."""
    try:
        equation = parse_einsum(step.call)
    except UnknownShapeError:
        return maker.custom(step, "the shapes of its operands are not known")
    gone = set(equation.sizes) - set(equation.result)
    if len(equation.operands) == 2 and gone:
        return [product_op(step, maker, (0, 1, None), einsum_contracted(step.call))]
    if len(equation.operands) == 1:
        kind = "reduce" if gone else "copy"
        return [maker.op(step, kind, function="sum" if gone else "transpose")]
    if len(equation.operands) == 2:
        return [maker.op(step, "elementwise", function="mul")]
    return maker.custom(step, "an einsum of three operands or more has no single order of products")


def product(step: Step, maker: Maker) -> list[Op]:
    return lower_product()(step, maker)


def packed_weight(bits: int) -> tuple[str, bool]:
    """The format of weights packed into so many bits, and whether it is exactly that."""
    names = {1: "i1", 2: "i2", 4: "i4", 8: "i8"}
    return names.get(bits, "u8"), bits in names


def unpacked(tensor: Tensor, shape: tuple[Dim, ...], bits: int) -> Tensor:
    """A packed weight as the matrix it stands for: its elements are parameters, its bytes are those of the file."""
    stored = tensor.nbytes
    return replace(tensor, shape=shape, dtype=packed_weight(bits)[0], stored_bytes=stored)


def with_first_weight(op: Op, change: Callable[[Tensor], Tensor]) -> Op:
    return replace(op, weights=(change(op.weights[0]), *op.weights[1:])) if op.weights else op


def rows_product(dims: tuple[Dim, ...]) -> Dim:
    return algebra.product(dims)


def attributes_of(op: Op) -> Mapping[str, Any]:
    return op.attributes

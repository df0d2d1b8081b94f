"""Matrix products of every spelling, and einsum."""

from collections.abc import Callable

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import Fault, UnknownShapeError
from inferometer.formats.onnx.rules.common import broadcast
from inferometer.formats.onnx.value import Call, Loose, Out, Shape

Rule = Callable[[Call], list[Out]]


@frozen
class Contraction:
    """A product's result, and how long the dot products are that make it."""

    shape: Shape
    contracted: Dim


def contraction(call: Call, a: Shape, b: Shape) -> Contraction:
    """Numpy's matmul: vectors are matrices of one row or column, everything before the last two is broadcast."""
    if not a or not b:
        raise Fault("a matrix product with a scalar")
    left: Shape = (1, *a) if len(a) == 1 else a
    right: Shape = (*b, 1) if len(b) == 1 else b
    k, other = left[-1], right[-2]
    if k != other:
        if isinstance(k, int) and isinstance(other, int):
            raise Fault(f"a matrix product of [.., {k}] with [{other}, ..]")
        call.assume(f"{k} = {other}")
        k = k if isinstance(k, int) else other
    shape = broadcast(call, left[:-2], right[:-2])
    rows: Shape = () if len(a) == 1 else (left[-2],)
    columns: Shape = () if len(b) == 1 else (right[-1],)
    return Contraction(shape=(*shape, *rows, *columns), contracted=k)


def turned(call: Call, shape: Shape, name: str) -> Shape:
    """A matrix with its last two axes swapped where an attribute says so."""
    return (*shape[:-2], shape[-1], shape[-2]) if len(shape) >= 2 and call.integer(name) else shape


def _batch_turned(call: Call, shape: Shape, name: str) -> Shape:
    """FusedMatMul's transBatch: the first axis goes before the last."""
    return (*shape[1:-1], shape[0], shape[-1]) if len(shape) >= 3 and call.integer(name) else shape


def matmul_of(a: int = 0, b: int = 1, dtype: str | int = 0) -> Rule:
    """A rule for products of the inputs at these places; the result has the format of an input, or a fixed one."""

    def infer(call: Call) -> list[Out]:
        product = contraction(call, *product_shapes(call, a, b))
        return [Out(product.shape, dtype if isinstance(dtype, str) else call.dtype(dtype))]

    return infer


def product_shapes(call: Call, a: int, b: int) -> tuple[Shape, Shape]:
    left = turned(call, _batch_turned(call, call.shape(a), "transBatchA"), "transA")
    right = turned(call, _batch_turned(call, call.shape(b), "transBatchB"), "transB")
    return left, right


matmul = matmul_of()


def gemm(call: Call) -> list[Out]:
    a, b = call.shape(0), call.shape(1)
    if len(a) != 2 or len(b) != 2:
        raise Fault(f"a Gemm of tensors of {len(a)} and {len(b)} dimensions")
    product = contraction(call, turned(call, a, "transA"), turned(call, b, "transB"))
    return [Out(product.shape, call.dtype(0))]


@frozen
class Equation:
    """An einsum: the size each label stands for, labels by operand, and labels of the result."""

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]
    sizes: dict[str, Dim]


def parse_einsum(call: Call) -> Equation:
    text = call.text("equation").replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    shapes = [call.shape(i) for i in range(len(call.inputs))]
    if len(parts) != len(shapes):
        raise Fault(f"an einsum of {len(parts)} operands with {len(shapes)} inputs")
    rank = max(
        (len(s) - len(p.replace("...", "")) for p, s in zip(parts, shapes, strict=True) if "..." in p), default=0
    )
    if rank < 0:
        raise Fault(f"an einsum {text!r} with more labels than dimensions")
    operands = tuple(_labels(p, len(s), rank) for p, s in zip(parts, shapes, strict=True))
    sizes: dict[str, Dim] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        for label, dim in zip(labels, shape, strict=True):
            known = sizes.get(label, 1)
            sizes[label] = dim if known == 1 else known
    if arrow:
        result = _labels(right, len(right.replace("...", "")) + (rank if "..." in right else 0), rank)
    else:
        flat = [label for labels in operands for label in labels]
        dots = [label for label in dict.fromkeys(flat) if label.startswith(".")]
        result = (*dots, *sorted(label for label in set(flat) if flat.count(label) == 1 and not label.startswith(".")))
    if unknown := [label for label in result if label not in sizes]:
        raise Fault(f"an einsum {text!r} whose result has the label {unknown[0]!r} that no operand has")
    return Equation(operands=operands, result=result, sizes=sizes)


def _labels(part: str, rank: int, dots: int) -> tuple[str, ...]:
    """One label an axis; those of an ellipsis are counted from its end."""
    before, ellipsis, after = part.partition("...")
    covered = rank - len(before) - len(after)
    if covered < 0 or (not ellipsis and covered) or covered > dots:
        raise Fault(f"an einsum operand {part!r} for {rank} dimensions")
    middle = [f".{i}" for i in range(dots - covered, dots)] if ellipsis else []
    return (*before, *middle, *after)


def einsum(call: Call) -> list[Out]:
    if any(value is None or value.shape is None for value in call.inputs):
        raise UnknownShapeError
    equation = parse_einsum(call)
    return [Out(tuple(equation.sizes[label] for label in equation.result), call.dtype(0))]


def einsum_contracted(call: Call) -> Dim:
    """Steps of the dot product behind each element of the result: the sizes of all labels it does not have."""
    equation = parse_einsum(call)
    return algebra.product(tuple(dim for label, dim in equation.sizes.items() if label not in equation.result))


# Whole layers as one op: normalisations, recurrent cells, quantisation.


def batch_norm(call: Call) -> list[Out]:
    """The outputs after the first are statistics: running ones, or those of old operator sets."""
    outs = [Out(call.shape(0), call.dtype(0))]
    statistics = (3, 4, 3, 4)
    for index in range(1, len(call.node.outputs)):
        source = statistics[(index - 1) % 4]
        outs.append(Out(call.shape(source), call.dtype(source)))
    return outs


def layer_norm(call: Call) -> list[Out]:
    """Mean and 1/σ, where asked for, have one number for each row."""
    shape = call.shape(0)
    axis = call.axis(call.integer("axis", -1), len(shape)) if shape else 0
    rows: tuple[Dim, ...] = (*shape[:axis], *((1,) * (len(shape) - axis)))
    return [Out(shape, call.dtype(0)), Out(rows, "f32"), Out(rows, "f32")]


def recurrent(call: Call) -> list[Out]:
    """X is [steps, batch, input], or [batch, steps, input] with layout 1."""
    x = call.shape(0)
    if len(x) != 3:
        raise Fault(f"a recurrent layer over {len(x)} dimensions")
    hidden, directions = hidden_size(call), directions_of(call)
    dtype = call.dtype(0)
    every: Loose = (x[0], directions, x[1], hidden)
    last: Loose = (directions, x[1], hidden)
    if call.integer("layout"):
        every, last = (x[0], x[1], directions, hidden), (x[0], directions, hidden)
    return [Out(every, dtype), Out(last, dtype), Out(last, dtype)]


def directions_of(call: Call) -> int:
    return 2 if call.text("direction", "forward") == "bidirectional" else 1


def hidden_size(call: Call) -> Dim | None:
    if call.has_attribute("hidden_size"):
        return call.integer("hidden_size")
    weights = call.value(2).shape
    return None if not weights else weights[-1]


def quantize(call: Call) -> list[Out]:
    return [Out(call.shape(0), call.element("output_dtype", call.dtype(2) or "u8"))]


def dequantize(call: Call) -> list[Out]:
    return [Out(call.shape(0), call.element("output_dtype", call.dtype(1)))]


def dynamic_quantize(call: Call) -> list[Out]:
    return [Out(call.shape(0), "u8"), Out((), "f32"), Out((), "u8")]


def shaped_like(index: int, dtype: str | None = None) -> Callable[[Call], list[Out]]:
    """One output with the shape of that input, and its format or a fixed one."""

    def infer(call: Call) -> list[Out]:
        return [Out(call.shape(index), dtype or call.dtype(index)) for _ in call.node.outputs]

    return infer

"""Matrices and tables: linear, matmul, embedding."""

from inferometer.core.dims import product
from inferometer.core.graph import Op
from inferometer.formats.onnx.write.lowering import Lowering, rule
from inferometer.formats.onnx.write.nodes import WrittenValue
from inferometer.formats.onnx.write.shapes import probe, reshaped, transposed


@rule("linear")
def linear(lowering: Lowering, op: Op) -> None:
    """MatMul with the weight as [in, out], or Gemm.

    Gemm is for rows alone, and where the weight is stored as [out, in] for another op too (a tied embedding), since
    only Gemm reads it the other way round.
    """
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    weight, *rest = lowering.weights(op)
    bias = [nodes.weight(entry) or entry.name for entry in rest if len(entry.shape) == 1]
    shape = lowering.shape(op.outputs[0])
    if sorted(weight.shape) != sorted((x.shape[-1], shape[-1])):  # type: ignore[type-var]  # features are fixed numbers
        raise lowering.refuse(op, f"its weight {weight.name!r} is {list(weight.shape)}")
    kept = op.get("layout") == "in_out"  # the checkpoint itself holds [in, out]
    if len(x.shape) > 2 and (name := nodes.weight(weight, transposed=not kept)):
        y = nodes.add("MatMul", x.name, name)
        y = nodes.add("Add", y, bias[0]) if bias else y
        lowering.give(op.outputs[0], y)
        return
    name = nodes.weight(weight)
    stored = name is not None
    rows = reshaped(nodes, x, (product(x.shape[:-1]), x.shape[-1]))
    swap = 0 if kept == stored else 1
    y = nodes.add("Gemm", rows.name, weight.name, *bias, transB=swap)
    flat = WrittenValue(y, (rows.shape[0], shape[-1]))
    lowering.give(op.outputs[0], reshaped(nodes, flat, shape))


@rule("matmul")
def matmul(lowering: Lowering, op: Op) -> None:
    """The second factor may be transposed; whether it is follows from the contracted and the resulting sizes."""
    nodes = lowering.nodes
    a, b = (lowering.read(tensor) for tensor in op.inputs[:2])
    shape = lowering.shape(op.outputs[0])
    sizes = probe((a.shape[-1], shape[-1], *b.shape[-2:]))
    if sizes[2:] != sizes[:2]:
        if sizes[2:] != sizes[1::-1]:
            raise lowering.refuse(op, "its factors do not fit")
        b = transposed(nodes, b, *range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2)
    lowering.give(op.outputs[0], WrittenValue(nodes.add("MatMul", a.name, b.name), shape))


@rule("embedding")
def embedding(lowering: Lowering, op: Op) -> None:
    nodes, (table,) = lowering.nodes, lowering.weights(op)
    name = nodes.weight(table)
    if name is None:
        raise lowering.refuse(op, f"the table {table.name!r} is a matrix of an earlier op")
    ids = lowering.read(op.inputs[0])
    lowering.give(op.outputs[0], nodes.add("Gather", name, ids.name, axis=0))

"""Matrix products: with a weight (`linear`) and of two activations (`matmul`)."""

from typing import Any

from inferometer.core.binding import Binding
from inferometer.core.graph import Op
from inferometer.core.work import Work
from inferometer.predict.work.rules.registry import rule
from inferometer.predict.work.rules.streams import moving


@rule("linear")
def linear(op: Op, binding: Binding) -> Work:
    """[rows, k] × [k, n] → [rows, n]: each output is a dot product of length k, a multiply and an add a step.

    2·rows·n·k, and rows·n more to add a bias. The weights are read once however many rows there are. k and n come from
    the activations, because a packed weight's shape does not show them.
    """
    x, y = op.inputs[0], op.outputs[0]
    outputs = binding.elements(y)
    contracted = binding.size(op.get("contracted", x.shape[-1]))
    biases = sum(1 for weight in op.weights[1:] if weight.role == "weight")
    return moving(op, binding, outputs * (2 * contracted + biases))


@rule("matmul")
def matmul(op: Op, binding: Binding) -> Work:
    """[..., m, k] × [..., k, n] → [..., m, n], neither a weight: 2·k operations for each output.

    Matrices that are broadcast over a batch are read once. A third input (Gemm's C) is added to the product.
    """
    a, y = op.inputs[0], op.outputs[0]
    contracted = binding.size(op.get("contracted", a.shape[-1]))
    added: Any = len(op.inputs[2:])
    return moving(op, binding, binding.elements(y) * (2 * contracted + added))

"""Ops that visit each number a fixed number of times, and ops that only move numbers."""

from typing import Any

from inferometer.core.binding import Binding
from inferometer.core.graph import Op
from inferometer.core.work import Work
from inferometer.predict.work.polynomial import smaller
from inferometer.predict.work.rules.attention import SOFTMAX_FLOPS
from inferometer.predict.work.rules.registry import activations, moving, rule, streams

# Operations a number, as the functions are written in their papers.
ACTIVATION_FLOPS = {
    "relu": 1,
    "relu6": 2,  # two comparisons
    "clip": 2,  # a comparison for each end
    "leaky_relu": 2,  # compare, multiply
    "prelu": 2,  # as above, with a slope that is read
    "thresholded_relu": 1,
    "tanh": 1,  # one function of the unit, as an exponential is
    "erf": 1,
    "sigmoid": 4,  # negate, exponential, add one, divide
    "silu": 5,  # x · sigmoid(x)
    "swish": 5,  # another name of silu
    "gelu": 5,  # x / √2, erf, add one, times x, halve
    "gelu_tanh": 9,  # x³ (2), · 0.0447, + x, · √(2/π), tanh, + 1, · x, halve
    "quick_gelu": 6,  # x · sigmoid(1.702 x)
    "relu2": 2,  # compare, square
    "hardsigmoid": 4,  # multiply, add, two comparisons
    "hardswish": 5,  # x · hardsigmoid(x)
    "hardtanh": 2,
    "elu": 4,  # compare, exponential, subtract one, multiply
    "selu": 5,  # elu, and a scale
    "celu": 5,  # elu of x / α
    "softplus": 3,  # exponential, add one, logarithm
    "softsign": 3,  # absolute value, add one, divide
    "mish": 5,  # x · tanh(softplus(x))
    "logsigmoid": 4,  # softplus of −x, negated
}

# Operations a number before scale and shift.
NORM_FLOPS = {
    "layer": 5,  # add to the mean; subtract it, square, add to the variance; multiply by 1/σ
    "group": 5,  # as a layer's, over the channels of a group
    "instance": 5,  # as a layer's, over a plane
    "rms": 3,  # square, add, multiply by 1/rms
    "l2": 3,  # square, add, multiply by 1/norm
    "batch": 2,  # mean and variance are stored, so scale and shift fold into a·x + b
}

# Operations an element that is read; a plain sum, mean or maximum is one. logsumexp: maximum, subtract, exp, add.
_REDUCE_FLOPS = {"l1": 2, "l2": 2, "sum_square": 2, "log_sum": 1, "logsumexp": 4, "variance": 3, "std": 3}
_VARIADIC = frozenset({"sum", "mean", "max", "min"})


@rule("elementwise")
def elementwise(op: Op, binding: Binding) -> Work:
    """`flops_per_element` for each output; 1 where it is not given, and n − 1 for a sum or maximum of n operands."""
    operands = len(op.inputs) + len(op.weights)
    usual = max(1, operands - 1) if op.get("function") in _VARIADIC else 1
    return moving(op, binding, op.get("flops_per_element", usual) * _outputs(op, binding))


@rule("activation")
def activation(op: Op, binding: Binding) -> Work:
    """The function's operations for each output, and one more for each further input: gated units multiply by it."""
    gates = max(0, len(activations(op.inputs)) - 1)
    return moving(op, binding, (activation_flops(op) + gates) * _outputs(op, binding))


def activation_flops(op: Op) -> int:
    """Operations a number of the op's function: what it states, else the table's; a function not there counts one."""
    stated: int = op.get("flops_per_element", ACTIVATION_FLOPS.get(op.get("function", ""), 1))
    return stated


@rule("softmax")
def softmax(op: Op, binding: Binding) -> Work:
    """Each number is compared for the maximum, has it subtracted, is raised, summed and divided: 5."""
    return moving(op, binding, SOFTMAX_FLOPS * _outputs(op, binding))


@rule("norm")
def norm(op: Op, binding: Binding) -> Work:
    """Operations for each number by the kind of norm, one more for each learned vector (scale, bias).

    Batch norm's scale and shift are already in its two. LRN sums the squares of `size` neighbours: a square, size − 1
    adds, then multiply, add, power and divide. A further input is a residual that is added first. What is computed
    once a row (the root, the division by the row's length) is left out.
    """
    kind = op.get("norm", "layer")
    learned = 0 if kind == "batch" else sum(1 for weight in op.weights if weight.role == "weight")
    residuals = max(0, len(activations(op.inputs)) - 1)
    each = op.get("size", 5) + 4 if kind == "lrn" else NORM_FLOPS.get(kind, NORM_FLOPS["layer"])
    return moving(op, binding, (each + learned + residuals) * binding.elements(op.outputs[0]))


@rule("reduce")
def reduce(op: Op, binding: Binding) -> Work:
    """One operation for each number that goes in (add, compare, multiply), more where each is first squared or raised.

    n numbers need n − 1 additions; the one left over stands for a mean's division.
    """
    each = _REDUCE_FLOPS.get(op.get("function", "sum"), 1)
    return moving(op, binding, each * binding.elements(op.inputs[0]))


@rule("pool")
def pool(op: Op, binding: Binding) -> Work:
    """One operation for each number under the window: ∏kernel for each output; all inputs once where it is global."""
    if op.get("kernel") is None or op.get("function") == "global":
        return moving(op, binding, binding.elements(op.inputs[0]))
    window = 1
    for side in op["kernel"]:
        window = window * binding.size(side)
    return moving(op, binding, window * binding.elements(op.outputs[0]))


@rule("resize")
def resize(op: Op, binding: Binding) -> Work:
    """Each output is a weighted sum of t neighbours, t multiplies and t − 1 adds: 2·t − 1.

    In n dimensions t is 2ⁿ for linear and 4ⁿ for cubic interpolation. The nearest neighbour is only copied.
    """
    mode = str(op.get("mode", "nearest"))
    spatial = {"bilinear": 2, "bicubic": 2, "trilinear": 3}.get(mode, max(1, len(op.outputs[0].shape) - 2))
    if "nearest" in mode:
        return Work(**streams(op, binding))
    taps = (4 if "cubic" in mode else 2) ** spatial
    return moving(op, binding, (2 * taps - 1) * binding.elements(op.outputs[0]))


@rule("cast")
def cast(op: Op, binding: Binding) -> Work:
    """The same numbers in another format: read in the one, written in the other. Converting is no arithmetic."""
    return Work(**streams(op, binding))


@rule("copy")
def copy(op: Op, binding: Binding) -> Work:
    """Bytes that move without being computed on: transpose, concat, slice, pad, expand.

    A slice reads only what it keeps and an expansion reads only what there is: the smaller of in and out is read.
    """
    moved = streams(op, binding)
    return Work(**moved | {"reads": smaller(moved["reads"], moved["writes"] + moved["kv_writes"])})


@rule("view")
def view(op: Op, binding: Binding) -> Work:  # noqa: ARG001 - every rule takes both
    """Another shape for the same bytes: nothing is computed and nothing moves."""
    return Work()


def _outputs(op: Op, binding: Binding) -> Any:
    return binding.elements(op.outputs[0])

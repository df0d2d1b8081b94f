"""Ops that multiply and add: matrix products, convolutions, recurrent cells; and numbers that carry a scale."""

from math import prod
from typing import Any

from inferometer.core.binding import Binding
from inferometer.core.graph import Op
from inferometer.core.work import Work
from inferometer.predict.work.rules.registry import moving, rows, rule


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


@rule("convolution")
def convolution(op: Op, binding: Binding) -> Work:
    """Each output is a dot product over a window of the kernel's size in in_channels / groups channels.

    2·elements(y)·(in_channels / groups)·∏kernel, in one, two or three dimensions alike; depthwise is groups =
    in_channels. Strides and padding are already in the output's shape, and dilation spreads the window without adding
    to it. Multiplications with padding are counted, as engines do them.

    Transposed, each *input* is spread over a window in out_channels / groups channels: 2·elements(x)·(out_channels /
    groups)·∏kernel. A bias adds one operation for each output.
    """
    x, y = op.inputs[0], op.outputs[0]
    groups, window = op.get("groups", 1), prod(op["kernel"])
    if op.get("transposed"):
        products = binding.elements(x) * (op["out_channels"] // groups) * window
    else:
        products = binding.elements(y) * (op["in_channels"] // groups) * window
    biases = sum(1 for weight in op.weights[1:] if weight.role == "weight")
    return moving(op, binding, 2 * products + biases * binding.elements(y))


# Ops between number formats that carry a scale.


@rule("quantize")
def quantize(op: Op, binding: Binding) -> Work:
    """Divide by the scale, round, add the zero point, clamp at both ends: 5 a number.

    `dynamic` first compares each number for the smallest and the largest: 2 more.
    """
    each = 7 if op.get("dynamic") else 5
    return moving(op, binding, each * binding.elements(op.outputs[0]))


@rule("dequantize")
def dequantize(op: Op, binding: Binding) -> Work:
    """Subtract the zero point, multiply by the scale: 2 a number. Stored numbers come from the weights' stream."""
    return moving(op, binding, 2 * binding.elements(op.outputs[0]))


# Ops with a memory of their own: state-space scans and recurrent cells.

# Products of input and state with a weight matrix each, and operations a hidden unit after them.
_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
_POINTWISE = {
    "lstm": 18,  # three sigmoids of 4, two tanh, f∘c + i∘g (3), o∘tanh(c)
    "gru": 14,  # two sigmoids of 4, tanh, r∘h, (1 − z)∘n + z∘h (4)
    "rnn": 1,  # tanh
}
_SCANNED = {1: 7, 2: 5, 3: 7, 7: 9}  # operations for each channel and state number, by version


@rule("ssm_scan")
def ssm_scan(op: Op, binding: Binding) -> Work:
    """One step of h ← Ā·h + Δx·B, y = C·h + D·x for each token, in its recurrent form.

    Mamba (version 1), for each channel and state number: Ā = exp(Δ·A) is 2, Δx·B is 1, the update's multiply and add
    2, the product with C 2; for each channel Δ·x and the skip D·x are 3. inner·(7·state + 3) a token.

    Mamba-2: A is one number a head, so Ā is 2 a head: inner·(5·state + 3) + 2·heads a token.

    The gated delta rule (version 3): the state decays (1), what it holds for the key is read (2), the difference to the
    value is written at the key (2), and the query reads (2): inner·(7·state + 3), and 2 a head as above. RWKV-7
    (version 7) reads and writes the removed key as a product of its own: inner·(9·state + 3).

    The states are read and written once a call. Engines that scan in chunks do more arithmetic, in matrix products;
    this is the least. The causal convolution and the gate are ops of their own.
    """
    inner, state = op["inner"], op["state"]
    version = op.get("version", 1)
    each = inner * (_SCANNED[version] * state + 3) + (2 * op["heads"] if version in {2, 3} else 0)
    return moving(op, binding, rows(op.inputs[0], binding) * each)


@rule("recurrent")
def recurrent(op: Op, binding: Binding) -> Work:
    """For each vector of x and each direction, a cell multiplies input and state with a matrix for each gate.

    There are 4 gates in an LSTM, 3 in a GRU, 1 in a plain cell; x [..., input] holds every step. The products are
    gates·hidden·2·(input + hidden), gates·hidden more with a bias, and pointwise operations follow. The weights are
    read once a call: the least, when they stay on the chip from step to step.
    """
    x, hidden, cell = op.inputs[0], op["hidden"], op["cell"]
    biased = 1 if len(op.weights) > 2 else 0
    each = _products(op, binding) + hidden * (_GATES[cell] * biased + _POINTWISE[cell])
    return moving(op, binding, rows(x, binding) * op.get("directions", 1) * each)


def _products(op: Op, binding: Binding) -> Any:
    """Operations of one row of x with the matrices of one direction."""
    return 2 * _GATES[op["cell"]] * op["hidden"] * (binding.size(op.inputs[0].shape[-1]) + op["hidden"])


def recurrent_products(op: Op, binding: Binding) -> Any:
    """Operations of one row at every step of a recurrent layer, in all of its directions."""
    steps = op.get("steps")
    taken = rows(op.inputs[0], binding) if steps is None else binding.size(steps)
    return taken * op.get("directions", 1) * _products(op, binding)

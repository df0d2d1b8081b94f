"""What works number by number, and reductions: activation, elementwise, softmax, reduce, cast."""

from collections.abc import Callable
from functools import reduce as fold
from math import sqrt
from typing import Any

from inferometer.core.graph import Op
from inferometer.formats.onnx.write.lowering import Lowering, rule
from inferometer.formats.onnx.write.nodes import Nodes, WrittenValue
from inferometer.formats.onnx.write.shapes import probe, reshaped, shown

_ONE_NODE: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "hardswish": ("HardSwish", {}),
    "hard_swish": ("HardSwish", {}),
    "hardsigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "softplus": ("Softplus", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.01}),
    "elu": ("Elu", {}),
    "mish": ("Mish", {}),
    "exp": ("Exp", {}),
    "identity": ("Identity", {}),
    "linear": ("Identity", {}),
}
_BINARY = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min"}


def _activated(nodes: Nodes, x: str, function: str) -> str | None:
    """The activation of a value, or None where it is not known."""
    if function in _ONE_NODE:
        kind, attributes = _ONE_NODE[function]
        return str(nodes.add(kind, x, **attributes))
    if function in {"silu", "swish"}:
        return str(nodes.add("Mul", x, nodes.add("Sigmoid", x)))
    if function == "quick_gelu":
        return str(nodes.add("Mul", x, nodes.add("Sigmoid", nodes.add("Mul", x, nodes.floats(1.702)))))
    if function == "relu6":
        return str(nodes.add("Clip", x, nodes.floats(0.0), nodes.floats(6.0)))
    if function in {"relu2", "squared_relu"}:
        positive = nodes.add("Relu", x)
        return str(nodes.add("Mul", positive, positive))
    return None


@rule("activation")
def activation(lowering: Lowering, op: Op) -> None:
    x = lowering.read(op.inputs[0])
    y = _activated(lowering.nodes, x.name, op["function"])
    if y is None:
        raise lowering.refuse(op, f"the activation {op['function']!r} is not known")
    lowering.give(op.outputs[0], y)


@rule("elementwise")
def elementwise(lowering: Lowering, op: Op) -> None:
    nodes, function = lowering.nodes, op["function"]
    values = [lowering.read(tensor) for tensor in op.inputs]
    values += [WrittenValue(nodes.weight(weight) or weight.name, weight.shape) for weight in lowering.weights(op)]
    if function == "soft_cap":
        lowering.give(op.outputs[0], soft_capped(nodes, values[0].name, lowering.numbers.logit_cap))
        return
    if function not in _BINARY:
        y = _activated(nodes, values[0].name, function)
        if y is None:
            raise lowering.refuse(op, f"the function {function!r} is not known")
        lowering.give(op.outputs[0], y)
        return
    if len(values) == 1:  # by a number that the graph does not name: a language model's scale of its embedding
        (features,) = probe(values[0].shape[-1:])
        values.append(WrittenValue(nodes.floats(sqrt(features)), ()))
    first = values[0]
    names = [first.name]
    for value in values[1:]:
        name = aligned(nodes, value, first)
        if name is None:
            raise lowering.refuse(op, f"{value.name!r} is {shown(value.shape)} beside {shown(first.shape)}")
        names.append(name)
    lowering.give(op.outputs[0], fold(_pairwise(nodes, _BINARY[function]), names))


def _pairwise(nodes: Nodes, kind: str) -> Callable[[str, str], str]:
    return lambda left, right: str(nodes.add(kind, left, right))


def aligned(nodes: Nodes, value: WrittenValue, like: WrittenValue) -> str | None:
    """A smaller value ready to be broadcast: by its last axes, or, where those do not fit, by its first ones.

    [batch, channels] beside [batch, channels, height, width], or a factor a channel. None where neither fits.
    """
    sizes = probe((*value.shape, *like.shape))
    mine, full = sizes[: len(value.shape)], sizes[len(value.shape) :]
    if len(mine) > len(full):
        return None
    last = full[len(full) - len(mine) :]
    if all(size in {1, other} for size, other in zip(mine, last, strict=True)):
        return value.name
    begin = next((axis for axis in (0, 1) if mine == full[axis : axis + len(mine)]), None)
    if begin is None:
        return None
    trailing = len(full) - begin - len(mine)
    return reshaped(nodes, value, (*value.shape, *[1] * trailing)).name


def soft_capped(nodes: Nodes, x: str, cap: float) -> str:
    """The cap times tanh(x / cap)."""
    inside = nodes.add("Tanh", nodes.add("Div", x, nodes.floats(cap)))
    return str(nodes.add("Mul", inside, nodes.floats(cap)))


@rule("softmax")
def softmax(lowering: Lowering, op: Op) -> None:
    x = lowering.read(op.inputs[0])
    lowering.give(op.outputs[0], lowering.nodes.add("Softmax", x.name, axis=op.get("axis", -1)))


_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}


@rule("reduce")
def reduction(lowering: Lowering, op: Op) -> None:
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    kind = _REDUCTIONS.get(op["function"])
    if kind is None:
        raise lowering.refuse(op, f"the reduction {op['function']!r} is not known")
    keeps = len(op.outputs[0].shape) == len(x.shape)
    lowering.give(op.outputs[0], nodes.add(kind, x.name, nodes.wholes(*op["axes"]), keepdims=int(keeps)))


@rule("cast")
def cast(lowering: Lowering, op: Op) -> None:
    """Everything has one format here, so a cast is nothing."""
    lowering.give(op.outputs[0], lowering.read(op.inputs[0]))

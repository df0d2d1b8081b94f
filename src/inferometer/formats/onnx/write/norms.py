"""Norms. An RMS norm is written out in the nodes that runtimes recognise and fuse."""

import numpy as np

from inferometer.core.graph import Op
from inferometer.formats.onnx.write.lowering import Lowering, rule
from inferometer.formats.onnx.write.nodes import Nodes, WrittenValue
from inferometer.formats.onnx.write.shapes import reshaped, transposed


@rule("norm")
def norm(lowering: Lowering, op: Op) -> None:
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    names = [nodes.weight(weight) or weight.name for weight in lowering.weights(op)]
    match op["norm"]:
        case "batch":
            scale, bias, mean, variance = names
            y = WrittenValue(nodes.add("BatchNormalization", x.name, scale, bias, mean, variance), x.shape)
        case "group":
            y = WrittenValue(_group(nodes, x.name, names, op, lowering.numbers.epsilon), x.shape)
        case "layer" | "rms":
            y = _last_axis(lowering, op, x, names)
        case "l2":
            y = WrittenValue(nodes.add("LpNormalization", x.name, axis=-1, p=2), x.shape)
        case other:
            raise lowering.refuse(op, f"the norm {other!r} has no rule")
    lowering.give(op.outputs[0], y)


def _last_axis(lowering: Lowering, op: Op, x: WrittenValue, names: list[str]) -> WrittenValue:
    """Over the last axis, over a head's part of it, or over the channels of a plane."""
    nodes, features = lowering.nodes, op.get("features", x.shape[-1])
    if x.shape[-1] == features:
        return WrittenValue(_normed(lowering, op, x.name, features, names), x.shape)
    if len(x.shape) == 4 and x.shape[1] == features:
        last = transposed(nodes, x, 0, 2, 3, 1)
        y = WrittenValue(_normed(lowering, op, last.name, features, names), last.shape)
        return transposed(nodes, y, 0, 3, 1, 2)
    width = x.shape[-1]
    if not isinstance(width, int) or width % features:
        raise lowering.refuse(op, f"{features} features do not divide an axis of {width}")
    heads = reshaped(nodes, x, (*x.shape[:-1], width // features, features))
    y = WrittenValue(_normed(lowering, op, heads.name, features, names), heads.shape)
    return reshaped(nodes, y, x.shape)


def _normed(lowering: Lowering, op: Op, x: str, features: int, names: list[str]) -> str:
    nodes, epsilon = lowering.nodes, lowering.numbers.epsilon
    if op["norm"] == "layer":
        scale = names[:1] or [nodes.constant(np.ones(features, nodes.float_type))]
        return str(nodes.add("LayerNormalization", x, *scale, *names[1:], axis=-1, epsilon=epsilon))
    squares = nodes.add("ReduceMean", nodes.add("Pow", x, nodes.floats(2.0)), nodes.wholes(-1), keepdims=1)
    # f16 has nothing below 6e-8: a smaller epsilon would be zero
    small = epsilon if nodes.float_type == np.float32 else max(epsilon, 1e-5)
    root = nodes.add("Sqrt", nodes.add("Add", squares, nodes.floats(small)))
    y = nodes.add("Div", x, root)
    return str(nodes.add("Mul", y, names[0])) if names else str(y)


def _group(nodes: Nodes, x: str, names: list[str], op: Op, epsilon: float) -> str:
    features, groups = op["features"], op.get("groups", 32)
    scale = names[:1] or [nodes.constant(np.ones(features, nodes.float_type))]
    bias = names[1:2] or [nodes.constant(np.zeros(features, nodes.float_type))]
    return str(nodes.add("GroupNormalization", x, *scale, *bias, num_groups=groups, epsilon=epsilon))

"""Planes and moves: convolution, pool, resize, view, copy."""

from math import isqrt
from typing import Any

import numpy as np

from inferometer.core.dims import Dim
from inferometer.core.graph import Op
from inferometer.formats.onnx.write.lowering import (
    Nodes,
    OnnxLowering,
    WrittenValue,
    concat_axis,
    probe,
    reinterpreted,
    reshaped,
    rule,
    transposed,
)
from inferometer.formats.synth.weights import Array, Weight, relative_index


@rule("convolution")
def convolution(lowering: OnnxLowering, op: Op) -> None:
    if op.get("causal"):
        raise lowering.refuse(op, "its state is kept between steps")
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    names = [nodes.weight(weight) or weight.name for weight in lowering.weights(op)]
    rank = len(op["kernel"])
    padding = op.get("padding", (0,) * rank)
    attributes = {
        "kernel_shape": list(op["kernel"]),
        "strides": list(op.get("strides") or (1,) * rank),
        "dilations": list(op.get("dilations") or (1,) * rank),
        "pads": [*padding, *padding],
        "group": op.get("groups", 1),
    }
    kind = "ConvTranspose" if op.get("transposed") else "Conv"
    lowering.give(op.outputs[0], nodes.add(kind, x.name, *names, **attributes))


@rule("pool")
def pool(lowering: OnnxLowering, op: Op) -> None:
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    shape = lowering.shape(op.outputs[0])
    if op["function"] == "global" or not op.get("kernel"):
        lowering.give(op.outputs[0], _global(lowering, op, x, shape))
        return
    kernel = op["kernel"]
    strides = op.get("strides") or kernel
    padding = op.get("padding") or _padding(lowering, op, x.shape[2:], shape[2:])
    attributes: dict[str, Any] = {
        "kernel_shape": list(kernel),
        "strides": list(strides),
        "pads": [*padding, *padding],
    }
    if op.get("ceil"):
        attributes["ceil_mode"] = 1
    kind = "MaxPool" if op["function"] == "max" else "AveragePool"
    if kind == "AveragePool":
        attributes["count_include_pad"] = 1
    lowering.give(op.outputs[0], nodes.add(kind, x.name, **attributes))


def _global(lowering: OnnxLowering, op: Op, x: WrittenValue, shape: tuple[Dim, ...]) -> WrittenValue:
    """One value a channel, with or without axes of one after it; or a plane of a given size (adaptive)."""
    nodes = lowering.nodes
    if len(shape) == len(x.shape) and set(probe(shape[2:])) != {1}:
        have, want = probe(x.shape[2:]), probe(shape[2:])
        if any(a % b for a, b in zip(have, want, strict=True)):
            raise lowering.refuse(op, f"a plane of {have} has no equal parts of {want}")
        kernel = [a // b for a, b in zip(have, want, strict=True)]
        return WrittenValue(nodes.add("AveragePool", x.name, kernel_shape=kernel, strides=kernel), shape)
    y = nodes.add("GlobalAveragePool", x.name)
    full = (*x.shape[:2], *[1] * (len(x.shape) - 2))
    if len(shape) == len(full):
        return WrittenValue(y, full)
    return WrittenValue(nodes.add("Flatten", y, axis=1), x.shape[:2])


def _padding(lowering: OnnxLowering, op: Op, have: tuple[Dim, ...], want: tuple[Dim, ...]) -> tuple[int, ...]:
    """The padding inferred from the two planes, where the op does not give it."""
    padding = []
    strides = op.get("strides") or op["kernel"]
    for side, target, kernel, stride in zip(probe(have), probe(want), op["kernel"], strides, strict=True):
        fitting = [pad for pad in range(kernel) if (side + 2 * pad - kernel) // stride + 1 == target]
        if not fitting:
            raise lowering.refuse(op, f"a side of {side} does not become {target}")
        padding.append(fitting[0])
    return tuple(padding)


@rule("resize")
def resize(lowering: OnnxLowering, op: Op) -> None:
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    shape = lowering.shape(op.outputs[0])
    mode = {"nearest": "nearest", "bilinear": "linear", "linear": "linear", "bicubic": "cubic"}.get(
        op.get("mode", "nearest")
    )
    if mode is None:
        raise lowering.refuse(op, f"the mode {op.get('mode')!r} is not known")
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": "asymmetric" if mode == "nearest" else "half_pixel",
    }
    if mode == "nearest":
        attributes["nearest_mode"] = "floor"
    y = nodes.add("Resize", x.name, "", "", nodes.shape(shape), **attributes)
    lowering.give(op.outputs[0], WrittenValue(y, shape))


@rule("view")
def view(lowering: OnnxLowering, op: Op) -> None:
    """A reshape, a part, or several parts; which of them is read off the shapes."""
    nodes = lowering.nodes
    x = lowering.read(op.inputs[0])
    shapes = [lowering.shape(tensor) for tensor in op.outputs]
    if len(shapes) == 1:
        last = op.name.rpartition(".")[2] == "last"
        lowering.give(op.outputs[0], reinterpreted(nodes, x, shapes[0], last=last))
        return
    axis = concat_axis(shapes, x.shape)
    if axis is None:
        raise lowering.refuse(op, "its parts do not make its whole")
    sizes = [shape[axis] for shape in shapes]
    names = nodes.add("Split", x.name, nodes.shape(sizes), outputs=len(sizes), axis=axis)
    for tensor, name, shape in zip(op.outputs, names, shapes, strict=True):
        lowering.give(tensor, WrittenValue(name, shape))


@rule("copy")
def copy(lowering: OnnxLowering, op: Op) -> None:
    match op.get("function"):
        case "partition":
            value = partitioned(lowering, op, shifted=False)
        case "shift and partition":
            value = partitioned(lowering, op, shifted=True)
        case "reverse":
            value = reversed_windows(lowering, op)
        case "concat":
            value = _concat(lowering, op)
        case "expand" if not op.inputs:
            # A learned tensor, the same for every picture.
            (weight,), shape = lowering.weights(op), lowering.shape(op.outputs[0])
            name = lowering.nodes.weight(weight) or weight.name
            value = WrittenValue(lowering.nodes.add("Expand", name, lowering.nodes.shape(shape)), shape)
        case "transpose" | "reshape":
            value = reinterpreted(lowering.nodes, lowering.read(op.inputs[0]), lowering.shape(op.outputs[0]))
        case other:
            raise lowering.refuse(op, f"how it moves numbers ({other}) is not known")
    lowering.give(op.outputs[0], value)


def _concat(lowering: OnnxLowering, op: Op) -> WrittenValue:
    """Inputs one after the other; learned tokens go before them, the same for every picture."""
    nodes, shape = lowering.nodes, lowering.shape(op.outputs[0])
    values = [lowering.read(tensor) for tensor in op.inputs]
    if not op.weights and len(values) == 1:
        return gathered(lowering, op)
    missing = _missing(values, shape) if op.weights else 0
    for weight in lowering.weights(op)[:missing]:
        name = nodes.weight(weight) or weight.name
        token = (shape[0], 1, shape[-1])
        values.insert(0, WrittenValue(nodes.add("Expand", name, nodes.shape(token)), token))
    axis = concat_axis([value.shape for value in values], shape)
    whole = shape
    if axis is None:  # joined along their last axis, then looked at in another shape
        axis = len(values[0].shape) - 1
        whole = (*values[0].shape[:-1], sum((value.shape[-1] for value in values[1:]), start=values[0].shape[-1]))
    joined = WrittenValue(nodes.add("Concat", *[value.name for value in values], axis=axis), whole)
    return reinterpreted(nodes, joined, shape)


def _missing(values: list[WrittenValue], shape: tuple[Dim, ...]) -> int:
    """How many tokens the inputs lack of the output's."""
    sizes = probe((shape[1], *[value.shape[1] for value in values]))
    return sizes[0] - sum(sizes[1:])


# Swin's windows: cutting a plane into windows and back, its table of relative positions, the mask of shifted ones.


def partitioned(lowering: OnnxLowering, op: Op, *, shifted: bool) -> WrittenValue:
    """[batch, side², features] → [batch · windows, window², features]. A shift moves the plane by half a window."""
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    shape = lowering.shape(op.outputs[0])
    side, window = _side(lowering, op, x), isqrt(_whole(lowering, op, shape[1]))
    across = -(-side // window)
    features, batch = x.shape[-1], x.shape[0]
    lowering.notes[_key(lowering, op)] = (side, window, shifted, batch)
    plane = reshaped(nodes, x, (batch, side, side, features))
    extra = across * window - side
    if extra:
        name = nodes.add("Pad", plane.name, nodes.wholes(0, 0, 0, 0, 0, extra, extra, 0))
        plane = WrittenValue(name, (batch, side + extra, side + extra, features))
    if shifted:
        plane = _rolled(nodes, plane, window // 2)
    cut = reshaped(nodes, plane, (batch, across, window, across, window, features))
    return reshaped(nodes, transposed(nodes, cut, 0, 1, 3, 2, 4, 5), shape)


def reversed_windows(lowering: OnnxLowering, op: Op) -> WrittenValue:
    """The windows put back into the plane they were cut from."""
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    side, window, shifted, batch = lowering.notes[_key(lowering, op)]
    across = -(-side // window)
    shape = lowering.shape(op.outputs[0])
    features = shape[-1]
    cut = reshaped(nodes, x, (batch, across, across, window, window, features))
    plane = reshaped(
        nodes, transposed(nodes, cut, 0, 1, 3, 2, 4, 5), (batch, across * window, across * window, features)
    )
    if shifted:
        plane = _rolled(nodes, plane, across * window - window // 2)
    if across * window != side:
        ends, axes = nodes.wholes(side, side), nodes.wholes(1, 2)
        plane = WrittenValue(
            nodes.add("Slice", plane.name, nodes.wholes(0, 0), ends, axes), (batch, side, side, features)
        )
    return reshaped(nodes, plane, shape)


def gathered(lowering: OnnxLowering, op: Op) -> WrittenValue:
    """Four neighbours side by side: [batch, (2n)², features] → [batch, n², 4 · features]."""
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    half = _side(lowering, op, x) // 2
    batch, features = x.shape[0], x.shape[-1]
    cut = reshaped(nodes, x, (batch, half, 2, half, 2, features))
    return reshaped(nodes, transposed(nodes, cut, 0, 1, 3, 4, 2, 5), lowering.shape(op.outputs[0]))


def relative_bias(nodes: Nodes, table: Weight) -> str:
    """The table's rows as [1, heads, window², window²]."""
    window = (isqrt(table.shape[0]) + 1) // 2
    name = nodes.weight(table) or table.name
    rows = nodes.add("Gather", name, nodes.constant(relative_index(window)), axis=0)
    return str(nodes.add("Unsqueeze", nodes.add("Transpose", rows, perm=[2, 0, 1]), nodes.wholes(0)))


def window_mask(lowering: OnnxLowering, op: Op, scores: WrittenValue) -> str:
    """A shifted window holds parts of the plane that are no neighbours: they do not see each other."""
    side, window, shifted, batch = lowering.notes.get(_key(lowering, op), (0, 0, False, 0))
    if not shifted:
        return scores.name
    nodes = lowering.nodes
    across = -(-side // window)
    low = float(np.finfo(nodes.float_type).min) / 2
    hidden = np.where(_regions(across * window, window), 0.0, low)[:, None].astype(nodes.float_type)
    heads = scores.shape[1]
    by_window = reshaped(nodes, scores, (batch, across * across, heads, window * window, window * window))
    added = nodes.add("Add", by_window.name, nodes.constant(hidden))
    return reshaped(nodes, WrittenValue(added, by_window.shape), scores.shape).name


def _regions(side: int, window: int) -> Array:
    """[windows, window², window²]: whether two places of a window lay together before the shift."""
    shift = window // 2
    band = np.zeros(side, np.int64)
    band[side - window : side - shift] = 1
    band[side - shift :] = 2
    region = band[:, None] * 3 + band[None, :]
    across = side // window
    cut = region.reshape(across, window, across, window).transpose(0, 2, 1, 3).reshape(-1, window * window)
    same: Array = cut[:, :, None] == cut[:, None, :]
    return same


def _rolled(nodes: Nodes, plane: WrittenValue, shift: int) -> WrittenValue:
    """Both axes of the plane moved `shift` places towards the beginning, around the edge."""
    side, name = plane.shape[1], plane.name
    if not isinstance(side, int):
        raise TypeError("A plane is shifted only where its side is fixed.")
    for axis in (1, 2):
        first, rest = nodes.add("Split", name, nodes.wholes(shift, side - shift), outputs=2, axis=axis)
        name = nodes.add("Concat", rest, first, axis=axis)
    return WrittenValue(name, plane.shape)


def _side(lowering: OnnxLowering, op: Op, x: WrittenValue) -> int:
    tokens = _whole(lowering, op, x.shape[1])
    side = isqrt(tokens)
    if side * side != tokens:
        raise lowering.refuse(op, f"{tokens} tokens are no square")
    return side


def _whole(lowering: OnnxLowering, op: Op, size: object) -> int:
    if not isinstance(size, int):
        raise lowering.refuse(op, f"the size {size} is open: give the image's side")
    return size


def _key(lowering: OnnxLowering, op: Op) -> tuple[str, str]:
    return "window", lowering.full(op.name).rpartition(".")[0]

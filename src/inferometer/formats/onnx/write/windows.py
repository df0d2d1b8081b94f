"""Swin's windows: cutting a plane into windows and back, its table of relative positions, the mask of shifted ones."""

from math import isqrt

import numpy as np

from inferometer.core.graph import Op
from inferometer.formats.onnx.write.lowering import OnnxLowering
from inferometer.formats.onnx.write.nodes import Nodes, WrittenValue
from inferometer.formats.onnx.write.shapes import reshaped, transposed
from inferometer.formats.synth.weights import Array, Weight, relative_index


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

"""One layer of an IR as nodes in ONNX's terms.

Most layers have an operator of their own in ONNX with the inputs in the same order: those are rows of a table. The
others put what IR has as inputs (axes, orders, lengths) into attributes, or the other way round.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferometer.formats.onnx.messages import Node, NodeWriter
from inferometer.formats.openvino.net import IrLayer

DOMAIN = "openvino"  # of layers that have no counterpart in ONNX: they are named and not counted

# IR's type → ONNX's, where inputs and meaning are the same.
SAME = {
    "Abs": "Abs", "Acos": "Acos", "Add": "Add", "Asin": "Asin", "Atan": "Atan", "Ceiling": "Ceil", "Cos": "Cos",
    "ConvertLike": "CastLike", "CumSum": "CumSum", "Divide": "Div", "Equal": "Equal", "Erf": "Erf", "Exp": "Exp",
    "Elu": "Elu", "Selu": "Selu", "Floor": "Floor", "FloorMod": "Mod", "Greater": "Greater", "Less": "Less",
    "GreaterEqual": "GreaterOrEqual", "LessEqual": "LessOrEqual", "Log": "Log", "LogicalAnd": "And",
    "LogicalNot": "Not", "LogicalOr": "Or", "LogicalXor": "Xor", "Maximum": "Max", "Minimum": "Min", "Mod": "Mod",
    "Multiply": "Mul", "Negative": "Neg", "NotEqual": "Equal", "Power": "Pow", "Round": "Round", "Select": "Where",
    "Sign": "Sign", "Sin": "Sin", "Sqrt": "Sqrt", "SquaredDifference": "Sub", "Subtract": "Sub", "Tan": "Tan",
    "IsNaN": "IsNaN", "ReLU": "Relu", "PReLU": "PRelu", "Sigmoid": "Sigmoid", "Tanh": "Tanh", "HSwish": "HardSwish",
    "Swish": "Swish",
    "HSigmoid": "HardSigmoid", "HardSigmoid": "HardSigmoid", "Mish": "Mish", "SoftPlus": "Softplus",
    "SoftSign": "Softsign", "Squeeze": "Squeeze", "Unsqueeze": "Unsqueeze", "ShapeOf": "Shape", "Broadcast": "Expand",
    "Tile": "Tile", "Range": "Range", "NonZero": "NonZero", "GridSample": "GridSample", "ReadValue": "Identity",
    "ScatterNDUpdate": "ScatterND", "ReverseSequence": "ReverseSequence", "OneHot": "OneHot", "Assign": "Identity",
    "BatchNormInference": "BatchNormalization", "GroupNormalization": "GroupNormalization",
    "NonMaxSuppression": "NonMaxSuppression", "ScaledDotProductAttention": "Attention", "ScatterUpdate": "ScatterND",
    "ScatterElementsUpdate": "ScatterElements", "MVN": "MeanVarianceNormalization", "NormalizeL2": "LpNormalization",
    "LRN": "LRN", "Identity": "Identity",
}  # fmt: skip
_REDUCTIONS = {
    "ReduceMean": "ReduceMean", "ReduceSum": "ReduceSum", "ReduceMax": "ReduceMax", "ReduceMin": "ReduceMin",
    "ReduceProd": "ReduceProd", "ReduceL1": "ReduceL1", "ReduceL2": "ReduceL2", "ReduceLogicalAnd": "ReduceMin",
    "ReduceLogicalOr": "ReduceMax",
}  # fmt: skip
_FIRST_ONLY = frozenset({"MVN", "NormalizeL2", "LRN", "ReadValue", "Assign", "HardSigmoid"})
_AUTO_PADS = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}
_MODES = {"nearest": "nearest", "cubic": "cubic", "bilinear_pillow": "linear", "bicubic_pillow": "cubic"}


@dataclass(slots=True)
class LayerSite:
    """A layer where it stands: the names of what it reads and makes.

    `numbers` reads an input whose elements are known whole numbers; `store` names a list of numbers as an input.
    """

    layer: IrLayer
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    numbers: Callable[[int], tuple[int, ...] | None]
    store: Callable[[Sequence[int]], str]
    node: Callable[..., Node] = field(init=False)

    def listed(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers among the layer's own attributes."""
        text = self.layer.data.get(key)
        parts = [] if text is None else [part.strip() for part in text.split(",") if part.strip()]
        if text is None or not all(part.removeprefix("-").isdecimal() and len(part) < 19 for part in parts):
            return None
        return tuple(map(int, parts))

    def whole(self, key: str, default: int = 0) -> int:
        return (self.listed(key) or (default,))[0]

    def flag(self, key: str) -> bool:
        return self.layer.data.get(key, "").casefold() in {"true", "1"}

    def dims(self, index: int) -> tuple[int | None, ...]:
        return self.layer.inputs[index].dims if index < len(self.layer.inputs) else ()

    def __post_init__(self) -> None:
        self.node = NodeWriter(self.layer.name, self.layer.type, self.inputs, self.outputs, self.layer.id).node

    def inner(self, part: str) -> str:
        """The name of a value between two nodes of this layer."""
        return f"{self.outputs[0]}/{part}"


def nodes_of(site: LayerSite) -> list[Node]:
    """The nodes of a layer, in order."""
    kind = site.layer.type
    if kind in _CONVERTERS:
        return _CONVERTERS[kind](site)
    if kind in _REDUCTIONS:
        return [site.node(_REDUCTIONS[kind], keepdims=int(site.flag("keep_dims")))]
    if kind in SAME:
        return [site.node(SAME[kind], site.inputs[:1] if kind in _FIRST_ONLY else None)]
    return [site.node(kind, domain=DOMAIN)]


def _window(site: LayerSite) -> dict[str, Any]:
    before, after = site.listed("pads_begin") or (), site.listed("pads_end") or ()
    auto = _AUTO_PADS.get(site.layer.data.get("auto_pad", "explicit"), "NOTSET")
    return {
        "strides": site.listed("strides"), "dilations": site.listed("dilations"), "auto_pad": auto,
        "pads": (*before, *after) if before and auto == "NOTSET" else None,
    }  # fmt: skip


def _convolution(site: LayerSite) -> list[Node]:
    return [site.node("Conv", site.inputs[:2], group=1, **_window(site))]


def _grouped(site: LayerSite) -> list[Node]:
    return _in_groups(site, "Conv", _window(site))


def _in_groups(site: LayerSite, kind: str, window: dict[str, Any]) -> list[Node]:
    """Weights are [groups, out, in, …] here and [groups × out, in, …] in ONNX; transposed, in stands before out."""
    groups, first, *rest = site.dims(1)
    if groups is None or first is None or None in rest:
        return [site.node(site.layer.type, domain=DOMAIN)]
    flat = site.inner("weights")
    shape = site.store((groups * first, *(size for size in rest if size is not None)))
    turn = site.node("Reshape", (site.inputs[1], shape), (flat,), part="weights")
    return [turn, site.node(kind, (site.inputs[0], flat), group=groups, **window)]


def _transposed(site: LayerSite) -> list[Node]:
    window = {**_window(site), "output_padding": site.listed("output_padding")}
    asked = site.numbers(2) if len(site.inputs) > 2 else None
    if asked is not None:
        window["output_shape"] = asked
    if site.layer.type == "ConvolutionBackpropData":
        return [site.node("ConvTranspose", site.inputs[:2], group=1, **window)]
    return _in_groups(site, "ConvTranspose", window)


def _pool(site: LayerSite) -> list[Node]:
    kind = "MaxPool" if site.layer.type == "MaxPool" else "AveragePool"
    ceil = int(site.layer.data.get("rounding_type", "floor").startswith("ceil"))
    return [site.node(kind, kernel_shape=site.listed("kernel"), ceil_mode=ceil, **_window(site))]


def _adaptive_pool(site: LayerSite) -> list[Node]:
    space = site.layer.outputs[0].dims[2:] if site.layer.outputs else ()
    if space and all(size == 1 for size in space):
        return [site.node("GlobalAveragePool", site.inputs[:1])]
    return [site.node(site.layer.type, domain=DOMAIN)]


def _with_axis_input(op_type: str, place: int) -> Callable[[LayerSite], list[Node]]:
    """A layer whose axis is an input, and an attribute in ONNX."""

    def convert(site: LayerSite) -> list[Node]:
        axis = site.numbers(place)
        if axis is None or len(axis) != 1 or site.whole("batch_dims"):
            return [site.node(site.layer.type, domain=DOMAIN)]
        rest = [name for index, name in enumerate(site.inputs) if index != place]
        return [site.node(op_type, rest, axis=axis[0])]

    return convert


def _variadic_split(site: LayerSite) -> list[Node]:
    """Lengths may hold one −1, which is what the others leave: the layer's own outputs say how much."""
    axis, lengths = site.numbers(1), site.numbers(2)
    if axis is None or len(axis) != 1 or lengths is None:
        return _with_axis_input("Split", 1)(site)
    if min(lengths, default=0) >= 0:
        return [site.node("Split", (site.inputs[0], site.inputs[2]), axis=axis[0])]
    sizes = [port.dims[axis[0]] for port in site.layer.outputs if -len(port.dims) <= axis[0] < len(port.dims)]
    whole = [size for size in sizes if size is not None]
    if len(whole) != len(lengths):
        return [site.node(site.layer.type, domain=DOMAIN)]
    return [site.node("Split", (site.inputs[0], site.store(whole)), axis=axis[0])]


def _transpose(site: LayerSite) -> list[Node]:
    order = site.numbers(1)
    return [site.node("Transpose", site.inputs[:1], perm=order or None)]


def _reshape(site: LayerSite) -> list[Node]:
    return [site.node("Reshape", allowzero=int(not site.flag("special_zero")))]


def _strided_slice(site: LayerSite) -> list[Node]:
    """A slice, and then the axes that are given as a single index go. Masks say which numbers count."""
    begin, end = site.numbers(1), site.numbers(2)
    new, ellipsis = site.listed("new_axis_mask") or (), site.listed("ellipsis_mask") or ()
    if begin is None or end is None or any(new) or any(ellipsis) or len(begin) != len(end):
        return [site.node(site.layer.type, domain=DOMAIN)]
    strides = site.numbers(3) or (1,) * len(begin)
    keep_begin, keep_end = (site.listed(key) or () for key in ("begin_mask", "end_mask"))
    shrunk = [axis for axis, one in enumerate(site.listed("shrink_axis_mask") or ()) if one]
    starts, ends = list(begin), list(end)
    for axis, step in enumerate(strides):
        if axis < len(keep_begin) and keep_begin[axis] and axis not in shrunk:
            starts[axis] = 0 if step > 0 else (1 << 62)
        if axis in shrunk:
            ends[axis] = starts[axis] + 1 if starts[axis] != -1 else (1 << 62)
        elif axis < len(keep_end) and keep_end[axis]:
            ends[axis] = (1 << 62) if step > 0 else -(1 << 62)
    lists = [site.store(numbers) for numbers in (starts, ends, tuple(range(len(starts))), strides)]
    if not shrunk:
        return [site.node("Slice", (site.inputs[0], *lists))]
    cut = site.inner("slice")
    slice_node = site.node("Slice", (site.inputs[0], *lists), (cut,))
    return [slice_node, site.node("Squeeze", (cut, site.store(shrunk)), part="shrink")]


def _slice(site: LayerSite) -> list[Node]:
    """IR's order is start, stop, step, axes; ONNX's has the axes before the step."""
    data, start, stop, step, *axes = site.inputs
    return [site.node("Slice", (data, start, stop, *(axes or ("",)), step))]


def _pad(site: LayerSite) -> list[Node]:
    before, after = site.numbers(1), site.numbers(2)
    if before is None or after is None:
        return [site.node(site.layer.type, domain=DOMAIN)]
    return [site.node("Pad", (site.inputs[0], site.store((*before, *after))), mode=site.layer.data.get("pad_mode"))]


def _resize(site: LayerSite) -> list[Node]:
    """Version 4 has sizes and scales and says which counts; version 11 has one of them."""
    by_sizes = site.layer.data.get("shape_calculation_mode", "sizes") == "sizes"
    parts = site.inputs[1:]
    split = len(parts) > 1 and len(site.layer.inputs) > 3 and len(site.dims(1)) == 1 and len(site.dims(2)) == 1
    has_both = split and site.layer.inputs[2].precision.startswith("FP")
    chosen = parts[0] if not has_both or by_sizes else parts[1]
    axes = site.numbers(3 if has_both else 2)
    rank = len(site.dims(0))
    mode = _MODES.get(site.layer.data.get("mode", "nearest"), "linear")
    fed = (site.inputs[0], "", "", chosen) if by_sizes else (site.inputs[0], "", chosen)
    return [site.node("Resize", fed, mode=mode, axes=tuple(axis % max(1, rank) for axis in axes) if axes else None)]


def _recurrent(op_type: str, states: int) -> Callable[[LayerSite], list[Node]]:
    """X, states, lengths, W, R, B here; X, W, R, B, lengths, states in ONNX, and a batch that comes first."""

    def convert(site: LayerSite) -> list[Node]:
        x, rest = site.inputs[0], site.inputs[1:]
        if len(rest) < states + 4:
            return [site.node(site.layer.type, domain=DOMAIN)]
        given, lengths, weights = rest[:states], rest[states], rest[states + 1 : states + 4]
        direction = site.layer.data.get("direction", "forward")
        hidden = site.whole("hidden_size")
        every = site.inner("every")  # [batch, steps, directions, hidden], and the directions come earlier here
        node = site.node(
            op_type, (x, *weights, lengths, *given), (every, *site.outputs[1:]), layout=1, hidden_size=hidden or None,
            direction=direction,
        )  # fmt: skip
        return [node, site.node("Transpose", (every,), site.outputs[:1], part="order", perm=(0, 2, 1, 3))]

    return convert


def _fake_quantize(site: LayerSite) -> list[Node]:
    """Numbers of 8 bits between two layers: engines that compute in them quantise here and go on."""
    narrow = site.inner("quantised")
    scale = site.inputs[1]
    if site.whole("levels", 256) > 256:
        return [site.node("Identity", site.inputs[:1])]
    return [
        site.node("QuantizeLinear", (site.inputs[0], scale), (narrow,)),
        site.node("DequantizeLinear", (narrow, scale), part="dequantise"),
    ]


def _clamp(site: LayerSite) -> list[Node]:
    low, high = (_number(site.layer.data.get(key, "")) for key in ("min", "max"))
    return [site.node("Clip", min=low, max=high)]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _attributes(op_type: str, **keys: str) -> Callable[[LayerSite], list[Node]]:
    """The same inputs, and whole numbers that ONNX has under other names."""

    def convert(site: LayerSite) -> list[Node]:
        numbers: dict[str, Any] = {ours: site.whole(theirs) for ours, theirs in keys.items()}
        return [site.node(op_type, **numbers)]

    return convert


_CONVERTERS: dict[str, Callable[[LayerSite], list[Node]]] = {
    "Convolution": _convolution,
    "GroupConvolution": _grouped,
    "ConvolutionBackpropData": _transposed,
    "GroupConvolutionBackpropData": _transposed,
    "MaxPool": _pool,
    "AvgPool": _pool,
    "AdaptiveAvgPool": _adaptive_pool,
    "MatMul": lambda s: [s.node("MatMul", transA=int(s.flag("transpose_a")), transB=int(s.flag("transpose_b")))],
    "Gather": _with_axis_input("Gather", 2),
    "GatherElements": _attributes("GatherElements", axis="axis"),
    "GatherND": _attributes("GatherND", batch_dims="batch_dims"),
    "Split": _with_axis_input("Split", 1),
    "VariadicSplit": _variadic_split,
    "Concat": _attributes("Concat", axis="axis"),
    "SoftMax": _attributes("Softmax", axis="axis"),
    "Softmax": _attributes("Softmax", axis="axis"),
    "LogSoftmax": _attributes("LogSoftmax", axis="axis"),
    "TopK": _attributes("TopK", axis="axis"),
    "DepthToSpace": _attributes("DepthToSpace", blocksize="block_size"),
    "SpaceToDepth": _attributes("SpaceToDepth", blocksize="block_size"),
    "Einsum": lambda site: [site.node("Einsum", equation=site.layer.data.get("equation", ""))],
    "Gelu": lambda s: [
        s.node("Gelu", approximate="tanh" if s.layer.data.get("approximation_mode") == "TANH" else "none")
    ],
    "Clamp": _clamp,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "StridedSlice": _strided_slice,
    "Slice": _slice,
    "Pad": _pad,
    "Interpolate": _resize,
    "LSTMSequence": _recurrent("LSTM", 2),
    "GRUSequence": _recurrent("GRU", 1),
    "RNNSequence": _recurrent("RNN", 1),
    "FakeQuantize": _fake_quantize,
}

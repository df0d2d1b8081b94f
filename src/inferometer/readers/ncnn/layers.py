"""One layer of ncnn as nodes in ONNX's terms, with ncnn's missing batch as a first axis of one.

Numbers of parameters and what they mean: ncnn's docs/developer-guide/operators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from inferometer.readers.ncnn.param import NcnnLayer, sizes_of
from inferometer.readers.onnx.elements import ELEMENTS, element_bytes
from inferometer.readers.onnx.messages import External, Node, TensorDef
from inferometer.readers.onnx.writing import NodeWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DOMAIN = "ncnn"  # of layers that have no counterpart in ONNX: they are named and not counted
SAME = {
    "ReLU": "Relu", "Sigmoid": "Sigmoid", "TanH": "Tanh", "HardSwish": "HardSwish", "HardSigmoid": "HardSigmoid",
    "Swish": "Swish", "GELU": "Gelu", "Mish": "Mish", "ELU": "Elu", "SELU": "Selu", "Exp": "Exp", "Log": "Log",
    "AbsVal": "Abs", "Erf": "Erf", "Clip": "Clip", "Dropout": "Identity", "Noop": "Identity", "Softplus": "Softplus",
    "MatMul": "MatMul",
}  # fmt: skip
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Sub", "Div", "Pow", "Atan")
_UNARY = (
    "Abs", "Neg", "Floor", "Ceil", "Mul", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos",
    "Atan", "Reciprocal", "Tanh", "Log", "Round", "Floor",
)  # fmt: skip
_REDUCTIONS = ("ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
_ACTIVATIONS = {1: "Relu", 2: "LeakyRelu", 3: "Clip", 4: "Sigmoid", 5: "Mish", 6: "HardSwish"}
# The axes of CHW that stand at each place, by Permute's order_type.
_ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
_UNSET = -233  # a size that is not given
_SAME_PADS = {-233: "SAME_UPPER", -234: "SAME_LOWER"}


@dataclass(slots=True)
class NcnnSite:
    """A layer where it stands. `stored` collects its weights; `element` is the number of their type in ONNX."""

    layer: NcnnLayer
    number: int
    weights_file: str
    element: int
    stored: dict[str, TensorDef]
    node: Callable[..., Node] = field(init=False)

    def __post_init__(self) -> None:
        self.node = NodeWriter(self.layer.name, self.layer.type, self.layer.bottoms, self.layer.tops, self.number).node

    def weight(self, part: str, dims: tuple[int, ...], *, element: int | None = None) -> str:
        """A stored tensor of the layer. Biases and statistics are f32 whatever the weights are."""
        name, kind = f"{self.layer.name}.{part}", element or self.element
        place = -1 - len(self.stored)
        away = External(location=self.weights_file, length=element_bytes(ELEMENTS[kind].name, prod(dims)))
        self.stored[name] = TensorDef(
            name=name, dims=dims, dtype=ELEMENTS[kind].name, start=place, data_type=kind, external=away
        )
        return name

    def numbers(self, part: str, values: Sequence[float], *, element: int = 7) -> str:
        """A list that ncnn has among its parameters, as the stored tensor that ONNX reads."""
        name = f"{self.layer.name}.{part}"
        self.stored[name] = TensorDef(
            name=name, dims=(len(values),), dtype=ELEMENTS[element].name, start=-1 - len(self.stored),
            data_type=element, loose=tuple(values), loose_count=len(values),
        )  # fmt: skip
        return name

    def activated(self, node: Callable[[Sequence[str]], Node], kind: int) -> list[Node]:
        """The node, and the activation that ncnn runs inside it."""
        if kind not in _ACTIVATIONS:
            return [node(self.layer.tops)]
        between = f"{self.layer.tops[0]}/linear"
        return [node((between,)), self.node(_ACTIVATIONS[kind], (between,), part="activation")]


def nodes_of(site: NcnnSite) -> list[Node]:
    kind = site.layer.type
    if kind in _CONVERTERS:
        return _CONVERTERS[kind](site)
    if kind in SAME:
        return [site.node(SAME[kind])]
    return [site.node(kind, domain=DOMAIN)]


def _pair(layer: NcnnLayer, width: int, height: int, default: int = 0) -> tuple[int, int]:
    """Height before width, as ONNX has it; a height that is not given is the width."""
    across = layer.whole(width, default)
    return layer.whole(height, across), across


def _pads(layer: NcnnLayer, left: int, top: int, right: int, bottom: int) -> tuple[int, int, int, int]:
    at_left = layer.whole(left)
    at_top = layer.whole(top, at_left)
    return at_top, at_left, layer.whole(bottom, at_top), layer.whole(right, at_left)


def _convolution(site: NcnnSite) -> list[Node]:
    layer = site.layer
    out, window, groups = layer.whole(0), _pair(layer, 1, 11, 1), max(1, layer.whole(7, 1))
    turned = layer.type.startswith("Deconvolution")
    inside = max(1, layer.whole(6) // max(1, out * prod(window)))  # channels of a group
    dims = (inside * groups, out // groups, *window) if turned else (out, inside, *window)
    inputs = [layer.bottoms[0], site.weight("weight", dims)]
    if layer.whole(5):
        inputs.append(site.weight("bias", (out,), element=1))
    auto = _SAME_PADS.get(layer.whole(4))
    return site.activated(
        lambda outputs: site.node(
            "ConvTranspose" if turned else "Conv", inputs, outputs, kernel_shape=window,
            strides=_pair(layer, 3, 13, 1), dilations=_pair(layer, 2, 12, 1), group=groups,
            pads=None if auto else _pads(layer, 4, 14, 15, 16), auto_pad=auto,
            output_padding=_pair(layer, 18, 19) if turned else None,
        ),
        layer.whole(9),
    )  # fmt: skip


def _inner_product(site: NcnnSite) -> list[Node]:
    """Of a matrix it multiplies each row; of an image it takes all numbers as one row."""
    layer = site.layer
    out = max(1, layer.whole(0))
    inputs = [layer.bottoms[0], site.weight("weight", (out, max(1, layer.whole(2) // out)))]
    if layer.whole(1):
        inputs.append(site.weight("bias", (out,), element=1))
    flat = f"{layer.name}/flat"
    return [
        site.node("Flatten", inputs[:1], (flat,), part="flat"),
        *site.activated(lambda outputs: site.node("Gemm", (flat, *inputs[1:]), outputs, transB=1), layer.whole(9)),
    ]


def _pooling(site: NcnnSite) -> list[Node]:
    layer = site.layer
    name = "AveragePool" if layer.whole(0) else "MaxPool"
    if layer.whole(4):
        return [site.node(f"Global{name}")]
    if layer.whole(7):
        return [site.node(layer.type, domain=DOMAIN)]
    mode = layer.whole(5)
    return [
        site.node(
            name, kernel_shape=_pair(layer, 1, 11, 1), strides=_pair(layer, 2, 12, 1),
            pads=_pads(layer, 3, 13, 14, 15) if mode in {0, 1} else None,
            auto_pad={2: "SAME_UPPER", 3: "SAME_LOWER"}.get(mode), ceil_mode=int(mode == 0),
        )
    ]  # fmt: skip


def _binary(site: NcnnSite) -> list[Node]:
    layer = site.layer
    name = _BINARY[layer.whole(0)] if 0 <= layer.whole(0) < len(_BINARY) else "Add"
    inputs = layer.bottoms if len(layer.bottoms) > 1 else (*layer.bottoms, site.weight("scalar", (), element=1))
    return [site.node(name, inputs)]


def _unary(site: NcnnSite) -> list[Node]:
    kind = site.layer.whole(0)
    name = _UNARY[kind] if 0 <= kind < len(_UNARY) else "Abs"
    return [site.node(name, site.layer.bottoms * (2 if name == "Mul" else 1))]


def _eltwise(site: NcnnSite) -> list[Node]:
    return [site.node(("Mul", "Add", "Max")[min(2, max(0, site.layer.whole(0)))], site.layer.bottoms[:2])]


def _copies(site: NcnnSite) -> list[Node]:
    return [site.node("Identity", None, (top,), part=str(place)) for place, top in enumerate(site.layer.tops)]


def _axis(value: int) -> int:
    return value + 1 if value >= 0 else value


def _concat(site: NcnnSite) -> list[Node]:
    return [site.node("Concat", axis=_axis(site.layer.whole(0)))]


def _softmax(site: NcnnSite) -> list[Node]:
    return [site.node("Softmax", axis=_axis(site.layer.whole(0)))]


def _reshape(site: NcnnSite) -> list[Node]:
    """The sizes given, the outermost first: c, d, h, w."""
    given = [site.layer.whole(key, _UNSET) for key in (2, 11, 1, 0)]
    sizes = sizes_of(site.layer.texts[6]) if 6 in site.layer.texts else tuple(size for size in given if size != _UNSET)
    if not sizes:
        return [site.node(site.layer.type, domain=DOMAIN)]
    shape = site.numbers("shape", (1, *sizes))
    return [site.node("Reshape", (*site.layer.bottoms, shape))]


def _slice(site: NcnnSite) -> list[Node]:
    sizes, axis = [int(size) for size in site.layer.lists.get(0, ())], _axis(site.layer.whole(1))
    if all(size == _UNSET for size in sizes):
        return [site.node("Split", axis=axis, num_outputs=len(site.layer.tops))]
    if _UNSET in sizes:
        return [site.node(site.layer.type, domain=DOMAIN)]
    return [site.node("Split", (*site.layer.bottoms, site.numbers("split", sizes)), axis=axis)]


def _crop(site: NcnnSite) -> list[Node]:
    """The newer form, with starts, ends and axes; the older one's sizes follow from another blob."""
    lists = [[int(value) for value in site.layer.lists.get(key, ())] for key in (9, 10, 11)]
    starts, ends, axes = lists
    if not starts or not len(starts) == len(ends) == len(axes) or len(site.layer.bottoms) > 1:
        return [site.node(site.layer.type, domain=DOMAIN)]
    ends = [2**31 - 1 if end == _UNSET else end for end in ends]
    parts = [site.numbers(name, values) for name, values in (
        ("starts", starts), ("ends", ends), ("axes", [_axis(axis) for axis in axes])
    )]  # fmt: skip
    return [site.node("Slice", (*site.layer.bottoms, *parts))]


def _constant(site: NcnnSite) -> list[Node]:
    sizes = tuple(size for key in (2, 11, 1, 0) if (size := site.layer.whole(key)) > 0)
    return [site.node("Identity", (site.weight("data", sizes, element=1),))]


def _flatten(site: NcnnSite) -> list[Node]:
    return [site.node("Flatten")]


def _norm(site: NcnnSite) -> list[Node]:
    layer = site.layer
    size, kind = max(1, layer.whole(0)), layer.type
    if kind == "BatchNorm":
        parts = [site.weight(part, (size,), element=1) for part in ("slope", "bias", "mean", "variance")]
        return [site.node("BatchNormalization", (*layer.bottoms, *parts))]
    if kind == "GroupNorm":
        parts = [site.weight(part, (max(1, layer.whole(1)),), element=1) for part in ("slope", "bias")]
        return [site.node("GroupNormalization", (*layer.bottoms, *parts), num_groups=size)]
    names = ("slope", "bias") if layer.whole(2, 1) else ()
    parts = [site.weight(part, (size,), element=1) for part in names]
    if kind == "LayerNorm" and parts:
        return [site.node("LayerNormalization", (*layer.bottoms, *parts))]
    return [site.node(kind, (*layer.bottoms, *parts), domain=DOMAIN)]


def _interp(site: NcnnSite) -> list[Node]:
    layer = site.layer
    mode = {1: "nearest", 2: "linear", 3: "cubic"}.get(layer.whole(0), "nearest")
    scales = (1.0, 1.0, layer.numbers.get(1, 1.0), layer.numbers.get(2, 1.0))
    if layer.whole(3) or layer.whole(4):
        return [site.node(layer.type, domain=DOMAIN)]
    factors = site.numbers("scales", scales, element=1)
    return [site.node("Resize", (layer.bottoms[0], "", factors), mode=mode)]


def _shuffle(site: NcnnSite) -> list[Node]:
    return [site.node("Identity")]


def _gemm(site: NcnnSite) -> list[Node]:
    layer = site.layer
    rows, inner = layer.whole(8), layer.whole(9)
    stored = layer.whole(5) and rows and inner
    if layer.whole(2) or not stored:
        return [site.node("Gemm", transA=layer.whole(2), transB=layer.whole(3))]
    # ONNX's Gemm has no batch, and its MatMul reads a matrix one way: the numbers are as many either way.
    inputs = (layer.bottoms[0], site.weight("B", (inner, rows)))
    if not layer.whole(6):
        return [site.node("MatMul", inputs)]
    product = f"{layer.tops[0]}/product"
    return [
        site.node("MatMul", inputs, (product,)),
        site.node("Add", (product, site.weight("C", (rows,), element=1)), part="bias"),
    ]


def _permute(site: NcnnSite) -> list[Node]:
    kind = site.layer.whole(0)
    if not 0 <= kind < len(_ORDERS):
        return [site.node(site.layer.type, domain=DOMAIN)]
    return [site.node("Transpose", perm=(0, *(axis + 1 for axis in _ORDERS[kind])))]


def _reduction(site: NcnnSite) -> list[Node]:
    layer = site.layer
    name = _REDUCTIONS[layer.whole(0)] if 0 <= layer.whole(0) < len(_REDUCTIONS) else "ReduceSum"
    axes = () if layer.whole(1, 1) else tuple(_axis(int(axis)) for axis in layer.lists.get(3, ()))
    extra = (site.numbers("axes", axes),) if axes else ()
    return [site.node(name, (*layer.bottoms, *extra), keepdims=layer.whole(4))]


def _prelu(site: NcnnSite) -> list[Node]:
    return [
        site.node("PRelu", (*site.layer.bottoms, site.weight("slope", (max(1, site.layer.whole(0)), 1, 1), element=1)))
    ]


def _embed(site: NcnnSite) -> list[Node]:
    table = site.weight("weight", (max(1, site.layer.whole(1)), max(1, site.layer.whole(0))))
    return [site.node("Gather", (table, *site.layer.bottoms))]


def _padding(site: NcnnSite) -> list[Node]:
    top, bottom, left, right = (site.layer.whole(key) for key in range(4))
    if min(top, bottom, left, right) < 0:
        return [site.node(site.layer.type, domain=DOMAIN)]
    pads = site.numbers("pads", (0, 0, top, left, 0, 0, bottom, right))
    return [site.node("Pad", (*site.layer.bottoms, pads))]


_CONVERTERS: Mapping[str, Callable[[NcnnSite], list[Node]]] = {
    **dict.fromkeys(("Convolution", "ConvolutionDepthWise", "Deconvolution", "DeconvolutionDepthWise"), _convolution),
    **dict.fromkeys(("BatchNorm", "LayerNorm", "GroupNorm"), _norm),
    "InnerProduct": _inner_product, "Pooling": _pooling, "BinaryOp": _binary, "UnaryOp": _unary, "Eltwise": _eltwise,
    "Split": _copies, "Concat": _concat, "Softmax": _softmax, "Reshape": _reshape, "Flatten": _flatten,
    "Interp": _interp, "ShuffleChannel": _shuffle, "Gemm": _gemm, "Permute": _permute, "Reduction": _reduction,
    "MemoryData": _constant, "PReLU": _prelu, "Embed": _embed, "Padding": _padding, "Slice": _slice, "Crop": _crop,
}  # fmt: skip

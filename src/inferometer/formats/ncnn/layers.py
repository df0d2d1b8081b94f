"""One layer of ncnn as nodes in ONNX's terms, with ncnn's missing batch as a first axis of one.

Numbers of parameters and what they mean: ncnn's docs/developer-guide/operators.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from inferometer.formats.ncnn.param import NcnnLayer
from inferometer.formats.ncnn.sizes import UNSET, Sizes, permuted_axes, reshaped
from inferometer.formats.onnx.messages import ELEMENTS, External, Node, NodeWriter, TensorDef, element_bytes

DOMAIN = "ncnn"  # of layers that have no counterpart in ONNX: they are named and not counted
SAME = {
    "ReLU": "Relu", "Sigmoid": "Sigmoid", "TanH": "Tanh", "HardSwish": "HardSwish", "HardSigmoid": "HardSigmoid",
    "Swish": "Swish", "GELU": "Gelu", "Mish": "Mish", "ELU": "Elu", "SELU": "Selu", "Exp": "Exp", "Log": "Log",
    "AbsVal": "Abs", "Erf": "Erf", "Clip": "Clip", "Dropout": "Identity", "Noop": "Identity", "Softplus": "Softplus",
}  # fmt: skip
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Sub", "Div", "Pow", "Atan")
_UNARY = (
    "Abs", "Neg", "Floor", "Ceil", "Mul", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos",
    "Atan", "Reciprocal", "Tanh", "Log", "Round", "Floor",
)  # fmt: skip
_REDUCTIONS = ("ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
_ACTIVATIONS = {1: "Relu", 2: "LeakyRelu", 3: "Clip", 4: "Sigmoid", 5: "Mish", 6: "HardSwish"}
_SAME_PADS = {-233: "SAME_UPPER", -234: "SAME_LOWER"}


@dataclass(slots=True)
class NcnnSite:
    """A layer where it stands. `stored` collects its weights; `element` is the number of their type in ONNX."""

    layer: NcnnLayer
    number: int
    weights_file: str
    element: int
    stored: dict[str, TensorDef]
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
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

    def of(self, index: int) -> Sizes:
        """The sizes of a blob that goes in."""
        return self.sizes.get(self.layer.bottoms[index]) if index < len(self.layer.bottoms) else None

    def laid_out(self, sizes: Sizes) -> list[Node]:
        """The numbers that go in, in other sizes; an unknown one is named and not counted."""
        if not sizes or None in sizes or sum(size == -1 for size in sizes) > 1:
            return [self.node(self.layer.type, domain=DOMAIN)]
        shape = self.numbers("shape", (1, *(size for size in sizes if size is not None)))
        return [self.node("Reshape", (self.layer.bottoms[0], shape))]

    def product(self, given: str, inside: int, out: int, made: str, *, part: str = "") -> list[Node]:
        """Rows times a stored matrix, and a bias: what ncnn does in one go. `part` is its name in the layer."""
        prefix = f"{part}." if part else ""
        rows = f"{self.layer.name}/{prefix}rows"
        weight = self.weight(f"{prefix}weight", (inside, out))
        bias = self.weight(f"{prefix}bias", (out,), element=1)
        return [
            self.node("MatMul", (given, weight), (rows,), part=part),
            self.node("Add", (rows, bias), (made,), part=f"{part}-bias" if part else "bias"),
        ]

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
    sizes = site.of(0)
    if sizes is not None and len(sizes) == 2:
        return _rows(site, max(1, layer.whole(2) // out), out)
    inputs = [layer.bottoms[0], site.weight("weight", (out, max(1, layer.whole(2) // out)))]
    if layer.whole(1):
        inputs.append(site.weight("bias", (out,), element=1))
    flat = f"{layer.name}/flat"
    return [
        site.node("Flatten", inputs[:1], (flat,), part="flat"),
        *site.activated(lambda outputs: site.node("Gemm", (flat, *inputs[1:]), outputs, transB=1), layer.whole(9)),
    ]


def _rows(site: NcnnSite, inside: int, out: int) -> list[Node]:
    layer = site.layer
    weight = site.weight("weight", (inside, out))
    if not layer.whole(1):
        return site.activated(lambda outputs: site.node("MatMul", (layer.bottoms[0], weight), outputs), layer.whole(9))
    rows, bias = f"{layer.name}/rows", site.weight("bias", (out,), element=1)
    product = site.node("MatMul", (layer.bottoms[0], weight), (rows,))
    added = site.activated(lambda outputs: site.node("Add", (rows, bias), outputs, part="bias"), layer.whole(9))
    return [product, *added]


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
    if len(layer.bottoms) < 2:
        return [site.node(name, (*layer.bottoms, site.weight("scalar", (), element=1)))]
    given, views = _lined_up(site)
    return [*views, site.node(name, given)]


def _lined_up(site: NcnnSite) -> tuple[tuple[str, ...], list[Node]]:
    """What goes in, with axes of one behind those of the smaller: ncnn lines axes up from the channels on.

    A row whose length is not the number of channels lies along the width, as it would in ONNX.
    """
    names, sizes = list(site.layer.bottoms[:2]), [site.of(index) for index in range(2)]
    views: list[Node] = []
    rank = max(len(of or ()) for of in sizes)
    for index, (small, large) in enumerate((sizes, sizes[::-1])):
        if small is None or large is None or None in small or not 0 < len(small) < rank:
            continue
        if len(small) == 1 and small[0] != large[0]:
            continue
        known = tuple(size for size in small if size is not None)
        shape = site.numbers(f"shape{index}", (1, *known, *[1] * (rank - len(known))))
        seen = f"{site.layer.name}/view{index}"
        views.append(site.node("Reshape", (names[index], shape), (seen,), part=f"view{index}"))
        names[index] = seen
    return tuple(names), views


def _unary(site: NcnnSite) -> list[Node]:
    kind = site.layer.whole(0)
    name = _UNARY[kind] if 0 <= kind < len(_UNARY) else "Abs"
    return [site.node(name, site.layer.bottoms * (2 if name == "Mul" else 1))]


def _eltwise(site: NcnnSite) -> list[Node]:
    return [site.node(("Mul", "Add", "Max")[min(2, max(0, site.layer.whole(0)))], site.layer.bottoms[:2])]


def _copies(site: NcnnSite) -> list[Node]:
    return [site.node("Identity", None, (top,), part=str(index)) for index, top in enumerate(site.layer.tops)]


def _axis(value: int) -> int:
    return value + 1 if value >= 0 else value


def _concat(site: NcnnSite) -> list[Node]:
    return [site.node("Concat", axis=_axis(site.layer.whole(0)))]


def _softmax(site: NcnnSite) -> list[Node]:
    return [site.node("Softmax", axis=_axis(site.layer.whole(0)))]


def _reshape(site: NcnnSite) -> list[Node]:
    return site.laid_out(reshaped(site.layer, [site.of(index) for index in range(len(site.layer.bottoms))]))


def _other_rank(site: NcnnSite) -> list[Node]:
    """Axes of one that are added or taken away."""
    return site.laid_out(site.sizes.get(site.layer.tops[0]) if site.layer.tops else None)


def _slice(site: NcnnSite) -> list[Node]:
    """Parts of the sizes that are given; what they leave is shared out by ncnn's own rounding, known from the blobs."""
    layer, axis = site.layer, _axis(site.layer.whole(1))
    blobs = [site.sizes.get(top) for top in layer.tops]
    parts = [None if not blob else blob[layer.whole(1) % len(blob)] for blob in blobs]
    sizes = [part for part in parts if part is not None] or [int(size) for size in layer.lists.get(0, ())]
    if len(sizes) == len(layer.tops) and UNSET not in sizes:
        return [site.node("Split", (*layer.bottoms, site.numbers("split", sizes)), axis=axis)]
    if all(size == UNSET for size in sizes):
        return [site.node("Split", axis=axis, num_outputs=len(layer.tops))]
    return [site.node(layer.type, domain=DOMAIN)]


def _crop(site: NcnnSite) -> list[Node]:
    """The newer form, with starts, ends and axes; the older one's sizes follow from another blob."""
    lists = [[int(value) for value in site.layer.lists.get(key, ())] for key in (9, 10, 11)]
    starts, ends, axes = lists
    if not starts or not len(starts) == len(ends) == len(axes) or len(site.layer.bottoms) > 1:
        return [site.node(site.layer.type, domain=DOMAIN)]
    ends = [2**31 - 1 if end == UNSET else end for end in ends]
    parts = [site.numbers(name, values) for name, values in (
        ("starts", starts), ("ends", ends), ("axes", [_axis(axis) for axis in axes])
    )]  # fmt: skip
    return [site.node("Slice", (*site.layer.bottoms, *parts))]


def _constant(site: NcnnSite) -> list[Node]:
    sizes = tuple(size for key in (2, 11, 1, 0) if (size := site.layer.whole(key)) > 0)
    return [site.node("Identity", (site.weight("data", (1, *sizes), element=1),))]


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
        return [site.node("GroupNormalization", (*layer.bottoms, *parts))]
    names = () if not layer.whole(2, 1) else ("slope",) if kind == "RMSNorm" else ("slope", "bias")
    parts = [site.weight(part, (size,), element=1) for part in names]
    name = {"LayerNorm": "LayerNormalization", "RMSNorm": "RMSNormalization"}.get(kind)
    if name is not None and parts:
        # over the innermost size, or over all numbers of what a pooling left, which is one row in ncnn
        sizes = site.of(0)
        if sizes is None or sizes != (size, 1, 1):
            return [site.node(name, (*site.layer.bottoms, *parts))]
        flat = f"{site.layer.name}/flat"
        return [
            site.node("Flatten", site.layer.bottoms, (flat,), part="flat"),
            site.node(name, (flat, *parts)),
        ]
    return [site.node(kind, (*layer.bottoms, *parts), domain=DOMAIN)]


def _scale(site: NcnnSite) -> list[Node]:
    """Each of the outermost size times a stored number, and a bias. Numbers that come in as a blob are not counted."""
    layer = site.layer
    if layer.whole(0) == UNSET:
        return [site.node(layer.type, domain=DOMAIN)]
    dims = (max(1, layer.whole(0)), *(1 for _ in (site.of(0) or (0, 0, 0))[1:]))
    scale = site.weight("scale", dims, element=1)
    if not layer.whole(1):
        return [site.node("Mul", (layer.bottoms[0], scale))]
    between, bias = f"{layer.tops[0]}/scaled", site.weight("bias", dims, element=1)
    return [
        site.node("Mul", (layer.bottoms[0], scale), (between,)),
        site.node("Add", (between, bias), part="bias"),
    ]


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
    """A · B + C. B and C are mostly stored; A and B may each be turned round."""
    layer = site.layer
    rows, columns, inner = (layer.whole(key) for key in (7, 8, 9))
    bottoms, nodes, sides = list(layer.bottoms), [], []
    stored = {"A": (rows, inner) if layer.whole(4) else None, "B": (inner, columns) if layer.whole(5) else None}
    for (part, dims), turned in zip(stored.items(), (layer.whole(2), layer.whole(3)), strict=True):
        if dims is not None:
            sides.append(site.weight(part, tuple(max(1, size) for size in dims)))
        elif not bottoms:
            return [site.node(layer.type, domain=DOMAIN)]
        elif turned:
            sides.append(f"{layer.name}/{part}")
            nodes.append(site.node("Transpose", (bottoms.pop(0),), sides[-1:], part=part, perm=(0, 2, 1)))
        else:
            sides.append(bottoms.pop(0))
    kind = layer.whole(10, 4)
    added = bottoms[0] if bottoms else None
    if layer.whole(6) and kind in _ADDED:
        whole = {"1": 1, "M": max(1, rows), "N": max(1, columns)}
        added = site.weight("C", tuple(whole[size] for size in _ADDED[kind]), element=1)
    if added is None:
        return [*nodes, site.node("MatMul", sides)]
    product = f"{layer.name}/product"
    return [*nodes, site.node("MatMul", sides, (product,)), site.node("Add", (product, added), part="bias")]


_ADDED = {0: "1", 1: "M1", 2: "M1", 3: "MN", 4: "N"}  # the sizes of what is added, by constant_broadcast_type_C


def _matmul(site: NcnnSite) -> list[Node]:
    layer = site.layer
    if not layer.whole(0):
        return [site.node("MatMul")]
    rank, turned = len(site.of(1) or (0, 0)) + 1, f"{layer.name}/turned"
    order = (*range(rank - 2), rank - 1, rank - 2)
    return [
        site.node("Transpose", layer.bottoms[1:2], (turned,), part="turned", perm=order),
        site.node("MatMul", (layer.bottoms[0], turned)),
    ]


def _multi_head(site: NcnnSite) -> list[Node]:
    """The products that make queries, keys and values, attention, and the product that puts the heads together."""
    layer, name = site.layer, site.layer.name
    inside, heads = max(1, layer.whole(0)), max(1, layer.whole(1))
    given = max(1, layer.whole(2) // inside)
    count = len(layer.bottoms) - bool(layer.whole(5))  # the last may be a mask
    sources = [layer.bottoms[min(index, max(0, count - 1))] for index in range(3)]
    widths = (given, layer.whole(3, inside), layer.whole(4, inside))
    nodes: list[Node] = []
    for part, source, width in zip("qkv", sources, widths, strict=True):
        nodes += site.product(source, width, inside, f"{name}/{part}.made", part=part)
    made = [f"{name}/{part}.made" for part in "qkv"]
    mask = layer.bottoms[count:]
    nodes.append(site.node("Attention", (*made, *mask), (f"{name}/heads",), q_num_heads=heads, kv_num_heads=heads))
    return [*nodes, *site.product(f"{name}/heads", inside, given, layer.tops[0], part="out")]


def _attention(site: NcnnSite) -> list[Node]:
    """Heads as channels. With a cache of keys and values it is named and not counted."""
    if site.layer.whole(7) or len(site.layer.tops) > 1:
        return [site.node(site.layer.type, domain=DOMAIN)]
    return [site.node("Attention", site.layer.bottoms[: 4 if site.layer.whole(5) else 3])]


def _permute(site: NcnnSite) -> list[Node]:
    sizes = site.of(0)
    axes = permuted_axes(site.layer.whole(0), 3 if sizes is None else len(sizes))
    if axes is None:
        return [site.node(site.layer.type, domain=DOMAIN)]
    return [site.node("Transpose", perm=(0, *(axis + 1 for axis in axes)))]


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
    **dict.fromkeys(("BatchNorm", "LayerNorm", "GroupNorm", "RMSNorm"), _norm),
    **dict.fromkeys(("ExpandDims", "Squeeze"), _other_rank),
    "InnerProduct": _inner_product, "Pooling": _pooling, "BinaryOp": _binary, "UnaryOp": _unary, "Eltwise": _eltwise,
    "Split": _copies, "Concat": _concat, "Softmax": _softmax, "Reshape": _reshape, "Flatten": _flatten,
    "Interp": _interp, "ShuffleChannel": _shuffle, "Gemm": _gemm, "Permute": _permute, "Reduction": _reduction,
    "MatMul": _matmul, "MultiHeadAttention": _multi_head, "SDPA": _attention, "MemoryData": _constant,
    "PReLU": _prelu, "Embed": _embed, "Padding": _padding, "Slice": _slice, "Crop": _crop, "Scale": _scale,
}  # fmt: skip

"""One operator of MNN as nodes in ONNX's terms. An operator without a counterpart is named, and not counted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.formats.flatbuffer import Buffer, FlatTable
from inferometer.formats.onnx.messages import ELEMENTS, External, Node, NodeWriter, TensorDef, element_bytes

# Where things lie in an .mnn file: numbers of fields and of operators.
#
# Source: schema/default/*.fbs of alibaba/MNN. Fields are numbered in the order of their table; a union takes two.

_MOST = 1 << 20  # operators, tensors
_SIZES = 64  # of a shape, a window, a list of axes
_FIRST = """
AbsVal QuantizedAdd ArgMax AsString InstanceNorm BatchToSpaceND Bias BinaryOp Bnll Cast Concat Const Convolution
ConvolutionDepthwise Crop CropAndResize Cubic Deconvolution DeconvolutionDepthwise Dequantize DetectionOutput Dropout
Eltwise ELU Unique Exp ExpandDims Fill Flatten FloorMod Gather GatherV2 Im2Seq InnerProduct Input Interp Log LRN LSTM
MatMul MVN NonMaxSuppression NonMaxSuppressionV2 Normalize Pack Padding Permute Pooling Power PReLU PriorBox Proposal
QuantizedAvgPool QuantizedBiasAdd QuantizedConcat QuantizedDepthwiseConv2D QuantizedLogistic QuantizedMatMul
QuantizedMaxPool QuantizedRelu QuantizedRelu6 QuantizedReshape QuantizedSoftmax QuantizeMaxMin QuantizeV2 Range Rank
ReduceJoin Reduction ReLU ReLU6 RequantizationRange Requantize Reshape Resize RNN ROIPooling Scale Selu Seq2Out Shape
Sigmoid Size Slice SliceTf Softmax SpaceToBatchND SpatialProduct Split Segment Squeeze StridedSlice StringJoin
StringSplit StringToNumber TanH TfQuantizedConv2D Threshold Tile TopKV2 Transpose UnaryOp Unpack Where Moments
RNNSequenceGRU BatchMatMul Unsqueeze CosineSimilarity DepthToSpace SpaceToDepth ReverseSequence Pooling3D Convolution3D
MatrixBandPart GatherND DetectionPostProcess UnravelIndex ScatterNd OneHot BroadcastTo Dilation2D
""".split()  # noqa: SIM905 - a list of 128 names reads better as text
OPERATORS = {
    **dict(enumerate(_FIRST)), 128: "Raster", 129: "ConvertTensor", 130: "ArgMin", 257: "Select", 267: "BatchNorm",
    512: "Extra", 513: "ConvInt8", 514: "Int8ToFloat", 515: "DepthwiseConvInt8", 516: "PoolInt8", 517: "FloatToInt8",
    518: "EltwiseInt8", 600: "While", 601: "If", 603: "LayerNorm", 604: "GridSample",
}  # fmt: skip


@frozen
class MnnOp:
    """One operator: its names of tensors, and the table of its parameters, which depends on its type."""

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    main: FlatTable | None

    def whole(self, field: int, default: int = 0, *, letter: str = "i") -> int:
        return default if self.main is None else int(self.main.number(field, letter, default))

    def wholes(self, field: int, what: str) -> tuple[int, ...]:
        return () if self.main is None else self.main.numbers(field, "i", what, most=_SIZES)


@frozen
class MnnNet:
    ops: tuple[MnnOp, ...]
    outputs: tuple[str, ...]


def parse_net(data: Any, path: Path) -> MnnNet:
    buffer = Buffer(data, path, kind="MNN")
    root = buffer.root()
    names = root.texts(7, "tensor", most=_MOST)
    ops = tuple(_op(table, names) for table in root.tables(3, "operator", most=_MOST))
    if not ops or not names:
        raise buffer.fault("it has no operators, or no tensors")
    return MnnNet(ops=ops, outputs=root.texts(4, "output", most=_MOST))


def _op(table: FlatTable, names: tuple[str, ...]) -> MnnOp:
    inputs, outputs = (
        tuple(_tensor(names, index, table) for index in table.numbers(field, "i", what, most=_MOST))
        for field, what in ((0, "inputs"), (4, "outputs"))
    )
    number = table.number(5, "i")
    kind = OPERATORS.get(number, f"operator {number}")
    name = table.text(3, "the name of an operator") or (outputs[0] if outputs else kind)
    main = table.table(2, f"the parameters of {name}") if table.number(1, "B") else None
    return MnnOp(name=name, type=kind, inputs=inputs, outputs=outputs, main=main)


def _tensor(names: tuple[str, ...], index: int, table: FlatTable) -> str:
    if not 0 <= index < len(names):
        raise table.fault(f"speaks of tensor {index}; there are {len(names)}")
    return names[index] or f"tensor {index}"


DOMAIN = "mnn"
_SAME = {
    "AbsVal": "Abs", "Dropout": "Identity", "ELU": "Elu", "Exp": "Exp", "Log": "Log", "Selu": "Selu", "Shape": "Shape",
    "Sigmoid": "Sigmoid", "Size": "Size", "TanH": "Tanh", "ConvertTensor": "Identity", "BroadcastTo": "Expand",
    "Tile": "Tile", "Where": "NonZero", "Select": "Where", "Int8ToFloat": "Identity", "FloatToInt8": "Identity",
}  # fmt: skip
_BINARY = {
    0: "Add", 1: "Sub", 2: "Mul", 3: "Div", 6: "Pow", 7: "Div", 8: "Min", 9: "Max", 10: "Greater",
    11: "GreaterOrEqual", 12: "Less", 13: "Div", 14: "Sub", 15: "Equal", 16: "LessOrEqual", 17: "Mod", 19: "Mod",
}  # fmt: skip
_UNARY = (
    "Abs", "Neg", "Floor", "Ceil", "Mul", "Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos",
    "Atan", "Reciprocal", "Log", "Softplus", "Acosh", "Sinh", "Asinh", "Atanh", "Sign", "Round", "Cosh", "Erf", "Erf",
    "Erf", "Exp", "Sigmoid", "Tanh", "HardSwish", "Gelu", "Gelu", "Swish",
)  # fmt: skip
_REDUCTIONS = ("ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
_ELTWISE = ("Mul", "Add", "Max", "Sub")
_F32, _I8, _I64, _F16, _I4 = 1, 3, 7, 10, 22  # ONNX's numbers of types
_SMALL = 64  # numbers of a constant that are read, for shapes and axes
_SAME_PADS, _VALID = 2, 1
_FROM, _FROM_ONNX = 7, 1  # the field of a strided slice that says what it was converted from
# A constant's data, by type: the field, the width of an element and how it is unpacked.
_DATA = ((5, 4, "i"), (6, 8, "q"), (7, 4, "f"), (4, 1, "b"), (3, 1, "B"))


@dataclass(slots=True)
class MnnSite:
    """An operator where it stands. `stored` collects weights and constants, `numbers` the values of small ones."""

    op: MnnOp
    number: int
    file: str
    stored: dict[str, TensorDef]
    numbers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    node: Callable[..., Node] = field(init=False)

    def __post_init__(self) -> None:
        self.node = NodeWriter(self.op.name, self.op.type, self.op.inputs, self.op.outputs, self.number).node

    def weight(self, part: str, dims: tuple[int, ...], element: int = _F32, *, apart: bool = False) -> str:
        """A stored tensor; one that lies `apart` is in a file of its own, which may be gone."""
        name = f"{self.op.name}.{part}"
        kind = ELEMENTS[element].name
        self.stored[name] = TensorDef(
            name=name, dims=dims, dtype=kind, start=-1 - len(self.stored), data_type=element,
            external=External(
                location=f"{self.file}.weight" if apart else self.file, length=element_bytes(kind, prod(dims))
            ),
        )  # fmt: skip
        return name

    def listed(self, part: str, values: Sequence[int]) -> str:
        """Numbers that MNN has among its parameters, as the stored tensor that ONNX reads."""
        name = f"{self.op.name}.{part}" if part else self.op.outputs[0]
        self.stored[name] = TensorDef(
            name=name, dims=(len(values),), dtype="i64", start=-1 - len(self.stored), data_type=_I64,
            loose=tuple(values), loose_count=len(values),
        )  # fmt: skip
        return name

    def unknown(self) -> list[Node]:
        return [self.node(self.op.type, domain=DOMAIN)]


def nodes_of(site: MnnSite) -> list[Node]:
    kind = site.op.type
    if kind in _CONVERTERS and site.op.outputs:
        return _CONVERTERS[kind](site)
    if kind in _SAME:
        return [site.node(_SAME[kind])]
    return site.unknown()


def _constant(site: MnnSite) -> list[Node]:
    """A stored tensor under its own name. Small whole numbers are read: they may be shapes."""
    blob, name = site.op.main, site.op.outputs[0]
    if blob is None:
        return []
    dims = blob.numbers(0, "i", "a shape", most=_SMALL)
    place = next(((index, width, letter) for index, width, letter in _DATA if blob.count(index, width, name)), None)
    if place is not None and place[2] in {"i", "q"} and blob.count(place[0], place[1], name) <= _SMALL:
        values = blob.numbers(place[0], place[2], name, most=_SMALL)
        site.numbers[name] = values
        stored = TensorDef(
            name=name, dims=tuple(dims), dtype="i64", start=-1 - len(site.stored), data_type=_I64,
            loose=tuple(values), loose_count=len(values),
        )  # fmt: skip
        site.stored[name] = stored
        return []
    kind = {"i": "i32", "q": "i64", "b": "i8", "B": "u8"}.get(place[2] if place else "f", "f32")
    element = next(number for number, entry in ELEMENTS.items() if entry.name == kind)
    away = External(location=site.file, length=element_bytes(kind, prod(dims)))
    site.stored[name] = TensorDef(
        name=name, dims=tuple(dims), dtype=kind, start=-1 - len(site.stored), data_type=element, external=away
    )
    return []


def _stored_weights(main: FlatTable, what: str) -> tuple[int, int]:
    """How many weights an operator has and in which format; 0 where only its parameters tell."""
    plain = main.count(1, 4, f"the weights of {what}")
    packed = main.table(3, f"the packed weights of {what}")
    if plain or packed is None:
        return plain or _bytes_apart(main, what) // 4, _F32
    return 0, _F16 if packed.number(2, "i") == 3 else _I8


def _bytes_apart(main: FlatTable, what: str) -> int:
    """The bytes of weights that lie in a file of their own: where they begin there, how many, and those of biases."""
    return int((*main.numbers(6, "q", f"the place of the weights of {what}", most=_SMALL), 0, 0)[1])


def _convolution(site: MnnSite) -> list[Node]:
    op = site.op
    common = op.main.table(0, f"the sizes of {op.name}") if op.main else None
    if common is None:
        return site.unknown()
    turned = op.type.startswith("Deconvolution")
    window, out = (common.number(3, "i", 1), common.number(2, "i", 1)), common.number(10, "i")
    groups = max(1, common.number(9, "i", 1))
    if "Depthwise" in op.type:
        groups = max(groups, out)
    inputs = op.inputs if len(op.inputs) > 1 else _own_weights(site, common, window, groups)
    if inputs is None:
        return site.unknown()
    given = {"kernel_shape": window, "group": groups, **_steps(common, op.name)}
    kind = "ConvTranspose" if turned else "Conv"
    after = "Relu" if _set(common, 12) else "Clip" if _set(common, 13) else None
    if after is None:
        return [site.node(kind, inputs, **given)]
    between = f"{op.outputs[0]}/linear"
    return [site.node(kind, inputs, (between,), **given), site.node(after, (between,), part="activation")]


def _own_weights(
    site: MnnSite, common: FlatTable, window: tuple[int, int], groups: int
) -> tuple[str, ...] | None:  # fmt: skip
    """What is convolved, and the weights that lie in the operator itself; None where their sizes are not told."""
    op, out = site.op, common.number(10, "i")
    if op.main is None:
        return None
    count, element = _stored_weights(op.main, op.name)
    inside = count // max(1, out * prod(window)) or common.number(11, "i") // groups or int(groups == out)
    if out < 1 or inside < 1:
        return None
    element = _packed(op.main, out * inside * prod(window), element, op.name)
    turned = op.type.startswith("Deconvolution")
    dims = (inside * groups, out // groups, *window) if turned else (out, inside, *window)
    biased = op.main.count(2, 4, f"the biases of {op.name}")
    packed = op.main.table(3, f"the packed weights of {op.name}")
    apart = not op.main.count(1, 4, op.name) and not (packed and packed.count(0, 1, op.name))
    weight = site.weight("weight", dims, element, apart=apart)
    if not biased and not apart:
        return op.inputs[0], weight
    return op.inputs[0], weight, site.weight("bias", (out,), apart=not biased)


def _steps(common: FlatTable, what: str) -> dict[str, Any]:
    """Strides, dilations and pads; a file that was not converted for fixed pads has `SAME` or `VALID` instead."""
    mode = common.number(8, "b")
    pads = common.numbers(14, "i", f"the pads of {what}", most=8) or (common.number(1, "i"), common.number(0, "i")) * 2
    return {
        "strides": (common.number(5, "i", 1), common.number(4, "i", 1)),
        "dilations": (common.number(7, "i", 1), common.number(6, "i", 1)),
        "pads": None if mode == _SAME_PADS else (0, 0, 0, 0) if mode == _VALID else tuple(pads),
        "auto_pad": "SAME_UPPER" if mode == _SAME_PADS else None,
    }


def _set(table: FlatTable, index: int) -> bool:
    return bool(table.number(index, "?", default=False))


def _packed(main: FlatTable, count: int, element: int, what: str) -> int:
    """Weights in eight bits or in four, by the bytes that they take."""
    packed = main.table(3, f"the packed weights of {what}")
    taken = packed.count(0, 1, f"the packed weights of {what}") if packed is not None else 0
    taken = taken or _bytes_apart(main, what)
    return _I4 if element == _I8 and 0 < taken < 0.75 * count else element


def _pooling(site: MnnSite) -> list[Node]:
    op = site.op
    if op.main is None:
        return site.unknown()
    name = "AveragePool" if op.whole(7, letter="b") else "MaxPool"
    if op.whole(2, letter="?"):
        return [site.node(f"Global{name}")]
    mode, pads = op.whole(8, letter="b"), op.wholes(11, "the pads")
    return [
        site.node(
            name, kernel_shape=(max(1, op.whole(4)), max(1, op.whole(3))),
            strides=(max(1, op.whole(6)), max(1, op.whole(5))),
            pads={_SAME_PADS: None, _VALID: (0, 0, 0, 0)}.get(mode, pads or (op.whole(1), op.whole(0)) * 2),
            auto_pad="SAME_UPPER" if mode == _SAME_PADS else None, ceil_mode=op.whole(10, 1, letter="?"),
        )
    ]  # fmt: skip


def _pooling_3d(site: MnnSite) -> list[Node]:
    if not site.op.whole(5, letter="?"):
        return site.unknown()
    return [site.node("GlobalAveragePool" if site.op.whole(3, letter="b") else "GlobalMaxPool")]


def _binary(site: MnnSite) -> list[Node]:
    kind = _BINARY.get(site.op.whole(0))
    return site.unknown() if kind is None else [site.node(kind)]


def _unary(site: MnnSite) -> list[Node]:
    kind = site.op.whole(0)
    if not 0 <= kind < len(_UNARY):
        return site.unknown()
    return [site.node(_UNARY[kind], site.op.inputs * (2 if _UNARY[kind] == "Mul" else 1))]


def _eltwise(site: MnnSite) -> list[Node]:
    kind = site.op.whole(0, letter="b")
    return [site.node(_ELTWISE[kind] if 0 <= kind < len(_ELTWISE) else "Add", site.op.inputs[:2])]


def _along(op_type: str) -> Callable[[MnnSite], list[Node]]:
    return lambda site: [site.node(op_type, axis=site.op.whole(0))]


def _relu(site: MnnSite) -> list[Node]:
    return [site.node("LeakyRelu" if site.op.main and site.op.main.number(0, "f", 0.0) else "Relu")]


def _prelu(site: MnnSite) -> list[Node]:
    return [site.node("PRelu", (*site.op.inputs, site.weight("slope", (max(1, site.op.whole(0)), 1, 1))))]


def _scale(site: MnnSite) -> list[Node]:
    """A batch norm that was folded: a factor and an offset for each channel."""
    op, channels = site.op, max(1, site.op.whole(0))
    between = f"{op.outputs[0]}/scaled"
    factor, offset = (site.weight(part, (channels, 1, 1)) for part in ("scale", "bias"))
    return [
        site.node("Mul", (op.inputs[0], factor), (between,)),
        site.node("Add", (between, offset), part="bias"),
    ]


def _reshape(site: MnnSite) -> list[Node]:
    op = site.op
    if len(op.inputs) > 1:
        return [site.node("Reshape", op.inputs[:2])]
    dims = op.wholes(0, "the sizes")
    return [site.node("Reshape", (op.inputs[0], site.listed("shape", dims)))] if dims else site.unknown()


def _split(site: MnnSite) -> list[Node]:
    """Equal parts, or the sizes that a file from ONNX lists."""
    op, points = site.op, site.op.wholes(1, "the sizes")
    if len(points) == len(op.outputs) > 1:
        return [site.node("Split", (op.inputs[0], site.listed("split", points)), axis=op.whole(0))]
    return [site.node("Split", op.inputs[:1], axis=op.whole(0), num_outputs=len(op.outputs))]


def _permute(site: MnnSite) -> list[Node]:
    order = site.op.wholes(0, "the order") or site.numbers.get(site.op.inputs[-1], ())
    return [site.node("Transpose", site.op.inputs[:1], perm=tuple(order))] if order else site.unknown()


def _axes(op_type: str) -> Callable[[MnnSite], list[Node]]:
    def convert(site: MnnSite) -> list[Node]:
        axes = site.op.wholes(0, "the axes")
        return [site.node(op_type, (site.op.inputs[0], site.listed("axes", axes)))] if axes else site.unknown()

    return convert


def _rank(site: MnnSite) -> list[Node]:
    between = f"{site.op.outputs[0]}/shape"
    return [site.node("Shape", None, (between,), part="shape"), site.node("Size", (between,))]


def _slice_tf(site: MnnSite) -> list[Node]:
    """A beginning and a size each: ONNX wants the ends. A size of −1 means all that is left."""
    if len(site.op.inputs) < 3:
        return site.unknown()
    data, begin, size = site.op.inputs[:3]
    starts, sizes = site.numbers.get(begin), site.numbers.get(size)
    if starts is not None and sizes is not None and len(starts) == len(sizes):
        ends = [2**31 - 1 if each < 0 else start + each for start, each in zip(starts, sizes, strict=True)]
        return [site.node("Slice", (data, begin, site.listed("ends", ends)))]
    sums = f"{site.op.outputs[0]}/ends"
    return [site.node("Add", (begin, size), (sums,), part="ends"), site.node("Slice", (data, begin, sums))]


def _strided_slice(site: MnnSite) -> list[Node]:
    """A file from ONNX has ONNX's own inputs; TensorFlow's masks have no such form."""
    return [site.node("Slice")] if site.op.whole(_FROM) == _FROM_ONNX else site.unknown()


def _reduction(site: MnnSite) -> list[Node]:
    op, kind = site.op, site.op.whole(0, letter="b")
    name = _REDUCTIONS[kind] if 0 <= kind < len(_REDUCTIONS) else "ReduceSum"
    axes = op.wholes(1, "the axes")
    extra = (site.listed("axes", axes),) if axes else op.inputs[1:2]
    return [site.node(name, (op.inputs[0], *extra), keepdims=op.whole(3, letter="?"))]


def _product(first: int) -> Callable[[MnnSite], list[Node]]:
    """A product of two matrices. The two fields that say which of them is transposed stand one after the other."""

    def convert(site: MnnSite) -> list[Node]:
        left, right = (site.op.whole(first + place, letter="?") for place in (0, 1))
        if len(site.op.inputs) < 2 or left:
            return site.unknown()
        if not right:
            return [site.node("MatMul", site.op.inputs[:2])]
        stored = site.stored.get(site.op.inputs[1])
        if stored is None or len(stored.dims) != 2:
            return site.unknown()
        return [site.node("Gemm", site.op.inputs, transB=1)]

    return convert


def _layer_norm(site: MnnSite) -> list[Node]:
    op = site.op
    size = 0 if op.main is None else op.main.count(2, 4, f"the factors of {op.name}")
    if not size:
        return site.unknown()
    parts = [site.weight(part, (size,)) for part in ("gamma", "beta")]
    return [site.node("LayerNormalization", (op.inputs[0], *parts))]


def _gather(site: MnnSite) -> list[Node]:
    axis = site.numbers.get(site.op.inputs[2], (0,)) if len(site.op.inputs) > 2 else (0,)
    return [site.node("Gather", site.op.inputs[:2], axis=axis[0] if axis else 0)]


def _cast(site: MnnSite) -> list[Node]:
    return [site.node("Cast", to={1: 1, 3: 6, 9: 7, 4: 2, 6: 3}.get(site.op.whole(1), 1))]


_CONVERTERS: Mapping[str, Callable[[MnnSite], list[Node]]] = {
    **dict.fromkeys(
        ("Convolution", "ConvolutionDepthwise", "Deconvolution", "DeconvolutionDepthwise", "ConvInt8",
         "DepthwiseConvInt8"), _convolution,
    ),
    **dict.fromkeys(("Pooling", "PoolInt8"), _pooling),
    **dict.fromkeys(("Permute", "Transpose"), _permute),
    **dict.fromkeys(("Gather", "GatherV2"), _gather),
    "Const": _constant, "Pooling3D": _pooling_3d, "BinaryOp": _binary, "UnaryOp": _unary, "Eltwise": _eltwise,
    "Concat": _along("Concat"), "Softmax": _along("Softmax"), "Flatten": _along("Flatten"), "ReLU": _relu,
    "ReLU6": lambda site: [site.node("Clip")], "PReLU": _prelu, "Scale": _scale, "Reshape": _reshape, "Slice": _split,
    "Squeeze": _axes("Squeeze"), "Unsqueeze": _axes("Unsqueeze"), "Rank": _rank, "SliceTf": _slice_tf,
    "StridedSlice": _strided_slice,
    "Reduction": _reduction, "MatMul": _product(1), "BatchMatMul": _product(0), "LayerNorm": _layer_norm, "Cast": _cast,
}  # fmt: skip

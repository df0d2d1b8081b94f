"""Where things lie in an .mnn file: numbers of fields and of operators.

Source: schema/default/*.fbs of alibaba/MNN. Fields are numbered in the order of their table; a union takes two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.frozen import frozen
from inferometer.formats.flatbuffer import Buffer, FlatTable

if TYPE_CHECKING:
    from pathlib import Path

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

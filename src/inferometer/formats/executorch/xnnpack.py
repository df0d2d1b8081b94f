"""What was lowered to XNNPACK: a flatbuffer of its own within the program, with nodes and the shapes of their values.

Activations are [batch, height, width, channels]; filters [out, height, width, in / groups], depthwise ones
[1, height, width, out]; a dense layer's are [out, in]. A node may limit its results: that is its activation.

Source: backends/xnnpack/serialization/runtime_schema.fbs of pytorch/executorch, and the header before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf
from typing import TYPE_CHECKING, Any

from inferometer.formats.flatbuffer import Buffer, FlatTable

if TYPE_CHECKING:
    from pathlib import Path


BACKEND = "XnnpackBackend"
NONE = 0xFFFFFFFF  # the number of a value that is left out
_MARK = b"XH00"
_MOST = 1 << 20
_AXES = 16
_QUANTISED, _PER_CHANNEL, _PER_GROUP = 2, 1, 4
TYPES = {
    1: "f32", 2: "f16", 3: "i8", 4: "u8", 5: "i32", 6: "i8", 7: "i32", 8: "i4", 9: "i8", 10: "i4", 11: "i8", 12: "i32",
    13: "f32", 14: "bf16",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """A row: XNNPACK's node, what it is in the graph's vocabulary, and in which fields its values stand."""

    name: str
    kind: str
    function: str | None = None
    inputs: tuple[int, ...] = (0,)
    outputs: tuple[int, ...] = (1,)


def _rows(text: str, kind: str, **places: Any) -> dict[str, NodeKind]:
    pairs = (entry.partition(":") for entry in text.split())
    return {name: NodeKind(name=f"XNN{name}", kind=kind, function=does, **places) for name, _, does in pairs}


_TWO: dict[str, Any] = {"inputs": (0, 1), "outputs": (2,)}
_WINDOW: dict[str, Any] = {"inputs": (10,), "outputs": (11,)}
_CONVOLVED: dict[str, Any] = {"inputs": (15, 16, 17), "outputs": (18,)}
_KINDS = {
    **_rows("Add:add Div:divide Minimum:minimum Maximum:maximum Multiply:multiply Subtract:subtract",
            "elementwise", **_TWO),
    **_rows("PReLU:prelu", "activation", **_TWO),
    **_rows("BatchMatrixMultiply:matmul", "matmul", **_TWO),
    **_rows("Floor:floor SquareRoot:sqrt Ceiling:ceil Negate:negate Square:square Abs:abs Log:log Exp:exp Sin:sin "
            "Cos:cos ReciprocalSquareRoot:rsqrt", "elementwise"),
    **_rows("Sigmoid:sigmoid Hardswish:hardswish Gelu:gelu Tanh:tanh Clamp:clip", "activation"),
    **_rows("LeakyReLU:leaky_relu ELU:elu", "activation", inputs=(1,), outputs=(2,)),
    **_rows("Softmax:softmax", "softmax"),
    **_rows("GlobalAvgPooling2d:mean", "reduce"),
    **_rows("Convert:convert", "cast"),
    **_rows("Copy:copy", "copy"),
    **_rows("FullyConnected:linear", "linear", inputs=(0, 1, 2), outputs=(3,)),
    **_rows("Conv2d:conv DepthwiseConv2d:conv ConvTranspose2d:conv", "convolution", **_CONVOLVED),
    **_rows("AvgPooling2d:average MaxPooling2d:max", "pool", **_WINDOW),
    **_rows("ArgMaxPooling2d:max", "pool", inputs=(6,), outputs=(7, 8)),
    **_rows("StaticTranspose:transpose", "copy", inputs=(2,), outputs=(3,)),
    **_rows("StaticReshape:reshape", "view", inputs=(2,), outputs=(3,)),
    **_rows("StaticSlice:slice StaticConstantPad:pad", "copy", inputs=(3,), outputs=(4,)),
    **_rows("StaticResizeBilinear2D:bilinear", "resize", inputs=(2,), outputs=(3,)),
    **_rows("Concatenate2:concat", "copy", inputs=(1, 2), outputs=(5,)),
    **_rows("Concatenate3:concat", "copy", inputs=(1, 2, 3), outputs=(5,)),
    **_rows("Concatenate4:concat", "copy", inputs=(1, 2, 3, 4), outputs=(5,)),
    **_rows("Concatenate5:concat", "copy", inputs=(1, 2, 3, 4, 7), outputs=(5,)),
    **_rows("ScaledDotProductAttention:attention", "custom", inputs=(0, 1, 2, 3, 4), outputs=(5,)),
}  # fmt: skip
# In the order of the union that says what a node is; its numbers begin with 1.
_ORDER = """
Add FullyConnected Softmax Sigmoid StaticTranspose Clamp Conv2d Div StaticResizeBilinear2D StaticConstantPad
AvgPooling2d Minimum DepthwiseConv2d MaxPooling2d Multiply Subtract Floor Convert GlobalAvgPooling2d StaticReshape
ArgMaxPooling2d SquareRoot Ceiling Hardswish LeakyReLU Maximum Negate Square ELU Abs PReLU Concatenate2 Concatenate3
Concatenate4 StaticSlice ScaledDotProductAttention BatchMatrixMultiply Concatenate5 ConvTranspose2d
ReciprocalSquareRoot Log Gelu Tanh Exp Sin Copy Cos
""".split()  # noqa: SIM905 - a list of 47 names reads better as text
KINDS = {number: _KINDS[name] for number, name in enumerate(_ORDER, 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class XnnValue:
    """`external` is the number of the delegate call's argument; `stored_bytes` counts scales too; None flows."""

    shape: tuple[int, ...]
    dtype: str
    external: int | None = None
    stored_bytes: int | None = None
    quantised: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class XnnNode:
    kind: NodeKind
    table: FlatTable
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    limits: tuple[float, float] | None = None

    def whole(self, field: int) -> int:
        return int(self.table.number(field, "I"))

    @property
    def activation(self) -> str | None:
        """What limiting the results is called."""
        if self.limits is None or all(isinf(limit) for limit in self.limits):
            return None
        return {(0.0, inf): "relu", (0.0, 6.0): "relu6", (-1.0, 1.0): "hardtanh"}.get(self.limits, "clip")


@dataclass(frozen=True, slots=True, kw_only=True)
class XnnGraph:
    values: dict[int, XnnValue]
    nodes: tuple[XnnNode, ...]


def parse_xnnpack(data: bytes, path: Path) -> XnnGraph | None:
    """The graph of a delegate's data; None where they are not in this form."""
    if data[4:8] != _MARK:
        return None
    whole = Buffer(data, path, kind="ExecuTorch")
    start, size = (whole.number("I", at, "XNNPACK's header") for at in (10, 14))
    if start + size > len(data):
        raise whole.fault(f"XNNPACK's nodes end at byte {start + size:,} of {len(data):,}")
    buffer = Buffer(data[start : start + size], path, kind="ExecuTorch")
    root = buffer.root()
    lengths = [part.number(1, "Q") for part in root.tables(8, "constant", most=_MOST)] or [
        part.count(0, 1, "a constant") for part in root.tables(6, "constant", most=_MOST)
    ]
    values = dict(_value(entry, lengths) for entry in root.tables(2, "value", most=_MOST))
    nodes = tuple(_node(entry, values) for entry in root.tables(1, "node", most=_MOST))
    return XnnGraph(values=values, nodes=nodes)


def _value(entry: FlatTable, lengths: list[int]) -> tuple[int, XnnValue]:
    quantised = entry.number(0, "B") == _QUANTISED
    table = outer = entry.table(1, "a value")
    if outer is not None and quantised:
        table = outer.table(0, "a quantised value")
    if table is None or outer is None:
        raise entry.fault("is empty")
    kind, place, external = table.number(0, "h"), table.number(3, "I"), table.number(4, "I")
    if kind not in TYPES or place >= max(1, len(lengths)):
        raise table.fault(f"is of type {kind} with its numbers in part {place} of {len(lengths)}")
    scales = _scales(outer) if quantised and place else 0
    value = XnnValue(
        shape=table.numbers(2, "I", "a shape", most=_AXES),
        dtype=TYPES[kind],
        external=None if external == NONE or not table.number(5, "I") else external,
        stored_bytes=lengths[place] + 4 * scales if place else None,
        quantised=quantised,
    )
    return int(table.number(6, "I")), value


def _scales(outer: FlatTable) -> int:
    """How many scales in f32 lie beside a quantised constant."""
    form, about = outer.number(1, "B"), outer.table(2, "scales")
    if about is None or form not in {_PER_CHANNEL, _PER_GROUP}:
        return 0
    counted = about.number(3 if form == _PER_CHANNEL else 5, "I")
    return int(counted) or about.count(0, 4, "scales")


def _node(entry: FlatTable, values: dict[int, XnnValue]) -> XnnNode:
    number, table, limits = entry.number(0, "B"), entry.table(1, "a node"), entry.table(3, "a node's limits")
    kind = KINDS.get(number)
    if table is None or kind is None:
        raise entry.fault(f"is of kind {number}, which is not known: a newer ExecuTorch wrote it")
    inputs, outputs = (
        tuple(place for place in (int(table.number(field, "I")) for field in fields) if place != NONE)
        for fields in (kind.inputs, kind.outputs)
    )
    wrong = next((place for place in (*inputs, *outputs) if place not in values), None)
    if wrong is not None:
        raise entry.fault(f"speaks of value {wrong}; there are {len(values)}")
    stated = None if limits is None else (limits.number(0, "f", 0.0), limits.number(1, "f", 0.0))
    return XnnNode(kind=kind, table=table, inputs=inputs, outputs=outputs, limits=stated)

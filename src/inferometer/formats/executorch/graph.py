"""From a program to a graph: its instructions in order, those of ATen by the rows that exported programs are read by.

A node is called by its operator and the number of its instruction (`convolution_4`), one of a delegate also by its
place there (`conv2d_0.3`): the file has no names, and an engine that runs it tells these numbers.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf, isinf
from pathlib import Path
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Role, Tensor
from inferometer.formats.executorch.program import Delegate, Instruction, PteProgram, PteTensor, TensorList
from inferometer.formats.flatbuffer import Buffer, FlatTable
from inferometer.formats.torch.convert import walk
from inferometer.formats.torch.program import HeldInput, ProgramBody, ProgramCall, ProgramValue, Ref, named_arguments
from inferometer.formats.torch.scope import Bound, PlacedOp, ProgramScope

# What was lowered to XNNPACK: a flatbuffer of its own within the program, with nodes and the shapes of their values.
#
# Activations are [batch, height, width, channels]; filters [out, height, width, in / groups], depthwise ones
# [1, height, width, out]; a dense layer's are [out, in]. A node may limit its results: that is its activation.
#
# Source: backends/xnnpack/serialization/runtime_schema.fbs of pytorch/executorch, and the header before it.

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


@frozen
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


@frozen
class XnnValue:
    """`external` is the number of the delegate call's argument; `stored_bytes` counts scales too; None flows."""

    shape: tuple[int, ...]
    dtype: str
    external: int | None = None
    stored_bytes: int | None = None
    quantised: bool = False


@frozen
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


@frozen
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


# What was lowered to a backend, as ops. Of XNNPACK's nodes the work is known; any other backend's data are its own.

_TRANSPOSED = "XNNConvTranspose2d"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")  # where a word begins within a name


def opaque_op(delegate: Delegate, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Op:
    blob = Tensor(name=f"{name}.data", shape=(delegate.size,), dtype="u8", role="constant", stored_bytes=delegate.size)
    reason = f"what {delegate.backend} was given is in a form of its own: its work is not known"
    return Op(
        name=name, kind="custom", inputs=tuple(inputs), outputs=tuple(outputs), weights=(blob,),
        attributes={"reason": reason}, source_type=delegate.backend,
    )  # fmt: skip


@frozen
class XnnSite:
    """A delegate call: its nodes are called by the instruction's number, and its arguments are the program's values."""

    graph: XnnGraph
    instruction: int
    arguments: tuple[Tensor | None, ...]

    def name_of(self, index: int) -> str:
        word = self.graph.nodes[index].kind.name.removeprefix("XNN").removeprefix("Static")
        return f"{_WORD.sub('_', word).lower()}_{self.instruction}.{index}"

    def tensor(self, number: int, name: str, word: str = "") -> Tensor:
        value = self.graph.values[number]
        place = value.external
        given = self.arguments[place] if place is not None and place < len(self.arguments) else None
        if given is not None:
            return given
        if value.stored_bytes is not None:
            return Tensor(
                name=f"{name}.{word or 'constant'}", shape=value.shape, dtype=value.dtype, role="weight",
                stored_bytes=value.stored_bytes,
            )  # fmt: skip
        return Tensor(name=f"value_{self.instruction}.{number}", shape=value.shape, dtype=value.dtype)


def xnnpack_ops(site: XnnSite) -> list[Op]:
    return [_op(site, node, index) for index, node in enumerate(site.graph.nodes)]


def _op(site: XnnSite, node: XnnNode, index: int) -> Op:
    name, values = site.name_of(index), site.graph.values
    words = ("", "weight", "bias") if node.kind.kind in {"linear", "convolution"} else ()
    named = zip(node.inputs, (*words, *("",) * len(node.inputs)), strict=False)
    tensors = [(values[number].stored_bytes is not None, site.tensor(number, name, word)) for number, word in named]
    flowing = tuple(tensor for stored, tensor in tensors if not stored)
    held = tuple(tensor for stored, tensor in tensors if stored)
    kind, attributes = _meaning(site, node, [tensor for _, tensor in tensors])
    activation = node.activation
    if activation is not None and node.kind.kind == "activation":
        attributes["function"] = activation
    elif activation is not None:
        attributes["fused_activation"] = activation
    return Op(
        name=name,
        kind=kind if flowing or kind != "linear" else "matmul",
        inputs=flowing or held[:1],
        outputs=tuple(site.tensor(number, name) for number in node.outputs),
        weights=held,
        attributes=attributes,
        source_type=node.kind.name,
    )


def _meaning(site: XnnSite, node: XnnNode, given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    """The kind of op, and what its fields say about the work."""
    kind = node.kind.kind
    reading = _READING.get(kind)
    if reading is not None:
        return reading(site, node, given)
    return kind, {"function": node.kind.function}


def _convolution(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    groups, inside, out = (max(1, node.whole(field)) for field in (12, 10, 11))
    return "convolution", {
        "in_channels": inside * groups, "out_channels": out * groups, "groups": groups,
        "kernel": (node.whole(4), node.whole(5)), "strides": (node.whole(6) or 1, node.whole(7) or 1),
        "dilations": (node.whole(8) or 1, node.whole(9) or 1), "transposed": node.kind.name == _TRANSPOSED,
    }  # fmt: skip


def _linear(_site: XnnSite, _node: XnnNode, given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    out, width = given[1].shape[-2:]
    stored = given[1].role == "weight"
    return "linear" if stored else "matmul", {"in_features": width, "out_features": out, "contracted": width}


def _matmul(_site: XnnSite, _node: XnnNode, given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    return "matmul", {"contracted": given[0].shape[-1]}


def _pool(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    steps = (node.whole(6) or 1, node.whole(7) or 1) if node.kind.outputs == (11,) else (node.whole(4), node.whole(5))
    return "pool", {"function": node.kind.function, "kernel": (node.whole(4), node.whole(5)), "strides": steps}


def _reduce(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    return "reduce", {"function": node.kind.function, "axes": (1, 2)}


def _resize(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    return "resize", {"mode": node.kind.function}


def _convert(site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    before, after = (site.graph.values[number].quantised for number in (node.inputs[0], node.outputs[0]))
    return "cast" if before == after else "quantize" if after else "dequantize", {}


def _custom(_site: XnnSite, node: XnnNode, _given: list[Tensor]) -> tuple[str, dict[str, Any]]:
    return "custom", {"reason": f"the work of {node.kind.name} is not counted"}


_READING: dict[str, Callable[[XnnSite, XnnNode, list[Tensor]], tuple[str, dict[str, Any]]]] = {
    "convolution": _convolution, "linear": _linear, "matmul": _matmul, "pool": _pool, "reduce": _reduce,
    "resize": _resize, "cast": _convert, "custom": _custom,
}  # fmt: skip


# The names of arguments that say something about the work; a program gives them by their places.
_NAMES = {
    "convolution": ("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding",
                    "groups"),
    "linear": ("input", "weight", "bias"),
    "max_pool2d_with_indices": ("self", "kernel_size", "stride"),
    "max_pool2d": ("self", "kernel_size", "stride"),
    "avg_pool2d": ("self", "kernel_size", "stride"),
    "embedding": ("weight", "indices"),
    "topk": ("self", "k", "dim"),
    "gelu": ("self", "approximate"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
}  # fmt: skip
_USUAL = ("self", "dim")
# Operators that name the order of axes in memory → the same operator that leaves it to strides.
_ALIKE = {
    "dim_order_ops::_to_dim_order_copy": "aten::_to_copy",
    "dim_order_ops::_clone_dim_order": "aten::clone",
    "dim_order_ops::_empty_dim_order": "aten::empty",
    "executorch_prim::et_view": "aten::view",
}
_WHOLE = frozenset({"u8", "u16", "u32", "u64", "i16", "i32", "i64", "bool"})


def pte_graph(program: PteProgram, data: Any, path: Path) -> Graph:
    scope = _opened(program)
    for number, instruction in enumerate(program.instructions):
        if instruction.operator is not None:
            walk(
                scope,
                ProgramBody(inputs=(), outputs=(), calls=(_call(program, instruction, number),), values=scope.values),
            )
        elif instruction.delegate is not None:
            _delegate(scope, program, number, data, path)
        elif len(instruction.args) == 2:  # a value moved to another's place
            source, target = (f"value_{place}" for place in instruction.args)
            if source in scope.bound:
                scope.bound[target] = scope.bound[source]
    ops = tuple(placed.op for placed in scope.placed)
    usual = Counter(value.dtype for value in program.values.values() if isinstance(value, PteTensor) and value.shape)
    precision = usual.most_common(1)[0][0] if usual else None
    backends = dict(Counter(step.delegate.backend for step in program.instructions if step.delegate is not None))
    return Graph(
        name=path.stem,
        blocks=(Block(name=program.method, ops=ops),),
        inputs=tuple(_bound(scope, place) for place in program.inputs if _is_tensor(program, place)),
        outputs=tuple(_bound(scope, place) for place in program.outputs if _is_tensor(program, place)),
        precision=precision,
        metadata={"format": "pte", "methods": program.methods, "backends": backends,
                  "notes": _notes(program)},
    )  # fmt: skip


def _opened(program: PteProgram) -> ProgramScope:
    tensors = {place: value for place, value in program.values.items() if isinstance(value, PteTensor)}
    values = {f"value_{place}": ProgramValue(shape=value.shape, dtype=value.dtype) for place, value in tensors.items()}
    scope = ProgramScope(values=values)
    start = ProgramCall(name=program.method, target="program", arguments={}, outputs=())
    for place, value in tensors.items():
        if value.stored or value.changing:
            role: Role = "state" if value.changing else "constant" if value.dtype in _WHOLE else "weight"
            scope.whole(f"value_{place}", HeldInput(name=value.name or f"stored_{place}", role=role), start, role)
    for number, place in enumerate(program.inputs):
        if place in tensors:
            tensor = Tensor(name=f"input_{number}", shape=tensors[place].shape, dtype=tensors[place].dtype)
            scope.bound[f"value_{place}"] = Bound(tensor=tensor)
    return scope


def _is_tensor(program: PteProgram, index: int) -> bool:
    return isinstance(program.values[index], PteTensor)


def _bound(scope: ProgramScope, index: int) -> Tensor:
    """The tensor behind a value. One that nothing was seen to write is what its place says."""
    name = f"value_{index}"
    if name not in scope.bound:
        scope.make(name, ProgramCall(name="program", target="program", arguments={}, outputs=()))
    return scope.bound[name].tensor


def _call(program: PteProgram, instruction: Instruction, number: int) -> ProgramCall:
    """Kernels write where they are told: what they write to, and what they return, stand after their arguments."""
    operator = str(instruction.operator)
    namespace, _, full = _ALIKE.get(operator.partition(".")[0], operator).partition("::")
    base, _, overload = full.partition(".")
    given, made = instruction.args[:-1], _tensors(program, instruction.args[-1:])
    if given and made and _tensors(program, given[-1:]) == made:  # one result, or a list of them
        given = given[:-1]
    elif made and given[-len(made) :] == made:  # each result by itself
        given = given[: -len(made)]
    arguments = [_argument(program, place) for place in given]
    names = [*_NAMES.get(base, _USUAL), *("",) * len(arguments)][: len(arguments)]
    return ProgramCall(
        name=f"{base.strip('_')}_{number}",
        target=f"{namespace}.{base}.{overload or 'default'}",
        arguments=named_arguments(names, arguments),
        outputs=tuple(f"value_{place}" for place in made),
    )


def _tensors(program: PteProgram, places: tuple[int, ...]) -> tuple[int, ...]:
    """The tensors that values are, or list."""
    values = ((place, program.values[place]) for place in places)
    listed = (item for place, value in values for item in (value.items if isinstance(value, TensorList) else (place,)))
    return tuple(place for place in listed if place in program.values and _is_tensor(program, place))


def _argument(program: PteProgram, index: int) -> Any:
    value = program.values[index]
    if isinstance(value, TensorList):
        return tuple(Ref(f"value_{item}") for item in value.items if item >= 0)
    return Ref(f"value_{index}") if isinstance(value, PteTensor) else value


def _delegate(scope: ProgramScope, program: PteProgram, number: int, data: Any, path: Path) -> None:
    instruction = program.instructions[number]
    delegate = instruction.delegate
    assert delegate is not None  # noqa: S101 - the caller has looked
    blob = bytes(data[delegate.start : delegate.start + delegate.size]) if delegate.backend == BACKEND else b""
    graph = parse_xnnpack(blob, path)
    known = [place for place in instruction.args if _is_tensor(program, place)]
    if graph is None:
        given = [place for place in known if f"value_{place}" in scope.bound]
        made = [place for place in known if place not in given]
        name = f"{delegate.backend.lower()}_{number}"
        inputs, outputs = ([_bound(scope, place) for place in places] for places in (given, made))
        ops = [opaque_op(delegate, name, inputs, outputs)]
    else:
        arguments = tuple(
            _bound(scope, place) if _is_tensor(program, place) else None for place in instruction.args
        )  # fmt: skip
        ops = xnnpack_ops(XnnSite(graph=graph, instruction=number, arguments=arguments))
    scope.placed += [PlacedOp(op=op, path="", label=op.name) for op in ops]


def _notes(program: PteProgram) -> tuple[str, ...]:
    notes = []
    others = [name for name in program.methods if name != program.method]
    if others:
        notes.append(f"The graph is that of the method {program.method}; it also has {', '.join(others)}.")
    if any(isinstance(value, PteTensor) and value.open for value in program.values.values()):
        notes.append("Some sizes are open; the graph has the largest that the program takes.")
    if any(step.jumps for step in program.instructions):
        notes.append("It has branches or loops; each instruction is counted once.")
    return tuple(notes)

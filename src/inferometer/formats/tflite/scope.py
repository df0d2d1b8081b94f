"""The tensors of one subgraph as an op sees them, and one operator where it stands."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from inferometer.core.dims import Dim, Symbol
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Role, Tensor
from inferometer.formats.tflite.model import OperatorInfo, SubGraph, TfliteTensor
from inferometer.formats.tflite.schema import ACTIVATIONS, PADDINGS
from inferometer.formats.tflite.shapes import Operand, Shape, output_shapes, output_values

_SHAPING = frozenset({"i32", "i64", "bool", "u32", "u64"})  # formats that parameters have only as a quantised bias


@dataclass(slots=True)
class TfliteNames:
    """Names for the tensors of a whole model. A file may use one name twice, and one buffer under two names.

    Constants in the same buffer are the same numbers, so they get the same name and count once.
    """

    prefix: str = ""
    _taken: dict[str, tuple[int, int]] = field(default_factory=dict)
    _buffers: dict[int, str] = field(default_factory=dict)

    def name(self, info: TfliteTensor, subgraph: int) -> str:
        if info.nbytes is not None and info.buffer in self._buffers:
            return self._buffers[info.buffer]
        name = self.prefix + info.name
        if self._taken.setdefault(name, (subgraph, info.index)) != (subgraph, info.index):
            name = f"{name}#{subgraph}.{info.index}"
            self._taken[name] = (subgraph, info.index)
        if info.nbytes is not None:
            self._buffers[info.buffer] = name
        return name


class TfliteScope:
    """Tensors with their role, their format, and sizes followed from the inputs.

    Reads `info` as the file has it; `alias` makes one tensor stand for another, as a decompressed constant does.
    """

    def __init__(
        self,
        graph: SubGraph,
        index: int,
        names: TfliteNames,
        *,
        inputs: dict[int, Shape] | None = None,
        constants: dict[int, TfliteTensor] | None = None,
    ) -> None:
        """A body's `inputs` have the shapes they are called with; `constants` are the caller's stored ones."""
        self._graph, self._index, self._names = graph, index, names
        self._constants = constants or {}
        self._shapes: dict[int, Shape] = dict(inputs or {})
        self._values: dict[int, Shape] = {}
        self._aliases: dict[int, int] = {}
        self._variables: dict[int, str] = {}
        for place in graph.inputs:
            if place >= 0:
                self._shapes.setdefault(place, self._open_shape(place, batch=True))

    def info(self, place: int) -> TfliteTensor:
        """The tensor as stored: behind an alias the constant it is made from, in a body the caller's constant."""
        place = self._aliases.get(place, place)
        return self._constants.get(place) or self._graph.tensors[place]

    def is_constant(self, index: int) -> bool:
        info = self.info(index)
        return (info.nbytes is not None or info.external) and not info.variable

    def alias(self, made: int, source: int) -> None:
        self._aliases[made] = self._aliases.get(source, source)

    def is_widened(self, index: int) -> bool:
        """Whether an operator turned it into another format before its use."""
        return index in self._aliases

    def values(self, index: int) -> Shape | None:
        return self._values.get(index, self.info(index).values)

    def numbers(self, index: int) -> tuple[int, ...] | None:
        """Values that are plain numbers, all of them."""
        values = self.values(index)
        if values is None:
            return None
        plain = tuple(value for value in values if isinstance(value, int))
        return plain if len(plain) == len(values) else None

    def shape(self, index: int) -> Shape:
        if index not in self._shapes:
            self._shapes[index] = self._open_shape(index)
        return self._shapes[index]

    def tensor(self, index: int, role: Role | None = None) -> Tensor:
        info = self.info(index)
        return Tensor(
            name=self._names.name(info, self._index),
            shape=self.shape(index),
            dtype=info.dtype,
            role=role or self._role(info),
            stored_bytes=info.nbytes,
        )

    def weight(self, index: int) -> Tensor:
        """A tensor in a place that parameters have, whatever its format."""
        return self.tensor(index, "weight" if self.is_constant(index) else None)

    def follow(self, info: OperatorInfo) -> None:
        """Work out what the operator's outputs look like, from what is known of its inputs."""
        operands = [self._operand(place) for place in info.inputs]
        places = [place for place in info.outputs if place >= 0]
        shapes = output_shapes(info, operands, [len(self._graph.tensors[place].shape) for place in places])
        for place, shape in zip(places, shapes, strict=True):
            self._shapes.setdefault(place, self._filled(place, shape))
        values = output_values(info, operands)
        if values is not None and places:
            self._values[places[0]] = values

    def name_variable(self, handle: int, name: str) -> None:
        self._variables[handle] = name

    def variable(self, handle: int, like: int) -> Tensor:
        """The memory that a handle stands for. It has the shape of what is read from or written to it."""
        name = self._variables.get(handle) or self._names.name(self.info(handle), self._index)
        state = self.tensor(like, "state")
        return replace(state, name=f"{self._names.prefix}{name}", stored_bytes=None)

    def _operand(self, index: int) -> Operand | None:
        return None if index < 0 else Operand(shape=self.shape(index), values=self.values(index))

    def _role(self, info: TfliteTensor) -> Role:
        if info.variable:
            return "state"
        if info.nbytes is None and not info.external:
            return "activation"
        single = all(size == 1 for size in info.shape)
        shaping = info.dtype is None or (info.dtype in _SHAPING and info.quantization is None)
        return "constant" if single or shaping else "weight"

    def _open_shape(self, index: int, *, batch: bool = False) -> Shape:
        return self._filled(index, None, batch=batch)

    def _filled(self, index: int, inferred: Shape | None, *, batch: bool = False) -> Shape:
        """The file's sizes, with what was worked out, or a symbol, where the file has none."""
        info = self._graph.tensors[index]
        name = self._names.prefix + info.name

        def size(axis: int, stated: int) -> Dim:
            if stated >= 0:
                return stated
            if inferred is not None:
                return inferred[axis]
            first = batch and axis == 0 and len(info.shape) > 1  # a single axis is a signal's
            return Symbol("batch") if first else Symbol(f"{name}.{axis}")

        return tuple(size(axis, stated) for axis, stated in enumerate(info.shape))


_STORED = frozenset({"weight", "constant"})
_NARROW = frozenset({"i8", "i4", "i2", "u8", "u4"})


@frozen
class OperatorSite:
    """One operator where it stands: its tensors by number, and the op that is made of it."""

    info: OperatorInfo
    scope: TfliteScope
    name: str

    @property
    def options(self) -> Any:
        return self.info.options

    def given(self, number: int) -> int:
        """The tensor of an input, or −1 where it is left out."""
        return self.info.inputs[number] if number < len(self.info.inputs) else -1

    def shape(self, number: int) -> tuple[Dim, ...]:
        return self.scope.shape(self.info.inputs[number])

    def sizes(self, number: int, axes: int) -> tuple[int, ...]:
        """The shape of weights, which must have `axes` axes; a size that is not fixed counts as 1."""
        shape = self.shape(number)
        if len(shape) != axes:
            raise ValueError(f"input {number} has {len(shape)} axes where {axes} are due")
        return tuple(size if isinstance(size, int) else 1 for size in shape)

    def width(self, number: int) -> int:
        """The last axis."""
        last = self.shape(number)[-1]
        return last if isinstance(last, int) else 1

    def numbers(self, number: int) -> tuple[int, ...] | None:
        """The values of an input that holds sizes or axes, where they are known."""
        place = self.given(number)
        return None if place < 0 else self.scope.numbers(place)

    def is_stored(self, number: int) -> bool:
        return self.scope.is_constant(self.info.inputs[number])

    def role(self, number: int) -> Role:
        return self.scope.tensor(self.info.inputs[number]).role

    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(self.scope.tensor(place) for place in self.info.outputs if place >= 0)

    def split(self) -> tuple[list[int], list[int]]:
        """All inputs by number: the data that flow, then what shapes the op; and apart from them the parameters."""
        numbers = [number for number, place in enumerate(self.info.inputs) if place >= 0]
        flowing = [number for number in numbers if self.role(number) not in _STORED]
        shaping = [number for number in numbers if self.role(number) == "constant"]
        weights = [number for number in numbers if self.role(number) == "weight"]
        if not flowing:  # a constant that is worked on: it is what comes in
            return [*weights, *shaping], []
        return [*flowing, *shaping], weights

    def op(self, inputs: Iterable[int], weights: Iterable[int] = (), *, kind: str = "", **attributes: Any) -> Op:
        """The op, its inputs and weights by their numbers; those left out are passed over."""
        scope, operator = self.scope, self.info.operator
        read = [self.given(number) for number in inputs]
        held = [self.given(number) for number in weights]
        return Op(
            name=self.name,
            kind=kind or operator.kind,
            inputs=tuple(scope.tensor(place) for place in read if place >= 0),
            outputs=self.outputs(),
            weights=tuple(scope.weight(place) for place in held if place >= 0),
            attributes={**operator.attributes, **self.shared(), **attributes},
            source_type=operator.name,
        )

    def uncovered(self, reason: str) -> Op:
        inputs, weights = self.split()
        return self.op(inputs, weights, kind="custom", reason=reason)

    def shared(self) -> dict[str, Any]:
        """What any operator may have: its place, a fused activation, quantised or sparse tensors."""
        attributes: dict[str, Any] = {"index": self.info.index}
        if fused := ACTIVATIONS.get(self.options.get("fused", 0)):
            attributes["fused_activation"] = fused
        infos = [self.scope.info(place) for place in (*self.info.inputs, *self.info.outputs) if place >= 0]
        # What is known of it, by the names of its fields.
        quantised = {
            entry.name: {key: value for key, value in asdict(entry.quantization).items() if value is not None}
            for entry in infos
            if entry.quantization
        }
        if quantised:
            attributes["quantization"] = quantised
        if sparse := tuple(entry.name for entry in infos if entry.sparse):
            attributes["sparse"] = sparse
        return attributes

    def arithmetic(self, x: int, weights: int) -> dict[str, str]:
        """f32 activations with narrow weights: kernels quantise the activations on the way in and multiply in i8."""
        stored, place = self.scope.info(self.info.inputs[weights]), self.info.inputs[weights]
        flowing = self.scope.info(self.info.inputs[x])
        hybrid = flowing.dtype == "f32" and stored.dtype in _NARROW and stored.quantization is not None
        return {"compute": "i8"} if hybrid and not self.scope.is_widened(place) else {}


# Operators with weights: convolutions, dense layers, tables, recurrent layers.
#
# Layouts are TFLite's: activations are [batch, height, width, channels]; a convolution's filters are [out, height,
# width, in], a depthwise one's [1, height, width, out], a dense layer's weights [out, in].


@frozen
class _Filters:
    """What a convolution's weights say, and at which inputs x, they and the bias stand."""

    kernel: tuple[int, ...]
    channels: int
    out: int
    groups: int = 1
    transposed: bool = False
    x: int = 0
    weights: int = 1
    bias: int = 2


def _convolved(site: OperatorSite, filters: _Filters, **extra: Any) -> list[Op]:
    """Filters that are no constant are one more input."""
    options = site.options
    sides = ("d", "h", "w") if len(filters.kernel) == 3 else ("h", "w")
    stored = site.is_stored(filters.weights)
    attributes = {
        "in_channels": filters.channels, "out_channels": filters.out, "groups": filters.groups,
        "kernel": filters.kernel, "strides": tuple(options.get(f"stride_{side}", 1) for side in sides),
        "dilations": tuple(options.get(f"dilation_{side}", 1) for side in sides),
        "padding": PADDINGS.get(options.get("padding", 0), "same"), "transposed": filters.transposed,
        **(site.arithmetic(filters.x, filters.weights) if stored else {}), **extra,
    }  # fmt: skip
    inputs = (filters.x,) if stored else (filters.x, filters.weights)
    weights = (filters.weights, filters.bias) if stored else (filters.bias,)
    return [site.op(inputs, weights, **attributes)]


def _convolution(site: OperatorSite) -> list[Op]:
    out, *kernel, depth = site.sizes(1, 4)
    channels = site.width(0)
    groups = max(1, channels // max(1, depth))
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=channels, out=out, groups=groups))


def _depthwise(site: OperatorSite) -> list[Op]:
    _, *kernel, out = site.sizes(1, 4)
    channels = site.width(0)
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=channels, out=out, groups=max(1, channels)))


def _transpose_conv(site: OperatorSite) -> list[Op]:
    """Inputs are the output's shape, the filters, x, and a bias."""
    out, *kernel, depth = site.sizes(1, 4)
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=depth, out=out, transposed=True, x=2, bias=3))


def _transpose_conv_bias(site: OperatorSite) -> list[Op]:
    """MediaPipe's: x, filters, bias."""
    out, *kernel, depth = site.sizes(1, 4)
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=depth, out=out, transposed=True))


def _convolution_3d(site: OperatorSite) -> list[Op]:
    """Filters are [depth, height, width, in / groups, out]."""
    *kernel, depth, out = site.sizes(1, 5)
    channels = site.width(0)
    groups = max(1, channels // max(1, depth))
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=channels, out=out, groups=groups))


def _transpose_conv_3d(site: OperatorSite) -> list[Op]:
    """Inputs are the output's shape, the filters [depth, height, width, out, in], x, and a bias."""
    *kernel, out, depth = site.sizes(1, 5)
    return _convolved(site, _Filters(kernel=tuple(kernel), channels=depth, out=out, transposed=True, x=2, bias=3))


def _general_convolution(site: OperatorSite) -> list[Op]:
    """StableHLO's: any layout, given by the options. A dilated input is a transposed convolution."""
    options = site.options
    shape = site.sizes(1, len(site.shape(1)))
    groups = max(1, options["groups"])
    filters = _Filters(
        kernel=tuple(shape[axis] for axis in options["kernel_spatial"]),
        channels=shape[options["kernel_input"]] * groups,
        out=shape[options["kernel_output"]],
        groups=groups,
        transposed=any(step > 1 for step in options["lhs_dilation"]),
    )
    steps: dict[str, Any] = {
        "strides": tuple(options["strides"]),
        "dilations": tuple(options["dilations"]),
        "padding": "explicit",
    }
    return _convolved(site, filters, **steps)


def _fully_connected(site: OperatorSite) -> list[Op]:
    """What comes in is seen as rows of the weights' width, whatever its shape. Weights that flow: a plain product."""
    units, width = site.sizes(1, 2)
    if not site.is_stored(1):
        return [site.op((0, 1, 2), kind="matmul", contracted=width)]
    sizes: dict[str, Any] = {"in_features": width, "out_features": units, "contracted": width}
    return [site.op((0,), (1, 2), **sizes, **site.arithmetic(0, 1))]


def _batch_matmul(site: OperatorSite) -> list[Op]:
    """A stored matrix that every row meets makes a dense layer."""
    contracted = site.shape(0)[-2 if site.options.get("adjoint_a") else -1]
    if site.is_stored(1) and len(site.shape(1)) == 2:
        return [site.op((0,), (1,), kind="linear", contracted=contracted)]
    return [site.op((0, 1), contracted=contracted)]


def _dot_general(site: OperatorSite) -> list[Op]:
    contracted: Any = 1
    for axis in site.options["contracting"]:
        contracted = contracted * site.shape(0)[axis]
    if site.is_stored(1):
        return [site.op((0,), (1,), kind="linear", contracted=contracted)]
    return [site.op((0, 1), contracted=contracted)]


def _embedding(site: OperatorSite) -> list[Op]:
    """Inputs are ids and the table; the sparse form has ids, their indices, the shape, the weights, the table."""
    last = len(site.info.inputs) - 1
    if last < 1 or not site.is_stored(last):
        return [site.op(range(last + 1), kind="gather")]
    return [site.op(range(last), (last,))]


def _gather(site: OperatorSite) -> list[Op]:
    """Rows of a stored table are an embedding."""
    axis = site.options.get("axis", 0)
    if site.role(0) != "weight":
        return [site.op((0, 1), axis=axis)]
    rows = axis == 0 and not site.is_stored(1)
    return [site.op((1,), (0,), kind="embedding" if rows else "gather")]


_HIDDEN_AT = {
    "LSTM": 2, "RNN": 2, "UNIDIRECTIONAL_SEQUENCE_RNN": 2, "BIDIRECTIONAL_SEQUENCE_RNN": 2,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 6, "BIDIRECTIONAL_SEQUENCE_LSTM": 6,
}  # fmt: skip


def _recurrent(site: OperatorSite) -> list[Op]:
    """The recurrent weights are [hidden, outputs]; at which input they stand differs by operator.

    The basic LSTM kernel holds all four gates in one matrix [4·hidden, input + hidden].
    """
    called = site.info.operator.name
    basic = called == "LSTM" and site.options.get("kernel_type") == 1
    units = site.sizes(_HIDDEN_AT[called], 2)[0]
    major = bool(site.options.get("time_major", False))
    attributes: dict[str, Any] = {
        "hidden": units // 4 if basic else units,
        "directions": 2 if called.startswith("BIDIRECTIONAL") else 1,
        "time_major": major,
    }
    if "SEQUENCE" in called:
        attributes["steps"] = site.shape(0)[0 if major else 1]
    others = [number for number, place in enumerate(site.info.inputs) if number and place >= 0]
    states = [number for number in others if not site.is_stored(number)]
    return [site.op((0, *states), [number for number in others if site.is_stored(number)], **attributes)]


def _svdf(site: OperatorSite) -> list[Op]:
    """A dense layer to `filters` features, then each feature's recent values against its own weights in time."""
    filters, width = site.sizes(1, 2)
    _, memory = site.sizes(2, 2)
    scope, name, inputs = site.scope, site.name, site.info.inputs
    x, shared = scope.tensor(inputs[0]), {"index": site.info.index}
    features = Tensor(name=f"{name}.features", shape=(x.shape[0], filters), dtype=x.dtype)
    timed = Tensor(name=f"{name}.time", shape=(x.shape[0], filters), dtype=x.dtype)
    states = tuple(scope.tensor(place, "state") for place in inputs[4:] if place >= 0)
    dense = Op(
        name=f"{name}.features", kind="linear", inputs=(x,), outputs=(features,), weights=(scope.weight(inputs[1]),),
        attributes={"in_features": width, "out_features": filters, "contracted": width, **shared}, source_type="SVDF",
    )  # fmt: skip
    depthwise = {"in_channels": filters, "out_channels": filters, "groups": max(1, filters), "kernel": (memory,)}
    filtered = Op(
        name=f"{name}.time", kind="convolution", inputs=(features, *states), outputs=(timed,),
        weights=(scope.weight(inputs[2]),), attributes={**depthwise, **shared}, source_type="SVDF",
    )  # fmt: skip
    bias = site.given(3)
    summed = Op(
        name=name, kind="reduce", inputs=(timed,), outputs=site.outputs(), source_type="SVDF",
        weights=(scope.weight(bias),) if bias >= 0 else (), attributes={**site.shared(), "function": "sum"},
    )  # fmt: skip
    return [dense, filtered, summed]


LAYERS: dict[str, Callable[[OperatorSite], list[Op]]] = {
    "convolution": _convolution, "depthwise": _depthwise, "transpose_conv": _transpose_conv,
    "transpose_conv_bias": _transpose_conv_bias, "convolution_3d": _convolution_3d,
    "transpose_conv_3d": _transpose_conv_3d, "general_convolution": _general_convolution,
    "fully_connected": _fully_connected, "batch_matmul": _batch_matmul, "dot_general": _dot_general,
    "embedding": _embedding, "gather": _gather, "recurrent": _recurrent, "svdf": _svdf,
}  # fmt: skip

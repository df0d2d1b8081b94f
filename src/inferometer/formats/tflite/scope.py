"""The tensors of one subgraph as an op sees them, and one operator where it stands."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from inferometer.core.dims import Dim, Symbol
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Role, Tensor
from inferometer.formats.tflite.model import OperatorInfo, SubGraph, TfliteTensor
from inferometer.formats.tflite.schema import ACTIVATIONS
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
        """A body's `inputs` have the shapes they are called with; `constants` are those that the caller stores."""
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
        """The shape of weights, which must have so many axes; a size that is not fixed counts as 1."""
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
        """All inputs by number: those that flow, then those that shape the op; and apart from them the parameters."""
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

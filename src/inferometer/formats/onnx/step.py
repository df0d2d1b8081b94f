"""A node that has been looked at, the table row that says what it is, and the maker of ops from both."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from inferometer.core.dims import Dim, Symbol
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Role, Tensor
from inferometer.formats.onnx.value import Call, Out, StoredTensor, Value

Rule = Callable[[Call], list[Out]]  # more results than the node has outputs are let go
Lowering = Callable[["OnnxStep", "Maker"], list[Op]]

# Formats the core has no row for, as the one that takes the same bytes, or the nearest above.
_CORE_FORMATS = {"string": "u8", "f8e8m0": "u8", "u2": "i2", "f6e2m3": "u8", "f6e3m2": "u8"}


@dataclass(slots=True, kw_only=True)
class OnnxStep:
    """One node of the walk. `bodies` are the steps of its subgraphs, `trips` how often a loop runs."""

    name: str
    call: Call
    row: "OnnxRow"
    outs: tuple[Value, ...]
    bodies: "tuple[tuple[OnnxStep, ...], ...]" = ()
    trips: Dim | None = None

    @property
    def op_type(self) -> str:
        node = self.call.node
        return node.source or (f"{node.domain}.{node.op_type}" if node.domain else node.op_type)


def _lower_plain(step: OnnxStep, maker: "Maker") -> list[Op]:
    return [maker.op(step)]


@frozen
class OnnxRow:
    """What a table says of an operator.

    `weights` are the inputs that hold parameters where they are stored, the main one first; `indices` those that
    address; `settings` those that only say how (shapes, axes, scales) and carry no data.
    """

    kind: str
    infer: Rule
    lower: Lowering = _lower_plain
    attributes: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()
    settings: tuple[int, ...] = ()
    states: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # inputs and outputs that a caller carries along
    caches: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # inputs and outputs that are a KV cache
    least: int = 0  # inputs it cannot do without
    passes: bool = False  # a stored tensor that goes in comes out as itself, in another order or format
    folds: bool = True  # made of constants alone it is computed once, when the model is loaded


@frozen
class Maker:
    """Makes tensors and ops.

    `roles` are those of activations, `parameters` the names of stored tensors that are learned.
    """

    roles: Mapping[str, Role]
    parameters: frozenset[str]

    def tensor(self, value: Value, role: Role | None = None) -> Tensor:
        shape = value.shape if value.shape is not None else (Symbol(f"{value.name}.size"),)
        known: Role = role or self.roles.get(value.name, "activation")
        return Tensor(name=value.name, shape=shape, dtype=_core_format(value.dtype), role=known)

    def stored(self, stored: StoredTensor, role: Role | None = None) -> Tensor:
        known: Role = role or ("weight" if stored.name in self.parameters else "constant")
        return Tensor(
            name=stored.name,
            shape=stored.shape,
            dtype=_core_format(stored.dtype),
            role=known,
            stored_bytes=stored.nbytes,
        )

    def op(self, step: OnnxStep, kind: str | None = None, **attributes: Any) -> Op:
        """The whole node as one op: what is stored among its inputs becomes weights, the main one first."""
        row, inputs = step.row, step.call.inputs
        order = (*row.weights, *(i for i in range(len(inputs)) if i not in row.weights))
        return self.op_of(
            step,
            kind or row.kind,
            [value for i, value in enumerate(inputs) if value and not value.constant and i not in row.settings],
            [inputs[i] for i in order if i < len(inputs) and i not in row.settings],
            {**row.attributes, **attributes},
        )

    def op_of(
        self,
        step: OnnxStep,
        kind: str,
        inputs: Iterable[Value],
        weights: Iterable[Value | None],
        attributes: Mapping[str, Any],
    ) -> Op:
        """An op with these inputs and with what is stored of these weights."""
        return Op(
            name=step.name,
            kind=kind,
            inputs=tuple(self.tensor(value) for value in inputs),
            outputs=tuple(self.tensor(value) for value in step.outs if value.name),
            weights=self.weights(weights),
            attributes=dict(attributes),
            source_type=step.op_type,
        )

    def weights(self, values: Iterable[Value | None]) -> tuple[Tensor, ...]:
        """Main tensors first, then what belongs to them (scales, zero points), each once."""
        constants = [value for value in values if value is not None and value.constant]
        mains = [value.stored[0] for value in constants]
        extras = [stored for value in constants for stored in value.stored[1:]]
        unique = dict.fromkeys((*mains, *extras))
        return tuple(self.stored(stored) for stored in unique)

    def custom(self, step: OnnxStep, reason: str) -> list[Op]:
        return [self.op(step, "custom", reason=reason)]


class Wires(NamedTuple):
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...] = ()


def part_op(step: OnnxStep, suffix: str, kind: str, wires: Wires, **attributes: Any) -> Op:
    """One op of several that a node stands for; its name is the node's and what part it is."""
    return Op(
        name=f"{step.name}/{suffix}", kind=kind, inputs=wires.inputs, outputs=wires.outputs, weights=wires.weights,
        attributes=attributes, source_type=step.op_type,
    )  # fmt: skip


def _core_format(dtype: str | None) -> str | None:
    return None if dtype is None else _CORE_FORMATS.get(dtype, dtype)

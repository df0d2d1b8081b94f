"""A node that has been looked at, the table row that says what it is, and the maker of ops from both."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

from inferometer.core.dims import Dim, Symbol
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Role, Tensor
from inferometer.formats.onnx.faults import MAX_PREFIX
from inferometer.formats.onnx.messages import Attribute, GraphDef, Node, TypeDef, ValueInfo
from inferometer.formats.onnx.value import Call, Out, StoredTensor, Value

# Names in a graph, and in the graphs around it.


@dataclass(slots=True, kw_only=True)
class Scope:
    """`prefix` keeps the names of inner graphs apart; `renamed` gives results of an inlined body the outer names."""

    opsets: Mapping[str, int]
    parent: "Scope | None" = None
    prefix: str = ""
    values: dict[str, Value] = field(default_factory=dict)
    declared: Mapping[str, TypeDef] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Attribute] | None = None  # within a function: what its caller gave for its attributes
    absent: frozenset[str] = frozenset()  # within a function: inputs its caller left out
    depth: int = 0
    tentative: bool = False  # within a branch that may be for other shapes than these

    def find(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            value = scope.values.get(name)
            if value is not None:
                return value
            scope = scope.parent
        return None

    def full_name(self, name: str) -> str:
        return self.renamed.get(name) or f"{self.prefix}{name}"


def prefix_of(name: str) -> str:
    """What stands before the names of a graph within a node; a long one is cut and made unique by a checksum."""
    return f"{name}/" if len(name) < MAX_PREFIX else f"{name[:200]}~{crc32(name.encode()):08x}/"


def declared(*lists: tuple[ValueInfo, ...]) -> dict[str, TypeDef]:
    """Declared types by name; a later list wins."""
    return {info.name: info.type for infos in lists for info in infos if info.type is not None}


def ordered(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], Node | None]:
    """The nodes in an order in which each comes after what it needs, and a node that has no place in any.

    Files must be written in such an order, and nearly all are: those are only checked.
    """
    made = {name for node in nodes for name in node.outputs if name}
    done: set[str] = set()
    in_order = True
    for node in nodes:
        if any(name in made and name not in done for name in needs(node)):
            in_order = False
            break
        done.update(node.outputs)
    return (nodes, None) if in_order else _sorted(nodes, made)


def _sorted(nodes: tuple[Node, ...], made: set[str]) -> tuple[tuple[Node, ...], Node | None]:
    waiting = [len({name for name in needs(node) if name in made}) for node in nodes]
    users: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        for name in {name for name in needs(node) if name in made}:
            users.setdefault(name, []).append(index)
    ready = [index for index in range(len(nodes) - 1, -1, -1) if waiting[index] == 0]
    result: list[Node] = []
    while ready:
        node = nodes[ready.pop()]
        result.append(node)
        for name in node.outputs:
            for index in users.pop(name, ()):
                waiting[index] -= 1
                if waiting[index] == 0:
                    ready.append(index)
    stuck = next((node for index, node in enumerate(nodes) if waiting[index] > 0), None)
    return tuple(result), stuck


def needs(node: Node) -> set[str]:
    """Names a node reads: its inputs, and what its subgraphs take from outside."""
    names = {name for name in node.inputs if name}
    for attribute in node.attributes.values():
        if isinstance(attribute.value, GraphDef):
            names |= _captured(attribute.value)
    return names


def _captured(graph: GraphDef) -> set[str]:
    """All names an inner graph reads and does not make; nesting is bounded by the parser."""
    own = {info.name for info in graph.inputs} | {tensor.name for tensor in graph.initializers}
    read = {info.name for info in graph.outputs}
    for node in graph.nodes:
        read |= needs(node)
        own.update(node.outputs)
    return read - own


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

"""What a converter works with: the tensors that are known at a call, and the ops made so far."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Role, Tensor
from inferometer.formats.torch.program import (
    Argument,
    AtenRow,
    HeldInput,
    ProgramCall,
    ProgramValue,
    Ref,
    base_name,
    refs_in,
)

_STORED = frozenset({"weight", "constant"})
_NEEDS_INPUT = frozenset({"linear", "matmul", "convolution", "reduce", "pool", "sort", "recurrent", "sampling", "norm"})


class UnreadableCallError(Exception):
    """The arguments of an operator do not say what its work is: it becomes a custom op, with this reason."""


@frozen
class Bound:
    """The graph's tensor behind a value.

    A view of a weight is the weight itself. `beside` are scales that go wherever a quantised weight goes. `base` is the
    buffer that a view of a changing buffer looks into.
    """

    tensor: Tensor
    beside: tuple[Tensor, ...] = ()
    base: Tensor | None = None

    @property
    def stored(self) -> bool:
        return self.tensor.role in _STORED


@frozen
class PlacedOp:
    """An op, still under the program's own names, with the module it stands in and what to call it there."""

    op: Op
    path: str
    label: str


@dataclass(slots=True, kw_only=True)
class ProgramScope:
    """One body as it is walked. Names inside a branch have the branch's name before them."""

    values: Mapping[str, ProgramValue]
    bound: dict[str, Bound] = field(default_factory=dict)
    placed: list[PlacedOp] = field(default_factory=list)
    prefix: str = ""
    depth: int = 0
    once: frozenset[str] = frozenset()  # held tensors that one call alone uses
    parts: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)  # of weights that are used in pieces

    def of(self, ref: Ref, call: ProgramCall) -> Bound:
        bound = self.bound.get(ref.name)
        if bound is None:
            raise FormatError(
                f"The call {call.name!r} ({call.target}) reads {ref.name!r}, which nothing before it makes.",
                remedy="The file is damaged: calls must stand in the order they run.",
            )
        return bound

    def value(self, ref: Ref | str, call: ProgramCall) -> ProgramValue:
        name = ref.name if isinstance(ref, Ref) else ref
        value = self.values.get(name)
        if value is None:
            raise FormatError(f"The call {call.name!r} ({call.target}) has no shape for its tensor {name!r}.")
        return value

    def make(self, name: str, call: ProgramCall) -> Tensor:
        """The tensor that a call's output is, known from here on."""
        value = self.value(name, call)
        tensor = Tensor(name=self.prefix + name, shape=value.shape, dtype=value.dtype)
        self.bound[name] = Bound(tensor=tensor)
        return tensor

    def operands(self, arguments: Argument, call: ProgramCall) -> tuple[list[Tensor], list[Tensor]]:
        """The tensors that arguments name: data that flow, and parameters that the file holds."""
        flowing: list[Tensor] = []
        stored: list[Tensor] = []
        for ref in refs_in(arguments):
            bound = self.of(ref, call)
            tensor = self._reading(bound.tensor, call) if bound.tensor.role == "state" else bound.tensor
            (stored if bound.stored else flowing).append(tensor)
            stored += bound.beside
        return flowing, stored

    def _reading(self, state: Tensor, call: ProgramCall) -> Tensor:
        """A state as an op sees it that does not change it: an op that names a state itself is taken to update it."""
        seen = Tensor(name=f"{self.prefix}{call.name}.{state.name}", shape=state.shape, dtype=state.dtype)
        op = Op(name=seen.name, kind="view", inputs=(state,), outputs=(seen,), source_type="read")
        self.placed.append(PlacedOp(op=op, path=call.path, label="read"))
        return seen

    def emit(
        self,
        call: ProgramCall,
        row: AtenRow,
        inputs: Iterable[Tensor] = (),
        weights: Iterable[Tensor] = (),
        *,
        outputs: tuple[Tensor, ...] | None = None,
    ) -> Op:
        """Put an op at the end. Its outputs are the call's unless others are given.

        A call that is several ops has a `layer` for each, which makes their names differ.
        """
        flowing, stored = tuple(inputs), tuple(weights)
        if not flowing and row.kind in _NEEDS_INPUT:
            flowing = stored[:1]  # all of it is stored: the rule still needs to see what goes in
        layer = "" if "layer" not in row.attributes else f"_l{row.attributes['layer']}"
        op = Op(
            name=f"{self.prefix}{call.name}{layer}",
            kind=row.kind,
            inputs=flowing,
            outputs=tuple(self.make(name, call) for name in call.outputs) if outputs is None else outputs,
            weights=stored,
            attributes=row.attributes,
            source_type=call.target.removesuffix(".default"),
        )
        self.placed.append(PlacedOp(op=op, path=call.path, label=base_name(call.target).strip("_") + layer))
        return op

    def plain(self, call: ProgramCall, row: AtenRow) -> Op:
        """An op whose tensors say it all: whatever the call is given goes in."""
        flowing, stored = self.operands(call.refs, call)
        return self.emit(call, row, flowing, stored)

    def whole(self, name: str, held: HeldInput, call: ProgramCall, role: Role) -> None:
        """Make a stored tensor known under the program's name for it."""
        value = self.value(name, call)
        tensor = Tensor(name=held.name, shape=value.shape, dtype=value.dtype, role=role, stored_bytes=held.stored_bytes)
        self.bound[name] = Bound(tensor=tensor, base=tensor if role not in _STORED else None)

    def inside(self, values: Mapping[str, ProgramValue], name: str) -> "ProgramScope":
        """A scope for a branch of a call."""
        return replace(
            self, values=values, bound={}, placed=[], prefix=f"{self.prefix}{name}.", depth=self.depth + 1,
            once=frozenset(),
        )  # fmt: skip


def is_in_place(call: ProgramCall) -> bool:
    name = call.target.split(".")[1] if "." in call.target else ""
    return name.endswith("_") and not name.endswith("__")


# Ops under their modules' names: `model.layers.0.mlp.up_proj` instead of `linear_4`.
#
# A module that computes one thing gives its name to it. Where it computes several, the operator's name follows; the
# second of a name is `add_1`, counted within the module, so that equal layers have equal names but for their index.

_FLOWING = frozenset({"activation", "index"})


@frozen
class NamedProgram:
    placed: tuple[PlacedOp, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def with_module_names(placed: list[PlacedOp], inputs: list[Tensor], outputs: list[Tensor]) -> NamedProgram:
    names = _op_names(placed, taken={tensor.name for tensor in inputs})
    tensors = _tensor_names(placed, names)

    def tensor(found: Tensor) -> Tensor:
        return replace(found, name=tensors.get(found.name, found.name)) if found.role in _FLOWING else found

    def placed_as(entry: PlacedOp, name: str) -> PlacedOp:
        op = replace(entry.op, name=name)
        return replace(entry, op=rewritten(op, tensor, name_of=lambda inner: f"{name}.{inner}"))

    renamed = tuple(placed_as(entry, name) for entry, name in zip(placed, names, strict=True))
    constants = _lifted(renamed)

    def weight(found: Tensor) -> Tensor:
        return replace(found, name=constants[found.name]) if found.name in constants else found

    return NamedProgram(
        placed=tuple(replace(entry, op=rewritten(entry.op, weight)) for entry in renamed) if constants else renamed,
        inputs=tuple(inputs),
        outputs=tuple(tensor(found) for found in outputs),
    )


def rewritten(op: Op, tensor: Callable[[Tensor], Tensor], *, name_of: Callable[[str], str] | None = None) -> Op:
    """The op with every tensor, those of its bodies too, passed through `tensor`; inner ops renamed by `name_of`."""
    attributes = op.attributes
    if "bodies" in attributes:
        bodies = tuple(
            tuple(
                rewritten(replace(inner, name=name_of(inner.name) if name_of else inner.name), tensor) for inner in body
            )
            for body in attributes["bodies"]
        )
        attributes = {**attributes, "bodies": bodies}
    return replace(
        op,
        inputs=tuple(tensor(found) for found in op.inputs),
        outputs=tuple(tensor(found) for found in op.outputs),
        weights=tuple(tensor(found) for found in op.weights),
        attributes=attributes,
    )


def _op_names(placed: list[PlacedOp], *, taken: set[str]) -> list[str]:
    alone = Counter(entry.path for entry in placed)
    parents: set[str] = set()
    for path in alone:
        parts = path.split(".")
        parents |= {".".join(parts[:length]) for length in range(len(parts))}
    seen: Counter[str] = Counter()
    names: list[str] = []
    for entry in placed:
        sole = entry.path and alone[entry.path] == 1 and entry.path not in parents
        stem = entry.path if sole else f"{entry.path}.{entry.label}" if entry.path else entry.label
        name = stem
        while name in taken:
            seen[stem] += 1
            name = f"{stem}_{seen[stem]}"
        taken.add(name)
        names.append(name)
    return names


def _tensor_names(placed: list[PlacedOp], names: list[str]) -> Mapping[str, str]:
    """A tensor is called like the op that makes it; of several, by its place too."""
    renamed: dict[str, str] = {}
    for entry, name in zip(placed, names, strict=True):
        several = len(entry.op.outputs) > 1
        for index, tensor in enumerate(entry.op.outputs):
            if tensor.role == "activation":
                renamed[tensor.name] = f"{name}.{index}" if several else name
    return renamed


def _lifted(placed: Iterable[PlacedOp]) -> dict[str, str]:
    """Constants that tracing has numbered, called by the op that first uses them: a layer's own, layer after layer."""
    renamed: dict[str, str] = {}
    for entry in placed:
        for weight in entry.op.weights:
            if weight.name.startswith(("lifted_tensor_", "_lifted_tensor")) and weight.role == "constant":
                renamed.setdefault(weight.name, f"{entry.op.name}.constant")
    return renamed

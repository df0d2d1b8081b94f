"""What a converter works with: the tensors that are known at a call, and the ops made so far."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Role, Tensor
from inferometer.formats.torch.program import Argument, HeldInput, ProgramCall, ProgramValue, Ref, refs_in
from inferometer.formats.torch.table import AtenRow, base_name

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
        """The tensors that arguments name: those that flow, and those that the file holds."""
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

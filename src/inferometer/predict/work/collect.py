"""The distinct ops of a graph on a device: ops that differ only in their names are one row, whatever their formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.kept import Kept
from inferometer.predict.parallel import WHOLE, Placed, Scale, message_op
from inferometer.predict.work.classes import class_of
from inferometer.predict.work.count import known_part

if TYPE_CHECKING:
    from inferometer.core.engine import RuntimeEffects


# Which ops of a block run as one kernel, and which tensors therefore never reach memory.
#
# Ops that a runtime fuses and that follow each other are one group; with `epilogues` a group may begin with a product.
# Inside a group a tensor is read from memory once, and one that only the group reads is never written.

_ANCHORS = frozenset({"linear", "matmul", "convolution", "attention", "moe_experts"})
_NUMBER_BY_NUMBER = frozenset({"elementwise", "activation", "copy", "cast"})


@frozen
class Fused:
    """What an op's group does for it: kernels it starts, and tensors it need not read or write.

    `calls` are the kernels that a host starts in the time that the op takes it. What reads a product whose bias is
    added `after` it is written by the compiler, number by number, and adds the bias too.
    """

    launches: int = 1
    calls: float = 1.0
    after: bool = False
    reads: tuple[Tensor, ...] = ()
    writes: tuple[Tensor, ...] = ()


UNFUSED = Fused()


def fuse(graph: Graph, effects: RuntimeEffects) -> list[list[Fused]]:
    """For each block, for each op. Ops that move nothing (views) start no kernel in any runtime."""
    runs = _runs(graph.blocks) if effects.fusion == "chains" else [[block] for block in graph.blocks]
    joined = [replace(run[0], ops=tuple(op for block in run for op in block.ops)) for run in runs]
    outside = _read_elsewhere(replace(graph, blocks=tuple(joined)))
    fused: list[list[Fused]] = []
    for number, run in enumerate(runs):
        each = iter(_in_block(joined[number], effects, outside[number]))
        fused += [list(islice(each, len(block.ops))) for block in run]
    return fused


def _runs(blocks: tuple[Block, ...]) -> list[list[Block]]:
    """Neighbours that run once stand together: a compiler sees ops, and not which module each is of.

    Graphs that name tensors anew in each block would have readers mistaken: those blocks stay apart.
    """
    runs: list[list[Block]] = []
    made: set[str] = set()
    for block in blocks:
        own = {tensor.name for op in block.ops for tensor in op.outputs}
        if runs and block.count == runs[-1][-1].count == 1 and made.isdisjoint(own):
            runs[-1].append(block)
            made |= own
        else:
            runs.append([block])
            made = own
    return runs


def _in_block(block: Block, effects: RuntimeEffects, outside: frozenset[str]) -> list[Fused]:
    fused = []
    for op in block.ops:
        launches, calls = _over_trips(op, effects)
        fused.append(Fused(launches=launches, calls=calls))
    roots = _roots(block.ops)
    outside = frozenset(roots.get(name, name) for name in outside)
    for group in _groups(block.ops, effects, roots):
        kept = _read_outside(block.ops, set(group), roots) | outside
        known: set[str] = set()  # in the group's hands: made or read by it
        for place, index in enumerate(group):
            op = block.ops[index]
            inputs = tuple(tensor for tensor in op.inputs if roots.get(tensor.name, tensor.name) in known)
            outputs = tuple(tensor for tensor in op.outputs if tensor.name not in kept)
            # A group is one kernel: its first op starts it, and the others run inside.
            starts = fused[index] if place == 0 else Fused(launches=0, calls=0.0)
            fused[index] = replace(starts, reads=inputs, writes=outputs)
            known |= {roots.get(tensor.name, tensor.name) for tensor in (*op.inputs, *op.outputs)}
    if effects.unbiased:
        readers: dict[str, set[str]] = {}
        for op in block.ops:
            for tensor in op.inputs if op.kind != "view" else ():
                readers.setdefault(roots.get(tensor.name, tensor.name), set()).add(op.kind)
        for index, op in enumerate(block.ops):
            name = op.outputs[0].name if op.kind == "linear" else None
            after = name in readers and name not in outside and readers[name] <= _NUMBER_BY_NUMBER
            fused[index] = replace(fused[index], after=after) if after else fused[index]
    return fused


def _over_trips(op: Op, effects: RuntimeEffects) -> tuple[int, float]:
    """A loop starts the kernels of its body at every trip, where it is known how many it makes."""
    if op.kind in {"view", "custom"}:
        return 0, 0
    trips = op.get("trips")  # of a loop
    if isinstance(trips, int):
        inner = [_over_trips(each, effects) for body in op["bodies"] for each in body]
        return max(1, trips * sum(kernels for kernels, _ in inner)), max(1, trips * sum(calls for _, calls in inner))
    return effects.kernels(op)


def _roots(ops: tuple[Op, ...]) -> dict[str, str]:
    """For each name that a view gives, the name of what it is a view of."""
    roots: dict[str, str] = {}
    for op in ops:
        if op.kind == "view" and op.inputs:
            source = op.inputs[0].name
            roots |= {tensor.name: roots.get(source, source) for tensor in op.outputs}
    return roots


def _groups(ops: tuple[Op, ...], effects: RuntimeEffects, roots: Mapping[str, str]) -> list[list[int]]:
    """Runs of two or more fusible ops, views between them left out. A member must read what the group made."""
    if effects.fusion == "none":
        return []
    groups: list[list[int]] = []
    current: list[int] = []
    for index, op in enumerate(ops):
        if op.kind == "view":
            continue
        begins = ops[current[0]] if current else None
        # A chain takes whatever may be fused and comes next; an epilogue must work on what the group has made.
        free = not current or effects.fusion == "chains"
        if effects.fuses(op, begins) and (free or _touches(ops, current, op, roots)):
            current.append(index)
            continue
        groups.append(current)
        current = [index] if effects.fusion == "epilogues" and op.kind in _ANCHORS else []
    groups.append(current)
    return [group for group in groups if len(group) > 1]


def _touches(ops: tuple[Op, ...], group: Iterable[int], op: Op, roots: Mapping[str, str]) -> bool:
    made = {tensor.name for index in group for tensor in ops[index].outputs}
    return any(roots.get(tensor.name, tensor.name) in made for tensor in op.inputs)


def _read_outside(ops: tuple[Op, ...], group: set[int], roots: Mapping[str, str]) -> set[str]:
    """Names that ops of the block outside the group read; a loop's body counts."""
    return {
        roots.get(tensor.name, tensor.name)
        for index, op in enumerate(ops)
        if index not in group and op.kind != "view"
        for inner in op.nested()
        for tensor in inner.inputs
    }


def _read_elsewhere(graph: Graph) -> list[frozenset[str]]:
    """For each block: names that other blocks, the graph's outputs or the next repetition read."""
    outputs = {tensor.name for tensor in graph.outputs}
    reads = [_not_made(block) for block in graph.blocks]
    elsewhere = []
    for number, block in enumerate(graph.blocks):
        others = set().union(*(names for index, names in enumerate(reads) if index != number))
        # In a block that runs once nothing comes from a repetition before it.
        carried = reads[number] if block.count > 1 else set()
        elsewhere.append(frozenset(outputs | others | carried))
    return elsewhere


def _not_made(block: Block) -> set[str]:
    """Names that a block reads before it makes them: of another block, or of the repetition before."""
    made: set[str] = set()
    taken: set[str] = set()
    for op in block.ops:
        taken |= {tensor.name for tensor in op.inputs if tensor.name not in made}
        made |= {tensor.name for tensor in op.outputs}
    return taken


@frozen
class OpRow:
    """One of the distinct ops of a graph."""

    op: Op
    op_class: str
    fused: Fused
    scale: Scale
    once: bool = False
    offloaded: bool = False
    part: Op | None = None  # the op as far as it can be counted
    # Shared by the rows of all graphs that have the same work under the same terms; None where nobody can tell.
    alike: object | None = field(default=None, compare=False, repr=False)

    @property
    def has_work(self) -> bool:
        """Whether some of its work is known. One that cannot be counted costs its launch: that is not nothing."""
        return self.part is not None or self.op.kind == "collective"

    @property
    def counted_whole(self) -> bool:
        """Whether all of its work is known: of a loop, also that of every op inside."""
        return self.op_class == "collective" or self.part is self.op or self.part == self.op


@frozen
class Entry:
    """An op in the order of execution, and the row that has its cost."""

    name: str
    kind: str
    block: str
    count: int
    row: int


@frozen
class CollectedRows:
    rows: tuple[OpRow, ...]
    entries: tuple[Entry, ...]
    repeats: tuple[Any, Any]  # how often each row runs: at every step, once a request
    whole: tuple[bool, ...] = field(init=False)  # whether all work of these and of those is known
    # … in the order of execution: the row of each, and how often it counts in [time, floor, operations, moved bytes]
    executed: tuple[tuple[Any, Any], ...] = field(init=False)
    travels: bool = field(init=False)  # whether anything goes over a link, between devices or from a host

    def __post_init__(self) -> None:
        whole = [all(row.counted_whole for row in self.rows if row.once == once) for once in (False, True)]
        object.__setattr__(self, "whole", tuple(whole))
        object.__setattr__(self, "executed", tuple([self._executed(once=once) for once in (False, True)]))
        travels = any(row.op_class == "collective" or row.offloaded for row in self.rows)
        object.__setattr__(self, "travels", travels)

    def _executed(self, *, once: bool) -> tuple[Any, Any]:
        entries = [entry for entry in self.entries if self.rows[entry.row].once == once]
        counted = [entry.count * self.rows[entry.row].has_work for entry in entries]
        # What goes over links is no traffic of the memory.
        moving = [count * (entry.kind != "collective") for entry, count in zip(entries, counted, strict=True)]
        counts = np.array([[entry.count for entry in entries], counted, counted, moving], dtype=float)
        return np.array([entry.row for entry in entries], dtype=int), counts


def collect(
    graph: Graph,
    placed: list[list[Placed]],
    effects: RuntimeEffects,
    *,
    unknown: frozenset[str] = frozenset(),
    offloaded: frozenset[tuple[int, int]] = frozenset(),
) -> CollectedRows:
    """`unknown` are sizes that the data decides, `offloaded` the places (block, op) whose weights lie elsewhere."""
    collector = _Collector(unknown=unknown, tokens=_tokens.get_or_make((), (graph,), lambda: _Tokens.of(graph)))
    fused = fuse(graph, effects)
    for number, block in enumerate(graph.blocks):
        for index, entry in enumerate(placed[number]):
            row = OpRow(
                op=entry.op,
                op_class=class_of(entry.op),
                fused=fused[number][index],
                scale=entry.scale,
                once=bool(entry.op.get("once")),
                offloaded=(number, index) in offloaded,
            )
            collector.add(block, row, block.count)
            for message in entry.messages:
                op = message_op(entry.op, message)
                sent = OpRow(op=op, op_class="collective", fused=UNFUSED, scale=WHOLE, once=row.once)
                collector.add(block, sent, block.count if message.count is None else message.count)
    rows, entries = tuple(collector.rows), tuple(collector.entries)
    return CollectedRows(rows=rows, entries=entries, repeats=_repeats(rows, entries))


# A thousand networks of timm have some 70,000 distinct ops, and a signature takes some 1 kB.
_signatures, _alike = Kept(20_000), Kept(20_000)
_tokens = Kept(64)  # by graph: one is collected for an engine after the other


@frozen
class _Tokens:
    """What stands for the signatures of a graph's ops: signatures are long, and each collection asks for all of them.

    Ops that are not the graph's own (shares of them, messages) are looked up by their signature.
    """

    by_op: Mapping[int, object]
    by_signature: dict[Any, object]

    @classmethod
    def of(cls, graph: Graph) -> _Tokens:
        tokens = cls(by_op={}, by_signature={})
        return replace(tokens, by_op={id(op): tokens.token(op) for block in graph.blocks for op in block.ops})

    def token(self, op: Op) -> object:
        token = self.by_op.get(id(op))
        if token is None:
            signature = _signature(op)
            token = self.by_signature.get(signature)
            if token is None:
                token = _signatures.get_or_make(signature, (), object)
                token = self.by_signature.setdefault(signature, token)
        return token


@dataclass(slots=True)
class _Collector:
    unknown: frozenset[str]
    tokens: _Tokens
    rows: list[OpRow] = field(default_factory=list)
    places: dict[Any, int] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)

    def add(self, block: Block, row: OpRow, count: int) -> None:
        op = row.op
        key = (
            self.tokens.token(op),
            row.fused.launches,
            row.fused.after,
            tuple(tuple(tensor.shape for tensor in side) for side in (row.fused.reads, row.fused.writes)),
            row.scale,
            row.offloaded,
        )
        place = self.places.setdefault(key, len(self.rows))
        if place == len(self.rows):
            part = known_part(op, self.unknown)
            # Networks of a family are made of the same ops: what is counted for one holds for the others.
            alike = _alike.get_or_make(key, (), object) if part is op else None
            self.rows.append(replace(row, part=part, alike=alike))
        name = block.full_name(op.name)
        self.entries.append(Entry(name=name, kind=op.kind, block=block.name, count=count, row=place))


def _signature(op: Op) -> Any:
    """What an op's cost depends on: all but its names. Inputs that are the same tensor are read once."""
    inputs = [tensor.name for tensor in op.inputs]
    return (
        op.kind,
        tuple(inputs.index(name) for name in inputs),
        *(
            tuple((tensor.shape, tensor.dtype, tensor.role, tensor.stored_bytes) for tensor in tensors)
            for tensors in (op.inputs, op.outputs, op.weights)
        ),
        _frozen(op.attributes),
    )


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((key, _frozen(inner)) for key, inner in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(_frozen(inner) for inner in value)
    try:
        hash(value)
    except TypeError:
        return _Alone(value)
    return value


@dataclass(slots=True, eq=False)
class _Alone:
    """An attribute that cannot be hashed is equal to nothing: such an op is a row alone, which costs time, no truth."""

    value: Any


def _repeats(rows: tuple[OpRow, ...], entries: tuple[Entry, ...]) -> tuple[Any, Any]:
    # Two counts a row, since an encoder runs once a request and a decoder at every step, and one row may stand in both.
    repeats = np.zeros((2, len(rows)))
    for entry in entries:
        repeats[int(rows[entry.row].once), entry.row] += entry.count
    return repeats[0], repeats[1]

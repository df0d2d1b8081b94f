"""The distinct ops of a graph on a device: ops that differ only in their names are one row, whatever their formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.graph import Op
from inferometer.predict.parallel import WHOLE, Placed, Scale, message_op
from inferometer.predict.work.classes import class_of
from inferometer.predict.work.count import known_part
from inferometer.predict.work.fusion import UNFUSED, Fused, fuse

if TYPE_CHECKING:
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Block, Graph


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
class Collected:
    rows: tuple[OpRow, ...]
    entries: tuple[Entry, ...]
    repeats: tuple[Any, Any]  # how often each row runs: at every step, once a request


def collect(
    graph: Graph,
    placed: list[list[Placed]],
    effects: RuntimeEffects,
    *,
    unknown: frozenset[str] = frozenset(),
    offloaded: frozenset[tuple[int, int]] = frozenset(),
) -> Collected:
    """`unknown` are sizes that the data decides, `offloaded` the places (block, op) whose weights lie elsewhere."""
    collector = _Collector(unknown=unknown)
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
    return Collected(rows=rows, entries=entries, repeats=_repeats(rows, entries))


@dataclass(slots=True)
class _Collector:
    unknown: frozenset[str]
    rows: list[OpRow] = field(default_factory=list)
    places: dict[Any, int] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)

    def add(self, block: Block, row: OpRow, count: int) -> None:
        op = row.op
        key = (_signature(op), row.fused.launches, _names(row.fused), row.scale, row.offloaded)
        place = self.places.setdefault(key, len(self.rows))
        if place == len(self.rows):
            self.rows.append(replace(row, part=known_part(op, self.unknown)))
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
        return id(value)
    return value


def _names(fused: Fused) -> Any:
    return tuple(tuple(tensor.shape for tensor in side) for side in (fused.reads, fused.writes))


def _repeats(rows: tuple[OpRow, ...], entries: tuple[Entry, ...]) -> tuple[Any, Any]:
    repeats = np.zeros((2, len(rows)))
    for entry in entries:
        repeats[int(rows[entry.row].once), entry.row] += entry.count
    return repeats[0], repeats[1]

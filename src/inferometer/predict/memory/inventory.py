"""A model's inventory: what each layer is, holds, computes and moves, and what all of them need together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from inferometer.core.dims import symbols_in
from inferometer.core.frozen import frozen
from inferometer.core.sizes import OpenSize, open_sizes
from inferometer.core.work import Work
from inferometer.known.formulas.memory import arithmetic_intensity
from inferometer.predict.memory.footprint import Footprint, footprint
from inferometer.predict.work.count import Coverage, coverage, graph_work, known_part, unknown_sizes, with_formats
from inferometer.predict.work.rules import work_of

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.graph import Block, Graph, Op


@frozen
class LayerRow:
    """One op, or `count` equal ones; `parameters`, `flops` and `bytes` are of all of them together."""

    name: str
    kind: str
    block: str
    count: int
    shape: tuple[int | str, ...]  # of the output
    parameters: int
    flops: int | float | None  # None where a size of it is open
    bytes: int | float | None
    intensity: float | None  # FLOP per byte; None where nothing moves
    weights: str | None  # how its largest weight is stored


@frozen
class Inventory:
    name: str
    architecture: str | None
    parameters: int
    weight_bytes: int
    flops: int | float | None  # None where a size is open
    bytes: int | float | None
    footprint: Footprint | None
    coverage: Coverage
    layers: tuple[LayerRow, ...]
    bytes_by_format: Mapping[str, int] = field(default_factory=dict)  # weights as stored
    sizes: Mapping[str, int] = field(default_factory=dict)
    open: tuple[OpenSize, ...] = ()  # sizes of the inputs that the binding does not have
    notes: tuple[str, ...] = ()  # of the reader, such as that a file has no template


def inventory(graph: Graph, binding: Binding) -> Inventory:
    """Count everything once, at the sizes of the binding. Where sizes are open, what depends on them is None."""
    bound = with_formats(graph, binding)
    left = tuple(size for size in open_sizes(graph) if size.name not in binding.sizes)
    work = None if left else graph_work(graph, binding)
    by_format = _bytes_by_format(graph, bound)
    return Inventory(
        name=graph.name,
        architecture=graph.architecture,
        parameters=graph.parameters,
        weight_bytes=sum(by_format.values()),
        flops=None if work is None else work.total_flops,
        bytes=None if work is None else work.bytes,
        footprint=None if left else footprint(graph, binding),
        coverage=coverage(graph, binding),
        layers=_layers(graph, bound, frozenset(size.name for size in left)),
        bytes_by_format=by_format,
        sizes=dict(binding.sizes),
        open=left,
        notes=tuple(graph.metadata.get("notes", ())),
    )


def _layers(graph: Graph, bound: Binding, left: frozenset[str]) -> tuple[LayerRow, ...]:
    """`left` are the sizes that are open: an op that has one gets no work."""
    seen: set[str] = set()  # a tied weight is counted where it first stands
    layers = []
    unknown = unknown_sizes(graph, bound)
    for block, op in graph.ops():
        part = known_part(op, unknown)
        work = None if op.symbols & left else work_of(part, bound) if part else Work()
        weights = [tensor for tensor in op.weights if tensor.role == "weight"]
        stored_as = bound.format(max(weights, key=bound.nbytes)).name if weights else None
        layers.append(
            LayerRow(
                name=block.full_name(op.name),
                kind=op.kind,
                block=block.name,
                count=block.count,
                shape=_shape(op, bound),
                parameters=_parameters(block, op, seen),
                flops=None if work is None else block.count * work.total_flops,
                bytes=None if work is None else block.count * work.bytes,
                intensity=arithmetic_intensity(flops=work.total_flops, bytes=work.bytes)
                if work is not None and work.bytes
                else None,
                weights=stored_as,
            )
        )
    return tuple(layers)


def _parameters(block: Block, outer: Op, seen: set[str]) -> int:
    total = 0
    for tensor in (tensor for op in outer.nested() for tensor in op.weights if tensor.role == "weight"):
        name = block.full_name(tensor.name)
        if name not in seen and isinstance(tensor.elements, int):
            total += tensor.elements * (block.count if "{}" in tensor.name else 1)
        seen.add(name)
    return total


def _shape(op: Op, bound: Binding) -> tuple[int | str, ...]:
    """The output's shape; a size that the data decides stays a name."""
    if not op.outputs:
        return ()
    known = set(bound.sizes)
    return tuple(int(bound.size(dim)) if symbols_in(dim) <= known else str(dim) for dim in op.outputs[0].shape)


def _bytes_by_format(graph: Graph, bound: Binding) -> dict[str, int]:
    """Bytes of weights and stored constants, by the format they are stored in, largest first."""
    totals: dict[str, int] = {}
    for tensor, times in graph.weights():
        if not tensor.symbols:
            name = bound.format(tensor).name
            totals[name] = totals.get(name, 0) + times * int(bound.nbytes(tensor))
    return dict(sorted(totals.items(), key=lambda item: -item[1]))

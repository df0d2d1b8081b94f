"""A model's inventory: what each layer is, holds, computes and moves, and what all of them need together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from inferometer.core.dims import symbols_in
from inferometer.core.frozen import frozen
from inferometer.cost.memory.footprint import Footprint, footprint
from inferometer.cost.work.count import Coverage, coverage, graph_work, op_works, with_formats
from inferometer.formulas.memory import arithmetic_intensity

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.graph import Block, Graph, Op


@frozen
class Layer:
    """One op, or `count` equal ones; `parameters`, `flops` and `bytes` are of all of them together."""

    name: str
    kind: str
    block: str
    count: int
    shape: tuple[int | str, ...]  # of the output
    parameters: int
    flops: int | float
    bytes: int | float
    intensity: float | None  # FLOP per byte; None where nothing moves
    weights: str | None  # how its largest weight is stored


@frozen
class Inventory:
    name: str
    architecture: str | None
    parameters: int
    weight_bytes: int
    flops: int | float
    bytes: int | float
    footprint: Footprint
    coverage: Coverage
    layers: tuple[Layer, ...]
    bytes_by_format: Mapping[str, int] = field(default_factory=dict)  # weights as stored
    sizes: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # of the reader, such as that a file has no template


def inventory(graph: Graph, binding: Binding) -> Inventory:
    """Count everything once, at the sizes of the binding."""
    bound = with_formats(graph, binding)
    work = graph_work(graph, binding)
    by_format = _bytes_by_format(graph, bound)
    return Inventory(
        name=graph.name,
        architecture=graph.architecture,
        parameters=graph.parameters,
        weight_bytes=sum(by_format.values()),
        flops=work.total_flops,
        bytes=work.bytes,
        footprint=footprint(graph, binding),
        coverage=coverage(graph, binding),
        layers=_layers(graph, bound),
        bytes_by_format=by_format,
        sizes=dict(binding.sizes),
        notes=tuple(graph.metadata.get("notes", ())),
    )


def _layers(graph: Graph, bound: Binding) -> tuple[Layer, ...]:
    seen: set[str] = set()  # a tied weight is counted where it first stands
    return tuple(
        Layer(
            name=block.full_name(op.name),
            kind=op.kind,
            block=block.name,
            count=block.count,
            shape=_shape(op, bound),
            parameters=_parameters(block, op, seen),
            flops=block.count * work.total_flops,
            bytes=block.count * work.bytes,
            intensity=arithmetic_intensity(flops=work.total_flops, bytes=work.bytes) if work.bytes else None,
            weights=_stored_as(op, bound),
        )
        for block, op, work in op_works(graph, bound)
    )


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


def _stored_as(op: Op, bound: Binding) -> str | None:
    weights = [tensor for tensor in op.weights if tensor.role == "weight"]
    return bound.format(max(weights, key=bound.nbytes)).name if weights else None


def _bytes_by_format(graph: Graph, bound: Binding) -> dict[str, int]:
    """Bytes of weights and stored constants, by the format they are stored in, largest first."""
    totals: dict[str, int] = {}
    for tensor, times in graph.weights():
        if not tensor.symbols:
            name = bound.format(tensor).name
            totals[name] = totals.get(name, 0) + times * int(bound.nbytes(tensor))
    return dict(sorted(totals.items(), key=lambda item: -item[1]))

"""A graph, a device and a runtime brought together, and kept: what `predict`, `fit` and sweeps start from.

Making a graph ready takes milliseconds, pricing it microseconds; what was made ready is kept for the next time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.workload import Parallel, Precision
from inferometer.cost.count import coverage
from inferometer.cost.parallel import is_layer, layer_count, place
from inferometer.cost.plan import Plan, plan_of
from inferometer.cost.precision import resolved_precision, with_overrides
from inferometer.cost.prepare import SYMBOLIC, prepare
from inferometer.cost.residency import Residency, residency_of
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.graph import Block, Graph
    from inferometer.core.workload import Workload
    from inferometer.cost.effects import RuntimeEffects
    from inferometer.cost.options import Offload, Options

__all__ = ["Ready", "fixed_sizes", "is_generative", "make_ready"]

_KEPT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """`active_parameters` are those that one token uses: all but the experts it does not visit."""

    graph: Graph
    precision: Precision
    plan: Plan
    residency: Residency
    generative: bool
    encodes: bool  # part of the graph runs once a request
    parameters: int
    active_parameters: int
    weight_bytes: int
    notes: tuple[str, ...]


_cache: OrderedDict[Any, tuple[Any, Ready]] = OrderedDict()


def make_ready(
    graph: Graph,
    device: Device,
    *,
    effects: RuntimeEffects,
    workload: Workload,
    options: Options,
    calibration: Calibration | None = None,
) -> Ready:
    """The same arguments give the same value, without the work; equal ones are told by identity or by value."""
    fixed = fixed_sizes(graph, workload, options)
    key = (
        id(graph), device.name, effects.name, workload.precision, workload.parallel, tuple(sorted(fixed.items())),
        tuple(sorted(options.overrides.items())), options.offload, options.overlap, options.imbalance,
        options.sequence_parallel, options.link and options.link.name, id(calibration),
    )  # fmt: skip
    given = (graph, device, effects, calibration, options.link)
    if key in _cache and _same(_cache[key][0], given):
        _cache.move_to_end(key)
        return _cache[key][1]
    made = _make(graph, device, effects, workload, options, calibration, fixed)
    _cache[key] = (given, made)
    while len(_cache) > _KEPT:
        _cache.popitem(last=False)
    return made


def _same(kept: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    return kept[0] is given[0] and all(one is two or one == two for one, two in zip(kept, given, strict=True))


def fixed_sizes(graph: Graph, workload: Workload, options: Options) -> dict[str, int]:
    """Sizes that are not batch, query, context or logits: the model's own suggestion, unless asked for otherwise."""
    sizes = {name: size for name, size in graph.metadata.get("default_sizes", {}).items() if name not in SYMBOLIC}
    if workload.image is not None:
        sizes |= dict.fromkeys(("image", "height", "width"), workload.image)
    if workload.prompt is not None and "encoder" in sizes:
        sizes["encoder"] = workload.prompt
    return sizes | dict(options.sizes)


def _make(
    graph: Graph,
    device: Device,
    effects: RuntimeEffects,
    workload: Workload,
    options: Options,
    calibration: Calibration | None,
    fixed: Mapping[str, Any],
) -> Ready:
    if options.overrides:
        graph = with_overrides(graph, options.overrides)
    graph, offloaded = _offloaded(graph, options.offload)
    precision = resolved_precision(graph, workload.precision)
    placed = place(graph, workload.parallel, sequence=options.sequence_parallel, imbalance=options.imbalance)
    prepared = prepare(
        graph, precision=precision, effects=effects, placed=placed, fixed=fixed, offloaded=offloaded
    )
    residency = residency_of(
        graph, precision=precision, fixed=fixed, placed=placed, stages=workload.parallel.pp, offloaded=offloaded
    )
    plan = plan_of(
        prepared,
        device,
        weights_bytes=residency.weights_bytes,
        calibration=calibration,
        link=options.link,
        overlap=options.overlap,
    )
    whole = residency if workload.parallel == Parallel() and not offloaded else _whole(graph, precision, fixed)
    return Ready(
        graph=graph,
        precision=precision,
        plan=plan,
        residency=residency,
        generative=is_generative(graph),
        encodes=any(row.once for row in prepared.rows),
        parameters=graph.parameters,
        active_parameters=_active(graph),
        weight_bytes=round(whole.weights_bytes),
        notes=(*plan.notes, *_uncovered(graph)),
    )


def _whole(graph: Graph, precision: Precision, fixed: Mapping[str, Any]) -> Residency:
    return residency_of(graph, precision=precision, fixed=fixed, placed=place(graph, Parallel()))


def is_generative(graph: Graph) -> bool:
    """Whether the graph makes tokens one after the other: it keeps a cache, or a state between steps."""
    for _, op in graph.ops():
        if op.kind == "attention" and op.get("cached"):
            return True
        if any(tensor.role in {"kv", "state"} for tensor in (*op.inputs, *op.outputs)):
            return "query" in graph.symbols
    return False


def _active(graph: Graph) -> int:
    idle = 0
    for block, op in graph.ops():
        if op.kind == "moe_experts":
            idle += block.count * op.parameters * (op["experts"] - op["top_k"]) // op["experts"]
    return graph.parameters - idle


def _uncovered(graph: Graph) -> tuple[str, ...]:
    found = coverage(graph)
    if not found.uncovered:
        return ()
    kinds = ", ".join(sorted({entry.source_type or entry.kind for entry in found.uncovered}))
    missing = found.ops - found.covered
    return (f"{missing} of {found.ops} ops are not in the prediction, because their work is not known: {kinds}.",)


def _offloaded(graph: Graph, offload: Offload | None) -> tuple[Graph, frozenset[tuple[int, int]]]:
    """The graph with the offloaded layers in blocks of their own, and the places of the ops whose weights lie away."""
    if offload is None or (not offload.layers and not offload.experts):
        return graph, frozenset()
    if offload.layers > layer_count(graph):
        raise DomainError(f"{offload.layers} layers were to be offloaded; {graph.name} has {layer_count(graph)}.")
    blocks, away = _cut(graph, offload.layers)
    places = {
        (number, index)
        for number, block in enumerate(blocks)
        for index, op in enumerate(block.ops)
        if op.weights and (number in away or (offload.experts and op.kind == "moe_experts"))
    }
    if not places:
        raise DomainError(f"{graph.name} has no weights that could be offloaded that way.")
    return replace(graph, blocks=tuple(blocks)), frozenset(places)


def _cut(graph: Graph, layers: int) -> tuple[list[Block], set[int]]:
    """Cut the last layers off their blocks. Returns the blocks and the numbers of those that were cut off."""
    parts: list[tuple[Block, bool]] = []
    left = layers
    for block in reversed(graph.blocks):
        taken = min(left, block.count) if is_layer(block) else 0
        left -= taken
        if taken:
            parts.append((replace(block, count=taken, first=block.first + block.count - taken), True))
        if taken < block.count:
            parts.append((replace(block, count=block.count - taken), False))
    parts.reverse()
    return [block for block, _ in parts], {number for number, (_, away) in enumerate(parts) if away}

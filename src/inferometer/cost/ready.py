"""A graph, a device and a runtime brought together, and kept: what `predict`, `fit` and sweeps start from.

Making a graph ready takes milliseconds, pricing it microseconds; what was made ready is kept for the next time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from inferometer.core.graph import Graph
from inferometer.core.workload import Parallel, Precision
from inferometer.cost.count import coverage
from inferometer.cost.parallel import is_layer, layer_count, place
from inferometer.cost.plan import Plan, plan_of
from inferometer.cost.precision import UNSTATED, resolved_precision, with_overrides
from inferometer.cost.prepare import SYMBOLIC, Prepared, Terms, prepare
from inferometer.cost.residency import Residency, residency_of
from inferometer.cost.substitute import with_sizes
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.graph import Block
    from inferometer.core.workload import Workload
    from inferometer.cost.effects import RuntimeEffects
    from inferometer.cost.options import Offload, Options

__all__ = ["Layout", "Ready", "fixed_sizes", "is_generative", "make_layout", "make_ready"]

_MOST_KEPT = 256
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What holds on every device: the graph as it is run, its work and its memory.

    `active_parameters` are those that one token uses: all but the experts it does not visit.
    """

    graph: Graph
    precision: Precision
    prepared: Prepared
    residency: Residency
    generative: bool
    encodes: bool  # part of the graph runs once a request
    parameters: int
    active_parameters: int
    weight_bytes: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A layout on a device."""

    layout: Layout
    plan: Plan
    notes: tuple[str, ...]

    @property
    def graph(self) -> Graph:
        return self.layout.graph

    @property
    def residency(self) -> Residency:
        return self.layout.residency

    @property
    def generative(self) -> bool:
        return self.layout.generative


_lock = Lock()  # a server asks from several threads


class _Kept(OrderedDict[Any, tuple[tuple[Any, ...], Any]]):
    """The last values made, each with what it was made of: a key that fits by chance does not count."""

    def get_or_make(self, key: Any, parts: tuple[Any, ...], make: Callable[[], T]) -> T:
        with _lock:
            if key in self and _same(self[key][0], parts):
                self.move_to_end(key)
                found: T = self[key][1]
                return found
        made = make()
        with _lock:
            self[key] = (parts, made)
            while len(self) > _MOST_KEPT:
                self.popitem(last=False)
        return made


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """The first part by identity, since it is large; the others by value."""
    return one[0] is other[0] and all(a is b or a == b for a, b in zip(one[1:], other[1:], strict=True))


_layouts, _plans = _Kept(), _Kept()


def make_ready(  # noqa: PLR0913 - what a prediction depends on
    graph: Graph,
    device: Device,
    *,
    effects: RuntimeEffects,
    workload: Workload,
    options: Options,
    calibration: Calibration | None = None,
) -> Ready:
    """The same arguments give the same value, without the work. Graphs are told apart by identity: keep them."""
    layout = make_layout(graph, effects=effects, workload=workload, options=options)
    key = (id(layout), device.name, options.overlap, options.link and options.link.name, id(calibration))

    def make() -> Ready:
        plan = plan_of(
            layout.prepared,
            device,
            weights_bytes=layout.residency.weights_bytes,
            calibration=calibration,
            link=options.link,
            overlap=options.overlap,
        )
        return Ready(layout=layout, plan=plan, notes=(*plan.notes, *layout.notes))

    return _plans.get_or_make(key, (layout, device, calibration, options.link), make)


def make_layout(graph: Graph, *, effects: RuntimeEffects, workload: Workload, options: Options) -> Layout:
    fixed = fixed_sizes(graph, workload, options)
    key = (
        id(graph), effects.name, workload.precision, workload.parallel, tuple(sorted(fixed.items())),
        tuple(sorted(options.overrides.items())), options.offload, options.imbalance, options.sequence_parallel,
    )  # fmt: skip
    return _layouts.get_or_make(key, (graph, effects), lambda: _layout(graph, effects, workload, options, fixed))


def fixed_sizes(graph: Graph, workload: Workload, options: Options) -> dict[str, int]:
    """Sizes that are not batch, query, context or logits: the model's own suggestion, unless asked for otherwise."""
    sizes = {name: size for name, size in graph.metadata.get("default_sizes", {}).items() if name not in SYMBOLIC}
    if workload.image is not None:
        sizes |= dict.fromkeys(("image", "height", "width"), workload.image)
    if workload.prompt is not None and "encoder" in sizes:
        sizes["encoder"] = workload.prompt
    return sizes | dict(options.sizes)


def _layout(
    graph: Graph, effects: RuntimeEffects, workload: Workload, options: Options, fixed: Mapping[str, Any]
) -> Layout:
    graph = with_sizes(graph, fixed)
    if options.overrides:
        graph = with_overrides(graph, options.overrides)
    graph, offloaded = _offloaded(graph, options.offload)
    precision, parallel = resolved_precision(graph, workload.precision), workload.parallel
    placed = place(graph, parallel, sequence=options.sequence_parallel, imbalance=options.imbalance)
    terms = Terms(precision=precision, effects=effects, fixed=fixed, stages=parallel.pp, offloaded=offloaded)
    prepared = prepare(graph, placed, terms)
    residency = residency_of(graph, placed, terms)
    whole = residency
    if parallel != Parallel() or offloaded:
        whole = residency_of(graph, place(graph, Parallel()), replace(terms, stages=1, offloaded=frozenset()))
    return Layout(
        graph=graph,
        precision=precision,
        prepared=prepared,
        residency=residency,
        generative=is_generative(graph),
        encodes=any(row.once for row in prepared.rows),
        parameters=graph.parameters,
        active_parameters=_active(graph),
        weight_bytes=round(whole.weights_bytes),
        notes=(*_unstated(graph, workload.precision), *_uncovered(graph)),
    )


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


def _unstated(graph: Graph, asked: Precision) -> tuple[str, ...]:
    if graph.precision is not None or (asked.weights and asked.activations):
        return ()
    return (f"{graph.name} names no number format; what was not asked for is {UNSTATED}.",)


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

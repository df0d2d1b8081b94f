"""A graph, a device and a runtime brought together, and kept: what `predict`, `fit` and sweeps start from.

Making a graph ready takes milliseconds, pricing it microseconds; what was made ready is kept for the next time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from inferometer.core.binding import Binding
from inferometer.core.dtypes import dtype
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, is_generative, require_layers
from inferometer.core.kept import Kept
from inferometer.core.profile import ModelFacts
from inferometer.core.sizes import require_room, require_sizes
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.predict.memory.residency import Residency, passing_of, residency_of, weights_of
from inferometer.predict.options import Offload, Options
from inferometer.predict.parallel import Placed, is_layer, layer_count, place
from inferometer.predict.precision import UNSTATED, resolved_precision, weight_formats, with_overrides
from inferometer.predict.price.deviations import effect_key
from inferometer.predict.price.hosts import host_speed_of, host_spread_of
from inferometer.predict.price.plan import PricePlan, plan_of
from inferometer.predict.price.variants import variants_asked
from inferometer.predict.work.collect import collect
from inferometer.predict.work.count import coverage, unknown_sizes
from inferometer.predict.work.merge import as_loaded, folded, with_sizes
from inferometer.predict.work.polynomial import SYMBOLIC, Memo
from inferometer.predict.work.prepare import PreparedWork, Terms, prepare

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects


# Numbers from outside are checked once, before anything is computed with them: NaN would pass every comparison.


def require_finite(value: Any, name: str) -> None:
    """Every number inside a value is finite and not below 0, or the error says which one is not. `name` is the value's.

    Rates, sizes, times and prices are never below 0, and devices, runtimes and calibrations hold nothing else.
    """
    if isinstance(value, float) and not (isfinite(value) and value >= 0):
        raise DomainError(f"{name} is {value!r}.", remedy="Give a number of 0 or more, or leave it out.")
    if is_dataclass(value):
        for entry in fields(value):
            inner = getattr(value, entry.name)
            require_finite(inner, name if entry.name == "value" else f"{name}: {entry.name}")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            require_finite(inner, f"{name} {key}")
    elif isinstance(value, tuple):
        # Tables have tens of thousands of plain numbers, which are looked at together.
        if {*map(type, value)} == {float} and all(map(isfinite, value)) and min(value) >= 0:
            return
        for inner in value:
            require_finite(inner, name)


@frozen
class Layout:
    """What holds on every device: the graph as it is run, its work and its memory.

    `active_parameters` are used by one token: all but the experts that it does not visit.
    """

    graph: Graph
    precision: Precision
    prepared: PreparedWork
    residency: Residency
    generative: bool
    encodes: bool  # part of the graph runs once a request
    parameters: int
    active_parameters: int
    weight_bytes: int
    model: str  # what others' measurements of it are known by
    facts: ModelFacts
    notes: tuple[str, ...]


@frozen
class ReadyGraph:
    """A layout on a device."""

    layout: Layout
    plan: PricePlan
    notes: tuple[str, ...]

    @property
    def graph(self) -> Graph:
        return self.layout.graph

    @property
    def effects(self) -> RuntimeEffects:
        return self.layout.prepared.effects

    @property
    def residency(self) -> Residency:
        return self.layout.residency

    @property
    def generative(self) -> bool:
        return self.layout.generative


# A sweep comes back to all of its graphs and devices: what they became is kept up to some tens of megabytes, by rows.
_graphs, _passing, _collections, _checked = Kept(256), Kept(1024), Kept(1024), Kept(4096)
_layouts = Kept(100_000, weigh=lambda layout: len(layout.prepared.rows))
_plans = Kept(400_000, weigh=lambda ready: len(ready.plan.prepared.rows))


def make_ready(  # noqa: PLR0913 - what a prediction depends on
    graph: Graph,
    device: Device,
    *,
    effects: RuntimeEffects,
    workload: Workload,
    options: Options,
    calibration: Calibration | None = None,
) -> ReadyGraph:
    """The same arguments give the same value, without the work. Graphs are recognised by identity: keep them."""
    layout = make_layout(graph, effects=effects.at(device), workload=workload, options=options)
    return on_device(layout, device, options=options, calibration=calibration)


def on_device(
    layout: Layout, device: Device, *, options: Options, calibration: Calibration | None = None
) -> ReadyGraph:
    """As `make_ready`, for a layout that already exists."""
    speed, doubt = host_speed_of(options, calibration), host_spread_of(options)
    # A calibration was made with its own threads and layout: what published tables say of others does not hold on it.
    variants = () if calibration is not None else variants_asked(options, device)
    key = (device.name, options.overlap, options.link and options.link.name, speed, doubt, variants)

    def make() -> ReadyGraph:
        effects = layout.prepared.effects
        named = {device.name: device, effects.name: effects, "the calibration": calibration, "the link": options.link}
        for name, part in named.items():
            # Once for each value and not for each plan: walking through a device's row takes as long as pricing a step.
            _checked.get_or_make((), (part,), partial(require_finite, part, name))
        plan = plan_of(
            layout.prepared,
            device,
            weights_bytes=layout.residency.weights_bytes,
            calibration=calibration,
            link=options.link,
            overlap=options.overlap,
            model=layout.model,
            host_speed=speed,
            host_spread=doubt,
            variants=variants,
        )
        return ReadyGraph(layout=layout, plan=plan, notes=(*plan.notes, *layout.notes))

    return _plans.get_or_make(key, (layout, calibration), make, alike=(device, options.link))


def make_layout(graph: Graph, *, effects: RuntimeEffects, workload: Workload, options: Options) -> Layout:
    graph = as_loaded(graph, effects, workload.precision)
    fixed = fixed_sizes(graph, workload, options)
    key = (
        workload.precision, workload.parallel, tuple(sorted(fixed.items())), tuple(sorted(options.overrides.items())),
        options.offload, options.imbalance, options.sequence_parallel, workload.image,
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


@frozen
class _Shaped:
    """A graph with its fixed sizes put in and its offloaded layers cut off: the same for all runtimes and formats."""

    graph: Graph
    offloaded: frozenset[tuple[int, int]]
    parameters: int
    active_parameters: int
    uncovered: tuple[str, ...]
    unknown: frozenset[str]
    memo: Memo


def _shaped(graph: Graph, options: Options, fixed: Mapping[str, Any]) -> _Shaped:
    key = (tuple(sorted(fixed.items())), tuple(sorted(options.overrides.items())), options.offload)

    def make() -> _Shaped:
        sized = with_sizes(graph, fixed)
        require_room(sized, fixed)
        if options.overrides:
            sized = with_overrides(sized, options.overrides)
        cut, offloaded = _offloaded(sized, options.offload)
        return _Shaped(
            graph=cut,
            offloaded=offloaded,
            parameters=cut.parameters,
            active_parameters=cut.active_parameters,
            uncovered=_uncovered(cut),
            unknown=unknown_sizes(cut, Binding()),
            memo=Memo(),
        )

    return _graphs.get_or_make(key, (graph,), make)


@frozen
class _Counted:
    """A graph's work under some terms, and what it was counted with."""

    shaped: _Shaped
    placed: list[list[Placed]]
    terms: Terms
    prepared: PreparedWork


def make_prepared(graph: Graph, *, effects: RuntimeEffects, workload: Workload) -> PreparedWork:
    """The work alone, without what it takes of memory: half the time, for those who ask for thousands of graphs."""
    return _counted(graph, effects, workload, Options(), fixed_sizes(graph, workload, Options())).prepared


def _counted(
    whole: Graph, effects: RuntimeEffects, workload: Workload, options: Options, fixed: Mapping[str, Any]
) -> _Counted:
    require_layers(whole)
    require_sizes(whole, (*SYMBOLIC, *fixed))
    shaped = _shaped(folded(whole, effects), options, fixed)
    graph, parallel = shaped.graph, workload.parallel
    placed = place(graph, parallel, sequence=options.sequence_parallel, imbalance=options.imbalance)
    terms = Terms(
        precision=resolved_precision(graph, workload.precision),
        effects=effects,
        stages=parallel.pp,
        offloaded=shaped.offloaded,
        memo=shaped.memo,
    )
    collected = _collections.get_or_make(
        (parallel, options.sequence_parallel, options.imbalance),
        (graph, effects),
        lambda: collect(graph, placed, effects, unknown=shaped.unknown, offloaded=shaped.offloaded),
    )
    return _Counted(
        shaped=shaped, placed=placed, terms=terms, prepared=prepare(graph, placed, terms, collected=collected)
    )


def _layout(
    whole: Graph, effects: RuntimeEffects, workload: Workload, options: Options, fixed: Mapping[str, Any]
) -> Layout:
    counted = _counted(whole, effects, workload, options, fixed)
    shaped, placed, terms = counted.shaped, counted.placed, counted.terms
    graph, parallel, precision = shaped.graph, workload.parallel, terms.precision
    passing = _passing.get_or_make(
        (parallel, options.sequence_parallel, options.imbalance, precision.activations, precision.kv),
        (graph,),
        lambda: passing_of(graph, placed, terms),
    )
    residency = residency_of(graph, placed, terms, passing=passing)
    stored = residency.weights_bytes
    # What the file holds is asked for whole, wherever its parts are put.
    if parallel != Parallel() or shaped.offloaded:
        alone = replace(terms, stages=1, offloaded=frozenset())
        stored, _ = weights_of(graph, place(graph, Parallel()), alone)
    prepared = counted.prepared
    _require_known_work(graph, prepared)
    return Layout(
        graph=graph,
        precision=precision,
        prepared=prepared,
        residency=residency,
        generative=is_generative(graph),
        encodes=any(row.once for row in prepared.rows),
        parameters=shaped.parameters,
        active_parameters=shaped.active_parameters,
        weight_bytes=round(stored),
        model=effect_key(whole, workload.image),
        facts=ModelFacts(
            name=graph.name,
            parameters=shaped.parameters,
            active_parameters=shaped.active_parameters,
            weight_bytes=round(stored),
            kv_bytes_per_token=residency.kv_bytes_per_token if is_generative(graph) else None,
            architecture=graph.architecture,
            weight_formats=weight_formats(graph, precision),
            frames=whole.metadata.get("frames"),
        ),
        notes=(*_format_notes(graph, workload.precision), *shaped.uncovered),
    )


def _require_known_work(graph: Graph, prepared: PreparedWork) -> None:
    """Launches of ops that nobody can count are no prediction: trees, searches, what a vendor's compiler made."""
    unknown = {row.op.source_type or row.op.kind for row in prepared.rows if not row.counted_whole}
    if unknown and all(row.part is None or row.op.kind == "view" for row in prepared.rows):
        raise DomainError(
            f"The time of {graph.name} is not known, because the work of its ops is not: {', '.join(sorted(unknown))}.",
            remedy="Measure it: inferometer profile FILE.",
        )


def _format_notes(graph: Graph, asked: Precision) -> list[str]:
    """The notes about formats: that none is stated, and that one holds for few weights, as the model states its own."""
    notes = []
    if graph.precision is None and not (asked.weights and asked.activations):
        notes.append(f"{graph.name} names no number format; what was not asked for is {UNSTATED}.")
    formats = weight_formats(graph, resolved_precision(graph, asked))
    main = next(iter(formats), None)
    if asked.weights is not None and main is not None and main != dtype(asked.weights).name:
        kept = f"{formats[main]:.0%} of the weights are {main} as the model states"
        notes.append(f"{kept}; {asked.weights} counts for the rest.")
    return notes


def _uncovered(graph: Graph) -> tuple[str, ...]:
    covered = coverage(graph)
    if not covered.uncovered:
        return ()
    kinds = ", ".join(sorted({entry.source_type or entry.kind for entry in covered.uncovered}))
    missing = covered.ops - covered.covered
    return (f"{missing} of {covered.ops} ops are not in the prediction, because their work is not known: {kinds}.",)


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
    """Cut the last layers off their blocks. Returns the blocks and the numbers of the layers cut off."""
    parts: list[tuple[Block, bool]] = []
    left = layers
    for block in reversed(graph.blocks):
        # From the end: the first layers stay on the device.
        taken = min(left, block.count) if is_layer(block) else 0
        left -= taken
        if taken:
            parts.append((replace(block, count=taken, first=block.first + block.count - taken), True))
        if taken < block.count:
            parts.append((replace(block, count=block.count - taken), False))
    parts.reverse()
    return [block for block, _ in parts], {number for number, (_, away) in enumerate(parts) if away}

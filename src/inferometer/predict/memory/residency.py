"""Memory on one device: what stays (weights, caches, states), what comes and goes, and how much of it at once.

The same bytes as `memory.footprint`, made ready for many sizes and for graphs that are shared by several devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from math import prod
from operator import mul
from typing import Any

import numpy as np

from inferometer.core.binding import Binding
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.predict.memory.footprint import cache_growth, footprint, inner_bytes, is_cached, lives_of, resident
from inferometer.predict.parallel import Placed, Scale, is_layer, stage_share
from inferometer.predict.work.count import unknown_sizes
from inferometer.predict.work.polynomial import (
    SYMBOLIC,
    Monomial,
    NotPolynomialError,
    Polynomial,
    coefficients,
    larger,
    monomials_of,
    spread_monomials,
)
from inferometer.predict.work.prepare import Terms
from inferometer.predict.work.rules.attention import cache_bytes


@frozen
class MemoryUse:
    """Bytes on the device that holds the most: numbers, or arrays."""

    weights_bytes: Any = 0.0
    kv_bytes: Any
    state_bytes: Any
    activations_bytes: Any
    workspace_bytes: Any

    @property
    def total_bytes(self) -> Any:
        return self.weights_bytes + self.kv_bytes + self.state_bytes + self.activations_bytes + self.workspace_bytes


@frozen
class _Cache:
    op: Op
    count: float  # layers of the fullest device
    share: float


@frozen
class Timeline:
    """Bytes as polynomials in the sizes, a row each: alive at each step of the execution, then states and caches."""

    monomials: tuple[Monomial, ...]
    matrix: Any  # [steps + 2, monomials]
    numbers: list[list[float]] = field(init=False, repr=False)  # … as lists
    sequences_alone: bool = field(init=False)  # whether all of it belongs to single sequences: a multiple of one's

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", self.matrix.tolist())
        used = [monomial for monomial, factors in zip(self.monomials, self.matrix.T, strict=True) if factors.any()]
        object.__setattr__(self, "sequences_alone", all(monomial.count("batch") == 1 for monomial in used))


@frozen
class Passing:
    """Memory that depends on the sizes, whatever the weights are: caches, states, activations, workspace."""

    graph: Graph
    terms: Terms
    windowed: tuple[_Cache, ...]  # caches that grow no further than a window
    inner: tuple[tuple[Op, Scale], ...]  # ops with results of their own inside
    first: Timeline | None  # of a request's first step; None: bytes are no polynomials
    later: Timeline | None  # of the others, in which what runs once a request does not run again
    caches: tuple[_Cache, ...] = ()  # all of them, as the fullest device has them
    shares: Mapping[str, float] = field(default_factory=dict)  # of tensors that no device has whole, by name

    def use(self, sizes: Mapping[str, Any], *, first: bool = True, weights_bytes: float = 0.0) -> MemoryUse:
        """What one step needs beside the weights, its new tokens in the cache included: numbers, or arrays."""
        binding = Binding(sizes=sizes, precision=self.terms.precision)
        timeline = self.first if first else self.later
        if timeline is None:
            return replace(self._counted(binding), weights_bytes=weights_bytes)
        known = {name: sizes[name] for name in SYMBOLIC}
        shape: tuple[int, ...] = ()
        if any(isinstance(value, np.ndarray) for value in sizes.values()):
            shape = np.broadcast_shapes(*(np.shape(value) for value in sizes.values()))
        if not shape:  # a lone workload is some thirty products: fewer than what calling numpy takes
            values = [prod([known[name] for name in monomial]) for monomial in timeline.monomials]
            *steps, state, cache = [sum(map(mul, row, values)) for row in timeline.numbers]
            return MemoryUse(
                weights_bytes=weights_bytes,
                kv_bytes=cache + (_cache_bytes(self.windowed, binding) if self.windowed else 0.0),
                state_bytes=state,
                activations_bytes=max(steps, default=0.0),
                workspace_bytes=self._workspace(binding),
            )
        alive = timeline.matrix @ spread_monomials(timeline.monomials, known, shape)
        return MemoryUse(
            weights_bytes=weights_bytes,
            kv_bytes=alive[-1].reshape(shape) + (_cache_bytes(self.windowed, binding) if self.windowed else 0.0),
            state_bytes=alive[-2].reshape(shape),
            # the last two rows are states and caches
            activations_bytes=alive[:-2].max(axis=0, initial=0.0).reshape(shape),
            workspace_bytes=self._workspace(binding),
        )

    def total_bytes(self, sizes: Mapping[str, Any], *, first: bool) -> Any:
        """All that `use` adds up, over a grid: where it can be, that of one sequence times the batch."""
        timeline = self.first if first else self.later
        if timeline is None or not timeline.sequences_alone or self.windowed or self.inner:
            return self.use(sizes, first=first).total_bytes
        return sizes["batch"] * self.use({**sizes, "batch": 1}, first=first).total_bytes

    def _workspace(self, binding: Binding) -> Any:
        most: Any = 0.0
        for op, scale in self.inner:
            # Inside an op its results are shared as its work is, and rows of other replicas meet there too.
            most = larger(most, inner_bytes(op, binding) * scale.flops * scale.batch)
        return most

    def _counted(self, binding: Binding) -> MemoryUse:
        """The long way: the graph's own bytes, with what a device has of the caches and of shared activations."""
        found = footprint(self.graph, binding, shares=self.shares)
        unknown = unknown_sizes(self.graph, binding)
        known = [cache for cache in self.caches if not cache.op.symbols & unknown]
        whole = sum(block.count * cache_bytes(op, binding) for block, op in _cached_ops(self.graph, unknown))
        return MemoryUse(
            # The graph's caches are those of all devices; what this one holds of them takes their place.
            kv_bytes=found.kv_bytes - whole + _cache_bytes(known, binding),
            state_bytes=found.state_bytes,
            activations_bytes=found.activations_bytes,
            workspace_bytes=found.workspace_bytes,
        )


@frozen
class Residency:
    weights_bytes: float
    offloaded_bytes: float  # weights that lie elsewhere
    kv_bytes_per_token: int  # of one sequence on all devices, while no layer's window is full
    passing: Passing

    def use(self, sizes: Mapping[str, Any], *, first: bool = True) -> MemoryUse:
        """What one step needs: numbers, or arrays of the sizes' shape."""
        return self.passing.use(sizes, first=first, weights_bytes=self.weights_bytes)

    def cache_of_a_token(self) -> tuple[float, dict[int, float]]:
        """Bytes that a token of one sequence takes on the fullest device: in layers that keep all, and by windows.

        Read off two far ends, because caches need not be attention's own (`passing.first` is None then).
        """
        # beyond every window and every rounding to blocks, and exact as floats
        passing, growth = self.passing, (1 << 22, 1 << 23)
        windows: dict[int, float] = {}
        one = Binding(sizes={"batch": 1, "query": 1, "context": 0, "logits": 1}, precision=passing.terms.precision)
        for cache in passing.caches:
            if _is_windowed(cache.op):
                window = int(one.size(cache.op["window"]))
                windows[window] = windows.get(window, 0.0) + _cache_bytes([cache], one)
        near, far = (
            float(self.use({"batch": 1, "query": 1, "context": tokens, "logits": 1}, first=False).kv_bytes)
            for tokens in growth
        )
        return (far - near) / (growth[1] - growth[0]), windows


def residency_of(
    graph: Graph, placed: list[list[Placed]], terms: Terms, *, passing: Passing | None = None
) -> Residency:
    """`passing` is that of `passing_of`, where it was made before."""
    weights, elsewhere = weights_of(graph, placed, terms)
    return Residency(
        weights_bytes=weights,
        offloaded_bytes=elsewhere,
        kv_bytes_per_token=cache_growth(graph.ops(), terms.symbolic()),
        passing=passing or passing_of(graph, placed, terms),
    )


def passing_of(graph: Graph, placed: list[list[Placed]], terms: Terms) -> Passing:
    """It depends on the graph, the plan, and the formats of activations and cache, and on nothing else."""
    caches = [*_caches(graph, placed, terms)]
    growing = [cache for cache in caches if not _is_windowed(cache.op)]
    # Most graphs run every op at each step, and one timeline is both.
    first = later = _timeline(graph, placed, growing, terms)
    if first is not None and any(op.get("once") for _, op in graph.ops()):
        later = _timeline(_without_once(graph), placed, growing, terms)
    return Passing(
        graph=graph,
        terms=terms,
        windowed=tuple(cache for cache in caches if _is_windowed(cache.op)),
        inner=tuple((e.op, e.scale) for _, e in _entries(graph, placed) if _has_inner(e.op)),
        first=first,
        later=later,
        caches=tuple(caches),
        shares=_shares(placed),
    )


def _without_once(graph: Graph) -> Graph:
    """What a later step runs. Cross-attention's keys and values are in the cache by then, and not among the inputs."""

    def later(op: Op) -> Op:
        return replace(op, inputs=op.inputs[:1]) if op.get("cross") and op.get("cached") else op

    blocks = (replace(block, ops=tuple(later(op) for op in block.ops if not op.get("once"))) for block in graph.blocks)
    return replace(graph, blocks=tuple(block for block in blocks if block.ops), inputs=_still_read(graph))


def _still_read(graph: Graph) -> tuple[Tensor, ...]:
    """Inputs of the graph that some op of every step reads: not an image, nor the text an encoder has read."""
    names = {tensor.name for _, op in graph.ops() if not op.get("once") for tensor in op.inputs}
    return tuple(tensor for tensor in graph.inputs if tensor.name in names)


def _cached_ops(graph: Graph, unknown: frozenset[str]) -> Iterator[tuple[Block, Op]]:
    return ((block, op) for block, op in graph.ops() if is_cached(op) and not op.symbols & unknown)


def _caches(graph: Graph, placed: list[list[Placed]], terms: Terms) -> Iterator[_Cache]:
    stage = stage_share(graph, terms.stages)
    for block, entry in _entries(graph, placed):
        if is_cached(entry.op):
            yield _Cache(op=entry.op, count=_stage_count(block, stage), share=entry.scale.kv)


def _is_windowed(op: Op) -> bool:
    return op.get("window") is not None and not op.get("cross")


def _entries(graph: Graph, placed: list[list[Placed]]) -> Iterator[tuple[Block, Placed]]:
    return ((block, entry) for block, ops in zip(graph.blocks, placed, strict=True) for entry in ops)


def _stage_count(block: Block, stage: float) -> float:
    """Repetitions on the fullest stage; a block that is no layer is counted in full, wherever it stands."""
    return block.count * (stage if is_layer(block) else 1.0)


def weights_of(graph: Graph, placed: list[list[Placed]], terms: Terms) -> tuple[float, float]:
    """Bytes of weights on the fullest device, and bytes of offloaded weights; each weight once by its name.

    Of a pipeline the first stage has what comes before the layers, and the last what comes after them: one that both
    need is on both.
    """
    binding, stage, offloaded = terms.symbolic(), stage_share(graph, terms.stages), terms.offloaded
    parts: tuple[dict[str, float], ...] = ({}, {}, {})  # before the layers, the layers, after them
    away: dict[str, float] = {}
    layers = [number for number, block in enumerate(graph.blocks) if is_layer(block)]
    for number, block in enumerate(graph.blocks):
        place = 1 if terms.stages == 1 or not layers or is_layer(block) else 0 if number < layers[-1] else 2
        for index, entry in enumerate(placed[number]):
            target = away if (number, index) in offloaded else parts[place]
            for op in entry.op.nested():
                for tensor in (*op.weights, *op.inputs):
                    if tensor.role in {"weight", "constant"}:
                        # Without an index in its name a tensor is one for all repetitions: tied weights are held once.
                        times = _stage_count(block, stage) if "{}" in tensor.name else 1.0
                        size = times * entry.scale.weights * _stored(tensor, binding)
                        target.setdefault(block.full_name(tensor.name), size)
    before, held, after = (sum(part.values()) for part in parts)
    return held + max(before, after), sum(away.values())


def _stored(tensor: Tensor, binding: Binding) -> float:
    try:
        return float(binding.nbytes(tensor))
    except (TypeError, NotPolynomialError):
        return 0.0  # a constant whose size only the data tells


def _cache_bytes(caches: Iterable[_Cache], binding: Binding) -> Any:
    return sum(cache.count * cache.share * cache_bytes(cache.op, binding) for cache in caches)


def _has_inner(op: Op) -> bool:
    return op.kind == "moe_experts" or bool(op.get("kv_latent") and op.get("absorbed") is not True)


def _timeline(graph: Graph, placed: list[list[Placed]], caches: list[_Cache], terms: Terms) -> Timeline | None:
    """None where the graph has what polynomials cannot say."""
    binding = terms.symbolic()
    if _is_loose(graph, binding):
        return None
    try:
        names, lives = lives_of(graph)
        size_of = _sizes(placed, binding)
        sizes = [Polynomial.of(size_of(life.tensor)) for life in lives]
        kept = [Polynomial.of(resident(graph, binding.nbytes, "state")), Polynomial.of(_cache_bytes(caches, binding))]
    except (NotPolynomialError, TypeError):
        return None
    monomials = monomials_of([*sizes, *kept])
    bytes_of = coefficients(sizes, monomials)
    # What each step begins with, and what is gone once the one before it has run, in the order of the buffers.
    changes = np.zeros((len(names) + 1, len(monomials)))
    if names and lives:
        steps = [step for life in lives for step in (life.born, life.last + 1)]
        np.add.at(changes, steps, np.stack([bytes_of, -bytes_of], axis=1).reshape(-1, len(monomials)))
    # Without the rows that are nowhere above another one: sizes are never negative, so they are never the fullest.
    rows = np.cumsum(changes[:-1], axis=0)
    found: list[Any] = []
    for row in sorted(rows, key=np.sum, reverse=True):
        if not any((row <= above).all() for above in found):
            found.append(row)
    fullest = np.array(found).reshape(len(found), rows.shape[1])
    return Timeline(monomials=monomials, matrix=np.vstack([fullest, coefficients(kept, monomials)]))


def _is_loose(graph: Graph, binding: Binding) -> bool:
    """Caches outside of attention ops, loops, and sizes that only the data tells are counted the long way."""
    unknown = unknown_sizes(graph, binding)
    for _, op in graph.ops():
        if op.kind == "control" or (unknown and op.symbols & unknown):
            return True
        if op.kind != "attention" and any(tensor.role == "kv" for tensor in (*op.inputs, *op.outputs)):
            return True
    return False


def _shares(placed: list[list[Placed]]) -> dict[str, float]:
    """What a device has of the tensors that it shares with others, by name."""
    return {
        tensor.name: entry.scale.writes
        for ops in placed
        for entry in ops
        if entry.scale.writes < 1
        for tensor in entry.op.outputs
    }


def _sizes(placed: list[list[Placed]], binding: Binding) -> Callable[[Tensor], Any]:
    shares = _shares(placed)

    def size_of(tensor: Tensor) -> Any:
        size = binding.nbytes(tensor)
        return size * shares[tensor.name] if tensor.name in shares else size

    return size_of

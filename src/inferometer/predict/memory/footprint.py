"""How much memory a graph needs, what for, and where the most of it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.predict.memory.liveness import live_bytes
from inferometer.predict.work.count import unknown_sizes, with_formats
from inferometer.predict.work.polynomial import larger
from inferometer.predict.work.rules.attention import cache_bytes, cached_bytes_per_token, expanded_bytes
from inferometer.predict.work.rules.experts import hidden_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from inferometer.core.binding import Binding


@frozen
class Footprint:
    """Bytes a step needs on the device. Ints, or arrays where sizes were bound to arrays.

    The workspace is the largest set of results that live inside one op because the graph has no name for them (a
    mixture's routed rows, the keys that naive MLA expands); it is taken as held throughout, so the parts add up to the
    peak. Scratch that only an engine knows (im2col, split-K, its own context) is not in it.
    """

    weights_bytes: Any
    kv_bytes: Any  # after the step, its new tokens included
    state_bytes: Any
    activations_bytes: Any  # the most that is alive at once
    workspace_bytes: Any
    peak_bytes: Any
    peak_at: Any  # the op that runs when the most is alive; None where nothing is
    kv_bytes_per_token: Any  # of one sequence, while no layer's window is full


def footprint(graph: Graph, binding: Binding, shares: Mapping[str, float] | None = None) -> Footprint:
    """Memory for one step of the graph at these sizes. Sizes that only the data tells count as nothing.

    `shares` are what a device has of activations that it shares with others, by their names.
    """
    unknown = unknown_sizes(graph, binding)
    bound = with_formats(graph, binding)

    def size_of(tensor: Tensor) -> Any:
        return 0 if tensor.symbols & unknown else bound.nbytes(tensor)

    ops = [(block, op) for block, op in _every_op(graph) if op.kind == "control" or not op.symbols & unknown]
    weights = resident(graph, size_of, "weight", "constant")
    caches = sum(block.count * cache_bytes(op, bound) for block, op in ops if is_cached(op))
    # Cache tensors that no attention op has stand in graphs where attention is spelled out in products.
    known = {t.name for _, op in _every_op(graph) if op.kind == "attention" for t in (*op.inputs, *op.outputs)}
    kv = caches + resident(graph, size_of, "kv", but=known)
    state = resident(graph, size_of, "state")
    parts = shares or {}
    activations, peak_at = _most(live_bytes(graph, lambda tensor: parts.get(tensor.name, 1) * size_of(tensor)))
    # One op runs at a time, so what they need inside is the most of any and no sum.
    workspace: Any = 0
    for _, op in ops:
        workspace = larger(workspace, _workspace(op, bound, size_of))
    return Footprint(
        weights_bytes=weights,
        kv_bytes=kv,
        state_bytes=state,
        activations_bytes=activations,
        workspace_bytes=workspace,
        # The two peaks need not be at the same op; together they are never too little, as a fit must be.
        peak_bytes=weights + kv + state + activations + workspace,
        peak_at=peak_at,
        kv_bytes_per_token=cache_growth(ops, bound),
    )


def _every_op(graph: Graph) -> Iterator[tuple[Block, Op]]:
    """Each op with its block, and after an op the ops inside it."""

    def within(op: Op) -> Iterator[Op]:
        yield op
        for body in op.get("bodies", ()):
            for inner in body:
                yield from within(inner)

    return ((block, op) for block, outer in graph.ops() for op in within(outer))


def resident(graph: Graph, size_of: Callable[[Tensor], Any], *roles: str, but: Collection[str] = ()) -> Any:
    """Bytes of the tensors of these roles, each once by name, in every repetition of its block; `but` are left out."""
    held: dict[str, Any] = {}
    for block, op in _every_op(graph):
        for tensor in (*op.weights, *op.inputs, *op.outputs):
            if tensor.role in roles and tensor.name not in but:
                times = block.count if "{}" in tensor.name else 1
                held.setdefault(block.full_name(tensor.name), times * size_of(tensor))
    return sum(held.values())


def is_cached(op: Op) -> bool:
    return op.kind == "attention" and bool(op.get("cached"))


def cache_growth(ops: Iterable[tuple[Block, Op]], binding: Binding) -> int:
    """Bytes a token of one sequence, while no layer's window is full."""
    return sum(
        block.count * cached_bytes_per_token(op, binding) for block, op in ops if is_cached(op) and not op.get("cross")
    )


def inner_bytes(op: Op, binding: Binding) -> Any:
    """Results inside an op. Attention's scores are none: they are made and used up tile by tile."""
    if op.kind == "moe_experts":
        return hidden_bytes(op, binding)
    return expanded_bytes(op, binding) if op.kind == "attention" else 0


def _workspace(op: Op, binding: Binding, size_of: Callable[[Tensor], Any]) -> Any:
    """Bytes that live inside the op, or inside the ops of its bodies."""
    most: Any = inner_bytes(op, binding)
    for body in op.get("bodies", ()):
        most = larger(most, _most(live_bytes(_inner_graph(body), _of_body(body, size_of)))[0])
    return most


def _inner_graph(body: tuple[Op, ...]) -> Graph:
    return Graph(name="body", blocks=(Block(name="body", ops=body),))


def _of_body(body: tuple[Op, ...], size_of: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """Sizes of what the body makes; what it only reads lives outside, where it is already counted."""
    made = {tensor.name for op in body for tensor in op.outputs}
    return lambda tensor: size_of(tensor) if tensor.name in made else 0


def _most(timeline: list[tuple[str, Any]]) -> tuple[Any, Any]:
    """The largest number of a timeline and the first name that has it; both by element where numbers are arrays."""
    most: Any = 0
    place: Any = -1
    for step, (_, size) in enumerate(timeline):
        # Only above: of several that are equal the first is named, as a reader goes through the graph.
        above = size > most
        place = np.where(above, step, place) if isinstance(above, np.ndarray) else step if above else place
        most = larger(most, size)
    names = [*(name for name, _ in timeline), None]  # the last one, at -1, for a timeline on which nothing lives
    return most, np.array(names, dtype=object)[place] if isinstance(place, np.ndarray) else names[place]

"""How much memory a graph needs, what for, and where the most of it is needed.

This is the definition: exact for any graph, loops and sizes that only the data decides included. `memory.residency`
prepares the same functions for many workloads and several devices.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph
from inferometer.cost.exact import larger
from inferometer.cost.memory.liveness import live_bytes
from inferometer.cost.work.count import unknown_sizes, with_formats
from inferometer.cost.work.rules.attention import cache_bytes, cached_bytes_per_token, expanded_bytes
from inferometer.cost.work.rules.experts import hidden_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.core.binding import Binding
    from inferometer.core.graph import Op, Tensor


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


def footprint(graph: Graph, binding: Binding) -> Footprint:
    """Memory for one step of the graph at these sizes. Sizes that only the data decides count as nothing."""
    unknown = unknown_sizes(graph, binding)
    bound = with_formats(graph, binding)

    def size_of(tensor: Tensor) -> Any:
        return 0 if tensor.symbols & unknown else bound.nbytes(tensor)

    ops = [(block, op) for block, op in _every_op(graph) if op.kind == "control" or not op.symbols & unknown]
    weights = resident_bytes(graph, size_of, "weight", "constant")
    kv = sum(block.count * cache_bytes(op, bound) for block, op in ops if keeps_cache(op))
    kv = kv + _loose_cache_bytes(graph, size_of)
    state = resident_bytes(graph, size_of, "state")
    activations, peak_at = _peak(live_bytes(graph, size_of))
    workspace: Any = 0
    for _, op in ops:
        workspace = larger(workspace, larger(inner_bytes(op, bound), _body_bytes(op, size_of)))
    return Footprint(
        weights_bytes=weights,
        kv_bytes=kv,
        state_bytes=state,
        activations_bytes=activations,
        workspace_bytes=workspace,
        peak_bytes=weights + kv + state + activations + workspace,
        peak_at=peak_at,
        kv_bytes_per_token=kv_bytes_per_token(graph, bound),
    )


def resident_bytes(graph: Graph, size_of: Callable[[Tensor], Any], *roles: str) -> Any:
    """Bytes of all tensors of these roles, each counted once by name, in every repetition of its block."""
    held: dict[str, Any] = {}
    for block, op in _every_op(graph):
        for tensor in (*op.weights, *op.inputs, *op.outputs):
            if tensor.role in roles:
                times = block.count if "{}" in tensor.name else 1
                held.setdefault(block.full_name(tensor.name), times * size_of(tensor))
    return sum(held.values())


def kv_bytes_per_token(graph: Graph, binding: Binding) -> int:
    """Bytes that one more token of one sequence adds to all caches, while no layer's window is full."""
    return sum(
        block.count * cached_bytes_per_token(op, binding)
        for block, op in _every_op(graph)
        if keeps_cache(op) and not op.get("cross")
    )


def keeps_cache(op: Op) -> bool:
    return op.kind == "attention" and bool(op.get("cached"))


def inner_bytes(op: Op, binding: Binding) -> Any:
    """Bytes that live inside the op. Attention's scores do not: they are made and used up tile by tile."""
    if op.kind == "moe_experts":
        return hidden_bytes(op, binding)
    return expanded_bytes(op, binding) if op.kind == "attention" else 0


def _every_op(graph: Graph) -> Iterator[tuple[Block, Op]]:
    """Each op with its block, and after an op the ops inside it."""
    return ((block, op) for block, outer in graph.ops() for op in outer.nested())


def _loose_cache_bytes(graph: Graph, size_of: Callable[[Tensor], Any]) -> Any:
    """Cache tensors that no attention op has: graphs where attention is spelled out in products."""
    attended = {t.name for _, op in _every_op(graph) if op.kind == "attention" for t in (*op.inputs, *op.outputs)}
    return resident_bytes(graph, lambda tensor: 0 if tensor.name in attended else size_of(tensor), "kv")


def _body_bytes(op: Op, size_of: Callable[[Tensor], Any]) -> Any:
    """The most that is alive at once inside a branch or a loop's body, of what the body itself makes.

    What it only reads lives outside, where it is already counted.
    """

    def alive(body: tuple[Op, ...]) -> Any:
        makes = {tensor.name for inner in body for tensor in inner.outputs}
        graph = Graph(name="body", blocks=(Block(name="body", ops=body),))
        return _peak(live_bytes(graph, lambda tensor: size_of(tensor) if tensor.name in makes else 0))[0]

    return reduce(larger, (alive(body) for body in op.get("bodies", ())), 0)


def _peak(timeline: list[tuple[str, Any]]) -> tuple[Any, Any]:
    """The largest number of a timeline and the first name that has it; both by element where numbers are arrays."""
    most: Any = 0
    place: Any = -1
    for step, (_, size) in enumerate(timeline):
        above = size > most
        place = np.where(above, step, place) if isinstance(above, np.ndarray) else step if above else place
        most = larger(most, size)
    names = [*(name for name, _ in timeline), None]  # the last one, at -1, for a timeline on which nothing lives
    return most, np.array(names, dtype=object)[place] if isinstance(place, np.ndarray) else names[place]

"""How much memory a graph needs, what for, and where the most of it is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.kept import Kept
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


# How many bytes of activations are alive at each step of a graph's execution.
#
# A tensor lives from the op that makes it to the last op that reads it; the graph's inputs from the start, its outputs
# to the end. Blocks run repetition after repetition, so what one repetition hands to the next, or to a later block,
# lives across. A view is its input under another name and takes nothing. While an op runs its inputs and outputs both
# exist.
#
# A name may be written again (a residual stream that is `hidden` in every layer): that is a new tensor. One that no op
# makes and that is no input of the graph lives from its first reader to its last. Weights, caches and states are not
# activations; they are counted above.

_PASSING = ("activation", "index")


@dataclass(slots=True)
class Life:
    """A buffer: the tensor that it holds, the step it is made at and the last step that reads it."""

    tensor: Tensor
    born: int
    last: int


@dataclass(slots=True)
class _Record:
    """What a walk over the ops has found: every buffer, and the one each name stands for now."""

    lives: list[Life] = field(default_factory=list)
    current: dict[str, Life] = field(default_factory=dict)

    def make(self, name: str, tensor: Tensor, step: int) -> Life:
        life = Life(tensor, born=step, last=step)
        self.lives.append(life)
        self.current[name] = life
        return life

    def read(self, name: str, tensor: Tensor, step: int) -> None:
        life = self.current.get(name) or self.make(name, tensor, step)
        life.last = step

    def reach(self, name: str, step: int) -> None:
        """An op inside another reads a tensor from outside it, if the name stands for one."""
        if name in self.current:
            self.current[name].last = step


_lives = Kept(256)  # a graph is laid out once for every way in which engines and formats run it, and lives the same


def lives_of(graph: Graph) -> tuple[list[str], list[Life]]:
    """The ops in the order they run, by their full names, and every buffer.

    Repetitions in which nothing new can happen are left out; see `_repetitions`.
    """
    return _lives.get_or_make("lives", (graph,), lambda: _walked(graph))


def live_bytes(graph: Graph, size_of: Callable[[Tensor], Any]) -> list[tuple[str, Any]]:
    """Each op with the bytes of activations alive while it runs."""
    names, lives = lives_of(graph)
    # One more than there are steps: what lives to the last one dies after it.
    changes: list[Any] = [0] * (len(names) + 1)
    for life in lives if names else ():
        size = size_of(life.tensor)
        changes[life.born] = changes[life.born] + size
        changes[life.last + 1] = changes[life.last + 1] - size
    return list(zip(names, accumulate(changes[:-1]), strict=True))


def _walked(graph: Graph) -> tuple[list[str], list[Life]]:
    record = _Record()
    for tensor in graph.inputs:
        if tensor.role in _PASSING:
            record.make(tensor.name, tensor, 0)
    names = []
    for step, (block, op, repetition) in enumerate(_steps(graph)):
        names.append(block.full_name(op.name, repetition))
        _run(op, block, repetition, step, record)
    for tensor in graph.outputs:
        if names and tensor.name in record.current:
            record.current[tensor.name].last = len(names) - 1
    return names, record.lives


def _steps(graph: Graph) -> Iterator[tuple[Block, Op, int]]:
    crossing = _crossing(graph)
    return (
        (block, op, repetition)
        for block in graph.blocks
        for repetition in _repetitions(block, crossing)
        for op in block.ops
    )


def _repetitions(block: Block, crossing: frozenset[str]) -> Iterable[int]:
    """The repetitions worth looking at: the first, the second and the last, as those between are like the second.

    All of them where a tensor with a repetition's index in its name passes to or from another block (the skips of a
    U-Net), because those pile up.
    """
    # With three or fewer repetitions the first, the second and the last are all there are.
    if block.count > 3 and crossing.isdisjoint(_indexed(block, _read(block) | _made(block))):
        return (0, 1, block.count - 1)
    return range(block.count)


def _crossing(graph: Graph) -> frozenset[str]:
    """Full names with an index that one block makes and another reads; outside, inputs are made and outputs read."""
    makers: dict[str, set[int]] = {tensor.name: {-1} for tensor in graph.inputs}
    readers: dict[str, set[int]] = {tensor.name: {-1} for tensor in graph.outputs}
    for number, block in enumerate(graph.blocks):
        for places, names in ((makers, _made(block)), (readers, _read(block))):
            for name in (*names, *_indexed(block, names)):
                places.setdefault(name, set()).add(number)
    return frozenset(name for name, where in makers.items() if readers.get(name, where) - where)


def _made(block: Block) -> set[str]:
    return {tensor.name for op in block.ops for tensor in op.outputs}


def _read(block: Block) -> set[str]:
    return {tensor.name for op in block.ops for inner in op.nested() for tensor in inner.inputs}


def _indexed(block: Block, names: set[str]) -> set[str]:
    """The full names, one a repetition, of tensors whose name holds the repetition's index."""
    return {block.full_name(name, number) for name in names if "{}" in name for number in range(block.count)}


def _run(op: Op, block: Block, repetition: int, step: int, record: _Record) -> None:
    for tensor in op.inputs:
        if tensor.role in _PASSING:
            record.read(block.full_name(tensor.name, repetition), tensor, step)
    # The body of a loop may read what was made long before: that lives as long as the loop runs.
    for inner in op.nested():
        for tensor in inner.inputs:
            record.reach(block.full_name(tensor.name, repetition), step)
    seen = record.current.get(block.full_name(op.inputs[0].name, repetition)) if op.inputs else None
    for tensor in op.outputs:
        name = block.full_name(tensor.name, repetition)
        if op.kind == "view" and seen is not None:
            record.current[name] = seen
        elif tensor.role in _PASSING:
            record.make(name, tensor, step)

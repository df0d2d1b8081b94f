"""How many bytes of activations are alive at each step of a graph's execution.

A tensor lives from the op that makes it to the last op that reads it; the graph's inputs from the start, its outputs to
the end. Blocks run repetition after repetition, so what one repetition hands to the next, or to a later block, lives
across. A view is its input under another name and takes nothing. While an op runs its inputs and outputs both exist.

A name may be written again (a residual stream that is `hidden` in every layer): that is a new tensor. One that no op
makes and that is no input of the graph lives from its first reader to its last. Weights, caches and states are not
activations; see `footprint`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.kept import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


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

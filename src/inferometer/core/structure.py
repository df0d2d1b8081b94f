"""Structure: how the layers of a model hang together, so that a reader of a run can draw it without the model's file.

It is a graph without weights, shapes and attributes: the layers in the order of execution, and who reads whose result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.graph import Graph, Tensor

_PASSED = frozenset({"activation", "index", "state"})  # what goes from a layer to another; weights and caches stay


@frozen
class StructureBlock:
    """`ops` layers that run `count` times in a row: the next `ops` × `count` of the structure."""

    name: str
    ops: int
    count: int = 1


@frozen
class Structure:
    """`edges` are (from, to, bytes) by the places of the layers; bytes are None where a size is not known."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    blocks: tuple[StructureBlock, ...]
    edges: tuple[tuple[int, int, float | None], ...] = ()


def merged_layers(name: str) -> tuple[str, ...]:
    """The layers of a row's name: a prediction calls products that an engine runs as one `attn.q_proj+k_proj`."""
    home, dot, last = name.rpartition(".")
    return tuple(f"{home}{dot}{part}" for part in last.split("+")) if "+" in last else (name,)


def structure_of(graph: Graph, binding: Binding) -> Structure:
    """Each layer of the graph in each repetition of its block.

    A name that is written again stands for what was written last: a residual stream is `hidden` in every layer.
    """
    names: list[str] = []
    kinds: list[str] = []
    edges: dict[tuple[int, int], float | None] = {}
    maker: dict[str, int] = {}
    sizes: dict[int, float | None] = {}  # of a tensor by identity: every repetition has the same ones

    for block in graph.blocks:
        for repetition in range(block.count):
            for op in block.ops:
                here = len(names)
                names.append(block.full_name(op.name, repetition))
                kinds.append(op.kind)
                # What an op reads of others, and what the ops inside it read.
                for tensor in [tensor for inner in op.nested() for tensor in inner.inputs if tensor.role in _PASSED]:
                    there = maker.get(block.full_name(tensor.name, repetition))
                    if there is not None and there != here:
                        if id(tensor) not in sizes:
                            sizes[id(tensor)] = _bytes(tensor, binding)
                        edges[there, here] = sizes[id(tensor)]
                maker |= {block.full_name(tensor.name, repetition): here for tensor in op.outputs}
    blocks = tuple(StructureBlock(name=block.name, ops=len(block.ops), count=block.count) for block in graph.blocks)
    passed = tuple((start, end, size) for (start, end), size in edges.items())
    return Structure(names=tuple(names), kinds=tuple(kinds), blocks=blocks, edges=passed)


def _bytes(tensor: Tensor, binding: Binding) -> float | None:
    try:
        return float(binding.nbytes(tensor))
    except (InferometerError, KeyError, TypeError, ValueError):  # a size that nobody gave
        return None

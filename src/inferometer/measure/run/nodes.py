"""The nodes of a file as its reader found them, for an engine that cannot list them itself.

OpenVINO gives the operators of a TFLite file names of its own, and shows its own format only as it read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.engines.base import FileNode

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.graph import Graph, Op


def file_nodes(graph: Graph, binding: Binding) -> tuple[FileNode, ...]:
    """Empty for a format that lists no operators: weights alone, or a config."""
    ops = [op for _, op in graph.ops()]
    listed = all(op.source_type for op in ops) and all(block.count == 1 for block in graph.blocks)
    return tuple(_node(op, binding) for op in ops) if listed else ()


def _node(op: Op, binding: Binding) -> FileNode:
    result = op.outputs[0] if op.outputs else None
    known = result is not None and result.symbols <= binding.sizes.keys()
    shape: tuple[Any, ...] | None = binding.shape(result) if result is not None and known else None
    return FileNode(
        name=op.name,
        kind=op.source_type or op.kind,
        inputs=tuple(tensor.name for tensor in op.inputs),
        outputs=tuple(tensor.name for tensor in op.outputs),
        shape=None if shape is None else tuple(int(size) for size in shape),
    )

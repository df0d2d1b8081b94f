"""The nodes of a file as its reader found them, for engines that keep no names of a format.

ONNX, GGUF and PyTorch keep them; OpenVINO gives the operators of a TFLite file names of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.runtimes.base import FileNode

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.graph import Graph, Op

_RENAMED = frozenset({"tflite"})  # formats whose names are lost in some engine


def file_nodes(graph: Graph, binding: Binding) -> tuple[FileNode, ...]:
    if graph.metadata.get("format") not in _RENAMED:
        return ()
    return tuple(_node(op, binding) for _, op in graph.ops())


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

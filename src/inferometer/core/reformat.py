"""The same model with its numbers in other formats: what a quantiser would leave of a file, for what-ifs."""

from dataclasses import replace

from inferometer.core.dtype import dtype
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.kept import Kept

# What quantisers quantise: matrices that are multiplied. Norms, biases and tables of small numbers stay.
_MULTIPLIED = frozenset({"linear", "matmul", "convolution", "moe_experts", "recurrent", "embedding"})
_FLOATS = frozenset({"f64", "f32", "tf32", "bf16", "f16"})
_graphs = Kept()


def with_formats(graph: Graph, *, weights: str | None = None, activations: str | None = None) -> Graph:
    """The graph with what the file stores in a wider format in these: weights that are multiplied, activations.

    A number without a format of its own follows the workload's precision already. The same arguments give the same
    object, because pricing keeps what it prepared by the graph's identity.
    """
    names = tuple(None if name is None else dtype(name).name for name in (weights, activations))
    return _graphs.get_or_make((id(graph), *names), (graph,), lambda: _changed(graph, *names))


def _changed(graph: Graph, weights: str | None, activations: str | None) -> Graph:
    blocks = tuple(_block(block, weights, activations) for block in graph.blocks)
    return graph if blocks == graph.blocks else replace(graph, blocks=blocks)


def _block(block: Block, weights: str | None, activations: str | None) -> Block:
    return replace(block, ops=tuple(_op(op, weights, activations) for op in block.ops))


def _op(op: Op, weights: str | None, activations: str | None) -> Op:
    stored = op.weights
    if weights is not None and op.kind in _MULTIPLIED:
        stored = tuple(_narrowed(tensor, weights) if len(tensor.shape) > 1 else tensor for tensor in stored)
    if activations is None:
        return op if stored is op.weights else replace(op, weights=stored)
    inputs, outputs = (
        tuple(_narrowed(tensor, activations) if tensor.role == "activation" else tensor for tensor in tensors)
        for tensors in (op.inputs, op.outputs)
    )
    return replace(op, weights=stored, inputs=inputs, outputs=outputs)


def _narrowed(tensor: Tensor, name: str) -> Tensor:
    if tensor.dtype not in _FLOATS or dtype(tensor.dtype or "").bits <= dtype(name).bits:
        return tensor
    return replace(tensor, dtype=name, stored_bytes=None)

"""A network of an installed package as a graph: built on the meta device (no weights), traced, its batch left open.

Tracing with an open batch costs four times as much as with a fixed one, and some networks fix it anyway. So the trace
is taken at a batch that no network has as a size of its own, a prime, and every size that it divides is that many
batches.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim, Symbol
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.formats.torch.live import read_module

MARK = 10_007  # the batch a network is traced at
_BATCH = Symbol("batch")


def traced(module: Any, inputs: tuple[Any, ...], *, name: str, trace: Callable[..., Graph] = read_module) -> Graph:
    """The graph of a module whose inputs have MARK as their batch. Formats are left to the workload."""
    graph = trace(module, inputs, name=name)
    opened = _Opening(precision=graph.precision)
    return replace(
        graph,
        blocks=tuple(replace(block, ops=tuple(map(opened.op, block.ops))) for block in graph.blocks),
        inputs=tuple(map(opened.tensor, graph.inputs)),
        outputs=tuple(map(opened.tensor, graph.outputs)),
        metadata={},
    )


class _Opening:
    """Ops and tensors with the mark taken for the batch, and the network's own number format for none."""

    def __init__(self, *, precision: str | None) -> None:
        self.precision = precision

    def op(self, op: Op) -> Op:
        return replace(
            op,
            inputs=tuple(map(self.tensor, op.inputs)),
            outputs=tuple(map(self.tensor, op.outputs)),
            weights=tuple(map(self.tensor, op.weights)),
            attributes={key: self.value(value) for key, value in _one_image(op).items()},
        )

    def tensor(self, tensor: Tensor) -> Tensor:
        kept = None if tensor.dtype == self.precision else tensor.dtype
        return replace(tensor, shape=tuple(map(_in_batches, tensor.shape)), dtype=kept)

    def value(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | tuple | Op):
            return value
        if isinstance(value, Op):
            return self.op(value)
        return tuple(map(self.value, value)) if isinstance(value, tuple) else _in_batches(value)


def _one_image(op: Op) -> Mapping[str, Any]:
    """The attributes of a convolution that has a kernel for each image, and its batch among the channels.

    Its channels and groups are those of one image: what each output sums is the same, and the shapes have the batch.
    """
    if op.kind != "convolution" or op.get("groups", 1) % MARK:
        return op.attributes
    channels = {key: op[key] // MARK for key in ("in_channels", "out_channels", "groups")}
    return {**op.attributes, **channels}


def _in_batches(dim: Dim) -> Dim:
    if isinstance(dim, int) and dim and dim % MARK == 0:
        return _BATCH * (dim // MARK)
    return dim

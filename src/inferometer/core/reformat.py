"""The same model with its numbers in other formats: what a quantiser would leave of a file, for what-ifs."""

from collections.abc import Sequence
from dataclasses import replace

from inferometer.core.dtypes import dtype
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.core.kept import Kept

# What quantisers quantise: matrices that are multiplied. Norms, biases and tables of small numbers stay.
_MULTIPLIED = frozenset({"linear", "matmul", "convolution", "moe_experts", "recurrent", "embedding"})
_FLOATS = frozenset({"f64", "f32", "tf32", "bf16", "f16", "f8e4m3", "f8e5m2"})
_HALF_BITS = 16
_graphs = Kept()


@frozen
class OtherFormats:
    """Formats of weights that are multiplied and of activations.

    `dynamic` is one that ops of some `kinds` quantise what they read to while they run, and nothing else. `only` is the
    one kind of op whose weights change, where a tool leaves the others alone. `named` gives a format to numbers that
    have none of their own too.
    """

    weights: str | None = None
    activations: str | None = None
    dynamic: str | None = None
    kinds: frozenset[str] = frozenset()
    only: str | None = None
    named: bool = False

    def quantises(self, op: Op) -> bool:
        """Whether it quantises what it reads while it runs. Convolutions in groups are a kind of their own."""
        kind = "convolution:grouped" if op.kind == "convolution" and op.get("groups", 1) > 1 else op.kind
        return self.dynamic is not None and kind in self.kinds and self.only in {None, op.kind}

    def read_by(self, op: Op) -> str | None:
        return self.dynamic if self.quantises(op) else self.activations


def with_formats(  # noqa: PLR0913 - the fields of `OtherFormats`
    graph: Graph,
    *,
    weights: str | None = None,
    activations: str | None = None,
    dynamic: str | None = None,
    kinds: frozenset[str] = frozenset(),
    only: str | None = None,
    named: bool = False,
) -> Graph:
    """The graph with what the file stores in a wider format in others; see `OtherFormats`.

    A number without a format of its own follows the workload's precision already: how an engine runs an op is known
    of `named` formats alone. The same arguments give the same object, because pricing keeps what it prepared by the
    graph's identity.
    """
    names = [None if name is None else dtype(name).name for name in (weights, activations, dynamic)]
    asked = OtherFormats(
        weights=names[0], activations=names[1], dynamic=names[2], kinds=kinds, only=only, named=named
    )  # fmt: skip
    return _graphs.get_or_make(asked, (graph,), lambda: _changed(graph, asked))


def stored_in(graph: Graph, weights: str | None) -> Graph:
    """A config's graph as another checkpoint of the model: what it states in fewer bits than a half in this format.

    DeepSeek's configs state f8 and gpt-oss' mxfp4; a question about i4 is one about a checkpoint that somebody made of
    it. A file has what it has. The same arguments give the same object, as above.
    """
    if weights is None or graph.metadata.get("format") not in {None, "config"}:
        return graph
    name = dtype(weights).name
    return _graphs.get_or_make((id(graph), name), (graph,), lambda: _stored_in(graph, name))


def _stored_in(graph: Graph, name: str) -> Graph:
    def stored(tensor: Tensor) -> Tensor:
        few = tensor.role == "weight" and tensor.dtype is not None and dtype(tensor.dtype).bits < _HALF_BITS
        return replace(tensor, dtype=name, stored_bytes=None) if few else tensor

    blocks = tuple(
        replace(block, ops=tuple(replace(op, weights=tuple(map(stored, op.weights))) for op in block.ops))
        for block in graph.blocks
    )
    return graph if blocks == graph.blocks else replace(graph, blocks=blocks)


def _changed(graph: Graph, asked: OtherFormats) -> Graph:
    blocks = tuple(
        replace(
            block, ops=tuple(_op(op, asked, joined) for op, joined in zip(block.ops, _joined(block.ops), strict=True))
        )
        for block in graph.blocks
    )
    return graph if blocks == graph.blocks else replace(graph, blocks=blocks)


def _joined(ops: Sequence[Op]) -> list[bool]:
    """Of each op, whether its result is joined with others, at once or behind an activation."""
    names: set[str] = set()
    found = []
    for op in reversed(ops):
        found.append(any(tensor.name in names for tensor in op.outputs))
        read = [tensor.name for tensor in op.inputs if tensor.role == "activation"]
        if (op.kind == "copy" and len(read) > 1) or (op.kind == "activation" and found[-1]):
            names.update(read)
    return found[::-1]


def _op(op: Op, asked: OtherFormats, joined: bool) -> Op:
    stored = op.weights
    if asked.weights is not None and op.kind in (_MULTIPLIED if asked.only is None else {asked.only}):
        stored = tuple(
            _narrowed(tensor, asked.weights, asked) if len(tensor.shape) > 1 else tensor for tensor in stored
        )
    inputs, outputs = (
        tuple(_narrowed(tensor, name, asked) if tensor.role == "activation" else tensor for tensor in tensors)
        for tensors, name in ((op.inputs, asked.read_by(op)), (op.outputs, asked.activations))
    )
    attributes = op.attributes
    if asked.quantises(op) and op.kind == "convolution":
        attributes = {**attributes, "dynamic": True, "gathered": True}
    if joined and op.kind == "convolution" and asked.weights == asked.activations == "i8":
        attributes = {**attributes, "joined": True}
    return replace(op, weights=stored, inputs=inputs, outputs=outputs, attributes=attributes)


def _narrowed(tensor: Tensor, name: str | None, asked: OtherFormats) -> Tensor:
    if name is None or (tensor.dtype is None and not asked.named):
        return tensor
    if tensor.dtype is not None and (tensor.dtype not in _FLOATS or dtype(tensor.dtype).bits <= dtype(name).bits):
        return tensor
    return replace(tensor, dtype=name, stored_bytes=None)

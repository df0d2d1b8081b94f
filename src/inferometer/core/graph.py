"""The model: tensors, ops, blocks, and the graph of them. It knows no file format.

A `Block` is ops × count: 32 identical decoder layers are one Block of count 32, so their cost is computed once. Blocks
stand in the order of execution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from inferometer.core.dims import Dim, Expression, Symbol, product, symbols_in
from inferometer.core.dtypes import dtype
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept

Role = Literal["weight", "constant", "activation", "kv", "state", "index"]

# The closed vocabulary of op kinds: what a work rule exists for.
KINDS = frozenset({
    "linear", "matmul", "attention", "convolution", "norm", "softmax", "elementwise", "activation", "reduce", "pool",
    "resize", "embedding", "gather", "scatter", "moe_router", "moe_experts", "ssm_scan", "recurrent", "rotary",
    "sampling", "quantize", "dequantize", "cast", "copy", "view", "sort", "control", "collective", "custom",
})  # fmt: skip


@frozen
class Tensor:
    """A named array. `dtype` is the stored format, or None where the workload's precision decides it by `role`."""

    name: str
    shape: tuple[Dim, ...]
    dtype: str | None = None
    role: Role = "activation"
    stored_bytes: int | None = None  # as the file holds it, where a file was read

    @property
    def elements(self) -> Dim:
        return product(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Exact bytes where shape and format are known: rows are padded to whole blocks, as files store them."""
        if self.stored_bytes is not None:
            return self.stored_bytes
        if self.dtype is None or not isinstance(self.elements, int):
            return None
        size: int = dtype(self.dtype).nbytes(self.elements)
        return size

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset().union(*map(symbols_in, self.shape))


@frozen
class Op:
    """One operation. `kind` is from KINDS; `source_type` is what the file called it (`Conv`, `FULLY_CONNECTED`)."""

    name: str
    kind: str
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    weights: tuple[Tensor, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    source_type: str | None = None

    def __getitem__(self, key: str) -> Any:
        return self.attributes[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.attributes.get(key, default)

    def nested(self) -> Iterator[Op]:
        """The op itself, and for control flow every op of its bodies."""
        yield self
        for body in self.get("bodies", ()):
            for op in body:
                yield from op.nested()

    @property
    def symbols(self) -> frozenset[str]:
        """The sizes in its shapes and attributes, and in those of the ops inside it."""
        found: set[str] = set()
        for tensor in (*self.inputs, *self.outputs, *self.weights):  # a plain loop: a plan asks each op several times
            for dim in tensor.shape:
                if isinstance(dim, Symbol):
                    found.add(dim.name)
                elif not isinstance(dim, int):
                    found |= symbols_in(dim)
        for value in self.attributes.values():
            if not isinstance(value, int | float | str):
                found |= _symbols(value)
        return frozenset(found)

    @property
    def parameters(self) -> int:
        """Each weight once, also where an op and its bodies both name it."""
        weights = {tensor.name: tensor for op in self.nested() for tensor in op.weights if tensor.role == "weight"}
        return sum(tensor.elements for tensor in weights.values() if isinstance(tensor.elements, int))


@frozen
class Block:
    """Ops that run `count` times in a row.

    In the names of ops and weights `{}` stands for the repetition's index, which starts at `first`:
    `layers.{}.attn.q_proj` in a block of two from 0 is `layers.0.attn.q_proj` and `layers.1.attn.q_proj`.
    """

    name: str
    ops: tuple[Op, ...]
    count: int = 1
    first: int = 0

    def full_name(self, name: str, repetition: int = 0) -> str:
        """An op's or weight's own name in one repetition. Not str.format: names come from files."""
        return name.replace("{}", str(self.first + repetition))


@frozen
class Graph:
    name: str
    blocks: tuple[Block, ...]
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    architecture: str | None = None
    precision: str | None = None  # the format weights and activations have where no other is asked for
    context_limit: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<graph {self.name}: {sum(len(block.ops) for block in self.blocks)} ops in {len(self.blocks)} blocks>"

    def ops(self) -> Iterator[tuple[Block, Op]]:
        """Each op once, with the block it stands in; the ops inside a loop or a branch stand inside their op."""
        return ((block, op) for block in self.blocks for op in block.ops)

    def weights(self) -> Iterator[tuple[Tensor, int]]:
        """Each weight once with how often it exists. One that several ops share (a tied embedding) counts once."""
        seen: set[str] = set()
        for block, outer in self.ops():
            for tensor in (tensor for op in outer.nested() for tensor in op.weights):
                full = block.full_name(tensor.name)
                if full not in seen:
                    seen.add(full)
                    yield tensor, block.count if "{}" in tensor.name else 1

    @property
    def parameters(self) -> int:
        return _parameters.get_or_make(
            (),
            (self,),
            lambda: sum(
                times * tensor.elements
                for tensor, times in self.weights()
                if tensor.role == "weight" and isinstance(tensor.elements, int)
            ),
        )

    @property
    def active_parameters(self) -> int:
        """All parameters but those of the experts that a token is not routed to.

        Routers, shared experts and the whole embedding count: a dense model's active parameters are all of them. (Some
        authors leave the embedding out, because a token reads one row of it; their figures are smaller by the table.)
        """
        idle = 0
        for block, op in self.ops():
            if op.kind == "moe_experts":
                experts, chosen = op["experts"], op["top_k"]
                idle += block.count * (op.parameters // experts) * max(experts - chosen, 0)
        return self.parameters - idle

    @property
    def size(self) -> int:
        """How many ops are written down, each once: what it takes to hold on to the graph."""
        return sum(len(block.ops) for block in self.blocks)

    @property
    def symbols(self) -> frozenset[str]:
        """The sizes a workload must bind."""
        ends = (tensor.symbols for tensor in (*self.inputs, *self.outputs))
        return _sizes.get_or_make((), (self,), lambda: frozenset().union(*ends, *(op.symbols for _, op in self.ops())))


def require_layers(graph: Graph) -> None:
    """A graph without ops can be neither run nor predicted; what its reader noted says what the file is instead."""
    if next(graph.ops(), None) is None:
        said = " ".join(graph.metadata.get("notes", ())) or "The file may be a part of a model."
        raise DomainError(f"{graph.name} has no layers. {said}", remedy="Give the file with the model's weights.")


# Looking through a graph takes milliseconds, and every prediction asks: the answers are kept.
_generative, _sizes, _parameters = Kept(), Kept(), Kept()


def is_generative(graph: Graph) -> bool:
    """Whether the graph makes tokens one after the other: it keeps a cache, or a state between steps."""
    return _generative.get_or_make((), (graph,), lambda: _makes_tokens(graph))


def _makes_tokens(graph: Graph) -> bool:
    for _, op in graph.ops():
        if op.kind == "attention" and op.get("cached"):
            return True
        if any(tensor.role in {"kv", "state"} for tensor in (*op.inputs, *op.outputs)):
            return takes_prompt(graph)
    return False


def takes_prompt(graph: Graph) -> bool:
    """Whether a size of the graph is the number of tokens read at once."""
    return "query" in graph.symbols


def _symbols(value: Any) -> frozenset[str]:
    """The sizes in an attribute: a dimension, ops, or a sequence of either."""
    if isinstance(value, Symbol | Expression):
        return symbols_in(value)
    if isinstance(value, Op):
        return value.symbols
    if isinstance(value, tuple | list):
        return frozenset().union(*map(_symbols, value))
    return frozenset()

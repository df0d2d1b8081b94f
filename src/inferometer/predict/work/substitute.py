"""A graph with some of its sizes put in: an image's, an encoder's.

What it buys: ops that differ in the expression of a size and not in its value become one row, and models of images are
prepared in half the time. tests/property/test_work_rules.py holds that their work stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from inferometer.core.dims import Expression, Symbol, evaluate, symbols_in
from inferometer.core.graph import Graph, Op, Tensor


def with_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with numbers for these sizes; the other sizes keep their names."""
    if not sizes:
        return graph
    names = _Names(sizes=sizes)
    blocks = tuple(replace(block, ops=tuple(names.op(op) for op in block.ops)) for block in graph.blocks)
    return replace(
        graph,
        blocks=blocks,
        inputs=tuple(names.tensor(tensor) for tensor in graph.inputs),
        outputs=tuple(names.tensor(tensor) for tensor in graph.outputs),
    )


@dataclass(slots=True)
class _Names:
    """Each dimension and tensor is replaced once: graphs pass the same values from op to op.

    Values are recognised by their identity, and kept, so that no other value gets the same one.
    """

    sizes: Mapping[str, int]
    seen: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def dim(self, dim: Any) -> Any:
        if not isinstance(dim, Symbol | Expression):
            return dim
        if id(dim) not in self.seen:
            names = {name: self.sizes.get(name, Symbol(name)) for name in symbols_in(dim)}
            self.seen[id(dim)] = (dim, evaluate(dim, names))
        return self.seen[id(dim)][1]

    def tensor(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self.seen:
            shape = tuple(self.dim(dim) for dim in tensor.shape)
            changed = any(new is not old for new, old in zip(shape, tensor.shape, strict=True))
            self.seen[id(tensor)] = (tensor, replace(tensor, shape=shape) if changed else tensor)
        sized: Tensor = self.seen[id(tensor)][1]
        return sized

    def op(self, op: Op) -> Op:
        return replace(
            op,
            inputs=tuple(self.tensor(tensor) for tensor in op.inputs),
            outputs=tuple(self.tensor(tensor) for tensor in op.outputs),
            weights=tuple(self.tensor(tensor) for tensor in op.weights),
            attributes={key: self._value(value) for key, value in op.attributes.items()},
        )

    def _value(self, value: Any) -> Any:
        if isinstance(value, Op):
            return self.op(value)
        if isinstance(value, tuple):
            return tuple(self._value(part) for part in value)
        return self.dim(value)

"""A binding in which the sizes that change are names: what work rules are run with once, instead of for every workload.

A graph is prepared for each runtime and format that is asked for, and rules ask for the same tensors again and again,
so the elements of tensors and the work of ops are remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from inferometer.core.binding import Binding
from inferometer.predict.work.polynomial import Polynomial

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.graph import Op, Tensor

T = TypeVar("T")

SYMBOLIC = ("batch", "query", "context", "logits")
NAMES = {name: Polynomial.symbol(name) for name in SYMBOLIC}


@dataclass(frozen=True, slots=True)
class Memo:
    """What is known of a graph's tensors and ops, by identity: each is kept, or its id would be reused."""

    elements: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    results: dict[Any, tuple[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)  # inherits, which `frozen` does not
class SymbolicBinding(Binding):
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    def elements(self, tensor: Tensor) -> Any:
        known = self.memo.elements.get(id(tensor))
        if known is None:
            total: Any = 1
            for dim in sorted(tensor.shape, key=lambda dim: not isinstance(dim, int)):  # numbers first: they are quick
                total = total * self.size(dim)
            known = self.memo.elements[id(tensor)] = (tensor, total)
        return known[1]


def remembered(what: str, thing: Any, op: Op, binding: Binding, make: Callable[[], T]) -> T:
    """What `make` makes of a thing (an op, or a row of one), once for the formats that matter to its op."""
    if not isinstance(binding, SymbolicBinding):
        return make()
    precision = binding.precision
    formats = (precision.activations, precision.kv, precision.weights if _stores(op) else None)
    key = (what, id(thing), formats)
    known = binding.memo.results.get(key)
    if known is None:
        known = binding.memo.results[key] = (thing, make())
    value: T = known[1]
    return value


def _stores(op: Op) -> bool:
    """Whether the format of weights can matter to an op."""
    return bool(op.weights) or op.kind == "control" or any(tensor.role == "weight" for tensor in op.inputs)

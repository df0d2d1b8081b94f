"""Binding: the sizes that a graph is evaluated at.

It gives every symbol its size (an int or a numpy array) and every tensor that names no format one, by its role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, Any

from inferometer.core.dims import Dim, evaluate
from inferometer.core.dtypes import DType, dtype
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.workload import Precision

if TYPE_CHECKING:
    from inferometer.core.graph import Op, Tensor


@frozen
class Binding:
    sizes: Mapping[str, Any] = field(default_factory=dict)
    precision: Precision = field(default_factory=Precision)

    def size(self, dim: Dim) -> Any:
        return evaluate(dim, self.sizes)

    def shape(self, tensor: Tensor) -> tuple[Any, ...]:
        return tuple(self.size(dim) for dim in tensor.shape)

    def elements(self, tensor: Tensor) -> Any:
        return prod([self.size(dim) for dim in tensor.shape])

    def format(self, tensor: Tensor) -> DType:
        """The tensor's own format, or the one the precision gives its role."""
        name = tensor.dtype or self._of_role(tensor.role)
        if name is None:
            raise DomainError(f"No format is known for {tensor.role} {tensor.name!r}.", remedy="Give a precision.")
        return dtype(name)

    def _of_role(self, role: str) -> str | None:
        if role == "weight":
            return self.precision.weights
        if role == "index":
            return "i64"
        return (self.precision.kv if role == "kv" else None) or self.precision.activations

    def nbytes(self, tensor: Tensor) -> Any:
        """Bytes of the tensor as stored: the file's own count where one was read."""
        if tensor.stored_bytes is not None:
            return tensor.stored_bytes
        return self.format(tensor).nbytes(self.elements(tensor))

    def arithmetic(self, op: Op) -> str:
        """The format an op is computed in: what the op says, else its first input's own arithmetic."""
        if stated := op.get("compute"):
            return str(stated)
        first = next((tensor for tensor in (*op.inputs, *op.weights, *op.outputs) if tensor.role != "index"), None)
        if first is None:
            return self.precision.activations or "f32"
        return self.format(first).arithmetic[0]

"""Symbolic dimensions.

A dimension of a tensor is an int, or an expression over symbols such as `batch`, `query`, `context`, `image`. Binding
gives each symbol an int **or a numpy array**, and the same plain arithmetic yields one answer or a million.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


class _Arithmetic:
    """The operators that build expressions. ×1 and +0 leave no trace."""

    __slots__ = ()

    def __add__(self, other: Dim) -> Dim:
        return _combine("+", self, other)  # type: ignore[arg-type]  # only Symbol and Expression inherit this

    def __radd__(self, other: Dim) -> Dim:
        return _combine("+", other, self)  # type: ignore[arg-type]

    def __sub__(self, other: Dim) -> Dim:
        return _combine("-", self, other)  # type: ignore[arg-type]

    def __rsub__(self, other: Dim) -> Dim:
        return _combine("-", other, self)  # type: ignore[arg-type]

    def __mul__(self, other: Dim) -> Dim:
        return _combine("*", self, other)  # type: ignore[arg-type]

    def __rmul__(self, other: Dim) -> Dim:
        return _combine("*", other, self)  # type: ignore[arg-type]

    def __floordiv__(self, other: Dim) -> Dim:
        return _combine("//", self, other)  # type: ignore[arg-type]

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _combine("//", other, self)  # type: ignore[arg-type]

    def __mod__(self, other: Dim) -> Dim:
        return _combine("%", self, other)  # type: ignore[arg-type]

    def __neg__(self) -> Dim:
        return _combine("*", -1, self)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Symbol(_Arithmetic):
    """A size that the workload decides."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Expression(_Arithmetic):
    operation: str
    left: Dim
    right: Dim

    def __str__(self) -> str:
        return f"({self.left} {self.operation} {self.right})"


Dim = int | Symbol | Expression


def _combine(operation: str, left: Dim, right: Dim) -> Dim:
    if operation in {"*", "//"} and right == 1:
        return left
    if operation in {"+", "-"} and right == 0:
        return left
    if (operation == "*" and left == 1) or (operation == "+" and left == 0):
        return right
    return Expression(operation, left, right)


def evaluate(dim: Dim, values: Mapping[str, Any]) -> Any:
    """The number (or array) a dimension is, given the symbols' values."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Symbol):
        if dim.name not in values:
            bound = ", ".join(sorted(values)) or "nothing"
            raise DomainError(f"The size {dim.name!r} is not bound (bound: {bound}).", remedy=f"Give {dim.name}=….")
        return values[dim.name]
    return _OPERATIONS[dim.operation](evaluate(dim.left, values), evaluate(dim.right, values))


def product(dims: tuple[Dim, ...]) -> Dim:
    """How many elements a shape has."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def symbols_in(dim: Dim) -> frozenset[str]:
    names, left = set(), [dim]
    while left:  # a loop: expressions of an image's sides are deep, and graphs have thousands of them
        part = left.pop()
        if isinstance(part, Expression):
            left += (part.left, part.right)
        elif isinstance(part, Symbol):
            names.add(part.name)
    return frozenset(names)

"""Polynomials over sizes: what a work rule gives when its sizes are names instead of numbers.

Most work is a polynomial in batch, query, context and logits. A rule that is run once with polynomials gives its
coefficients; after that the work of a whole graph, for one workload or a million, is one matrix product. A rule that
does what no polynomial can (a window's minimum, an expert's chance to be touched) says so by raising
`NotPolynomialError`, and is run with numbers each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from inferometer.core.binding import Binding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from inferometer.core.graph import Op, Tensor

Monomial = tuple[str, ...]  # names in order, one for each power: ("batch", "query", "query")

_MOST_RESIDUES = 4096  # combinations that are tried one by one before divisibility counts as unknown
_NUMBERS = frozenset({int, float, Fraction})


class NotPolynomialError(Exception):
    """What was asked for is no polynomial with these arguments. It never reaches the user."""


class Polynomial:
    """A sum of terms. Arithmetic with numbers and other polynomials; a division must come out even."""

    __slots__ = ("terms",)
    __array_ufunc__ = None  # numpy's functions refuse it, and the rule falls back to numbers

    def __init__(self, terms: Mapping[Monomial, Any]) -> None:
        self.terms = {monomial: factor for monomial, factor in terms.items() if factor}

    @classmethod
    def of(cls, value: Any) -> Polynomial:
        """The polynomial itself, or a constant one."""
        if isinstance(value, Polynomial):
            return value
        if not isinstance(value, int | float | Fraction):
            raise NotPolynomialError
        return cls({(): value})

    @classmethod
    def symbol(cls, name: str) -> Polynomial:
        return cls({(name,): 1})

    def _scaled(self, factor: Any) -> Polynomial:
        """Times a number that is not 0: no term goes away, so none is checked."""
        scaled = Polynomial.__new__(Polynomial)
        scaled.terms = {monomial: value * factor for monomial, value in self.terms.items()}
        return scaled

    def __add__(self, other: Any) -> Polynomial:
        if type(other) is int and not other:  # a sum begins with 0
            return self
        terms = dict(self.terms)
        for monomial, factor in Polynomial.of(other).terms.items():
            terms[monomial] = terms.get(monomial, 0) + factor
        return Polynomial(terms)

    __radd__ = __add__

    def __neg__(self) -> Polynomial:
        return self._scaled(-1)

    def __sub__(self, other: Any) -> Polynomial:
        return self + -Polynomial.of(other)

    def __rsub__(self, other: Any) -> Polynomial:
        return Polynomial.of(other) - self

    def __mul__(self, other: Any) -> Polynomial:
        if type(other) in _NUMBERS and other:
            return self if other == 1 else self._scaled(other)
        terms: dict[Monomial, Any] = {}
        for (one, a), (two, b) in product(self.terms.items(), Polynomial.of(other).terms.items()):
            monomial = tuple(sorted(one + two))  # batch·query and query·batch are one
            terms[monomial] = terms.get(monomial, 0) + a * b
        return Polynomial(terms)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Polynomial:
        if isinstance(other, Polynomial):
            return self // other
        return Polynomial({monomial: factor / other for monomial, factor in self.terms.items()})

    def __floordiv__(self, other: Any) -> Polynomial:
        """Division by a number or a single term that leaves no rest, whatever whole numbers the names stand for."""
        if type(other) is int and other == 1 and all(type(value) is int for value in self.terms.values()):
            return self
        divisor = Polynomial.of(other)
        if len(divisor.terms) != 1:
            raise NotPolynomialError
        (names, factor), *_ = divisor.terms.items()
        shortened = {_without(monomial, names): value for monomial, value in self.terms.items()}
        if not _divisible(shortened, factor):
            raise NotPolynomialError
        return Polynomial({monomial: _quotient(value, factor) for monomial, value in shortened.items()})

    def __rfloordiv__(self, other: Any) -> Polynomial:
        return Polynomial.of(other) // self

    def _undecided(self, _: Any) -> bool:
        raise NotPolynomialError

    # What a comparison decides depends on the sizes: such a rule is run with numbers.
    __mod__ = __rmod__ = __lt__ = __le__ = __gt__ = __ge__ = _undecided

    def __bool__(self) -> bool:
        if any(self.terms):
            raise NotPolynomialError
        return bool(self.terms)

    def __repr__(self) -> str:
        return " + ".join("·".join((str(factor), *names)) for names, factor in self.terms.items()) or "0"


def _quotient(value: int, factor: int) -> Any:
    """A whole number where it is one; n·(n + 1) over 2 has halves as coefficients."""
    return Fraction(value, factor) if value % factor else value // factor


def _without(monomial: Monomial, names: Monomial) -> Monomial:
    if not names:
        return monomial
    left = list(monomial)
    for name in names:
        if name not in left:
            raise NotPolynomialError
        left.remove(name)
    return tuple(left)


def _divisible(terms: Mapping[Monomial, Any], factor: Any) -> bool:
    """Whether the sum is a multiple of a whole number for all whole numbers: n·(n + 1) is one of 2."""
    if not all(isinstance(value, int) for value in (factor, *terms.values())):
        return False
    if all(value % factor == 0 for value in terms.values()):
        return True
    names = sorted({name for monomial in terms for name in monomial})
    if factor ** len(names) > _MOST_RESIDUES:
        return False
    for residues in product(range(factor), repeat=len(names)):
        values = dict(zip(names, residues, strict=True))
        if sum(value * prod(values[name] for name in monomial) for monomial, value in terms.items()) % factor:
            return False
    return True


def monomials_of(polynomials: Iterable[Any]) -> tuple[Monomial, ...]:
    """Every product of names that occurs in polynomials and numbers, the constant first."""
    monomials: dict[Monomial, None] = {(): None}
    for polynomial in polynomials:
        if isinstance(polynomial, Polynomial):
            monomials |= dict.fromkeys(polynomial.terms)
    return tuple(monomials)


def coefficients(polynomials: Sequence[Any], monomials: Sequence[Monomial]) -> Any:
    """A matrix with a row for each polynomial or number and a column for each monomial."""
    column = {monomial: number for number, monomial in enumerate(monomials)}
    matrix = np.zeros((len(polynomials), len(monomials)))
    for number, polynomial in enumerate(polynomials):
        if isinstance(polynomial, Polynomial):
            for monomial, factor in polynomial.terms.items():
                matrix[number, column[monomial]] = float(factor)
        elif polynomial:
            matrix[number, column[()]] = float(polynomial)
    return matrix


def _flat(value: Any, shape: tuple[int, ...]) -> Any:
    spread = value if np.shape(value) == shape else np.broadcast_to(value, shape)
    return np.ravel(spread).astype(float, copy=False)


def spread_monomials(monomials: Sequence[Monomial], sizes: Mapping[str, Any], shape: tuple[int, ...]) -> Any:
    """The value of each monomial, [monomials, n]: n workloads of that shape, flattened; one where sizes are numbers."""
    if prod(shape) == 1:
        numbers = {
            name: float(value.item() if isinstance(value, np.ndarray) else value) for name, value in sizes.items()
        }
        return np.array([[prod([numbers[name] for name in monomial], start=1.0)] for monomial in monomials])
    values = {name: _flat(value, shape) if np.ndim(value) else float(value) for name, value in sizes.items()}
    products = [prod((values[name] for name in monomial), start=1.0) for monomial in monomials]
    table = np.empty((len(monomials), prod(shape)))
    for number, value in enumerate(products):
        table[number] = value
    return table


# Bindings for many questions about one graph. One in which the sizes that change are names is what work rules are run
# with once, instead of for every workload.
#
# A graph is prepared for each runtime and format that is asked for, and rules ask for the same tensors again and
# again, so the elements of tensors and the work of ops are remembered.

T = TypeVar("T")

SYMBOLIC = ("batch", "query", "context", "logits")
NAMES = {name: Polynomial.symbol(name) for name in SYMBOLIC}


@dataclass(frozen=True, slots=True)
class Memo:
    """Facts about a graph's tensors and ops, by identity: each object is kept, or its id would be reused."""

    elements: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    stored: dict[tuple[int, str], Any] = field(default_factory=dict)  # bytes by format; `elements` keeps the tensors
    results: dict[Any, tuple[Any, Any]] = field(default_factory=dict)

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        """Empty in another process, where the same things have other identities."""
        return Memo, ()


@dataclass(frozen=True, slots=True, kw_only=True)  # inherits, which `frozen` does not
class MemoBinding(Binding):
    """Sizes, or names of sizes, that are the same wherever the memo is."""

    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    def elements(self, tensor: Tensor) -> Any:
        known = self.memo.elements.get(id(tensor))
        if known is None:
            total: Any = 1
            for dim in sorted(tensor.shape, key=lambda dim: not isinstance(dim, int)):  # numbers first: they are quick
                total = total * self.size(dim)
            known = self.memo.elements[id(tensor)] = (tensor, total)
        return known[1]

    def nbytes(self, tensor: Tensor) -> Any:
        if tensor.stored_bytes is not None:
            return tensor.stored_bytes
        kind = self.format(tensor)
        key = (id(tensor), kind.name)
        known = self.memo.stored.get(key)
        if known is None:
            known = self.memo.stored[key] = kind.nbytes(self.elements(tensor))
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolicBinding(MemoBinding):
    """Its sizes that change are names."""


def remembered(what: str, thing: Any, op: Op, binding: Binding, make: Callable[[], T]) -> T:
    """What `make` makes of a thing (an op, or a row of one), once for the formats that matter to its op."""
    if not isinstance(binding, MemoBinding):
        return make()
    key = (what, id(thing), formats_that_matter(op, binding))
    known = binding.memo.results.get(key)
    if known is None:
        known = binding.memo.results[key] = (thing, make())
    value: T = known[1]
    return value


def formats_that_matter(op: Op, binding: Binding) -> tuple[str | None, ...]:
    """What is asked of formats; that of weights only where the op can have some."""
    precision = binding.precision
    stores = bool(op.weights) or op.kind == "control" or any(tensor.role == "weight" for tensor in op.inputs)
    return precision.activations, precision.kv, precision.weights if stores else None


# Arithmetic that takes ints and arrays alike. Ints go through Python, so they stay exact however large they are.


def smaller(one: Any, other: Any) -> Any:
    """The smaller of two numbers, element by element."""
    return min(one, other) if isinstance(one, int) and isinstance(other, int) else np.minimum(one, other)


def larger(one: Any, other: Any) -> Any:
    """The larger of two numbers, element by element."""
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else np.maximum(one, other)


def ceil_log2(count: Any) -> Any:
    """How often `count` things (1 or more) must be halved until one is left."""
    if isinstance(count, int):
        return (count - 1).bit_length()
    return np.ceil(np.log2(count)).astype(np.int64)

"""Arithmetic of sizes in one normal form, so that two ways of writing the same size are equal.

A size is a sum of products of atoms with whole coefficients; an atom is a symbol, or a quotient or remainder that could
not be resolved. Sizes are taken to be large enough for what the model does with them, and exact divisions to be exact.
"""

from functools import lru_cache
from math import gcd

from inferometer.core.dims import Dim, Expression, Symbol
from inferometer.formats.onnx.faults import MAX_DIM_PARTS, MAX_NUMBER, Fault, UnknownShapeError

_Monomial = tuple[Dim, ...]
_Terms = dict[_Monomial, int]


def add(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    return _build(_sum(_terms(one), _terms(other), 1))


def sub(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int):
        return one - other
    return _build(_sum(_terms(one), _terms(other), -1))


def mul(one: Dim, other: Dim) -> Dim:
    if isinstance(one, int) and isinstance(other, int):
        return one * other
    if one == 1 or other == 1:
        return other if one == 1 else one
    return _build(_times(_terms(one), _terms(other)))


def product(dims: tuple[Dim, ...]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = mul(total, dim)
    return total


def normal(dim: Dim) -> Dim:
    """The same size in normal form."""
    return dim if isinstance(dim, int | Symbol) else _build(_terms(dim))


def floordiv(one: Dim, other: Dim) -> Dim:
    """One // other, for a divisor greater than 0."""
    if isinstance(other, int):
        if other <= 0:
            raise Fault(f"a size divided by {other}")
        return one // other if isinstance(one, int) else _by_number(one, other)
    exact = _exact(_terms(one), _terms(other))
    return _sized(Expression("//", one, other)) if exact is None else _build(exact)


def ceildiv(one: Dim, other: int) -> Dim:
    return floordiv(add(one, other - 1), other)


def divide(one: Dim, other: Dim) -> Dim | None:
    """The quotient where the division is seen to be exact, else None."""
    if isinstance(one, int) and isinstance(other, int):
        return one // other if other and one % other == 0 else None
    exact = _exact(_terms(one), _terms(other))
    return None if exact is None else _build(exact)


def mod(one: Dim, other: Dim) -> Dim:
    if isinstance(other, int) and other <= 0:
        raise Fault(f"the remainder of a size divided by {other}")
    if isinstance(one, int) and isinstance(other, int):
        return one % other
    if not isinstance(other, int):
        exact = _exact(_terms(one), _terms(other))
        return 0 if exact is not None else _sized(Expression("%", one, other))
    rest = _build({monomial: c % other for monomial, c in _terms(one).items() if c % other})
    return rest % other if isinstance(rest, int) else _sized(Expression("%", rest, other))


def is_negative(dim: Dim) -> bool:
    """Whether it is below 0 for all positive sizes, as far as its signs show."""
    return all(coefficient < 0 for coefficient in _terms(dim).values()) and dim != 0


def _by_number(one: Dim, divisor: int) -> Dim:
    """Terms that the divisor divides come out; a quotient within a quotient becomes one quotient."""
    whole: _Terms = {}
    rest: _Terms = {}
    constant = 0
    for monomial, coefficient in _terms(one).items():
        if not monomial:
            quotient, constant = divmod(coefficient, divisor)
            whole[()] = whole.get((), 0) + quotient
        elif coefficient % divisor == 0:
            whole[monomial] = coefficient // divisor
        else:
            rest[monomial] = coefficient
    if not rest:
        return _build(whole)
    shared = gcd(divisor, *rest.values())
    rest = {monomial: coefficient // shared for monomial, coefficient in rest.items()}
    constant, divisor = constant // shared, divisor // shared
    if divisor == 1:
        return _build(_sum(whole, {**rest, (): constant}, 1))
    inner = _single_quotient(rest)
    if inner is not None:  # (x // d + c) // e = (x + c·d) // (d·e)
        x, d = inner
        return add(_build(whole), floordiv(add(x, constant * d), d * divisor))
    quotient_of = _sized(Expression("//", _build({**rest, (): constant}), divisor))
    return add(_build(whole), quotient_of)


def _single_quotient(terms: _Terms) -> tuple[Dim, int] | None:
    """The x and d of a lone x // d."""
    if len(terms) != 1:
        return None
    (monomial, coefficient) = next(iter(terms.items()))
    atom = monomial[0] if len(monomial) == 1 and coefficient == 1 else None
    if isinstance(atom, Expression) and atom.operation == "//" and isinstance(atom.right, int):
        return atom.left, atom.right
    return None


def _exact(numerator: _Terms, divisor: _Terms) -> _Terms | None:
    """Polynomial division that leaves nothing, or None."""
    rest, quotient = dict(numerator), _Terms()
    lead = max(divisor, key=_rank) if divisor else None
    if lead is None:
        return None
    for _ in range(len(numerator) + 4):
        if not rest:
            return quotient
        top = max(rest, key=_rank)
        factor = _without(top, lead)
        if factor is None or rest[top] % divisor[lead]:
            return None
        step = {factor: rest[top] // divisor[lead]}
        quotient = _sum(quotient, step, 1)
        rest = _sum(rest, _times(step, divisor), -1)
    return None


def _without(monomial: _Monomial, part: _Monomial) -> _Monomial | None:
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


@lru_cache(maxsize=8192)
def _key(dim: Dim) -> str:
    return str(dim)


def _rank(monomial: _Monomial) -> tuple[int, tuple[str, ...]]:
    return len(monomial), tuple(_key(atom) for atom in monomial)


def _sum(one: _Terms, other: _Terms, sign: int) -> _Terms:
    total = dict(one)
    for monomial, coefficient in other.items():
        left = total.get(monomial, 0) + sign * coefficient
        if left:
            total[monomial] = left
        else:
            total.pop(monomial, None)
    return total


def _times(one: _Terms, other: _Terms) -> _Terms:
    if len(one) * len(other) > MAX_DIM_PARTS:
        raise UnknownShapeError("a size too long to write")
    total = _Terms()
    for a, m in one.items():
        for b, n in other.items():
            monomial = tuple(sorted((*a, *b), key=_key))
            if left := total.get(monomial, 0) + m * n:
                total[monomial] = left
            else:
                total.pop(monomial, None)
    return total


@lru_cache(maxsize=8192)
def _cached_terms(dim: Dim) -> tuple[tuple[_Monomial, int], ...]:
    if isinstance(dim, Symbol):
        return (((dim,), 1),)
    if isinstance(dim, Expression) and dim.operation in "+-*":
        one, other = _terms(dim.left), _terms(dim.right)
        if dim.operation == "*":
            return tuple(_times(one, other).items())
        return tuple(_sum(one, other, 1 if dim.operation == "+" else -1).items())
    return (((dim,), 1),)


def _terms(dim: Dim) -> _Terms:
    if isinstance(dim, int):
        return {(): dim} if dim else {}
    return dict(_cached_terms(dim))


def _build(terms: _Terms) -> Dim:
    """Positive terms first, then what is taken away, the number last."""
    total: Dim = 0
    for monomial in sorted((m for m in terms if m), key=lambda m: (terms[m] < 0, -len(m), _rank(m))):
        coefficient = terms[monomial]
        taken_away = coefficient < 0 and total != 0
        value: Dim = -coefficient if taken_away else coefficient
        for atom in monomial:
            value = value * atom
        total = total - value if taken_away else total + value
    constant = terms.get((), 0)
    return _sized(total - -constant if constant < 0 and total != 0 else total + constant)


def _sized(dim: Dim) -> Dim:
    """The size itself, unless it has grown beyond what anyone could read or should compute."""
    pending, parts = [dim], 0
    while pending:
        part = pending.pop()
        parts += 1
        if parts > MAX_DIM_PARTS or (isinstance(part, int) and abs(part) > MAX_NUMBER):
            raise UnknownShapeError("a size too long to write")
        if isinstance(part, Expression):
            pending += [part.left, part.right]
    return dim

"""Arithmetic on single known elements: numbers, sizes, and sizes not rounded yet. Unknown in, unknown out."""

import math
from collections.abc import Callable
from fractions import Fraction

from inferometer.core.dims import Dim, Expression, Symbol
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.content import Item, SizeRatio

_MAX_DENOMINATOR = 1024  # scale factors are ratios of small numbers; anything else is not followed


def _as_dim(item: Item) -> Dim | None:
    if isinstance(item, float):
        return int(item) if item.is_integer() else None
    return item if isinstance(item, int | Symbol | Expression) else None


def _dims(one: Item, other: Item) -> tuple[Dim, Dim] | None:
    a, b = _as_dim(one), _as_dim(other)
    return None if a is None or b is None else (a, b)


def _linear(numbers: Callable[[float, float], float], dims: Callable[[Dim, Dim], Dim]) -> Callable[[Item, Item], Item]:
    def compute(one: Item, other: Item) -> Item:
        if isinstance(one, int | float) and isinstance(other, int | float):
            return _finite(numbers(one, other))
        pair = _dims(one, other)
        return None if pair is None else dims(*pair)

    return compute


def _finite(value: float) -> Item:
    return value if isinstance(value, int) or math.isfinite(value) else None


add = _linear(lambda a, b: a + b, algebra.add)
_sub = _linear(lambda a, b: a - b, algebra.sub)


def mul(one: Item, other: Item) -> Item:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return _finite(one * other)
    for factor, item in ((one, other), (other, one)):
        if isinstance(factor, int | float) and not isinstance(item, int | float) and item is not None:
            # A size times a number, which may leave a fraction.
            if not math.isfinite(factor):
                return None
            ratio = Fraction(factor).limit_denominator(_MAX_DENOMINATOR)
            if abs(float(ratio) - factor) > 1e-6 * abs(factor):
                return None
            top, bottom = (item.top, item.bottom) if isinstance(item, SizeRatio) else (item, 1)
            return _ratio(algebra.mul(top, ratio.numerator), bottom * ratio.denominator)
    pair = _dims(one, other)
    return None if pair is None else algebra.mul(*pair)


def _ratio(top: Dim, bottom: int) -> Item:
    exact = algebra.divide(top, bottom)
    return SizeRatio(top, bottom) if exact is None else exact


def divide_integers(one: Item, other: Item) -> Item:
    """Division of whole numbers drops what is left over; sizes are not negative."""
    if isinstance(one, int) and isinstance(other, int):
        if other == 0:
            return None
        quotient = abs(one) // abs(other)
        return quotient if (one < 0) == (other < 0) else -quotient
    pair = _dims(one, other)
    if pair is None or (isinstance(pair[1], int) and pair[1] <= 0):
        return None
    return algebra.floordiv(*pair)


def divide_floats(one: Item, other: Item) -> Item:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return _finite(one / other) if other else None
    if isinstance(other, int | float):
        return None if one is None or not other else mul(one, 1 / other)
    pair = _dims(one, other)
    return None if pair is None else algebra.divide(*pair)


def _mod(one: Item, other: Item) -> Item:
    if isinstance(one, int) and isinstance(other, int):
        return one % other if other else None
    pair = _dims(one, other)
    if pair is None or (isinstance(pair[1], int) and pair[1] <= 0):
        return None
    return algebra.mod(*pair)


def _power(one: Item, other: Item) -> Item:
    if isinstance(one, int | float) and isinstance(other, int | float) and abs(one) < 1e6 and abs(other) <= 8:
        try:
            value = one**other
        except ZeroDivisionError:
            return None
        return value if isinstance(value, int | float) else None
    return None


def sign(item: Item) -> int | None:
    """-1, 0 or 1 where the sign is certain. A size is at least 1."""
    if item is None or isinstance(item, SizeRatio):
        return None
    if isinstance(item, int | float):
        return (item > 0) - (item < 0)
    if algebra.is_negative(item):
        return -1
    return 1 if algebra.is_negative(algebra.mul(item, -1)) else None


def _compare(test: Callable[[int], bool]) -> Callable[[Item, Item], Item]:
    def compute(one: Item, other: Item) -> Item:
        difference = sign(_sub(one, other))
        return None if difference is None else int(test(difference))

    return compute


def _larger(one: Item, other: Item) -> Item:
    difference = sign(_sub(one, other))
    return None if difference is None else one if difference >= 0 else other


def _smaller(one: Item, other: Item) -> Item:
    difference = sign(_sub(one, other))
    return None if difference is None else one if difference <= 0 else other


def _both(one: Item, other: Item) -> Item:
    if one == 0 or other == 0:
        return 0
    return None if one is None or other is None else 1


def _either(one: Item, other: Item) -> Item:
    if one == 1 or other == 1:
        return 1
    return None if one is None or other is None else 0


BINARY: dict[str, Callable[[Item, Item], Item]] = {
    "Add": add, "Sub": _sub, "Mul": mul, "Mod": _mod, "Pow": _power, "Max": _larger, "Min": _smaller, "Sum": add,
    "Equal": _compare(lambda s: s == 0), "Less": _compare(lambda s: s < 0), "LessOrEqual": _compare(lambda s: s <= 0),
    "Greater": _compare(lambda s: s > 0), "GreaterOrEqual": _compare(lambda s: s >= 0), "And": _both, "Or": _either,
}  # fmt: skip


def to_integer(item: Item) -> Item:
    if isinstance(item, SizeRatio):
        return algebra.floordiv(item.top, item.bottom)
    return math.trunc(item) if isinstance(item, float) else item


def _floor(item: Item) -> Item:
    return float(math.floor(item)) if isinstance(item, float) else to_integer(item)


def _ceil(item: Item) -> Item:
    if isinstance(item, SizeRatio):
        return algebra.ceildiv(item.top, item.bottom)
    return float(math.ceil(item)) if isinstance(item, float) else item


def _not(item: Item) -> Item:
    certain = sign(item)
    return None if certain is None else int(certain == 0)


def _root(item: Item) -> Item:
    return math.sqrt(item) if isinstance(item, int | float) and item >= 0 else None


def _absolute(item: Item) -> Item:
    certain = sign(item)
    return None if certain is None else item if certain >= 0 else mul(item, -1)


def _number(function: Callable[[float], float]) -> Callable[[Item], Item]:
    def compute(item: Item) -> Item:
        try:
            return _finite(function(item)) if isinstance(item, int | float) else None
        except (ValueError, OverflowError):
            return None

    return compute


UNARY: dict[str, Callable[[Item], Item]] = {
    "Identity": lambda item: item,
    "Neg": lambda item: mul(item, -1),
    "Abs": _absolute,
    "Floor": _floor,
    "Ceil": _ceil,
    "Round": lambda item: float(round(item)) if isinstance(item, float) else item,
    "Not": _not,
    "Sqrt": _root,
    "Sign": sign,
    "Exp": _number(math.exp),
    "Log": _number(math.log),
    "Reciprocal": lambda item: divide_floats(1.0, item),
}

"""Arithmetic on known elements: as Python's for numbers, and for sizes what it is once they are known."""

import math
import operator
from fractions import Fraction

import pytest

from inferometer.core.dims import Symbol, evaluate
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.content import SizeRatio
from inferometer.formats.onnx.rules import items

N = Symbol("n")
NUMBERS = (-7, -3, -1, 0, 1, 2, 3, 8)
PLAIN = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Mod": operator.mod, "Pow": operator.pow,
    "Max": max, "Min": min, "Sum": operator.add, "Equal": operator.eq, "Less": operator.lt,
    "LessOrEqual": operator.le, "Greater": operator.gt, "GreaterOrEqual": operator.ge,
    "And": lambda one, other: one != 0 and other != 0, "Or": lambda one, other: one == 1 or other == 1,
}  # fmt: skip


def known(item, size):
    """What an item is once the size is known; rounded no more than it says."""
    if isinstance(item, SizeRatio):
        return Fraction(evaluate(item.top, {"n": size}), item.bottom)
    return evaluate(item, {"n": size}) if isinstance(item, algebra.Expression | Symbol) else item


@pytest.mark.parametrize("name", items.BINARY)
def test_numbers_are_computed_as_python_computes_them(name):
    for one in NUMBERS:
        for other in NUMBERS:
            try:
                expected = PLAIN[name](one, other)
            except ZeroDivisionError:
                expected = None
            assert items.BINARY[name](one, other) == expected, (one, other)


@pytest.mark.parametrize("name", sorted(items.BINARY.keys() - {"Pow", "And", "Or"}))
def test_sizes_are_computed_as_the_numbers_that_they_will_be(name):
    sizes = [N, algebra.add(N, 3), algebra.mul(N, 2), algebra.sub(N, 1)]
    told = 0
    for one in (*sizes, 2, 5):
        for other in (*sizes, 2, 5):
            found = items.BINARY[name](one, other)
            for size in (1, 4, 9):
                if found is not None and known(other, size):
                    told += not isinstance(found, int)
                    assert known(found, size) == PLAIN[name](known(one, size), known(other, size)), (one, other, size)
    assert told or name in {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}


def test_what_is_not_known_stays_unknown_unless_the_other_decides():
    for name, compute in items.BINARY.items():
        decided = {"And": 0, "Or": 1}.get(name)
        for one, other in ((None, 3), (3, None), (None, None)):
            assert compute(one, other) is None, name
        if decided is not None:
            assert compute(None, decided) == compute(decided, None) == decided
            assert compute(1 - decided, 1 - decided) == 1 - decided
    for compute in (items.divide_integers, items.divide_floats):
        assert [compute(*pair) for pair in ((None, 2), (2, None), (4, 0), (N, 0))] == [None] * 4


def test_comparisons_of_sizes_are_told_where_they_are_certain():
    more = algebra.add(N, 2)
    compare = {
        name: (items.BINARY[name](more, N), items.BINARY[name](N, more), items.BINARY[name](N, N))
        for name in items.BINARY
    }
    assert compare["Less"] == (0, 1, 0)
    assert compare["LessOrEqual"] == (0, 1, 1)
    assert compare["Greater"] == (1, 0, 0)
    assert compare["GreaterOrEqual"] == (1, 0, 1)
    assert compare["Equal"] == (0, 0, 1)
    assert compare["Max"] == (more, more, N)
    assert compare["Min"] == (N, N, N)
    assert items.BINARY["Less"](N, 5) is None  # it may be either


def test_whole_numbers_are_divided_towards_zero_and_sizes_rounded_down():
    pairs = [(one, other) for one in NUMBERS for other in NUMBERS if other]
    assert [items.divide_integers(*pair) for pair in pairs] == [math.trunc(Fraction(*pair)) for pair in pairs]
    assert [known(items.divide_integers(N, 4), size) for size in (3, 4, 9)] == [0, 1, 2]
    assert items.divide_integers(algebra.mul(N, 6), 3) == algebra.mul(N, 2)
    assert (items.divide_integers(N, -2), items.BINARY["Mod"](N, 0), items.BINARY["Mod"](N, -2)) == (None, None, None)


def test_a_quotient_of_floats_may_be_a_fraction_of_a_size():
    assert [items.divide_floats(*pair) for pair in ((3, 2), (-3.0, 4), (1e308, 1e-10))] == [1.5, -0.75, None]
    assert items.divide_floats(algebra.mul(N, 6), algebra.mul(N, 3)) == 2
    assert items.divide_floats(algebra.mul(N, 6), 2.0) == algebra.mul(N, 3)
    half = items.divide_floats(N, 2)
    assert (half, items.mul(half, 2), items.mul(half, 0.5)) == (SizeRatio(N, 2), N, SizeRatio(N, 4))
    assert items.mul(1.5, N) == items.mul(N, 1.5) == SizeRatio(algebra.mul(N, 3), 2)
    assert [items.mul(N, factor) for factor in (0.00123, math.inf, math.nan)] == [None] * 3
    assert items.mul(N, 1 / 3) == SizeRatio(N, 3)
    assert [items.to_integer(item) for item in (2.9, -2.9, 3, None)] == [2, -2, 3, None]
    assert [known(items.to_integer(half), size) for size in (4, 5)] == [2, 2]


def test_functions_of_one_item():
    unary = items.UNARY
    half = SizeRatio(N, 2)
    assert [known(unary["Floor"](half), size) for size in (4, 5)] == [2, 2]
    assert [known(unary["Ceil"](half), size) for size in (4, 5)] == [2, 3]
    table = {
        "Identity": (2.5, 2.5, -3), "Neg": (2.5, -2.5, 3), "Abs": (2.5, 2.5, 3), "Floor": (2.5, 2.0, -3),
        "Ceil": (2.5, 3.0, -3), "Round": (2.6, 3.0, -3), "Not": (2.5, 0, 0), "Sqrt": (6.25, 2.5, None),
        "Sign": (2.5, 1, -1), "Exp": (0.0, 1.0, math.exp(-3)), "Log": (1.0, 0.0, None),
        "Reciprocal": (2.5, 0.4, -1 / 3),
    }  # fmt: skip
    assert table.keys() == unary.keys()
    for name, (given, expected, of_minus_three) in table.items():
        for item, wanted in ((given, expected), (-3, of_minus_three)):
            found = unary[name](item)
            assert found == (wanted if wanted is None else pytest.approx(wanted)), name
            assert type(found) is type(wanted), name
        assert unary[name](None) is None
    assert (unary["Not"](0), unary["Not"](N), unary["Sign"](0), unary["Sqrt"](0)) == (1, 0, 0, 0.0)
    assert (unary["Exp"](1e4), unary["Log"](0), unary["Sqrt"](N), unary["Reciprocal"](0)) == (None,) * 4
    less = algebra.sub(algebra.mul(N, -1), 2)
    assert (unary["Sign"](less), unary["Sign"](algebra.sub(N, 4)), unary["Abs"](less)) == (-1, None, algebra.add(N, 2))


def test_a_power_is_followed_while_it_is_small():
    power = items.BINARY["Pow"]
    assert [power(*pair) for pair in ((2, 8), (2, -1), (4, 0.5), (999_999, 1))] == [256, 0.5, 2.0, 999_999]
    assert [power(*pair) for pair in ((2, 9), (1e6, 1), (0, -1), (-8, 0.5), (N, 2), (2, N))] == [None] * 6

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.dims import Symbol, evaluate
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import Fault, UnknownShapeError

H, B, Q, C = Symbol("h"), Symbol("b"), Symbol("q"), Symbol("c")


def halved(size):
    """A convolution of stride 2, a window of 3 and a padding of 1."""
    return algebra.add(algebra.floordiv(algebra.sub(algebra.add(size, 2), 3), 2), 1)


def test_stacked_strides_become_one_quotient():
    size = H
    for _ in range(5):
        size = halved(size)
    assert str(size) == "((h + 31) // 32)"


def test_what_cancels_is_gone():
    assert algebra.sub(algebra.add(B, Q), B) == Q
    assert algebra.sub(Q, Q) == 0


def test_two_ways_to_write_a_size_are_equal():
    assert algebra.mul(algebra.add(C, Q), 2) == algebra.add(algebra.add(Q, Q), algebra.mul(C, 2))


def test_a_shape_divided_by_its_part_leaves_the_rest():
    whole = algebra.product((B, Q, 768))
    assert algebra.floordiv(whole, algebra.product((B, Q))) == 768
    assert algebra.divide(algebra.mul(algebra.add(C, Q), 768), algebra.mul(algebra.add(C, Q), 12)) == 64


@pytest.mark.parametrize("one", [1, 5, 12, H, algebra.add(C, Q)], ids=str)
@pytest.mark.parametrize("other", [1, 3, 7, B, algebra.mul(B, 4)], ids=str)
def test_what_was_multiplied_is_divided_out_again(one, other):
    assert algebra.divide(algebra.mul(one, other), other) == one
    assert algebra.floordiv(algebra.mul(one, other), other) == one


def test_a_division_that_is_not_exact_says_so():
    assert algebra.divide(7, 0) is None
    assert algebra.divide(H, 2) is None
    assert algebra.divide(7, 2) is None
    assert algebra.divide(B, Q) is None


def test_remainders_drop_what_the_divisor_divides():
    assert algebra.mod(algebra.add(algebra.mul(4, H), 6), 4) == 2
    assert str(algebra.mod(H, 2)) == "(h % 2)"
    assert algebra.mod(algebra.mul(B, Q), Q) == 0


def test_signs_are_told_where_they_are_certain():
    assert algebra.is_negative(algebra.mul(Q, -1))
    assert not algebra.is_negative(algebra.sub(Q, 1))
    assert not algebra.is_negative(0)


@pytest.mark.parametrize("divisor", [0, -1])
def test_sizes_are_divided_by_positive_numbers_only(divisor):
    with pytest.raises(Fault):
        algebra.floordiv(H, divisor)
    with pytest.raises(Fault):
        algebra.mod(H, divisor)


def test_a_size_that_grows_without_end_is_called_unknown():
    def grow():
        size = algebra.add(H, 1)
        for _ in range(200):
            size = algebra.add(algebra.mul(size, size), B)

    with pytest.raises(UnknownShapeError):
        grow()


def test_a_coefficient_that_grows_without_end_is_called_unknown():
    def double():
        size = B
        for _ in range(100):
            size = algebra.add(size, size)

    with pytest.raises(UnknownShapeError):
        double()


_LEAVES = st.sampled_from([H, B, Q, 1, 2, 3, 7])
_OPERATIONS = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
               "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b}  # fmt: skip
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["add", "sub", "mul"]), inner, inner),
        st.tuples(st.sampled_from(["floordiv", "mod"]), inner, st.integers(1, 9)),
    ),
    max_leaves=8,
)


@given(_TREES, st.integers(1, 300), st.integers(1, 9), st.integers(1, 50))
def test_the_normal_form_has_the_same_value_for_all_sizes(tree, h, b, q):
    sizes = {"h": h, "b": b, "q": q}

    def symbolic(part):
        return getattr(algebra, part[0])(symbolic(part[1]), symbolic(part[2])) if isinstance(part, tuple) else part

    def number(part):
        if isinstance(part, tuple):
            return _OPERATIONS[part[0]](number(part[1]), number(part[2]))
        return evaluate(part, sizes)

    assert evaluate(symbolic(tree), sizes) == number(tree)

"""Whether numbers lie in order, and whether a reshape moves them: as NumPy does it."""

from functools import cache
from itertools import permutations, product
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.dims import Symbol, evaluate
from inferometer.formats.torch.moves import _reshape_moves, is_contiguous
from inferometer.formats.torch.program import ProgramValue

sizes = st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=4)


@st.composite
def views(draw):
    """An array whose axes were exchanged, thinned out or cut."""
    array = np.zeros(draw(sizes), dtype=np.int8)
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    cut = tuple(
        draw(st.sampled_from((slice(None), slice(None), slice(1, None), slice(None, None, 2)))) for _ in array.shape
    )
    return array[cut]


def value(array):
    return ProgramValue(shape=array.shape, dtype="i8", strides=array.strides)


@cache
def regrouped(count):
    """Every shape of so many numbers, up to four axes."""
    divisors = [number for number in range(1, count + 1) if count % number == 0]
    return [shape for axes in range(1, 5) for shape in product(divisors, repeat=axes) if prod(shape) == count]


@given(array=views(), data=st.data())
def test_a_reshape_moves_numbers_where_numpy_copies_them(array, data):
    if array.size == 0:
        return
    shape = data.draw(st.sampled_from(regrouped(array.size)))
    assert prod(shape) == array.size
    moved = not np.shares_memory(array, array.reshape(shape))
    assert _reshape_moves(value(array), ProgramValue(shape=shape, dtype="i8")) is moved


@given(array=views())
def test_numbers_lie_in_order_where_numpy_says_so(array):
    if array.size:
        assert is_contiguous(value(array)) is array.flags.c_contiguous


def test_sizes_that_are_open_are_told_as_numbers_would_be():
    batch, words = Symbol("batch"), Symbol("words")
    shape, dense = (batch, words, 6), (words * 6, 6, 1)
    for order in permutations(range(3)):
        given_shape, strides = tuple(shape[axis] for axis in order), tuple(dense[axis] for axis in order)
        bound = {"batch": 5, "words": 7}
        array = np.zeros((5, 7, 6), dtype=np.int8).transpose(order)
        assert array.strides == tuple(evaluate(stride, bound) for stride in strides)
        open_ = ProgramValue(shape=given_shape, dtype="i8", strides=strides)
        assert is_contiguous(open_) is array.flags.c_contiguous
        for after in (
            (batch * words, 6),
            (batch * words * 6,),
            (batch, words, 2, 3),
            (batch, words * 6),
            (words, 6, batch),
        ):
            numbers = tuple(evaluate(size, bound) for size in after)
            moved = not np.shares_memory(array, array.reshape(numbers))
            assert _reshape_moves(open_, ProgramValue(shape=after, dtype="i8")) is moved, (order, after)


def test_nothing_is_said_of_strides_that_are_not_known_and_nothing_is_moved_of_nothing():
    unknown = ProgramValue(shape=(2, 3), dtype="i8")
    assert (is_contiguous(unknown), _reshape_moves(unknown, unknown)) == (None, None)
    empty = ProgramValue(shape=(2, 0, 3), dtype="i8", strides=(1, 9, 9))
    assert _reshape_moves(empty, ProgramValue(shape=(0,), dtype="i8")) is False

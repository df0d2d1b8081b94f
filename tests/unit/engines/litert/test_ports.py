import re

import numpy as np
import pytest

from inferometer.core.errors import DomainError
from inferometer.engines.litert.session import FileTensor, check_inputs, concrete, tensors_of

OPEN = FileTensor(name="x", index=0, dtype="int8", shape=(1, 4), signature=(-1, 4))


def test_tensors_are_told_as_the_file_names_them():
    detail = {
        "name": "x",
        "index": 3,
        "dtype": np.uint8,
        "shape": np.array([1, 4]),
        "shape_signature": np.array([-1, 4]),
    }
    (found,) = tensors_of([detail])
    assert found == FileTensor(name="x", index=3, dtype="uint8", shape=(1, 4), signature=(-1, 4))
    assert found.port().shape == (None, 4)
    assert [each.name for each in tensors_of([detail, {**detail, "index": 5}])] == ["x:3", "x:5"]


def test_open_sizes_are_what_was_asked_for():
    assert concrete(OPEN, batch=1) == (1, 4)
    assert concrete(OPEN, batch=3) == (3, 4)
    assert concrete(OPEN, batch=1, asked=(5, 4)) == (5, 4)
    with pytest.raises(DomainError, match="4 in the file, not 6"):
        concrete(OPEN, batch=1, asked=(1, 6))
    with pytest.raises(DomainError, match="2 axes in the file"):
        concrete(OPEN, batch=1, asked=(1, 4, 1))
    with pytest.raises(DomainError, match="batch of 2"):
        concrete(FileTensor(name="y", index=0, dtype="int8", shape=(1, 4), signature=(1, 4)), batch=2)


def test_quantised_inputs_are_given_in_their_own_type():
    check_inputs([OPEN], {"x": np.zeros((7, 4), np.int8)})
    with pytest.raises(DomainError, match=r"must be int8 \[\?, 4\], and is float32"):
        check_inputs([OPEN], {"x": np.zeros((1, 4), np.float32)})


@pytest.mark.parametrize("shape", [(1, 5), (1, 4, 1), (0, 4), ()])
def test_a_shape_that_does_not_fit_is_named(shape):
    with pytest.raises(DomainError, match=re.escape(str(list(shape)))):
        check_inputs([OPEN], {"x": np.zeros(shape, np.int8)})

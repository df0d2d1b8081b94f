"""The sizes that ncnn's own text states for an input, and the file of weights beside it."""

import pytest

from inferometer.core.errors import EngineError
from inferometer.engines.base import Target
from inferometer.engines.ncnn.session import _check, _stated


@pytest.mark.parametrize(
    ("stated", "shape"),
    [
        ("0=16 1=12 2=3", (1, 3, 12, 16)),
        ("0=16 1=12 11=5 2=3", (1, 3, 5, 12, 16)),
        ("0=16", (1, 16)),
        ("", None),
    ],
)
def test_the_innermost_size_stands_first_in_the_file_and_last_in_a_shape(tmp_path, stated, shape):
    path = tmp_path / "net.param"
    path.write_text(f"7767517\n2 2\nInput other 0 1 other 0=1\nInput data 0 1 data {stated}\n", encoding="utf-8")
    assert _stated(path, "data") == shape


def test_weights_that_do_not_lie_beside_the_text_are_missed_by_name(tmp_path):
    path = tmp_path / "net.param"
    path.write_text("7767517\n1 1\nInput data 0 1 data\n", encoding="utf-8")
    target = Target(path=path, format="ncnn", threads=1)
    with pytest.raises(EngineError, match=r"'net\.bin' is no file") as caught:
        _check(target, "net")
    assert "beside it" in caught.value.remedy
    path.with_suffix(".bin").touch()
    _check(target, "net")

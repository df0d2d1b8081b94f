"""What pnnx leaves: layers that ncnn lacks are named, and its last words are readable."""

import pytest

pytest.importorskip("ncnn", reason="ncnn is not installed: it says which layers it has")

from inferometer.core.errors import FormatError
from inferometer.engines.ncnn.convert import _last_words, _require_known

HEAD = "7767517\n2 2\nInput in0 0 1 in0\n"


@pytest.mark.parametrize("kind", ["Gather", "Tensor.reshape", "aten::roll"])
def test_a_layer_that_ncnn_lacks_is_named(kind):
    with pytest.raises(FormatError, match=f"no layer for {kind}"):
        _require_known(f"{HEAD}{kind} one 1 1 in0 out0\n")
    _require_known(f"{HEAD}Gemm one 1 1 in0 out0\n")


def test_last_words_have_no_colours_or_headings():
    printed = "##### pass_level2\n\x1b[0;93mW:onnxruntime cpuid_info\x1b[m\n\x1b[1;31munexpected op_type Frob\x1b[m\n"
    assert _last_words(printed) == "unexpected op_type Frob"

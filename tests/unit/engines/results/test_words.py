import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.graph import KINDS
from inferometer.engines.results import words


@pytest.mark.parametrize(
    ("source_type", "kind"),
    [
        ("Conv", "convolution"), ("CONV_2D", "convolution"), ("DEPTHWISE_CONV_2D", "convolution"),
        ("aten::conv2d", "convolution"), ("Convolution (NHWC, F32) IGEMM", "convolution"), ("Convert", "cast"),
        ("Gemm", "linear"), ("FULLY_CONNECTED", "linear"), ("aten::addmm", "linear"), ("FullyConnected", "linear"),
        ("MatMul", "matmul"), ("aten::bmm", "matmul"), ("MatMulNBits", "matmul"), ("Softmax", "softmax"),
        ("aten::_softmax", "softmax"), ("aten::scaled_dot_product_attention", "attention"),
        ("GroupQueryAttention", "attention"), ("aten::native_layer_norm", "norm"), ("MaxPool", "pool"),
        ("AVERAGE_POOL_2D", "pool"), ("aten::max_pool2d", "pool"), ("aten::add", "elementwise"), ("Mul", "elementwise"),
        ("aten::transpose", "view"), ("Transpose", "copy"), ("Reorder", "copy"), ("aten::copy_", "copy"),
        ("RESHAPE", "view"), ("aten::view", "view"), ("ReduceMean", "reduce"), ("aten::mean", "reduce"),
        ("QUANTIZE", "quantize"), ("DequantizeLinear", "dequantize"), ("aten::embedding", "embedding"),
        ("aten::relu", "activation"), ("LOGISTIC", "activation"), ("QuantizeLinear", "quantize"),
        ("QLinearConv", "convolution"), ("LSTM", "recurrent"), ("If", "control"),
        ("QNN_partition_0", "custom"), ("", "custom"), (None, "custom"),
    ],
)  # fmt: skip
def test_types_of_every_tool_have_our_kinds(source_type, kind):
    assert words.kind_of(source_type) == kind


@given(st.text())
def test_whatever_the_word_the_kind_is_one_of_ours(source_type):
    assert words.kind_of(source_type) in KINDS


def test_every_kind_in_the_tables_is_one_of_ours():
    assert {*words._WHOLE.values(), *(kind for _, kind in words._PARTS)} <= KINDS


def test_units_by_the_word():
    assert words.unit_named("NPU") == "npu"
    assert words.unit_named("UNSPECIFIED") is None
    assert words.unit_named(None) is None


def test_a_provider_or_delegate_that_chooses_tells_no_unit():
    assert words.unit_of_provider("CUDAExecutionProvider") == "gpu"
    assert words.unit_of_provider("OpenVINOExecutionProvider") is None
    assert words.unit_of_delegate("TfLiteXNNPackDelegate") == "cpu"
    assert words.unit_of_delegate("TfLiteGpuDelegateV2") == "gpu"
    assert words.unit_of_delegate("TfLiteNnapiDelegate") is None
    assert words.unit_of_delegate("CONV_2D") == "cpu"


def test_a_kernels_name_tells_its_unit_or_does_not():
    assert words.unit_of_kernel("brgconv_avx512_amx_bf16") == "cpu"
    assert words.unit_of_kernel("convolution_gpu_bfyx_os_iyx_osv16__f16") == "gpu"
    assert words.unit_of_kernel("ref_any_f32") is None

"""Kernels of XNNPACK against operators of the file. The first rows are those of MediaPipe's face detector."""

from hypothesis import given
from hypothesis import strategies as st

from inferometer.engines.litert.mapping import Operator, RanOperator, layers_of_kernels


def chain(*types):
    """Operators that each read what the one before made."""
    return [
        Operator(index=place, name=f"{kind.lower()}_{place}", type=kind, inputs=(place,), outputs=(place + 1,))
        for place, kind in enumerate(types)
    ]


def kernels(*kinds):
    return [RanOperator(kind=kind) for kind in kinds]


CONV, DEPTHWISE, POINTWISE = (
    "Convolution (NHWC, F32) IGEMM", "Convolution (NHWC, F32) DWConv", "Fully Connected (NC, F32) GEMM",
)  # fmt: skip


def test_the_beginning_of_a_face_detector():
    operators = chain("CONV_2D", "RELU", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD", "RELU", "DEPTHWISE_CONV_2D")
    found = layers_of_kernels(kernels(CONV, DEPTHWISE, POINTWISE, "Add (ND)", "Clamp (NC)", DEPTHWISE), operators)
    assert found == (
        ("conv_2d_0", "relu_1"), ("depthwise_conv_2d_2",), ("conv_2d_3",), ("add_4",), ("relu_5",),
        ("depthwise_conv_2d_6",),
    )  # fmt: skip


def test_an_activation_within_an_operator_can_be_a_kernel_of_its_own():
    found = layers_of_kernels(kernels("Add (ND)", "Clamp (NC)", CONV), chain("ADD", "CONV_2D"))
    assert found == (("add_0",), ("add_0",), ("conv_2d_1",))


def test_a_name_that_a_converter_shares_between_operators_means_the_one_that_has_it():
    """Converters list `norm_7` behind every operator whose constants they merged with its own."""
    operators = [
        Operator(index=0, name="relu_0", type="CONV_2D", fused=("norm_7", "conv_0"), inputs=(0,), outputs=(1,)),
        Operator(index=1, name="relu_1", type="ADD", fused=("add_1",), inputs=(1,), outputs=(2,)),
        Operator(index=2, name="norm_7", type="DEPTHWISE_CONV_2D", inputs=(2,), outputs=(3,)),
    ]
    found = layers_of_kernels(kernels(CONV, "Add (ND)", "Clamp (NC)", DEPTHWISE), operators)
    assert found == (("relu_0", "conv_0"), ("relu_1", "add_1"), ("add_1", "relu_1"), ("norm_7",))


def test_a_padding_is_part_of_what_reads_it_and_a_reshape_of_what_it_reads():
    found = layers_of_kernels(kernels(CONV, "Softmax (NC, F32)"), chain("PAD", "CONV_2D", "RESHAPE", "SOFTMAX"))
    assert found == (("pad_0", "conv_2d_1", "reshape_2"), ("softmax_3",))


def test_a_reshape_that_the_file_does_not_have_is_part_of_what_it_is_for():
    found = layers_of_kernels(kernels("Static Reshape (NC)", POINTWISE), chain("FULLY_CONNECTED"))
    assert found == (("fully_connected_0",), ("fully_connected_0",))


def test_a_kernel_of_the_engines_own_stands_for_nothing():
    assert layers_of_kernels(kernels("Frobnicate (NC)", CONV), chain("CONV_2D")) == ((), ("conv_2d_0",))


def test_an_operator_the_engine_names_is_that_operator():
    operators = chain("CONV_2D", "MIRROR_PAD", "CONV_2D")
    ran = [RanOperator(kind=CONV), RanOperator(kind="MIRROR_PAD", operator=1), RanOperator(kind=CONV, delegate=1)]
    assert layers_of_kernels(ran, operators, [(0,), (2,)]) == (("conv_2d_0",), ("mirror_pad_1",), ("conv_2d_2",))


def test_each_delegate_looks_among_its_own_operators():
    """They ran in another order than the file has them."""
    operators = chain("CONV_2D", "CONV_2D")
    ran = [RanOperator(kind=CONV, delegate=0), RanOperator(kind=CONV, delegate=1)]
    assert layers_of_kernels(ran, operators, [(1,), (0,)]) == (("conv_2d_1",), ("conv_2d_0",))
    assert layers_of_kernels(ran, operators) == (("conv_2d_0",), ("conv_2d_1",))


TYPES = {"CONV_2D": CONV, "ADD": "Add (ND)", "SOFTMAX": "Softmax", "MAX_POOL_2D": "Max Pooling (NHWC, F32)"}


@given(st.lists(st.sampled_from(sorted(TYPES)), max_size=30), st.data())
def test_where_every_operator_runs_as_a_kernel_each_finds_its_own(types, data):
    operators = chain(*types)
    assert layers_of_kernels(kernels(*(TYPES[each] for each in types)), operators) == tuple(
        (operator.name,) for operator in operators
    )


@given(st.lists(st.sampled_from(sorted(TYPES)), max_size=20), st.lists(st.sampled_from(sorted(TYPES)), max_size=20))
def test_no_operator_is_given_to_two_kernels_that_fit_it(ran, types):
    found = layers_of_kernels(kernels(*(TYPES[each] for each in ran)), chain(*types))
    named = [name for names in found for name in names]
    assert len(named) == len(set(named))

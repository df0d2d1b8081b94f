"""Profiler events as kernels. Recorded from LiteRT 2.3.0 on basic-pitch and a face detector."""

import pytest

from inferometer.engines.litert.mapping import Operator, ProfilerEvent, StepEvents, kernel_events

RECORDED = [
    ProfilerEvent(tag="LiteRT::Run[buffer registration]", kind=1, elapsed_us=119, number=0),
    ProfilerEvent(tag="Invoke", kind=1, elapsed_us=519706, number=0),
    ProfilerEvent(tag="Static Reshape (NC)", kind=8, elapsed_us=42, number=0),
    ProfilerEvent(tag="Constant Pad (ND, X32)", kind=8, elapsed_us=8059, number=1),
    ProfilerEvent(tag="EXPAND_DIMS", kind=2, elapsed_us=5, number=2),
    ProfilerEvent(tag="Convolution (NHWC, F32) IGEMM", kind=8, elapsed_us=35553, number=0),
]
OPERATORS = [
    Operator(index=0, name="shape", type="RESHAPE", inputs=(0,), outputs=(1,)),
    Operator(index=1, name="pad", type="PAD", inputs=(1,), outputs=(2,)),
    Operator(index=2, name="expand", type="EXPAND_DIMS", inputs=(2,), outputs=(3,)),
    Operator(index=3, name="conv", type="CONV_2D", inputs=(3,), outputs=(4,)),
]


def test_kernels_are_those_of_delegates_and_of_the_interpreter():
    steps = StepEvents(OPERATORS, [(0, 1), (3,)])
    steps.add(RECORDED)
    kernels = steps.take()["forward"]
    assert [(kernel.name, kernel.layers, kernel.provider) for kernel in kernels] == [
        ("shape", ("shape",), "XNNPACK"),
        ("pad", ("pad",), "XNNPACK"),
        ("expand", ("expand",), "builtin"),
        ("conv", ("conv",), "XNNPACK"),
    ]
    assert kernels[3].samples_s == (pytest.approx(0.035553),)
    assert kernels[3].kind == "Convolution (NHWC, F32) IGEMM"


def test_a_delegates_own_event_is_not_counted_beside_its_kernels():
    parent = ProfilerEvent(tag="TfLiteXNNPackDelegate", kind=2, elapsed_us=100, number=9)
    child = ProfilerEvent(tag="Delegate/Add (ND)", kind=4, elapsed_us=90, number=0)
    assert kernel_events([parent, child]) == [child]
    assert kernel_events([parent]) == [parent]


def test_what_ran_in_a_branch_is_in_the_time_of_the_operator_that_called_it():
    called = ProfilerEvent(tag="IF", kind=2, elapsed_us=45, number=25)
    inside = ProfilerEvent(tag="Fully Connected (NC, F32) GEMM", kind=8, elapsed_us=30, number=2, subgraph=1)
    assert kernel_events([called, inside]) == [called]


def test_each_step_is_a_sample_and_what_did_not_run_took_no_time():
    steps = StepEvents(OPERATORS, [(0, 1), (3,)])
    steps.add(RECORDED)
    steps.add(RECORDED[:-1])
    assert [len(kernel.samples_s) for kernel in steps.take()["forward"]] == [2] * 4
    steps.add(RECORDED)
    assert [kernel.samples_s[-1] > 0 for kernel in steps.take()["forward"]] == [True] * 4
    assert steps.take() == {}


def test_the_same_kernel_of_two_delegates_is_two_each_with_its_own_operators():
    """A delegate numbers its kernels from 0; here the first to run has the second operator."""
    twice = [ProfilerEvent(tag="Convolution (NHWC, F32) IGEMM", kind=8, elapsed_us=us, number=0) for us in (5, 7)]
    operators = [
        Operator(index=place, name=name, type="CONV_2D", inputs=(place,), outputs=(place + 2,))
        for place, name in enumerate("ab")
    ]
    steps = StepEvents(operators, [(1,), (0,)])
    steps.add(twice)
    steps.add(twice)
    assert [(kernel.layers, kernel.samples_s) for kernel in steps.take()["forward"]] == [
        (("b",), (pytest.approx(5e-6),) * 2), (("a",), (pytest.approx(7e-6),) * 2),
    ]  # fmt: skip


def test_two_kernels_of_one_operator_have_two_names():
    steps = StepEvents(OPERATORS[3:])
    steps.add([RECORDED[-1], ProfilerEvent(tag="Clamp (NC)", kind=8, elapsed_us=3, number=1)])
    assert [(kernel.name, kernel.layers) for kernel in steps.take()["forward"]] == [
        ("conv", ("conv",)),
        ("conv#2", ("conv",)),
    ]


def test_an_operator_of_another_number_than_its_type_has_is_not_believed():
    steps = StepEvents(OPERATORS)
    steps.add([ProfilerEvent(tag="EXPAND_DIMS", kind=2, elapsed_us=5, number=3)])
    (kernel,) = steps.take()["forward"]
    assert kernel.layers == ()

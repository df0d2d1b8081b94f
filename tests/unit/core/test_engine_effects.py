"""What an engine's row says of an op, worked out by hand."""

import pytest

from inferometer.core.device import Sourced
from inferometer.core.engine import RuntimeEffects
from inferometer.core.graph import Op, Tensor


def effects(**said):
    return RuntimeEffects(name="e", title="e", **said)


def stated(value):
    return Sourced(value=value, origin="prior", source="a test", date="2026-01-01")


def op(kind, inputs=1, **attributes):
    tensors = tuple(Tensor(name=f"x{number}", shape=(2,), dtype="f32") for number in range(inputs))
    return Op(name="o", kind=kind, inputs=tensors, attributes=attributes)


FFT = {"fft": 15.0, "fft:odd": 13.0}


@pytest.mark.parametrize(
    ("reference", "asked", "formats", "times"),
    [
        (
            FFT,
            op("reduce", function="fft", odd=3),
            ("f32", "f32", "f32"),
            39.0,
        ),  # its operations, each 13 times as long
        (FFT, op("reduce", function="fft"), ("f32", "f32", "f32"), 15.0),
        ({"fft": 15.0}, op("reduce", function="fft", odd=3), ("f32", "f32", "f32"), 1.0),
        ({}, op("reduce", function="fft"), ("f32", "f32", "f32"), 1.0),
        ({"linear:joined": 4.0, "linear": 9.0}, op("linear", joined=True), ("f32", "f32", "f32"), 4.0),
        ({"linear:joined": 4.0}, op("linear"), ("i8", "f32", "f32"), 1.0),
        ({"linear:i8": 7.0}, op("linear"), ("i8", "f32", "f32"), 7.0),
        ({"linear:i8": 7.0, "linear:i8/i8": 2.0}, op("linear"), ("i8", "i8", "f32"), 2.0),
        ({"linear:i8": 7.0}, op("linear"), ("i8", "i8", "i8"), 1.0),  # it has kernels of its own
    ],
)
def test_an_op_without_kernels_of_its_own_takes_so_many_times_longer(reference, asked, formats, times):
    assert effects(reference=reference).plainly(asked, *formats) == pytest.approx(times)


def test_a_concatenation_takes_a_kernel_for_each_tensor_beyond_the_first():
    joining = effects(joining=stated(0.5), lone={"norm": 3.0})
    assert [joining.beyond(op("copy", inputs, function="cat"), "decode") for inputs in (1, 2, 5)] == [0.0, 0.5, 2.0]
    assert [joining.beyond(op("norm"), phase) for phase in ("decode", "prefill")] == [3.0, 0.0]
    assert effects().beyond(op("copy", 5, function="cat"), "decode") == 0.0


def test_inputs_are_gathered_where_the_engine_quantises_a_convolution_itself():
    rows = effects(gathered=stated(4.0), grouped=stated(9.0))
    asked = (op("convolution"), op("convolution", gathered=True), op("convolution", gathered=True, groups=2))
    assert [rows.gathering(one) for one in asked] == [0.0, 4.0, 9.0]
    assert effects(gathered=stated(4.0)).gathering(asked[2]) == 4.0
    assert effects().gathering(asked[1]) == 0.0


@pytest.mark.parametrize(
    ("changed", "fewer"),
    [
        ({}, 2.25), ({"strides": (1, 1)}, 2.25), ({"strides": (2, 1)}, 1.0), ({"kernel": (3, 1)}, 1.0),
        ({"groups": 2}, 1.0), ({"transposed": True}, 1.0),
    ],
)  # fmt: skip
def test_square_windows_one_step_apart_need_fewer_products(changed, fewer):
    asked = op("convolution", **{"kernel": (3, 3), **changed})
    assert effects(winograd=stated(2.25)).fewer_products(asked) == fewer
    assert effects().fewer_products(asked) == 1.0

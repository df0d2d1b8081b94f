"""Kernels into rows: layers, what an engine does on its own for them, and kernels of no layer."""

import pytest

from inferometer.engines.base import Kernel
from inferometer.measure.run.correct import Corrected
from inferometer.measure.run.layers import GraphLayer, Layers
from inferometer.measure.run.ops import measured_ops

CONV = GraphLayer(name="conv1", kind="convolution", block="body", place=0, flops=100.0, bytes=8.0)
RELU = GraphLayer(name="relu1", kind="activation", block="body", place=1, flops=1.0, bytes=4.0)
LAYERS = Layers(by_name={"conv1": CONV, "relu1": RELU})


def kernel(name, kind, layers=(), **more):
    return Kernel(name=name, kind=kind, samples_s=(1e-3, 1e-3), layers=layers, **more)


def rows(*kernels):
    times = tuple(1e-3 * (number + 1) for number in range(len(kernels)))
    return measured_ops(kernels, Corrected(times_s=times, unattributed_s=0.0, raw_s=0.0, cost_s=0.0, scale=1.0), LAYERS)


def test_a_fused_kernel_is_one_row_with_the_work_of_its_layers():
    (op,) = rows(kernel("fused", "Conv", ("conv1", "relu1")))
    assert (op.name, op.kind, op.layers, op.flops) == ("conv1", "convolution", ("conv1", "relu1"), 101.0)


def test_what_an_engine_does_for_a_layer_is_a_row_beside_it_in_its_block():
    before, op, after = rows(
        kernel("ReorderInput", "ReorderInput", ("conv1",), own=True, bytes=64.0),
        kernel("conv1_nchwc", "Conv", ("conv1",)),
        kernel("ReorderOutput", "ReorderOutput", ("conv1",), own=True),
    )
    assert (before.name, before.kind, before.block, before.kernel) == (
        "conv1/ReorderInput", "copy", "body", "ReorderInput",
    )  # fmt: skip
    assert (before.flops, before.bytes, before.layers) == (0, 64.0, ())  # the layer's work is counted once
    assert (op.name, op.layers, op.time_s) == ("conv1", ("conv1", "relu1"), 2e-3)
    assert after.name == "conv1/ReorderOutput"


def test_two_of_the_same_kind_for_one_layer_are_one_row():
    (op,) = rows(*(kernel(f"Reorder_{number}", "Reorder", ("conv1",), own=True) for number in range(2)))
    assert (op.name, op.time_s) == ("conv1/Reorder", pytest.approx(3e-3))


def test_a_kernel_of_no_layer_keeps_its_name_and_has_no_block():
    first, second = rows(kernel("Cast", "Cast"), kernel("Cast", "Cast"))
    assert (first.name, first.block, first.flops) == (second.name, second.block, second.flops) == ("Cast", None, None)

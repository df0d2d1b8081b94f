"""Kernels into rows: layers, what an engine does on its own for them, and kernels of no layer."""

from math import fsum
from statistics import fmean

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inferometer.core.profile import OpTime, Phase
from inferometer.engines.base import Kernel
from inferometer.measure.run.correct import Corrected
from inferometer.measure.run.layers import GraphLayer, Layers
from inferometer.measure.run.ops import claims_of, measured_ops, with_steps

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


def test_a_product_belongs_to_the_kernel_of_its_kind_then_to_one_that_names_few_then_to_the_longest():
    copy, both = kernel("copy", "Reorder", ("conv1",)), kernel("both", "Conv", ("relu1", "conv1"))
    one, other = kernel("one", "Conv", ("conv1",)), kernel("other", "Conv", ("conv1",))
    for kernels, wanted in (((copy, both), "both"), ((both, one), "one"), ((one, other), "other")):
        claims = claims_of(kernels, (1e-3, 2e-3), LAYERS)
        assert [each.name for each, claim in zip(kernels, claims, strict=True) if CONV in claim.layers] == [wanted]


def test_a_row_has_the_mean_of_each_kernels_device_time_and_the_counts_that_all_of_them_have():
    (op,) = rows(
        kernel("a", "Conv", ("conv1",), device_s=(1e-3, 3e-3), counters={"cycles": 5.0, "misses": 1.0}),
        kernel("b", "Conv", ("conv1",), device_s=(4e-3, 4e-3), counters={"cycles": 7.0}),
    )
    assert (op.device_s, op.counters, op.samples_s) == (pytest.approx(6e-3), {"cycles": 12.0}, (5e-3, 7e-3))


NEAR = st.lists(st.floats(0.8, 1.2), min_size=3, max_size=3)
MADE = st.tuples(st.floats(1e-3, 2e-3), st.sampled_from((0.0, 0.5, 1.0, 1.5)), NEAR, st.booleans())
WALLS = st.lists(st.floats(0.4, 1.2), min_size=3, max_size=3)


@given(MADE, st.lists(MADE, max_size=3), WALLS, st.floats(0.5, 2.0), st.floats(0.5, 2.0), st.booleans())
@example((1e-3, 1.0, [1.0] * 3, True), [(1e-3, 0.5, [1.0] * 3, True)], [0.4, 1.0, 1.0], 1.0, 1.0, False)  # noqa: FBT003
def test_ops_add_up_to_each_step_and_steps_to_each_op_whatever_the_timers_cost(  # noqa: PLR0917 - drawn one by one
    first, others, walls, around, cost, by_context
):
    """A device's own work stays as long as it was, unless a step was too short for all of it."""
    made = [(*first[:3], True), *others]
    ops = [
        OpTime(name=str(number), kind="linear", time_s=time_s, device_s=part * time_s or None,
               samples_s=tuple(cost * time_s * reading for reading in near) if is_read else None)
        for number, (time_s, part, near, is_read) in enumerate(made)
    ]  # fmt: skip
    inside_s = fsum(op.time_s for op in ops)
    phase_s = around * inside_s
    steps = [phase_s * wall / fmean(walls) for wall in walls]
    phase = Phase(name="decode", time_s=phase_s)
    if by_context:  # a generation of four tokens, of which three were instrumented
        steps = [phase_s * wall for wall in walls]
        phase = Phase(
            name="decode", time_s=phase_s, context=(7, 8, 9, 10), samples_s=(*steps, phase_s), op_context=(7, 8, 9)
        )
    found = with_steps(phase, ops, walls)
    assert fsum(op.time_s for op in found) == pytest.approx(inside_s)
    for op in found:
        assert op.time_s == pytest.approx(phase_s * fsum(op.samples_s) / fsum(steps))
    for place, step_s in enumerate(steps):
        wanted_s = inside_s / phase_s * step_s
        assert fsum(op.samples_s[place] for op in found) == pytest.approx(wanted_s)
        read = [
            time_s * near[place] / fmean(near) if is_read else time_s for time_s, _, near, is_read in made
        ]  # without what timing cost
        worked = [min(part, 1.0) * seconds for seconds, (_, part, _, _) in zip(read, made, strict=True)]
        if wanted_s < fsum(worked):
            kept = [seconds * wanted_s / fsum(read) for seconds in read]
            assert [op.samples_s[place] for op in found] == pytest.approx(kept)
        elif fsum(worked) < fsum(read):
            assert all(op.samples_s[place] >= (1 - 1e-9) * least for op, least in zip(found, worked, strict=True))

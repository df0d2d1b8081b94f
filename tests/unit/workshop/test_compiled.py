"""Forms that kernels of compiled networks follow, fitted to whole steps and written as tables."""

import numpy as np
import pytest

from inferometer import predict
from inferometer.core.calibration import Calibration
from inferometer.known import device
from inferometer.measure.calibrate.fitting.points import StepPoint
from inferometer.predict.price.utilisation import interpolate
from workshop.calibrations import compiled
from workshop.calibrations.compiled import Kind, Network, convolution_s, convolution_table, fitted_numbers

BEGUN = {name: value for name, (value, _) in compiled.NUMBERS["bf16"].items()}
PEAK = 1e15


def test_a_table_gives_the_seconds_of_its_form_between_its_points():
    for name, form in compiled.FORM.items():
        table = convolution_table(name, form, BEGUN, 0.0, "bf16", PEAK, None)
        for positions, taps, channels in ((3000, 100, 48), (70, 300, 1500), (2e6, 27, 40)):
            shape = {"positions": positions, "taps": taps, "channels": channels, "even": 8.0}
            read_s = 2.0 * positions * taps * channels / PEAK / interpolate(table, shape)
            told_s = convolution_s(form, positions, taps, channels, BEGUN, 2.0)
            if form == "window":
                told_s += compiled.weights_copy_s(taps * channels, BEGUN, 0.0, "bf16")
            assert read_s == pytest.approx(told_s, rel=0.1), (name, positions)


def test_channels_that_are_not_in_eights_are_padded_but_for_products_of_a_few_rows():
    table = convolution_table("convolution.pointwise", "point", BEGUN, 1e-6, "bf16", PEAK, None)
    shape = {"taps": 58.0, "channels": 58.0}

    def share(positions, even):
        return interpolate(table, {**shape, "positions": positions, "even": even})

    assert share(25088.0, 2.0) < 0.5 * share(25088.0, 8.0)
    assert share(32.0, 2.0) == share(32.0, 8.0)
    floats = convolution_table("convolution.pointwise", "point", BEGUN, 1e-6, "f32", PEAK, None)
    assert "even" not in floats.axes


def network(seconds, moved):
    ones = np.ones(1)
    kind = Kind(counts=100 * ones, launches=ones, moved=moved * ones, operations=ones, captured_s=ones,
                positions=ones, taps=ones, channels=ones, uneven=0 * ones, series=0 * ones)  # fmt: skip
    step = StepPoint(model="x", phase="forward", dtype="bf16", batch=1, query=1, image=224, seconds=seconds)
    return Network(step=step, kernel_s=1e-6, step_s=1e-5, kinds={"chain": kind})


def test_whole_steps_draw_the_numbers_that_they_are_made_of():
    moved = (1e5, 1e7, 1e8, 1e9)
    slow = {**BEGUN, "chain_rate": 2.5e12}
    steps = [network(network(1.0, each).seconds(slow), each) for each in moved]
    found = fitted_numbers(steps * 4, [], "bf16")
    assert BEGUN["chain_rate"] > 1.2 * found["chain_rate"]
    for each in steps:
        assert each.seconds(found) == pytest.approx(each.step.seconds, rel=0.1)


def test_what_is_no_forward_stays():
    kept = (
        "vector",
        "vector.decode",
        "vector.prefill",
        "linear",
        "linear.biased",
        "attention.decode",
        "attention.masked",
    )
    gone = ("convolution.window", "depthwise", "vector.batch", "vector.forward", "vector.fused.forward",
            "attention.prefill", "indexing.forward")  # fmt: skip
    assert not any(map(compiled._of_forwards, kept))
    assert all(map(compiled._of_forwards, gone))


def test_a_compiled_network_of_one_image_waits_for_each_of_its_kernels():
    """As factors on whole classes, fitted to batches of 32, a SqueezeNet took 31 % less than it did (0.22 ms)."""
    phase = predict(
        "torchvision:squeezenet1_0", on="nvidia-h200", runtime="torch-compile", image=224, weights="f32"
    ).phase("forward")
    assert phase.time_s == pytest.approx(0.22e-3, rel=0.15)


def test_mutual_attention_takes_what_is_around_it():
    gpu = device("nvidia-h200")
    mutual = compiled.Utilisation(
        op_class="attention.mutual", stream="floor", axes=("query", "head_dim", "flops"),
        grid=((64.0, 256.0), (64.0, 128.0), (1e8, 1e10)), values=(0.1,) * 8, residual=0.1,
    )  # fmt: skip
    there = Calibration(device=gpu.name, runtime="torch-compile", dtype="bf16", created="2026")
    alone = {**BEGUN, "around_s": 0.0, "around_rate": 1e30}
    assert compiled.mutual_table(mutual, alone, there, gpu).values == pytest.approx(mutual.values, rel=0.01)
    around = compiled.mutual_table(mutual, BEGUN, there, gpu).values
    assert all(more < less for more, less in zip(around, mutual.values, strict=True))

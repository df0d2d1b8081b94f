"""What attention over texts takes, told by whole steps of encoders; and what decode steps in graphs take."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from inferometer.known import device
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint
from inferometer.predict.basis.files import SHIPPED, read_calibration
from inferometer.predict.price.utilisation import interpolate

pytest.importorskip("torch", reason="torch is not installed: the kernels of GPUs have no names")
from workshop.calibrations.gpu import Inside, fitting_times, serial_s, text_columns, text_terms, with_serial_decode

TERMS = np.array([2e-5, 4e-12, 1.3e-12])


def steps(*, others=1.1, terms=TERMS):
    config = {"num_hidden_layers": 4, "hidden_size": 768, "num_attention_heads": 12}
    for batch in (1, 8, 64):
        for query in (64, 128, 512):
            apart_s = 1e-4 * batch * query / 64
            sizes = {"batch": batch, "query": query, "config": config}
            point = StepPoint(model="text", phase="forward", seconds=1.0, dtype="bf16", **sizes)
            seconds = float(text_columns(point) @ terms) + others * apart_s
            yield Inside(step=replace(point, seconds=seconds), class_s=0.0, others_s=apart_s)


def test_the_terms_that_steps_were_made_of_are_found():
    np.testing.assert_allclose(text_terms(list(steps(others=1.0))), TERMS, rtol=1e-6)


def test_no_term_is_below_nothing_where_other_ops_were_priced_too_high():
    assert (text_terms(list(steps(others=0.9))) >= 0).all()
    assert text_terms(list(steps(others=0.5, terms=0 * TERMS))).tolist() == [0.0, 0.0, 0.0]


def test_a_layer_more_or_a_sequence_more_takes_as_much_more():
    one = next(steps()).step
    more = replace(one, batch=3, config={**one.config, "num_hidden_layers": 8})
    np.testing.assert_allclose(text_columns(more) / text_columns(one), [2.0, 6.0, 6.0])


def test_keys_that_are_read_one_after_the_other_are_found_in_their_points():
    """As a table over bytes and operations an f32 decode step of 1,500 keys took a third less than it did."""
    there = read_calibration(next(SHIPPED.glob("nvidia-h200-torch-graph-f32-*.json")))
    gpu, key_s = device("nvidia-h200"), [0.1e-6, 0.11e-6, 0.2e-6]
    points = []
    for width, keys, heads in itertools.product((64, 128, 256), (100, 1_500, 9_000), (12, 50, 500)):
        axes = {"keys": keys, "head_dim": width, "sequences": 1, "heads": heads, "kv_heads": heads}
        axes |= {"kv_bytes": 8.0 * width * keys * heads, "flops": (4.0 * width + 5) * keys * heads}
        points.append(OpPoint(
            classes=("attention.decode", "attention"), axes=axes, floor_s=1e-7, dtype="f32", probe=f"{width}", op="",
            seconds=float(serial_s(keys, width, heads, 25e-6, key_s)), launches=7,
        ))  # fmt: skip
    told = with_serial_decode(there, gpu, points)
    table = next(each for each in told.tables if each.op_class == "attention.decode" and each.stream == "f32")
    launched_s = 7 * there.overheads["kernel"].value
    for point in points:
        share = float(np.ravel(interpolate(table, {name: np.array([point.axes[name]]) for name in table.axes}))[0])
        priced_s = launched_s + point.axes["flops"] / gpu.peaks["f32"].value / share
        assert priced_s == pytest.approx(point.seconds, rel=0.12), point.axes
    assert serial_s(1_000, 64, 132, 25e-6, key_s) == pytest.approx(125e-6)
    assert serial_s(1_000, 64, 264, 25e-6, key_s) == pytest.approx(225e-6)


def test_what_a_kernel_takes_is_told_by_most_models_and_not_by_the_furthest():
    step = StepPoint(model="a", phase="decode", dtype="bf16", seconds=3.2e-3)
    told = [Inside(step=replace(step, model=name), class_s=2e-3, others_s=1e-3) for name in "abc"]
    told += [Inside(step=replace(step, model="far", seconds=9e-3), class_s=2e-3, others_s=1e-3)] * 5
    assert fitting_times(told, power=1) == pytest.approx(1.1, rel=0.01)
    assert fitting_times(told) > 1.3

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core.errors import DomainError
from inferometer.measure.calibrate.fitting.fit import (
    class_for,
    fit_class,
    fit_points,
    predicted_seconds,
)
from inferometer.measure.calibrate.fitting.points import OpPoint
from inferometer.predict.price.utilisation import interpolate


def point(name="vector", seconds=1e-5, floor_s=5e-6, probe="p", **axes):
    classes = (f"{name}.forward", name) if "." not in name else (name, name.partition(".")[0])
    return OpPoint(classes=classes, axes=axes, seconds=seconds, floor_s=floor_s, dtype="bf16", probe=probe)


def curve(bandwidth=1e12, ramp=2e-6, count=20):
    """Copies that need a ramp to reach nine tenths of a bandwidth."""
    sizes = np.logspace(3, 9, count)
    return [
        point(probe=f"copy {n:.0f}", bytes=float(n), floor_s=n / bandwidth, seconds=ramp + n / (0.9 * bandwidth))
        for n in sizes
    ]


def test_a_law_is_found_again_between_its_points():
    fitted = fit_class("vector", curve())
    for n in (5e3, 7e5, 3e7, 5e8):
        found = n / 1e12 / interpolate(fitted.table, {"bytes": n})
        assert found == pytest.approx(2e-6 + n / 0.9e12, rel=0.08)


def test_a_kernel_that_is_known_is_taken_off_first():
    fitted = fit_class("vector", curve(), kernel_s=2e-6)
    assert interpolate(fitted.table, {"bytes": 1e5}) == pytest.approx(0.9, rel=0.05)
    tiny = curve()[0]
    assert predicted_seconds(fitted, tiny, 2e-6) == pytest.approx(tiny.seconds, rel=0.01)


def test_shares_rise_with_size_where_the_class_says_so():
    noisy = [point(probe=str(n), bytes=n, floor_s=n / 1e12, seconds=n / 1e12 / u) for n, u in
             ((1e4, 0.1), (1e5, 0.3), (1e6, 0.2), (1e7, 0.8), (1e8, 0.7), (1e9, 0.85))]  # fmt: skip
    values = fit_class("vector", noisy).table.values
    assert all(a <= b + 1e-12 for a, b in pairwise(values))


def test_windows_of_other_sizes_are_told_apart_in_depthwise_convolutions():
    """An engine that unrolls the windows pays for each of their elements: 3 x 3 and 7 x 7 move the same bytes."""

    def case(channels, side, kernel, stride):
        outputs = channels * (side // stride) ** 2
        flops, moved = 2.0 * outputs * kernel**2, 4.0 * (channels * side**2 + outputs)
        seconds = 2e-10 * flops + 1e-10 * moved
        return point("depthwise", probe=f"{channels} {side}", bytes=moved, flops=flops, channels=float(channels),
                     floor_s=max(moved / 2e10, flops / 5e10), seconds=seconds)  # fmt: skip

    shapes = [(24, 112), (88, 56), (144, 56), (168, 28), (288, 14), (576, 14), (960, 7)]
    fitted = fit_class("depthwise", [case(*shape, k, s) for shape in shapes for k in (3, 5, 7) for s in (1, 2)])
    for channels, side, kernel, stride in ((96, 56, 3, 1), (96, 56, 7, 1), (240, 28, 5, 2), (480, 14, 3, 2)):
        asked = case(channels, side, kernel, stride)
        assert predicted_seconds(fitted, asked, 0.0) == pytest.approx(asked.seconds, rel=0.2)


def test_kinds_that_move_other_bytes_an_element_are_told_apart():
    """PyTorch's max pooling on a CPU: twenty bytes an element and a hundredth of the share that a ReLU reaches."""
    points = [
        point(probe=f"{kind} {n:.0f}", elements=n, bytes=each * n, floor_s=each * n / 7e10,
              seconds=each * n / 7e10 / share)
        for n in np.logspace(3.5, 6, 16)
        for kind, each, share in (("relu", 8.0, 0.5), ("max", 20.0, 0.01))
    ]  # fmt: skip
    fitted = fit_class("vector", points)
    assert fitted.table.axes == ("elements", "bytes")
    for n in (7e3, 9e4, 6e5):
        relu, most = (interpolate(fitted.table, {"elements": n, "bytes": each * n}) for each in (8.0, 20.0))
        assert relu > 0.25
        assert most < 0.03


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.floats(1, 1e5), st.floats(1e3, 1e9), st.floats(0.001, 3.0)), min_size=1, max_size=25))
def test_a_share_lies_in_what_was_measured_and_never_above_one(found):
    points = [
        point("linear", probe=str(n), rows=rows, weight_bytes=size, floor_s=1e-6, seconds=1e-6 / share)
        for n, (rows, size, share) in enumerate(found)
    ]
    fitted = fit_class("linear", points)
    least = min(p.share() for p in points)
    assert all(0 < value <= 1 for value in fitted.table.values)
    assert min(fitted.table.values) >= least * (1 - 1e-9)


def test_each_class_gets_a_table_and_attention_one_for_each_way():
    names = ("linear", "vector", "attention.decode", "attention.masked")
    points = [point(name, bytes=1e6, rows=1.0, weight_bytes=1e6, flops=1e9, kv_bytes=1e6) for name in names]
    assert [fitted.table.op_class for fitted in fit_points(points)] == sorted(names)
    assert class_for(points[2].classes) == "attention.decode"


def test_biased_products_have_a_table_of_their_own_and_leave_the_others_alone():
    def products(names, seconds):
        return [
            OpPoint(
                classes=(*names, "linear.forward", "linear"), axes={"rows": 1.0 + n, "weight_bytes": 1e6 + n},
                seconds=seconds, floor_s=5e-6, dtype="f32", probe=f"{n % 6}",
            )
            for n in range(60)
        ]  # fmt: skip

    plain, biased = products((), 1e-5), products(("linear.biased",), 2e-5)
    found = {each.table.op_class: (each.points, max(each.table.values)) for each in fit_points([*plain, *biased])}
    assert found == {"linear": (60, pytest.approx(0.5)), "linear.biased": (60, pytest.approx(0.25))}
    assert {each.table.op_class: each.points for each in fit_points([*plain, *biased[1:]])} == {"linear": 60}
    assert {each.table.op_class: each.points for each in fit_points(biased[1:])} == {"linear": 59}


def test_points_without_a_floor_say_nothing():
    assert fit_points([point(floor_s=0.0, bytes=1.0)]) == ()
    with pytest.raises(DomainError, match="no point of linear"):
        fit_class("linear", [])

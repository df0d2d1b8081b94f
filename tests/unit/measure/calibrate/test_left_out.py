"""What a fit rests on: which points err together, how much each weighs, which axes and nodes a table gets."""

from math import exp, log

import numpy as np
import pytest

from inferometer.measure.calibrate.fitting.fit import (
    LEAST_RESIDUAL,
    _rising,
    class_for,
    doubts,
    fit_class,
    fit_points,
    predicted_seconds,
    residual_spread,
)
from inferometer.measure.calibrate.fitting.points import OpPoint
from inferometer.predict.price.utilisation import interpolate
from inferometer.predict.work.classes import FUSED

EIGHT_IN_TEN = 1.2816


def point(name="linear", *, share=0.5, floor_s=1e-6, launched_s=0.0, launches=1, probe="p", **axes):
    """A point that reaches a share of its floor, and takes `launched_s` more for its launches."""
    return OpPoint(classes=(f"{name}.forward", name), axes=axes, seconds=floor_s / share + launched_s, floor_s=floor_s,
                   dtype="bf16", probe=probe, launches=launches)  # fmt: skip


def far_apart(slow=4, fast=4):
    """Two probes, each consistent in itself, whose shapes have nothing in common: only the other can be wrong."""
    return [
        *(point(share=0.3, probe="slow", rows=2.0**n, weight_bytes=1e5) for n in range(slow)),
        *(point(share=0.6, probe="fast", rows=2.0**n, weight_bytes=1e9) for n in range(fast)),
    ]


def test_a_probe_is_left_out_with_all_its_points():
    """Left out one by one, each point would be predicted by its neighbours of the same probe, and nothing be off."""
    fitted = fit_class("linear", far_apart())
    assert fitted.residual == pytest.approx(log(2) / EIGHT_IN_TEN * (1 + 2 / 8))
    assert fitted.table.residual == fitted.residual


def test_the_bias_is_the_mean_error_of_left_out_points():
    fitted = fit_class("linear", far_apart(slow=6, fast=2))
    assert fitted.bias == pytest.approx((6 - 2) / 8 * log(2))  # six took twice what the other says, two half of it
    assert (fitted.points, fitted.probes) == (8, 2)


def test_points_of_a_single_probe_are_left_out_one_by_one():
    fitted = fit_class("linear", [point(rows=2.0**n, weight_bytes=1e6) for n in range(5)])
    assert fitted.residual == LEAST_RESIDUAL
    assert fit_class("linear", [point(rows=1.0, weight_bytes=1e6)]).residual == pytest.approx(log(2))


def test_a_point_that_is_mostly_launch_weighs_the_square_of_its_work():
    kernel_s = 5e-7
    half = point(share=0.1, floor_s=1e-7, launched_s=2 * kernel_s, launches=2, probe="a", rows=4.0, weight_bytes=1e6)
    working = point(share=0.8, floor_s=1e-5, launched_s=kernel_s, probe="b", rows=4.0, weight_bytes=1e6)
    (value,) = fit_class("linear", [half, working], kernel_s=kernel_s).table.values
    weights = [0.5**2, (1.25e-5 / 1.3e-5) ** 2]
    middle = (weights[0] * log(0.1) + weights[1] * log(0.8)) / sum(weights)
    assert value == pytest.approx(exp(middle), rel=1e-6)


def test_errors_are_of_the_whole_time_launches_included():
    """The same two shares, but launches take a hundred times as long as the work: nothing is off by much."""
    kernel_s = 1e-4
    points = [
        point(share=share, launched_s=kernel_s, probe=name, rows=2.0**n, weight_bytes=size)
        for name, share, size in (("slow", 0.3, 1e5), ("fast", 0.6, 1e9))
        for n in range(4)
    ]
    fitted = fit_class("linear", points, kernel_s=kernel_s)
    assert fitted.residual == LEAST_RESIDUAL
    assert abs(fitted.bias) < 1e-9
    assert predicted_seconds(fitted, points[0], kernel_s) == pytest.approx(points[0].seconds)


def test_another_axis_has_to_pay():
    one_width = [point("matmul", share=0.2 + 0.1 * (n % 4), probe=str(n), flops=10.0**n, rows=8.0) for n in range(8)]
    assert fit_class("matmul", one_width).table.axes == ("flops",), "of two that do equally well, the first"
    by_rows = [
        point("matmul", share=share, probe=f"{rows} {n}", flops=10.0**n, rows=rows)
        for n in range(5, 11)
        for rows, share in ((1.0, 0.05), (64.0, 0.4), (4096.0, 0.9))
    ]
    assert fit_class("matmul", by_rows).table.axes == ("flops", "rows")


def test_an_axis_that_one_point_lacks_is_no_axis():
    points = [point("matmul", flops=10.0**n, rows=2.0**n, probe=str(n)) for n in range(5)]
    assert fit_class("matmul", [*points, point("matmul", flops=1e3, probe="x")]).table.axes == ("flops",)
    assert fit_class("matmul", [point("matmul", bytes=10.0**n, probe=str(n)) for n in range(5)]).table.axes == (
        "bytes",
    )


def test_nodes_are_the_measured_sizes_or_evenly_spread_between_the_ends():
    few = fit_class("indexing", [point("indexing", bytes=10.0**n, probe=str(n)) for n in (3, 4, 9)])
    assert few.table.grid[0] == pytest.approx((1e3, 1e4, 1e9))
    many = fit_class("indexing", [point("indexing", bytes=1e3 * 1.2**n, probe=str(n)) for n in range(40)])
    (nodes,) = many.table.grid
    assert len(nodes) == 24
    assert (nodes[0], nodes[-1]) == pytest.approx((1e3, 1e3 * 1.2**39))
    assert np.diff(np.log(nodes)) == pytest.approx(log(1.2) * 39 / 23)
    grid = fit_class("linear", [point(rows=1.1**n, weight_bytes=1.3**n, probe=str(n)) for n in range(20)], axes=(
        "rows", "weight_bytes")).table.grid  # fmt: skip
    assert [len(axis) for axis in grid] == [12, 12]


def test_what_it_holds_for_is_told_by_axis_without_the_points_that_lack_it():
    points = [point(rows=4.0, weight_bytes=1e6), point(rows=64.0, weight_bytes=1e7), point(rows=1.0, weight_bytes=0.0)]
    assert fit_class("linear", points, axes=("rows",)).valid == {"rows": (1.0, 64.0), "weight_bytes": (1e6, 1e7)}


def test_neighbours_that_would_fall_are_pooled_at_their_mean():
    assert _rising(np.array([1.0, 3.0, 2.0])).tolist() == [1.0, 2.5, 2.5]
    assert _rising(np.array([3.0, 3.0, 0.0])).tolist() == [2.0, 2.0, 2.0], "each value counts once, pooled or not"
    assert _rising(np.array([1.0, 2.0, 2.0])).tolist() == [1.0, 2.0, 2.0]


def test_only_some_classes_rise():
    falling = [(10.0**n, 0.9 - 0.1 * n) for n in range(8)]
    vector, matmul = (
        fit_class(name, [point(name, share=share, probe=str(n), **{axis: n}) for n, share in falling]).table.values
        for name, axis in (("vector", "bytes"), ("matmul", "flops"))
    )
    assert vector[0] == pytest.approx(vector[-1])
    assert matmul[0] > 3 * matmul[-1]


def test_the_spread_is_of_eight_in_ten_widened_where_errors_are_few():
    assert residual_spread(np.array([-0.3])) == pytest.approx(0.3 / EIGHT_IN_TEN * 3)
    errors = np.array([-0.5, 0.1, -0.1, 0.1, 0.1, -0.1])
    assert residual_spread(errors) == pytest.approx(0.1 / EIGHT_IN_TEN * (1 + 2 / 6))
    assert residual_spread(np.array([0.001, -0.001])) == LEAST_RESIDUAL


def test_doubt_is_a_fifth_of_the_residual_where_measured_and_grows_by_every_axis():
    points = far_apart()
    fitted = fit_class("linear", points)
    shapes = [
        {"rows": 2.0, "weight_bytes": 1e5},
        {"rows": 2.0, "weight_bytes": 1e6},
        {"rows": 2.0 * 8, "weight_bytes": 1e10},
    ]
    assert fitted.table.axes == ("rows", "weight_bytes")
    wanted = [0.2, 0.2 + log(10), 0.2 + log(2) + log(10)]
    assert doubts(fitted, shapes, points) == pytest.approx([fitted.residual * each for each in wanted])
    assert doubts(fitted, shapes, []) == pytest.approx([1.0, 1.0, 1.0])


def test_each_point_goes_into_the_table_of_its_class():
    assert class_for((FUSED, "vector.decode", "vector")) == FUSED
    assert class_for(("vector.decode", "vector")) == "vector"
    assert (
        class_for(("attention.masked.wide", "attention.masked", "attention.prefill", "attention")) == "attention.masked"
    )
    assert class_for(("attention.odd", "attention")) == "attention"
    nothing, something = point(floor_s=0.0, share=1.0, launched_s=1e-6, rows=1.0, weight_bytes=1.0), point(
        rows=2.0, weight_bytes=2.0)  # fmt: skip
    (only,) = fit_points([nothing, something], kernel_s=1e-9)
    assert only.points == 1
    assert interpolate(only.table, {"rows": 2.0, "weight_bytes": 2.0}) == pytest.approx(something.share(1e-9)), (
        "kernels are taken off"
    )

import numpy as np
import pytest

from inferometer.core import Calibration, Utilisation
from inferometer.core.errors import DomainError
from inferometer.predict.price.utilisation import (
    Crossed,
    _between_knots,
    interpolate,
    is_compute,
    reader_of,
    residual_of,
    tables_for,
)


def table(**given):
    values = {
        "op_class": "linear", "stream": "bf16", "axes": ("rows", "out_features"), "residual": 0.1,
        "grid": ((1.0, 100.0), (10.0, 1000.0)), "values": (0.01, 0.04, 0.16, 0.64),
    }  # fmt: skip
    return Utilisation(**values | given)


def shape(rows, out):
    return {"rows": rows, "out_features": out}


def test_grid_points_are_hit():
    assert interpolate(table(), shape(1, 10)) == pytest.approx(0.01)
    assert interpolate(table(), shape(100, 1000)) == pytest.approx(0.64)


def test_many_sizes_are_read_as_numpy_reads_them_to_the_last_bit():
    """Wherever they lie: in one cell, across some, on a knot, beyond an end."""
    grid, logs = np.log([1.0, 2.0, 5.0, 10.0, 100.0]), np.log([0.1, 0.3, 0.2, 0.9, 1.0])
    for low, high in ((0.1, 0.9), (1.0, 2.0), (2.0, 4.9), (2.1, 60.0), (100.0, 900.0), (0.5, 500.0), (5.0, 5.0)):
        sizes = np.log(np.linspace(low, high, 37))
        found = np.broadcast_to(_between_knots(sizes, grid, logs), sizes.shape)
        np.testing.assert_array_equal(found, np.interp(sizes, grid, logs))


@pytest.mark.parametrize("span", [(0.1, 0.9), (1.5, 2.5), (3.0, 90.0), (0.5, 900.0), (200.0, 900.0)])
def test_a_product_of_batches_and_lengths_is_read_as_the_sizes_themselves(span):
    grid = ((1.0, 10.0, 100.0), (10.0, 35.0, 1000.0))  # one even in logarithms, one not
    reader = reader_of(table(grid=grid, values=(0.01, 0.04, 0.16, 0.64, 0.3, 0.2, 0.1, 0.9, 0.5)))
    batches, lengths = np.linspace(1.0, 3.0, 5)[:, None], np.linspace(*span, 7)[None]
    crossed, whole = Crossed(np.log(batches), np.log(lengths)), np.log(batches * lengths)
    for other in (whole + 1, 20.0):
        expected = reader.at_logarithms((whole, other))
        np.testing.assert_allclose(
            np.broadcast_to(reader.at_logarithms((crossed, other)), whole.shape), expected, rtol=1e-13
        )


def test_between_points_it_is_a_straight_line_in_logarithms():
    assert interpolate(table(), shape(10, 10)) == pytest.approx(0.04)  # √(0.01 · 0.16)
    assert interpolate(table(), shape(10, 100)) == pytest.approx(0.08)


def test_outside_the_grid_the_edge_is_held():
    assert interpolate(table(), shape(0.01, 1)) == pytest.approx(0.01)
    assert interpolate(table(), shape(1e9, 1e9)) == pytest.approx(0.64)


def test_arrays_give_what_numbers_give():
    rows, outs = np.array([0.5, 1, 7, 100, 1e4]), np.array([5, 10, 90, 1000, 1e5])
    together = interpolate(table(), shape(rows, outs))
    alone = [interpolate(table(), shape(r, o)) for r, o in zip(rows.tolist(), outs.tolist(), strict=True)]
    assert together == pytest.approx(alone)


def test_an_axis_with_one_point_is_no_axis():
    single = table(grid=((5.0,), (10.0, 1000.0)), values=(0.2, 0.4))
    assert interpolate(single, shape(1, 1000)) == pytest.approx(0.4)
    assert interpolate(single, shape(np.array([1.0, 9.0]), np.array([10.0, 1000.0]))) == pytest.approx([0.2, 0.4])


def test_a_shape_that_lacks_an_axis_is_an_error():
    with pytest.raises(DomainError, match="needs out_features"):
        interpolate(table(), {"rows": 3})


def test_tables_of_the_first_class_are_taken_together():
    decode, other = table(op_class="attention.decode"), table(op_class="attention", stream="hbm")
    calibration = Calibration(
        device="d", runtime="r", dtype="bf16", created="2026", tables=(other, decode), residuals={"attention": 0.3}
    )
    assert tables_for(calibration, ("attention.decode", "attention")) == (decode,)
    assert tables_for(calibration, ("attention.prefill", "attention")) == (other,)
    assert tables_for(calibration, ("linear",)) == ()
    assert (is_compute(decode), is_compute(other)) == (True, False)
    assert (residual_of(calibration, decode), residual_of(calibration, other)) == (0.1, 0.3)


@pytest.mark.parametrize("wrong", [{"axes": ("rows", "colour")}, {"grid": ((0.0, 1.0), (1.0, 2.0))}])
def test_a_table_that_cannot_be_read_is_an_error(wrong):
    calibration = Calibration(device="d", runtime="r", dtype="bf16", created="2026", tables=(table(**wrong),))
    with pytest.raises(DomainError, match=r"table of linear|grid of linear"):
        tables_for(calibration, ("linear",))

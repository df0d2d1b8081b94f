from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.measure.calibrate.fitting.base import at_best, bounded, least_seconds, unbounded
from inferometer.predict.price.utilisation import factor_for, tables_for

LINEAR = Utilisation(
    op_class="linear", stream="floor", axes=("rows", "weight_bytes"), grid=((1.0, 4096.0), (1e5, 1e9)),
    values=(0.1, 0.9, 0.5, 0.7), residual=0.1,
)  # fmt: skip
DECODE = Utilisation(
    op_class="attention.decode", stream="floor", axes=("kv_bytes",), grid=((1e5, 1e9),), values=(0.2, 0.8), residual=0.2
)


def calibration(**factors):
    named = {name.replace("_", "."): factor for name, factor in factors.items()}
    return Calibration(
        device="d", runtime="r", dtype="bf16", created="2026-11-15", tables=(LINEAR, DECODE), factors=named,
        residuals={"linear": 0.12},
    )  # fmt: skip


def test_small_ops_gain_by_a_factor_and_large_ones_reach_no_more_than_any_did_alone():
    (table,) = tables_for(bounded(calibration(linear_decode=0.5)), ("linear.decode", "linear"))
    assert table.values == pytest.approx((0.2, 0.9, 0.7, 0.7))  # 0.9 with one row, 0.7 with many


def test_what_is_in_the_table_is_in_no_factor_and_other_phases_are_as_they_were():
    made = bounded(calibration(linear_decode=0.5, linear_prefill=1.4))
    assert factor_for(made, ("linear.decode", "linear")) == 1.0
    assert factor_for(made, ("linear.prefill", "linear")) == 1.4
    assert tables_for(made, ("linear.prefill", "linear")) == (LINEAR,)
    assert made.residuals["linear.decode"] == 0.12


def test_attention_keeps_its_factor():
    made = bounded(calibration(attention_decode=0.8))
    assert made.factors == {"attention.decode": 0.8}
    assert made.tables == (LINEAR, DECODE)


@given(st.floats(0.05, 20.0), st.floats(0.05, 20.0))
def test_bounds_can_be_taken_off_again(decode, prefill):
    plain = calibration(linear_decode=decode, linear_prefill=prefill, attention_decode=0.9)
    made = bounded(plain)
    assert unbounded(made).tables == plain.tables
    assert unbounded(made).factors == {}
    assert bounded(made) == made
    assert all(0 < value <= 1 for table in made.tables for value in table.values)


def test_the_best_is_by_rows_for_products_and_over_all_else():
    linear, decode = at_best(calibration()).tables
    assert linear.values == (0.9, 0.9, 0.7, 0.7)
    assert decode.values == (0.8, 0.8)


def test_no_part_of_a_step_goes_below_its_least():
    assert least_seconds({"a": 4.0, "b": 1.0}, {"a": 0.5, "b": 2.0}, {"a": 3.0}) == 5.0


def test_tables_of_forms_are_measured_and_not_made():
    """Whole steps are taken apart with them, and a factor of their class holds for them as it is."""
    convolution = replace(LINEAR, op_class="convolution", axes=("flops", "bytes"))
    pointwise = replace(convolution, op_class="convolution.pointwise")
    plain = replace(calibration(convolution_forward=0.8), tables=(convolution, pointwise))
    made = bounded(plain)
    assert unbounded(made).tables == (convolution, pointwise)
    assert made.factors == {"convolution.forward": 0.8}
    path = ("convolution.pointwise", "convolution.forward", "convolution")
    assert (tables_for(made, path), factor_for(made, path)) == ((pointwise,), 0.8)

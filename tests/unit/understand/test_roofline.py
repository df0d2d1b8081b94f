"""Points under their roofs, with numbers that can be done by hand."""

from dataclasses import replace
from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.predict.basis.calibrations import rates_reached
from inferometer.understand.roofline import drawn_roofs
from inferometer.understand.view.charts.roofline import roofline as chart
from unit.understand.explain_cases import (
    CPU,
    GPU,
    computing,
    forward,
    judged_on,
    moving,
    on_gpu,
    op,
    profile,
    roofline_of,
    told,
)
from unit.understand.strategies import profiles

CALIBRATION = Calibration(
    device="test-cpu", runtime="onnxruntime", dtype="f32", created="2026-01-01",
    tables=(
        Utilisation(op_class="linear", stream="f32", axes=("rows",), grid=((1, 64),), values=(0.2, 0.7), residual=0),
        Utilisation(op_class="vector", stream="dram", axes=("bytes",), grid=((1, 64),), values=(0.3, 0.8), residual=0),
    ),
)  # fmt: skip


def test_a_point_has_its_intensity_its_rate_and_what_it_could_reach():
    # 1 GFLOP and 0.1 GB in 0.1 s: 10 FLOP a byte under a ridge of 5, so 100 GFLOP/s are attainable and 10 are reached.
    roof = roofline_of(profile(forward(op("fc", "linear", 0.1, flops=1e9, bytes=1e8), seconds=0.1)), CPU)
    (point,) = roof.ops
    assert roof.ridge == 5.0
    assert point.intensity == 10.0
    assert point.flop_per_s == pytest.approx(10e9)
    assert point.attainable_flop_per_s == 100e9
    assert point.efficiency == pytest.approx(0.1)
    assert point.compute_utilisation == pytest.approx(0.1)
    assert point.bandwidth_utilisation == pytest.approx(0.05)
    assert point.regime == "compute"


def test_what_moves_no_byte_has_no_intensity():
    roof = roofline_of(profile(forward(op("fc", "linear", 0.1, flops=4.0, bytes=2.3e-308), seconds=0.1)), CPU)
    assert roof.ops[0].intensity is None


def test_left_of_the_ridge_the_slope_is_the_roof():
    roof = roofline_of(profile(forward(op("add", "elementwise", 1.0, flops=1e9, bytes=2e9))), CPU)
    assert roof.ops[0].attainable_flop_per_s == pytest.approx(0.5 * 20e9)
    assert roof.ops[0].regime == "memory"


def test_a_phases_shares_add_up_and_its_gap_is_overhead():
    (phase,) = roofline_of(profile(forward(computing(0.5), moving(0.3))), CPU).phases
    assert phase.regimes == pytest.approx({"compute": 0.5, "memory": 0.3, "overhead": 0.2})


def test_a_short_op_with_little_work_is_overhead_and_a_long_one_is_not():
    short, long = (op("x", "norm", seconds, flops=1.0, bytes=1.0) for seconds in (1e-5, 1e-2))
    roof = roofline_of(profile(forward(short, long, seconds=0.01001)), CPU)
    assert [point.regime for point in roof.ops] == ["overhead", "memory"]


def test_a_prediction_knows_its_own_bounds():
    one = op("x", "norm", 1e-5, flops=1.0, bytes=1.0, bound="memory")
    assert roofline_of(profile(forward(one, seconds=1e-5), kind="predicted"), CPU).ops[0].regime == "memory"


def test_ceilings_are_of_every_format_and_level_and_of_the_calibration():
    roof = roofline_of(profile(forward(computing(1.0))), CPU, reached=rates_reached(CPU, CALIBRATION))
    known = {(ceiling.level, ceiling.origin): ceiling.value for ceiling in roof.ceilings}
    assert known == {
        ("f32", "datasheet"): 100e9, ("dram", "datasheet"): 20e9, ("l2", "datasheet"): 200e9,
        ("f32", "calibrated"): pytest.approx(70e9), ("dram", "calibrated"): pytest.approx(16e9),
    }  # fmt: skip
    assert roof.peak.origin == roof.memory.origin == "datasheet"


def test_several_devices_have_several_times_the_roof():
    one = profile(forward(computing(1.0)))
    four = replace(one, device=replace(one.device, count=4))
    assert roofline_of(four, CPU).peak.value == 4 * roofline_of(one, CPU).peak.value


def test_the_peak_is_of_the_format_it_computes_in():
    assert roofline_of(on_gpu("compute", 500), GPU).peak.level == "bf16"
    unstated = on_gpu("compute", 500)
    unstated = replace(unstated, workload=replace(unstated.workload, precision=type(unstated.workload.precision)()))
    assert roofline_of(unstated, GPU).peak is None  # two formats, and nothing says which


def test_without_a_device_bounds_still_tell_the_regimes():
    roof = roofline_of(profile(forward(op("x", "linear", 1.0, bound="memory"))), None)
    assert roof.phases[0].regimes == {"memory": 1.0}
    assert roof.ridge is None


@settings(max_examples=10)
@given(profiles(), st.sampled_from([None, CPU, GPU]))
def test_shares_of_every_phase_add_up_to_one(found, on):
    for phase in roofline_of(found, on).phases:
        assert isclose(sum(phase.regimes.values()), 1.0, rel_tol=1e-9)


def test_the_chart_is_fed_with_the_calibrations_roofs_too():
    found = profile(forward(computing(0.5), moving(0.5, "head")))
    drawn = str(chart(found, drawn_roofs(judged_on(found, CPU, reached=rates_reached(CPU, CALIBRATION)).judged_by)))
    assert "f32, calibrated" in drawn
    assert "dram, calibrated" in drawn
    assert drawn_roofs(judged_on(found, CPU).judged_by) is CPU


def test_a_calibrations_own_peaks_are_ceilings():
    own = replace(CALIBRATION, tables=(), peaks={"f32": told(55e9)}, bandwidths={"dram": told(11e9)})
    values = {
        ceiling.value
        for ceiling in roofline_of(profile(forward(computing(1.0))), CPU, reached=rates_reached(CPU, own)).ceilings
    }
    assert {55e9, 11e9} <= values

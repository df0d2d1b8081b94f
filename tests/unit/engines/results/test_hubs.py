"""Qualcomm AI Hub and Embedl Hub."""

import pytest

from inferometer.core.errors import FormatError
from unit.engines.results.sources import only, parsed, taken, times, written


def test_the_estimate_says_which_statistic_of_the_runs_it_is(tmp_path):
    forward = only("qai_hub.json").phase("forward")
    assert (forward.time_s, forward.statistic) == (pytest.approx(3652e-6), "min")
    assert forward.samples_s == pytest.approx((10003e-6, 4205e-6, 3652e-6, 3660e-6))
    profile = parsed("qai_hub.json")
    for estimate, statistic in ((5380, "mean"), (3932, "median"), (3700, None)):
        profile["execution_summary"]["estimated_inference_time"] = estimate
        (other,) = taken(written(tmp_path, profile))
        assert other.phase("forward").statistic == statistic


@pytest.mark.parametrize(
    ("stage", "phase"), [("first_load", "load"), ("warm_load", "warm_load"), ("compile", "compile")]
)
def test_what_happens_once_says_which_statistic_of_its_runs_it_is(tmp_path, stage, phase):
    profile = parsed("qai_hub.json")
    runs = [9e6, 2e6, 4e6]
    for time, statistic in ((2e6, "min"), (4e6, "median"), (5e6, "mean"), (9e6, "max"), (3e6, None)):
        profile["execution_summary"] |= {f"{stage}_time": time, f"all_{stage}_times": runs}
        (read,) = taken(written(tmp_path, profile))
        found = read.phase(phase)
        assert (found.time_s, found.statistic) == (time / 1e6, statistic)
        assert found.samples_s == (9.0, 2.0, 4.0)


def test_layers_have_their_unit_and_the_sums_close():
    profile = only("qai_hub.json")
    forward = profile.phase("forward")
    assert times(forward) == {"model/truediv": 1400, "model/conv": 900, "model/conv_1": 127}
    assert forward.unattributed_s == pytest.approx(1225e-6)
    assert profile.summary.top_unit == "cpu"  # 1400 of 2427 µs
    assert profile.summary.top_unit_by_count == "npu"  # three of four layers, one of them without a time
    assert any("1 of 4 layers" in note for note in profile.provenance.notes)


def test_loads_are_phases_and_what_was_not_measured_is_none():
    profile = only("qai_hub.json")
    assert [phase.name for phase in profile.phases] == ["load", "warm_load", "forward"]
    assert profile.phase("load").time_s == pytest.approx(1.374293)
    assert profile.summary.peak_memory_bytes == 39406592


def test_a_range_stands_in_for_the_peak_memory(tmp_path):
    profile = parsed("qai_hub.json")
    profile["execution_summary"]["estimated_inference_peak_memory"] = None
    (taken_from_range,) = taken(written(tmp_path, profile))
    assert taken_from_range.summary.peak_memory_bytes == 39406752


def test_a_job_that_failed_is_refused(tmp_path):
    with pytest.raises(FormatError, match="no inference time"):
        taken(written(tmp_path, {"execution_summary": {}, "execution_detail": []}))


def test_embedls_summary_gives_the_three_headline_numbers():
    profile = only("embedl.json")
    assert profile.summary.latency_s == pytest.approx(4.2e-3)
    assert profile.summary.peak_memory_bytes == 37.5 * 2**20
    assert profile.summary.top_unit_by_count == "npu"
    assert profile.summary.top_unit is None  # the units of the layers are not there


def test_embedls_slowest_layers_are_a_part_and_told_to_be():
    profile = only("embedl.json")
    forward = profile.phase("forward")
    assert times(forward) == {"conv_2d_0": 2000, "softmax_0": 1500}
    assert forward.unattributed_s == pytest.approx(0.7e-3)
    assert any("slowest" in note for note in profile.provenance.notes)


def test_embedls_detail_has_every_layer_and_its_unit():
    profile = only("embedl_detail.json")
    assert times(profile.phase("forward")) == {"conv_2d_0": 2600, "softmax_0": 1500}
    assert [op.unit for op in profile.phase("forward").ops] == ["npu", "cpu"]
    assert profile.summary.top_unit == "npu"
    assert profile.summary.top_unit_by_count is None  # one layer each
    assert profile.device.name == "Samsung Galaxy S24"


@pytest.mark.parametrize("rows", [3, [[1.0, "a"]], [["x", "a", "B"]], [[-1, "a", "B"]]])
def test_layer_times_of_another_shape_are_refused(tmp_path, rows):
    with pytest.raises(FormatError):
        taken(written(tmp_path, {**parsed("embedl.json"), "layer_times": rows}))

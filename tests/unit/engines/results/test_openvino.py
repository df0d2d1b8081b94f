import pytest

from inferometer.core.errors import FormatError
from unit.engines.results.sources import DATA, only, parsed, taken, times, written


@pytest.mark.parametrize("name", ["openvino_detailed.csv", "openvino_detailed.json"])
def test_each_requests_table_is_a_sample(name):
    forward = only(name).phase("forward")
    assert forward.samples_s == pytest.approx((810e-6, 930e-6))
    assert times(forward) == pytest.approx({"conv1/WithoutBiases": 700, "pool": 150, "probs": 20})
    assert forward.statistic == "mean"


def test_layers_that_did_not_run_are_no_ops():
    names = times(only("openvino_average.csv").phase("forward"))
    assert "relu1" not in names
    assert "data" not in names


def test_the_average_report_is_a_mean_where_it_says_so():
    assert only("openvino_average.json").phase("forward").statistic == "mean"
    assert only("openvino_average.csv").phase("forward").statistic is None  # one request's table looks the same


def test_the_counters_hold_no_wall_so_nothing_is_unattributed():
    profile = only("openvino_detailed.csv")
    assert profile.phase("forward").unattributed_s is None
    assert any("sum of the executed layers" in note for note in profile.provenance.notes)


def test_a_kernel_says_its_unit_where_its_name_does():
    ops = only("openvino_average.csv").phase("forward").ops
    assert [(op.kernel, op.unit) for op in ops] == [
        ("brgconv_avx512_bf16", "cpu"), ("jit_avx512_bf16", "cpu"), ("jit_avx512_f32", "cpu"),
    ]  # fmt: skip


def test_requests_that_share_one_reading_are_one_sample(tmp_path):
    table = (DATA / "openvino_average.csv").read_text()
    (profile,) = taken(written(tmp_path, table * 2, "counters.csv"))
    assert profile.phase("forward").samples_s is None
    assert times(profile.phase("forward")) == {"conv1/WithoutBiases": 600, "pool": 200, "probs": 10}


def test_a_layers_name_may_hold_the_delimiter(tmp_path):
    table = (DATA / "openvino_average.csv").read_text().replace("pool;EXECUTED", "a;b;EXECUTED")
    (profile,) = taken(written(tmp_path, table, "counters.csv"))
    assert "a;b" in times(profile.phase("forward"))


def test_the_sorted_report_is_read_with_its_commas(tmp_path):
    table = 'layerName,execStatus,layerType,execType,realTime (ms),cpuTime (ms),"proportion (%)\n"\n'
    table += "conv,Status.EXECUTED,Convolution,jit_avx2_f32,0.600,0.600,75.00%\n"
    table += "pool,Status.EXECUTED,MaxPool,jit_avx2_f32,0.200,0.200,25.00%\n\nTotal time: 0.80 milliseconds\n"
    (profile,) = taken(written(tmp_path, table, "benchmark_sorted_report.csv"))
    assert times(profile.phase("forward")) == {"conv": 600, "pool": 200}


@pytest.mark.parametrize("name", ["openvino_report.csv", "openvino_report.json"])
def test_the_benchmark_report_gives_load_first_and_latency(name):
    profile = only(name)
    assert {phase.name: phase.time_s for phase in profile.phases} == pytest.approx(
        {"load": 220.85e-3, "first_run": 7.7e-3, "forward": 6.21e-3}
    )
    assert profile.phase("forward").statistic == "median"
    assert (profile.model.name, profile.device.name, profile.workload.batch) == ("squeezenet", "CPU", 2)


def test_a_report_without_layers_that_ran_is_refused_with_a_way_out(tmp_path):
    """What benchmark_app of openvino 2026.4.1 writes as average counters in JSON: the first layer only."""
    report = parsed("openvino_average.json")
    report["avg_performance"]["nodes"] = report["avg_performance"]["nodes"][:1]
    with pytest.raises(FormatError, match=r"None of its layers was executed.*leave -json_stats out"):
        taken(written(tmp_path, report))


@pytest.mark.parametrize("wrong", ["-0.6", "nan", "quick", ""])
def test_a_time_that_cannot_be_names_its_layer(tmp_path, wrong):
    table = (DATA / "openvino_average.csv").read_text().replace(";0.600;0.600", f";{wrong};0.600")
    with pytest.raises(FormatError, match="the time of 'conv1/WithoutBiases'"):
        taken(written(tmp_path, table, "counters.csv"))

"""What the benchmarks of ncnn, MNN and ExecuTorch print."""

import pytest

from inferometer.core.errors import FormatError
from unit.engines.results.sources import DATA, only, sample, taken, written


def test_benchncnn_gives_a_profile_a_network_with_the_settings_above_it():
    first, int8, on_gpu = sample("benchncnn.txt")
    assert (first.model.name, first.runtime, first.environment.threads) == ("squeezenet", "ncnn", 4)
    assert (first.phase("forward").time_s, first.phase("forward").statistic) == (0.0105, "mean")
    assert (int8.environment.host["min_s"], int8.environment.host["max_s"]) == (0.008, 0.00825)
    assert (first.summary.top_unit, first.device.name, first.environment.host["cores"]) == ("cpu", "unknown", "big")
    assert (on_gpu.summary.top_unit, on_gpu.device.name, on_gpu.environment.host["cores"]) == (
        "gpu", "Example GPU 640", "all",
    )  # fmt: skip


def test_a_block_of_benchncnn_that_says_less_takes_nothing_from_the_one_before(tmp_path):
    result = "min = 8.00  max = 8.25  avg = 8.10\n"
    blocks = (
        f"loop_count = 4\nnum_threads = 8\npowersave = 2\ngpu_device = -1\n  first {result}",
        f"loop_count = 2\nnum_threads = 2\n  second {result}",
    )
    first, second = taken(written(tmp_path, "".join(blocks), "log.txt"))
    assert (first.environment.host["cores"], first.summary.top_unit) == ("big", "cpu")
    assert (second.environment.threads, second.summary.top_unit) == (2, None)
    assert "cores" not in second.environment.host


def test_mnn_in_both_of_its_ways_to_write_milliseconds():
    first, _, on_gpu = sample("mnn.txt")
    assert (first.model.name, first.runtime, first.environment.threads) == ("resnet-v2-50", "mnn", 4)
    assert first.summary.latency_s == 0.050125
    assert (first.environment.host["min_s"], first.environment.host["max_s"]) == (0.04825, 0.0525)
    assert (first.environment.host["precision"], first.environment.host["loops"]) == ("low", 20)
    assert (on_gpu.summary.latency_s, on_gpu.summary.top_unit) == (0.029, "gpu")
    assert "precision" not in on_gpu.environment.host


def test_executorch_opens_a_delegate_call_and_closes_on_the_whole():
    profile = only("executorch.tsv")
    forward = profile.phase("forward")
    assert [op.name for op in forward.ops] == [
        "Convolution (NHWC, F32) IGEMM #1", "Fully Connected (NC, F32) GEMM #2", "delegate overhead",
        "native_call_softmax.out",
    ]  # fmt: skip
    assert [op.kind for op in forward.ops] == ["convolution", "linear", "control", "softmax"]
    assert forward.time_s == 0.0025
    assert sum(op.time_s for op in forward.ops) + forward.unattributed_s == pytest.approx(0.0025)
    assert profile.phase("load").time_s == 0.0335  # which holds Method::init


def test_executorch_on_a_phone_joins_the_figures_of_a_model():
    vision, text = sample("executorch.json")
    assert (vision.model.name, vision.device.name, vision.summary.latency_s) == ("mv3", "Example Phone 5G", 0.0075)
    assert [phase.name for phase in vision.phases] == ["load", "forward"]
    assert (text.summary.tokens_per_s, text.phase("decode").time_s) == (50, 0.02)


def test_executor_runner_tells_the_mean_of_its_runs():
    assert only("executorch_runner.txt").summary.latency_s == pytest.approx(0.01255)


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("benchncnn.txt", "avg =   10.50", "avg =   nan", "`avg` in line 8 is 'nan'"),
        ("mnn.txt", "avg =   50.125 ms", "avg =   -1 ms", "`avg` in line 6 is '-1'"),
        ("executorch.tsv", "\t2.4\t2.5\t2.6\t2.5\t", "\t2.4\t2.5\t2.6\tfast\t", r"`avg \(ms\)` in line 9"),
        ("executorch.tsv", "	Execute	OPERATOR_CALL	0.21", "", "Line 8 has 9 cells"),
        ("executorch.json", '"actualValue": 7.5', '"actualValue": "x"', "avg_inference_latency"),
        ("executorch_runner.txt", " in 125.500000 ms", "", "Older runners print no time|how long"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path, name, old, new, complaint):
    text = (DATA / name).read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(FormatError, match=complaint):
        taken(written(tmp_path, text.replace(old, new), name))


def test_a_benchmark_of_nothing_is_refused(tmp_path):
    with pytest.raises(FormatError, match="no line with a network"):
        taken(written(tmp_path, "loop_count = 4\nnum_threads = 2\n  x min = 3 avg = 3\n"))

"""The exports of profilers: Nsight Systems and Compute, rocprof, VTune, perf stat."""

import pytest

from inferometer.core.errors import FormatError
from inferometer.core.machine import cache_miss_share, instructions_per_cycle
from unit.engines.results.sources import DATA, only, taken, written


def test_nsight_systems_gives_kernels_and_copies_and_no_calls_of_the_host():
    phase = only("nsys.csv").phase("run")
    assert [(op.count, op.kind, op.unit) for op in phase.ops] == [
        (100, "linear", "gpu"), (200, "activation", "gpu"), (20, "copy", "gpu"),
    ]  # fmt: skip
    assert [op.time_s for op in phase.ops] == pytest.approx([3e-3, 6e-4, 4e-4])
    assert only("nsys.csv").summary.latency_s is None  # a sum over a recording is no latency


def test_nsight_systems_in_another_unit_of_time(tmp_path):
    text = (DATA / "nsys.csv").read_text(encoding="utf-8").replace("Total Time (ns)", "Total Time (us)")
    (profile,) = taken(written(tmp_path, text, "nsys.csv"))
    assert profile.phase("run").time_s == pytest.approx(4.0)


def test_nsight_compute_joins_the_launches_of_a_kernel_on_both_pages():
    details, raw = only("ncu_details.csv").phase("run"), only("ncu_raw.csv").phase("run")
    assert [(op.name, op.count) for op in details.ops] == [("gemm_kernel", 2), ("softmax_kernel", 1)]
    assert [op.time_s for op in details.ops] == pytest.approx([26e-6, 2e-6])
    assert [op.bytes for op in raw.ops] == [2e6, 5e5]  # read in megabytes, written in kilobytes
    assert [op.bytes for op in details.ops] == [None, None]


def test_bytes_that_were_only_read_are_not_told_as_all_that_moved(tmp_path):
    text = (DATA / "ncu_raw.csv").read_text(encoding="utf-8").replace("dram__bytes_write.sum", "dram__bytes_write.avg")
    (profile,) = taken(written(tmp_path, text, "ncu.csv"))
    assert [op.bytes for op in profile.phase("run").ops] == [None, None]


def test_kernels_of_several_queues_may_stand_in_any_order(tmp_path):
    head, first, *others = (DATA / "rocprof_trace.csv").read_text(encoding="utf-8").splitlines()
    (profile,) = taken(written(tmp_path, "\n".join([head, *others, first]) + "\n", "kernel_trace.csv"))
    assert profile.phase("run").time_s == pytest.approx(1e-4)
    assert profile.phase("run").unattributed_s == pytest.approx(1e-5)


def test_a_trace_of_rocprof_tells_when_the_gpu_was_idle():
    trace, statistics = only("rocprof_trace.csv").phase("run"), only("rocprof_stats.csv").phase("run")
    assert (trace.time_s, trace.unattributed_s) == (pytest.approx(1e-4), pytest.approx(1e-5))
    assert [(op.count, op.time_s) for op in trace.ops] == [(2, pytest.approx(8e-5)), (1, pytest.approx(1e-5))]
    assert (statistics.unattributed_s, statistics.ops[1].kind) == (None, "copy")


@pytest.mark.parametrize("mark", [",", "\t", ";", "|"])
def test_vtune_with_any_delimiter(tmp_path, mark):
    text = (DATA / "vtune.csv").read_text(encoding="utf-8").replace(",", mark)
    (profile,) = taken(written(tmp_path, text, "vtune.csv"))
    assert [(op.name, op.time_s) for op in profile.phase("run").ops][:2] == [
        ("compute_conv", 12.5),
        ("sgemm_kernel", 3.25),
    ]
    assert profile.phase("run").ops[0].provider == "libengine.so"


def test_of_a_tree_of_calls_each_function_counts_for_itself_and_the_total_for_nothing(tmp_path):
    text = "Function Stack,CPU Time,CPU Time:Self\nTotal,10.0s,0s\nmain,10.0s,1.5s\n  work,8.5s,8.5s\n"
    (profile,) = taken(written(tmp_path, text, "vtune.csv"))
    assert [(op.name, op.time_s) for op in profile.phase("run").ops] == [("main", 1.5), ("work", 8.5)]


def test_a_total_at_the_end_is_no_function(tmp_path):
    text = (DATA / "vtune.csv").read_text(encoding="utf-8") + "[Total],16.875,16.475,0.400,,\n"
    (profile,) = taken(written(tmp_path, text, "vtune.csv"))
    assert profile.phase("run").time_s == only("vtune.csv").phase("run").time_s


def test_a_hybrid_processor_counts_on_both_kinds_of_cores(tmp_path):
    rows = ("2000000000,ns,duration_time,2000000000,100.00,,", "300,,cpu_core/cycles/,10,60.00,,",
            "200,,cpu_atom/cycles/,10,40.00,,", "900,,cpu_core/instructions/,10,60.00,,")  # fmt: skip
    (profile,) = taken(written(tmp_path, "\n".join(rows) + "\n", "stat.csv"))
    assert profile.phase("run").counters == {"cycles": 500.0, "instructions": 900.0}
    plain = "\n".join(rows).replace(",ns,", ",,")  # perf counts it in nanoseconds, and says so only in newer versions
    (same,) = taken(written(tmp_path, plain + "\n", "plain.csv"))
    assert (profile.phase("run").time_s, same.phase("run").time_s) == (2.0, 2.0)


@pytest.mark.parametrize("name", ["perf_stat.txt", "perf_stat.csv"])
def test_perf_stat_counts_cycles_and_instructions(name):
    run = only(name).phase("run")
    assert run.time_s == pytest.approx(2.0, rel=3e-3)
    assert instructions_per_cycle(run.counters) == 2.0


def test_perf_stat_says_what_was_not_counted():
    profile = only("perf_stat.txt")
    assert "branch_misses" not in profile.phase("run").counters
    assert cache_miss_share(profile.phase("run").counters) == 0.1
    assert any("branch-misses" in note for note in profile.provenance.notes)
    assert (profile.provenance.command, profile.environment.host["runs"]) == ("./bench resnet50", 5)


def test_without_the_time_perf_stat_divides_the_task_clock():
    profile = only("perf_stat.jsonl")
    assert profile.summary.latency_s == pytest.approx(2.0)
    assert any("rounds" in note for note in profile.provenance.notes)


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("nsys.csv", '"3,000,000"', '"many"', r"`Total Time \(ns\)` in line 7"),
        ("ncu_raw.csv", '"ns"', '"fortnight"', "is in 'fortnight'; known units"),
        ("ncu_details.csv", '"Duration"', '"Clock"', "has no time"),
        ("rocprof_trace.csv", "1050000,1060000", "1060000,1050000", "line 3 ends before it begins"),
        ("rocprof_stats.csv", ",800000,", ",x,", "`TotalDurationNs` in line 2"),
        ("vtune.csv", "12.500,12.100", "80.0%,12.100", r"line 2 is a share of the whole \(80.0%\)"),
        ("perf_stat.txt", " seconds time elapsed", " seconds passed", "how long the command ran"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path, name, old, new, complaint):
    text = (DATA / name).read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(FormatError, match=complaint):
        taken(written(tmp_path, text.replace(old, new), name))


def test_calls_of_the_hip_api_are_no_kernels(tmp_path):
    head = '"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n'
    with pytest.raises(FormatError, match="host's calls"):
        taken(written(tmp_path, head + "hipMemcpy,2,583,291,99.8\nhipLaunchKernel,1,10,10,0.2\n", "r.csv"))


def test_intervals_of_perf_stat_are_refused(tmp_path):
    with pytest.raises(FormatError, match="intervals"):
        taken(written(tmp_path, "1.0001,120,,cycles,1000,100.00,,\n1.0001,90,,instructions,1000,100.00,,\n", "r.csv"))

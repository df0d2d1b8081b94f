import pytest

from inferometer.core.errors import FormatError
from unit.engines.results.sources import DATA, only, taken, times, written


def test_a_delegates_node_is_replaced_by_the_kernels_inside_it():
    # The delegate's node takes 3 ms, its kernels 1.8 and 1: what is left is its overhead, and nothing is counted twice.
    forward = only("litert.txt").phase("forward")
    assert times(forward) == pytest.approx({
        "[tfl.quantize]:0": 100,
        "Delegate/Convolution (NHWC, F32) IGEMM:0": 1800,
        "Delegate/Fully Connected (NC, F32) GEMM:1": 1000,
        "delegate overhead": 200,
        "[probs]:9": 40,
    })  # fmt: skip
    assert {op.unit for op in forward.ops} == {"cpu"}


def test_an_average_is_of_one_call():
    op = only("litert.txt").phase("forward").ops[-1]
    assert (op.count, op.time_s) == (2, pytest.approx(40e-6))


def test_the_log_tells_the_whole_and_what_is_left_of_it():
    profile = only("litert.txt")
    assert {phase.name: phase.time_s for phase in profile.phases} == pytest.approx(
        {"load": 1650e-6, "first_run": 4500e-6, "forward": 3200e-6}
    )
    assert profile.phase("forward").unattributed_s == pytest.approx(60e-6)
    assert profile.model.name == "mobilenet_v2"
    assert profile.environment.threads == 4
    assert profile.summary.peak_memory_bytes == 12.5 * 2**20


def test_csv_has_no_whole_and_its_types_may_hold_commas():
    profile = only("litert.csv")
    forward = profile.phase("forward")
    assert times(forward) == pytest.approx({"[conv]:1": 3640, "[second]:2": 3000, "[probs]:3": 20})
    assert forward.ops[1].kernel == "Convolution (NHWC, F32) IGEMM"
    assert forward.time_s == pytest.approx(6660e-6)
    assert forward.unattributed_s is None


def test_spaces_of_a_pasted_log_and_the_start_column_of_older_versions(tmp_path):
    log = """Operator-wise Profiling Info for Regular Benchmark Runs:
============================== Run Order ==============================
       [node type]   [start]   [first]  [avg ms]      [%]    [cdf%]  [mem KB]  [times called]  [Name]
    TfLiteNnapiDelegate   0.000    3.826     4.000  62.037%   62.037%     0.000         1      []:64
RESIZE_NEAREST_NEIGHBOR   4.000    0.052     0.058   0.899%   62.936%     0.000         1      []:38

============================== Top by Computation Time ==============================
"""
    (profile,) = taken(written(tmp_path, log, "log.txt"))
    forward = profile.phase("forward")
    assert times(forward) == pytest.approx({"[]:64": 4000, "[]:38": 58})
    assert [op.unit for op in forward.ops] == [None, "cpu"]  # NNAPI chooses the unit itself
    assert profile.summary.top_unit is None


def test_the_profilers_own_summary_without_the_tools_lines(tmp_path):
    table = (DATA / "litert.csv").read_text().partition("\n")[2]
    (profile,) = taken(written(tmp_path, table, "summary.csv"))
    assert len(profile.phase("forward").ops) == 3


def test_bodies_of_control_flow_are_inside_their_node(tmp_path):
    text = (DATA / "litert.csv").read_text()
    body = text.partition("\n")[2].replace("[conv]", "[inner]")
    (profile,) = taken(written(tmp_path, f"{text}Subgraph (index: 1) profile:\n{body}", "both.csv"))
    assert "[inner]:1" not in times(profile.phase("forward"))
    assert any("bodies of control flow" in note for note in profile.provenance.notes)


def test_several_delegate_nodes_share_their_kernels(tmp_path):
    text = (DATA / "litert.txt").read_text()
    row = next(line for line in text.splitlines() if "[Identity]:12" in line)
    (profile,) = taken(written(tmp_path, text.replace(row, f"{row}\n{row.replace(':12', ':13')}"), "log.txt"))
    forward = profile.phase("forward")
    assert times(forward)["delegate overhead"] == pytest.approx(3200)
    assert any("all delegate nodes" in note for note in profile.provenance.notes)


def test_a_row_that_is_cut_is_named_by_its_line(tmp_path):
    text = (DATA / "litert.csv").read_text().replace("SOFTMAX, 0.02, 0.02, 50%, 50%, 0, 1, [probs]:3", "SOFTMAX, 0.02")
    with pytest.raises(FormatError, match="Line 6"):
        taken(written(tmp_path, text, "cut.csv"))


@pytest.mark.parametrize("wrong", ["-1", "nan", "soon"])
def test_a_time_that_cannot_be_is_named_by_its_line(tmp_path, wrong):
    text = (DATA / "litert.csv").read_text().replace("CONV_2D, 3.73, 3.64,", f"CONV_2D, 3.73, {wrong},")
    with pytest.raises(FormatError, match="`avg ms` in line 4"):
        taken(written(tmp_path, text, "wrong.csv"))


def test_a_log_without_ops_says_which_option_gives_them(tmp_path):
    log = "Operator-wise Profiling Info for Regular Benchmark Runs:\n\nInference timings in us: Init: 1\n"
    with pytest.raises(FormatError, match="enable_op_profiling"):
        taken(written(tmp_path, log, "log.txt"))

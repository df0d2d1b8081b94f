"""Tables and logs of one's own: their columns are said, and nothing is guessed."""

import pytest

from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.engines.results.detect import import_file
from inferometer.engines.tools.own_table import OwnTable, pattern_table
from unit.engines.results.sources import DATA

NPU = {
    "phase": "Phase", "name": "Step", "unit": "Where", "count": "Calls", "time": "avg / call", "write": "BO Write",
    "run": "NPU Run", "read": "BO Read", "bytes": "BO written",
}  # fmt: skip


def read(folder, text, **table):
    path = folder / "own.csv"
    path.write_text(text, encoding="utf-8")
    made = pattern_table(**table) if "pattern" in table else OwnTable(**table)
    (profile,) = import_file(path, importers=[made])
    return profile


def test_the_report_of_an_npu_closes_on_its_walls():
    table = OwnTable(columns=NPU, walls_s={"prefill": 1.28, "decode": 0.092})
    (profile,) = import_file(DATA / "own_npu.csv", importers=[table], model="llama-3.2-1b")
    prefill, decode = profile.phases
    assert (profile.summary.ttft_s, profile.summary.tpot_s, profile.summary.top_unit) == (1.28, 0.092, "npu")
    for phase in (prefill, decode):
        assert sum(op.time_s for op in phase.ops) + phase.unattributed_s == pytest.approx(phase.time_s, rel=1e-12)
    written, attention, read, call = (op for op in prefill.ops if op.name.startswith("flash_attn"))
    assert (attention.count, attention.unit, written.kind) == (16, "npu", "copy")
    assert (written.time_s, written.bytes) == pytest.approx((16 * 1.3e-3, 16 * 20e6))
    assert [op.time_s for op in (attention, read, call)] == pytest.approx([16 * 20.1e-3, 16 * 0.1e-3, 16 * 0.1e-3])
    assert prefill.unattributed_s == pytest.approx(0.1115)


def test_a_log_is_read_by_its_pattern_and_other_lines_are_left_out(tmp_path):
    text = "starting\nconv1 took 2.5 ms\n??\nfc took 500 us\n"
    profile = read(tmp_path, text, pattern=r"(?P<name>\w+) took (?P<time>[\d.]+ \w+)")
    assert [(op.name, op.time_s) for op in profile.phase("forward").ops] == [
        ("conv1", pytest.approx(2.5e-3)), ("fc", pytest.approx(5e-4)),
    ]  # fmt: skip
    assert profile.summary.latency_s == pytest.approx(3e-3)
    assert "sum of its rows" in profile.provenance.notes[0]


@pytest.mark.parametrize(
    ("heading", "given", "seconds"),
    [("time (us)", None, 3e-6), ("ms", None, 3e-3), ("time", "ns", 3e-9)],
)
def test_a_unit_is_that_of_the_cell_the_column_or_the_one_given(tmp_path, heading, given, seconds):
    profile = read(tmp_path, f"op;{heading}\na;3\n", columns={"name": "op", "time": heading}, time_unit=given)
    assert profile.phase("forward").time_s == pytest.approx(seconds)


def test_a_total_is_of_all_calls(tmp_path):
    columns = {"name": "op", "total": "all", "count": "n"}
    (op,) = read(tmp_path, "op,all,n\na,6 ms,3\n", columns=columns).phase("forward").ops
    assert (op.count, op.time_s) == (3, pytest.approx(6e-3))


@pytest.mark.parametrize(
    ("text", "table", "says"),
    [
        ("op,t\na,3\n", {"columns": {"name": "op", "time": "t"}}, "in which unit"),
        ("op,t\na,slow\n", {"columns": {"name": "op", "time": "t"}}, r"line 2 should be a number, and is 'slow'"),
        ("op,t\na,3 ms\n", {"columns": {"name": "op", "time": "time"}}, r"No line of it is a row.*begins with 'op,t'"),
        ("x\n", {"pattern": r"(?P<name>\d)(?P<time>\d)"}, "No line of it is a row"),
    ],
)
def test_what_cannot_be_read_says_which_line_or_what_there_is(tmp_path, text, table, says):
    with pytest.raises(FormatError, match=says):
        read(tmp_path, text, **table)


def test_fields_and_phases_that_are_not_there_are_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="no field of a table named 'duration'"):
        OwnTable(columns={"name": "a", "duration": "b"})
    with pytest.raises(DomainError, match="needs a name and a time"):
        OwnTable(columns={"name": "a"})
    with pytest.raises(DomainError, match="no regular expression"):
        pattern_table("(")
    with pytest.raises(FormatError, match=r"no phase named 'decode'.*Its rows have: forward"):
        read(tmp_path, "op,ms\na,3\n", columns={"name": "op", "time": "ms"}, walls_s={"decode": 1.0})

"""The page: tables that close, numbers with their units, gains in words."""

import pytest

from inferometer.understand.explanation import explanation_document
from inferometer.understand.view.explanations import (
    evidence_text,
    explanation_page,
    finding_lines,
    findings_table,
    page_text,
    roofline_lines,
    share_table,
    trial_table,
)
from unit.understand.explain_cases import (
    CPU,
    GPU,
    computing,
    explain,
    forward,
    moving,
    on_gpu,
    op,
    profile,
    text,
)


def plain_of(found, on=CPU):
    return explanation_document(explain(found, on, name="p.json"))


def table_of(plain, by):
    return next(table for table in plain["attribution"] if table["by"] == by)


def test_rows_that_are_not_shown_stand_together_and_the_sum_closes():
    ops = [op(f"layer{n}.fc", "linear", 0.01, block=f"b{n}") for n in range(40)]
    table = share_table(table_of(plain_of(profile(forward(*ops))), "block"), most=5)
    names = [row["name"] for row in table.rows]
    assert names[5:] == ["35 others", "unattributed", "together"]
    assert (
        sum(row["time_s"] for row in table.rows[:-1]) == pytest.approx(table.rows[-1]["time_s"]) == pytest.approx(1.0)
    )


def test_one_row_more_than_fits_is_shown_and_not_hidden_as_one_other():
    ops = [op(f"layer{n}.fc", "linear", 0.1, block=f"b{n}") for n in range(6)]
    table = share_table(table_of(plain_of(profile(forward(*ops))), "block"), most=5)
    assert not any("others" in row["name"] for row in table.rows)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("ttft_s", 0.25, "ttft 250 ms"),
        ("kv_bytes", 2e9, "kv 2 GB"),
        ("rate_bytes_per_s", 3e9, "rate 3 GB/s"),
        ("ridge_flop_per_byte", 206.1, "ridge 206 FLOP/B"),
        ("memory_share", 0.5, "memory share 50.0%"),
        ("compute_utilisation", 0.123, "compute utilisation 12.3%"),
        ("threads", 8.0, "threads 8"),
        ("bytes", 1e6, "bytes 1 MB"),
    ],
)
def test_evidence_has_the_unit_that_its_name_says(name, value, shown):
    assert evidence_text({name: value}) == shown


def test_a_finding_says_what_to_do_and_what_it_gains():
    finding = {
        "code": "memory.bound", "severity": "info", "title": "T", "evidence": {"memory_share": 0.9}, "advice": "Do it.",
        "gain": 2.0, "gain_low": 1.5, "gain_high": 2.5, "gain_of": "latency", "changes": ["weights=i4"],
    }  # fmt: skip
    lines = "\n".join(finding_lines(finding, 1))
    assert "[memory.bound]" in lines
    assert "→ Do it." in lines
    assert "gain: 2.00 × as fast (1.50 to 2.50) with weights=i4, predicted" in lines
    more = "\n".join(finding_lines({**finding, "gain_of": "throughput", "gain_low": None}, 1))
    assert "2.00 × the throughput with" in more
    limit = {**finding, "gain": None, "evidence": {"speedup_at_most": 3.0}}
    assert "gain: at most 3.00 ×" in "\n".join(finding_lines(limit, 1))


def test_the_roofline_is_one_line_a_phase():
    lines = roofline_lines(plain_of(profile(forward(computing(0.5), moving(0.5))))["roofline"])
    assert "f32 100 GFLOP/s (datasheet), dram 20 GB/s (datasheet): the ridge is at 5 FLOP a byte." in lines
    assert lines[1].startswith("forward: ")
    assert lines[1].endswith("50% compute, 50% memory.")
    assert "no roofline" in roofline_lines(plain_of(text(0.1, 0.01), None)["roofline"])[0]


def test_a_page_without_findings_says_so():
    quiet = profile(forward(op("a", "custom", 1.0)))
    assert "Nothing that stands out." in explanation_page(plain_of(quiet, None))


def test_a_request_of_several_phases_comes_first_and_then_its_longest():
    page = explanation_page(plain_of(text(0.1, 0.05, ops=(moving(0.03), moving(0.02, "att", "attention")))))
    assert page.index("A request by phase") < page.index("Decode by kind of op")


def test_markdown_has_headings_tables_and_lists():
    page = explanation_page(plain_of(on_gpu("memory", 1), GPU), "md")
    assert page.startswith("# m on test\n")
    assert "## What was noticed" in page
    assert "1. **" in page


def test_findings_are_rows_too():
    plain = plain_of(profile(forward(moving(1.0))))
    assert [row["code"] for row in findings_table(plain["findings"]).rows] == [f["code"] for f in plain["findings"]]


def test_trials_show_both_gains():
    trial = {
        "change": "threads=4", "code": "threads.too-few", "predicted": 2.0, "predicted_low": 1.5, "predicted_high": 2.5,
        "before_s": 1.0, "after_s": 0.5, "obtained": 2.0, "low": 1.9, "high": 2.1, "verdict": "faster",
        "reason": "ratio 0.5", "why": None, "as_predicted": True, "notes": [],
    }  # fmt: skip
    (row,) = trial_table([trial]).rows
    assert row["predicted_text"] == "2.00 × (1.50 – 2.50)"
    assert row["obtained_text"] == "2.00 × (1.90 – 2.10)"
    assert row["why_text"] == "as predicted; ratio 0.5"


def test_a_codes_page_in_both_forms():
    page = {"code": "c.d", "what": "W.", "evidence": "E.", "why": "Y.", "do": "D.", "sure": "S."}
    assert page_text(page, "md").startswith("## `c.d`\n\nW.\n\n**Evidence.** E.")
    assert page_text(page).splitlines()[0] == "c.d"

"""What a load test says of itself: tables, remarks, charts, pages, comparisons."""

import csv
import io
import json
from dataclasses import replace

import pytest

from fakes.load_profiles import sweep_profile
from inferometer.core.codec import decode, encode
from inferometer.core.profile import Profile, Run
from inferometer.core.served import ClientReadings
from inferometer.core.traffic.traces import read_trace
from inferometer.measure.bench.compare import compare
from inferometer.understand.view.charts.load_tests import chart_names, load_chart
from inferometer.understand.view.exports import markdown, profile_csv
from inferometer.understand.view.load_tests import (
    level_table,
    load_document,
    load_result,
    remarks_of,
    request_rows,
    trace_card,
)


@pytest.fixture(scope="module")
def profile():
    return sweep_profile()


@pytest.fixture(scope="module")
def result(profile):
    return load_result(profile.served)


def test_a_sweep_finds_where_the_service_stops_keeping_up(result):
    """Eight places of 0.84 s each answer 9.5 a second."""
    assert result.served.levels[result.knee.within].name == "4/s"
    assert result.figures[-1].growing
    assert result.figures[-1].requests_per_s == pytest.approx(9.5, rel=0.1)
    marks = [row["mark"] for row in level_table(result).rows]
    assert marks[1].startswith("highest within the objectives")
    assert "queue grows" in marks[-1]


def test_the_remarks_name_errors_once_and_the_knee(result):
    remarks = list(remarks_of(result))
    assert "! 8 requests failed: 8 × http_503 (busy). None of them is in the times." in remarks
    assert any(remark.startswith("The highest load within ttft_p90<=300ms is 4/s") for remark in remarks)
    assert any("no coordinated omission" in remark for remark in remarks)
    assert len(remarks) == len(set(remarks))


def test_a_single_load_is_no_highest_one():
    alone = load_result(sweep_profile(rates=(2,)).served)
    assert alone.knee.within == 0
    assert not any(remark.startswith("The highest load") for remark in remarks_of(alone))


def test_why_the_client_was_too_slow_is_told_of_its_highest_load(profile):
    levels = tuple(
        replace(
            level, client=replace(level.client or ClientReadings(), bottleneck=place > 1, reasons=(f"why {place}",))
        )
        for place, level in enumerate(profile.served.levels)
    )
    remarks = list(remarks_of(load_result(replace(profile.served, levels=levels))))
    assert "! At 8/s, 16/s the load generator was the bottleneck: why 3." in remarks


def test_the_document_has_the_names_that_others_rely_on(profile, result):
    document = json.loads(json.dumps(load_document(profile, result)))
    assert document["schema"] == "inferometer.load/1"
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert {"mean", "p50", "p95", "p99"} <= document["summary"][name].keys()
    assert {"requests_per_s", "output_tokens_per_s", "goodput_per_s", "errors", "client"} <= document.keys()
    assert {"send_delay_p99_s", "bottleneck"} <= document["client"].keys()
    assert document["within"] == document["headline"] == "4/s"
    assert document["summary"]["ttft_s"]["p99"] is None  # 140 requests do not support it
    assert [level["name"] for level in document["levels"]] == ["2/s", "4/s", "8/s", "16/s"]


def test_requests_are_written_as_a_trace_that_can_be_replayed(profile, tmp_path):
    text = profile_csv(profile)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 560
    assert {row["outcome"] for row in rows} == {"ok", "http_503"}
    path = tmp_path / "requests.csv"
    path.write_text(text, encoding="utf-8")
    assert (len(read_trace(path)), read_trace(path).skipped) == (552, 8)


def test_every_chart_can_be_drawn(profile, result):
    names = chart_names(profile.served, result)
    assert {"ttft-load", "tpot-load", "e2e-load", "throughput-load", "timeline", "in-flight", "gap-histogram"} <= set(
        names
    )
    for name in names:
        assert load_chart(result, name)["$schema"]
    lines = json.dumps(load_chart(result, "ttft-load"))
    assert "ttft_p90<=300ms" in lines


def test_the_document_of_a_run_keeps_its_requests(profile):
    assert decode(encode(profile), Profile) == profile


def test_loads_are_compared_with_their_equals(profile):
    slower = sweep_profile(step_s=0.12)
    found = compare(profile, slower)
    verdicts = {metric.name: metric for metric in found.metrics}
    assert verdicts["tpot at 4/s"].verdict == "slower"
    assert verdicts["tpot at 4/s"].ratio == pytest.approx(1.2, rel=0.02)
    assert found.metric == "e2e at 4/s"
    assert compare(profile, profile).main.verdict == "same"


def test_markdown_has_levels_and_remarks(profile):
    text = markdown(profile, title="nightly")
    assert text.startswith("## nightly")
    assert "| 16/s |" in text


def test_the_page_and_the_one_file_report_show_it(profile, monkeypatch):
    pytest.importorskip("jinja2")
    from inferometer.hub.web.downloads import one_file
    from inferometer.hub.web.pages.run import run_values

    run = Run(id="x" * 12, project="default", status="finished", created="2026-01-01T00:00:00+00:00", profile=profile)
    values = run_values(run, profile)
    assert [card.label for card in values["figures"]][:3] == ["First token", "Each token", "Whole request"]
    assert values["charts"][0].name == "ttft-load"
    monkeypatch.setattr("inferometer.hub.web.downloads._vega_scripts", lambda **_: ())  # seconds, for other tests
    page = one_file(run, profile)
    assert "What the load test found" in page
    assert "Phases" not in page.partition("<script")[0]


def test_a_card_says_what_a_trace_is_like(tmp_path):
    path = tmp_path / "talks.jsonl"
    lines = (
        {"session": "a", "turn": 0, "at_s": 0, "input_tokens": 100, "output_tokens": 10},
        {"session": "a", "turn": 1, "after": ["a/0"], "wait_s": 1, "input_tokens": 200, "output_tokens": 20},
        {"session": "b", "turn": 0, "at_s": 10, "input_tokens": 60, "output_tokens": 30},
    )
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    card = trace_card(read_trace(path))
    assert card.facts == (
        ("requests", "3", "0.2 sessions/s in 10 s"), ("sessions", "2", "1.5 requests each"),
        ("prompts", "120 tokens", "at most 200"), ("answers", "20 tokens", "on average"),
        ("repeated", "31%", "of the prompts: what a cache without end would have"),  # 110 of 360
    )  # fmt: skip
    assert (card.text, card.sources) == (None, ())
    path.write_text(
        json.dumps({"messages": [{"role": "user", "content": "a" * 40}], "max_tokens": 9}), encoding="utf-8"
    )
    card = trace_card(read_trace(path))
    assert card.facts[0] == ("requests", "1", "it does not say when: --rate says it")
    assert card.text.startswith("Four letters were counted as a token")


def test_levels_whose_requests_were_not_kept_have_no_rows_and_hide_no_others(profile):
    first, second, *_ = profile.served.levels
    kept = len(second.requests)
    for levels in ((replace(first, requests=None), second), (second, replace(first, requests=None))):
        rows = [*request_rows(replace(profile.served, levels=levels))]
        assert {row["level"] for row in rows} == {second.name}
        assert len(rows) == kept
    both = [*request_rows(replace(profile.served, levels=(first, second)))]
    assert len(both) == len(first.requests) + kept

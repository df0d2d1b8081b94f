"""What a profile looks like: text, Markdown, CSV, HTML, and the formats of viewers, held to their schemas."""

import csv
import io
import json
from contextlib import nullcontext
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from inferometer.core.errors import UnknownNameError
from inferometer.core.trace import Span, Trace
from inferometer.measure.spans import Profiler, from_trace
from inferometer.measure.spans.power import Power, Series
from inferometer.measure.spans.profiler import EXPORTS
from inferometer.measure.spans.recording import RecordingRun
from inferometer.understand.view.spans_page import timeline, tree_table
from inferometer.understand.view.traces import chrome
from unit.measure.spans.clocks import Manual


@pytest.fixture
def clock():
    return Manual()


@pytest.fixture
def profiler(clock):
    found = Profiler(enabled=True, clock=clock)
    with found.span("generate"):
        with found.span("prefill", phase="prefill", tokens=64):
            for layer in range(4):
                with found.span("layer", layer=layer):
                    with found.span("attention", unit="npu", flops=1e9), found.segment("run"):
                        clock.pass_ms(2)
                    with found.span("mlp", unit="npu"):
                        clock.pass_ms(3)
        for token in range(80):
            with found.span("decode", phase="decode", token=token, tokens=1):
                with found.span("forward <&>", unit="npu"):
                    clock.pass_ms(1)
                with found.span("sampling", unit="cpu"):
                    clock.pass_ms(0.1)
    return found


def test_the_report_says_what_it_cost_and_where_the_time_went(profiler):
    report = profiler.report()
    for expected in ("254 spans of 8 names in 1 thread", "0 dropped", "Recording itself:", "of the run"):
        assert expected in report
    for title in ("Tree", "Statistics", "Phases", "Time line"):
        assert f"\n{title}\n" in report


def test_the_tree_closes(profiler):
    rows = tree_table(profiler.recording()).rows
    names = [row["span"].strip("└ ") for row in rows]
    assert names == ["generate", "decode", "forward <&>", "sampling", "prefill", "layer", "mlp", "attention"]
    assert sum(row["exclusive_s"] for row in rows) == pytest.approx(profiler.recording().wall_s, rel=1e-6)
    by_name = dict(zip(names, rows, strict=True))
    assert by_name["layer"]["total_s"] == pytest.approx(20e-3, rel=1e-4)
    assert by_name["layer"]["calls"] == 4
    assert by_name["generate"]["share"] == 100


def test_a_long_tree_is_cut_and_the_rest_summed(profiler):
    table = tree_table(profiler.recording(), rows=3)
    assert len(table.rows) == 3
    assert "5 more paths" in table.note


def test_the_seeds_report_in_milliseconds(profiler):
    report = profiler.report("operations")
    block = report[report.index("Operation: sampling") :]
    assert block.splitlines()[:6] == [
        "Operation: sampling", "  Measurements: 80", "  Duration (ms):", "    Min: 0.1", "    Max: 0.1", "    Avg: 0.1",
    ]  # fmt: skip
    assert "    P95: 0.1" in block
    assert "    P99: – (too few measurements: about 368 are needed)" in block


def test_a_percentile_that_is_open_above_says_so():
    """P99 of 128 measurements is one of them, and nobody knows how far beyond it lies."""
    clock = iter(range(0, 10**12, 10**6))
    profiler = Profiler(enabled=True, clock=lambda: next(clock))
    for _ in range(128):
        with profiler.span("forward"):
            pass
    assert "    P99: 1 (at least 1; 368 close it from above)" in profiler.report("operations")


def test_an_unknown_style_says_the_known_ones(profiler):
    with pytest.raises(UnknownNameError, match="Known: full, operations"):
        profiler.report("pretty")


def test_nothing_recorded_is_said():
    assert "No spans were recorded" in Profiler(enabled=False).report()


def test_the_time_line_has_a_bar_for_each_lane_and_a_legend(profiler):
    lines = timeline(profiler.recording(), width=20).splitlines()
    assert lines[1].startswith("MainThread")
    assert set(lines[1][26:]) == {"A", "B"}
    assert lines[-1] in {"A prefill, B decode", "A decode, B prefill"}


def test_the_time_line_is_filled_where_spans_are_and_nowhere_else(clock):
    profiler = Profiler(enabled=True, clock=clock)
    for name, milliseconds in (("a", 3), ("b", 1), (None, 3.5), ("a", 1e-4), (None, 0.6), ("c", 1.9)):
        with profiler.span(name) if name else nullcontext():
            clock.pass_ms(milliseconds)
    assert timeline(profiler.recording(), width=10).splitlines()[1][26:] == "AAAB   ACC"


def test_every_export_writes_something(profiler, tmp_path):
    for suffix in EXPORTS:
        file = profiler.export(tmp_path / f"profile{suffix}")
        assert file.stat().st_size > 100, suffix
        assert b"\x1b" not in file.read_bytes()


@pytest.mark.parametrize("suffix", list(EXPORTS))
def test_an_empty_profile_can_be_exported_too(tmp_path, suffix):
    assert Profiler(enabled=True).export(tmp_path / f"profile{suffix}").exists()


def test_markdown_has_every_table(profiler, tmp_path):
    text = profiler.export(tmp_path / "profile.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("**")] == [
        "**Tree**", "**Statistics**", "**Phases**", "**Time line**",
    ]  # fmt: skip
    assert "| span | calls |" in text


def test_csv_has_a_row_for_each_span_with_raw_times(profiler, tmp_path):
    rows = list(csv.DictReader(io.StringIO(profiler.export(tmp_path / "profile.csv").read_text())))
    assert len(rows) == 254
    first = profiler.trace().spans[0]
    assert (int(rows[0]["start_ns"]), int(rows[0]["end_ns"])) == (first.start_ns, first.end_ns)
    assert rows[1]["parent"] == "0"
    assert {row["name"] for row in rows} == set(profiler.recording().names())


def test_the_numbers_are_there_for_programs_in_si_units(profiler, tmp_path):
    document = json.loads(profiler.export(tmp_path / "profile.stats.json").read_bytes())
    assert document["schema"] == "inferometer.span-statistics/1"
    forward = next(each for each in document["statistics"] if each["name"] == "forward <&>")
    assert forward["count"] == 80
    assert forward["median_s"] == pytest.approx(1e-3, rel=1e-5)
    assert forward["p99_s"] is None  # 80 calls cannot tell
    assert [phase["name"] for phase in document["flow"]["phases"]] == ["prefill", "decode"]
    assert document["tree"][0]["span"] == "generate"


class Balanced(HTMLParser):
    """A reader that minds unclosed tags."""

    VOID = frozenset({"meta", "rect", "line", "path", "polyline", "br"})

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, _attrs):
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_html_is_one_whole_file_with_the_drawing_and_names_escaped(profiler, tmp_path):
    text = profiler.export(tmp_path / "profile.html").read_text()
    reader = Balanced()
    reader.feed(text)
    assert reader.open == []
    assert {"svg", "table", "h1", "pre"} <= reader.seen
    assert all(title in text for title in ("Tree", "Statistics", "Phases", "Time line"))
    assert "forward &lt;&amp;&gt;" in text
    assert "<script" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


# ── viewers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_chrome_trace_is_in_the_trace_event_format(profiler, tmp_path):
    """As github.com/google/perfetto's and Chromium's documents of the format say: JSON object form, X and M events."""
    document = json.loads(profiler.export(tmp_path / "trace.json").read_bytes())
    assert document["displayTimeUnit"] in {"ms", "ns"}
    events = document["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == 254 + 4  # every span, and every segment
    for event in complete:
        assert isinstance(event["name"], str)
        assert isinstance(event["cat"], str)
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        assert all(isinstance(event[key], int | float) and event[key] >= 0 for key in ("ts", "dur"))
        assert isinstance(event.get("args", {}), dict)
    meta = [event for event in events if event["ph"] == "M"]
    assert {event["name"] for event in meta} == {"process_name", "thread_name"}
    assert {event["args"]["name"] for event in meta} >= {"MainThread"}
    assert {event["ph"] for event in events} == {"X", "M"}


def test_the_chrome_trace_keeps_nanoseconds_and_facts(profiler, tmp_path):
    events = json.loads(profiler.export(tmp_path / "trace.json").read_bytes())["traceEvents"]
    span = profiler.trace().spans[0]
    event = next(event for event in events if event["name"] == span.name)
    assert round(event["ts"] * 1000) == span.start_ns
    assert round(event["dur"] * 1000) == span.end_ns - span.start_ns
    attention = next(event for event in events if event["name"] == "attention")
    assert attention["cat"] == "npu"
    assert attention["args"]["flops"] == 1e9


def test_slices_of_one_lane_nest_or_follow(profiler, tmp_path):
    """What viewers need of complete events: within a tid no two overlap in part."""
    events = json.loads(profiler.export(tmp_path / "trace.json").read_bytes())["traceEvents"]
    slices = sorted((e["ts"], -e["dur"]) for e in events if e["ph"] == "X")
    ends = []
    for begin, minus in slices:
        while ends and ends[-1] <= begin + 1e-6:
            ends.pop()
        assert not ends or begin - minus <= ends[-1] + 1e-6
        ends.append(begin - minus)


def events_of(profiler, tmp_path):
    return json.loads(profiler.export(tmp_path / "trace.json").read_bytes())["traceEvents"]


def test_what_overlaps_in_part_gets_a_lane_of_its_own(clock, tmp_path):
    """Perfetto drops such an event (slice_drop_overlapping_complete_event)."""
    profiler = Profiler(enabled=True, clock=clock)

    def items():
        with profiler.span("generator's"):
            yield 1
            clock.pass_ms(1)

    with profiler.span("outer"):
        running = items()
        next(running)
        clock.pass_ms(1)
        with profiler.span("inside"):
            clock.pass_ms(1)
    clock.pass_ms(1)
    assert list(running) == []
    for events in (events_of(profiler, tmp_path), json.loads(b"".join(chrome(profiler.recording())))["traceEvents"]):
        lanes = {event["name"]: event["tid"] for event in events if event["ph"] == "X"}
        assert lanes["outer"] == lanes["inside"] != lanes["generator's"]
        titles = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        assert titles[lanes["generator's"]] == "MainThread, overlapping"


def test_a_trace_is_valid_json_whatever_facts_were_given(clock, tmp_path):
    profiler = Profiler(enabled=True, clock=clock)
    with profiler.span("\ud800 \n\x00", flops=float("nan"), bytes=float("inf"), phase="ünï"):
        pass

    def refuse(word):
        raise AssertionError(word)

    text = profiler.export(tmp_path / "trace.json").read_text("utf-8")
    event = json.loads(text, parse_constant=refuse)["traceEvents"][-1]
    assert event["name"] == "\ud800 \n\x00"
    assert event["args"] == {"phase": "ünï", "flops": None, "bytes": None}


def test_each_process_of_a_merged_trace_is_named(tmp_path):
    spans = tuple(Span(name="work", start_ns=0, end_ns=5, process=number, thread=1) for number in (11, 12))
    document = json.loads(b"".join(chrome(from_trace(Trace(spans=spans)))))
    named = {e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert named == {11: "process 11", 12: "process 12"}
    assert len({e["tid"] for e in document["traceEvents"] if e["ph"] == "X"}) == 2


def test_a_time_before_zero_keeps_its_sign():
    spans = (Span(name="early", start_ns=-5, end_ns=1_002_003), Span(name="late", start_ns=7, end_ns=8))
    text = b"".join(chrome(from_trace(Trace(spans=spans)))).decode()
    assert '"ts":-0.005,"dur":1002.008' in text
    assert '"ts":0.007,"dur":0.001' in text


def test_sensors_are_counters():
    power = Power(series=(Series(name="gpu 0", quantity="power", times_ns=(0, 1500), values=(90.0, 95.5)),))
    events = json.loads(b"".join(chrome([], run=RecordingRun(power=power))))["traceEvents"]
    counters = [(e["name"], e["ts"], e["args"]) for e in events if e["ph"] == "C"]
    assert counters == [("gpu 0 power", 0.0, {"W": 90.0}), ("gpu 0 power", 1.5, {"W": 95.5})]


def test_speedscope_events_open_and_close_like_brackets(profiler, tmp_path):
    """As speedscope.app/file-format-schema.json says of an evented profile."""
    document = json.loads(profiler.export(tmp_path / "profile.speedscope.json").read_bytes())
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(set(frame) == {"name"} for frame in frames)
    for profile in document["profiles"]:
        assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
        assert all(before["at"] <= after["at"] for before, after in pairwise(profile["events"]))
        stack = []
        for event in profile["events"]:
            assert profile["startValue"] <= event["at"] <= profile["endValue"]
            assert 0 <= event["frame"] < len(frames)
            stack.append(event["frame"]) if event["type"] == "O" else None
            if event["type"] == "C":
                assert stack.pop() == event["frame"]
        assert stack == []
    assert sum(event["type"] == "O" for event in document["profiles"][0]["events"]) == 254


def test_folded_stacks_add_up_to_the_wall(profiler, tmp_path):
    lines = profiler.export(tmp_path / "profile.folded").read_text().splitlines()
    stacks = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}
    assert "generate;prefill;layer;attention" in stacks
    assert sum(stacks.values()) == pytest.approx(profiler.recording().wall_s * 1e9, rel=1e-9)

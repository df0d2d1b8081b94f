"""Whatever is recorded: the tree is the one that ran, times close, and files and viewers lose nothing."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.codec import decode, encode
from inferometer.core.trace import Trace
from inferometer.measure.spans import Profiler, Ring, from_trace, load, merge
from inferometer.measure.spans.attribution import attribute
from inferometer.measure.spans.flow import fold
from inferometer.measure.spans.nest import covered_ns
from inferometer.measure.spans.span_stats import stats_of_all
from inferometer.understand.view.dataflow import dataflow
from inferometer.understand.view.traces import chrome, speedscope
from unit.measure.spans.clocks import Manual

NAMES = st.sampled_from(["generate", "layer", "attn", "mlp", "ünï 'code'\"<&>"])
UNITS = st.sampled_from([None, "cpu", "gpu"])
STEP = st.tuples(st.integers(0, 5), NAMES, UNITS, st.integers(0, 5), st.booleans())
FOREST = st.lists(STEP, max_size=20)  # (depth at most, name, unit, ms, fails): a tree read from the top


def run(profiler, clock, steps):
    """Execute a forest; the tree that truly ran, as (name, parent's number) in the order spans began."""
    truth = []
    waiting = list(steps)

    def visit(depth, above):
        while waiting and waiting[0][0] >= depth:
            _, name, unit, milliseconds, fails = waiting.pop(0)
            number = len(truth)
            truth.append((name, above))
            with suppress(ValueError), profiler.span(name, unit=unit):
                clock.pass_ms(milliseconds)
                visit(depth + 1, number)
                if fails:
                    raise ValueError

    while waiting:
        visit(0, None)
    return truth


def recorded(nodes, **options):
    clock = Manual()
    profiler = Profiler(enabled=True, clock=clock, **options)
    return profiler, run(profiler, clock, nodes)


@given(FOREST)
def test_the_tree_found_is_the_tree_that_ran(nodes):
    profiler, truth = recorded(nodes)
    assert [(span.name, span.parent) for span in profiler.trace().spans] == truth


@given(FOREST)
def test_own_times_add_up_to_the_time_of_the_outermost_spans(nodes):
    recording = recorded(nodes)[0].recording()
    outer = recording.durations_s[recording.parent < 0].sum()
    assert recording.exclusive_s().sum() == pytest.approx(outer, abs=1e-12)
    assert bool((recording.exclusive_s() >= 0).all())


@given(FOREST)
def test_a_name_never_takes_longer_than_the_run_and_counts_are_kept(nodes):
    profiler, truth = recorded(nodes)
    recording = profiler.recording()
    found = stats_of_all(recording)
    assert sum(each.count for each in found) == len(truth)
    for each in found:
        assert each.exclusive_s <= each.total_s * (1 + 1e-9) + 1e-12
        assert each.total_s <= recording.wall_s * (1 + 1e-9) + 1e-12
        assert each.min_s <= each.median_s <= each.max_s


@given(FOREST)
def test_the_attribution_closes(nodes):
    recording = recorded(nodes)[0].recording()
    if len(recording) == 0:
        return
    wall_ns = int(recording.end.max() - recording.start.min())
    found = attribute(recording, np.arange(len(recording)), wall_ns, 1)
    parts = sum(time_s for _, time_s in found.units) + found.unattributed_s - found.overlap_s
    assert parts == pytest.approx(found.wall_s, abs=1e-12)
    assert found.overlap_s == pytest.approx(0, abs=1e-12)  # one lane: nothing at the same time


@given(nodes=FOREST)
def test_files_lose_nothing(nodes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spans")
    profiler, _ = recorded(nodes)
    saved = profiler.save(folder / "run.spans")
    assert load(saved).trace().spans == profiler.trace().spans
    assert merge(saved).trace().spans == profiler.trace().spans


@given(FOREST)
def test_a_trace_document_makes_the_same_recording(nodes):
    trace = recorded(nodes)[0].trace()
    again = decode(encode(trace), Trace)
    assert from_trace(again).trace().spans == trace.spans


@given(FOREST)
def test_every_span_is_in_the_chrome_trace_to_the_nanosecond(nodes):
    profiler, truth = recorded(nodes)
    document = json.loads(b"".join(chrome(profiler.batches())))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(truth)
    told = sorted((round(event["ts"] * 1000), round(event["dur"] * 1000), event["name"]) for event in events)
    assert told == sorted((s.start_ns, s.end_ns - s.start_ns, s.name) for s in profiler.trace().spans)


@given(FOREST)
def test_speedscope_opens_every_span_once(nodes):
    profiler, truth = recorded(nodes)
    document = json.loads(b"".join(speedscope(profiler.recording())))
    opened = sum(event["type"] == "O" for profile in document["profiles"] for event in profile["events"])
    assert opened == len(truth)


@given(FOREST, st.integers(1, 6))
def test_a_ring_keeps_and_counts_everything_between_them(nodes, room):
    profiler, truth = recorded(nodes, keep=Ring(spans=room))
    trace = profiler.trace()
    assert len(trace.spans) + trace.dropped == len(truth)
    assert len(trace.spans) == min(room, len(truth))


@given(FOREST)
def test_a_dataflow_has_the_time_of_its_phases(nodes):
    profiler, _ = recorded(nodes)
    for phase in dataflow(profiler.recording()).flow.phases:
        inside = sum(row.total_s for row in phase.rows) + phase.rest_s
        assert inside == pytest.approx(phase.wall_s, rel=1e-6, abs=1e-9)


@given(st.lists(st.integers(0, 3), max_size=40))
def test_folding_forgets_nothing(sequence):
    unfolded = [item for repeat in fold(sequence) for _ in range(repeat.count) for item in repeat.items]
    assert unfolded == sequence


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12))
def test_covered_time_is_the_number_of_moments_covered(intervals):
    starts = np.asarray([start for start, _ in intervals], dtype=np.int64)
    ends = np.asarray([start + spent for start, spent in intervals], dtype=np.int64)
    moments = {moment for start, spent in intervals for moment in range(start, start + spent)}
    assert covered_ns(starts, ends) == len(moments)

"""From facts to a tree: who stands in whom, own time, and what tasks at the same time take off."""

import csv
import io

import numpy as np
import pytest

from inferometer.core.codec import decode, encode
from inferometer.core.errors import SchemaError
from inferometer.core.trace import Segment, Span, Trace
from inferometer.measure.spans import Profiler, from_trace, nest, stats
from inferometer.measure.spans.flow import Repeat, fold, stretches
from inferometer.understand.view.spans_page import csv_rows


def ints(*values):
    return np.asarray(values, dtype=np.int64)


def test_the_parent_is_the_next_to_end_that_began_no_later():
    # inner 2–3 and 4–5 in outer 1–6, then another 7–8
    starts, ends = ints(2, 4, 1, 7), ints(3, 5, 6, 8)
    assert nest.parents(starts, ends, ints(0, 0, 0, 0)).tolist() == [2, 2, -1, -1]


def test_lanes_do_not_nest_in_each_other():
    assert nest.parents(ints(2, 1), ints(3, 4), ints(0, 1)).tolist() == [-1, -1]


def test_a_span_that_outlives_the_one_around_it_is_not_inside_it():
    # a generator's span 2–9 began inside 1–5 and ended after it
    assert nest.parents(ints(1, 2), ints(5, 9), ints(0, 0)).tolist() == [-1, -1]


def test_own_time_is_what_the_children_leave():
    starts, ends, parent = ints(0, 1, 5), ints(10, 4, 9), ints(-1, 0, 0)
    assert nest.exclusive_ns(starts, ends, parent, ints(0, 0, 0)).tolist() == [3, 3, 4]


def test_children_that_run_at_the_same_time_are_taken_off_once():
    starts, ends, parent = ints(0, 1, 2), ints(10, 6, 8), ints(-1, 0, 0)
    assert nest.exclusive_ns(starts, ends, parent, ints(0, 1, 2)).tolist() == [3, 5, 6]


@pytest.mark.parametrize(
    ("starts", "ends", "covered"),
    [((), (), 0), ((0,), (5,), 5), ((0, 3), (5, 8), 8), ((0, 7), (5, 8), 6), ((0, 1), (9, 2), 9), ((3, 0), (4, 9), 9)],
)
def test_covered_time_counts_no_moment_twice(starts, ends, covered):
    assert nest.covered_ns(ints(*starts), ints(*ends)) == covered


def test_depth_is_the_number_of_spans_around():
    assert nest.depths(ints(-1, 0, 1, 0)).tolist() == [0, 1, 2, 1]


def test_a_trace_keeps_its_parents_segments_and_facts():
    trace = Trace(
        spans=(
            Span(name="outer", start_ns=0, end_ns=10, phase="prefill"),
            Span(name="inner", start_ns=1, end_ns=4, parent=0, unit="npu", layer=2, bytes=8.0, memory_peak_bytes=5,
                 segments=(Segment(name="run", start_ns=2, end_ns=3),)),
        ),
        dropped=3,
    )  # fmt: skip
    assert from_trace(trace).trace() == Trace(
        spans=tuple(
            Span(**{**{f: getattr(span, f) for f in Span.__dataclass_fields__}, "thread": 0}) for span in trace.spans
        ),
        dropped=3,
    )
    assert from_trace(trace).phases().tolist() == [from_trace(trace).words.index("prefill")] * 2


def test_a_trace_keeps_where_spans_ran_and_what_the_device_and_the_sensors_said():
    trace = Trace(
        spans=(
            Span(name="forward", start_ns=0, end_ns=10, process=7, thread=3, task="task 2", device_start_ns=4,
                 device_s=2e-6, energy_j=1.5),
            Span(name="forward", start_ns=20, end_ns=30, process=8, thread=3, energy_j=0.5),
        )
    )  # fmt: skip
    recording = from_trace(decode(encode(trace), Trace))
    assert recording.trace() == trace
    assert stats(recording, "forward").energy_j == 2.0
    assert stats(recording, "forward").device_s == pytest.approx(2e-6)
    rows = list(csv.DictReader(io.StringIO(b"".join(csv_rows(recording)).decode())))
    assert [(row["process"], row["energy_j"], row["device_start_ns"]) for row in rows] == [
        ("7", "1.5", "4"), ("8", "0.5", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("parents", [(1, 0), (0,), (5,), (None, 2, 1)])
def test_a_trace_whose_spans_stand_in_themselves_is_refused(parents):
    spans = tuple(Span(name="a", start_ns=0, end_ns=1, parent=parent) for parent in parents)
    with pytest.raises(SchemaError, match="parent"):
        from_trace(Trace(spans=spans))


def test_an_empty_trace_is_an_empty_recording():
    assert len(from_trace(Trace())) == 0
    assert from_trace(Trace()).trace() == Trace()


# ── folding ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sequence", "folded"),
    [
        ([], []),
        ([1], [((1,), 1)]),
        ([1, 1, 1], [((1,), 3)]),
        ([1, 2, 3], [((1,), 1), ((2,), 1), ((3,), 1)]),
        ([9, 1, 2, 1, 2, 1, 2, 8], [((9,), 1), ((1, 2), 3), ((8,), 1)]),
        ([1, 1, 2, 1, 1, 2], [((1, 1, 2), 2)]),
    ],
)
def test_what_comes_again_is_folded(sequence, folded):
    assert fold(sequence) == tuple(Repeat(items, count) for items, count in folded)


def test_folding_a_long_sequence_is_quick():
    assert fold([1] * 50_000) == (Repeat((1,), 50_000),)


def test_a_span_of_no_length_is_no_child_of_its_next_sibling():
    # in outer 1–9: empty 2–2, then next 2–5, then empty 5–5 and last 5–8
    starts, ends = ints(2, 2, 5, 5, 1), ints(2, 5, 5, 8, 9)
    assert nest.parents(starts, ends, ints(0, 0, 0, 0, 0)).tolist() == [4, 4, 4, 4, -1]


def test_spans_of_no_length_stand_before_the_one_that_begins_where_they_are_over():
    # in outer 1–9: two empty ones 2–2, then next 2–5 and last 5–8
    clock = iter((0, 1, 2, 2, 2, 2, 2, 5, 5, 8, *[9] * 99))
    p = Profiler(enabled=True, clock=clock.__next__)
    with p.span("outer"):
        for name in ("first", "second", "next", "last"):
            with p.span(name):
                pass
    recording = p.recording()
    assert [recording.words[name] for name in recording.name] == ["outer", "first", "second", "next", "last"]
    assert recording.parent.tolist() == [-1, 0, 0, 0, 0]


def test_a_note_of_no_length_belongs_to_the_span_that_it_is_made_in():
    starts, ends = ints(2, 2, 1), ints(2, 5, 9)
    within = np.asarray([True, False, False])
    assert nest.parents(starts, ends, ints(0, 0, 0), within).tolist() == [1, 2, -1]


def test_items_are_cut_by_their_layers():
    layers = [None, 0, 0, 1, 1, None, 2, 2, None]
    names = [9, 1, 2, 1, 2, 7, 1, 2, 8]
    before, stack, after = stretches(layers, names)
    assert (before.groups, after.groups) == (((0,),), ((8,),))
    assert stack.groups == ((1, 2), (3, 4, 5), (6, 7))


def test_a_layer_may_begin_before_the_last_is_over():
    (stack,) = stretches([0, 1, 0, 1, 2, 2], [1, 1, 2, 2, 1, 2])
    assert stack.groups == ((0, 2), (1, 3), (4, 5))


def test_an_encoder_and_a_decoder_are_two_stacks_and_so_are_layers_of_two_kinds():
    encoder_and_decoder = stretches([0, 1, 2, 0, 1, 2], [1, 1, 1, 2, 2, 2])
    assert [len(stretch.groups) for stretch in encoder_and_decoder] == [3, 3]
    dense_and_sparse = stretches([0, 1, 2, 3], [1, 1, 5, 5])
    assert [stretch.groups for stretch in dense_and_sparse] == [((0,), (1,)), ((2,), (3,))]

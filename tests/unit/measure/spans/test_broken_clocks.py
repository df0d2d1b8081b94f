"""A clock that jumps backwards: no negative time, no lost span, and the fault is told."""

import pytest

from inferometer.measure.spans import Profiler
from unit.measure.spans.clocks import Played


def recorded(*readings):
    """A profiler whose clock reads its own start, and then the given readings."""
    return Profiler(enabled=True, clock=Played(0, *readings))


def test_a_span_that_would_end_before_it_began_has_no_duration():
    profiler = recorded(100, 40)
    with profiler.span("forward"):
        pass
    (span,) = profiler.trace().spans
    assert span.duration_s == 0
    (note,) = profiler.recording().run.notes
    assert "went backwards 1 time, by up to 60 ns" in note


def test_a_jump_between_spans_is_told():
    profiler = recorded(100, 200, 50, 60)
    for _ in range(2):
        with profiler.span("forward"):
            pass
    assert "went backwards 1 time, by up to 140 ns" in profiler.recording().run.notes[0]
    assert profiler.stats("forward").total_s == pytest.approx(110e-9)


def test_a_jump_inside_a_span_loses_no_span_and_the_report_says_it():
    profiler = recorded(100, 200, 30, 40, 50, 60)
    with profiler.span("outer"):
        with profiler.span("before"):
            pass
        with profiler.span("after"):
            pass
    assert {span.name for span in profiler.trace().spans} == {"outer", "before", "after"}
    assert all(span.end_ns >= span.start_ns for span in profiler.trace().spans)
    assert "backwards" in profiler.report()


def test_a_clock_that_keeps_time_is_not_accused():
    profiler = recorded(1, 2, 3, 4)
    with profiler.span("outer"), profiler.span("inner"):
        pass
    assert profiler.recording().run.notes == ()

"""The profiler weighs itself."""

import pytest

from fakes.counting import calls_of
from inferometer.measure.spans import Measure, Profiler, recorder
from inferometer.measure.spans.record import nothing, quick
from inferometer.measure.spans.recorder import span_cost_s
from unit.measure.spans.clocks import Ticking


def test_a_span_costs_what_the_loop_with_it_takes_longer():
    clock = Ticking(step=7)
    kept = []
    make = quick(clock, kept.append)
    # each span reads the clock twice; the loops read it once at either end
    assert span_cost_s(make, clock=clock, spans=10, rounds=2) == pytest.approx(14e-9)


def test_the_cost_is_measured_at_the_start_and_told(monkeypatch):
    monkeypatch.setattr(recorder, "span_cost_s", lambda *_, **__: 0.3e-6)
    profiler = Profiler(enabled=True)
    assert profiler.recording().run.span_cost_s == 0.3e-6
    with profiler.span("forward"):
        pass
    assert "300 ns a span, measured at the start" in profiler.report()


def test_what_is_measured_beside_time_is_in_the_cost(monkeypatch):
    def spans(make):
        for _ in range(10):
            with make("cost"):
                pass

    monkeypatch.setattr(recorder, "span_cost_s", lambda make, **_: calls_of(lambda: spans(make)))
    plain = Profiler(enabled=True).recording().run.span_cost_s
    with_memory = Profiler(enabled=True, measure=Measure(memory=True)).recording().run.span_cost_s
    assert with_memory > 2 * plain


def test_weighing_records_nothing_and_leaves_a_given_clock_alone():
    clock = Ticking()
    profiler = Profiler(enabled=True, clock=clock)
    assert len(profiler.recording()) == 0
    assert clock.now == 1


def test_a_switched_off_span_costs_less_than_a_recorded_one():
    clock = Ticking()
    recorded = quick(clock, [].append)
    assert span_cost_s(nothing, clock=clock) == 0 < span_cost_s(recorded, clock=clock)

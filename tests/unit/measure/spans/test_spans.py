"""What is recorded: nesting, recursion, errors, threads, callbacks, segments, notes, and nothing when switched off."""

import gc
import threading
import weakref
from contextlib import ExitStack, suppress

import pytest

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.measure.spans import Profiler, record, recorder
from unit.measure.spans.clocks import Manual, Ticking


@pytest.fixture(params=[(tasks, in_c) for tasks in (False, True) for in_c in (False, True)])
def profiler(request, monkeypatch):
    """The ways in which a plain span ends: before and after asyncio is imported, with and without methods in C."""
    tasks, in_c = request.param
    monkeypatch.setattr(recorder, "asyncio_loaded", lambda: tasks)
    if not in_c:
        monkeypatch.setattr(record, "methods_in_c", lambda: None)
        monkeypatch.setattr(recorder, "methods_in_c", lambda: None)
    return Profiler(enabled=True, clock=Ticking())


def tree(profiler):
    """Names with the names of their parents, in the order they began."""
    spans = profiler.trace().spans
    return [(span.name, None if span.parent is None else spans[span.parent].name) for span in spans]


def test_a_span_inside_another_is_its_child(profiler):
    with profiler.span("generate"):
        with profiler.span("prefill"):
            pass
        with profiler.span("decode"):
            pass
    assert tree(profiler) == [("generate", None), ("prefill", "generate"), ("decode", "generate")]


def test_a_span_keeps_every_fact_it_was_given(profiler):
    with profiler.span(
        "forward", unit="gpu", layer=3, token=7, flops=1e9, bytes=2e6, tokens=1, phase="decode", kind="op"
    ):
        pass
    (span,) = profiler.trace().spans
    assert (span.unit, span.layer, span.token, span.flops, span.bytes) == ("gpu", 3, 7, 1e9, 2e6)
    assert (span.tokens, span.phase, span.kind, span.failed) == (1, "decode", "op", False)


def test_times_are_the_clocks_own():
    clock = Manual()
    profiler = Profiler(enabled=True, clock=clock)
    with profiler.span("forward"):
        clock.pass_ms(14.2)
    assert profiler.stats("forward").total_s == pytest.approx(14.2e-3, abs=2e-9)


def test_a_recursive_function_nests_and_its_time_counts_once():
    clock = Manual()
    profiler = Profiler(enabled=True, clock=clock)

    def walk(depth):
        with profiler.span("walk"):
            clock.pass_ms(1)
            if depth:
                walk(depth - 1)

    walk(3)
    stats = profiler.stats("walk")
    assert stats.count == 4
    assert stats.total_s == pytest.approx(4e-3, abs=1e-7)  # not 4 + 3 + 2 + 1
    assert stats.exclusive_s == pytest.approx(4e-3, abs=1e-7)
    assert stats.max_s == pytest.approx(4e-3, abs=1e-7)


def test_a_span_that_raises_ends_and_is_marked(profiler):
    with pytest.raises(ZeroDivisionError), profiler.span("outer"), profiler.span("inner"):
        raise ZeroDivisionError
    assert [span.failed for span in profiler.trace().spans] == [True, True]
    assert profiler.stats("inner").failed == 1


def test_an_error_that_is_caught_inside_leaves_the_outer_span_well(profiler):
    with profiler.span("outer"), pytest.raises(ValueError, match="no"), profiler.span("inner"):
        raise ValueError("no")
    assert [(span.name, span.failed) for span in profiler.trace().spans] == [("outer", False), ("inner", True)]


def test_what_went_wrong_is_let_go_of(profiler):
    class Held:
        pass

    def fail():
        held = Held()
        seen.append(weakref.ref(held))
        raise ValueError(held)

    seen = []
    with suppress(ValueError), profiler.span("forward"):
        fail()
    gc.collect()
    assert seen[0]() is None
    assert profiler.stats("forward").failed == 1


def test_spans_can_be_put_on_a_stack(profiler):
    for enabled in (True, False):
        profiler.enabled = enabled
        with ExitStack() as stack:
            stack.enter_context(profiler.span("outer"))
            stack.enter_context(profiler.span("inner"))
        with suppress(ZeroDivisionError), ExitStack() as stack:
            stack.enter_context(profiler.span("failing"))
            raise ZeroDivisionError
    assert tree(profiler) == [("outer", None), ("inner", "outer"), ("failing", None)]
    assert profiler.stats("failing").failed == 1


def test_spans_that_end_in_another_order_than_they_began_keep_their_times():
    clock = Manual()
    profiler = Profiler(enabled=True, clock=clock)
    first, second = profiler.span("first"), profiler.span("second")
    first.__enter__()
    second.__enter__()
    clock.pass_ms(1)
    first.__exit__(None, None, None)
    clock.pass_ms(1)
    second.__exit__(None, None, None)
    assert profiler.stats("first").total_s == pytest.approx(1e-3, abs=1e-7)
    assert profiler.stats("second").total_s == pytest.approx(2e-3, abs=1e-7)


def test_threads_share_a_profile_and_keep_their_own_trees():
    profiler = Profiler(enabled=True)
    both_open = threading.Barrier(2)

    def work(name):
        with profiler.span(name):
            both_open.wait()
            with profiler.span(f"{name} inside"):
                both_open.wait()

    threads = [threading.Thread(target=work, args=(name,), name=name) for name in ("left", "right")]
    with profiler.span("main"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = tree(profiler)
    assert set(found) == {
        ("main", None),
        ("left", None),
        ("left inside", "left"),
        ("right", None),
        ("right inside", "right"),
    }
    assert len({span.thread for span in profiler.trace().spans}) == 3


def test_many_threads_lose_no_span():
    profiler = Profiler(enabled=True)

    def work():
        for _ in range(2000):
            with profiler.span("work"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recording = profiler.recording()
    assert len(recording) == 16_000
    assert bool((recording.end >= recording.start).all())


# ── segments and notes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_segments_belong_to_the_span_around_them(profiler):
    with profiler.span("flash_attn", unit="npu"):
        with profiler.segment("write", bytes=20e6):
            pass
        with profiler.segment("run"):
            pass
    (span,) = profiler.trace().spans
    assert [segment.name for segment in span.segments] == ["write", "run"]
    assert profiler.stats("flash_attn").count == 1
    assert profiler.recording().segments.bytes[0] == 20e6


def test_a_segment_outside_any_span_is_a_span(profiler):
    with profiler.segment("write"):
        pass
    assert tree(profiler) == [("write", None)]


def test_facts_known_late_are_noted_on_the_span_around(profiler):
    with profiler.span("generate"), profiler.span("decode"):
        profiler.note(tokens=17)
    assert [span.tokens for span in profiler.trace().spans] == [None, 17]
    assert len(profiler.recording()) == 2


def test_the_tokens_in_the_cache_are_kept_as_the_context_of_a_span(profiler, tmp_path):
    with profiler.span("decode", context=512, tokens=1):
        pass
    with profiler.span("decode"):
        profiler.note(context=513)
    assert [span.context for span in profiler.trace().spans] == [512, 513]
    profiler.export(tmp_path / "spans.csv")
    heading, first, *_ = (tmp_path / "spans.csv").read_text("utf-8").splitlines()
    assert dict(zip(heading.split(","), first.split(","), strict=True))["context"] == "512.0"


def test_a_note_outside_any_span_is_said_to_be_lost(profiler):
    profiler.note(tokens=1)
    assert "outside any span" in profiler.recording().run.notes[0]


def test_a_note_takes_known_facts_only(profiler):
    with pytest.raises(UnknownNameError, match="Did you mean token or tokens"):
        profiler.note(token_count=3)


# ── callbacks ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_start_began_another_function_stops():
    clock = Manual()
    profiler = Profiler(enabled=True, clock=clock)
    request = profiler.start("request", unit="gpu")
    clock.pass_ms(5)
    profiler.stop(request)
    assert profiler.stats("request").total_s == pytest.approx(5e-3, abs=1e-7)


def test_requests_in_flight_together_do_not_nest(profiler):
    first, second = profiler.start("request"), profiler.start("request")
    profiler.stop(first)
    profiler.stop(second)
    assert tree(profiler) == [("request", None), ("request", None)]


def test_a_callback_inside_a_span_stands_in_it(profiler):
    with profiler.span("serve"):
        profiler.stop(profiler.start("request"))
    assert tree(profiler) == [("serve", None), ("request", "serve")]


def test_stopping_by_name_stops_the_latest(profiler):
    profiler.start("request", token=1)
    profiler.start("request", token=2)
    profiler.stop("request")
    assert [span.token for span in profiler.trace().spans] == [2]
    assert "Still running, and not counted: request." in profiler.recording().run.notes


def test_stopping_what_was_never_started_says_what_runs(profiler):
    profiler.start("load")
    with pytest.raises(DomainError, match=r"'forward' was to be stopped, and is not running\. Running: load"):
        profiler.stop("forward")


def test_a_span_stops_once(profiler):
    request = profiler.start("request")
    profiler.stop(request)
    with pytest.raises(DomainError, match="a span stops once"):
        profiler.stop(request)


def test_a_callback_may_end_badly(profiler):
    profiler.stop(profiler.start("request"), error=TimeoutError)
    assert profiler.stats("request").failed == 1


# ── switching off ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_profiler_that_is_off_records_nothing_and_lets_errors_through():
    profiler = Profiler(enabled=False)
    with pytest.raises(ZeroDivisionError), profiler.span("forward", unit="gpu"):
        raise ZeroDivisionError
    with profiler.segment("write"):
        profiler.note(tokens=3)
    profiler.stop(profiler.start("request"))
    profiler.stop("never started")
    assert len(profiler.recording()) == 0
    assert not profiler.enabled


def test_it_can_be_switched_off_and_on_again(profiler):
    for wanted in (True, False, True):
        profiler.enabled = wanted
        with profiler.span("forward"):
            pass
    assert profiler.stats("forward").count == 2


@pytest.mark.parametrize(("value", "enabled"), [("0", False), ("", False), ("1", True)])
def test_the_setting_switches_profilers_off(monkeypatch, value, enabled):
    monkeypatch.setenv("INFEROMETER_PROFILE", value)
    assert Profiler().enabled is enabled
    assert Profiler(enabled=True).enabled


def test_clearing_forgets_what_was_recorded(profiler):
    with profiler.span("warm-up"):
        pass
    profiler.clear()
    with profiler.span("forward"):
        pass
    assert profiler.recording().names() == ["forward"]


def test_a_wrong_fact_is_named():
    profiler = Profiler(enabled=True)
    with pytest.raises(TypeError, match="colour"):
        profiler.span("forward", colour="red")


def test_asking_for_a_span_that_is_not_there_suggests_one(profiler):
    with profiler.span("forward"):
        pass
    with pytest.raises(UnknownNameError, match="Did you mean forward"):
        profiler.stats("forwrd")
    with pytest.raises(UnknownNameError, match="Nothing has been recorded"):
        Profiler(enabled=True).stats("forward")

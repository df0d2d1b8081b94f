"""Bounded memory: what is kept, and that what is not is counted."""

from collections import Counter

import pytest

from inferometer.core.errors import DomainError
from inferometer.measure.spans import Profiler, Reservoir, Ring
from unit.measure.spans.clocks import Ticking


def record(profiler, count):
    for number in range(count):
        with profiler.span("token", token=number):
            pass


def tokens(profiler):
    return [span.token for span in profiler.trace().spans]


def test_a_ring_keeps_the_last_spans_and_counts_the_rest():
    profiler = Profiler(enabled=True, keep=Ring(spans=3), clock=Ticking())
    record(profiler, 10)
    assert tokens(profiler) == [7, 8, 9]
    assert profiler.trace().dropped == 7
    assert "7 dropped" in profiler.report()


def test_a_ring_that_is_not_full_has_dropped_nothing():
    profiler = Profiler(enabled=True, keep=Ring(spans=100), clock=Ticking())
    record(profiler, 10)
    assert profiler.trace().dropped == 0


def test_a_ring_counts_spans_that_end_badly_too():
    profiler = Profiler(enabled=True, keep=Ring(spans=2), clock=Ticking())
    for number in range(5):
        with pytest.raises(ValueError, match="no"), profiler.span("token", token=number):
            raise ValueError("no")
    assert tokens(profiler) == [3, 4]
    assert profiler.trace().dropped == 3


def test_a_cleared_ring_counts_anew():
    profiler = Profiler(enabled=True, keep=Ring(spans=2), clock=Ticking())
    record(profiler, 5)
    profiler.clear()
    record(profiler, 3)
    assert profiler.trace().dropped == 1


def test_a_reservoir_keeps_as_many_and_counts_the_rest():
    profiler = Profiler(enabled=True, keep=Reservoir(spans=20, seed=1), clock=Ticking())
    record(profiler, 1000)
    assert len(tokens(profiler)) == 20
    assert tokens(profiler) == sorted(tokens(profiler))
    assert profiler.trace().dropped == 980


def test_a_reservoir_is_an_even_sample():
    """Each of 20 spans is kept by 400 samplers of 5 with chance 1/4: 100 times, give or take three sigma of 8.7."""
    kept = Counter()
    for seed in range(400):
        profiler = Profiler(enabled=True, keep=Reservoir(spans=5, seed=seed), clock=Ticking())
        record(profiler, 20)
        kept.update(tokens(profiler))
    assert all(60 < kept[number] < 140 for number in range(20))


def test_children_of_dropped_parents_are_still_there():
    profiler = Profiler(enabled=True, keep=Ring(spans=2), clock=Ticking())
    with profiler.span("outer"):
        record(profiler, 3)
        assert tokens(profiler) == [1, 2]
    spans = profiler.trace().spans
    assert [(span.name, span.parent) for span in spans] == [("outer", None), ("token", 0)]


@pytest.mark.parametrize("room", [0, -1, 1.5, True, None])
def test_room_is_a_whole_number_of_spans(room):
    with pytest.raises(DomainError, match="whole number"):
        Ring(spans=room)
    with pytest.raises(DomainError, match="whole number"):
        Reservoir(spans=room)

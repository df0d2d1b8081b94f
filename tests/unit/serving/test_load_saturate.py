"""Which loads `--saturate` tries: doubling, and two closer looks."""

from dataclasses import replace

from inferometer.core.served import LevelFigures
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.serving.load.plan import LoadStep
from inferometer.serving.load.saturate import keeps_up, next_step


def tried_until_done(first, capacity):
    """The loads that are tried of a service that answers `capacity` requests a second, each in a second."""
    step, tried = first, []
    while step is not None:
        load = step.load
        rate = min(load, capacity)
        growing = step.concurrency is None and load > capacity
        figures = LevelFigures(
            requests=100,
            completed=100,
            requests_per_s=rate,
            offered_per_s=load,
            output_tokens_per_s=rate,
            growing=growing,
        )
        tried.append((step, figures))
        step = next_step(tried)
    return [step.load for step, _ in tried]


def test_a_tenth_of_what_was_offered_may_fail():
    """Of the requests, not of those that were answered: 10 of 105 are fewer."""
    figures = LevelFigures(
        requests=105, completed=95, errors={"failed": 10}, requests_per_s=9.5, offered_per_s=10, growing=False
    )
    assert keeps_up(figures)
    assert not keeps_up(replace(figures, errors={"failed": 7, "refused": 4}))


def test_rates_double_until_it_falls_behind_and_then_close_in():
    assert tried_until_done(LoadStep(arrivals=Arrivals(rate_per_s=1)), 10) == [1, 2, 4, 8, 16, 12, 10]


def test_a_first_rate_that_is_too_high_is_halved_twice():
    assert tried_until_done(LoadStep(arrivals=Arrivals(rate_per_s=100)), 10) == [100, 50, 25]


def test_places_double_until_more_bring_no_more():
    assert tried_until_done(LoadStep(concurrency=1), 10) == [1, 2, 4, 8, 16, 32]


def test_a_service_that_does_not_answer_is_not_asked_for_more():
    silent = LevelFigures(requests=20, completed=0, errors={"refused": 20})
    assert next_step([(LoadStep(concurrency=1), silent)]) is None

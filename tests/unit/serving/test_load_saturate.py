"""Which loads `--saturate` tries: doubling, and two closer looks."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core.errors import DomainError
from inferometer.core.served import LevelFigures, parse_objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.serving.asked import DRAFT_HEADS, _head, _vision
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.load.saturate import judged_loads, keeps_up, next_step, next_within, wilson, within_words


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


def test_a_rate_that_was_kept_up_with_by_chance_above_one_that_was_not_counts_for_nothing():
    def tried(rate, *, growing):
        figures = LevelFigures(requests=100, completed=100, requests_per_s=rate, offered_per_s=rate, growing=growing)
        return LoadStep(arrivals=Arrivals(rate_per_s=rate)), figures

    kept, lost = [tried(8, growing=False), tried(12, growing=False)], [tried(16, growing=True), tried(10, growing=True)]
    assert next_step([*kept, *lost]).load == 9  # between 8 and 10


def test_places_double_until_more_bring_no_more():
    assert tried_until_done(LoadStep(concurrency=1), 10) == [1, 2, 4, 8, 16, 32]


def test_a_service_that_does_not_answer_is_not_asked_for_more():
    silent = LevelFigures(requests=20, completed=0, errors={"refused": 20})
    assert next_step([(LoadStep(concurrency=1), silent)]) is None


GOAL = parse_objective("ttft_p95<=500ms")


def searched(first, in_time, *, requests=400, seed=0):
    """All loads that `--within` tries of a service whose share of requests in time falls with the load."""
    rng, step, tried = np.random.default_rng(seed), first, []
    while step is not None:
        share = rng.binomial(requests, in_time(step.load)) / requests
        figures = LevelFigures(
            requests=requests, completed=requests, counted=requests, offered_per_s=1.0, requests_per_s=1.0,
            in_time={str(GOAL): share},
        )  # fmt: skip
        tried.append((step, figures))
        assert len(tried) < 60
        step = next_within(tried, [GOAL])
    return tried


def falling(limit):
    """95 % at the limit, and steeply less beyond it."""
    return lambda load: float(np.clip(1.0 - 0.05 * (load / limit) ** 8, 0.0, 1.0))


@given(limit=st.floats(0.05, 900), first=st.floats(0.05, 50), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_highest_rate_within_objectives_is_found_wherever_it_lies(limit, first, seed):
    tried = searched(LoadStep(arrivals=Arrivals(rate_per_s=first)), falling(limit), seed=seed)
    met = [load.step.load for load in judged_loads(tried, [GOAL]) if load.met]
    if limit < first / 1024:
        assert not met
        return
    assert max(met) == pytest.approx(limit, rel=0.12)  # a bisection to 6 %, and chance at the limit itself
    assert "Highest load within ttft_p95<=500ms" in within_words(tried, [GOAL])


@given(limit=st.integers(1, 3000), first=st.integers(1, 64))
@settings(max_examples=40, deadline=None)
def test_places_are_counted_to_the_last_one(limit, first):
    tried = searched(LoadStep(concurrency=first), lambda load: 1.0 if load <= limit else 0.5)
    assert max(load.step.load for load in judged_loads(tried, [GOAL]) if load.met) == limit


def test_a_load_too_near_to_its_objective_is_tried_again():
    one = (LoadStep(arrivals=Arrivals(rate_per_s=4.0)), 0.96)
    figures = LevelFigures(requests=100, completed=100, counted=100, offered_per_s=1.0, requests_per_s=1.0,
                           in_time={str(GOAL): one[1]})  # fmt: skip
    tried = [(one[0], figures)]
    assert next_within(tried, [GOAL]) == one[0]  # 96 % of 100 may be 94 % of all
    assert not judged_loads(tried, [GOAL])[0].sure
    assert "which may be chance" in within_words(tried, [GOAL])
    many = [(one[0], replace(figures, counted=5000))]
    assert judged_loads(many, [GOAL])[0].sure
    assert next_within(many, [GOAL]).load == 8.0
    piling = [(one[0], replace(figures, growing=True, requests_per_s=0.9, in_time={str(GOAL): 1.0}))]
    assert not judged_loads(piling, [GOAL])[0].met  # what piles up is not within anything for long


@pytest.mark.parametrize("met", list(product((False, True), repeat=3)))
def test_the_highest_load_within_is_named_beside_the_first_above_it_that_is_not(met):
    """Whatever came out within and what did not, in whichever order they were tried."""
    loads = (2, 4, 8)
    tried = [
        (LoadStep(concurrency=load), LevelFigures(requests=9, completed=9, counted=9, in_time={str(GOAL): float(each)}))
        for load, each in zip(loads, met, strict=True)
    ]
    names = [step.name for step, _ in tried]
    highest = max((place for place, each in enumerate(met) if each), default=None)
    above = names[0 if highest is None else highest + 1 :][:1]
    for order in permutations(tried):
        words = within_words(order, [GOAL])
        said = [name for name in names if f"{name} (" in words or f"{name} is not (" in words]
        assert [name for name in names if f"{name} is not (" in words] == above
        assert said == ([] if highest is None else [names[highest]]) + above
        assert ("higher ones were not tried" in words) == (highest == 2)


@pytest.mark.parametrize(
    ("draft", "length", "head"),
    [(None, None, None), (None, 3, "ngram"), ("llama-3.2-1b", 3, None), *((head, 3, head) for head in DRAFT_HEADS)],
)
def test_what_drafts_is_a_head_by_its_name_a_model_or_words_before(draft, length, head):
    assert _head({"draft": draft, "draft_length": length}) == head


def test_images_need_what_their_encoder_takes_and_say_it():
    asked = {"images": "2:576:5", "encoder": "30ms"}
    found = _vision("nvidia-t4", asked)
    assert (found.images, found.tokens, found.encode_s, found.pictures) == (2, 576, 0.03, 5)
    for wrong in ({**asked, "encoder": None}, {**asked, "images": None}):
        with pytest.raises(DomainError, match="encoder"):
            _vision("nvidia-t4", wrong)
    assert _vision("nvidia-t4", {"images": None, "encoder": None}) is None


def test_several_rates_are_counted_and_one_is_said():
    rates = [LoadStep(arrivals=Arrivals(rate_per_s=rate)) for rate in (1.0, 2.0)]
    assert LoadPlan(url="h", steps=tuple(rates)).arrivals.endswith(", 2 rates")
    assert LoadPlan(url="h", steps=tuple(rates[1:])).arrivals == f"open loop: {rates[1].arrivals}"


def test_the_interval_of_a_share_is_wilson_s():
    # 81 of 263: Newcombe 1998, table I, method 3 without continuity correction: 0.2553 to 0.3662.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0.5, 0) == (0.0, 1.0)

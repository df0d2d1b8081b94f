"""Spreads, objectives, knees and figures that are stated."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core.errors import DomainError
from inferometer.core.served import Distribution, Level, LevelFigures, RequestColumns, Window, parse_objective
from inferometer.core.traffic.figures import figures_of, knee_of, median_of
from inferometer.core.traffic.spreads import distribution_of_spread, merged, quantile, spread_of


def test_a_spread_knows_percentiles_to_half_a_bin():
    times = np.random.default_rng(0).lognormal(-4, 1, 20_000)
    spread = spread_of(times)
    for share in (0.01, 0.5, 0.9, 0.99):
        assert quantile(spread, share) == pytest.approx(np.quantile(times, share), rel=0.004)
    found = distribution_of_spread(spread)
    assert found.mean == pytest.approx(times.mean())
    assert (found.min, found.max) == (times.min(), times.max())


def test_two_spreads_are_one_of_all_their_times():
    times = np.random.default_rng(0).exponential(0.01, 1000)
    whole, both = spread_of(times), merged([spread_of(times[:300]), spread_of(times[300:])])
    assert (both.bins, both.counts, both.count) == (whole.bins, whole.counts, whole.count)
    assert both.total_s == pytest.approx(whole.total_s)


def test_tokens_that_came_together_are_zeros():
    spread = spread_of(np.array([0.0] * 60 + [0.1] * 40))
    assert spread.zeros == 60
    assert quantile(spread, 0.5) == 0
    assert quantile(spread, 0.9) == pytest.approx(0.1, rel=0.005)


def test_few_readings_have_no_percentile():
    assert distribution_of_spread(spread_of(np.full(20, 0.1))).p95 is None
    assert spread_of(np.empty(0)) is None


@pytest.mark.parametrize(
    ("text", "metric", "share", "limit"),
    [
        ("ttft<=500ms", "ttft", None, 0.5),
        ("TPOT_p95 <= 50 ms", "tpot", 0.95, 0.05),
        ("e2e_p99.9<10s", "e2e", 0.999, 10),
    ],
)
def test_objectives_are_read_as_people_write_them(text, metric, share, limit):
    goal = parse_objective(text)
    assert (goal.metric, goal.share, goal.limit_s) == (metric, share, pytest.approx(limit))
    assert parse_objective(str(goal)) == goal


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft>=1s", "speed<=1s", "ttft<=fast", "ttft_p0<=1s", "ttft<=0s", "ttft<=5GB"]
)
def test_an_objective_that_is_none_is_refused(text):
    with pytest.raises(DomainError):
        parse_objective(text)


def level(rate, e2e, **more):
    return LevelFigures(
        requests=9, completed=9, requests_per_s=rate, e2e_s=Distribution(p50=e2e, mean=e2e), **more
    )  # fmt: skip


def test_the_knee_is_where_throughput_over_latency_is_greatest():
    """Throughput 1, 2, 4, 5, 5 and latency 1, 1, 1.1, 2, 4: power 1, 2, 3.6, 2.5, 1.25."""
    found = knee_of([level(1, 1), level(2, 1), level(4, 1.1), level(5, 2), level(5, 4)])
    assert (found.knee, found.saturated, found.beyond) == (2, 3, False)


def test_a_knee_beyond_the_highest_load_is_not_claimed():
    found = knee_of([level(1, 1), level(2, 1), level(4, 1)])
    assert (found.knee, found.saturated, found.beyond) == (None, None, True)
    assert knee_of([level(1, 1)]).knee is None
    two = knee_of([level(1, 1), level(2, 4)])
    assert (two.knee, two.saturated, two.beyond) == (None, None, False)


def test_a_load_that_nobody_answered_has_no_rate_and_is_passed_over():
    silent = LevelFigures(requests=9, completed=0)
    found = knee_of([level(1, 1), level(3, 1.1), silent, level(3.5, 4)])
    assert (found.knee, found.saturated, found.beyond) == (1, None, False)
    found = knee_of([silent, level(1, 1), level(4, 1.1), level(4, 4)])
    assert (found.knee, found.saturated) == (2, 2)


def test_the_highest_load_within_the_objectives():
    levels = [
        level(1, 1, objectives={"a": True}),
        level(2, 1, objectives={"a": True}),
        level(3, 9, objectives={"a": False}),
    ]
    assert knee_of(levels).within == 1
    half = level(4, 1, objectives={"a": True, "b": False})
    assert knee_of([*levels, half]).within == 1, "every objective, and not one of them"


def test_stated_figures_are_taken_as_they_are():
    stated = level(3, 1)
    assert figures_of(Level(name="x", stated=stated)) is stated


def test_the_middle_of_a_time_is_its_median_where_that_is_known():
    assert median_of(Distribution(p50=1.0, mean=3.0)) == 1.0
    assert (median_of(Distribution(mean=3.0)), median_of(Distribution(p50=0.0, mean=3.0)), median_of(None)) == (
        3.0,
        0.0,
        None,
    )


def test_of_no_request_in_the_window_nobody_says_whether_it_held():
    columns = RequestColumns(
        due_s=(0.0, 1.0), sent_s=(0.0, 1.0), first_s=(0.5, 1.5), last_s=(1.0, 2.0), input_tokens=(3, 3),
        output_tokens=(4, 4), outcome=("ok", "ok"),
    )  # fmt: skip
    late = Level(name="x", requests=columns, windows=(Window(start_s=5.0, end_s=9.0, why=""),))
    found = figures_of(late, [parse_objective("ttft<=1s"), parse_objective("e2e_p50<=1s")])
    assert (found.objectives, found.in_time) == ({"ttft<=1s": None, "e2e_p50<=1s": None}, {})
    assert (found.counted, found.attained, found.ttft_s) == (0, None, None)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_window_is_compared_with_itself_in_three_equal_parts(streamed):
    """Answers take 1, 2 and 3 s in its three parts, six in each; those of the last may not be streamed."""
    due = [0.5 * number + 0.1 for number in range(18)]
    took = [1.0 + number // 6 for number in range(18)]
    first = [at + 0.5 if streamed or number < 12 else None for number, at in enumerate(due)]
    columns = RequestColumns(
        due_s=tuple(due), sent_s=tuple(due), first_s=tuple(first), input_tokens=(3,) * 18, output_tokens=(4,) * 18,
        last_s=tuple(at + long for at, long in zip(due, took, strict=True)), outcome=("ok",) * 18,
    )  # fmt: skip
    found = figures_of(Level(name="x", rate_per_s=2.0, requests=columns, windows=(Window(start_s=0, end_s=9, why=""),)))
    assert (found.spread["e2e_s"], found.rounds) == (pytest.approx((3 - 1) / 2), "3 equal parts of the window")
    assert "output_tokens_per_s" in found.spread
    untold = replace(columns, output_tokens=(None,) * 18)
    again = figures_of(Level(name="x", requests=untold, windows=(Window(start_s=0, end_s=9, why=""),)))
    assert "output_tokens_per_s" not in again.spread, "nothing over nothing"
    known = {"ttft_s": 0.0, "tpot_s": (2.5 / 3 - 0.5 / 3) / (1.5 / 3)} if streamed else {}
    assert {name: found.spread[name] for name in ("ttft_s", "tpot_s") if name in found.spread} == pytest.approx(known)


def test_rates_of_the_parts_of_a_window_are_compared_as_times_are():
    """6, 9 and 12 answers in parts of 3 s, of 2, 4 and 4 tokens: 2, 3 and 4 a second, and 4, 12 and 16 tokens."""
    due = [3.0 * part + 0.2 * number for part, many in enumerate((6, 9, 12)) for number in range(many)]
    made = tuple(2 if at < 3 else 4 for at in due)
    columns = RequestColumns(
        due_s=tuple(due), sent_s=tuple(due), first_s=(None,) * 27, input_tokens=(3,) * 27, output_tokens=made,
        last_s=tuple(at + 0.1 for at in due), outcome=("ok",) * 27,
    )  # fmt: skip
    found = figures_of(Level(name="x", requests=columns, windows=(Window(start_s=0, end_s=9, why=""),)))
    rates = {"requests_per_s": (4 - 2) / 3, "output_tokens_per_s": (16 - 4) / (32 / 3), "e2e_s": 0.0}
    assert found.spread == pytest.approx(rates, abs=1e-9)


@pytest.mark.parametrize(("name", "has"), [("ttft_s", True), ("tpot_s", True), ("e2e_s", True), ("itl_s", False)])
def test_figures_have_times_if_one_of_a_request_is_known(name, has):
    assert LevelFigures(requests=1, completed=1, **{name: Distribution(mean=1.0)}).has_times is has
    assert not LevelFigures(requests=1, completed=1).has_times

import numpy as np
import pytest

from inferometer.core.errors import DomainError
from inferometer.core.traffic.arrivals import Arrivals, arrival_times
from inferometer.core.traffic.demand import Sharing, closed_demand, open_demand
from inferometer.core.traffic.lengths import Lengths, draw, parse_lengths


def rng():
    return np.random.default_rng(1)


@pytest.mark.parametrize(
    ("process", "burstiness", "cv"), [("constant", 1, 0), ("poisson", 1, 1), ("gamma", 0.25, 2), ("gamma", 4, 0.5)]
)
def test_rate_and_variation_are_those_asked_for(process, burstiness, cv):
    times = arrival_times(Arrivals(rate_per_s=50, process=process, burstiness=burstiness), rng(), count=20_000)
    gaps = np.diff(times)
    assert 1 / gaps.mean() == pytest.approx(50, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05, abs=1e-9)


def test_a_duration_ends_them_and_a_count_may_end_them_sooner():
    poisson = Arrivals(rate_per_s=100)
    times = arrival_times(poisson, rng(), duration_s=10)
    assert len(times) == pytest.approx(1000, rel=0.15)
    assert times.max() < 10
    assert len(arrival_times(poisson, rng(), duration_s=10, count=7)) == 7
    assert list(arrival_times(Arrivals(rate_per_s=2, process="constant"), rng(), duration_s=2)) == [0, 0.5, 1, 1.5]


@pytest.mark.parametrize("to_per_s", [None, 20.0])
def test_arrivals_without_an_end_are_refused(to_per_s):
    with pytest.raises(DomainError, match="a number of requests or a duration"):
        arrival_times(Arrivals(rate_per_s=10, to_per_s=to_per_s), rng())


def test_a_ramp_has_the_rate_of_its_moment():
    times = arrival_times(Arrivals(rate_per_s=10, to_per_s=190, process="constant"), rng(), duration_s=100)
    assert len(times) == pytest.approx(10_000, rel=0.01)
    for second in (10, 50, 90):
        near = ((times > second - 1) & (times < second + 1)).sum() / 2
        assert near == pytest.approx(10 + 1.8 * second, rel=0.02)
    flat = arrival_times(Arrivals(rate_per_s=5, to_per_s=5, process="constant"), rng(), count=10)
    assert np.diff(flat) == pytest.approx(np.full(9, 0.2))


@pytest.mark.parametrize(
    "wrong", [{"rate_per_s": 0}, {"rate_per_s": 1, "to_per_s": -1}, {"rate_per_s": 1, "burstiness": 0}]
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(DomainError):
        Arrivals(**wrong)


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [("300", 300, 0), ("normal:300,50", 300, 50), ("lognormal:300,200", 300, 200), ("uniform:100-500", 300, 115.8)],
)
def test_lengths_have_the_mean_and_deviation_asked_for(text, mean, deviation):
    drawn = draw(parse_lengths(text, column="input_tokens"), 50_000, rng())
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert drawn.std() == pytest.approx(deviation, rel=0.03, abs=1e-9)
    assert drawn.min() >= 1


@pytest.mark.parametrize("text", ["", "many", "normal:3", "uniform:9", "normal:0,1", "-5", "file:", "zipf:3,4"])
def test_a_length_that_is_none_is_refused(text):
    with pytest.raises(DomainError, match="is not a length"):
        parse_lengths(text, column="input_tokens")


def test_the_same_seed_gives_the_same_demand_and_sessions_keep_their_turns():
    fixed = Lengths(kind="normal", mean=100, deviation=20)
    asked = {"count": 30, "sharing": Sharing(turns=3, prefix_tokens=8, groups=2), "seed": 5}
    one, other = (open_demand(Arrivals(rate_per_s=4), fixed, fixed, **asked) for _ in range(2))
    assert (one.due_s == other.due_s).all()
    assert (one.input_tokens == other.input_tokens).all()
    assert list(one.turn[:4]) == [0, 1, 2, 0]
    assert len(one) == 30
    assert one.sharing == one.part(0, 2).sharing == asked["sharing"]
    halves = [one.part(number, 2) for number in range(2)]
    assert sum(map(len, halves)) == 30
    assert not set(halves[0].session) & set(halves[1].session)


def test_a_load_of_nothing_is_refused():
    fixed = Lengths(kind="fixed", mean=1)
    with pytest.raises(DomainError, match="at least one request"):
        closed_demand(fixed, fixed, count=0)
    with pytest.raises(DomainError, match="brings no request"):
        open_demand(Arrivals(rate_per_s=1e-6), fixed, fixed, duration_s=1)

"""The sums behind a plan: what a device draws, how long a request stays, and when a servers' answer is there."""

import csv
from dataclasses import fields, replace
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from inferometer.cli.commands.plan import _job_seconds
from inferometer.cli.run import cli
from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.core.served import Distribution, LevelFigures, Objective
from inferometer.core.traffic.demand import Agents
from inferometer.core.traffic.demand import made_up as made_up_agents
from inferometer.core.traffic.lengths import Lengths
from inferometer.predict.ask import ask
from inferometer.predict.served.memory import StepLimits
from inferometer.predict.served.steady import Traffic
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.plans import closed, edge, search
from inferometer.serving.plans.asked import EdgeAsked, PlanSearch, ServingPlan, Way, draftings, parallel_words
from inferometer.serving.plans.regions import Region, plan_regions, read_regions
from inferometer.serving.plans.tiers import edge_tier
from inferometer.serving.simulate.building import service_of
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.understand.view.serving import plan_card, plan_table
from unit.serving.simulate.test_building_rules import REFUSED


def test_a_device_draws_its_idle_power_while_it_waits(monkeypatch):
    power = SimpleNamespace(moving_w=10.0, computing_w=20.0, idle_w=4.0)
    monkeypatch.setattr(edge, "power_model", lambda _device: power)
    assert edge._watts(None, 0.25) == 0.25 * 15 + 0.75 * 4


def test_a_request_stays_for_its_first_token_and_a_step_for_each_other(monkeypatch):
    monkeypatch.setattr(closed, "_times", lambda *_: SimpleNamespace(own=0.5, extra=0.2, share=0.2))
    step = SimpleNamespace(decode_seconds=lambda count, _context: np.full_like(count, 0.1))
    curve = closed.load_curve(
        SimpleNamespace(memory=None, step=step, stages=1, replicas=1), Traffic(prompt=100, generate=11), 4
    )
    assert curve.ttft_s[0] == pytest.approx(0.5 + 0.1 / 2)
    assert curve.tpot_s[0] == pytest.approx(0.1 + 0.2 / 11)  # a prompt of another is read meanwhile
    assert curve.sequences / curve.rate_per_s == pytest.approx(curve.ttft_s + 10 * curve.tpot_s)


def test_the_servers_answer_is_there_after_the_edges_own_and_the_way():
    asked = PlanSearch(
        model="llama-3.2-1b", rate_per_s=1.0, prompt=Lengths(kind="fixed", mean=50),
        generate=Lengths(kind="fixed", mean=11), fallback=0.25,
        edge=EdgeAsked(device="raspberry-pi-5", round_trip_s=0.5),
    )  # fmt: skip
    tier = edge_tier(asked, SimpleNamespace(ttft_s=1.0, tpot_s=0.1))
    assert tier.handed_on_s == pytest.approx(tier.answer_s + 0.5 + 1.0 + 10 * 0.1)
    assert tier.mean_s == pytest.approx(0.75 * tier.answer_s + 0.25 * tier.handed_on_s)


# The search, with a curve and a device that are made up


def curve(rates=(1.0, 2.0, 3.0, 2.5), ttft=(0.1, 0.2, 0.4, 0.8), tpot=(0.01, 0.02, 0.03, 0.04)):
    rates = np.array(rates)
    return closed.LoadCurve(
        sequences=np.array([1.0, 4.0, 9.0, 16.0]), rate_per_s=rates, ttft_s=np.array(ttft), tpot_s=np.array(tpot)
    )


def goal(metric, limit_s, share=None):
    return Objective(metric=metric, limit_s=limit_s, share=share)


@pytest.mark.parametrize(
    ("goals", "capacity"),
    [
        ([], 3.0),
        ([goal("ttft", 0.2)], 2.0),  # just met
        ([goal("ttft", 0.19)], 1.0),
        ([goal("tpot", 0.025), goal("ttft", 0.4)], 2.0),
        ([goal("e2e", 2.0)], 2.0),  # 1, 2, 3 and 6.4 s
        ([goal("ttft", 0.05)], 0.0),
    ],
)
def test_a_replica_takes_the_highest_load_at_which_every_objective_holds(goals, capacity):
    assert curve().capacity(goals) == pytest.approx(0.97 * capacity)


def test_of_several_objectives_the_tightest_holds_however_they_are_written():
    limits = [("ttft", 0.2), ("ttft", 0.4), ("ttft", 0.1), ("tpot", 0.025), ("tpot", 0.035), ("e2e", 2.5), ("e2e", 9.0)]
    every = [goal(*limit) for limit in limits]
    for capacity in (curve().capacity, pools(read_s=0.09).reads_per_s):
        alone = [capacity([each]) for each in every]
        assert len(set(alone)) > 2
        for one, two in permutations(range(len(every)), 2):
            assert capacity([every[one], every[two]]) == min(alone[one], alone[two])


def test_between_two_loads_latencies_lie_between_theirs():
    assert curve().at(1.5) == pytest.approx((0.15, 0.015, 2.5))
    assert curve().at(0.5) == pytest.approx((0.1, 0.01, 1.0))


def searched(**more):
    given = {"prompt": Lengths(kind="fixed", mean=100), "generate": Lengths(kind="fixed", mean=50)}
    return PlanSearch(**{"model": "m", "rate_per_s": 10.0, **given, **more})


def configured(**more):
    way = {name: more.pop(name) for name in ("device", "tp") if name in more}
    given = {"way": Way(**{"device": "d", "runtime": "vllm", "weights": None, "tp": 2, **way}), "sequences": 64}
    return search.Configuration(**{**given, "what": None, "curve": curve(), **more})


@pytest.fixture
def made_up(monkeypatch):
    """A device of 100 W at work and 40 W at rest, at 3 dollars an hour."""
    power = SimpleNamespace(moving_w=80.0, computing_w=120.0, idle_w=40.0)
    monkeypatch.setattr(search, "device_named", lambda name: name)
    monkeypatch.setattr(search, "power_model", lambda _device: power)
    monkeypatch.setattr(search, "hourly_price", lambda _d, count, _p: SimpleNamespace(usd_per_hour=3.0 * count))


@pytest.mark.usefixtures("made_up")
def test_a_candidate_has_the_replicas_that_the_rate_needs_and_their_price_and_power():
    asked = searched(discount=0.5, availability=0.9999, replica_up=0.99, headroom=0.2)
    (found,) = search._candidates(asked, [configured()])
    assert (found.replicas, found.spare, found.count) == (5, 2, 14)  # 12.5 of 2.91 each
    assert found.capacity_per_s == pytest.approx(2.91)
    assert (found.ttft_s, found.tpot_s, found.running) == pytest.approx((0.2, 0.02, 4.0))  # at 2 a replica
    assert found.usd_per_hour == pytest.approx(14 * 3 * 0.5)
    busy = 10 / (5 * 2.91)
    assert found.watts == pytest.approx(14 * (busy * 100 + (1 - busy) * 40))
    scores = {name: found.score(name) for name in ("cheapest", "greenest", "smallest")}
    assert scores == {"cheapest": found.usd_per_hour, "greenest": found.watts, "smallest": 14.0}
    assert list(search._candidates(searched(objectives=(goal("ttft", 0.01),)), [configured()])) == []


@pytest.mark.usefixtures("made_up")
def test_a_plan_states_what_it_costs_and_how_much_is_left():
    asked = searched(fallback=0.5)
    (candidate,) = search._candidates(asked, [configured()])
    assert candidate.replicas == 2  # of the five requests a second that are handed on
    spread = Distribution(mean=0.3, p95=0.6)
    figures = LevelFigures(requests=700, completed=700, ttft_s=spread, tpot_s=Distribution(mean=0.02, p95=0.03))
    server = SimpleNamespace(counters={"busy_share": 0.5}, gauges={"kv_share": (0.2, 0.7)})
    found = search._plan(asked, candidate, configured(), SimpleNamespace(server=server), figures)
    load = 5 / (2 * 2.91)
    assert (found.utilisation, found.headroom) == (pytest.approx(load), pytest.approx(1 / load - 1))
    assert (found.usd_per_hour, found.usd_per_month) == (12.0, 12.0 * 730)
    assert found.usd_per_million_tokens == pytest.approx(12.0 / (5 * 50 * 3600) * 1e6)
    assert (found.ttft_s, found.ttft_p95_s, found.tpot_s, found.tpot_p95_s) == (0.3, 0.6, 0.02, 0.03)
    assert (found.kv_share, found.requests, found.replicas, found.count) == (0.7, 700, 2, 4)
    assert found.watts == pytest.approx(4 * (load * 100 + (1 - load) * 40))


@pytest.mark.usefixtures("made_up")
def test_a_day_is_paid_by_the_replicas_that_each_part_of_it_needs():
    asked = searched(day=(0.0, 0.5, 1.0, 0.3))
    (found,) = search._candidates(asked, [configured()])
    assert (found.replicas, found.count) == (4, 8)  # at the peak
    assert asked.mean_replicas(4) == (1 + 2 + 4 + 2) / 4  # one stays, whatever comes
    assert found.usd_per_hour == pytest.approx(2 * 2.25 * 3.0)
    figures = LevelFigures(requests=7, completed=7)
    plan = search._plan(asked, found, configured(), SimpleNamespace(server=None), figures)
    assert plan.usd_per_million_tokens == pytest.approx(found.usd_per_hour / (0.45 * 10 * 50 * 3600) * 1e6)
    assert any("4 replicas at the peak, 2.25 on average" in note for note in plan.notes)
    for wrong in ((0.0, 0.0), (0.5, 1.1), (-0.1, 1.0)):
        with pytest.raises(DomainError):
            searched(day=wrong)


@pytest.mark.usefixtures("made_up")
def test_prices_of_ones_own_go_before_the_catalog_s_and_power_has_a_limit():
    (found,) = search._candidates(searched(prices=(("d", 1.25),), discount=0.2), [configured()])
    assert found.usd_per_hour == pytest.approx(8 * 1.25 * 0.8)
    assert not search._is_over(searched(), found)
    assert not search._is_over(searched(most_watts=found.watts), found)
    limited = searched(most_watts=found.watts - 1)
    assert search._is_over(limited, found)
    assert search._is_over(limited, replace(found, watts=None))  # nobody knows that it draws less
    assert "power binds" in search._why_not(limited, [configured()], [found], [], [])


@pytest.mark.parametrize(
    ("shared", "words"),
    [
        ({}, ""),
        ({"tp": 2}, ", TP 2"),
        ({"pp": 3}, ", PP 3"),
        ({"ep": 4}, ", EP 4"),
        ({"tp": 8, "ep": 8}, ", TP 8, EP 8"),
        ({"dp": 8, "ep": 8}, ", EP 8, DP 8"),
    ],
)
def test_of_a_replica_only_what_is_shared_is_said(shared, words):
    assert parallel_words(Way(**{"device": "d", "runtime": "vllm", "weights": None, "tp": 1, **shared})) == words


def test_an_objective_that_nothing_reaches_says_the_least_that_something_does():
    """At whichever load that is, on whichever device: of both, the least."""
    near = configured(device="near", tp=1, curve=curve(ttft=(0.9, 0.3, 0.5, 0.8)))
    far = configured(device="far", tp=1, curve=curve(ttft=(0.4, 0.4, 0.4, 0.4)))
    for found in ([near, far], [far, near]):
        said = search._why_not(searched(objectives=(goal("ttft", 0.1),)), found, [], [], [])
        assert "is 0.3 s, 3 times as much, on 1 × near" in said


def test_nothing_beats_a_point_of_the_front_in_both():
    other = configured(device="e", tp=1, curve=curve(rates=(0.2, 1.0, 2.0, 3.0), tpot=(0.02, 0.03, 0.05, 0.1)))
    found = search.front_of(searched(), [configured(), other])
    points = [(point.tokens_per_s_per_user, point.tokens_per_s_per_device) for point in found]
    assert points == sorted(points, key=lambda point: (-point[0], point[1]))
    every = [
        (1 / tpot, rate * 50 / each.way.tp)
        for each in (configured(), other)
        for rate, tpot in zip(each.curve.rate_per_s, each.curve.tpot_s, strict=True)
    ]
    for user, device in points:
        assert not any(a >= user and b >= device and (a, b) != (user, device) for a, b in every)
    assert len({point.device for point in found}) == 2
    assert search.front_of(searched(), []) == ()


def plan_of(**more):
    empty = dict.fromkeys((field.name for field in fields(ServingPlan)), None)
    return ServingPlan(**{**empty, "why": "", "pp": 1, "ep": 1, "dp": 1, **more})


def test_pipelines_and_spread_experts_are_tried_where_they_may_help():
    """A pipeline beside the most devices that share layers, spread experts where there are any; or as was asked."""

    def split(model, **more):
        asked = PlanSearch(model=model, rate_per_s=1.0, prompt=Lengths(kind="fixed", mean=50), devices=("d",),
                           generate=Lengths(kind="fixed", mean=5), weights=(None,), kv=(None,), **more)  # fmt: skip
        return [(way.tp, way.pp, way.ep, *((way.dp,) if way.dp > 1 else ())) for way in search.ways(asked)]

    assert split("llama-3.2-1b") == [(1, 1, 1), (2, 1, 1), (4, 1, 1), (8, 1, 1), (8, 2, 1)]
    assert split("mixtral-8x7b", tp=(1, 4)) == [(1, 1, 1), (4, 1, 1), (4, 1, 4), (4, 2, 1), (4, 2, 4)]
    assert split("mixtral-8x7b", tp=(2, 4), pp=(1,), ep=(4,)) == [(4, 1, 4)]
    # copies of attention where one latent serves all heads, or as was asked
    copied = [(1, 1, 1), (4, 1, 1), (4, 1, 4), (1, 1, 4, 4)]
    assert split("deepseek-v3", tp=(1, 4), pp=(1,)) == copied
    assert split("mixtral-8x7b", tp=(1, 4), pp=(1,), dp=(4,)) == copied
    piped = search.Candidate(
        way=Way(device="d", runtime="vllm", weights=None, tp=8, pp=2, ep=8), sequences=4, replicas=2, spare=1,
        ttft_s=1.0, tpot_s=0.1, running=1.0, capacity_per_s=1.0, usd_per_hour=None, watts=None,
    )  # fmt: skip
    assert (piped.count, piped.words) == (48, "48 × d with vllm, TP 8, PP 2, EP 8")
    read = replace(piped, reader=Way(device="d", runtime="vllm", weights=None, tp=4), readers=3, reader_spare=1)
    assert (read.count, read.needed) == (64, 44)
    assert read.words == "64 × d with vllm, TP 8, PP 2, EP 8, 3 of TP 4 to read prompts"


def test_the_one_that_lost_says_by_how_much_and_what_it_is_better_at():
    best = plan_of(usd_per_hour=10.0, count=2, ttft_p95_s=1.0, tpot_p95_s=0.02, watts=100.0)
    dear = plan_of(usd_per_hour=12.0, count=3, ttft_p95_s=0.94, tpot_p95_s=0.0191, watts=90.0)
    same, unpriced = plan_of(usd_per_hour=10.004, count=2), plan_of(count=2)
    whys = [each.why for each in search._explained(searched(), [best, dear, same, unpriced])]
    assert whys == [
        "the cheapest that meets every objective",
        "costs 20.0% more: 3 devices instead of 2, with better TTFT and power",
        "costs the same and came second",
        "meets every objective; its price is not known",
    ]
    (unknown,) = search._explained(searched(goal="greenest"), [plan_of(usd_per_hour=1.0)])
    assert unknown.why == "meets every objective; its power is not known"


@pytest.mark.parametrize(
    ("goals", "figures", "missed"),
    [
        ([goal("ttft", 1.0, 0.95)], {"ttft_s": Distribution(p95=1.0, p99=2.0, max=3.0)}, None),
        ([goal("ttft", 1.0, 0.99)], {"ttft_s": Distribution(p95=1.0, p99=2.0, max=3.0)}, "ttft_p99<=1s is 2 s"),
        ([goal("ttft", 1.0)], {"ttft_s": Distribution(p95=1.0, p99=2.0, max=3.0)}, "ttft<=1s is 3 s"),
        ([goal("ttft", 1.0, 0.999)], {"ttft_s": Distribution(p95=1.0, p99=2.0, max=3.0)}, "ttft_p99.9<=1s is 2 s"),
        ([goal("tpot", 1.0, 0.95)], {}, None),
        ([], {"growing": True, "offered_per_s": 10.0, "requests_per_s": 9.6}, "requests pile up"),
        ([], {"growing": True, "offered_per_s": 10.0, "requests_per_s": 9.7}, None),
        ([], {"growing": False, "offered_per_s": 10.0, "requests_per_s": 1.0}, None),
    ],
)
def test_a_simulation_misses_an_objective_or_falls_behind(goals, figures, missed):
    found = LevelFigures(requests=1, completed=1, **figures)
    assert search._missed(searched(objectives=tuple(goals)), found) == missed


def test_a_few_replicas_are_simulated_with_their_share_of_the_load(monkeypatch):
    asked = []

    def simulate(plan):
        asked.append(plan)
        return SimpleNamespace(served=SimpleNamespace(levels=["level"]))

    monkeypatch.setattr(search, "simulate", simulate)
    monkeypatch.setattr(search, "ask", lambda *_, **more: more)
    monkeypatch.setattr(search, "figures_of", lambda level, goals: (level, goals))
    given = searched(objectives=(goal("ttft", 1.0),), seed=7)
    for replicas, tpot_s, rate, count in ((5, 0.02, 4.0, 600), (1, 0.5, 10.0, 2520), (2, 5.0, 10.0, 4000)):
        candidate = SimpleNamespace(
            replicas=replicas,
            ttft_s=0.2,
            tpot_s=tpot_s,
            way=Way(device="d", runtime="vllm", weights="i4", tp=4, pp=2, kv="f8e4m3"),
            sequences=64,
            tokens=2048,
            reader=None,
            readers=0,
        )
        assert search._simulated(given, candidate) == ("level", ("level", given.objectives))
        plan = asked.pop()
        traffic = plan.traffic
        assert (plan.replicas, plan.sequences, plan.tokens) == (min(2, replicas), 64, 2048)
        assert (traffic.steps[0].arrivals.rate_per_s, traffic.requests, traffic.seed) == (rate, count, 7)
        assert (traffic.prompt, traffic.generate, traffic.objectives) == (
            given.prompt,
            given.generate,
            given.objectives,
        )
        assert plan.question == {
            "on": "d", "runtime": "vllm", "weights": "i4", "kv": "f8e4m3", "tp": 4, "pp": 2, "ep": 1, "dp": 1,
            "options": given.options, "prompt": None, "generate": None,
        }  # fmt: skip


def test_sessions_are_judged_at_the_rate_that_was_asked_for():
    """They begin one by one and wait for their tools: a few from the beginning make a fraction of the rate."""
    trace = made_up_agents(Agents(sessions=150))
    given = replace(searched(trace=trace, model="llama-3.2-1b"), rate_per_s=2.0)
    candidate = SimpleNamespace(
        replicas=1,
        ttft_s=0.1,
        tpot_s=0.005,
        way=Way(device="nvidia-h100-sxm", runtime="vllm", weights=None, tp=1),
        sequences=256,
        tokens=8192,
        reader=None,
        readers=0,
    )
    level, figures = search._simulated(given, candidate)
    assert 0.97 * 2.0 <= figures.offered_per_s < 1.4 * 2.0
    assert level.windows[0].why == "the middle half of the requests"


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ({"rate_per_s": 0.0}, {"rate_per_s": 0.1}),
        ({"discount": 1.0}, {"discount": 0.0}),
        ({"headroom": -0.1}, {"headroom": 0.9}),
        ({"availability": 1.0}, {"availability": 0.5}),
        ({"replica_up": 0.0}, {"replica_up": 0.5}),
        ({"fallback": 0.0}, {"fallback": 1.0}),
        ({"edge": EdgeAsked(device="d")}, {"edge": EdgeAsked(device="d"), "fallback": 0.5}),
    ],
)
def test_shares_have_bounds(wrong, near):
    five = Lengths(kind="fixed", mean=5)
    given = {"model": "m", "rate_per_s": 1.0, "prompt": five, "generate": five}
    PlanSearch(**{**given, **near})
    with pytest.raises(DomainError):
        PlanSearch(**{**given, **wrong})


@pytest.mark.parametrize(("replicas", "up", "availability"), [(1, 0.9, 0.995), (5, 0.95, 0.999), (20, 0.99, 0.99999)])
def test_the_spare_replicas_are_the_fewest_that_are_enough(replicas, up, availability):
    """By counting every way in which replicas can be up."""

    def enough(whole):
        chances = np.ones(1)
        for _ in range(whole):
            chances = np.convolve(chances, [1 - up, up])  # of how many are up
        return chances[replicas:].sum()

    spare = search.spare_replicas(replicas, up, availability)
    assert enough(replicas + spare) >= availability > (enough(replicas + spare - 1) if spare else 0)


@pytest.mark.parametrize(
    ("latency_s", "most_w", "served", "busy"),  # `served`: the streams of one device, and how many serve eight
    [
        (0.01, None, (10, 1), 0.8),  # 100 frames a second are ten streams of ten; eight there are
        (0.025, None, (4, 2), 1.0),
        (0.2, None, (0, 0), 1.0),
        (0.025, 8.5, (1, 8), 0.25),  # 4 W at rest and 15 W at work: 6.75 W with one, 9.5 W with two
        (0.025, 9.5, (2, 4), 0.5),
        (0.025, 6.0, (0, 0), 0.25),
    ],
)
def test_a_device_keeps_up_with_whole_streams_within_its_cooling(monkeypatch, latency_s, most_w, served, busy):
    streams, count = served
    power = SimpleNamespace(moving_w=10.0, computing_w=20.0, idle_w=4.0)
    answer = SimpleNamespace(summary=SimpleNamespace(latency_s=latency_s, sustained_s=None))
    asked = SimpleNamespace(answer=lambda: answer, runtime_name="r", graph=SimpleNamespace(name="m"))
    monkeypatch.setattr(edge, "power_model", lambda _device: power)
    monkeypatch.setattr(edge, "ask", lambda *_, **__: asked)
    monkeypatch.setattr(edge, "device_named", lambda _name: SimpleNamespace(price_usd=50.0))
    battery = SimpleNamespace(capacity_j=3600.0, efficiency=0.5)
    given = edge.EdgeSearch(
        model="m", frames_per_s=10.0, streams=8, devices=("d",), max_watts=most_w,
        options=SimpleNamespace(battery=battery),
    )  # fmt: skip
    (found,) = edge.edge_plans(given).plans
    assert (found.streams, found.count, found.meets) == (streams, count, streams > 0)
    assert found.busy == pytest.approx(busy)
    assert found.watts == pytest.approx(busy * 15 + (1 - busy) * 4)
    assert found.battery_s == pytest.approx(3600 * 0.5 / found.watts)
    assert found.score("cheapest") == (not streams, 50.0 * count)
    assert found.score("smallest") == (not streams, 1.0 * count)
    if most_w is None and streams:  # twice as slow once it is warm: half the streams, and it says why
        answer.summary.sustained_s = 2 * latency_s
        (warm,) = edge.edge_plans(given).plans
        assert (warm.streams, warm.latency_s) == (streams // 2, 2 * latency_s)
        assert warm.why.endswith("once it is warm")


def test_the_best_of_each_device_stands_beside_the_winner_and_equal_plans_once(monkeypatch):
    """Of two devices that both do: every way of the first costs less; two of its formats are the same to a user."""
    made = {}

    def simulated(_search, candidate):
        made[candidate.way.device] = made.get(candidate.way.device, 0) + 1
        times = Distribution(count=100, mean=0.01, min=0.01, max=0.01, p50=0.01, p95=0.01, p99=0.01)
        return SimpleNamespace(server=None), LevelFigures(requests=100, completed=100, ttft_s=times, tpot_s=times)

    monkeypatch.setattr(search, "_simulated", simulated)
    given = PlanSearch(
        model="llama-3.1-8b", rate_per_s=1.0, prompt=Lengths(kind="fixed", mean=100),
        generate=Lengths(kind="fixed", mean=20), objectives=(Objective(metric="ttft", limit_s=2.0),),
        devices=("nvidia-h100-sxm", "nvidia-h200"), weights=(None, "bf16"), tp=(1,), keep=3,
    )  # fmt: skip
    answer = search.plan(given)
    assert {plan.device for plan in answer.by_device} == {"nvidia-h100-sxm", "nvidia-h200"}
    assert answer.by_device[0].device == answer.plans[0].device
    seen = [(plan.device, plan.count, plan.usd_per_hour) for plan in answer.plans]
    assert len(seen) == len(set(seen)) == 2  # the model's own format is bf16
    assert answer.document()["by_device"][0]["device"] == answer.plans[0].device


# Two pools


def pools(read_s=0.05, share_s=0.02):
    return closed.PoolTimes(read_s=read_s, share_s=share_s, writing=curve(ttft=(0.0,) * 4))


@pytest.mark.parametrize(("limit", "taken"), [(None, 48.5), (0.05, 0.0), (0.06, 25.0), (0.04, 0.0), (9.0, 48.5)])
def test_a_reader_takes_the_prompts_that_wait_no_longer_than_the_objective_leaves(limit, taken):
    goals = [] if limit is None else [goal("ttft", limit), goal("tpot", 0.001)]
    assert pools().reads_per_s(goals) == pytest.approx(taken)
    if taken and limit and limit < 1:
        assert pools().ttft_s(taken) == pytest.approx(limit)


@pytest.mark.usefixtures("made_up")
def test_a_candidate_of_two_pools_pays_both_and_is_as_full_as_the_fuller(monkeypatch):
    monkeypatch.setattr(search, "_link_between_pools", lambda *_: SimpleNamespace(title="a wire"))
    asked = searched(objectives=(goal("ttft", 0.06), goal("tpot", 0.025)), rate_per_s=40.0)
    small, large = (configured(tp=tp, pools=pools(share_s=0.04 / tp)) for tp in (1, 2))
    found = list(search._pool_candidates(asked, [small, large]))
    assert {(each.reader.tp, each.readers) for each in found} == {(2, 2)}  # 25 prompts each; four of TP 1 take 12.5
    two = next(each for each in found if each.way.tp == 2)
    assert (two.replicas, two.count, two.usd_per_hour) == (21, 46, 46 * 3.0)  # 1.94 answers a second each
    assert two.capacity_per_s == pytest.approx(min(1.94, 50 / 21))
    assert list(search._pool_candidates(searched(), [small])) == []  # without objectives there is nothing to win
    grown = search._Confirming(asked, [small, large], None, None)._grown
    for missed, replicas, readers in (("ttft_p95", 21, 3), ("tpot_p95", 23, 2), ("requests pile up", 23, 3)):
        more = grown(two, large, missed)
        assert (more.replicas, more.readers) == (replicas, readers)


@pytest.mark.usefixtures("made_up")
def test_of_many_replicas_in_two_pools_the_same_part_is_simulated(monkeypatch):
    seen = []
    monkeypatch.setattr(search, "_played", lambda _s, _c, rate, both, _n: seen.append((rate, both)) or (None, None))
    for replicas, readers in ((3, 2), (20, 10), (30, 1)):
        candidate = SimpleNamespace(replicas=replicas, readers=readers, ttft_s=0.1, tpot_s=0.01)
        search._simulated(searched(), candidate)
    assert seen == [(10.0, (3, 2)), (5.0, (10, 5)), (10.0, (30, 1))]


def test_two_pools_are_shown_where_they_win_and_beside_the_winner_where_they_do_not():
    """Long prompts and a short time for each token: prompts in between take too long."""
    given = {"model": "llama-3.1-8b", "devices": ("nvidia-h100-sxm",), "weights": (None,), "tp": (1,), "keep": 1}
    long, short = Lengths(kind="fixed", mean=4096), Lengths(kind="fixed", mean=128)
    hasty = (goal("ttft", 1.0, 0.95), goal("tpot", 0.014, 0.95))
    wins = search.plan(PlanSearch(**given, rate_per_s=10.0, prompt=long, generate=short, objectives=hasty))
    assert (wins.plans[0].readers > 0, wins.apart) == (True, None)
    assert any("from pool to pool over NVIDIA NVLink" in note for note in wins.plans[0].notes)
    calm = (goal("ttft", 2.0, 0.95), goal("tpot", 0.1, 0.95))
    loses = search.plan(PlanSearch(**given, rate_per_s=2.0, prompt=short, generate=short, objectives=calm))
    assert (loses.plans[0].readers, loses.apart is None or loses.apart.readers > 0) == (0, True)
    assert loses.document()["apart"]["why"].startswith("costs")


# Regions


def test_a_region_has_its_own_demand_hours_prices_and_way_and_the_sum_is_theirs():
    given = PlanSearch(
        model="llama-3.2-1b", rate_per_s=1.0, prompt=Lengths(kind="fixed", mean=200),
        generate=Lengths(kind="fixed", mean=20), objectives=(goal("ttft", 0.5, 0.95), goal("tpot", 0.05, 0.95)),
        devices=("nvidia-h100-sxm", "nvidia-l4"), weights=(None,), tp=(1,), keep=1,
    )  # fmt: skip
    near = Region(name="near", rate_per_s=4.0, prices=(("nvidia-l4", 0.5), ("nvidia-h100-sxm", 9.0)))
    far = Region(name="far", rate_per_s=2.0, round_trip_s=0.2, devices=("nvidia-h100-sxm",), day=(0.5, 1.0))
    beyond = Region(name="beyond", rate_per_s=2.0, round_trip_s=0.6)
    both = plan_regions(given, (near, far))
    first, second = (each.plan for each in both.regions)
    assert (first.device, second.device) == ("nvidia-l4", "nvidia-h100-sxm")
    assert first.usd_per_hour == pytest.approx(0.5 * first.count)
    assert second.ttft_p95_s == pytest.approx(both.regions[1].answer.plans[0].ttft_p95_s + 0.2)
    assert second.ttft_p95_s <= 0.5
    assert both.total("usd_per_hour") == pytest.approx(first.usd_per_hour + second.usd_per_hour)
    assert (both.document()["total"]["count"], both.why_not) == (first.count + second.count, None)
    alone = plan_regions(given, (far,)).regions[0].plan
    assert alone == second  # whoever else is planned for changes nothing
    none = plan_regions(given, (near, beyond))
    assert none.total("usd_per_hour") is None
    assert "cannot be met in beyond: it is 600 ms" in none.why_not


def test_a_file_of_regions_is_read_and_anything_else_refused(tmp_path):
    file = tmp_path / "regions.toml"
    lines = "[eu]", "rate = 3", 'round_trip = "30ms"', "day = [0.5, 1]", "prices = { nvidia-h100-sxm = 2.5 }"
    file.write_text("\n".join((*lines, 'on = ["nvidia-h100-sxm"]')))
    (region,) = read_regions(file)
    assert (region.name, region.rate_per_s, region.round_trip_s, region.day) == ("eu", 3.0, 0.03, (0.5, 1.0))
    assert (region.devices, region.prices) == (("nvidia-h100-sxm",), (("nvidia-h100-sxm", 2.5),))
    wrongs = (
        "rates = 2", "round_trip = 99", "prices = { nvidia-h100-sxm = -1 }", "discount = 'much'",
        'max_power = "3s"',
    )  # fmt: skip
    for wrong in ("", "rate = 3", "[eu]", "[eu]\nrate = []", "[[eu]]", *(f"[eu]\nrate = 1\n{more}" for more in wrongs)):
        file.write_text(wrong)
        with pytest.raises(FormatError, match="regions"):
            read_regions(file)
    file.write_text('[eu]\nrate = 1\ngrid = "atlantis"')
    with pytest.raises(UnknownNameError, match="catalog grids"):
        read_regions(file)
    file.write_text("[eu]\nrate = 1\ninterruptions = -1")
    with pytest.raises(DomainError, match="0 or more"):
        read_regions(file)


def test_a_region_has_its_own_grid_spot_prices_power_and_interruptions(tmp_path):
    file = tmp_path / "regions.toml"
    file.write_text(
        """
        [clean]
        rate = 2
        grid = "se"
        [dirty]
        rate = 2
        grid = "pl"
        [spot]
        rate = 2
        spot = true
        availability = 0.999
        interruptions = 6
        cold_start = "10min"
        [dark]
        rate = 2
        max_power = "10W"
        """
    )
    regions = read_regions(file)
    assert regions[2].replica_up == pytest.approx(0.5)
    found = plan_regions(small_search(tokens=(0,), sequences=(0,), kv=(None,)), regions)
    clean, dirty, spot, dark = found.regions
    assert clean.plan.co2e_g_per_hour < 0.2 * dirty.plan.co2e_g_per_hour
    assert (clean.plan.spare, spot.plan.spare) == (0, 9)  # one of ten is up for 1 − 0.5¹⁰ of the time
    assert spot.plan.usd_per_hour / spot.plan.count < clean.plan.usd_per_hour / clean.plan.count
    assert dark.plan is None
    assert "power binds" in dark.why_not


@pytest.mark.parametrize(("by", "days"), [("saturday", (0, 7)), ("Friday", (0, 7)), ("72h", (3, 3))])
def test_a_job_has_until_the_end_of_a_day_of_the_week(by, days):
    seconds = _job_seconds({"tokens": "1e9", "by": by, "rate": None, "trace": None})
    assert days[0] * 86400 <= seconds <= days[1] * 86400


def test_interruptions_change_nothing_without_a_share_of_time():
    asked = ["plan", "llama-3.2-1b", "--rate", "1", "--interruptions", "0.1"]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 2
    assert "--availability" in done.output


def test_the_table_of_regions_has_a_row_each_and_their_sum(tmp_path):
    file = tmp_path / "regions.toml"
    file.write_text('[eu]\nrate = 2\nround_trip = "30ms"\n[us]\nrate = 3\n')
    lengths = ["--prompt", "100", "--generate", "20", "--slo", "ttft_p95<=1s", "--weights", "own", "--tp", "1"]
    asked = ["plan", "llama-3.2-1b", "--regions", str(file), "--on", "nvidia-h100-sxm", "--format", "csv", *lengths]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(done.output.splitlines()))
    assert [row["name"] for row in rows] == ["eu", "us", "together"]
    assert float(rows[2]["usd_per_hour"]) == pytest.approx(sum(float(row["usd_per_hour"]) for row in rows[:2]))


# Formats of the cache, chunks of prompts, and drafts


def small_search(**more):
    given = {
        "model": "llama-3.1-8b", "rate_per_s": 4.0, "prompt": Lengths(kind="fixed", mean=600),
        "generate": Lengths(kind="fixed", mean=60), "devices": ("nvidia-h100-sxm",), "weights": (None,), "tp": (1,),
        "objectives": (goal("ttft", 2.0, 0.95), goal("tpot", 0.05, 0.95)), "keep": 1,
    }  # fmt: skip
    return PlanSearch(**{**given, **more})


def test_formats_of_fewer_bits_than_the_models_own_are_tried_and_no_others():
    tried = {
        model: {way.weights for way in search.ways(small_search(model=model, weights=()))}
        for model in ("llama-3.1-8b", "deepseek-v3", "gpt-oss-120b")
    }
    assert tried == {"llama-3.1-8b": {None, "f8e4m3", "i4"}, "deepseek-v3": {None, "i4"}, "gpt-oss-120b": {None}}


def test_a_model_in_its_own_small_format_is_not_refused_for_the_room_of_a_larger_one():
    """DeepSeek-V3 comes in FP8: eight H200s hold it."""
    asked = small_search(model="deepseek-v3", devices=("nvidia-h200",), tp=(8,), pp=(1,), ep=(1,), kv=(None,))
    found, refused = search.all_configurations(asked)
    assert (len(found) > 0, refused) == (True, [])


def test_limits_of_a_step_are_changed_one_at_a_time():
    own = StepLimits(tokens=8192, sequences=1024)
    asked = small_search(sequences=(0, 64), tokens=(0, 2048, 512))
    assert search._limits(asked, own) == [(1024, 8192), (64, 8192), (1024, 2048), (512, 512)]
    assert search._limits(small_search(sequences=(2048,), tokens=(0,)), own) == [(2048, 8192)]


def test_a_smaller_step_leaves_more_room_for_the_cache_in_the_plan_and_in_the_simulation():
    found, _ = search.all_configurations(small_search(sequences=(0,), tokens=(2048, 8192, 16384), kv=(None,)))
    blocks = [configuration.what.memory.kv_blocks for configuration in found]
    assert blocks == sorted(blocks, reverse=True)
    assert len(set(blocks)) == 3
    for configuration in found:
        way = Way(device="nvidia-h100-sxm", runtime="vllm", weights=None, tp=1)
        simulated = SimulationPlan(
            question=search._asked(small_search(), way), tokens=configuration.tokens, sequences=configuration.sequences,
            traffic=LoadPlan(url="simulated", steps=(LoadStep(concurrency=1),)),
        )  # fmt: skip
        assert service_of(simulated)[0].pool.limits.blocks == configuration.what.memory.kv_blocks


def test_a_cache_of_half_the_bits_holds_twice_as_many_tokens():
    one, other = (
        search.all_configurations(small_search(sequences=(0,), tokens=(0,), kv=(kv,)))[0][0].what.memory.kv_tokens
        for kv in (None, "f8e4m3")
    )
    assert other == pytest.approx(2 * one, rel=0.001)


def test_no_plan_assumes_how_many_drafted_tokens_are_accepted():
    with pytest.raises(DomainError, match="assumes no share") as refused:
        draftings("eagle")
    assert "--acceptance" in refused.value.remedy
    assert [each.length for each in draftings("eagle", acceptance=0.6)] == [2, 4]
    assert [each.length for each in draftings("mtp", acceptance=0.6)] == [1]
    assert draftings(None) == ()
    for wrong in ({"acceptance": 0.5}, {"lengths": (2,)}, {"spread": 0.1}):
        with pytest.raises(DomainError, match="none is named"):
            draftings(None, **wrong)
    for wrong in ({"acceptance": 1.0}, {"acceptance": 0.5, "lengths": (0,)}, {"acceptance": 0.5, "spread": 0.9}):
        with pytest.raises(DomainError, match="between 0 and 1"):
            draftings("eagle", **wrong)


@pytest.mark.parametrize(
    ("model", "draft", "words"),
    [
        ("llama-3.1-8b", "mtp", "comes without a layer"),
        ("llama-3.1-8b", "qwen3-0.6b", "cannot draft"),
        ("llama-3.1-8b", "resnet50", "cannot draft"),
    ],
)
def test_what_cannot_draft_is_refused_before_anything_is_searched(model, draft, words):
    with pytest.raises(DomainError, match=words) as refused:
        search.ways(small_search(model=model, drafts=draftings(draft, acceptance=0.5)))
    assert refused.value.remedy


def test_drafts_are_tried_beside_every_way_that_is_no_pipeline():
    (drafting,) = drafts = draftings("ngram", (2,), 0.5)
    ways = search.ways(small_search(model="mixtral-8x7b", tp=(1, 4), pp=(1, 2), dp=(2,), drafts=drafts))
    alone = [way for way in ways if way.drafting is None]
    assert {(way.pp, way.dp) for way in alone} == {(1, 1), (2, 1), (1, 2)}
    drafted = [replace(way, drafting=drafting) for way in alone if way.pp == 1]
    assert [way for way in ways if way.drafting] == drafted


@pytest.mark.parametrize("draft", ["eagle", "ngram", "llama-3.2-1b"])
def test_drafts_that_are_right_more_often_never_need_more_time_a_token(draft):
    """And what drafts by itself takes room and time: a head less than a model, n-grams none."""
    fastest, room = [], []
    for acceptance in (0.2, 0.5, 0.8):
        asked = small_search(sequences=(0,), tokens=(0,), kv=(None,), drafts=draftings(draft, (3,), acceptance))
        plain, drafted = search.all_configurations(asked)[0]
        fastest.append(drafted.curve.tpot_s.min())
        room.append(drafted.what.memory.kv_tokens / plain.what.memory.kv_tokens)
    assert fastest == sorted(fastest, reverse=True)
    assert len(set(fastest)) == 3
    assert (room[0] == 1.0) == (draft == "ngram")
    assert all(each <= 1 for each in room)


def test_the_closed_form_of_drafts_is_what_is_simulated():
    """One user at a time: no queue, no prompts of others; only steps that draft and verify."""
    for draft in ("eagle", "ngram", "llama-3.2-1b"):
        (drafting,) = draftings(draft, (3,), 0.6)
        asked = small_search(sequences=(0,), tokens=(0,), kv=(None,), drafts=(drafting,), rate_per_s=0.02)
        configuration = search.all_configurations(asked)[0][1]
        candidate = search._candidate(asked, configuration, 1)
        _, figures = search._simulated(asked, candidate)
        # A last step drafts beyond the end; a model that drafts is priced with its own host time here, and with the
        # larger one's there.
        assert figures.tpot_s.mean == pytest.approx(configuration.curve.tpot_s[0], rel=0.06)


@pytest.mark.parametrize(("draft", "far"), [("eagle", 0.08), ("ngram", 0.08), ("qwen3-0.6b", 0.12)])
def test_drafts_with_copies_of_attention_cost_the_same_in_closed_form_and_simulated(draft, far):
    """Two ranks, one user at a time: nothing is drafted for nothing, and the experts verify what is drafted."""
    (drafting,) = draftings(draft, (3,), 0.6)
    asked = small_search(
        model="qwen3-30b-a3b", devices=("nvidia-h200",), tp=(1,), dp=(2,), ep=(1,), sequences=(0,), tokens=(0,),
        kv=(None,), weights=(None,), drafts=(drafting,), rate_per_s=0.02,
    )  # fmt: skip
    by_way = {(each.way.dp, each.way.drafting): each for each in search.all_configurations(asked)[0]}
    plain, drafted = (by_way[2, way] for way in (None, drafting))
    candidate = search._candidate(asked, drafted, 1)
    _, figures = search._simulated(asked, candidate)
    assert figures.tpot_s.mean == pytest.approx(drafted.curve.tpot_s[0], rel=far)
    gained = sum(0.6**number for number in range(4))
    assert drafted.curve.tpot_s[0] > plain.curve.tpot_s[0] / gained  # a step with drafts takes longer than one without


def test_a_plan_says_its_formats_its_steps_and_what_it_was_told_of_drafts():
    drafts = draftings("eagle", (3,), 0.7, 0.1)
    answer = search.plan(small_search(objectives=(goal("tpot", 0.0065, 0.95),), drafts=drafts, kv=("f8e4m3",)))
    document = answer.document()
    best = document["plans"][0]
    assert (best["kv"], best["drafting"]["acceptance"], best["max_model_len"]) == ("f8e4m3", 0.7, 768)
    assert best["max_num_batched_tokens"] in {2048, 8192, 16384}
    assert any("change its answers" in note for note in answer.notes)
    card = plan_card(document, title="a plan")
    assert any(
        name == "drafts" and "0.7 ± 0.1 of them accepted, as was asked" in words for name, _, words in card.facts
    )
    rows = plan_table(document).rows
    assert rows[0]["drafts"] == "eagle × 3"


# What holds of every search


@pytest.fixture(scope="module")
def ways_of_an_8b():
    asked = small_search(devices=("nvidia-h100-sxm", "nvidia-l40s"), weights=(None, "f8e4m3"), tokens=(0,))
    return asked, search.all_configurations(asked)


def best_of(asked, known, **more):
    return search.plan_of(replace(asked, **more), map, None, known).plans[0]


@pytest.mark.parametrize(
    ("goal_", "field"), [("smallest", "count"), ("cheapest", "usd_per_hour"), ("greenest", "watts")]
)
def test_more_demand_never_needs_less(ways_of_an_8b, goal_, field):
    asked, known = ways_of_an_8b
    needed = [getattr(best_of(asked, known, rate_per_s=rate, goal=goal_), field) for rate in (1.0, 15.0, 31.0, 120.0)]
    assert needed == sorted(needed)
    assert needed[-1] > needed[0]


def test_a_lower_price_never_makes_the_winner_dearer(ways_of_an_8b):
    asked, known = ways_of_an_8b
    for device in asked.devices:
        before = dict.fromkeys(asked.devices, 2.0)
        dear = best_of(asked, known, rate_per_s=31.0, prices=tuple(before.items()))
        for price in (1.9, 0.7, 0.0):
            cheap = best_of(asked, known, rate_per_s=31.0, prices=tuple((before | {device: price}).items()))
            assert cheap.usd_per_hour <= dear.usd_per_hour
            dear = cheap


@pytest.mark.parametrize(
    ("more", "words", "change"),
    [
        ({"objectives": (goal("tpot", 1e-4, 0.95),)}, "binds", "--slo"),
        ({"rate_per_s": 1e4, "most_devices": 2}, "number of devices binds", "--max-devices"),
        ({"most_watts": 10.0}, "power binds", "--max-power"),
    ],
)
def test_no_plan_says_what_binds_and_what_to_change(ways_of_an_8b, more, words, change):
    asked, known = ways_of_an_8b
    answer = search.plan_of(replace(asked, **more), map, None, known)
    assert (answer.plans, words in answer.why_not, change in answer.why_not) == ((), True, True), answer.why_not


def test_objectives_that_are_met_one_by_one_alone_say_what_to_change():
    found = [configured(curve=curve(ttft=(0.1, 0.2, 0.4, 0.8), tpot=(0.04, 0.03, 0.02, 0.01)))]
    said = search._why_not(searched(objectives=(goal("ttft", 0.1), goal("tpot", 0.01))), found, [], [], [])
    assert "at once" in said
    assert "--draft" in said


@pytest.mark.parametrize("why", sorted(why for why, asked in REFUSED.items() if asked["runtime"] == "vllm"))
def test_what_predict_refuses_is_not_planned_either_and_says_the_same(why):
    """But for what no plan can be asked: images of a model that has none."""
    question = ask("smollm2-135m", **REFUSED[why])
    if question.workload.image is not None:
        assert "image" not in {field.name for field in fields(PlanSearch)}
        return
    with pytest.raises(DomainError) as predicted:
        question.answer()
    answer = search.plan(small_search(
        model="smollm2-135m", devices=(question.device.name,), options=question.options,
        tp=(question.workload.parallel.tp,), kv=(None,), weights=(None,),
    ))  # fmt: skip
    assert (answer.plans, answer.why_not) == ((), str(predicted.value))


def test_a_model_that_fits_nowhere_is_refused_with_what_to_change():
    answer = search.plan(small_search(model="llama-3.1-405b"))
    assert "does not fit" in answer.why_not
    assert "--tp" in answer.why_not


def test_requests_beyond_the_model_s_context_are_no_plan_but_a_few_are_left_to_the_engine():
    """Llama 2 takes 4,096 tokens; of lognormal lengths a few of a thousand are longer."""
    tail = small_search(model="llama-2-7b", prompt=Lengths(kind="lognormal", mean=800, deviation=500))
    assert search.longest_request(tail) == 4096
    assert search.ways(tail)
    assert search.longest_request(small_search()) == 768
    with pytest.raises(DomainError, match="longer than 4,096 tokens") as refused:
        search.ways(small_search(model="llama-2-7b", prompt=Lengths(kind="fixed", mean=4090)))
    assert "longer context" in refused.value.remedy

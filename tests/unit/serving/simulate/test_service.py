"""A service of several replicas, by hand: who gets a request, how many there are, what they cost, what comes of it."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.asking.ask import ask
from inferometer.core.served import Objective
from inferometer.errors import DomainError
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate import run as running
from inferometer.serving.simulate.building import ENDLESS
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.serving.simulate.replica import EngineLimits
from inferometer.serving.simulate.request import Request
from inferometer.serving.simulate.service import Cluster, Pool, Scaling, Service
from inferometer.serving.simulate.sinks import Columns, Streamed
from inferometer.traffic.arrivals import Arrivals
from inferometer.traffic.demand import Demand
from unit.serving.simulate.test_queues import PLAIN, STEP_S, EvenSteps, demand

LIMITS = EngineLimits(tokens=4096, sequences=4, blocks=1000, block_tokens=16)


def cluster(*, replicas=3, **more):
    return Cluster(Pool(times=EvenSteps(), rules=PLAIN, limits=LIMITS, replicas=replicas), print, print, **more)


def asked(number=0, sent=0.0, pieces=()):
    request = Request(number, sent, 100, 5)
    request.pieces = pieces
    return request


def placed(service):
    return [len(replica.waiting) for replica in service.replicas]


def test_turns_go_round():
    service = cluster(routing="round-robin")
    for number in range(4):
        service._submit(asked(number))
    assert (placed(service), service.under_way) == ([2, 1, 1], 4)


def test_the_least_loaded_is_chosen_and_of_equals_the_first():
    service = cluster(routing="least-loaded")
    for number in range(4):
        service._submit(asked(number))
    assert placed(service) == [2, 1, 1]
    service.replicas[1].waiting.clear()
    service._submit(asked(9))
    assert placed(service) == [2, 1, 1]


@pytest.mark.parametrize(
    ("held", "waiting", "chosen"),
    [
        (4, 0, 2),  # 64 of 100 tokens are cached there
        (3, 0, 0),  # 48 of 100: not worth it
        (4, 8, 2),  # a load of 32 more is not too much
        (4, 9, 0),  # one of 36 is
    ],
)
def test_a_router_follows_a_prefix_that_is_worth_it(held, waiting, chosen):
    service = cluster(routing="prefix-aware")
    service.replicas[2].pool.take(held)
    service.replicas[2].pool.give(held, "known")
    service.replicas[2].waiting.extend(asked(number) for number in range(waiting))
    request = asked(99, pieces=(("known", 96),))
    assert service.replicas.index(service._chosen(service.replicas, request)) == chosen
    assert service._chosen(service.replicas, asked(1)) is service.replicas[0]  # one that shares nothing


def test_a_replica_takes_requests_from_its_start_until_its_end():
    service = cluster(replicas=2, routing="round-robin")
    service.replicas[0].until_s, service.replicas[1].from_s = 5.0, 8.0
    for number, sent in enumerate((0.0, 4.9, 5.0, 7.9, 8.0)):
        service._submit(asked(number, sent))
    assert placed(service) == [4, 1]  # between the two nobody takes them but the first
    service._submit(Request(9, 0.0, 15_990, 11))
    assert (placed(service), service.under_way) == ([4, 1], 5)  # longer than all of the cache: refused
    service._submit(Request(9, 9.0, 15_990, 10))
    assert placed(service) == [4, 2]


SCALING = Scaling(least=1, most=3, target=2.0, cold_start_s=5.0, interval_s=10.0, idle_s=20.0)


def test_replicas_come_with_the_load_and_go_one_by_one_after_a_while():
    service = cluster(scaling=SCALING)
    there = []
    for now, under_way in (
        (0, 2), (10, 3), (15, 9), (20, 9), (30, 4), (40, 2), (50, 9), (60, 2), (70, 2), (79, 0), (80, 0), (90, 0),
        (100, 0), (110, 0), (130, 0),
    ):  # fmt: skip
        service.under_way = under_way
        service._scale(float(now), SCALING)
        there.append(sum(replica.until_s > now for replica in service.replicas))
    assert there == [1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 2, 2, 1, 1, 1]
    assert [replica.from_s for replica in service.replicas] == [0.0, 15.0, 25.0]
    assert [replica.until_s for replica in service.replicas] == [float("inf"), 100.0, 80.0]
    service.replicas[2].now = 90.0  # it ends what it has
    assert service.replica_seconds(120.0) == 120.0 + (100 - 10) + (90 - 20)
    assert service.replica_seconds(85.0) == 85.0 + (85 - 10) + (85 - 20)


def test_scaling_has_bounds():
    assert (Scaling(least=1, most=1, target=0.5).least, SCALING.most) == (1, 3)
    for wrong in ({"least": 0}, {"least": 4}, {"target": 0.0}):
        with pytest.raises(DomainError, match="cannot be"):
            Scaling(**{"least": 1, "most": 3, "target": 2.0, **wrong})


def test_two_pools_read_here_and_decode_there():
    """Prompts of 100 and 200 tokens: a step reads one, and its cache needs a millisecond a token to the other pool."""
    pool = Pool(times=EvenSteps(), rules=PLAIN, limits=LIMITS)
    service = Service(pool=pool, reading=pool, handover_s=0.001)
    sink = Columns()
    plan = SimpleNamespace(priorities=())
    given = demand([0.0, 0.5, 0.6], [5, 3, 1], [100, 200, 50])
    clusters = running._run(plan, service, [given], sink.ended, sink.refused, None)
    columns = sink.columns()
    assert columns.first_s == pytest.approx((STEP_S, 0.5 + STEP_S, 0.6 + STEP_S))
    assert columns.last_s == pytest.approx((0.1 + 5 * STEP_S, 0.7 + 3 * STEP_S, 0.6 + STEP_S))
    assert columns.output_tokens == (5, 3, 1)
    assert [one.replicas[0].read_tokens for one in clusters] == [0, 350]


def test_a_closed_loop_keeps_its_places_full_and_no_more():
    sink = Columns()
    service = Service(pool=Pool(times=EvenSteps(), rules=PLAIN, limits=LIMITS))
    given = Demand(
        input_tokens=np.full(6, 10), output_tokens=np.full(6, 4), session=np.arange(6), turn=np.zeros(6, int),
        group=np.zeros(6, int),
    )  # fmt: skip
    (one,) = running._run(SimpleNamespace(priorities=()), service, [given], sink.ended, sink.refused, 2)
    assert sink.columns().due_s == pytest.approx(np.repeat([0, 4, 8], 2) * STEP_S)
    assert one.replicas[0].most_running == 2


def replica(**values):
    given = dict.fromkeys(
        ("busy_s", "hit_tokens", "read_tokens", "steps", "preempted", "sequence_s", "block_s", "most_running",
         "most_waiting", "most_blocks"), 0,
    )  # fmt: skip
    return SimpleNamespace(**{**given, "limits": LIMITS, **values})


def test_readings_are_sums_shares_and_means_of_all_replicas():
    clusters = [
        SimpleNamespace(
            replicas=[
                replica(busy_s=2.0, steps=10, preempted=1, read_tokens=60, sequence_s=8.0, block_s=1000.0,
                        most_running=3, most_waiting=2, most_blocks=400),
                replica(busy_s=3.0, steps=20, preempted=2, read_tokens=20, hit_tokens=20, sequence_s=12.0,
                        block_s=3000.0, most_running=4, most_waiting=7, most_blocks=100),
            ],
            replica_seconds=lambda end_s: 2 * end_s,
        )
    ]  # fmt: skip
    found = running._readings(clusters, 5.0)
    assert found.counters == {
        "steps": 30.0, "preemptions": 3.0, "replica_seconds": 10.0, "busy_share": 0.5, "cached_tokens": 20.0,
        "cache_hit_share": 0.2, "waiting_at_most": 7.0,
    }  # fmt: skip
    assert found.gauges == {"running": (4.0, 7.0), "kv_share": (4000 / 5 / 2000, 0.4)}
    endless = EngineLimits(tokens=1, sequences=1, blocks=ENDLESS, block_tokens=1)
    bare = running._readings([SimpleNamespace(replicas=[replica(limits=endless)], replica_seconds=lambda _: 0.0)], 0.0)
    assert (bare.gauges.keys(), bare.counters["busy_share"]) == ({"running"}, 0.0)
    assert "cache_hit_share" not in bare.counters


def test_a_level_that_is_streamed_has_the_figures_of_its_requests():
    """Four that count, one that came before, one that was refused: by hand."""
    goals = [Objective(metric="ttft", limit_s=0.5), Objective(metric="tpot", limit_s=0.11)]
    sink = Streamed(goals, start_s=10.0)
    for due, first, last, inputs, outputs in (
        (9.0, 9.1, 9.2, 7, 7), (10.0, 10.5, 10.5, 10, 1), (11.0, 11.25, 11.65, 20, 5), (12.0, 12.6, 12.7, 30, 2),
        (14.0, 14.1, 14.7, 40, 4),
    ):  # fmt: skip
        request = Request(0, due, inputs, outputs)
        request.first, request.last = first, last
        sink.ended(request)
    sink.refused(request)
    found = sink.figures()
    assert (found.requests, found.completed, found.errors, found.counted) == (6, 5, {"too_long": 1}, 4)
    assert found.window_s == 4.0
    assert found.requests_per_s == found.offered_per_s == 1.0
    assert (found.input_tokens_per_s, found.output_tokens_per_s) == (25.0, 3.0)
    assert (found.input_tokens, found.output_tokens) == (25.0, 3.0)
    assert found.ttft_s.mean == pytest.approx((0.5 + 0.25 + 0.6 + 0.1) / 4)
    assert found.e2e_s.mean == pytest.approx((0.5 + 0.65 + 0.7 + 0.7) / 4)
    assert (found.tpot_s.count, found.tpot_s.mean) == (3, pytest.approx((0.1 + 0.1 + 0.2) / 3))
    assert (found.attained, found.goodput_per_s) == (0.5, 0.5)  # the third is too late, the last too slow
    assert Streamed((), start_s=0.0).figures().attained is None


def test_the_parts_of_a_long_level_make_up_all_of_it(monkeypatch):
    monkeypatch.setattr(running, "_PART", 40)
    traffic = LoadPlan(url="", steps=(LoadStep(arrivals=Arrivals(rate_per_s=5)),), requests=100, seed=3)
    parts = list(running._parts(traffic, traffic.steps[0], 0, 100))
    assert [len(part) for part in parts] == [40, 40, 20]
    assert len({part.seed for part in parts}) == 3


@pytest.mark.parametrize(
    ("more", "parallel", "devices"),
    [
        ({}, {}, 1),
        ({"replicas": 3}, {"tp": 2}, 6),
        ({"replicas": 3, "ranks": 2}, {"tp": 2}, 12),
        ({"replicas": 2, "readers": {"tp": 2}, "reader_replicas": 4}, {}, 10),
        ({"scaling": Scaling(least=1, most=5, target=8.0)}, {"tp": 2}, 10),
    ],
)
def test_a_service_counts_all_of_its_devices(more, parallel, devices):
    asking = partial(ask, "llama-3.2-1b", on="nvidia-l4", runtime="vllm")
    if "readers" in more:
        more = {**more, "readers": asking(**more["readers"])}
    traffic = LoadPlan(url="", steps=(LoadStep(arrivals=Arrivals(rate_per_s=2.0)),), requests=4)
    profile = running.simulate(SimulationPlan(question=asking(**parallel), traffic=traffic, **more))
    assert profile.device.count == devices


def test_what_cannot_be_simulated_is_refused():
    for wrong in (
        {"replicas": 0}, {"ranks": 0}, {"tokens": 0}, {"sequences": 0}, {"blocks": 0}, {"block_tokens": 0},
        {"reader_replicas": 0}, {"priorities": (0.5, 0.4)}, {"speculation": (0, 0.5)}, {"speculation": (1, 1.0)},
        {"speculation": (1, -0.1)},
    ):  # fmt: skip
        with pytest.raises(DomainError):
            SimulationPlan(question=None, traffic=None, **wrong)
    SimulationPlan(question=None, traffic=None, replicas=1, tokens=1, priorities=(0.5, 0.5), speculation=(1, 0.0))

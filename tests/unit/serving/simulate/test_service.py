"""A service of several replicas, by hand: who gets a request, how many there are, what they cost, what comes of it."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.errors import DomainError
from inferometer.core.served import Objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import Demand, Sharing, class_of
from inferometer.core.traffic.figures import figures_of
from inferometer.core.traffic.lengths import Lengths
from inferometer.known import link as link_named
from inferometer.predict.ask import ask
from inferometer.predict.options import Options, Speculative
from inferometer.predict.served.question import served, serving_answer
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate import run as running
from inferometer.serving.simulate import source as requesting
from inferometer.serving.simulate.building import ENDLESS, alone, service_of
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.serving.simulate.replica import EngineLimits
from inferometer.serving.simulate.request import SimulatedRequest
from inferometer.serving.simulate.service import Cluster, ReplicaPool, Scaling, Service
from inferometer.serving.simulate.sinks import Columns, Streamed
from inferometer.serving.simulate.source import Kinds
from unit.serving.simulate.test_queues import PLAIN, STEP_S, EvenSteps, demand

LIMITS = EngineLimits(tokens=4096, sequences=4, blocks=1000, block_tokens=16)


def cluster(*, replicas=3, **more):
    return Cluster(ReplicaPool(times=EvenSteps(), rules=PLAIN, limits=LIMITS, replicas=replicas), print, print, **more)


def asked(number=0, sent=0.0, pieces=()):
    request = SimulatedRequest(number, sent, 100, 5)
    request.pieces = pieces
    return request


def placed(service):
    return [len(replica.waiting) for replica in service.replicas]


def test_turns_go_round():
    service = cluster(routing="round-robin")
    for number in range(4):
        service.submit(asked(number))
    assert (placed(service), service.under_way) == ([2, 1, 1], 4)


def test_the_least_loaded_is_chosen_and_of_equals_the_first():
    service = cluster(routing="least-loaded")
    for number in range(4):
        service.submit(asked(number))
    assert placed(service) == [2, 1, 1]
    service.replicas[1].waiting.clear()
    service.submit(asked(9))
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
        service.submit(asked(number, sent))
    assert placed(service) == [4, 1]  # between the two nobody takes them but the first
    service.submit(SimulatedRequest(9, 0.0, 15_990, 11))
    assert (placed(service), service.under_way) == ([4, 1], 5)  # longer than all of the cache: refused
    service.submit(SimulatedRequest(9, 9.0, 15_990, 10))
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
        service.scale(float(now))
        there.append(sum(replica.until_s > now for replica in service.replicas))
    assert there == [1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 2, 2, 1, 1, 1]
    assert [replica.from_s for replica in service.replicas] == [0.0, 15.0, 25.0]
    assert [replica.until_s for replica in service.replicas] == [float("inf"), 100.0, 80.0]
    service.replicas[2].now = 90.0  # it ends what it has
    assert service.replica_seconds(120.0) == 120.0 + (100 - 10) + (90 - 20)
    assert service.replica_seconds(85.0) == 85.0 + (85 - 10) + (85 - 20)


def test_a_signal_near_its_target_changes_nothing_and_a_service_may_begin_with_more_than_the_least():
    service = cluster(scaling=replace(SCALING, tolerance=0.1, begin=2))
    for now, under_way, there in ((0, 4, 2), (10, 4.3, 2), (20, 4.5, 3), (30, 5.5, 3), (40, 3.9, 3), (60, 3.9, 2)):
        service.under_way = under_way
        service.scale(float(now))
        assert sum(replica.until_s > now for replica in service.replicas) == there
    assert [replica.from_s for replica in service.replicas] == [0.0, 0.0, 25.0]


class OneMuchLater:
    def __init__(self, follows):
        self.follows, self.next_s = follows, 1e9

    def plain(self):
        return None

    def take(self):
        self.next_s = float("inf")
        return SimulatedRequest(0, 1e9, 10, 5)


@pytest.mark.parametrize("follows", [False, True])
def test_replicas_go_while_nobody_comes(follows):
    """The signal is looked at by the clock, not when a request happens to come."""
    service = cluster(scaling=replace(SCALING, begin=3, idle_s=10.0))
    service.run(OneMuchLater(follows))
    assert [replica.until_s for replica in service.replicas] == [float("inf"), 20.0, 10.0]


def test_scaling_has_bounds():
    assert (Scaling(least=1, most=1, target=0.5).least, SCALING.most) == (1, 3)
    for wrong in ({"least": 0}, {"least": 4}, {"target": 0.0}):
        with pytest.raises(DomainError, match="cannot be"):
            Scaling(**{"least": 1, "most": 3, "target": 2.0, **wrong})


def test_two_pools_read_here_and_decode_there():
    """Prompts of 100 and 200 tokens: a step reads one, and its cache needs a millisecond a token to the other pool."""
    pool = ReplicaPool(times=EvenSteps(), rules=PLAIN, limits=LIMITS)
    service = Service(pool=pool, reading=pool, handover_s=0.001)
    sink = Columns()
    plan = SimpleNamespace(kinds=Kinds())
    given = demand([0.0, 0.5, 0.6], [5, 3, 1], [100, 200, 50])
    clusters = running._run(plan, service, [given], sink.ended, sink.refused, None)
    columns = sink.columns()
    assert columns.first_s == pytest.approx((STEP_S, 0.5 + STEP_S, 0.6 + STEP_S))
    assert columns.last_s == pytest.approx((0.1 + 5 * STEP_S, 0.7 + 3 * STEP_S, 0.6 + STEP_S))
    assert columns.output_tokens == (5, 3, 1)
    assert [one.replicas[0].read_tokens for one in clusters] == [0, 350]


def test_a_closed_loop_keeps_its_places_full_and_no_more(monkeypatch):
    monkeypatch.setattr(requesting, "TURNAROUND_S", 0.0)  # it is as long as a step of these
    sink = Columns()
    service = Service(pool=ReplicaPool(times=EvenSteps(), rules=PLAIN, limits=LIMITS))
    given = closed(6, np.full(6, 4))
    (one,) = running._run(SimpleNamespace(kinds=Kinds()), service, [given], sink.ended, sink.refused, 2)
    assert sink.columns().due_s == pytest.approx(np.repeat([0, 4, 8], 2) * STEP_S)
    assert one.replicas[0].most_running == 2


def replica(**values):
    given = dict.fromkeys(
        ("busy_s", "hit_tokens", "read_tokens", "steps", "preempted", "sequence_s", "block_s", "most_running",
         "most_waiting", "most_blocks", "adapter_loads", "images_encoded", "images_found"), 0,
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
            replica_seconds=lambda end_s: 2 * end_s, ranks=1,
        )
    ]  # fmt: skip
    found = running._readings(clusters, 5.0)
    assert found.counters == {
        "steps": 30.0, "preemptions": 3.0, "replica_seconds": 10.0, "busy_share": 0.5, "cached_tokens": 20.0,
        "cache_hit_share": 0.2, "waiting_at_most": 7.0,
    }  # fmt: skip
    assert found.gauges == {"running": (4.0, 7.0), "kv_share": (4000 / 5 / 2000, 0.4)}
    endless = EngineLimits(tokens=1, sequences=1, blocks=ENDLESS, block_tokens=1)
    bare = running._readings(
        [SimpleNamespace(replicas=[replica(limits=endless)], replica_seconds=lambda _: 0.0, ranks=1)], 0.0
    )
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
        request = SimulatedRequest(0, due, inputs, outputs)
        request.first, request.last = first, last
        sink.ended(request)
    sink.refused(request, "too_long")
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


@pytest.mark.parametrize("goals", [(), ("e2e",), ("ttft", "e2e")])
@pytest.mark.parametrize("start_s", [0.0, 5.0, 1e9])
def test_what_is_streamed_is_what_the_rows_say(goals, start_s):
    """A second way to every figure; where nobody counts, or nobody asks for an objective, there is no share of it."""
    chance = np.random.default_rng(3)
    due = np.sort(chance.uniform(0.0, 10.0, 60))
    first = due + chance.uniform(0.1, 1.0, 60)
    last = first + chance.uniform(0.0, 2.0, 60)
    tokens = chance.integers(1, 50, (60, 2))
    sink = Streamed([Objective(metric=name, limit_s=1.0) for name in goals], start_s=start_s)
    for index in range(60):
        request = SimulatedRequest(index, due[index], *map(int, tokens[index]))
        request.first, request.last = first[index], last[index]
        sink.ended(request)
    found, counted = sink.figures(), due >= start_s
    times = {"ttft": first - due, "e2e": last - due}
    met = np.all([times[name] <= 1.0 for name in goals] or [np.ones(60, bool)], axis=0) & counted
    count, seconds = int(counted.sum()), max(1e-9, 1e-9 if start_s > 10 else due[-1] - start_s)
    assert (found.counted, found.requests, found.completed, found.window_s) == (count, 60, 60, pytest.approx(seconds))
    assert found.attained == (met.sum() / count if goals and count else None)
    assert found.goodput_per_s == (pytest.approx(met.sum() / seconds) if goals else None)
    assert found.output_tokens == (pytest.approx(tokens[counted, 1].mean()) if count else None)
    assert found.input_tokens_per_s == pytest.approx(tokens[counted, 0].sum() / seconds)
    assert (found.ttft_s is None) == (found.tpot_s is None) == (not count)
    for name, values in times.items():
        spread = getattr(found, f"{name}_s")
        assert spread is None if not count else spread.mean == pytest.approx(values[counted].mean())


def test_the_parts_of_a_long_level_make_up_all_of_it(monkeypatch):
    monkeypatch.setattr(running, "_PART", 40)
    traffic = LoadPlan(url="", steps=(LoadStep(arrivals=Arrivals(rate_per_s=5)),), requests=100, seed=3)
    parts = list(running._parts(SimulationPlan(question=None, traffic=traffic), traffic.steps[0], 0, 100))
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


def closed(count, outputs, inputs=10):
    return Demand(
        input_tokens=np.full(count, inputs), output_tokens=np.asarray(outputs), session=np.arange(count),
        turn=np.zeros(count, int), group=np.zeros(count, int),
    )  # fmt: skip


def test_places_of_several_replicas_are_filled_in_the_order_in_which_they_become_free(monkeypatch):
    """Two replicas of one sequence each, three places: answers of 8, 2 and 2, 2, 3 and 1 steps."""
    monkeypatch.setattr(requesting, "TURNAROUND_S", 0.0)
    sink = Columns()
    limits = EngineLimits(tokens=4096, sequences=1, blocks=1000, block_tokens=16)
    pool = ReplicaPool(times=EvenSteps(), rules=PLAIN, limits=limits, replicas=2)
    service = Service(pool=pool, routing="least-loaded")
    given = closed(6, [8, 2, 2, 2, 3, 1])
    clusters = running._run(SimpleNamespace(kinds=Kinds()), service, [given], sink.ended, sink.refused, 3)
    columns = sink.columns()
    found = {number: (round(due / STEP_S), round(last / STEP_S))
             for number, due, last in zip(columns.session, columns.due_s, columns.last_s, strict=True)}  # fmt: skip
    # The third waits behind the first, of two that are equally loaded. Places that are free at 2, 5 and 8 send again;
    # which request is whose does not matter.
    assert found == {0: (0, 8), 1: (0, 2), 2: (0, 10), 3: (8, 10), 4: (2, 5), 5: (5, 6)}
    assert sum(replica.busy_s for replica in clusters[0].replicas) == pytest.approx(18 * STEP_S)


def test_both_pools_are_routed_alike():
    pool = ReplicaPool(times=EvenSteps(), rules=PLAIN, limits=LIMITS, replicas=2)
    service = Service(pool=pool, reading=pool, handover_s=0.0, routing="least-loaded")
    sink = Columns()
    given = demand([0.0, 1.0, 2.0], [3, 3, 3], [10, 10, 10])
    clusters = running._run(SimpleNamespace(kinds=Kinds()), service, [given], sink.ended, sink.refused, None)
    for cluster in clusters:  # the first is idle whenever one comes, so that it gets all of them
        assert [replica.steps > 0 for replica in cluster.replicas] == [True, False]


# What a service is made of


def built(question, **more):
    traffic = LoadPlan(url="", steps=(LoadStep(arrivals=Arrivals(rate_per_s=1.0)),))
    return service_of(SimulationPlan(question=question, traffic=traffic, **more))


@pytest.fixture(scope="module")
def served_by_vllm():
    return ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm")


def test_limits_are_the_engines_own_unless_they_are_given(served_by_vllm):
    what = served(served_by_vllm)
    own = built(served_by_vllm)[0].pool.limits
    assert (own.tokens, own.sequences, own.block_tokens) == (
        what.limits.tokens, what.limits.sequences, what.memory.block_tokens,
    )  # fmt: skip
    assert own.blocks == what.memory.kv_tokens // what.memory.block_tokens
    assert (own.kept, own.per_sequence, own.swap_s_per_block, own.by_priority, own.seen) == (1.0, 1, None, False, 0.0)
    assert own.prefix_cache
    given = built(
        served_by_vllm, tokens=99, sequences=7, blocks=55, block_tokens=8, prefix_cache=False, priorities=(0.5, 0.5),
        speculation=(3, 0.5), replicas=2, ranks=3, routing="round-robin",
    )[0]  # fmt: skip
    limits = given.pool.limits
    assert (limits.tokens, limits.sequences, limits.blocks, limits.block_tokens) == (99, 7, 55, 8)
    assert (limits.kept, limits.per_sequence, limits.by_priority, limits.prefix_cache) == (1.875, 4, True, False)
    assert (given.pool.replicas, given.routing) == (6, "round-robin")  # ranks of a dense model are replicas
    half = built(served_by_vllm, block_tokens=2 * own.block_tokens)[0].pool.limits
    assert half.blocks == what.memory.kv_tokens // (2 * own.block_tokens)


def test_a_tier_holds_blocks_of_all_devices_and_each_moves_its_own_share():
    question = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm", tp=2)
    limits = built(question, offload=((64e9, None), (2e12, 5e9)))[0].pool.limits
    host, disk = limits.tiers
    a_block = 16 * 32 * 8 * 128 * 2 * 2  # tokens, layers, heads, their width, keys and values, bytes
    assert (host.blocks, disk.blocks) == (64_000_000_000 // a_block, 2_000_000_000_000 // a_block)
    assert disk.load_s == pytest.approx(a_block / 5e9)
    assert host.load_s == pytest.approx(a_block / 2 / question.device.host_link.bandwidth_bytes_per_s.value)


def test_prompts_that_a_cache_has_lost_are_read_again_unless_a_tier_has_them():
    question = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm")
    talk = LoadPlan(
        url="", steps=(LoadStep(arrivals=Arrivals(rate_per_s=2.0)),), requests=60,
        prompt=Lengths(kind="fixed", mean=600), generate=Lengths(kind="fixed", mean=4),
        sharing=Sharing(prefix_tokens=512, groups=6),
    )  # fmt: skip
    read = {}
    for tiers in ((), ((64e9, None),)):
        level = running.simulate(
            SimulationPlan(question=question, traffic=talk, blocks=120, offload=tiers)
        ).served.levels[0]
        assert level.requests.outcome == ("ok",) * 60
        read[tiers] = level.server.counters
    (bare, below) = read.values()
    assert below["cached_tokens"] == 54 * 512  # all but the first of each group
    assert bare.get("cached_tokens", 0) < below["cached_tokens"]
    assert 0 < below["loaded_tokens"] <= below["cached_tokens"]


def test_slots_are_the_engines_own_unless_they_are_given():
    question = ask("smollm2-135m", on="raspberry-pi-5", runtime="llamacpp", weights="q4_0")
    own, notes = built(question, replicas=2)
    away = 8 * 2**30 / question.fit().kv_bytes_per_token  # --cache-ram
    assert own.pool.limits == EngineLimits(
        tokens=2048,
        sequences=4,
        blocks=ENDLESS,
        block_tokens=1,
        prefix_cache=True,
        by_priority=False,
        away_tokens=away,
        longest=8192,  # the model's window
    )
    assert (own.pool.replicas, "4 slots" in notes[-1]) == (2, True)
    given = built(question, tokens=9, sequences=8, blocks=7, block_tokens=6, priorities=(1.0,), prefix_cache=False)[
        0
    ].pool.limits
    assert given == EngineLimits(
        tokens=9,
        sequences=8,
        blocks=7,
        block_tokens=6,
        prefix_cache=False,
        by_priority=True,
        away_tokens=away,
        longest=8192,
    )


def test_a_later_turn_on_slots_reads_only_what_is_new_of_it():
    question = ask("smollm2-135m", on="raspberry-pi-5", runtime="llamacpp", weights="q4_0")
    talk = LoadPlan(
        url="", steps=(LoadStep(concurrency=1),), requests=2, prompt=Lengths(kind="fixed", mean=400),
        generate=Lengths(kind="fixed", mean=8), sharing=Sharing(turns=2),
    )  # fmt: skip
    waits = {}
    for finds in (True, False):
        level = running.simulate(SimulationPlan(question=question, traffic=talk, prefix_cache=finds)).served.levels[0]
        waits[finds] = np.array(level.requests.first_s) - np.array(level.requests.due_s)
    assert waits[True][0] == waits[False][0]
    assert waits[True][1] < 0.7 * waits[False][1]  # of 808 tokens 400 or so are new


def test_a_gang_has_the_memory_of_ranks_that_share_the_experts():
    question = ask("qwen3-30b-a3b", on="nvidia-h200", runtime="vllm")
    gang = built(question, ranks=2)[0].pool
    shared = served(ask("qwen3-30b-a3b", on="nvidia-h200", runtime="vllm", dp=2, ep=2, batch=2)).memory
    assert gang.limits.blocks == shared.kv_tokens // shared.block_tokens
    alone = built(question)[0].pool
    assert gang.limits.blocks > alone.limits.blocks  # it has half of the experts
    assert (gang.replicas, gang.ranks, alone.ranks, alone.gang) == (1, 2, 1, None)


def test_a_pool_that_reads_is_built_from_its_own_question(served_by_vllm):
    reading = ask("llama-3.2-1b", on="nvidia-h200", runtime="vllm", tp=2)
    found, notes = built(
        served_by_vllm, readers=reading, reader_replicas=3, replicas=2, link=link_named("infiniband-ndr")
    )
    assert (found.pool.replicas, found.reading.replicas) == (2, 3)
    assert found.reading.limits == built(reading)[0].pool.limits
    assert found.pool.limits == built(served_by_vllm)[0].pool.limits
    sent = served(served_by_vllm).memory.kv_bytes_per_token
    link = link_named("infiniband-ndr")
    latency_s = 0.0 if link.latency_s is None else link.latency_s.value
    assert found.handover_s == pytest.approx(sent / float(link.bandwidth_bytes_per_s) + latency_s / 1024)
    assert len({*notes}) == len(notes)


def test_a_draft_runs_before_each_step_with_the_costs_of_its_engine(served_by_vllm):
    draft = ask("smollm2-135m", on="nvidia-l4", runtime="vllm").graph
    options = Options(speculative=Speculative(draft=draft, length=3, acceptance=0.5))
    question = ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm", options=options)
    drafted, free = (built(each, speculation=(3, 0.5))[0].pool.times for each in (question, served_by_vllm))
    step = replace(served(ask("smollm2-135m", on="nvidia-l4", runtime="vllm")).step, costs=served(question).step.costs)
    added = drafted.decode(4, 640.0) - free.decode(4, 640.0)
    assert added == pytest.approx(3 * float(step.decode_seconds(4, 640.0)))


def test_what_no_device_holds_or_no_link_reaches_is_refused(served_by_vllm):
    with pytest.raises(DomainError, match="does not fit on nvidia-l4"):
        built(ask("llama-3.1-70b", on="nvidia-l4", runtime="vllm"))
    unlinked = replace(served_by_vllm, device=replace(served_by_vllm.device, host_link=None))
    with pytest.raises(DomainError, match="and its host is not known"):
        built(unlinked, swap=True)


def test_one_replica_of_a_question_has_experts_of_its_own_or_shares_them():
    question = ask("qwen3-30b-a3b", on="nvidia-h200", runtime="vllm", dp=2, ep=2, tp=2, batch=8)
    own, shared = (alone(question, apart=apart).workload for apart in (True, False))
    assert (own.parallel.dp, own.parallel.ep, own.parallel.tp, own.batch) == (1, 1, 2, 1)
    assert (shared.parallel.dp, shared.parallel.ep, shared.batch) == (1, 2, 1)
    assert alone(own_question := ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm", tp=2)) is own_question


# From a plan to a profile


FOUR_A_SECOND = (LoadStep(arrivals=Arrivals(rate_per_s=4.0, process="constant")),)


def simulated(question, steps=FOUR_A_SECOND, **more):
    plan = {name: more.pop(name) for name in ("priorities", "whole", "replicas") if name in more}
    traffic = LoadPlan(url="", steps=steps, requests=40, prompt=fixed(64), generate=fixed(8), **more)
    return running.simulate(SimulationPlan(question=question, traffic=traffic, **plan))


def fixed(tokens):
    return Lengths(kind="fixed", mean=tokens)


def test_levels_stand_in_the_order_of_their_loads(served_by_vllm):
    steps = tuple(LoadStep(arrivals=Arrivals(rate_per_s=rate, process="constant")) for rate in (8.0, 2.0))
    told = []
    traffic = LoadPlan(url="", steps=steps, requests=40, prompt=fixed(64), generate=fixed(8), command="typed", seed=3)
    profile = running.simulate(SimulationPlan(question=served_by_vllm, traffic=traffic), progress=told.append)
    assert told == ["8/s", "2/s"]
    assert [level.rate_per_s for level in profile.served.levels] == [2.0, 8.0]
    assert [level.seconds > 4.8 for level in profile.served.levels] == [True, True]
    assert (profile.kind, profile.runtime, profile.device.name) == ("predicted", "vllm", "nvidia-l4")
    assert (profile.provenance.command, profile.served.loop, profile.served.api) == ("typed", "open", "simulated")
    assert (profile.workload.prompt, profile.workload.generate) == (64, 8)
    level = profile.served.levels[profile.served.headline]
    assert profile.phases[0].samples_s == pytest.approx(
        [first - due for due, first in zip(level.requests.due_s, level.requests.first_s, strict=True)
         if level.windows[0].start_s <= due <= level.windows[0].end_s]
    )  # fmt: skip


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_wait_between_two_tokens_is_counted_once_at_whichever_replica(served_by_vllm, replicas):
    (level,) = simulated(served_by_vllm, replicas=replicas).served.levels
    assert level.gaps.count == 40 * (8 - 1)
    taken = np.array(level.requests.last_s) - np.array(level.requests.first_s)
    assert level.gaps.total_s == pytest.approx(taken.sum(), rel=0.02)  # of equal steps the one in the middle counts


@pytest.mark.parametrize("ends", [((3.0, 5.0),), ((5.0, 3.0),), ((1.0,), (2.0, 5.0)), ((5.0,), (2.0,))])
def test_a_level_lasts_until_its_last_replica_is_done(ends, monkeypatch):
    """Of whichever pool: the readings are over as long."""
    clusters = [SimpleNamespace(replicas=[SimpleNamespace(now=end, from_s=0.0) for end in each]) for each in ends]
    monkeypatch.setattr(running, "_gaps", lambda _replicas: None)
    monkeypatch.setattr(running, "_readings", lambda _clusters, end_s: end_s)
    level = running._bare_level(LoadStep(concurrency=2), clusters)
    assert (level.seconds, level.server, level.concurrency) == (5.0, 5.0, 2)


def test_what_a_service_says_of_itself_is_said_of_its_simulation(served_by_vllm):
    _, notes = built(served_by_vllm)
    assert notes
    assert set(notes) <= set(simulated(served_by_vllm).provenance.notes)


def test_a_signal_counts_what_it_is_called():
    replicas = [
        SimpleNamespace(waiting=range(3), busy_s=1.0, pool=SimpleNamespace(used=6, blocks=8)),
        SimpleNamespace(waiting=range(4), busy_s=2.0, pool=SimpleNamespace(used=2, blocks=8)),
        SimpleNamespace(waiting=range(1), busy_s=0.0, pool=SimpleNamespace(used=8, blocks=8)),  # still starts
    ]
    cluster = SimpleNamespace(under_way=11, replicas=replicas)
    counted = {
        signal: Cluster._signal(cluster, Scaling(least=1, most=4, target=1, signal=signal), 3)
        for signal in ("requests", "waiting", "cache")
    }
    assert counted == {"requests": 11, "waiting": 8, "cache": 3 * (6 / 8 + 2 / 8) / 2}


def test_every_request_counts_where_that_is_asked_for(served_by_vllm):
    (level,) = simulated(served_by_vllm, whole=True).served.levels
    assert (level.windows[0].start_s, level.windows[0].why) == (0.0, "every request counts")
    assert level.windows[0].end_s == pytest.approx(max(level.requests.last_s))
    (usual,) = simulated(served_by_vllm).served.levels
    assert usual.windows[0] != level.windows[0]


def test_every_class_tells_its_own_wait(served_by_vllm):
    (level,) = simulated(served_by_vllm, priorities=(0.25, 0.75)).served.levels
    assert [note.partition(":")[0] for note in level.notes] == [
        "Priority 0 (25% of the requests)", "Priority 1 (75% of the requests)",
    ]  # fmt: skip
    ttft = np.array(level.requests.first_s) - np.array(level.requests.due_s)
    urgent = ttft[[class_of((0.25, 0.75), number) == 0 for number in level.requests.session]]
    assert f"p50 {np.quantile(urgent, 0.5):.3g} s, p95 {np.quantile(urgent, 0.95):.3g} s" in level.notes[0]


def test_a_closed_loop_has_its_places_and_no_rate(served_by_vllm):
    (level,) = simulated(served_by_vllm, steps=(LoadStep(concurrency=3),)).served.levels
    assert (level.concurrency, level.rate_per_s, level.name) == (3, None, "3 at once")
    assert level.server.gauges["running"][1] == 3.0


def test_a_long_level_is_streamed_from_its_first_tenth_on(served_by_vllm, monkeypatch):
    monkeypatch.setattr(running, "MOST_KEPT", 39)
    (level,) = simulated(served_by_vllm).served.levels
    assert level.requests is None
    assert (level.stated.requests, level.stated.counted) == (40, 36)  # from 1 s on: a tenth of 40 at 4 a second
    assert level.stated.window_s == pytest.approx(8.75)
    assert level.stated.requests_per_s == pytest.approx(36 / 8.75)
    assert level.notes[0].startswith("40 requests")


@pytest.mark.parametrize("most", [1, 2, 4])
def test_loads_that_a_search_adds_are_simulated_in_their_turn_and_told_by_load(most, monkeypatch):
    """Until the search has no other, from what was asked for and all that it added before."""
    asked = (LoadStep(concurrency=64), LoadStep(concurrency=1))

    def after(tried):
        assert [step.load for step, figures in tried] == [figures for _, figures in tried]
        return LoadStep(concurrency=2 * tried[-1][0].concurrency) if len(tried) < 2 + most else None

    monkeypatch.setattr(running, "service_of", lambda _plan: (None, ()))
    monkeypatch.setattr(running, "_level", lambda _plan, _service, step, number: (step.load, number))
    monkeypatch.setattr(running, "figures_of", lambda level, _objectives: level[0])
    monkeypatch.setattr(running, "next_step", after)
    monkeypatch.setattr(running, "_profile", lambda _plan, levels, figures, _notes: (levels, figures))
    traffic = SimpleNamespace(steps=asked, within=False, saturate=True, objectives=())
    levels, figures = running.simulate(SimpleNamespace(answers=1, traffic=traffic))
    assert levels == ((1.0, 1), *((2.0**added, 1 + added) for added in range(1, most + 1)), (64.0, 0))
    assert figures == [load for load, _ in levels]


@pytest.mark.parametrize(
    ("model", "engine", "users", "prompt", "generate"),
    [
        ("llama-3.1-8b", "vllm", 8, 512, 128),
        ("llama-3.1-8b", "vllm", 48, 512, 128),
        ("llama-3.1-8b", "sglang", 48, 1024, 200),
        ("llama-3.1-8b", "vllm", 1, 32_000, 16),  # the prompt is nearly all of it
    ],
)
def test_the_closed_form_of_users_says_what_their_simulation_settles_to(model, engine, users, prompt, generate):
    """Lengths vary, so that places do not stay in step: those that do read all of their prompts together."""
    question = ask(model, on="nvidia-h100-sxm", runtime=engine, prompt=prompt, generate=generate)
    closed = serving_answer(question, users)
    lengths = {
        "prompt": Lengths(kind="uniform", mean=prompt, low=prompt / 2, high=1.5 * prompt),
        "generate": Lengths(kind="uniform", mean=generate, low=generate / 2, high=1.5 * generate),
    }
    traffic = LoadPlan(url="", steps=(LoadStep(concurrency=users),), requests=max(120, 12 * users), **lengths)
    found = figures_of(running.simulate(SimulationPlan(question=question, traffic=traffic)).served.levels[0])
    assert closed.tpot_s == pytest.approx(found.tpot_s.mean, rel=0.04)
    # What clients saw around a first token is in the closed form alone, and the first wave in which all begin at once.
    assert closed.tokens_per_s == pytest.approx(found.output_tokens_per_s, rel=0.12)
    assert closed.ttft_s > 0.9 * found.ttft_s.mean

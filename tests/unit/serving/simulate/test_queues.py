"""The simulator against queues whose waiting time is known: the same scheduler, with steps of one fixed length."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core.engine import SchedulerRules
from inferometer.core.traffic.demand import Agents, Demand, Sharing, made_up, trace_demand
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.traffic.requests import Requests
from inferometer.known.engines import scheduler_of, schedulers
from inferometer.serving.simulate import plain
from inferometer.serving.simulate.replica import EngineLimits, Replica
from inferometer.serving.simulate.request import SimulatedRequest
from inferometer.serving.simulate.service import Cluster, ReplicaPool
from inferometer.serving.simulate.sinks import Columns
from inferometer.serving.simulate.source import Kinds, RequestSource

PLAIN = SchedulerRules(
    engine="none", since="0", title="a queue", order="decode", admission="chunk", victim="last", prefix_cache=False
)
STEP_S = 0.001


class EvenSteps:
    """Every step takes as long, however many sequences it has: each is a server of its own."""

    def decode(self, _sequences, _context):
        return STEP_S

    def mixed(self, _chunks, _sequences, _context):
        return STEP_S


def demand(due, outputs, inputs=None, **more):
    count = len(due)
    return Demand(
        input_tokens=np.ones(count, int) if inputs is None else np.asarray(inputs),
        output_tokens=np.asarray(outputs),
        due_s=np.asarray(due, float),
        session=np.arange(count),
        turn=np.zeros(count, int),
        group=np.zeros(count, int),
        **more,
    )


def run(given, *, servers=1, rules=PLAIN, replicas=1, routing="round-robin", times=None, **limits):
    sink = Columns()
    of = EngineLimits(**{"tokens": 4096, "sequences": servers, "blocks": 1 << 30, "block_tokens": 16, **limits})
    pool = ReplicaPool(times=times or EvenSteps(), rules=rules, limits=of, replicas=replicas)
    cluster = Cluster(pool, sink.ended, sink.refused, routing=routing)
    cluster.run(RequestSource([given]))
    return Requests.of(sink.columns()), cluster


def waiting_of(requests):
    """Until service begins: the first token comes one step later."""
    return (requests.first_s - requests.due_s - STEP_S).mean()


class HalfSeconds(EvenSteps):
    """Steps whose sums are exact."""

    def decode(self, _sequences, _context):
        return 0.5

    def mixed(self, _chunks, _sequences, _context):
        return 0.5


def poisson(rate, count, seed=1):
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def test_one_server_with_exponential_services_waits_as_m_m_1_does():
    count, service_s, share = 60_000, 0.1, 0.7
    outputs = np.maximum(1, np.random.default_rng(2).exponential(service_s / STEP_S, count).round().astype(int))
    requests, _ = run(demand(poisson(share / service_s, count), outputs))
    assert waiting_of(requests) == pytest.approx(share / (1 - share) * service_s, rel=0.1)


def test_one_server_with_equal_services_waits_half_as_long_as_m_d_1_does():
    count, steps, share = 20_000, 100, 0.8
    service_s = steps * STEP_S
    requests, _ = run(demand(poisson(share / service_s, count), np.full(count, steps)))
    assert waiting_of(requests) == pytest.approx(share / (2 * (1 - share)) * service_s, rel=0.06)


@pytest.mark.parametrize(("patience_s", "is_answered"), [(0.999, False), (1.0, False), (1.001, True)])
def test_whoever_waits_goes_away_at_the_end_of_their_patience(patience_s, is_answered):
    """The only sequence is free after two steps, at one second: whoever waits no longer than that is gone."""
    requests, cluster = run(demand([0.0, 0.0], [2, 1]), times=HalfSeconds(), patience_s=patience_s)
    assert [*requests.ok] == [True, is_answered]
    assert cluster.replicas[0].now == (1.5 if is_answered else 1.0)


def test_several_servers_wait_as_m_m_c_does():
    """Erlang's C: the sequences of one engine are servers with one queue."""
    count, service_s, servers, share = 25_000, 0.1, 4, 0.8
    outputs = np.maximum(1, np.random.default_rng(3).exponential(service_s / STEP_S, count).round().astype(int))
    given = demand(poisson(servers * share / service_s, count, seed=5), outputs)
    requests, _ = run(given, servers=servers)
    load = servers * share
    terms = [load**k / np.prod(np.arange(1.0, k + 1)) for k in range(servers)]
    tail = load**servers / np.prod(np.arange(1.0, servers + 1)) / (1 - share)
    waits = tail / (sum(terms) + tail)
    assert waiting_of(requests) == pytest.approx(waits * service_s / (servers * (1 - share)), rel=0.1)


class GrowingSteps:
    """Steps that cost by what they hold, roughly as an engine's do."""

    def decode(self, sequences, context):
        return 0.005 + 1e-5 * sequences + 1e-8 * sequences * context

    def mixed(self, chunks, sequences, context):
        return self.decode(max(sequences, 1), context) + 1e-5 * sum(size for size, _ in chunks)


def heavy(seed=0, count=400):
    rng = np.random.default_rng(seed)
    return demand(poisson(20, count, seed), rng.integers(1, 300, count), rng.integers(1, 900, count))


@pytest.mark.parametrize("name", sorted(schedulers()))
@pytest.mark.parametrize("swap", [None, 1e-4])
def test_every_request_ends_once_and_every_block_comes_back(name, swap):
    """A cache so small that requests are preempted, under the rules of every engine."""
    given = heavy()
    requests, cluster = run(
        given, servers=32, rules=schedulers()[name], times=GrowingSteps(), blocks=150, tokens=512,
        swap_s_per_block=swap,
    )  # fmt: skip
    replica = cluster.replicas[0]
    assert len(requests) == len(given)
    assert requests.ok.all()
    assert np.all(requests.first_s >= requests.due_s)
    assert np.all(requests.last_s >= requests.first_s)
    assert replica.pool.is_whole
    assert replica.pool.free == 150
    assert cluster.under_way == 0
    if swap is None and schedulers()[name].order == "decode":
        tokens = np.array(replica.gap_tokens)
        assert tokens.sum() == given.output_tokens.sum() - len(given)  # every token but the first has a wait before it
        assert replica.gap_s @ tokens == pytest.approx((requests.last_s - requests.first_s).sum())
    if schedulers()[name].victim == "none":
        assert replica.preempted == 0
    elif schedulers()[name].admission != "estimate":
        assert replica.preempted > 0


def test_an_engine_with_work_never_rests():
    """Work conserving: it is busy from the first arrival on whenever somebody is in the system."""
    given = heavy(seed=4)
    requests, cluster = run(given, servers=64, times=GrowingSteps())
    events = np.sort(np.concatenate([requests.due_s, requests.last_s]))
    middles = (events[1:] + events[:-1]) / 2
    present = requests.in_flight(middles) > 0
    assert cluster.replicas[0].busy_s == pytest.approx(float((events[1:] - events[:-1])[present].sum()), rel=1e-9)


def test_a_run_of_steps_counts_as_the_steps_one_by_one():
    """What is coalesced is exact where steps grow evenly with what is cached."""
    together, _ = run(demand([0.0], [500], [64]), times=GrowingSteps())
    times, context, seconds = GrowingSteps(), 64, 0.0
    seconds += times.mixed([(64, 0)], 0, 0.0)
    for _ in range(499):
        seconds += times.decode(1, context)
        context += 1
    assert together.last_s[0] == pytest.approx(seconds, rel=1e-9)


def test_a_request_that_never_fits_is_refused_and_the_others_are_not():
    requests, _ = run(demand([0.0, 0.1], [10, 10], [10_000, 10]), blocks=100)
    assert requests.ok.tolist() == [False, True]


def test_a_step_planned_ahead_takes_a_request_one_step_later():
    """vLLM from 0.14 on plans a step while the one before it runs."""
    given = demand([0.0, 0.0105], [100, 5])
    early, _ = run(given, servers=8, rules=scheduler_of("vllm", "0.10"))
    late, _ = run(given, servers=8, rules=scheduler_of("vllm", "0.14"))
    assert late.first_s[1] - early.first_s[1] == pytest.approx(STEP_S)


def test_a_request_of_the_first_half_of_a_step_counts_as_come_at_its_begin_where_an_engine_took_the_time():
    rules = scheduler_of("vllm", "0.14")
    first = [
        run(demand([0.0, due], [100, 5]), servers=8, rules=rules, seen=0.5)[0].first_s[1] for due in (0.0104, 0.0106)
    ]
    assert first[1] - first[0] == pytest.approx(STEP_S)


def test_prompts_that_begin_alike_are_read_once():
    pieces = tuple(tuple((name, 512) for name in names) for names in ((0, 1, 2), (0, 1, 3), (0, 1, 2)))
    given = demand([0.0, 5.0, 10.0], [5, 5, 5], [1536, 1536, 1536], pieces=pieces)
    rules = scheduler_of("vllm")
    _, cluster = run(given, servers=8, rules=rules, prefix_cache=True)
    # Two pieces; then all but the last block of 16 tokens, since one token at least is computed.
    assert cluster.replicas[0].hit_tokens == 1024 + 1520
    _, cluster = run(given, servers=8, rules=rules, prefix_cache=False)
    assert cluster.replicas[0].hit_tokens == 0


def test_a_router_that_follows_prefixes_reads_less_than_one_that_takes_turns():
    rng = np.random.default_rng(7)
    groups = rng.integers(0, 8, 200)
    pieces = tuple(((int(group), 512), (100 + index, 512)) for index, group in enumerate(groups))
    given = demand(np.arange(200) * 0.2, np.full(200, 5), np.full(200, 1024), pieces=pieces)
    hits = {}
    for routing in ("round-robin", "prefix-aware"):
        _, cluster = run(given, servers=8, rules=scheduler_of("vllm"), replicas=4, routing=routing, prefix_cache=True)
        hits[routing] = sum(replica.hit_tokens for replica in cluster.replicas)
    assert hits["prefix-aware"] > hits["round-robin"]


def test_turns_of_a_session_wait_for_each_other_and_find_the_talk_cached():
    given = Demand(
        input_tokens=np.array([100, 50, 50]), output_tokens=np.array([20, 20, 20]), due_s=np.zeros(3),
        session=np.zeros(3, int), turn=np.arange(3), group=np.zeros(3, int), sharing=Sharing(turns=3, think_s=1.0),
    )  # fmt: skip
    sink = Columns()
    pool = ReplicaPool(
        times=EvenSteps(), rules=scheduler_of("vllm"),
        limits=EngineLimits(tokens=4096, sequences=8, blocks=1000, block_tokens=16),
    )  # fmt: skip
    source = RequestSource([given])

    def ended(request):
        sink.ended(request)
        source.ended(request)

    cluster = Cluster(pool, ended, sink.refused)
    cluster.run(source)
    requests = Requests.of(sink.columns())
    assert requests.input_tokens.tolist() == [100, 170, 240]
    assert np.allclose(requests.due_s[1:] - requests.last_s[:-1], 1.0)
    # Of 119 tokens that the first turn left (its last one was not read), 7 whole blocks; of 189 then 11.
    assert cluster.replicas[0].hit_tokens == 112 + 176


def test_urgent_requests_go_first():
    given = demand(np.zeros(100), np.full(100, 10))
    sink = Columns()
    pool = ReplicaPool(
        times=EvenSteps(), rules=PLAIN,
        limits=EngineLimits(tokens=4096, sequences=1, blocks=1 << 20, block_tokens=16, by_priority=True),
    )  # fmt: skip
    seen: list[SimulatedRequest] = []
    Cluster(pool, seen.append, sink.refused).run(RequestSource([given], kinds=Kinds(priorities=(0.3, 0.7))))
    order = [request.priority for request in seen[1:]]
    assert order == sorted(order)


def test_a_replica_without_memory_pressure_is_the_same_with_and_without_a_cache_of_prompts():
    given = heavy(seed=9)
    one, _ = run(given, servers=64, times=GrowingSteps(), prefix_cache=True)
    two, _ = run(given, servers=64, times=GrowingSteps(), prefix_cache=False)
    assert np.array_equal(one.last_s, two.last_s)


def test_a_replica_can_be_driven_by_hand():
    ended: list[SimulatedRequest] = []
    limits = EngineLimits(tokens=64, sequences=2, blocks=10, block_tokens=16)
    replica = Replica(EvenSteps(), PLAIN, limits, ended.append)
    replica.submit(SimulatedRequest(0, 1.0, 10, 3))
    replica.advance()
    assert [request.last for request in ended] == [pytest.approx(1.0 + 3 * STEP_S)]


class StepByStep(RequestSource):
    """Requests that are handed over one by one, so that the replica itself takes every step."""

    def plain(self):
        return None


def run_source(source, rules, limits):
    sink = Columns()
    cluster = Cluster(ReplicaPool(times=GrowingSteps(), rules=rules, limits=limits), sink.ended, sink.refused)
    cluster.run(source)
    return Requests.of(sink.columns()), cluster.replicas[0]


@pytest.mark.parametrize("seed", [*range(14), 80, 294])  # in the last two one is preempted and comes back at once
def test_the_loop_and_the_replica_give_every_request_the_same_times(seed):
    """Under the rules of every engine: idle and overloaded, with caches that are full and prompts in chunks."""
    rng = np.random.default_rng(seed)
    rules = (PLAIN, *schedulers().values())[seed % (1 + len(schedulers()))]
    rate = float(rng.uniform(1, 200))
    blocks, tokens, sequences = (int(rng.integers(*ends)) for ends in ((60, 1000), (64, 2048), (1, 65)))
    asked = demand(poisson(rate, 120, seed), rng.integers(1, 200, 120), rng.integers(1, 900, 120))
    limits = EngineLimits(tokens=tokens, sequences=min(sequences, tokens), blocks=blocks, block_tokens=16)
    quick, one = run_source(RequestSource([asked]), rules, limits)
    slow, other = run_source(StepByStep([asked]), rules, limits)
    assert np.array_equal(quick.ok, slow.ok)
    for name in ("first_s", "last_s"):
        np.testing.assert_allclose(getattr(quick, name), getattr(slow, name), rtol=1e-9)
    for name in ("busy_s", "sequence_s", "block_s"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)
    for name in ("steps", "preempted", "most_running", "most_waiting", "most_blocks", "read_tokens"):
        assert getattr(one, name) == getattr(other, name), name
    assert one.pool.free == blocks


@given(
    seed=st.integers(0, 10_000), patience=st.sampled_from([None, 0.005, 0.06]), queue=st.sampled_from([None, 1, 4]),
    longest=st.sampled_from([None, 120]), blocks=st.integers(12, 60), engine=st.sampled_from(["vllm", "sglang"]),
    shares=st.booleans(),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_whoever_is_refused_or_goes_away_leaves_no_block_behind(  # noqa: PLR0917 - each is drawn
    seed, patience, queue, longest, blocks, engine, shares
):
    """Every request is answered, refused or dropped, once; and at the end the whole cache is free."""
    rng, count, sink = np.random.default_rng(seed), 40, Columns()
    pieces = tuple(((int(name), 16),) for name in rng.integers(0, 3, count)) if shares else ()
    asked = demand(
        np.sort(rng.uniform(0, 0.04, count)), rng.integers(1, 40, count), rng.integers(17, 150, count), pieces=pieces
    )
    limits = EngineLimits(
        tokens=64, sequences=6, blocks=4 * blocks, block_tokens=4, patience_s=patience or np.inf, queue=queue,
        longest=longest,
    )  # fmt: skip
    pool = ReplicaPool(times=EvenSteps(), rules=scheduler_of(engine), limits=limits, replicas=2)
    cluster = Cluster(pool, sink.ended, sink.refused)
    cluster.run(RequestSource([asked]))
    rows = sink.columns()
    assert sorted(rows.session) == list(range(count))
    whole = asked.input_tokens + asked.output_tokens
    for number, outcome, due, last in zip(rows.session, rows.outcome, rows.due_s, rows.last_s, strict=True):
        assert (outcome == "too_long") == (whole[number] > min(longest or 1 << 30, 16 * blocks))
        assert outcome != "ok" or patience is None or last - due <= patience + 2 * STEP_S
    allowed = {"ok", "too_long", *(["queue_full"] if queue else []), *(["timeout"] if patience else [])}
    assert set(rows.outcome) <= allowed
    for replica in cluster.replicas:
        assert (replica.pool.free, replica.pool.is_whole, replica.is_idle) == (replica.pool.blocks, True, True)
        assert queue is None or replica.most_waiting <= queue


@given(seed=st.integers(0, 1000), blocks=st.integers(40, 400), forks=st.booleans())
@settings(max_examples=40, deadline=None)
def test_answers_that_are_remembered_neither_make_nor_lose_a_block(seed, blocks, forks):
    asked = trace_demand(
        made_up(
            Agents(
                sessions=6, rate_per_s=200.0, system=20, context=600, delegated=0.3 * forks, seed=seed,
                task=Lengths(kind="uniform", mean=20, low=1, high=40),
                calls=Lengths(kind="uniform", mean=4, low=1, high=7),
                answer=Lengths(kind="uniform", mean=20, low=1, high=40), tool_s=Lengths(kind="fixed", mean=0),
                result=Lengths(kind="uniform", mean=30, low=1, high=60),
            )
        )
    )  # fmt: skip
    sink, source = Columns(), RequestSource([asked])
    limits = EngineLimits(tokens=64, sequences=6, blocks=blocks, block_tokens=4)

    def ended(request):
        sink.ended(request)
        source.ended(request)

    def refused(request, outcome):
        sink.refused(request, outcome)
        for other in source.broken(request):
            sink.refused(other, "broken_off")

    cluster = Cluster(ReplicaPool(times=EvenSteps(), rules=scheduler_of("vllm"), limits=limits), ended, refused)
    cluster.run(source)
    assert sorted(sink.columns().session) == list(range(len(asked)))
    pool = cluster.replicas[0].pool
    assert (pool.free, pool.is_whole) == (blocks, True)


@pytest.mark.parametrize(("later_s", "hit"), [(0.0, 256), (0.0015, 768), (0.02, 1008)])
def test_a_prompt_is_found_as_far_as_it_has_been_computed(later_s, hit):
    """Two equal prompts of 1,024 tokens, 256 of one prompt a step: the second finds what the first has read by then."""
    asked = demand([0.0, later_s], [50, 5], [1024, 1024], pieces=(((1, 1024),), ((1, 1024),)))
    rules = replace(scheduler_of("vllm"), ahead=False)
    _, cluster = run(asked, servers=8, rules=rules, prefix_cache=True, tokens=512, chunk=256)
    assert cluster.replicas[0].hit_tokens == hit


def test_the_quick_loop_names_only_methods_that_a_replica_has():
    """Each of its blocks says which method it copies; one that was renamed would send a reader nowhere."""
    told = set(re.findall(r"\bReplica\.(\w+)", Path(plain.__file__).read_text(encoding="utf-8")))
    assert len(told) >= 20
    assert [name for name in told if not hasattr(Replica, name)] == []

"""Data-parallel ranks: replicas of their own, or a gang that shares experts and steps together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inferometer as im
from inferometer.core.errors import DomainError
from inferometer.core.traffic.demand import Demand
from inferometer.known.engines import scheduler_of
from inferometer.predict.ask import ask
from inferometer.predict.served.step import SecondsGrid
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate.building import service_of
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.serving.simulate.replica import EngineLimits
from inferometer.serving.simulate.service import Cluster, ReplicaPool
from inferometer.serving.simulate.sinks import Columns
from inferometer.serving.simulate.source import RequestSource
from inferometer.serving.simulate.times import GangTimes

SIZES = np.array([1, 4096])


class OneRank:
    """A rank with all experts by itself: 1 s and a millisecond a token."""

    kernels = kernels_prompt = 1.0

    def decode(self, sequences, _context):
        return 1.0 + 1e-3 * sequences

    def mixed(self, chunks, sequences, _context):
        return 1.0 + 1e-3 * (sequences + sum(size for size, _ in chunks))


def gang(*, padded_up_to=512):
    each = SecondsGrid(sizes=SIZES, seconds=1e-3 * SIZES)
    half = SecondsGrid(sizes=SIZES, seconds=0.5e-3 * SIZES)
    nothing = SecondsGrid(sizes=SIZES, seconds=0.0 * SIZES)
    return GangTimes(OneRank(), 2, alone=each, together=(half, nothing), most=2048, padded_up_to=padded_up_to)


def service(model="qwen3-30b-a3b", device="nvidia-h200", ranks=2, **parallel):
    question = ask(model, on=device, runtime="vllm", **parallel)
    return service_of(SimulationPlan(question=question, traffic=LoadPlan(url="", steps=(LoadStep(),)), ranks=ranks))


def test_ranks_with_equal_work_take_as_long_as_each_with_its_own_experts():
    assert gang().step([([], 10, 100.0)] * 2) == pytest.approx(1.01)


def test_a_rank_with_less_to_do_is_filled_up_where_steps_are_replayed():
    loads = [([(100, 0)], 0, 0.0), ([], 0, 0.0)]  # one rank reads, the other has nothing
    assert gang().step(loads) == pytest.approx(1.0 + 0.5e-3 * 200)
    assert gang(padded_up_to=64).step(loads) == pytest.approx(1.0 + 0.5e-3 * 100)


def test_experts_are_split_or_spread_over_all_ranks():
    split, _ = service()
    spread, _ = service(ep=2)
    assert split.pool.replicas == spread.pool.replicas == 1
    assert split.pool.limits == spread.pool.limits
    loads = [([], 64, 500.0)] * 2
    assert split.pool.gang.step(loads) == pytest.approx(spread.pool.gang.step(loads), rel=0.3)
    with pytest.raises(DomainError, match="--ep 2 for --enable-expert-parallel"):
        service(ep=4)


def test_a_gang_has_room_where_one_rank_could_not_hold_all_experts():
    made, notes = service("qwen3-235b-a22b", ranks=8)  # 470 GB of weights, 141 GB a device
    assert made.pool.limits.blocks > 1000
    assert any("8 data-parallel ranks share the experts" in note for note in notes)


def played(demand, *, ranks=2, routing="round-robin", replicas=1, **more):
    """All requests by number, and the cluster."""
    sink = Columns()
    limits = EngineLimits(**{"tokens": 256, "sequences": 4, "blocks": 200, "block_tokens": 16, **more})
    own = OneRank()
    pool = ReplicaPool(
        times=own, rules=scheduler_of("vllm"), limits=limits, ranks=ranks, replicas=replicas, gang=gang()
    )
    cluster = Cluster(pool, sink.ended, sink.refused, routing=routing)
    cluster.run(RequestSource([demand]))
    rows = sink.columns()
    times = zip(rows.due_s, rows.first_s, rows.last_s, strict=True)
    return dict(zip(rows.session, times, strict=True)), cluster, rows


def asked(due, inputs, outputs, pieces=()):
    count = len(due)
    return Demand(
        input_tokens=np.asarray(inputs), output_tokens=np.asarray(outputs), due_s=np.asarray(due, float),
        session=np.arange(count), turn=np.zeros(count, int), group=np.zeros(count, int), pieces=pieces,
    )  # fmt: skip


def test_a_rank_has_a_queue_of_its_own_though_another_has_places():
    """One sequence a rank: the third waits behind the first, whose rank it got, while the second's rank is free."""
    times, cluster, _ = played(asked([0, 0, 0.1], [10, 10, 10], [9, 2, 2]), sequences=1)
    assert [len(rank.running) for rank in cluster.replicas] == [0, 0]
    assert times[2][1] > times[0][2] > times[1][2]


def test_a_prompt_of_one_rank_delays_the_tokens_of_the_other():
    alone, _, _ = played(asked([0], [10], [5]))
    both, _, _ = played(asked([0, 2.5], [10, 250], [5, 1]))
    assert both[0][2] - alone[0][2] == pytest.approx(0.25, abs=0.2)  # 250 tokens of a millisecond, and filling up


def test_what_one_rank_has_read_the_other_does_not_find():
    same = tuple(((1, 160),) for _ in range(4))
    _, cluster, _ = played(asked([0, 20, 40, 60], [161] * 4, [2] * 4, same))
    assert [rank.hit_tokens for rank in cluster.replicas] == [160, 160]  # each its second one


@given(seed=st.integers(0, 5000), blocks=st.integers(14, 60), replicas=st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_ranks_that_step_together_conserve_requests_and_blocks(seed, blocks, replicas):
    rng, count = np.random.default_rng(seed), 30
    demand = asked(np.sort(rng.uniform(0, 60, count)), rng.integers(1, 200, count), rng.integers(1, 30, count))
    times, cluster, rows = played(demand, blocks=blocks, replicas=replicas, routing="least-loaded")
    assert sorted(rows.session) == list(range(count))
    whole = demand.input_tokens + demand.output_tokens
    for number, outcome in zip(rows.session, rows.outcome, strict=True):
        assert (outcome == "ok") == (whole[number] <= 16 * blocks)
        if outcome == "ok":
            due, first, last = times[number]
            assert due < first <= last
    for rank in cluster.replicas:
        assert (rank.pool.free, rank.is_idle) == (blocks, True)
        assert rank.most_running <= 4


def test_ranks_of_a_dense_model_are_replicas():
    made, _ = service("llama-3.1-8b", ranks=3)
    assert made.pool.replicas == 3


def test_llamacpp_reads_prompts_in_passes_of_their_own_whatever_computes():
    def times(device):
        question = ask("smollm2-135m", on=device, runtime="llamacpp", weights="q4_0")
        return service_of(SimulationPlan(question=question, traffic=LoadPlan(url="", steps=(LoadStep(),))))[
            0
        ].pool.times

    for times_of in (times("raspberry-pi-5"), times("nvidia-l4")):
        assert times_of.decode(4, 100.0) < 4 * times_of.decode(1, 100.0)  # neighbours share a pass
        together = times_of.mixed([(16, 0)], 2, 100.0)
        assert together == pytest.approx(times_of.decode(2, 100.0) + times_of.mixed([(16, 0)], 0, 0.0))


@pytest.mark.parametrize(("ep", "tp"), [(1, 1), (2, 1), (4, 2)])
def test_ranks_that_answer_are_beside_whole_replicas_that_read(ep, tp):
    """What spreads experts over ranks and devices of the one spreads them over the devices of a reader."""
    found = im.simulate(
        "qwen3-30b-a3b", on="nvidia-h200", runtime="vllm", tp=tp, dp=2, ep=ep, prefill_on="nvidia-h200",
        prefill_tp=tp, rate=20, requests=40, prompt=300, generate=20,
    )  # fmt: skip
    (level,) = found.served.levels
    assert set(level.requests.outcome) == {"ok"}
    assert found.device.count == 3 * tp
    assert 0 < level.server.counters["busy_share"] <= 1
    assert any("one alone" in note for note in found.provenance.notes)

"""Two pools, several answers, cancelled requests, adapters, images and drafts: by hand, and what holds for all."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core.errors import DomainError
from inferometer.core.traffic.demand import Sharing
from inferometer.core.traffic.requests import Requests
from inferometer.core.traffic.traces import RequestTrace
from inferometer.known.engines import scheduler_of
from inferometer.predict.ask import ask
from inferometer.predict.served.adapters import adapter_seconds
from inferometer.predict.served.question import served
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate import run as running
from inferometer.serving.simulate.building import service_of
from inferometer.serving.simulate.plan import Lora, SimulationPlan, Vision
from inferometer.serving.simulate.replica import Adapters, DraftLevel, Encoder, EngineLimits
from inferometer.serving.simulate.service import Cluster, ReplicaPool, Scaling, Service, TwoPools
from inferometer.serving.simulate.sinks import Columns
from inferometer.serving.simulate.source import TURNAROUND_S, Kinds, RequestSource
from unit.serving.simulate.test_queues import PLAIN, STEP_S, EvenSteps, GrowingSteps, demand

LIMITS = EngineLimits(tokens=4096, sequences=4, blocks=1000, block_tokens=16)
CACHING = replace(PLAIN, prefix_cache=True)


def played(asked, limits=LIMITS, *, kinds=None, rules=CACHING, times=None, concurrency=None, **service):
    """The rows of all requests by their number, and the clusters."""
    sink = Columns()
    pool = ReplicaPool(times=times or EvenSteps(), rules=rules, limits=limits, replicas=service.pop("replicas", 1))
    plan = SimpleNamespace(kinds=kinds or Kinds())
    clusters = running._run(plan, Service(pool=pool, **service), [asked], sink.ended, sink.refused, concurrency)
    columns = sink.columns()
    rows = zip(columns.session, columns.outcome, columns.due_s, columns.first_s, columns.last_s, strict=True)
    return {number: row for number, *row in sorted(rows)}, clusters


def steps_of(seconds):
    return round(seconds / STEP_S)


# What holds for all of them


@given(
    seed=st.integers(0, 10_000),
    engine=st.sampled_from(["vllm", "sglang", "trtllm"]),
    blocks=st.integers(30, 120),
    answers=st.sampled_from([1, 3]),
    cancels=st.sampled_from([None, (0.3, 0.01), (0.5, 0.03)]),
    patience=st.sampled_from([None, 0.08]),
    queue=st.sampled_from([None, 5]),
    paces=st.sampled_from([(), (1.2, 2.4, 3.1)]),
    slots=st.sampled_from([None, 1, 2]),
    images=st.sampled_from([0, 2]),
    apart=st.booleans(),
    turns=st.sampled_from([1, 3]),
    concurrency=st.sampled_from([None, 4]),
    priorities=st.sampled_from([(), (0.3, 0.7)]),
    scaling=st.sampled_from([None, "requests", "waiting", "cache"]),
)
@settings(max_examples=100, deadline=None)
def test_every_request_ends_once_and_every_block_comes_back(  # noqa: PLR0917 - each is drawn
    seed, engine, blocks, answers, cancels, patience, queue, paces, slots, images, apart, turns, concurrency,
    priorities, scaling,
):  # fmt: skip
    """Any of them together: each request has one end, and at the last every cache is free and its books balance."""
    rng, sessions = np.random.default_rng(seed), 12
    count = sessions * turns
    asked = demand(
        np.repeat(np.sort(rng.uniform(0, 0.05, sessions)), turns) if concurrency is None else np.empty(0),
        rng.integers(1, 40, count), rng.integers(10, 90, count),
        sharing=Sharing(turns=turns, prefix_tokens=8),
    ) if concurrency is None else closed(rng, sessions, turns)  # fmt: skip
    asked = replace(
        asked, session=np.repeat(np.arange(sessions), turns), turn=np.tile(np.arange(turns), sessions), after=(),
    ).with_answers(answers)  # fmt: skip
    limits = EngineLimits(
        tokens=64, sequences=6, blocks=4 * blocks, block_tokens=4, patience_s=patience or np.inf, queue=queue,
        cancels=cancels, paces=paces, kept=sum(paces) / 3 if paces else 1.0, per_sequence=4 if paces else 1,
        adapters=Adapters(slots=slots, load_s=0.002) if slots else None, by_priority=bool(priorities),
        encoder=Encoder(image_s=0.003, image_tokens=8, cache_tokens=40) if images else None,
    )  # fmt: skip
    reading = (
        ReplicaPool(times=GrowingSteps(), rules=scheduler_of(engine), limits=limits, replicas=2) if apart else None
    )
    rows, clusters = played(
        asked, limits, rules=scheduler_of(engine), times=GrowingSteps(), concurrency=concurrency, replicas=2,
        kinds=Kinds(priorities=priorities, adapters=5 if slots else 0, images=images, pictures=4 if images else 0),
        reading=reading, handover_s=1e-4, routing="least-loaded",
        scaling=None if scaling is None else Scaling(
            least=1, most=3, target=0.5 if scaling == "cache" else 3, cold_start_s=0.01, interval_s=0.005, idle_s=0.01,
            signal=scaling),
    )  # fmt: skip
    assert list(rows) == list(range(len(asked)))
    for outcome, due, first, last in rows.values():
        assert outcome in {"ok", "too_long", "broken_off", *(["queue_full"] if queue else []),
                           *(["cancelled"] if cancels else []), *(["timeout"] if patience else [])}  # fmt: skip
        assert outcome != "ok" or due <= first <= last
    for cluster in clusters:
        for replica in cluster.replicas:
            assert (replica.pool.free, replica.pool.is_whole) == (replica.pool.blocks, True)
            assert (replica.is_idle, replica.held, replica.decoding) == (True, {}, 0)
            assert sum(sum(pace.turns) for pace in replica.paces) == 0


def closed(rng, sessions, turns):
    count = sessions * turns
    made = demand(
        np.zeros(count), rng.integers(1, 40, count), rng.integers(10, 90, count), sharing=Sharing(turns=turns)
    )
    return replace(made, due_s=np.empty(0))


# Two pools


def test_readers_stop_while_those_who_answer_have_no_room():
    """Both pools hold one prompt: the second is read when the first is handed on, the third when that is answered."""
    reading = ReplicaPool(times=EvenSteps(), rules=PLAIN, limits=replace(LIMITS, blocks=7, tokens=100))
    asked = demand([0.0] * 3, [20] * 3, [100] * 3)
    rows, _ = played(asked, replace(LIMITS, blocks=9), rules=PLAIN, reading=reading)
    ends = [steps_of(last) for _, _, _, last in rows.values()]
    firsts = [steps_of(first) for _, _, first, _ in rows.values()]
    assert ends[0] == 20  # read in the first step, and 19 more there
    assert firsts == [1, 2, 21]
    assert ends[1] == 20 + 19  # its tokens follow those of the first without a break


def test_caches_go_over_the_link_one_after_the_other_and_two_links_halve_the_wait():
    asked = demand([0.0] * 4, [5] * 4, [100] * 4)
    ends = {}
    for pairs in (1, 4):
        pool = ReplicaPool(times=EvenSteps(), rules=PLAIN, limits=replace(LIMITS, tokens=100), replicas=pairs)
        rows, _ = played(asked, replicas=pairs, rules=PLAIN, reading=pool, handover_s=1e-4)
        ends[pairs] = [steps_of(last) for *_, last in rows.values()]
    assert ends[1] == [1 + 10 + 4, 1 + 20 + 4, 1 + 30 + 4, 1 + 40 + 4]  # each takes ten steps on the link
    assert ends[4] == [1 + 10 + 4] * 4


def test_a_conversation_goes_on_through_both_pools():
    asked = replace(demand([0.0, 0.0], [3, 3], [20, 20], sharing=Sharing(turns=2)),
                    session=np.zeros(2, int), turn=np.arange(2))  # fmt: skip
    asked = replace(asked, after=())
    rows, clusters = played(asked, reading=ReplicaPool(times=EvenSteps(), rules=CACHING, limits=LIMITS))
    assert [steps_of(row[1]) for row in rows.values()] == [0, 3]
    assert clusters[1].replicas[0].hit_tokens == 16  # of the first turn's prompt; its answer was made elsewhere


def test_what_the_pool_of_answers_could_never_hold_is_not_read():
    sink = Columns()
    pool = ReplicaPool(times=EvenSteps(), rules=PLAIN, limits=replace(LIMITS, blocks=2))
    pools = TwoPools(Service(pool=pool, reading=replace(pool, limits=LIMITS)), sink.ended, sink.refused)
    pools.run(RequestSource([demand([0.0], [30], [10])]))
    assert (sink.columns().outcome, pools.readers.replicas[0].read_tokens) == (("too_long",), 0)
    assert sink.columns().output_tokens == (30,)


# Several answers, and those that nobody waits for


def test_several_answers_read_their_prompt_once_and_share_a_place():
    asked = demand([0.0, 0.5], [4, 4], [64, 64]).with_answers(3)
    rows, (cluster,) = played(asked)
    assert [steps_of(last) for *_, last in rows.values()] == [4, 4, 4, 504, 504, 504]
    replica = cluster.replicas[0]
    assert (replica.read_tokens, replica.hit_tokens) == (2 * (64 + 2 * 16), 2 * 2 * 48)  # all but the last block
    places = replace(demand([0.0] * 4, [4] * 4, [64] * 4), due_s=np.empty(0)).with_answers(2)
    rows, _ = played(places, concurrency=2)
    assert sorted(steps_of(row[1]) for row in rows.values()) == [0] * 4 + [4] * 4


class SlowSteps(EvenSteps):
    def decode(self, _sequences, _context):
        return 10 * STEP_S

    def mixed(self, _chunks, _sequences, _context):
        return 10 * STEP_S


def test_who_follows_an_answer_misses_the_step_that_has_begun_by_then():
    """Steps of 10 ms: the third comes when the first has ended, after four, while the second's fifth has begun."""
    places = replace(demand([0.0] * 3, [4, 20, 4], [64] * 3), due_s=np.empty(0))
    rows, _ = played(places, concurrency=2, times=SlowSteps())
    _, due, first, last = rows[2]
    assert [steps_of(one) for one in (due, first, last)] == [40, 60, 90]
    alone, _ = played(places, concurrency=1, times=SlowSteps())
    assert alone[1][2] - alone[1][1] == pytest.approx(10 * STEP_S + TURNAROUND_S)  # nobody else's step to wait for


def test_the_next_turn_waits_for_all_answers_and_goes_on_from_the_first():
    asked = replace(demand([0.0, 0.0], [4, 2], [20, 5], sharing=Sharing(turns=2)),
                    session=np.zeros(2, int), turn=np.arange(2), after=())  # fmt: skip
    asked = asked.with_answers(2)
    assert (asked.after, asked.continues.tolist()) == (((), (), (0, 1), (0, 1)), [-1, -1, 0, 0])
    assert asked.prompt_tokens().tolist() == [20, 20, 29, 29]


def test_a_share_of_the_requests_is_taken_back_after_a_time():
    count = 1000
    asked = demand(np.arange(count) * 0.1, [50] * count, [10] * count)
    rows, (cluster,) = played(asked, replace(LIMITS, cancels=(0.3, 0.02)))
    outcomes = [outcome for outcome, *_ in rows.values()]
    assert outcomes.count("cancelled") == pytest.approx(300, abs=5)
    assert outcomes.count("ok") == count - outcomes.count("cancelled")
    assert cluster.under_way == 0
    both, _ = played(asked, replace(LIMITS, cancels=(0.3, 0.02), patience_s=0.01))
    assert {outcome for outcome, *_ in both.values()} == {"timeout"}  # before anybody could take one back


# Adapters, images, drafts


def test_whoever_needs_an_adapter_without_a_slot_lets_others_pass():
    limits = replace(LIMITS, adapters=Adapters(slots=1, load_s=0.01), sequences=2)
    asked = demand([0.0, 0.0, 0.0], [5, 5, 5], [10, 10, 10])
    sink = Columns()
    cluster = Cluster(ReplicaPool(times=EvenSteps(), rules=PLAIN, limits=limits), sink.ended, sink.refused)
    source = RequestSource([asked], kinds=Kinds(adapters=2))
    for adapter in (0, 1, 0):
        request = source.take()
        request.adapter = adapter
        cluster.submit(request)
    cluster.advance(cluster.replicas[0])
    columns = sink.columns()
    ends = dict(zip(columns.session, columns.last_s, strict=True))
    loading = round(0.01 / STEP_S)
    assert [steps_of(ends[number]) for number in range(3)] == [5 + loading, 10 + 2 * loading, 5 + loading]
    assert cluster.replicas[0].adapter_loads == 2


def test_an_image_is_encoded_once_as_long_as_its_result_is_kept():
    limits = replace(LIMITS, encoder=Encoder(image_s=0.1, image_tokens=10, cache_tokens=30))
    asked = demand(np.arange(40.0), [2] * 40, [10] * 40)
    rows, (cluster,) = played(asked, limits, kinds=Kinds(images=2, pictures=3))
    replica = cluster.replicas[0]
    assert (replica.images_encoded, replica.images_found) == (3, 77)
    assert max(steps_of(first - due) for _, due, first, _ in rows.values()) == 201
    _, (small,) = played(asked, replace(limits, encoder=replace(limits.encoder, cache_tokens=10)),
                         kinds=Kinds(images=2, pictures=3))  # fmt: skip
    assert small.replicas[0].images_encoded > 40
    _, (new,) = played(asked, limits, kinds=Kinds(images=2))
    assert new.replicas[0].images_encoded == 80


def test_drafts_that_suit_requests_unevenly_are_slower_on_average_than_even_ones():
    question = ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm")
    traffic = LoadPlan(url="")

    def built(**more):
        return service_of(SimulationPlan(question=question, traffic=traffic, speculation=(4, 0.6), **more))[0].pool

    even, uneven = built().limits, built(spread=0.2).limits
    assert (even.paces, len(uneven.paces)) == ((), 5)
    assert sorted(uneven.paces) == list(uneven.paces)
    asked = demand(np.arange(50.0), [100] * 50, [10] * 50)
    lasting = {
        name: [last - first for _, _, first, last in played(asked, replace(LIMITS, kept=of.kept, paces=of.paces,
               per_sequence=5))[0].values()]
        for name, of in (("even", even), ("uneven", uneven))
    }  # fmt: skip
    assert len({steps_of(one) for one in lasting["even"]}) == 1
    assert len({steps_of(one) for one in lasting["uneven"]}) == 5
    assert np.mean(lasting["uneven"]) > np.mean(lasting["even"])


@given(
    seed=st.integers(0, 10_000), most=st.integers(1, 6), length=st.integers(1, 5), acceptance=st.floats(0, 0.95),
    spread=st.sampled_from([0.0, 0.2]),
)  # fmt: skip
@settings(max_examples=50, deadline=None)
def test_drafts_by_load_are_those_of_any_load_below_their_end_and_none_beyond(seed, most, length, acceptance, spread):
    """A closed loop of fewer than `most` drafts in every step; one of more, once all of them decode, in none."""
    rng = np.random.default_rng(seed)
    asked = replace(closed(rng, 10, 1), output_tokens=rng.integers(20, 90, 10), group=np.zeros(10, int))
    question, drafts = ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm"), {"speculation": (length, acceptance)}
    plan = SimulationPlan(question=question, traffic=LoadPlan(url=""), spread=spread, **drafts)
    always = service_of(plan)[0].pool
    by_load = service_of(replace(plan, draft_up_to=((most, length),)))[0].pool
    never = service_of(replace(plan, speculation=None, spread=0.0))[0].pool

    def ends(pool, concurrency):
        limits = replace(pool.limits, blocks=4000)
        return played(asked, limits, times=pool.times, concurrency=concurrency)[0]

    assert ends(by_load, most) == ends(always, most)
    assert [by_load.times.decode(n, 64.0) for n in range(1, most + 1)] == pytest.approx(
        [always.times.decode(n, 64.0) for n in range(1, most + 1)]
    )
    assert by_load.times.decode(most + 1, 64.0) == pytest.approx(never.times.decode(most + 1, 64.0))
    whole = [one for one in ends(by_load, most + 2).values() if one[0] == "ok"]
    assert len(whole) == 10


def test_a_request_that_drafts_at_two_loads_makes_its_tokens_at_both_paces():
    """Alone it makes 2.3 tokens a step; after 16 of them, another decodes beside it and both make one."""
    levels = (DraftLevel(most=1, paces=(2.3,), per_sequence=4), DraftLevel(most=np.inf))
    asked = demand([0.0, 15.5 * STEP_S], [102, 31], [2, 2])
    rows, _ = played(asked, replace(LIMITS, levels=levels))
    first, second = (steps_of(last) for _, _, _, last in rows.values())
    assert second == 17 + 30  # its prompt in the 17th step, and then one a step
    # 36.8 tokens, of which no part is lost; 30 beside the other; and the rest alone again
    assert first == 47 + int(np.ceil((101 - 16 * 2.3 - 30) / 2.3))


def test_a_head_that_drafts_takes_a_layers_time_and_room_and_n_grams_take_none():
    question = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm")
    plan = SimulationPlan(question=question, traffic=LoadPlan(url=""), speculation=(2, 0.6))
    pools = {head: service_of(replace(plan, head=head))[0].pool for head in ("ngram", "eagle", "mtp")}
    assert pools["eagle"].limits.blocks < 0.97 * pools["ngram"].limits.blocks
    without, beside = (pools[head].times.decode(8, 500.0) for head in ("ngram", "eagle"))
    step = served(question).step
    kernels = step.dense.at(8.0) / 32 + step.logits.at(8.0) + step.decode.at(8.0, 500.0) / 32
    assert beside - without == pytest.approx(2 * step.costs.kernels.value * kernels, rel=0.02)
    assert pools["mtp"].times.mixed([(512, 0)], 0, 0.0) > pools["ngram"].times.mixed([(512, 0)], 0, 0.0)


def test_an_adapter_is_two_thin_matrices_beside_every_product():
    question = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm")
    lora = Lora(adapters=8, rank=16, slots=4)
    limits = service_of(SimulationPlan(question=question, traffic=LoadPlan(url=""), lora=lora))[0].pool.limits
    assert limits.adapters.slots == 4
    a_layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)  # q and o, k and v, gate, up and down
    rate = question.device.host_link.bandwidth_bytes_per_s.value
    assert limits.adapters.load_s == pytest.approx(2 * 16 * 32 * a_layer / rate)


def test_room_for_every_slot_of_adapters_and_for_an_encoder_is_kept_from_the_cache():
    question = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm")
    plain = SimulationPlan(question=question, traffic=LoadPlan(url=""))

    def blocks(**more):
        return service_of(replace(plain, **more))[0].pool.limits.blocks

    a_slot = 2 * 64 * 32 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    a_block = 16 * 131072
    kept = Lora(adapters=8, rank=64, slots=4)
    seen = Vision(images=1, tokens=8, encode_s=0.1, weights_bytes=1e9)
    assert blocks() - blocks(lora=kept) == pytest.approx(4 * a_slot / a_block, abs=1)
    assert blocks() - blocks(lora=kept, vision=seen) == pytest.approx((4 * a_slot + 1e9) / a_block, abs=1)
    assert blocks(lora=kept, blocks=500) == 500
    with pytest.raises(DomainError, match="no room for a cache"):
        blocks(lora=replace(kept, slots=1000))


@pytest.mark.parametrize(
    "wrong",
    [{"answers": 0}, {"cancels": (0.0, 1.0)}, {"cancels": (0.5, 0.0)}, {"spread": 0.2},
     {"spread": 0.7, "speculation": (4, 0.5)}],
)  # fmt: skip
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(DomainError):
        SimulationPlan(question=None, traffic=None, **wrong)
    for made, values in ((Lora, (0, 1, 1)), (Lora, (1, 1, 0)), (Vision, (1, 0, 0.1)), (Vision, (1, 1, -1.0))):
        names = ("adapters", "rank", "slots") if made is Lora else ("images", "tokens", "encode_s")
        with pytest.raises(DomainError):
            made(**dict(zip(names, values, strict=True)))


def test_a_long_trace_is_streamed_unless_each_request_is_asked_for(monkeypatch):
    """The figures are the same but for the width of a bin; the first tenth is in none."""
    rng = np.random.default_rng(7)
    count = 3000
    trace = RequestTrace(
        name="long", form="ours", arrival_s=np.sort(rng.uniform(0, 300, count)),
        input_tokens=rng.integers(1, 900, count), output_tokens=rng.integers(2, 60, count),
    )  # fmt: skip
    question = ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm")
    plan = SimulationPlan(question=question, traffic=LoadPlan(url="simulated", trace=trace, steps=(LoadStep(),)))
    monkeypatch.setattr(running, "MOST_KEPT", 1000)
    monkeypatch.setattr("inferometer.serving.simulate.source._PIECE", 100)
    short, whole = (running.simulate(replace(plan, keeps=keeps)).served.levels[0] for keeps in (False, True))
    assert (short.requests, len(whole.requests)) == (None, count)
    assert (short.stated.requests, short.stated.completed) == (count, count)
    kept = Requests.of(whole.requests).where(np.array(whole.requests.due_s) >= np.quantile(trace.arrival_s, 0.1))
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        times = getattr(kept, name)
        assert getattr(short.stated, name).mean == pytest.approx(float(np.nanmean(times)), rel=1e-6)
        assert getattr(short.stated, name).p95 == pytest.approx(float(np.nanquantile(times, 0.95)), rel=0.02)


def _adapters(model="llama-3.1-8b", device="nvidia-h100-sxm", *, rank=16, many=8, slots=8, **parallel):
    question = ask(model, on=device, runtime="vllm", **parallel)
    return adapter_seconds(question, rank, many, slots)


@given(
    rank=st.sampled_from([4, 16, 64]), slots=st.integers(1, 24), tokens=st.integers(1, 3000), more=st.integers(1, 500),
    sequences=st.integers(1, 100),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_products_of_adapters_grow_with_tokens_sequences_and_rank(rank, slots, tokens, more, sequences):
    """And reading the matrices of those that are used takes its time on the memory at least."""
    few, wide = (_adapters(rank=each, many=slots, slots=slots) for each in (rank, 4 * rank))
    at = few.at(tokens + sequences, sequences)
    assert 0 < at <= few.at(tokens + sequences + more, sequences) * 1.001
    assert at <= wide.at(tokens + sequences, sequences) * 1.001
    assert few.at(sequences, sequences) <= few.at(sequences + more, sequences + more) * 1.001
    a_layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    a_matrix = 2 * rank * 32 * a_layer / 3.35e12  # bytes of all layers over the memory's bandwidth
    assert at >= 0.9 * few.used(sequences) * a_matrix * 0.75  # q, k and v read one A each, gate and up too


def test_a_step_with_adapters_is_longer_by_their_products_and_a_chunk_by_its_tokens():
    question = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm")
    plan = SimulationPlan(question=question, traffic=LoadPlan(url=""))
    pools = [service_of(replace(plan, lora=lora))[0].pool.times for lora in (None, Lora(adapters=8, rank=16, slots=4))]
    own = _adapters(many=8, slots=4)
    for count in (1, 7, 64):
        added = pools[1].decode(count, 512.0) - pools[0].decode(count, 512.0)
        assert added == pytest.approx(pools[0].kernels * own.at(count, count), rel=1e-6)
    read = pools[1].mixed([(2048, 0)], 4, 512.0) - pools[0].mixed([(2048, 0)], 4, 512.0)
    alone = pools[0].kernels * own.at(4, 4)
    assert read == pytest.approx(alone + pools[0].kernels_prompt * (own.at(2052, 5) - own.at(4, 4)), rel=1e-6)
    assert [_adapters(tp=tp).launches for tp in (1, 2)] == [8 * 32] * 2  # a layer's q k v, o, gate up, down: two each
    assert _adapters(tp=4).at(16384, 64) < 0.6 * _adapters().at(16384, 64)  # few tokens wait for launches


def test_the_first_tenth_of_a_long_trace_is_in_no_figure_where_turns_wait_for_answers(monkeypatch):
    starts = []
    streamed = running.Streamed
    monkeypatch.setattr(running, "MOST_KEPT", 10)
    watched = lambda *given, start_s: starts.append(start_s) or streamed(*given, start_s=start_s)  # noqa: E731
    monkeypatch.setattr(running, "Streamed", watched)
    arrival_s = np.array([0.0, 1.0, *(float(at) for at in range(2, 40)), np.nan])
    trace = RequestTrace(
        name="turns", form="ours", arrival_s=arrival_s, input_tokens=np.full(41, 30), output_tokens=np.full(41, 4),
        session=np.array([*range(40), 0]), turn=np.array([0] * 40 + [1]), after=((),) * 40 + ((0,),),
        wait_s=np.zeros(41),
    )  # fmt: skip
    question = ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm")
    plan = SimulationPlan(question=question, traffic=LoadPlan(url="simulated", trace=trace, steps=(LoadStep(),)))
    running.simulate(plan)
    assert starts == [pytest.approx(3.9)]

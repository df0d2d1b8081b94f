"""Whatever serves and whatever comes: after every step the blocks add up, and every request has one end."""

from collections import Counter
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core.errors import EngineError
from inferometer.core.traffic.demand import Sharing
from inferometer.known.engines import schedulers
from inferometer.serving.simulate import replica as replicas_of
from inferometer.serving.simulate import run as running
from inferometer.serving.simulate import service as services
from inferometer.serving.simulate.cache import Tier
from inferometer.serving.simulate.replica import Adapters, DraftLevel, Encoder, EngineLimits, Replica
from inferometer.serving.simulate.service import SIGNALS, ReplicaPool, Scaling, Service
from inferometer.serving.simulate.sinks import Columns
from inferometer.serving.simulate.source import Kinds
from unit.serving.simulate.test_gang import gang
from unit.serving.simulate.test_queues import GrowingSteps, demand

# Drafts that grow shorter with the load, and are switched off.
BY_LOAD = (DraftLevel(most=2, paces=(1.2, 2.4, 3.1), per_sequence=4), DraftLevel(most=4, paces=(1.7,), per_sequence=2),
           DraftLevel(most=np.inf))  # fmt: skip
_PAGED = sorted(name for name, rules in schedulers().items() if rules.slots is None)


class Audited(Replica):
    """After every step, the blocks of the cache are those that are free, and those that somebody is known to have."""

    def take(self, until):
        is_any = super().take(until)
        self.audit()
        return is_any

    def do_step(self, chunks, seconds):
        is_any = super().do_step(chunks, seconds)
        self.audit()
        return is_any

    def audit(self):
        pool, users, own = self.pool, Counter(), 0
        for request in self.running:
            taken = (
                (-self.tick - request.turn) // self._pace(request).period if request.end and not self.reserves else 0
            )
            own += request.blocks - request.shared - taken  # beside those that it shares
            users.update(name for name, _ in request.pieces)
        for blocks, pieces in self.held.values():
            own += blocks
            users.update(name for name, _ in pieces)
        assert pool.is_whole
        assert {name: used[0] for name, used in pool._used.items()} == users
        assert pool.free + own + sum(used[1] for used in pool._used.values()) == pool.blocks


@pytest.fixture(autouse=True)
def _audited(monkeypatch):
    monkeypatch.setattr(services, "Replica", Audited)
    monkeypatch.setattr(replicas_of, "_MOST_IN_VAIN", 1000)


@st.composite
def demands(draw):
    """Requests in sessions of turns with several answers, alike at their begins as groups or as blocks of a trace."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    sessions, turns, answers = draw(st.sampled_from([6, 30])), draw(st.sampled_from([1, 1, 3])), draw(st.integers(1, 3))
    count, longest = sessions * turns, draw(st.sampled_from([40, 200]))
    is_closed = draw(st.booleans())
    due = np.repeat(np.sort(rng.uniform(0, draw(st.sampled_from([0.01, 0.3, 3.0])), sessions)), turns)
    asked = demand(
        np.zeros(count) if is_closed else due, rng.integers(1, 60, count), rng.integers(1, longest, count),
        sharing=Sharing(turns=turns, prefix_tokens=draw(st.sampled_from([0, 8, 100])), groups=2),
    )  # fmt: skip
    asked = replace(
        asked, group=rng.integers(0, 2, count), session=np.repeat(np.arange(sessions), turns),
        turn=np.tile(np.arange(turns), sessions), after=(), due_s=np.empty(0) if is_closed else due,
    )  # fmt: skip
    if turns == 1 and draw(st.booleans()):
        asked = replace(
            asked, pieces=tuple(_blocks_of(rng, number, int(t)) for number, t in enumerate(asked.input_tokens))
        )
    return asked.with_answers(answers), 4 if is_closed else None


def _sized(limit, asked):
    """Where 0 blocks were drawn: a cache that holds the longest request, and not a block more."""
    longest = int((asked.prompt_tokens() + asked.output_tokens).max())
    return limit if limit.blocks else replace(limit, blocks=-(-longest // limit.block_tokens))


def _blocks_of(rng, number, tokens):
    """Blocks of 16 tokens as traces name them: some of a shared begin, and its own ones."""
    shared = int(rng.integers(0, tokens // 16 + 1))
    return tuple((("block", place if place < shared else (number, place)), 16) for place in range(tokens // 16))


@st.composite
def limits(draw):
    paces = draw(st.sampled_from([(), (), (1.2, 2.4, 3.1)]))
    return EngineLimits(
        tokens=draw(st.sampled_from([64, 512])), sequences=draw(st.sampled_from([6, 32])),
        blocks=draw(st.sampled_from([0, 60, 150, 4000])), block_tokens=draw(st.sampled_from([4, 16])),
        patience_s=draw(st.sampled_from([np.inf, np.inf, 0.08])), queue=draw(st.sampled_from([None, None, 5])),
        cancels=draw(st.sampled_from([None, None, (0.3, 0.01)])), by_priority=draw(st.booleans()),
        paces=paces, kept=sum(paces) / 3 if paces else 1.0, per_sequence=4 if paces else 1,
        levels=draw(st.sampled_from([(), (), BY_LOAD])), seen=draw(st.sampled_from([0.0, 0.3])),
        chunk=draw(st.sampled_from([None, None, 40])),
        longest=draw(st.sampled_from([None, 200])), swap_s_per_block=draw(st.sampled_from([None, None, 1e-4])),
        tiers=draw(st.sampled_from([(), (Tier(blocks=8, load_s=1e-4), Tier(blocks=200, load_s=1e-3))])),
        prefix_cache=draw(st.sampled_from([True, True, False])),
    )  # fmt: skip


def _extended(limit, slots, images):
    """With adapters and images, and what requests then ask for."""
    limit = replace(
        limit, adapters=Adapters(slots=slots, load_s=0.002) if slots else None,
        encoder=Encoder(image_s=0.003, image_tokens=8, cache_tokens=40) if images else None,
    )  # fmt: skip
    return limit, Kinds(
        priorities=(0.3, 0.7) if limit.by_priority else (), adapters=5 if slots else 0, images=images,
        pictures=4 if images else 0,
    )  # fmt: skip


def _scaling(signal):
    return None if signal is None else Scaling(
        least=1, most=3, target=0.5 if signal == "cache" else 3, cold_start_s=0.01, interval_s=0.005, idle_s=0.01,
        signal=signal,
    )  # fmt: skip


def _played(asked, service, kinds=None):
    demanded, concurrency = asked
    sink, plan = Columns(), SimpleNamespace(kinds=kinds or Kinds())
    clusters = running._run(plan, service, [demanded], sink.ended, sink.refused, concurrency)
    rows = sink.columns()
    assert sorted(rows.session) == list(range(len(demanded)))
    for replica in (replica for cluster in clusters for replica in cluster.replicas):
        replica.audit()
        assert (replica.is_idle, replica.held, replica.pool.free) == (True, {}, replica.pool.blocks)


def test_a_reader_alone_waits_for_the_blocks_that_it_has_handed_on():
    """Prompts of six blocks in caches of nine: while the first is answered the second is held, and the third waits."""
    limit = EngineLimits(tokens=32, sequences=4, blocks=9, block_tokens=16, prefix_cache=False)
    pool = ReplicaPool(times=GrowingSteps(), rules=schedulers()["vllm-0.8"], limits=limit)
    _played((demand([0.0] * 3, [30] * 3, [96] * 3), None), Service(pool=pool, reading=pool, handover_s=1e-4))


@pytest.mark.parametrize("engine", _PAGED)
@pytest.mark.parametrize("swap", [None, 1e-4])
@pytest.mark.parametrize("paces", [(), (1.2,), (2.4,), (3.1,)])
def test_requests_of_which_the_cache_holds_one_or_two_are_all_answered(engine, swap, paces):
    for inputs, blocks in product(range(1, 40, 3), (10, 15, 19)):
        limit = EngineLimits(
            tokens=16, sequences=4, blocks=blocks, block_tokens=4, swap_s_per_block=swap, prefix_cache=False,
            paces=paces, kept=sum(paces) or 1.0, per_sequence=4 if paces else 1,
        )  # fmt: skip
        pool = ReplicaPool(times=GrowingSteps(), rules=schedulers()[engine], limits=limit)
        _played((demand([0.0] * 3, [40 - inputs] * 3, [inputs] * 3), None), Service(pool=pool))


def test_a_simulation_that_makes_no_progress_ends_with_an_error(monkeypatch):
    """Here a prompt gives way whenever it is read on, though there is room."""
    monkeypatch.setattr(Audited, "_has_room", lambda replica, *_: not replica._preempt())
    limit = EngineLimits(tokens=64, sequences=4, blocks=100, block_tokens=16, by_priority=True)
    pool = ReplicaPool(times=GrowingSteps(), rules=schedulers()["vllm-0.19"], limits=limit)
    with pytest.raises(EngineError, match=r"stands still.*fault of the simulator"):
        _played((demand([0.0, 0.0], [30, 30], [96, 96]), None), Service(pool=pool))


@given(
    asked=demands(), limit=limits(), engine=st.sampled_from(_PAGED), replicas=st.integers(1, 3),
    slots=st.sampled_from([None, None, 2]), images=st.sampled_from([0, 0, 2]), apart=st.booleans(),
    signal=st.sampled_from([None, None, *SIGNALS]), routing=st.sampled_from(services.ROUTINGS),
)  # fmt: skip
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_service_of_any_engine_keeps_its_books(  # noqa: PLR0917 - each is drawn
    asked, limit, engine, replicas, slots, images, apart, signal, routing
):
    limit, kinds = _extended(_sized(limit, asked[0]), slots, images)
    pool = ReplicaPool(times=GrowingSteps(), rules=schedulers()[engine], limits=limit, replicas=replicas)
    service = Service(
        pool=pool, routing=routing, scaling=_scaling(signal), reading=pool if apart else None, handover_s=1e-4
    )
    _played(asked, service, kinds)


@given(
    asked=demands(), limit=limits(), engine=st.sampled_from(_PAGED), replicas=st.integers(1, 2),
    slots=st.sampled_from([None, None, 2]), images=st.sampled_from([0, 0, 2]),
    apart=st.booleans(), signal=st.sampled_from([None, None, *SIGNALS]), routing=st.sampled_from(services.ROUTINGS),
)  # fmt: skip
@settings(max_examples=100, deadline=None, derandomize=True)
def test_ranks_that_step_together_keep_their_books(  # noqa: PLR0917 - each is drawn
    asked, limit, engine, replicas, slots, images, apart, signal, routing
):
    """With adapters, images, tiers, readers of their own (which are no ranks) and replicas that come and go."""
    limit, kinds = _extended(_sized(limit, asked[0]), slots, images)
    ranks = ReplicaPool(
        times=GrowingSteps(), rules=schedulers()[engine], limits=limit, replicas=replicas, ranks=2, gang=gang()
    )
    reading = replace(ranks, ranks=1, gang=None) if apart else None
    service = Service(pool=ranks, routing=routing, scaling=_scaling(signal), reading=reading, handover_s=1e-4)
    _played(asked, service, kinds)


@given(asked=demands(), limit=limits(), replicas=st.integers(1, 2))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_slots_keep_their_books(asked, limit, replicas):
    limit = replace(
        _sized(limit, asked[0]), paces=(), levels=(), kept=1.0, per_sequence=1, swap_s_per_block=None, tiers=()
    )
    pool = ReplicaPool(times=GrowingSteps(), rules=schedulers()["llamacpp"], limits=limit, replicas=replicas)
    _played(asked, Service(pool=pool))

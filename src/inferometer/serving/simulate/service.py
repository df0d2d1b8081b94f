"""A simulated service: replicas behind a router, alone or scaled by load, with one pool or two."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import ceil, inf, nan, nextafter
from typing import TYPE_CHECKING, Literal, Protocol

from inferometer.core.engine import SchedulerRules
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.serving.simulate.plain import play
from inferometer.serving.simulate.replica import MOST_STEPS, EngineLimits, Replica
from inferometer.serving.simulate.sinks import CANCELLED, QUEUE_FULL, TIMED_OUT, TOO_LONG
from inferometer.serving.simulate.times import GangTimes, RankLoad, Times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from inferometer.serving.simulate.request import SimulatedRequest


# Ranks that step together: each with a queue, limits and a cache of its own, all with one clock.
#
# vLLM's data-parallel ranks of a mixture of experts exchange tokens in every layer, so a step of one is a step of all:
# it takes as long as the heaviest makes it, and a rank without work computes along for the others' sake (a dummy
# batch).


def advance_together(ranks: Sequence[Replica], times: GangTimes, until: float) -> None:
    """Take every step that begins before `until`. Where one comes back after an end (`pause`), all do."""
    while busy := [rank for rank in ranks if not rank.is_idle]:
        now = max(rank.now for rank in busy)
        for rank in ranks:
            rank.now = max(rank.now, now)  # one that had no work computed along
        if now >= until:
            return
        if _step(ranks, times, until) and any(rank.pause for rank in ranks):
            return


def _step(ranks: Sequence[Replica], times: GangTimes, until: float) -> bool:
    """One step of all, or a run of steps in which all that work only decode; whether a request has ended."""
    is_any = any([rank.drop_impatient() for rank in ranks])  # noqa: C419 - of every one of them
    planned = [[] if rank.is_idle else rank.plan_step() for rank in ranks]
    loads = [_load(rank, chunks) for rank, chunks in zip(ranks, planned, strict=True)]
    if not any(tokens or sequences for tokens, sequences, _ in loads):
        return is_any  # all that worked were preempted or left: they are planned again
    seconds, steps = times.step(loads), 1
    if not any(planned):
        steps = _steps(ranks, until, seconds)
        if steps > 1:
            middle = [
                (chunks, sequences, context + (rank.rate / sequences if sequences else 0.0) * (steps - 1) / 2)
                for rank, (chunks, sequences, context) in zip(ranks, loads, strict=True)
            ]
            seconds = times.step(middle)
    for rank, chunks in zip(ranks, planned, strict=True):
        if chunks:
            is_any |= rank.do_step(chunks, seconds)
        elif rank.decoding:
            is_any |= rank.do_run(steps, seconds)
        else:
            rank.now += steps * seconds
    return is_any


def _load(rank: Replica, chunks: Sequence[tuple[SimulatedRequest, int]]) -> RankLoad:
    sizes = [(size, request.done) for request, size in chunks]
    if not rank.decoding or (chunks and rank.rules.order != "decode"):  # they wait for the prompts
        return sizes, 0, 0.0
    return sizes, rank.decoding, rank.context


def _steps(ranks: Sequence[Replica], until: float, seconds: float) -> int:
    """Steps of decoding before one ends, somebody comes, or a cache has no block for the next one."""
    working = [rank for rank in ranks if rank.decoding]
    most = min(MOST_STEPS, *(rank.until_next_end for rank in working))
    if most * seconds > until - working[0].now:
        most = max(1, ceil((until - working[0].now) / seconds))
    if any(rank.waiting for rank in ranks):
        return 1
    return most if all(rank.has_blocks(most) for rank in working) else 1


Routing = Literal["round-robin", "least-loaded", "prefix-aware"]
ROUTINGS: tuple[Routing, ...] = ("round-robin", "least-loaded", "prefix-aware")
_UNEVEN = 32  # a router that follows prefixes evens out loads that differ by more, as SGLang's does
_WORTH = 0.5  # of a prompt: what must be cached to be worth following


Signal = Literal["requests", "waiting", "cache"]
SIGNALS: tuple[Signal, ...] = ("requests", "waiting", "cache")


@frozen
class Scaling:
    """Replicas that come and go: enough for `target` of the signal each, checked every `interval_s`.

    The signal is the running requests, the waiting ones, or the used share of the cache. For the last two the present
    replicas are multiplied by the signal over its target, as Kubernetes' autoscaler does.
    A new one takes `cold_start_s` before it takes requests; one too many is stopped after `idle_s` with too little
    load, and ends what it has. Nothing changes while the signal is within `tolerance` of its target. `begin` are the
    replicas that are there at first; the least, where it is None.
    """

    least: int
    most: int
    target: float
    cold_start_s: float = 60.0
    interval_s: float = 10.0
    idle_s: float = 300.0
    signal: Signal = "requests"
    tolerance: float = 0.0
    begin: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most or not self.target > 0:
            raise DomainError(
                f"Scaling from {self.least} to {self.most} replicas with {self.target:g} requests each cannot be.",
                remedy="Write --autoscale 1:8:32 for 1 to 8 replicas with 32 requests each.",
            )


@frozen
class ReplicaPool:
    """Equal replicas: their steps' times, their scheduler, their limits."""

    times: Times
    rules: SchedulerRules
    limits: EngineLimits
    replicas: int = 1
    ranks: int = 1  # of each replica, where they step together: each has these limits
    gang: GangTimes | None = None


@frozen
class Service:
    """With `reading`, a pool of its own reads prompts and hands the cache over: `handover_s` a token of the prompt."""

    pool: ReplicaPool
    routing: Routing = "round-robin"
    scaling: Scaling | None = None
    reading: ReplicaPool | None = None
    handover_s: float = 0.0


class Coming(Protocol):
    """Where requests come from: when the next one does, and the request itself."""

    @property
    def follows(self) -> bool: ...
    @property
    def next_s(self) -> float: ...
    def take(self) -> SimulatedRequest: ...
    def plain(self) -> Iterator[SimulatedRequest] | None: ...


class Cluster:
    """The replicas of a pool while they work. `on_end` gets every request that ends, `on_refused` what never fits."""

    def __init__(
        self,
        pool: ReplicaPool,
        on_end: Callable[[SimulatedRequest], None],
        on_refused: Callable[[SimulatedRequest, str], None],
        *,
        routing: Routing = "round-robin",
        scaling: Scaling | None = None,
    ) -> None:
        self._pool, self._on_end, self._on_refused = pool, on_end, on_refused
        self._routing, self._scaling = routing, scaling
        self.replicas: list[Replica] = []  # the ranks of one replica stand together
        for _ in range((scaling.begin or scaling.least) if scaling else pool.replicas):
            self._add(0.0)
        self._turn, self._low_since = 0, inf
        self._look_s = 0.0 if scaling else inf  # when the signal is looked at next
        most = pool.limits.blocks * pool.limits.block_tokens
        self._most_tokens = most if pool.limits.longest is None else min(most, pool.limits.longest)
        self.under_way = 0

    def _add(self, from_s: float) -> None:
        self.replicas += [self._new(from_s) for _ in range(self._pool.ranks)]

    @property
    def look_s(self) -> float:
        """When the signal is looked at next."""
        return self._look_s

    def drop(self, request: SimulatedRequest) -> bool:
        """Forget a request that nobody waits for any more; whether it was here."""
        is_here = any([replica.drop(request) for replica in self.replicas])  # noqa: C419 - it is in one of them
        self.under_way -= is_here
        return is_here

    def advance(self, replica: Replica, until: float = inf) -> None:
        """Let a replica work until a time; of ranks that step together, all."""
        if self._pool.gang is None:
            replica.advance(until)
            return
        ranks = self._pool.ranks
        first = self.replicas.index(replica) // ranks * ranks
        advance_together(self.replicas[first : first + ranks], self._pool.gang, until)

    def _new(self, from_s: float) -> Replica:
        replica = Replica(self._pool.times, self._pool.rules, self._pool.limits, self._ended, self._dropped)
        replica.from_s = replica.now = from_s
        return replica

    def _ended(self, request: SimulatedRequest) -> None:
        self.under_way -= 1
        self._on_end(request)

    def _dropped(self, request: SimulatedRequest) -> None:
        self.under_way -= 1
        is_early = request.until < request.due + self._pool.limits.patience_s
        self._on_refused(request, CANCELLED if is_early else TIMED_OUT)

    def run(self, source: Coming) -> None:
        """Until nothing comes any more and everything has ended."""
        limits = self._pool.limits
        is_usual = (
            len(self.replicas) == 1 and self._pool.gang is None and self._scaling is None and limits.queue is None
        )
        plain = source.plain() if is_usual and not limits.is_left else None
        if plain is not None:
            replica = self.replicas[0]
            replica.on_end = self._on_end
            play(replica, plain, self.refuses)
        elif source.follows:
            self._run_following(source)
        else:
            self._run_timed(source)

    def refuses(self, request: SimulatedRequest) -> bool:
        """Whether a request is longer than the whole cache, or than the engine takes."""
        if request.input_tokens + request.output_tokens <= self._most_tokens:
            return False
        self._on_refused(request, TOO_LONG)
        return True

    def _run_timed(self, source: Coming) -> None:
        """Arrivals by the clock: every replica works until the next arrival, which is then routed."""
        while (due := source.next_s) != inf:
            is_look = self._look_s <= due
            due = min(due, self._look_s)
            for replica in self.replicas:
                if replica.now < due and (replica.running or replica.waiting):
                    self.advance(replica, due)
            if is_look:
                self.scale(due)
            else:
                self.submit(source.take())
        for replica in self.replicas:
            self.advance(replica)

    def _run_following(self, source: Coming) -> None:
        """Requests that follow others: the replica that is furthest behind works until one of its requests ends."""
        for replica in self.replicas:
            replica.pause = True
        while True:
            due = source.next_s
            busy = [replica for replica in self.replicas if not replica.is_idle]
            behind = min(busy, key=lambda replica: replica.now, default=None)
            if behind is None and due == inf:
                return
            is_look = self._look_s <= due
            due = min(due, self._look_s)
            if behind is not None and behind.now < due:
                self.advance(behind, due)
            elif is_look:
                self.scale(due)
            else:
                self.submit(source.take())

    def choose(self, request: SimulatedRequest) -> Replica:
        taking = [replica for replica in self.replicas if replica.from_s <= request.sent < replica.until_s]
        return self._chosen(taking or self.replicas[:1], request)

    def submit(self, request: SimulatedRequest, to: Replica | None = None) -> None:
        """Hand a request to a replica, or refuse it."""
        if self.refuses(request):
            return
        if self._scaling is not None:
            self._look_s = min(self._look_s, request.sent)
        chosen, most = to or self.choose(request), self._pool.limits.queue
        if most is not None and len(chosen.waiting) >= most:
            self._on_refused(request, QUEUE_FULL)
            return
        self.under_way += 1
        chosen.submit(request)

    def _chosen(self, replicas: Sequence[Replica], request: SimulatedRequest) -> Replica:
        if len(replicas) == 1:
            return replicas[0]
        if self._routing == "round-robin":
            self._turn += 1
            return replicas[(self._turn - 1) % len(replicas)]
        # `Replica.load`, without a call: each request asks each replica
        loads = [4 * len(replica.waiting) + len(replica.running) for replica in replicas]
        least = min(loads)
        idlest = replicas[loads.index(least)]
        if self._routing == "least-loaded" or not request.pieces or max(loads) - least > _UNEVEN:
            return idlest
        block, most, nearest = self._pool.limits.block_tokens, 0, idlest
        whole = sum([size for _, size in request.pieces]) // block
        for replica in replicas:  # the first of those that have most of it, and none after one that has all
            if (held := replica.pool.found(request.pieces)) > most:
                most, nearest = held, replica
                if held == whole:
                    break
        return nearest if most * block > _WORTH * request.input_tokens else idlest

    def scale(self, now: float) -> None:
        """Check the signal if replicas scale and a check is due."""
        scaling = self._scaling
        if scaling is None or now < self._look_s:
            return
        self._look_s = now + scaling.interval_s
        there = [replica for replica in self.replicas[:: self._pool.ranks] if replica.until_s > now]
        asked = self._signal(scaling, len(there)) / scaling.target
        is_near = abs(asked - len(there)) <= scaling.tolerance * len(there)
        wanted = min(scaling.most, max(scaling.least, len(there) if is_near else ceil(asked)))
        if not self.under_way and len(there) <= scaling.least:
            self._look_s = inf  # until somebody comes: nights without a request take no time
        if wanted >= len(there):
            self._low_since = inf
            for _ in range(wanted - len(there)):
                self._add(now + scaling.cold_start_s)
            return
        self._low_since = min(self._low_since, now)
        if now - self._low_since >= scaling.idle_s:
            last = self.replicas.index(there[-1])
            for rank in self.replicas[last : last + self._pool.ranks]:
                rank.until_s = now
            self._low_since = now

    def _signal(self, scaling: Scaling, there: int) -> float:
        """The signal, summed over the replicas."""
        if scaling.signal == "requests":
            return self.under_way
        if scaling.signal == "waiting":
            return sum(len(replica.waiting) for replica in self.replicas)
        ready = [replica.pool for replica in self.replicas if replica.busy_s]
        return there * sum(pool.used / pool.blocks for pool in ready) / max(1, len(ready))

    def replica_seconds(self, end_s: float) -> float:
        """Time that replicas were paid for, from their cold start on."""
        cold = self._scaling.cold_start_s if self._scaling is not None else 0.0
        return sum(
            min(end_s, max(replica.until_s, replica.now)) - max(0.0, replica.from_s - cold)
            for replica in self.replicas[:: self._pool.ranks]
        )

    @property
    def ranks(self) -> int:
        return self._pool.ranks


class TwoPools:
    """One pool reads prompts, the other makes the answers, on one clock.

    A cache goes over the link when its prompt is read: one after the other at each replica that sends and at each that
    receives. The blocks of who sent it stay taken until who receives it has room for it, as vLLM's connectors do
    (NixlConnector frees a prompt's blocks when they have been fetched), so that a full pool of answers stops the
    readers.
    """

    def __init__(
        self,
        service: Service,
        on_end: Callable[[SimulatedRequest], None],
        on_refused: Callable[[SimulatedRequest, str], None],
    ) -> None:
        assert service.reading is not None  # noqa: S101 - asked before
        self._token_s, self._on_end, self._on_refused = service.handover_s, on_end, on_refused
        self.readers = Cluster(service.reading, print, self._refused, routing=service.routing)
        self.writers = Cluster(service.pool, on_end, self._refused, routing=service.routing, scaling=service.scaling)
        for replica in self.readers.replicas:
            replica.pause = replica.holds = True
            replica.on_end = lambda request, replica=replica: self._read(request, replica)  # type: ignore[misc] # bound
        self._wanted: dict[int, int] = {}  # tokens of an answer, by the number of its request
        self._sent: list[tuple[float, int, SimulatedRequest, Replica]] = []  # on the link, by when they arrive
        self._free_s: dict[int, float] = {}  # by replica: when its end of the link is free
        self._holding: dict[int, Replica] = {}  # by request: the reader whose blocks it still has
        self.waited_s = 0.0  # for the link

    def run(self, source: Coming) -> None:
        """Until nothing comes any more and everything has ended."""
        self.advance(source)

    def advance(self, source: Coming, until: float = inf) -> None:
        """All that begins before a time: whoever is furthest behind works."""
        while True:
            coming_s, sent_s = source.next_s, self._sent[0][0] if self._sent else inf
            due = min(coming_s, sent_s, until)
            reading, writing = _working(self.readers), _working(self.writers)
            reader = min(reading, key=_clock, default=None)
            read_s = inf if reader is None else reader.now
            writer = min(writing, key=_clock, default=None)
            if reader is not None and read_s < due and (writer is None or read_s <= writer.now):
                self.readers.advance(reader, due)
            elif writer is not None and writer.now < due:
                # A prompt that is read until then may come to it; and readers that wait for room hear of it at once.
                soon = nextafter(writer.now, inf) if any(one.is_stalled for one in self.readers.replicas) else read_s
                self.writers.advance(writer, min(due, soon))
            elif due == inf:
                for replica in (*self.readers.replicas, *self.writers.replicas):
                    if not replica.is_idle or replica.held:
                        replica.fail("waits for blocks that nobody gives back")
                return
            elif due == until:
                return
            elif sent_s <= coming_s:
                self._arrive()
            else:
                self.submit(source.take())

    @property
    def arrives_s(self) -> float:
        """When the next cache is over the link."""
        return self._sent[0][0] if self._sent else inf

    def drop(self, request: SimulatedRequest) -> None:
        """Forget a request that nobody waits for any more, in either pool or between them."""
        self._wanted.pop(request.number, None)
        if not (self.readers.drop(request) or self.writers.drop(request)):
            self._sent = [one for one in self._sent if one[2] is not request]
            heapify(self._sent)
        reader = self._holding.get(request.number)
        if reader is not None:
            self._let_go(request, reader.now)

    def submit(self, request: SimulatedRequest) -> None:
        if not self.writers.refuses(request):
            self._wanted[request.number], request.output_tokens = request.output_tokens, 1
            self.readers.submit(request)

    def _read(self, request: SimulatedRequest, reader: Replica) -> None:
        """Its first token is there: it needs the other pool for the next ones."""
        self.readers.under_way -= 1
        request.output_tokens = self._wanted.pop(request.number)
        self._holding[request.number] = reader
        if request.output_tokens <= 1:
            self._let_go(request, request.last)
            self._on_end(request)
            return
        writer = self.writers.choose(request)
        ends = id(reader), id(writer)
        begun = max(request.last, *(self._free_s.get(end, 0.0) for end in ends))
        self.waited_s += begun - request.last
        request.last = nan  # its last token is the other pool's
        request.sent = begun + self._token_s * request.input_tokens
        self._free_s |= dict.fromkeys(ends, request.sent)
        request.done, request.ready, request.pieces, request.answer = request.input_tokens, True, (), ()
        heappush(self._sent, (request.sent, request.number, request, writer))

    def _arrive(self) -> None:
        at, _, request, writer = heappop(self._sent)
        self.writers.scale(at)
        writer.pause = True
        writer.on_room = lambda other: self._let_go(other, writer.now)
        self.writers.submit(request, writer)

    def _let_go(self, request: SimulatedRequest, now: float) -> None:
        reader = self._holding.pop(request.number, None)
        if reader is not None:  # one that was preempted there has come back
            reader.let_go(request, now)

    def _refused(self, request: SimulatedRequest, outcome: str) -> None:
        request.output_tokens = self._wanted.pop(request.number, request.output_tokens)
        self._let_go(request, request.sent)
        self._on_refused(request, outcome)


def _working(cluster: Cluster) -> list[Replica]:
    return [replica for replica in cluster.replicas if not replica.is_idle and not replica.is_stalled]


def _clock(replica: Replica) -> float:
    return replica.now

"""The simulator as a live engine: requests come when they come, and tokens are there when their step ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from math import inf
from typing import TYPE_CHECKING

from inferometer.serving.simulate.request import SimulatedRequest
from inferometer.serving.simulate.service import Cluster, Service, TwoPools
from inferometer.serving.simulate.sinks import TIMED_OUT
from inferometer.serving.simulate.source import RequestSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from inferometer.serving.simulate.cache import Piece
    from inferometer.serving.simulate.replica import EngineLimits, Replica


_SOON = 1e-9  # seconds: a clock that is so near to the end of a step has reached it
_NOBODY = RequestSource([])  # comes by a plan: requests come when they are asked


class Answering:
    """One request under way: `tokens` tells how many more there are as they come, `refused` why there are none."""

    def __init__(self, request: SimulatedRequest) -> None:
        self.request = request
        self.output_tokens = request.output_tokens  # of a request, the pool that reads it alone knows one
        self.written = request.output_tokens  # none of a text that is only read
        self.refused: str | None = None
        self._given = 0
        self._news: asyncio.Queue[int] = asyncio.Queue()

    def tell(self, made: int) -> None:
        if made > self._given:
            self._news.put_nowait(made - self._given)
            self._given = made

    def refuse(self, outcome: str) -> None:
        self.refused = outcome
        self._news.put_nowait(0)

    async def tokens(self) -> AsyncIterator[int]:
        left = self.output_tokens
        while left > 0:
            more = await self._news.get()
            if not more:
                return
            left -= more
            yield more


class MockEngine:
    """The replicas of a service, kept at the time of a clock. `speed` seconds of theirs pass in one of the clock's."""

    def __init__(self, service: Service, clock: Callable[[], float], *, speed: float = 1.0) -> None:
        told = self._ended, self._refused
        self._pools = TwoPools(service, *told) if service.reading is not None else None
        self.cluster = (
            Cluster(service.pool, *told, routing=service.routing, scaling=service.scaling)
            if self._pools is None
            else self._pools.writers
        )
        self._clock, self._speed, self._start = clock, speed, clock()
        self._numbers = count()
        self._under_way: dict[int, Answering] = {}
        self._wake = asyncio.Event()
        self.prompt_tokens = self.generated_tokens = 0

    @property
    def now(self) -> float:
        """Simulated seconds since the start."""
        return (self._clock() - self._start) * self._speed

    @property
    def limits(self) -> EngineLimits:
        return self.cluster.replicas[0].limits

    def ask(  # noqa: PLR0913 - what a request may ask for
        self,
        input_tokens: int,
        output_tokens: int,
        pieces: tuple[Piece, ...] = (),
        *,
        adapter: int = -1,
        images: tuple[int, ...] = (),
        priority: int = 0,
    ) -> Answering:
        request = SimulatedRequest(next(self._numbers), self.now, input_tokens, output_tokens)
        request.pieces, request.adapter, request.images, request.priority = pieces, adapter, images, priority
        answering = self._under_way[request.number] = Answering(request)
        (self._pools or self.cluster).submit(request)
        self._wake.set()
        return answering

    def drop(self, answering: Answering) -> None:
        """Nobody waits for it any more."""
        if self._under_way.pop(answering.request.number, None) is not None:
            (self._pools or self.cluster).drop(answering.request)

    @property
    def replicas(self) -> list[Replica]:
        """Of both pools, where there are two."""
        return self.cluster.replicas if self._pools is None else [*self._pools.readers.replicas, *self.cluster.replicas]

    async def run(self) -> None:
        """Take steps as their time comes, and tell of tokens when the step that made them has ended."""
        while True:
            now = self.now + _SOON
            self._tell(now)  # of steps that have ended; what the next ones make is hidden until they have
            self._work(now)
            self._tell(now)  # of the last step of a replica that was late
            soonest = self._next_s(now)
            if soonest != inf:
                await asyncio.sleep(max(0.0, (soonest - self.now) / self._speed))
                self._tell(self.now + _SOON)
                continue
            self._wake.clear()
            look_s = self.cluster.look_s  # nothing happens until then, but somebody may ask
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._wake.wait(), None if look_s == inf else max(0.0, (look_s - self.now) / self._speed)
                )

    def _work(self, now: float) -> None:
        """Begin what begins until now."""
        self.cluster.scale(now)
        for replica in self.replicas:
            replica.most_steps = 1  # tokens are told step by step
        if self._pools is not None:
            self._pools.advance(_NOBODY, now)
            return
        for replica in self.cluster.replicas:
            if not replica.is_idle and replica.now <= now:
                self.cluster.advance(replica, max(now, replica.now + _SOON))

    def _next_s(self, now: float) -> float:
        """When something happens next: a step ends (the last one of a replica too), or a cache arrives."""
        ends = [one.now for one in self.replicas if one.now > now or not (one.is_idle or one.is_stalled)]
        return min([*ends, inf if self._pools is None else self._pools.arrives_s])

    def _tell(self, now: float) -> None:
        for replica in self.replicas:
            if replica.now <= now:
                for request in replica.running:
                    self._under_way[request.number].tell(replica.made_of(request))
        for number, answering in list(self._under_way.items()):
            request = answering.request
            if request.last <= now:
                self.generated_tokens += answering.written
                answering.tell(answering.output_tokens)
                del self._under_way[number]
            elif self._pools is not None and request.made and request.first <= now:
                answering.tell(1)  # by the pool that has read it, on its way to the other

    def _ended(self, request: SimulatedRequest) -> None:
        self.prompt_tokens += request.input_tokens  # its tokens are told when the step has ended

    def _refused(self, request: SimulatedRequest, outcome: str) -> None:
        answering = self._under_way.pop(request.number, None)
        if answering is not None:
            answering.refuse(outcome if outcome != TIMED_OUT else "timeout")

    def metrics(self) -> dict[str, float]:
        """What vLLM shows at /metrics, by its own names."""
        replicas = self.replicas
        used = max(1 - replica.pool.free / replica.pool.blocks for replica in replicas)
        hit, read = sum(r.hit_tokens for r in replicas), sum(r.read_tokens for r in replicas)
        return {
            "vllm:num_requests_running": sum(len(replica.running) for replica in replicas),
            "vllm:num_requests_waiting": sum(len(replica.waiting) for replica in replicas),
            "vllm:kv_cache_usage_perc": used,
            "vllm:prompt_tokens_total": self.prompt_tokens,
            "vllm:generation_tokens_total": self.generated_tokens,
            "vllm:num_preemptions_total": sum(replica.preempted for replica in replicas),
            "vllm:prefix_cache_hits_total": hit,
            "vllm:prefix_cache_queries_total": hit + read,
        }

"""The simulator as a live engine: requests come when they come, and tokens are there when their step ends."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from inferometer.serving.simulate.request import SimulatedRequest
from inferometer.serving.simulate.service import Cluster, Service
from inferometer.serving.simulate.sinks import TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from inferometer.serving.simulate.cache import Piece
    from inferometer.serving.simulate.replica import EngineLimits


_SOON = 1e-9  # seconds: a clock that is so near to the end of a step has reached it


class Answering:
    """One request under way: `tokens` tells how many more there are as they come, `refused` why there are none."""

    def __init__(self, request: SimulatedRequest) -> None:
        self.request = request
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
        left = self.request.output_tokens
        while left > 0:
            more = await self._news.get()
            if not more:
                return
            left -= more
            yield more


class MockEngine:
    """The replicas of a service, kept at the time of a clock. `speed` seconds of theirs pass in one of the clock's."""

    def __init__(self, service: Service, clock: Callable[[], float], *, speed: float = 1.0) -> None:
        self.cluster = Cluster(service.pool, self._ended, self._refused, routing=service.routing)
        self._clock, self._speed, self._start = clock, speed, clock()
        for replica in self.cluster.replicas:
            replica.most_steps = 1  # tokens are told step by step
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
        self.cluster.submit(request)
        self._wake.set()
        return answering

    def drop(self, answering: Answering) -> None:
        """Nobody waits for it any more."""
        if self._under_way.pop(answering.request.number, None) is not None:
            for replica in self.cluster.replicas:
                replica.drop(answering.request)

    async def run(self) -> None:
        """Take steps as their time comes, and tell of tokens when the step that made them has ended."""
        while True:
            busy = [replica for replica in self.cluster.replicas if not replica.is_idle]
            if not busy:
                self._wake.clear()
                await self._wake.wait()
                continue
            now = self.now + _SOON
            self._tell()  # of steps that have ended; what the next ones make is hidden until they have
            for replica in busy:
                if replica.now <= now:
                    self.cluster.advance(replica, max(now, replica.now + _SOON))
            soonest = min(replica.now for replica in busy)
            await asyncio.sleep(max(0.0, (soonest - self.now) / self._speed))
            self._tell()

    def _tell(self) -> None:
        now = self.now + _SOON
        for replica in self.cluster.replicas:
            if replica.now <= now:
                for request in replica.running:
                    self._under_way[request.number].tell(replica.made_of(request))
        for number, answering in list(self._under_way.items()):
            request = answering.request
            if request.last <= now:
                self.generated_tokens += request.output_tokens
                answering.tell(request.output_tokens)
                del self._under_way[number]

    def _ended(self, request: SimulatedRequest) -> None:
        self.prompt_tokens += request.input_tokens  # its tokens are told when the step has ended

    def _refused(self, request: SimulatedRequest, outcome: str) -> None:
        answering = self._under_way.pop(request.number, None)
        if answering is not None:
            answering.refuse(outcome if outcome != TIMED_OUT else "timeout")

    def metrics(self) -> dict[str, float]:
        """What vLLM shows at /metrics, by its own names."""
        replicas = self.cluster.replicas
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

"""Play rounds in this process: one event loop, one core."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from inferometer.serving.load.apis import Endpoint
from inferometer.serving.load.loops import raise_descriptor_limit, undisturbed
from inferometer.serving.load.play import Player, RoundPlan
from inferometer.serving.load.pool import Pool
from inferometer.serving.load.prompts import PromptMaker, local_tokenizer
from inferometer.serving.load.rounds import RoundRows, rows_of

_AHEAD = 16  # connections of an open loop that stand ready at its begin
_DESCRIPTORS = 65_536

Progress = Callable[[int, int], None]


@dataclass(slots=True, kw_only=True)
class Here:
    """A process that plays: its endpoint, its prompts and its connections."""

    endpoint: Endpoint
    maker: PromptMaker
    pool: Pool

    async def play(
        self, plan: RoundPlan, *, progress: Progress | None = None, player: Player | None = None
    ) -> RoundRows:
        """One round. Ctrl-C ends it, and what was measured until then comes back."""
        player = player or await prepared(self, plan)
        player.progress = progress
        with undisturbed(), interruptible(player.stop):
            played = await player.play(plan.start_s)
        count = None if self.maker.tokenizer is None else local_tokenizer(self.maker.tokenizer)
        return rows_of(played, plan.demand, streamed=self.endpoint.stream, count=count)


async def prepared(here: Here, plan: RoundPlan) -> Player:
    """Everything that can be done before the clock starts: requests written out, connections open."""
    raise_descriptor_limit(_DESCRIPTORS)
    player = Player(here.endpoint, here.maker, here.pool, plan)
    player.prepare()
    await here.pool.warm(plan.concurrency or _AHEAD)
    return player


class interruptible:  # noqa: N801 - it reads as a statement
    """Call `stop` at Ctrl-C or SIGTERM instead of ending, where this is the main thread, which alone gets signals."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: dict[signal.Signals, Any] = {}  # handlers that were there: of a worker, one that ignores

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(name)
                with suppress(NotImplementedError):  # Windows: Ctrl-C then raises, as everywhere
                    asyncio.get_running_loop().add_signal_handler(name, self._stop)
                    self._before[name] = before

    def __exit__(self, *_: object) -> None:
        for name, before in self._before.items():
            asyncio.get_running_loop().remove_signal_handler(name)
            signal.signal(name, before)

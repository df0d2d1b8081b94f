"""Play rounds in several processes, each with its share of the sessions or of the places, on one clock."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import InferometerError
from inferometer.serving.load.local import Progress, interruptible
from inferometer.serving.load.rounds import RoundRows, joined
from inferometer.serving.load.worker import Setup, length_of, packed

if TYPE_CHECKING:
    from inferometer.serving.load.play import RoundPlan

_LEAD_S = 0.05  # from the word to start until the clock starts, so that all begin together


class Several:
    """So many workers, started once and used for every round."""

    def __init__(self, setup: Setup, count: int) -> None:
        self._setup, self._count = setup, count
        self._workers: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        for _ in range(self._count):
            worker = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "inferometer.serving.load.worker", stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, limit=1 << 30,
            )  # fmt: skip
            self._workers.append(worker)
            await _tell(worker, self._setup)

    async def play(self, plan: RoundPlan, *, progress: Progress | None = None) -> RoundRows:  # noqa: ARG002 - as of one
        """One round. perf_counter is one clock for all processes of a machine, so they start at the same moment."""
        shares = [_share(plan, number, self._count) for number in range(self._count)]
        busy = [(worker, share) for worker, share in zip(self._workers, shares, strict=True) if share is not None]
        for worker, share in busy:
            await _tell(worker, share)
        for worker, _ in busy:
            await _hear(worker)
        start = time.perf_counter() + _LEAD_S
        for worker, _ in busy:
            await _tell(worker, start)
        with interruptible(self._stop):
            return joined([await _hear(worker) for worker, _ in busy])

    def _stop(self) -> None:
        """The terminal tells every process of Ctrl-C; one who sends it to this process alone means all."""
        for worker in self._workers:
            with suppress(ProcessLookupError):
                worker.send_signal(signal.SIGINT)

    async def close(self) -> None:
        for worker in self._workers:
            if worker.stdin is not None:
                worker.stdin.close()
        for worker in self._workers:
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await worker.wait()
            if worker.returncode is None:
                worker.kill()


def _share(plan: RoundPlan, number: int, of: int) -> RoundPlan | None:
    """The part of one process; None where there is less to do than processes."""
    demand = plan.demand.part(number, of)
    places = plan.concurrency
    if places is not None:
        places = places // of + (number < places % of)
    if len(demand) == 0 or places == 0:
        return None
    return replace(plan, demand=demand, concurrency=places)


async def _tell(worker: asyncio.subprocess.Process, message: Any) -> None:
    assert worker.stdin is not None  # noqa: S101 - it was asked for
    try:
        worker.stdin.write(packed(message))
        await worker.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        raise _gone(worker) from None


async def _hear(worker: asyncio.subprocess.Process) -> Any:
    assert worker.stdout is not None  # noqa: S101 - as above
    try:
        size = length_of(await worker.stdout.readexactly(8))
        return pickle.loads(await worker.stdout.readexactly(size))  # noqa: S301 - from a process of ours
    except asyncio.IncompleteReadError:
        raise _gone(worker) from None


def _gone(worker: asyncio.subprocess.Process) -> InferometerError:
    return InferometerError(
        f"A process of the load test ended by itself (exit code {worker.returncode}).",
        remedy="Its message stands above; --processes 1 does without.",
    )

"""Who waits for work, and who gets it.

A thousand agents may wait at once. None of them asks the database while it waits: one task looks what could be given
away whenever something may have changed, and serves those that fit, who has waited longest first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from inferometer.core.errors import InferometerError
from inferometer.store.queue.wanted import fits, read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.store.queue.fleet import Fleet
    from inferometer.store.queue.values import FleetDevice, Lease, Wanted

_LOG = logging.getLogger(__name__)
_TICK_S = 1.0  # so often it looks by itself: another hub on the same store may have taken a job, or a pause is over
_LOOK_AFTER_S = 1.0  # so often leases are looked after: one whose token was revoked ends at once
_AT_ONCE = 32  # leases in one transaction: more would let the first of them wait for the last
_BEAT_S = 20.0  # a sign of life that is younger need not be written down again
_REMEMBERED_S = 60.0  # since it was last looked up: somebody may have changed it at another hub of the same store
_TIDY_S = 3600.0


class _Waiter:
    def __init__(self, device: FleetDevice, project: str | None) -> None:
        self.device, self.labels, self.project = device.name, device.labels, project
        self.answer: asyncio.Future[Lease | None] = asyncio.get_running_loop().create_future()


class _Wish:
    """What some jobs want, and how many of them there are."""

    def __init__(self, count: int, wanted: Wanted) -> None:
        self.count, self.wanted = count, wanted


class Dispatcher:
    """Lives in the hub's event loop; `ring` may be called from any thread."""

    def __init__(self, fleet: Fleet, tidy: Callable[[], object] | None = None) -> None:
        """`tidy` is what is done about once an hour."""
        self._fleet, self._tidy = fleet, tidy or fleet.tidy
        self._waiters: dict[str, _Waiter] = {}
        self._unheard: set[str] = set()  # devices that were given a job while they were not listening
        self._idle: dict[str, FleetDevice] = {}  # those that waited in vain, and will ask again at once
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._looked_at = self._tidied_at = time.monotonic()

    def ring(self) -> None:
        """Something may be given away: look now."""
        if self._loop is not None and self._bell is not None:
            with suppress(RuntimeError):  # the loop has ended: the hub is going down
                self._loop.call_soon_threadsafe(self._bell.set)

    async def wait(self, device: FleetDevice, project: str | None, seconds: float) -> Lease | None:
        """A job for the device, or None when the time is over. One that it has already is given again at once."""
        self.start()
        if seconds <= 0 or device.job is not None or device.state != "ready" or device.name in self._unheard:
            self._unheard.discard(device.name)
            lease = await to_thread.run_sync(partial(self._fleet.lease, device.name, project=project))
            if lease is None and seconds > 0:
                await asyncio.sleep(min(seconds, _TICK_S))  # in maintenance: it shall not ask again at once
            return lease
        waiter = _Waiter(device, project)
        before = self._waiters.pop(device.name, None)
        if before is not None:
            _answer_none(before)  # the agent has lost that connection
        self._waiters[device.name] = waiter
        self.ring()  # nobody asks the database for this one alone: the next look is for all
        try:
            if self._fleet.now() - device.heartbeat > _BEAT_S:
                await to_thread.run_sync(self._fleet.beat, device.name)
            return await asyncio.wait_for(waiter.answer, seconds)
        except TimeoutError:
            self._idle[device.name] = device
            return None
        finally:
            if self._waiters.get(device.name) is waiter:
                del self._waiters[device.name]

    def forget(self, name: str) -> None:
        """Somebody has changed a device: it is looked up when it asks again, which is at once."""
        self._idle.pop(name, None)
        waiter = self._waiters.get(name)
        if self._loop is not None and waiter is not None:
            with suppress(RuntimeError):  # as in `ring`
                self._loop.call_soon_threadsafe(_answer_none, waiter)

    def idle(self, name: str) -> FleetDevice | None:
        """The device, if it has just waited in vain: it has nothing, and need not be looked up again.

        Whether it is ready, or there at all, is looked at when it is given a job.
        """
        device = self._idle.pop(name, None)
        fresh = device is not None and self._fleet.now() - device.heartbeat < _REMEMBERED_S
        return device if fresh and name not in self._unheard else None

    def start(self) -> None:
        """From the event loop; where it runs already, nothing is done."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._loop is not loop:
            self._loop, self._bell = loop, asyncio.Event()
            self._task = loop.create_task(self._run(self._bell))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, bell: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), _TICK_S)
            bell.clear()
            try:
                await self._round()
            except InferometerError:
                continue  # a database that is away for a while is asked again at the next tick
            except Exception:  # noqa: BLE001 - whatever it is, jobs must be given away
                _LOG.exception("The hub could not give away jobs; it tries again.")

    async def _round(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_AFTER_S:
            self._looked_at = now
            await to_thread.run_sync(self._fleet.look_after)
        if now - self._tidied_at >= _TIDY_S:
            self._tidied_at = now
            await to_thread.run_sync(self._tidy)
        if not self._waiters:
            return
        waiting = await to_thread.run_sync(self._fleet.waiting)
        wishes = [_Wish(count, read(wish)) for count, wish in waiting]
        if not wishes:
            return
        untried = dict(self._waiters)
        while batch := _batch(untried, wishes):
            for waiter, _ in batch:
                del untried[waiter.device]
            asking = {waiter.device: waiter.project for waiter, _ in batch}
            leases = await to_thread.run_sync(self._fleet.lease_all, asking)
            for waiter, wish in batch:
                if waiter.device in leases:
                    self._answer(waiter, leases[waiter.device])
                else:
                    wish.count += 1  # the jobs may be of projects that this agent does not serve

    def _answer(self, waiter: _Waiter, lease: Lease) -> None:
        """The agent may have come back by another connection meanwhile; if it is gone, it hears when it asks again."""
        for asking in (waiter, self._waiters.get(waiter.device)):
            if asking is not None and not asking.answer.done():
                asking.answer.set_result(lease)
                return
        self._unheard.add(waiter.device)


def _answer_none(waiter: _Waiter) -> None:
    if not waiter.answer.done():
        waiter.answer.set_result(None)


def _batch(waiters: Mapping[str, _Waiter], wishes: list[_Wish]) -> list[tuple[_Waiter, _Wish]]:
    """Some of those that a wish fits, no more than there are jobs, who has waited longest first; it is counted down."""
    batch: list[tuple[_Waiter, _Wish]] = []
    for waiter in waiters.values():
        fitting = (wish for wish in wishes if wish.count and fits(wish.wanted, waiter.device, waiter.labels))
        wish = next(fitting, None)
        if wish is None or waiter.answer.done():
            continue
        wish.count -= 1
        batch.append((waiter, wish))
        if len(batch) == _AT_ONCE:
            break
    return batch

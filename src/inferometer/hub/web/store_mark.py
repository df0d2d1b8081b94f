"""The store's mark, for the many who ask at once: whether anybody has written since a list was made."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread

if TYPE_CHECKING:
    from inferometer.store.store import Store


class StoreMark:
    """A file is asked on the spot. A server is asked in a thread, once for all who came before the question was put."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._order = count(1)
        self._put = 0  # when the last question was put, by that order
        self._mark: object = None
        self._turn = asyncio.Lock()
        self._thread = CapacityLimiter(1)  # of its own: those of the pages may all be at work

    async def now(self) -> object:
        """As the store was at some moment since this was called; None where that cannot be told."""
        if self._store.location.file is not None:
            return self._store.mark()
        came = next(self._order)
        async with self._turn:
            if self._put < came:
                put = next(self._order)
                self._mark = await to_thread.run_sync(self._store.mark, limiter=self._thread)
                self._put = put  # only now: a question that was given up answers nobody
            return self._mark

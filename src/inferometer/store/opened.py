"""What every part of the store has: a database, a clock, and who we are."""

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from inferometer.store.engine import Database
from inferometer.store.location import Location
from inferometer.store.owner import Owner, this_process

__all__ = ["Opened"]

T = TypeVar("T")


class Opened:
    def __init__(
        self, database: Database, *, clock: Callable[[], float] = time.time, owner: Callable[[], Owner] = this_process
    ) -> None:
        self.database = database
        self._clock, self._owner = clock, owner

    @property
    def location(self) -> Location:
        return self.database.location

    def _now(self) -> int:
        """Whole microseconds, as the tables keep them."""
        return round(self._clock() * 1e6)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self.database.reading() as connection:
            return work(connection)

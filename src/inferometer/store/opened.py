"""What every part of the store has: a database, a clock, and the identity of this process."""

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import Connection

from inferometer.store import projects
from inferometer.store.audit import Deed, record
from inferometer.store.engine import Database
from inferometer.store.location import Location
from inferometer.store.owner import Owner, this_process
from inferometer.store.values import Sight

T = TypeVar("T")
P = ParamSpec("P")


class Opened:
    def __init__(
        self, database: Database, *, clock: Callable[[], float] = time.time, owner: Callable[[], Owner] = this_process
    ) -> None:
        self.database = database
        self._clock, self._owner = clock, owner
        self.sight: Sight | None = None  # everything
        self._deed: Deed | None = None
        self._founds: Deed | None = None

    def seen_with(self, sight: Sight | None) -> Self:
        """The same store for somebody who sees this much of it: what is out of their sight is not there."""
        twin = copy.copy(self)
        twin.sight = sight
        return twin

    def doing(self, deed: Deed) -> Self:
        """The same store for one deed: whatever is written through it stands in the audit log, by one transaction."""
        twin = copy.copy(self)
        twin._deed = deed  # noqa: SLF001 - the same kind of object
        return twin

    def founding(self, project: str, deed: Deed) -> Self:
        """The same store for what makes a project, unless it is there: both stand by one transaction, or neither.

        Who does the deed owns it then. One that is there must be theirs to write to.
        """
        self._read(projects.require_no_strangers, project, deed.user)  # said before anything else that may be wrong
        twin = copy.copy(self)
        twin._founds = replace(deed, project=project)  # noqa: SLF001 - as above
        return twin

    @property
    def location(self) -> Location:
        return self.database.location

    def _now(self) -> int:
        """Whole microseconds, as the tables keep them."""
        return round(self._clock() * 1e6)

    def _read(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        with self.database.reading() as connection:
            return work(connection, *args, **options)

    def _write(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        """In one transaction; `work` may be called again where others were in the way."""
        deed, founds, now_us = self._deed, self._founds, self._now()

        def noted(connection: Connection) -> T:
            if founds is not None and projects.found(connection, founds.project or "", founds.user, now_us=now_us):
                record(connection, founds, None, now_us=now_us)
            result = work(connection, *args, **options)
            if deed is not None:
                record(connection, deed, result, now_us=now_us)
            return result

        return self.database.write(noted)

"""What every part of the store has: a database, a clock, and the identity of this process."""

import copy
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import Connection

from inferometer.core.frozen import frozen
from inferometer.store import projects
from inferometer.store.audit import Deed, record
from inferometer.store.engine import Database
from inferometer.store.location import Location
from inferometer.store.values import Sight

# Which process a run belongs to, and whether that process is still alive.
#
# A process number alone says little: numbers are used again, start over at boot, and mean something else in a
# container.


@frozen
class Owner:
    """`boot` tells one start of the machine from the next, `space` one container's process numbers from another's."""

    host: str
    boot: str
    space: str
    pid: int
    born: str | None  # when the process began, in its machine's own count


def this_process(*, proc: Path = Path("/proc")) -> Owner:
    pid = os.getpid()
    return Owner(host=socket.gethostname(), boot=_boot(proc), space=_space(proc), pid=pid, born=_born(pid, proc))


def gone(owner: Owner, here: Owner, *, proc: Path = Path("/proc")) -> bool | None:
    """Whether the owner's process has ended. None where that cannot be seen from here: another machine or container."""
    if owner.host != here.host:
        return None
    if owner.boot != here.boot:
        return True
    if owner.space != here.space:
        return None
    born = _born(owner.pid, proc)
    return born is None or born != owner.born


def _boot(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _space(proc: Path) -> str:
    try:
        return str((proc / "self/ns/pid").readlink())
    except OSError:
        return ""


def _born(pid: int, proc: Path) -> str | None:
    """When a process began; None where there is none, or only what is left of one until its parent looks."""
    if not sys.platform.startswith("linux"):
        import psutil  # noqa: PLC0415 - Linux has it in a file

        try:
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else str(round(process.create_time()))
        except psutil.Error:
            return None
    try:
        # The name in brackets may hold anything; the fields after it are the state first and the start as the 20th.
        fields = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


T = TypeVar("T")
P = ParamSpec("P")


class OpenedStore:
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

"""One interface to both databases: how each is opened, and how transactions begin, are retried, and report errors.

SQLite runs in WAL mode, so that readers never wait for a writer, with synchronous=FULL: in WAL mode NORMAL may lose the
last commits to a power cut, and a run is promised to be there once its link is printed. It costs one fsync a commit.
"""

import math
import random
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import field
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, TimeoutError  # noqa: A004 - of the pool: none was free
from sqlalchemy.pool import QueuePool

from inferometer.core.errors import DomainError, MissingDependencyError
from inferometer.core.frozen import frozen
from inferometer.store.errors import StoreError
from inferometer.store.location import Location, without_password

# Database errors as sentences with a remedy, and which of them are worth a retry.

_ELSEWHERE = "Choose another store with INFEROMETER_STORE. What measures needs none with --no-store."

# The beginning of SQLite's own name for what went wrong, what that is, what to do.
_SQLITE = (
    ("SQLITE_FULL", "cannot be written: the disk is full", "Make room; nothing that was stored before is lost."),
    ("SQLITE_READONLY", "may not be written to", _ELSEWHERE),
    ("SQLITE_CORRUPT", "is damaged", "Restore it from a copy, or move it away: a new one is made."),
    ("SQLITE_NOTADB", "is not a store's file, or is damaged", "Move it away: a new one is made; or name another."),
    ("SQLITE_CANTOPEN", "cannot be opened", _ELSEWHERE),
    ("SQLITE_BUSY", "was held by another program for too long", "Try again when it has ended."),
    ("SQLITE_IOERR", "cannot be read or written: the disk reports an error", "See the system's log."),
)
# PostgreSQL's five letters.
_STATES = {
    "53100": ("cannot be written: the server's disk is full", "Make room on the server."),
    "53300": ("has too many connections", "Try again, or raise max_connections."),
    "25006": ("is read-only", "Connect to the primary server."),
    "42501": ("may not be changed by this user", "GRANT the user what is missing, or connect as another."),
}
# A connection that fails has no such letters: only words.
_WORDS = (
    (r"password authentication failed|no password supplied", "refuses the password", "Check user and password."),
    (r"database .* does not exist", "has no such database", "Create it with createdb, or name another."),
    (r"role .* does not exist", "knows no such user", "Check the user's name."),
    (r"no pg_hba.conf entry", "does not let this user in from here", "Add a line to the server's pg_hba.conf."),
    (r"not currently accepting connections|is (starting up|shutting down)|in recovery mode",
     "lets nobody in at the moment", "Try again when the server is up; --no-store measures without it."),
    (r"refused|timeout|timed out|unreachable|resolve|translate|No such file|closed the connection",
     "does not answer", "Check that the server runs, and its host and port; --no-store measures without it."),
)  # fmt: skip
_PASSING_STATES = {"40001", "40P01", "55P03"}


def passing(error: DBAPIError) -> bool:
    """Whether trying again may help: somebody else held a lock, or the order could not be kept."""
    if getattr(error.orig, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return True
    return getattr(error.orig, "sqlstate", None) in _PASSING_STATES


def store_error(error: DBAPIError, location: Location) -> StoreError:
    what, words, remedy = _understood(error)
    said = f" ({words})" if words else ""
    message = without_password(f"The store {location} {what}{said}.")
    return StoreError(message, remedy=remedy, told=f"The store {what}.")


def busy(location: Location) -> StoreError:
    """All connections were in use for a minute: a fault of ours, or far too much at once."""
    much = "has too much to do at the moment."
    return StoreError(f"The store {location} {much}", remedy="Try again.", told=f"The store {much}")


def _understood(error: DBAPIError) -> tuple[str, str | None, str]:
    """What it is, the database's own words where they say more, and what to do."""
    name = getattr(error.orig, "sqlite_errorname", "")
    for beginning, what, remedy in _SQLITE:
        if name.startswith(beginning):
            return what, None, remedy
    state = getattr(error.orig, "sqlstate", None)
    if state in _STATES:
        what, remedy = _STATES[state]
        return what, None, remedy
    message = " ".join(str(error.orig).split())[:300]
    if isinstance(error, IntegrityError):
        return "refuses this: it would not hold together", message, "Look again: another program may have changed it."
    for pattern, what, remedy in _WORDS:
        if re.search(pattern, message, re.IGNORECASE):
            return what, message, remedy
    return "reports an error", message, "See the database's log."


# Whether anybody has written to a SQLite file: far quicker to ask than to read a page of runs anew.


class FileWatcher:
    """A connection of its own. SQLite counts the changes to a file by any other: another thread, another program."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def version(self) -> int | None:
        """None where it cannot be told, as of a file that is not there any more."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            except sqlite3.Error:
                return None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None


T = TypeVar("T")

_BUSY_S = 20.0  # how long one statement waits for another writer
_LOOK_AGAIN_S = 0.01
_PATIENCE_S = 120.0  # how long a transaction is tried again
_CONNECT_S = 10
_JUST_USED_S = 0.5
_LEAST_FREE = 10_000_000  # bytes of a disk that is not full
# A hub works in forty threads, and each may want a connection. Those to PostgreSQL are kept, since opening one costs
# more than what is done with it; of SQLite's, what is over the first few is closed again after use.
_POOL = {"pool_size": 5, "max_overflow": 45, "pool_timeout": 60.0}
_POSTGRES_POOL = {"pool_size": 40, "max_overflow": 10, "pool_timeout": 60.0, "pool_recycle": 3600}


class _LostBeforeCommitError(Exception):
    """The connection was lost while nothing was done for good: the server was started again. It may be tried anew."""

    def __init__(self, error: DBAPIError) -> None:
        super().__init__(str(error))
        self.error = error


@frozen
class Database:
    """An engine and where it leads. Everything the store does goes through `reading` or `write`."""

    engine: Engine
    location: Location
    read_only: bool = False
    why: str | None = None  # it is, where nobody asked for that
    watcher: FileWatcher | None = None
    pause: Callable[[float], None] = time.sleep
    # SQLite has one writer at a time. Those of one process take turns here: SQLite itself lets a writer sleep and look
    # again, so that under load the unlucky wait for seconds.
    turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def postgres(self) -> bool:
        return self.engine.dialect.name == "postgresql"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._telling(), self._answering() as connection:
            yield connection

    def _answering(self) -> Connection:
        """A connection to read by. PostgreSQL's may be lost since it was used last: then all are made anew.

        One that was used a moment ago is not asked whether it is still there.

        At its usual isolation a transaction of reads sees what comes between them all the same, so that it would only
        cost two more trips to the server.
        """
        plain = self.engine.connect()
        if not self.postgres:
            return plain
        plain.execution_options(isolation_level="AUTOCOMMIT")
        used, now = plain.info.get("used_s", -math.inf), time.monotonic()
        plain.info["used_s"] = now
        if now - used < _JUST_USED_S:
            return plain
        try:
            plain.exec_driver_sql("SELECT 1")
        except DBAPIError as error:
            plain.close()
            if not error.connection_invalidated:
                raise
            return self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        return plain

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection to read by that sees the store as it is now, however long it reads and whoever writes.

        SQLite's log gives that to every transaction of reads; PostgreSQL only to one that asks for it.
        """
        with self._telling(), self.engine.connect() as connection:
            if self.postgres:
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do the work in one transaction: all of it or nothing. It may be called again where others were in the way."""
        if self.read_only:
            raise StoreError(
                self.why or f"The store {self.location} is open for reading only.",
                remedy="Choose another with INFEROMETER_STORE.",
                told="The store is open for reading only.",
            )
        deadline, wait = time.monotonic() + _PATIENCE_S, 0.005
        while True:
            try:
                return self._once(work)
            except _LostBeforeCommitError as lost:
                if time.monotonic() > deadline:
                    raise store_error(lost.error, self.location) from lost.error
            except DBAPIError as error:
                if not passing(error) or time.monotonic() > deadline:
                    raise store_error(error, self.location) from error
            except TimeoutError as error:
                raise busy(self.location) from error
            self.pause(wait * random.uniform(0.5, 1.5))  # noqa: S311 - so that writers do not meet again
            wait = min(wait * 2, 0.5)

    def _once(self, work: Callable[[Connection], T]) -> T:
        with nullcontext() if self.postgres else self.turn, self.engine.connect() as plain:
            connection = plain.execution_options(inferometer_writes=True)
            with connection.begin():
                try:
                    return work(connection)
                except DBAPIError as error:
                    if error.connection_invalidated:
                        raise _LostBeforeCommitError(error) from error
                    raise

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise store_error(error, self.location) from error
        except TimeoutError as error:
            raise busy(self.location) from error

    def mark(self) -> object:
        """Something that is another whenever anybody has written; None where that cannot be told.

        PostgreSQL's is the snapshot of now, which transactions are over and which are not: two that are equal see the
        same rows. Writers of other databases on that server change it too, which costs a look and is never wrong.
        """
        if self.watcher is not None:
            return self.watcher.version()
        try:
            with self.reading() as connection:
                return connection.exec_driver_sql("SELECT pg_current_snapshot()::text").scalar()
        except StoreError:
            return None

    def takes_writes(self) -> bool:
        """Whether a run could be stored now, as far as can be seen without storing one."""
        if self.read_only:
            return False
        if self.location.file is not None:
            try:
                return shutil.disk_usage(self.location.file.parent).free >= _LEAST_FREE
            except OSError:  # the folder is gone from under it, as with a disk that was taken away
                return False
        with self.reading() as connection:
            return not connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar()

    def close(self) -> None:
        if self.watcher is not None:
            self.watcher.close()
        # One that a thread still uses comes back later, to a pool that nobody empties any more.
        event.listen(self.engine, "checkin", lambda _connection, record: record.invalidate())
        self.engine.dispose()


def open_database(location: Location, *, read_only: bool = False, why: str | None = None) -> Database:
    if location.file is None:
        return Database(engine=_postgres(location), location=location, read_only=read_only, why=why)
    connect = _sqlite_connect(location, read_only=read_only, alone=why is not None)
    # The pool is named: SQLAlchemy would take that of a database in memory, since it does not see the file.
    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, **_POOL)
    event.listen(engine, "begin", _begin)
    return Database(engine=engine, location=location, read_only=read_only, why=why, watcher=FileWatcher(connect))


def _sqlite_connect(location: Location, *, read_only: bool, alone: bool) -> Callable[[], sqlite3.Connection]:
    """`alone`: nobody can write to it, this program included, so that no lock is needed."""
    file = location.file
    assert file is not None  # noqa: S101 - the caller looked
    if not read_only:
        assert location.file is not None  # noqa: S101 - a SQLite store has one
        try:
            location.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(
                f"The folder of the store, {location.file.parent}, cannot be made ({error.strerror or error}).",
                remedy=_ELSEWHERE,
            ) from None
    way = f"{file.as_uri()}?mode={'ro' if read_only else 'rwc'}"
    if alone and not file.with_name(f"{file.name}-wal").exists():
        way += "&immutable=1"  # without it a reader makes two files beside it, which a read-only disk refuses

    def connect() -> sqlite3.Connection:
        # autocommit of the driver: transactions are begun by `_begin` below, and by nothing else
        opened = sqlite3.connect(way, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            opened.execute("PRAGMA foreign_keys=ON")
            opened.execute("PRAGMA cache_size=-20000")
            if not read_only:
                _keep_a_log(opened)
                opened.execute("PRAGMA synchronous=FULL")
        except BaseException:
            opened.close()
            raise
        return opened

    return connect


def _keep_a_log(opened: sqlite3.Connection) -> None:
    """Readers then go on beside a writer. SQLite itself does not wait for who makes the same change at this moment."""
    until = time.monotonic() + _BUSY_S
    while opened.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            opened.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(_LOOK_AGAIN_S)
        else:
            return  # a file system that cannot leaves it as it is, and says nothing


def _begin(connection: Connection) -> None:
    """A writer takes its place in the queue at once: two that read first would each wait for the other."""
    writes = connection.get_execution_options().get("inferometer_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgres(location: Location) -> Engine:
    url = (location.url or "").replace("postgresql://", "postgresql+psycopg://", 1)
    try:
        # Without pool_pre_ping: writes are tried again where a connection was lost, and `reading` looks for itself.
        return create_engine(url, connect_args={"connect_timeout": _CONNECT_S}, **_POSTGRES_POOL)
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "A PostgreSQL store needs psycopg, which is not installed.", remedy="pip install 'inferometer[hub]'"
        ) from None
    except (ArgumentError, ValueError):
        raise DomainError(
            f"{location} is not the address of a database.",
            remedy="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
        ) from None

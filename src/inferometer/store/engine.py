"""One interface to both databases: how each is opened, and how transactions begin, are retried, and report errors.

SQLite runs in WAL mode, so that readers never wait for a writer, with synchronous=FULL: in WAL mode NORMAL may lose the
last commits to a power cut, and a run is promised to be there once its link is printed. It costs one fsync a commit.
"""

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import QueuePool

from inferometer.errors import DomainError, MissingDependencyError
from inferometer.store.errors import StoreError
from inferometer.store.failures import passing, store_error
from inferometer.store.location import Location

T = TypeVar("T")

_BUSY_S = 20.0  # how long one statement waits for another writer
_PATIENCE_S = 120.0  # how long a transaction is tried again
_CONNECT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An engine and where it leads. Everything the store does goes through `reading` or `write`."""

    engine: Engine
    location: Location
    read_only: bool = False
    pause: Callable[[float], None] = time.sleep

    @property
    def postgres(self) -> bool:
        return self.engine.dialect.name == "postgresql"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._telling(), self.engine.connect() as connection:
            yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """Do the work in one transaction: all of it or nothing. It may be called again where others were in the way."""
        if self.read_only:
            raise StoreError(
                f"The store {self.location} is open for reading only.", remedy="Choose another with INFEROMETER_STORE."
            )
        deadline, wait = time.monotonic() + _PATIENCE_S, 0.005
        while True:
            try:
                return self._once(work)
            except DBAPIError as error:
                if not passing(error) or time.monotonic() > deadline:
                    raise store_error(error, self.location) from error
            self.pause(wait * random.uniform(0.5, 1.5))  # noqa: S311 - so that writers do not meet again
            wait = min(wait * 2, 0.5)

    def _once(self, work: Callable[[Connection], T]) -> T:
        with self.engine.connect() as plain:
            connection = plain.execution_options(inferometer_writes=True)
            with connection.begin():
                return work(connection)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise store_error(error, self.location) from error

    def close(self) -> None:
        self.engine.dispose()


def open_database(location: Location, *, read_only: bool = False) -> Database:
    engine = _sqlite(location, read_only=read_only) if location.file is not None else _postgres(location)
    return Database(engine=engine, location=location, read_only=read_only)


def _sqlite(location: Location, *, read_only: bool) -> Engine:
    file = location.file
    assert file is not None  # noqa: S101 - the caller looked
    if not read_only:
        _make_folder(location)
    way = f"{file.as_uri()}?mode={'ro' if read_only else 'rwc'}"

    def connect() -> sqlite3.Connection:
        # autocommit of the driver: transactions are begun by `_begin` below, and by nothing else
        opened = sqlite3.connect(way, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(opened, read_only=read_only)
        except BaseException:
            opened.close()
            raise
        return opened

    # The pool is named: SQLAlchemy would take that of a database in memory, since it does not see the file.
    engine = create_engine("sqlite://", creator=connect, pool_size=5, max_overflow=20, poolclass=QueuePool)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(opened: sqlite3.Connection, *, read_only: bool) -> None:
    opened.execute("PRAGMA foreign_keys=ON")
    opened.execute("PRAGMA cache_size=-20000")
    if not read_only:
        if opened.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            opened.execute("PRAGMA journal_mode=WAL")
        opened.execute("PRAGMA synchronous=FULL")


def _begin(connection: Connection) -> None:
    """A writer takes its place in the queue at once: two that read first would each wait for the other."""
    writes = connection.get_execution_options().get("inferometer_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _make_folder(location: Location) -> None:
    assert location.file is not None  # noqa: S101 - a SQLite store has one
    try:
        location.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(
            f"The folder of the store, {location.file.parent}, cannot be made ({error.strerror or error}).",
            remedy="Choose another with INFEROMETER_STORE, or leave the run out of it with --no-store.",
        ) from None


def _postgres(location: Location) -> Engine:
    url = (location.url or "").replace("postgresql://", "postgresql+psycopg://", 1)
    try:
        return create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": _CONNECT_S})
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "A PostgreSQL store needs psycopg, which is not installed.", remedy="pip install 'inferometer[hub]'"
        ) from None
    except (ArgumentError, ValueError):
        raise DomainError(
            f"{location} is not the address of a database.",
            remedy="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE.",
        ) from None

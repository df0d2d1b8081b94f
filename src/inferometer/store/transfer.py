"""A whole store, read as of one moment and written into an empty one: every row and every file, as they are.

Backing up reads a `Snapshot`; restoring writes what a backup's file holds; copying a store to another database writes a
snapshot. What is written arrives in one transaction, so that it is there as a whole or not at all.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, Protocol

from sqlalchemy import Connection, MetaData, Table, bindparam, func, insert, select, text, update

from inferometer.core.frozen import frozen
from inferometer.store import files
from inferometer.store.errors import StoreError
from inferometer.store.location import REVISIONS, Location, locate
from inferometer.store.schema import run_alembic
from inferometer.store.store import Store, open_store
from inferometer.store.tables import artifacts, fleet_files, metadata

FileKind = Literal["artifacts", "models"]
Tell = Callable[[str], None]  # a line of progress

_FETCHED = 100  # rows in memory at once; a profile may have megabytes
_BATCH_ROWS, _BATCH_BYTES = 500, 8_000_000  # of one INSERT
_CHUNK = 1 << 20
# A run may come before the one it belongs to: that column is filled in when all rows stand.
_POINTS_INTO_ITS_OWN_TABLE = {"runs": "parent"}


def silent(_line: str) -> None:
    """Progress that nobody looks at."""


@frozen
class SourceFile:
    kind: FileKind
    sha256: str
    chunks: Iterator[bytes]


class TransferSource(Protocol):
    """Where a store's content comes from. `tables` are its tables' columns, a table after those it points to."""

    @property
    def revision(self) -> str: ...
    @property
    def tables(self) -> Mapping[str, tuple[str, ...]]: ...
    def rows(self, table: Table) -> Iterator[tuple[Any, ...]]:
        """Values in the order of the source's columns, of the types of the table's."""
        ...

    def files(self) -> Iterator[SourceFile]: ...


@frozen
class Snapshot:
    """An open store as it was when this was made. `lost` collects the files that rows name and that are not there."""

    connection: Connection
    location: Location
    models: bool = False
    lost: list[str] = field(default_factory=list)

    @property
    def revision(self) -> str:
        return REVISIONS[-1]  # opening a store brings its tables up to date

    @property
    def tables(self) -> Mapping[str, tuple[str, ...]]:
        return {str(table.name): tuple(map(str, table.columns.keys())) for table in metadata.sorted_tables}

    def rows(self, table: Table) -> Iterator[tuple[Any, ...]]:
        """By primary key: texts are compared byte by byte, so that the order is the same on both databases."""
        own = metadata.tables[table.name]
        query = select(own).order_by(*own.primary_key.columns)
        streamed = {"stream_results": True, "yield_per": _FETCHED}
        for row in self.connection.execute(query, execution_options=streamed):
            yield tuple(row)

    def files(self) -> Iterator[SourceFile]:
        """The files of runs; models of the fleet's jobs where they are wanted and still kept."""
        for sha256 in self._hashes(artifacts):
            place = files.path_of(self.location.artifacts, sha256)
            if place.is_file():
                yield SourceFile(kind="artifacts", sha256=sha256, chunks=_read(place))
            else:
                self.lost.append(sha256)
        for sha256 in self._hashes(fleet_files) if self.models else ():
            place = files.path_of(models_folder(self.location), sha256)
            if place.is_file():
                yield SourceFile(kind="models", sha256=sha256, chunks=_read(place))

    def _hashes(self, table: Table) -> list[str]:
        return list(self.connection.execute(select(table.c.sha256).distinct().order_by(table.c.sha256)).scalars())


@contextmanager
def snapshot(store: Store, *, models: bool = False) -> Iterator[Snapshot]:
    with store.database.snapshot() as connection:
        yield Snapshot(connection=connection, location=store.location, models=models)


def models_folder(location: Location) -> Path:
    """Where a hub keeps the models of its fleet's jobs, by hash, as the files of runs are kept."""
    return location.artifacts.with_name(f"{location.artifacts.name}.fleet") / "artifacts"


def _read(place: Path) -> Iterator[bytes]:
    with place.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


@contextmanager
def opened_to_fill(place: str | Path | None) -> Iterator[Store]:
    """The store of that place, which must hold nothing. A file that was made for it is removed where filling fails."""
    file = locate(place).file
    fresh = file is not None and not file.exists()
    try:
        with open_store(place) as store:
            _require_empty(store)
            yield store
    except BaseException:
        if file is not None and fresh:
            for ending in ("", "-wal", "-shm"):
                file.with_name(file.name + ending).unlink(missing_ok=True)
        raise


def _require_empty(store: Store) -> None:
    with store.database.reading() as connection:
        used = first_used_table(connection)
    if used is not None:
        raise StoreError(
            f"The store {store.location} is not empty: there are rows in its table {used}.",
            remedy="Name a new file or an empty database; nothing was changed.",
        )


def first_used_table(connection: Connection) -> str | None:
    """A table of ours that has a row."""
    for table in metadata.sorted_tables:
        if connection.execute(select(text("1")).select_from(table).limit(1)).first() is not None:
            return table.name
    return None


def fill(store: Store, source: TransferSource, *, keep_files: bool = True, tell: Tell = silent) -> tuple[str, ...]:
    """Write a source into an empty store. Gives the hashes of files that were not what they should be.

    Files come first, since rows name them. If anything fails, or is interrupted, those that are new go again.
    """
    new: list[Path] = []
    try:
        damaged = _fill_files(store.location, source, new, tell) if keep_files else _read_files(source, tell)
        store.database.write(lambda connection: _fill_tables(connection, source, tell))
    except BaseException:
        for place in new:
            with suppress(OSError):
                place.unlink()
        raise
    return damaged


def _fill_files(location: Location, source: TransferSource, new: list[Path], tell: Tell) -> tuple[str, ...]:
    damaged = []
    for count, file in enumerate(source.files(), start=1):
        tell(f"files {count:,}")
        folder = location.artifacts if file.kind == "artifacts" else models_folder(location)
        place = files.path_of(folder, file.sha256)
        if place.exists():
            continue  # stores may share a folder
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = files.keep(folder, file.chunks, most=float("inf"))
        new.append(files.path_of(folder, kept.sha256))
        if kept.sha256 != file.sha256:
            new.pop().unlink(missing_ok=True)
            damaged.append(file.sha256)
    return tuple(damaged)


def _read_files(source: TransferSource, tell: Tell) -> tuple[str, ...]:
    """A backup's file says itself where one of its files is damaged: it is enough to read them all."""
    for count, file in enumerate(source.files(), start=1):
        tell(f"files {count:,}")
        for _chunk in file.chunks:
            pass
    return ()


def _fill_tables(connection: Connection, source: TransferSource, tell: Tell) -> None:
    """The rows go into tables of the version that they were written by; then those are brought up to date."""
    if (used := first_used_table(connection)) is not None:
        raise StoreError(f"Another program wrote into table {used} of the store meanwhile.", remedy="Start again.")
    if source.revision != REVISIONS[-1]:
        run_alembic("downgrade", connection, source.revision)
    for name in source.tables:
        _fill_table(connection, Table(name, MetaData(), autoload_with=connection, resolve_fks=False), source, tell)
    if source.revision != REVISIONS[-1]:
        run_alembic("upgrade", connection, "head")
    if connection.dialect.name == "postgresql":
        # PostgreSQL numbers rows by a counter of its own, which knows nothing of rows that came with a number.
        for table in metadata.sorted_tables:
            if "id" in table.c and table.c.id.type.python_type is int:
                last = connection.execute(select(func.max(table.c.id))).scalar()
                if last is not None:
                    connection.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), last)))


def _fill_table(connection: Connection, table: Table, source: TransferSource, tell: Tell) -> None:
    columns, later = source.tables[table.name], _POINTS_INTO_ITS_OWN_TABLE.get(table.name)
    if set(columns) != set(table.columns.keys()):
        raise StoreError(f"The table {table.name} has other columns than those of version {source.revision}.")
    done = 0
    for batch in _batches(dict(zip(columns, row, strict=True)) for row in source.rows(table)):
        connection.execute(insert(table), [{**row, later: None} for row in batch] if later else batch)
        done += len(batch)
        tell(f"{table.name} {done:,}")
    if later is None:
        return
    points = update(table).where(table.c.id == bindparam("of")).values({later: bindparam("to")})
    at, to = columns.index("id"), columns.index(later)
    pointing = ({"of": row[at], "to": row[to]} for row in source.rows(table) if row[to] is not None)
    for batch in _batches(pointing):
        connection.execute(points, batch)


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Lists of rows that are small enough for memory, whatever documents they hold."""
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row.values() if isinstance(value, (str, bytes)))
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch

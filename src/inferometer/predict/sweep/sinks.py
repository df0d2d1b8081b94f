"""Files that rows are added to, chunk by chunk. Until it is complete a file is called `FILE.part`.

Every sink can say where it stands after a chunk (`mark`) and go back to such a mark, so that what a kill left half
written is dropped.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, Protocol

from inferometer.predict.sweep.formats import (
    as_arrow,
    as_csv,
    as_tuples,
    csv_head,
    parquet_writer,
    pieces_in,
    read_arrow,
    write_arrow,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from inferometer.predict.sweep.columns import SweepColumn
    from inferometer.predict.sweep.table import RowsPart

_SQL_TYPES = {"text": "TEXT", "whole": "INTEGER", "number": "REAL", "flag": "INTEGER"}


class Sink(Protocol):
    """Takes what the encoder of its form gives: a chunk, run of rows by run of rows."""

    def add(self, payload: Iterable[Any]) -> int:
        """Write a chunk down for good and return the mark behind it."""

    def rewind(self, mark: int) -> None:
        """Drop everything written after a mark."""

    def finish(self) -> None:
        """Give the file its own name."""

    def close(self) -> None:
        """Leave what is there as it is."""


ENCODERS: dict[str, Callable[[Iterable[RowsPart]], Iterator[Any]]] = {
    "csv": as_csv,
    "parquet": as_arrow,
    "sqlite": pieces_in,
}


def partial_of(path: Path) -> Path:
    """What a file is called until it is complete."""
    return path.with_name(f"{path.name}.part")


def discard(path: Path) -> None:
    """Take away what is under way of a file."""
    partial = partial_of(path)
    if partial.is_dir():
        shutil.rmtree(partial)
    else:
        partial.unlink(missing_ok=True)
        partial.with_name(f"{partial.name}-journal").unlink(missing_ok=True)  # SQLite's own, after a kill


def sink_for(path: Path, form: str, columns: Mapping[str, SweepColumn], *, resume: bool = False) -> Sink:
    kinds: dict[str, Callable[..., Sink]] = {"csv": CsvSink, "parquet": ParquetSink, "sqlite": SqliteSink}
    return kinds[form](path, columns, resume=resume)


class CsvSink:
    """A mark is a length in bytes."""

    def __init__(self, path: Path, columns: Mapping[str, SweepColumn], *, resume: bool) -> None:
        self._path, self._partial, self._head = path, partial_of(path), csv_head(columns)
        self._file: IO[bytes] = self._partial.open("r+b" if resume else "wb")
        self._file.seek(0, os.SEEK_END)
        if not self._file.tell():
            self._file.write(self._head)

    def add(self, payload: Iterable[bytes]) -> int:
        for lines in payload:
            self._file.write(lines)
        self._file.flush()
        # Before the journal says so: a line there promises that the rows survive a power cut.
        os.fsync(self._file.fileno())
        return self._file.tell()

    def rewind(self, mark: int) -> None:
        self._file.truncate(max(mark, len(self._head)))  # a mark of 0 still has its header
        self._file.seek(0, os.SEEK_END)

    def finish(self) -> None:
        self.close()
        self._partial.replace(self._path)

    def close(self) -> None:
        self._file.close()


class SqliteSink:
    """A table named `sweep`. A mark is a number of rows."""

    def __init__(self, path: Path, columns: Mapping[str, SweepColumn], *, resume: bool) -> None:
        self._path, self._partial = path, partial_of(path)
        if not resume:
            discard(path)
        self._base = sqlite3.connect(self._partial)
        typed = ", ".join(f'"{column.name}" {_SQL_TYPES[column.kind]}' for column in columns.values())
        self._base.execute(f"CREATE TABLE IF NOT EXISTS sweep ({typed})")
        self._insert = f"INSERT INTO sweep VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - question marks only
        self._rows = self._count()

    def _count(self) -> int:
        found: int = self._base.execute("SELECT count(*) FROM sweep").fetchone()[0]
        return found

    def add(self, payload: Iterable[RowsPart]) -> int:
        with self._base:
            for part in payload:
                self._base.executemany(self._insert, as_tuples(part))
                self._rows += len(part)
        return self._rows

    def rewind(self, mark: int) -> None:
        with self._base:
            self._base.execute("DELETE FROM sweep WHERE rowid > ?", (mark,))
        self._rows = self._count()

    def finish(self) -> None:
        self.close()
        self._partial.replace(self._path)

    def close(self) -> None:
        self._base.close()


class ParquetSink:
    """Files of columns for each chunk in a folder, since a Parquet file's index stands at its end.

    Beside them the whole file grows, in a thread, while what comes next is computed: Arrow does not hold Python up.
    After a kill it is begun anew from those of the chunks. A mark is a number of such files.
    """

    def __init__(self, path: Path, columns: Mapping[str, SweepColumn], *, resume: bool) -> None:
        self._path, self._folder, self._columns = path, partial_of(path), columns
        if not resume:
            discard(path)
        self._folder.mkdir(exist_ok=True)
        self._files = len(list(self._folder.glob("*.arrow")))
        self._whole = self._folder / "whole"
        self._opened = ExitStack()
        self._grow: Callable[[Any], Future[None]] | None = None
        self._growing: Future[None] | None = None

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:08}.arrow"

    def add(self, payload: Iterable[Any]) -> int:
        # Under another name until it is whole: files are counted by their ending when a sweep goes on.
        unfinished = self._folder / "unfinished"
        for table in payload:
            with unfinished.open("wb") as file:
                write_arrow(table, file)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._file(self._files))
            grow = self._grown()
            self._settle()  # no more than one table waits
            self._growing = grow(table)
            self._files += 1
        return self._files

    def _grown(self) -> Callable[[Any], Future[None]]:
        """What the whole file grows by: begun with the chunks that are there already."""
        if self._grow is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - other forms do without

            write = self._opened.enter_context(parquet_writer(self._whole, self._columns))
            thread = self._opened.enter_context(ThreadPoolExecutor(1))  # ends before the file does
            for number in range(self._files):
                write(read_arrow(self._file(number)))
            self._grow = lambda table: thread.submit(write, table)
        return self._grow

    def _settle(self) -> None:
        """Wait for what is being written, and raise what went wrong with it."""
        if self._growing is not None:
            self._growing.result()

    def rewind(self, mark: int) -> None:
        for number in range(mark, self._files):
            self._file(number).unlink()
        self._files = min(mark, self._files)

    def finish(self) -> None:
        self._grown()
        self._settle()
        self.close()
        self._whole.replace(self._path)
        shutil.rmtree(self._folder)

    def close(self) -> None:
        self._opened.close()

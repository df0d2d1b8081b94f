"""Rows read back from a file that a sweep has written, some at a time."""

from __future__ import annotations

import csv
import sqlite3
from itertools import islice
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import FormatError
from inferometer.predict.sweep.columns import COLUMNS, column_named, columns_with
from inferometer.predict.sweep.formats import FORMS, arrow_module
from inferometer.predict.sweep.grid import CHUNK_ROWS
from inferometer.predict.sweep.rows import Rows, cheapest, pareto, records_of
from inferometer.predict.sweep.table import Unread, vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LATER = frozenset({"threads"})  # columns that files from before them do not have
_FLAGS = {"true": True, "false": False, 1: True, 0: False}


class Saved:
    """Rows that stay in their file: questions read it a chunk at a time, so that it may be of any size."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._length: int | None = None

    @property
    def parts(self) -> Iterator[Unread]:
        return read_parts(self.path)

    def __len__(self) -> int:
        if self._length is None:
            self._length = sum(map(len, self.parts))
        return self._length

    def records(self) -> Iterator[dict[str, Any]]:
        return records_of(self.parts)

    def pareto(self, *names: str, ties: bool = True, only_fitting: bool = True) -> Rows:
        return pareto(self.parts, names, ties=ties, only_fitting=only_fitting)

    def cheapest(self, *conditions: str, by: str = "usd_per_million_tokens") -> Rows:
        return cheapest(self.parts, conditions, by=by)


def read_rows(path: str | Path) -> Rows:
    """All rows of a file, in memory."""
    return Rows([part.read() for part in read_parts(Path(path))])


def read_parts(path: Path) -> Iterator[Unread]:
    """The rows of a CSV, Parquet or SQLite file, a chunk at a time; a column is converted when it is looked at."""
    form = FORMS.get(path.suffix.lower())
    if form is None or not path.is_file():
        raise FormatError(f"There is no file {str(path)!r} of a sweep.", remedy=f"They end with {', '.join(FORMS)}.")
    readers: dict[str, Callable[[Path], Iterator[Unread]]] = {
        "csv": _read_csv, "parquet": _read_parquet, "sqlite": _read_sqlite,
    }  # fmt: skip
    return readers[form](path)


def _known_columns(path: Path, names: Sequence[str]) -> list[str]:
    """The columns that a file has: all but the details, or those too."""
    missing = [name for name in COLUMNS if name not in names and name not in _LATER]
    if missing:
        raise FormatError(f"{path} is no file of a sweep: it has no column {missing[0]!r}.")
    return [name for name in columns_with(details=True) if name in names]


def _read_csv(path: Path) -> Iterator[Unread]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        head = next(reader, [])
        known = _known_columns(path, head)
        while lines := list(islice(reader, CHUNK_ROWS)):
            if any(len(line) != len(head) for line in lines):
                raise FormatError(f"{path} has a line that is not of {len(head)} values, up to line {reader.line_num}.")
            columns = dict(zip(head, zip(*lines, strict=True), strict=True))
            yield Unread(length=len(lines), texts={name: columns[name] for name in known}, convert=_from_texts)


def _from_texts(texts: Sequence[str], name: str) -> Any:
    kind = column_named(name).kind
    if kind == "text":
        return vector([intern(text) if text else None for text in texts], name)
    if kind == "flag":
        return vector([_FLAGS.get(text) for text in texts], name)
    try:
        return np.array([float(text) if text else np.nan for text in texts])
    except ValueError as error:
        raise FormatError(f"The column {name} has something that is no number: {error}.") from None


def _read_sqlite(path: Path) -> Iterator[Unread]:
    base = sqlite3.connect(path)
    try:
        known = _known_columns(path, [row[1] for row in base.execute("PRAGMA table_info(sweep)")])
        names = ", ".join(f'"{name}"' for name in known)
        cursor = base.execute(f"SELECT {names} FROM sweep ORDER BY rowid")  # noqa: S608 - our own column names
        while lines := cursor.fetchmany(CHUNK_ROWS):
            columns = dict(zip(known, zip(*lines, strict=True), strict=True))
            yield Unread(length=len(lines), texts=columns, convert=_from_values)
    except sqlite3.Error as error:
        raise FormatError(f"{path} cannot be read: {error}.") from None
    finally:
        base.close()


def _from_values(values: Sequence[Any], name: str) -> Any:
    kind = column_named(name).kind
    if kind == "text":
        return vector([intern(value) if value else None for value in values], name)
    return vector([_FLAGS.get(value) for value in values] if kind == "flag" else values, name)


def _read_parquet(path: Path) -> Iterator[Unread]:
    arrow, parquet = arrow_module("pyarrow"), arrow_module("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
        known = _known_columns(path, file.schema_arrow.names)
        for batch in file.iter_batches(CHUNK_ROWS, columns=known):
            yield Unread(length=batch.num_rows, texts={n: batch.column(n) for n in known}, convert=_from_arrow)
    except arrow.ArrowException as error:
        raise FormatError(f"{path} cannot be read: {error}.") from None


def _from_arrow(values: Any, name: str) -> Any:
    found = values.to_numpy(zero_copy_only=False)
    return found.astype(object) if column_named(name).kind in {"text", "flag"} else found.astype(float)

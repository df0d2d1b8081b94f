"""The rows of a sweep: columns as numpy arrays, without a row ever being built."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.lazy import Framed, late
from inferometer.predict.sweep import choose
from inferometer.predict.sweep.columns import COLUMNS, Kind, SweepColumn, column_named
from inferometer.predict.sweep.table import SweepTable, is_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_TYPES: dict[Kind, Any] = {"text": object, "whole": np.int64, "number": float, "flag": bool}


class RowsPart(Protocol):
    """Consecutive rows: an Answer, or a SweepTable."""

    @property
    def columns(self) -> Mapping[str, SweepColumn]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def pieces(self) -> Iterator[RowsPart]:
        """The same rows in runs of some thousands, where a column of them is worked out the quicker."""

    def column(self, name: str) -> Any:
        """An array that broadcasts to `shape`."""


class RowSource(Protocol):
    """Rows in memory, or in a file: what questions and charts need."""

    @property
    def parts(self) -> Iterable[RowsPart]: ...

    def __len__(self) -> int: ...

    def records(self) -> Iterator[dict[str, Any]]: ...

    def pareto(self, *names: str, ties: bool = True, only_fitting: bool = True) -> Rows: ...

    def cheapest(self, *conditions: str, by: str = "usd_per_million_tokens") -> Rows: ...


class Rows(Framed):
    """One row a configuration. `rows["tpot_s"]` is a numpy array; `columns` are its names.

    Numbers are NaN and texts None where there is nothing to say; whole numbers are int64 where all are known. A row
    that cannot be says why in the column `reason`.
    """

    __slots__ = ("_columns", "_parts", "_pieces")

    def __init__(self, parts: Sequence[RowsPart]) -> None:
        self._parts = tuple(part for part in parts if len(part))
        self._columns = self._parts[0].columns if self._parts else COLUMNS
        self._pieces: list[RowsPart] | None = None  # views that every column is worked out from, cut once

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    @property
    def parts(self) -> tuple[RowsPart, ...]:
        return self._parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {len(self._columns)} columns>"

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def to_columns(self) -> dict[str, Any]:
        """Every column as a numpy array."""
        columns: dict[str, Any] = late("frames", "rows_columns")(self)
        return columns

    def _repr_html_(self) -> str:
        return str(late("notebook", "view_html")(self))

    def __getitem__(self, name: str) -> Any:
        kind = column_named(name).kind
        if name not in self._columns:
            raise DomainError(
                f"The rows have no column {name!r}: it is a detail that was not asked for.",
                remedy="Ask for details=True, or --details on the command line.",
            )
        if self._pieces is None:
            self._pieces = [piece for part in self._parts for piece in part.pieces()]
        return written_out(((piece.column(name), piece.shape) for piece in self._pieces), len(self), kind)

    def records(self) -> Iterator[dict[str, Any]]:
        """The rows one by one, as plain values; None where a column has none."""
        return records_of(self._parts)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.records()

    def take(self, places: Any) -> Rows:
        """The rows at these places, or those where a vector of flags is true."""
        # an empty list would be floats, which index nothing
        chosen = np.asarray(places, dtype=None if len(places) else int)
        if chosen.dtype == bool:
            if len(chosen) != len(self):
                raise DomainError(f"{len(chosen)} flags were given for {len(self)} rows.")
            chosen = np.flatnonzero(chosen)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self):
            raise DomainError(f"There are {len(self)} rows, and one outside of them was asked for.")
        ends = np.cumsum([len(part) for part in self._parts])
        owners = np.searchsorted(ends, chosen, side="right")
        # Part by part, so that each column of a part is looked up once; then back into the order that was asked for.
        order = np.argsort(owners, kind="stable")
        groups = [
            (part, chosen[order][owners[order] == number] - (ends[number] - len(part)))
            for number, part in enumerate(self._parts)
        ]
        values = {}
        for name, column in self._columns.items():
            found = [_picked(part.column(name), part.shape, local) for part, local in groups if len(local)]
            joined = np.concatenate(found) if found else np.empty(0, dtype=_TYPES[column.kind])
            values[name] = np.empty_like(joined)
            values[name][order] = joined
        return Rows([SweepTable(length=len(chosen), values=values)])

    def pareto(self, *names: str, ties: bool = True, only_fitting: bool = True) -> Rows:
        """The rows that no other row is better than in all of these columns, ordered by the first.

        Lower is better, but for `tokens_per_s` and the sizes. Rows without one of the numbers are left out, and those
        that do not fit into memory unless `only_fitting` is False. Without `ties` equal rows are one, the first.
        """
        return choose.pareto(self.parts, names, ties=ties, only_fitting=only_fitting)

    def cheapest(self, *conditions: str, by: str = "usd_per_million_tokens") -> Rows:
        """For each device its cheapest row that meets all conditions (`"tpot_s<=50ms"`), the cheapest device first."""
        return choose.cheapest(self.parts, conditions, by=by)

    def to_csv(self, path: str | Path) -> None:
        self._write(path, "csv")

    def to_parquet(self, path: str | Path) -> None:
        self._write(path, "parquet")

    def to_sqlite(self, path: str | Path) -> None:
        """A table named `sweep` in a new file."""
        self._write(path, "sqlite")

    def _write(self, path: str | Path, form: str) -> None:
        from inferometer.predict.sweep.write import write_rows  # noqa: PLC0415 - it knows Rows

        write_rows(self, path, form)


def records_of(parts: Iterable[RowsPart]) -> Iterator[dict[str, Any]]:
    """Rows one by one, as plain values."""
    for part in parts:
        small = Rows([part])
        columns = [plain(small[name], column.kind) for name, column in part.columns.items()]
        for values in zip(*columns, strict=True):
            yield dict(zip(part.columns, values, strict=True))


def _picked(values: Any, shape: tuple[int, ...], places: Any) -> Any:
    """A column at some places of its part, without writing the others out."""
    return np.broadcast_to(values, shape)[np.unravel_index(places, shape)]


def written_out(pieces: Iterable[tuple[Any, tuple[int, ...]]], rows: int, kind: Kind) -> Any:
    """A column with a value for every row, from what it is along the axes that it depends on, and the rows' shape."""
    found = np.empty(rows, dtype=_TYPES[kind])
    start = 0
    for values, shape in pieces:
        stop = start + prod(shape)
        found = _widened(found, values, kind)
        found[start:stop].reshape(shape)[...] = values
        start = stop
    return found


def _widened(column: Any, values: Any, kind: Kind) -> Any:
    """A column that can take what comes next: whole numbers become floats, and flags objects, where some are absent."""
    if kind == "whole" and column.dtype != float and np.isnan(values).any():
        return column.astype(float)
    if kind == "flag" and column.dtype == bool and values.dtype == object and is_none(values).any():
        return column.astype(object)
    return column


def impossible_in(part: RowsPart) -> int:
    """How many rows of a part have a reason instead of numbers."""
    told = ~is_none(part.column("reason")).astype(bool)
    return int(np.count_nonzero(np.broadcast_to(told, part.shape)))


def plain(values: Any, kind: Kind) -> list[Any]:
    """A column's values as Python's own: None for NaN, and whole numbers whole."""
    found: list[Any] = values.ravel().tolist()
    if values.dtype != float:
        return found
    if kind == "whole":
        return [None if value != value else int(value) for value in found]  # noqa: PLR0124 - only NaN differs from itself
    return [None if value != value else value for value in found]  # noqa: PLR0124 - as above

"""The rows of a sweep: columns as numpy arrays, without a row ever being built."""

from __future__ import annotations

import operator
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from inferometer.core.cache import not_written
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.lazy import Framed, late
from inferometer.core.units import parse_quantity
from inferometer.predict.sweep.columns import COLUMNS, HIGHER_IS_BETTER, column_named, unit_of
from inferometer.predict.sweep.formats import require_parquet
from inferometer.predict.sweep.sinks import ENCODERS, discard, sink_for
from inferometer.predict.sweep.table import TYPES, RowsPart, SweepTable, plain, written_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


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
            joined = np.concatenate(found) if found else np.empty(0, dtype=TYPES[column.kind])
            values[name] = np.empty_like(joined)
            values[name][order] = joined
        return Rows([SweepTable(length=len(chosen), values=values)])

    def pareto(self, *names: str, ties: bool = True, only_fitting: bool = True) -> Rows:
        """The rows that no other row is better than in all of these columns, ordered by the first.

        Lower is better, but for `tokens_per_s` and the sizes. Rows without one of the numbers are left out, and those
        that do not fit into memory unless `only_fitting` is False. Without `ties` equal rows are one, the first.
        """
        return pareto(self.parts, names, ties=ties, only_fitting=only_fitting)

    def cheapest(self, *conditions: str, by: str = "usd_per_million_tokens") -> Rows:
        """For each device its cheapest row that meets all conditions (`"tpot_s<=50ms"`), the cheapest device first."""
        return cheapest(self.parts, conditions, by=by)

    def to_csv(self, path: str | Path) -> None:
        self._write(path, "csv")

    def to_parquet(self, path: str | Path) -> None:
        self._write(path, "parquet")

    def to_sqlite(self, path: str | Path) -> None:
        """A table named `sweep` in a new file."""
        self._write(path, "sqlite")

    def _write(self, path: str | Path, form: str) -> None:
        if form == "parquet":
            require_parquet()
        path = Path(path)
        try:
            with closing(sink_for(path, form, self._columns)) as sink:
                sink.add(ENCODERS[form](self._parts))
                sink.finish()
        except (OSError, sqlite3.Error) as error:
            with suppress(OSError):
                discard(path)
            raise not_written(path, error) from error


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


# Which rows to look at: the Pareto front, and the cheapest device that meets what is asked of it. Both are found part
# by part, so that no more than one part's columns are ever written out.

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq,
}  # fmt: skip
_MOST_HELD = 1 << 16  # rows of several parts before the best of them are found
_CONDITION = re.compile(r"\s*([a-z0-9_]+)\s*(<=|>=|<|>|==?)\s*(.+?)\s*")


@frozen
class Condition:
    """A limit on a column: `tpot_s <= 0.05`."""

    column: str
    comparison: str
    limit: float

    def holds(self, rows: Rows) -> Any:
        values = rows[self.column].astype(float)
        return _COMPARISONS[self.comparison](values, self.limit)  # NaN meets nothing


def parse_condition(text: str) -> Condition:
    """`tpot_s<=0.05`, or with a unit of the column's kind: `tpot_s<=50ms`, `peak_memory_bytes<24GB`."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise DomainError(
            f"The condition {text!r} cannot be read.", remedy="Write a column, a comparison and a number: tpot_s<=50ms."
        )
    column = column_named(match[1])
    if column.kind == "text":
        raise DomainError(f"The column {column.name} has no numbers to compare.")
    limit = parse_quantity(match[3], unit_of(column.name))
    return Condition(column=column.name, comparison="=" if match[2] == "==" else match[2], limit=limit)


def pareto(parts: Iterable[RowsPart], names: Sequence[str], *, ties: bool = True, only_fitting: bool = True) -> Rows:
    if not names:
        raise DomainError("A Pareto front needs columns.", remedy="Give two: tpot_s, usd_per_million_tokens.")
    for name in names:
        if column_named(name).kind not in {"number", "whole"}:
            raise DomainError(f"The column {name} has no numbers that could be better or worse.")

    def best(part: Rows) -> Any:
        points = np.stack([_lower_is_better(part, name) for name in names], axis=1)
        usable = ~np.isnan(points).any(axis=1)
        if only_fitting:
            usable &= _may_fit(part)
        places = np.flatnonzero(usable)
        return places[front(points[places], ties=ties)]

    found = _reduced(parts, best)
    # lexsort sorts by its last key first
    order = np.lexsort([_lower_is_better(found, name) for name in reversed(names)])
    return found.take(order)


def without_figures(parts: Iterable[RowsPart], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Devices that are in no front of these columns, because no row of theirs has them all; and which they lack."""
    lacking: dict[str, set[str]] = {}
    complete: set[str] = set()
    for part in parts:
        rows = Rows([part])
        devices = rows["device"].astype(str)
        unknown = {name: np.isnan(rows[name].astype(float)) for name in names}
        complete.update(devices[~np.logical_or.reduce(list(unknown.values()))])
        for name, missing in unknown.items():
            for device in np.unique(devices[missing]):
                lacking.setdefault(str(device), set()).add(name)
    return {
        device: tuple(name for name in names if name in missing)
        for device, missing in lacking.items()
        if device not in complete
    }


def _lower_is_better(rows: Rows, name: str) -> Any:
    values = rows[name].astype(float)
    return -values if name in HIGHER_IS_BETTER else values


def _may_fit(rows: Rows) -> Any:
    """Not known counts as fitting: the device's capacity is not in the catalog."""
    return np.not_equal(rows["fits"], False)  # noqa: FBT003 - the value that is compared with


def front(points: Any, *, ties: bool = True) -> Any:
    """The places of the points [n, k] that no other is below in one coordinate and not above in any, in order."""
    if not len(points):
        return np.empty(0, dtype=int)
    distinct, first, inverse = np.unique(points, axis=0, return_index=True, return_inverse=True)
    kept = np.zeros(len(distinct), dtype=bool)
    kept[_minimal(distinct)] = True
    return np.flatnonzero(kept[inverse.ravel()]) if ties else np.sort(first[kept])


def _minimal(points: Any) -> Any:
    """The Pareto front of distinct points in lexical order: a point that is kept drops every point it dominates."""
    # Of two columns one pass is enough: in lexical order a point is kept if its second is lower than all before it.
    if points.shape[1] == 2:
        lowest = np.minimum.accumulate(points[:, 1])
        return np.flatnonzero(np.concatenate([[True], points[1:, 1] < lowest[:-1]]))
    left = np.arange(len(points))
    kept = []
    while len(left):
        kept.append(left[0])  # nothing before it is left, and nothing after it can be below it
        left = left[np.any(points[left] < points[left[0]], axis=1)]
    return np.array(kept)


def cheapest(parts: Iterable[RowsPart], conditions: Sequence[str], *, by: str = "usd_per_million_tokens") -> Rows:
    wanted = [parse_condition(text) for text in conditions]
    if column_named(by).kind not in {"number", "whole"}:
        raise DomainError(f"The column {by} has no numbers to be the least of.")

    def best(part: Rows) -> Any:
        cost, device = _lower_is_better(part, by), part["device"]
        usable = ~np.isnan(cost) & _may_fit(part)
        for condition in wanted:
            usable &= condition.holds(part)
        places = np.flatnonzero(usable)
        # Stable, so that of equal rows the first stays, wherever parts are cut.
        ordered = places[np.argsort(cost[places], kind="stable")]
        _, first = np.unique(device[ordered].astype(str), return_index=True)
        return ordered[np.sort(first)]

    return _reduced(parts, best)


def _reduced(parts: Iterable[RowsPart], best: Callable[[Rows], Any]) -> Rows:
    """The best rows of each part, and the best of those: what is best of all is best in its own part."""
    found: list[RowsPart] = []
    for part in parts:
        rows = Rows([part])
        found += rows.take(best(rows)).parts
        if sum(map(len, found)) > _MOST_HELD and len(found) > 1:
            found = _best_of(Rows(found), best)
    return Rows(_best_of(Rows(found), best))


def _best_of(rows: Rows, best: Callable[[Rows], Any]) -> list[RowsPart]:
    return list(rows.take(best(rows)).parts)

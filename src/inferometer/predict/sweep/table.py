"""Parts of rows, and those with every column written out: read from a file, picked out, or predicted one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.predict.sweep.columns import Kind, SweepColumn, column_named, columns_with

TYPES: dict[Kind, Any] = {"text": object, "whole": np.int64, "number": float, "flag": bool}


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


@frozen
class SweepTable:
    """`values` has a vector for each column that is there; a file may have been read for some of them only."""

    length: int
    values: Mapping[str, Any]

    @property
    def columns(self) -> Mapping[str, SweepColumn]:
        return {name: column_named(name) for name in self.values}

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    def __len__(self) -> int:
        return self.length

    def pieces(self) -> Iterator[SweepTable]:
        yield self

    def column(self, name: str) -> Any:
        return self.values[name]


@frozen
class Unread:
    """Rows as a file has them: a column is converted when it is looked at."""

    length: int
    texts: Mapping[str, Any]
    convert: Callable[[Any, str], Any]

    @property
    def columns(self) -> Mapping[str, SweepColumn]:
        return {name: column_named(name) for name in self.texts}

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.length,)

    def __len__(self) -> int:
        return self.length

    def pieces(self) -> Iterator[Unread]:
        yield self

    def column(self, name: str) -> Any:
        return self.convert(self.texts[name], name)

    def read(self) -> SweepTable:
        return SweepTable(length=self.length, values={name: self.column(name) for name in self.texts})


_NOTHING: Any = None


def is_none(values: Any) -> Any:
    """Where an array of objects has None."""
    return np.equal(values, _NOTHING)


def table_of(records: Sequence[Mapping[str, Any]], *, details: bool = False) -> SweepTable:
    """Rows given one by one; what a row does not have is not known."""
    columns = columns_with(details=details)
    return SweepTable(
        length=len(records), values={name: vector([row.get(name) for row in records], name) for name in columns}
    )


def vector(values: Sequence[Any], name: str) -> Any:
    """A column's values: objects for texts and flags, else numbers with NaN for None."""
    if column_named(name).kind in {"text", "flag"}:
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def written_out(pieces: Iterable[tuple[Any, tuple[int, ...]]], rows: int, kind: Kind) -> Any:
    """A column with a value for every row, from what it is along the axes that it depends on, and the rows' shape."""
    found = np.empty(rows, dtype=TYPES[kind])
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

"""Rows with every column written out: what was read from a file, picked out, or predicted one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.predict.sweep.columns import SweepColumn, column_named, columns_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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

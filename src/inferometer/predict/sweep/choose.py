"""Which rows to look at: the Pareto front, and the cheapest device that meets what is asked of it.

Both are found part by part, so that no more than one part's columns are ever written out.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.units import parse_quantity
from inferometer.predict.sweep.columns import HIGHER_IS_BETTER, column_named, unit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from inferometer.predict.sweep.rows import Rows, RowsPart

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
    from inferometer.predict.sweep.rows import Rows  # noqa: PLC0415 - it knows this module

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
    from inferometer.predict.sweep.rows import Rows  # noqa: PLC0415 - it knows this module

    found: list[RowsPart] = []
    for part in parts:
        rows = Rows([part])
        found += rows.take(best(rows)).parts
        if sum(map(len, found)) > _MOST_HELD and len(found) > 1:
            found = _best_of(Rows(found), best)
    return Rows(_best_of(Rows(found), best))


def _best_of(rows: Rows, best: Callable[[Rows], Any]) -> list[RowsPart]:
    return list(rows.take(best(rows)).parts)

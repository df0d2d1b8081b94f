"""Utilisation read from a calibration's tables: linear between grid points in the logarithm of the shape, held outside.

A share is a ratio of rates and shapes span decades, so both are interpolated on logarithmic axes.
"""

from __future__ import annotations

from bisect import bisect_right
from math import exp, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import DomainError
from inferometer.core.kept import Kept
from inferometer.predict.work.classes import AXES

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from inferometer.core.calibration import Calibration, Utilisation

_LEAST = 1e-9  # a size of nothing has no logarithm; every real one is 1 or more
# Shapes at most, of one table: a megabyte or two. Past them all are forgotten, which costs less than keeping an order.
_REMEMBERED = 10_000


def tables_for(calibration: Calibration, classes: Iterable[str]) -> tuple[Utilisation, ...]:
    """The tables of the first class name that the calibration has any for: one a stream."""
    for name in classes:
        if tables := tuple(table for table in calibration.tables if table.op_class == name):
            for table in tables:
                _require_axes(table)
            return tables
    return ()


def is_compute(table: Utilisation) -> bool:
    """Whether a table is a share of an arithmetic peak; else it is one of a memory's bandwidth."""
    return table.stream in DTYPES or table.stream == "compute"


def residual_of(calibration: Calibration, table: Utilisation) -> float:
    return calibration.residuals.get(table.op_class, table.residual)


def step_residual(calibration: Calibration, phase: str, *, experts: bool = False) -> float | None:
    """What whole steps of a phase are off by, at one standard deviation; None where none were measured.

    Models with `experts` have one of their own, where any was measured.
    """
    # The nearest first: mixtures of experts err otherwise than dense models, and one phase otherwise than another.
    names = (*([f"step.{phase}.experts"] if experts else []), f"step.{phase}", "step")
    return next((calibration.residuals[name] for name in names if name in calibration.residuals), None)


def factor_for(calibration: Calibration | None, classes: Iterable[str]) -> float | None:
    """What an op takes inside a model over what it takes alone: that of the first class name that has one."""
    if calibration is None:
        return None
    return next((calibration.factors[name] for name in classes if name in calibration.factors), None)


def interpolate(table: Utilisation, shape: Mapping[str, Any]) -> Any:
    """The share at a shape, in (0, 1]: a number, or an array where an axis is one."""
    require_shape(table, shape)
    point = tuple(shape[axis] for axis in table.axes)
    if any(isinstance(size, np.ndarray) for size in point):
        return np.minimum(1.0, np.exp(reader_of(table).log_shares(point, {})))
    return reader_of(table).share(point)


def require_shape(table: Utilisation, shape: Container[str]) -> None:
    for axis in table.axes:
        if axis not in shape:
            raise DomainError(f"The table of {table.op_class} needs {axis}, which its ops do not have.")


_readers = Kept(4096)  # a calibration has thirty tables at most: those of all that come with us stay


def reader_of(table: Utilisation) -> TableReader:
    return _readers.get_or_make((), (table,), lambda: TableReader(table))


class TableReader:
    """A table with its logarithms taken. Single shapes are remembered: most come again, in the next layer or model."""

    __slots__ = ("_flat", "_grids", "_logs", "_places", "_remembered", "_steps", "table")

    def __init__(self, table: Utilisation) -> None:
        self.table = table
        self._grids = [np.log(np.asarray(grid, dtype=float)) for grid in table.grid]
        self._logs = np.log(np.asarray(table.values)).reshape([len(grid) for grid in table.grid])
        self._steps = [_even_step(grid) for grid in self._grids]
        self._flat: list[float] = self._logs.ravel().tolist()
        self._remembered: dict[tuple[float, ...], float] = {}
        self._places: dict[tuple[int, float], tuple[int, float]] = {}  # mostly one axis changes: the others come again

    def share(self, point: tuple[float, ...]) -> float:
        """At one size on each axis; outside of the grid its edge is held."""
        share = self._remembered.get(point)
        if share is None:
            if len(self._remembered) > _REMEMBERED:
                self._remembered.clear()
                self._places.clear()
            share = self._remembered[point] = self._one(point)
        return share

    def _one(self, point: tuple[float, ...]) -> float:
        """The corners of the cell around the point, each with its weight; a corner of weight 0 is left out."""
        corners = [(0, 1.0)]
        for axis, (grid, value) in enumerate(zip(self.table.grid, point, strict=True)):
            if (cell := self._places.get((axis, value))) is None:
                cell = self._places[axis, value] = _between(grid, value)
            lower, share = cell
            below = [(cell * len(grid) + lower, weight * (1 - share)) for cell, weight in corners]
            above = [(cell * len(grid) + lower + 1, weight * share) for cell, weight in corners] if share else []
            corners = below + above
        # Between two shares of 1 a sum of logarithms may round to just above: no op beats its peak by that.
        return min(1.0, exp(sum([weight * self._flat[cell] for cell, weight in corners])))

    def line(self, axis: int, point: Sequence[Any]) -> TableLine:
        """The table along one axis, at a point's sizes on the others."""
        grid, far, logs = self.table.grid, 0.0, self._logs
        for other in reversed(range(len(grid))):
            if other != axis:
                size = point[other]
                lower, share = _between(grid[other], size)
                folded = logs.take(lower, axis=other)
                logs = folded * (1 - share) + logs.take(lower + 1, axis=other) * share if share else folded
                far += _outside(grid[other], size)
        return TableLine(grid[axis], logs.tolist(), far)

    def log_shares(self, point: tuple[Any, ...], known: dict[int, Any]) -> Any:
        """The logarithm of `share` where some sizes are arrays; `known` keeps the logarithms of those, by identity."""
        for size in point:
            if isinstance(size, np.ndarray) and id(size) not in known:
                known[id(size)] = np.log(np.maximum(size, _LEAST))
        return self.at_logarithms(tuple(known[id(size)] if isinstance(size, np.ndarray) else size for size in point))

    def at_logarithms(self, point: tuple[Any, ...], cells: dict[Any, Any] | None = None) -> Any:
        """The logarithm of `share`; those of a point's sizes that are arrays are logarithms already.

        Most axes have one size for all (the width of a weight): the table is folded along those first. Arrays may be of
        any shapes that go together: cells are looked for along each of them, and not at every point. `cells` keeps
        those of sizes that other rows are read at, too. The array that comes back is nobody else's.
        """
        logs = self._logs
        varying: list[tuple[int, Any]] = []
        for axis in reversed(range(len(point))):
            size = point[axis]
            if isinstance(size, np.ndarray | Crossed):
                varying.insert(0, (axis, size))
                continue
            lower, share = _between(self.table.grid[axis], size)
            folded = logs.take(lower, axis=axis)
            logs = folded + share * (logs.take(lower + 1, axis=axis) - folded) if share else folded
        if not varying:
            return logs
        if len(varying) == 1:  # by far the commonest: only the tokens of a step change
            axis, size = varying[0]
            return _between_knots(_whole(size), self._grids[axis], logs)
        cells = {} if cells is None else cells
        for axis, size in varying:
            if (id(self), axis, id(size)) not in cells:  # with the size, which must stay for its identity to be its own
                cells[id(self), axis, id(size)] = size, _cell(self._grids[axis], self._steps[axis], size)
        return _in_cell(logs.ravel(), logs.shape, [cells[id(self), axis, id(size)][1] for axis, size in varying], 0)

    def beyond(self, point: tuple[Any, ...]) -> Any:
        """How far a point lies outside of the grid, over all axes, as a logarithm: 0.7 at twice the last point."""
        total: Any = 0.0
        for size, grid in zip(point, self.table.grid, strict=True):
            if isinstance(size, np.ndarray):
                least = np.maximum(size, _LEAST)
                total = total + np.maximum(0.0, np.log(grid[0] / least)) + np.maximum(0.0, np.log(least / grid[-1]))
            else:
                total = total + _outside(grid, size)
        return total


class TableLine:
    """A table along one axis, for rows that differ in nothing else from step to step."""

    __slots__ = ("_far", "_grid", "_logs")

    def __init__(self, grid: tuple[float, ...], logs: list[float], far: float) -> None:
        self._grid, self._logs, self._far = grid, logs, far

    def share(self, size: float) -> float:
        lower, share = _between(self._grid, size)
        found = self._logs[lower]
        if share:
            found = found * (1 - share) + self._logs[lower + 1] * share
        return min(1.0, exp(found))

    def beyond(self, size: float) -> float:
        return self._far + _outside(self._grid, size)


def _outside(grid: tuple[float, ...], size: float) -> float:
    """How far a size lies outside of one axis, as a logarithm."""
    if grid[0] <= size <= grid[-1]:
        return 0.0
    return log(grid[0] / max(size, _LEAST) if size < grid[0] else size / grid[-1])


def _between(grid: tuple[float, ...], value: float) -> tuple[int, float]:
    """The grid point below, and how far towards the next one the value lies (0 … 1) on a logarithmic axis."""
    if value <= grid[0]:  # held at the edge: how far outside it lies is doubt, not a slope to follow
        return 0, 0.0
    if value >= grid[-1]:
        return len(grid) - 1, 0.0
    lower = bisect_right(grid, value) - 1
    return lower, log(value / grid[lower]) / log(grid[lower + 1] / grid[lower])


def _even_step(grid: Any) -> float | None:
    """The one distance between the points of a logarithmic grid; None where it is not one."""
    steps = np.diff(grid)
    # a few times a double's last digit: a grid that was made evenly, and no other
    return float(steps[0]) if len(steps) and np.ptp(steps) <= 1e-14 * np.abs(grid).max() else None


class Crossed(NamedTuple):
    """Logarithms of products: those of a column of batches, and of a row of lengths, to be added to each other."""

    batches: Any
    lengths: Any


def _whole(sizes: Any) -> Any:
    return sizes.batches + sizes.lengths if isinstance(sizes, Crossed) else sizes


def _cell(grid: Any, step: float | None, sizes: Any) -> tuple[Any, Any]:
    """As `_between`, for logarithms of many sizes; the last cell holds the last point.

    Where all lie in one cell, as neighbours of a fine grid do, it is a number.
    """
    end, last = len(grid) - 1.0, max(0, len(grid) - 2)
    if step is None:
        place = _between_knots(_whole(sizes), grid, np.arange(len(grid), dtype=float))
        least, most = np.min(place), np.max(place)
    elif isinstance(sizes, Crossed):  # an even grid needs no search, and sums grow with what is added: nor do ends
        batches, lengths = sizes.batches / step, (sizes.lengths - grid[0]) / step
        place, least, most = batches + lengths, batches.min() + lengths.min(), batches.max() + lengths.max()
    else:
        place = (sizes - grid[0]) / step
        least, most = place.min(), place.max()
    if most <= 0 or least >= end:  # all beyond the same edge, which is held
        return (0, 0.0) if most <= 0 else (last, end - last)
    if not 0 <= least <= most <= end:
        place, least, most = np.clip(place, 0.0, end, out=place), max(least, 0.0), min(most, end)
    lower: Any = min(int(least), last)
    if lower != min(int(most), last):
        lower = np.minimum(place.astype(int), last)
    return lower, np.subtract(place, lower, out=place)


def _between_knots(sizes: Any, grid: Any, logs: Any) -> Any:
    """As `np.interp`, to the last bit. Many sizes mostly lie between two knots, or beyond the last one."""
    least, most = sizes.min(), sizes.max()
    if most <= grid[0] or least >= grid[-1]:
        return logs[0] if most <= grid[0] else logs[-1]
    upper = int(np.searchsorted(grid, most))
    if not 0 < upper == np.searchsorted(grid, least, side="right"):
        return np.interp(sizes, grid, logs)
    lower = upper - 1
    found = sizes - grid[lower]
    found *= (logs[upper] - logs[lower]) / (grid[upper] - grid[lower])
    found += logs[lower]
    return found


def _in_cell(values: Any, shape: tuple[int, ...], places: list[tuple[Any, Any]], base: Any) -> Any:
    """Linear between the corners of each point's cell, one axis after the other."""
    if not places:
        return values[base]
    (lower, share), *others = places
    low = _in_cell(values, shape[1:], others, (base + lower) * (shape[1] if others else 1))
    if shape[0] == 1:
        return low
    between = _in_cell(values, shape[1:], others, (base + lower + 1) * (shape[1] if others else 1)) - low
    between = share * between
    between += low
    return between


def _require_axes(table: Utilisation) -> None:
    unknown = [axis for axis in table.axes if axis not in AXES]
    if unknown:
        raise DomainError(
            f"The table of {table.op_class} has the axis {unknown[0]!r}.", remedy=f"Known: {', '.join(AXES)}."
        )
    if any(grid[0] <= 0 for grid in table.grid):
        raise DomainError(f"The grid of {table.op_class} must be greater than 0: its axes are logarithmic.")

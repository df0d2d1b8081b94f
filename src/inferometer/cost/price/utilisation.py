"""Utilisation read from a calibration's tables: linear between grid points in the logarithm of the shape, held outside.

A share is a ratio of rates and shapes span decades, so both are interpolated on logarithmic axes.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import product
from math import exp, log
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.dtype import DTYPES
from inferometer.cost.work.classes import AXES
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from inferometer.core.calibration import Calibration, Utilisation

__all__ = ["beyond", "factor_for", "interpolate", "is_compute", "residual_of", "step_residual", "tables_for"]

_LEAST = 1e-9  # a size of nothing has no logarithm


def tables_for(calibration: Calibration, classes: Iterable[str]) -> tuple[Utilisation, ...]:
    """The tables of the first class name that the calibration has any for: one a stream."""
    for name in classes:
        if found := tuple(table for table in calibration.tables if table.op_class == name):
            for table in found:
                _require_axes(table)
            return found
    return ()


def is_compute(table: Utilisation) -> bool:
    """Whether a table is a share of an arithmetic peak; else it is one of a memory's bandwidth."""
    return table.stream in DTYPES or table.stream == "compute"


def residual_of(calibration: Calibration, table: Utilisation) -> float:
    return calibration.residuals.get(table.op_class, table.residual)


def step_residual(calibration: Calibration, phase: str) -> float | None:
    """What whole steps of a phase are off by, at one standard deviation; None where none were measured."""
    residuals = calibration.residuals
    return residuals.get(f"step.{phase}", residuals.get("step"))


def factor_for(calibration: Calibration | None, classes: Iterable[str]) -> float | None:
    """What an op takes inside a model over what it takes alone: that of the first class name that has one."""
    if calibration is None:
        return None
    return next((calibration.factors[name] for name in classes if name in calibration.factors), None)


def beyond(table: Utilisation, shape: Mapping[str, Any]) -> Any:
    """How far a shape lies outside of the grid, over all axes, as a logarithm: 0.7 at twice the last point."""
    total: Any = 0.0
    for axis, grid in zip(table.axes, table.grid, strict=True):
        size = shape[axis]
        if isinstance(size, np.ndarray):
            size = np.maximum(size, _LEAST)
            total = total + np.maximum(0.0, np.log(grid[0] / size)) + np.maximum(0.0, np.log(size / grid[-1]))
        elif not grid[0] <= size <= grid[-1]:
            total = total + log(grid[0] / max(size, _LEAST) if size < grid[0] else size / grid[-1])
    return total


def interpolate(table: Utilisation, shape: Mapping[str, Any]) -> Any:
    """The share at a shape, in (0, 1]: a number, or an array where an axis is one."""
    try:
        sizes = [shape[axis] for axis in table.axes]
    except KeyError as missing:
        raise DomainError(
            f"The table of {table.op_class} needs {missing.args[0]}, which its ops do not have."
        ) from None
    for size in sizes:
        if isinstance(size, np.ndarray):
            return _many(table, np.broadcast_arrays(*sizes))
    return _one(table, sizes)


def _one(table: Utilisation, point: list[float]) -> float:
    """The corners of the cell around the point, each with its weight; those that weigh nothing are left out."""
    corners = [(0, 1.0)]
    for grid, value in zip(table.grid, point, strict=True):
        lower, share = _between(grid, value)
        below = [(place * len(grid) + lower, weight * (1 - share)) for place, weight in corners]
        above = [(place * len(grid) + lower + 1, weight * share) for place, weight in corners] if share else []
        corners = below + above
    return min(1.0, exp(sum(weight * log(table.values[place]) for place, weight in corners)))


def _between(grid: tuple[float, ...], value: float) -> tuple[int, float]:
    """The grid point below, and how far towards the next one the value lies (0 … 1) on a logarithmic axis."""
    if value <= grid[0]:
        return 0, 0.0
    if value >= grid[-1]:
        return len(grid) - 1, 0.0
    lower = bisect_right(grid, value) - 1
    return lower, log(value / grid[lower]) / log(grid[lower + 1] / grid[lower])


def _many(table: Utilisation, points: Any) -> Any:
    logs = np.log(np.asarray(table.values)).reshape([len(grid) for grid in table.grid])
    lowers, shares = [], []
    for grid, values in zip(table.grid, points, strict=True):
        axis = np.log(np.asarray(grid, dtype=float))
        place = np.interp(np.log(np.maximum(values, grid[0])), axis, np.arange(len(grid)))
        lower = np.minimum(place.astype(int), max(0, len(grid) - 2))
        lowers.append(lower)
        shares.append(place - lower)
    total = np.zeros(points[0].shape)
    for choice in product((0, 1), repeat=len(lowers)):
        weight = np.ones(points[0].shape)
        for side, share in zip(choice, shares, strict=True):
            weight = weight * (share if side else 1 - share)
        index = tuple(
            np.minimum(lower + side, len(grid) - 1)
            for lower, side, grid in zip(lowers, choice, table.grid, strict=True)
        )
        total = total + weight * logs[index]
    return np.minimum(1.0, np.exp(total))


def _require_axes(table: Utilisation) -> None:
    unknown = [axis for axis in table.axes if axis not in AXES]
    if unknown:
        raise DomainError(
            f"The table of {table.op_class} has the axis {unknown[0]!r}.", remedy=f"Known: {', '.join(AXES)}."
        )
    if any(grid[0] <= 0 for grid in table.grid):
        raise DomainError(f"The grid of {table.op_class} must be greater than 0: its axes are logarithmic.")

"""Bounds on factors: inside a whole model, no op comes nearer to its floor than the best op did alone.

A factor below 1 means that ops run faster inside a model than alone. Small ops may, if launches overlap or weights stay
in a cache. But none is assumed to come nearer to its floor than the best that was measured with as many rows: the
factor is applied to a table of its own for the phase, and the shares in it are capped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.predict.work.classes import FUSED, PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.calibration import Calibration, Utilisation


_PHASES = frozenset({"prefill", "decode", "forward"})


def bounded(calibration: Calibration) -> Calibration:
    """The calibration with its factors below 1 written into tables, `linear.decode` beside `linear`; those are then 1.

    Factors of classes without a table under their bare name stay as they are (attention has one for each path), and so
    do those of classes whose forms have tables, since they hold for all of these.
    """
    tables, factors, residuals = list(calibration.tables), dict(calibration.factors), dict(calibration.residuals)
    for name, factor in calibration.factors.items():
        base = calibration.table(name.partition(".")[0])
        if factor >= 1 or base is None or base.op_class == name or calibration.table(name) is not None:
            continue
        if name.endswith(".forward") and any(
            table.op_class.startswith(f"{base.op_class}.")
            and table.op_class not in {FUSED, PLAIN}
            and not _made(calibration, table.op_class)
            for table in calibration.tables
        ):
            continue
        shares = np.minimum(_best(base), _shares(base) / factor)
        tables.append(_with(base, name, shares))
        factors[name] = 1.0
        residuals[name] = residuals.get(base.op_class, base.residual)
    return replace(calibration, tables=tuple(tables), factors=factors, residuals=residuals)


def factors_of(calibration: Calibration) -> dict[str, float]:
    """The fitted factors; a factor that `bounded` moved into a table is read back from the table."""
    factors = dict(calibration.factors)
    for name in factors:
        table, base = calibration.table(name), calibration.table(name.partition(".")[0])
        if table is not None and base is not None and _made(calibration, name):
            # shares at their bound rose by less than the others, which rose by the factor
            factors[name] *= float((_shares(base) / _shares(table)).min())
    return factors


def unbounded(calibration: Calibration) -> Calibration:
    """The calibration with only the tables of ops measured alone, and no factors: whole steps are fitted from it."""
    kept = tuple(table for table in calibration.tables if not _made(calibration, table.op_class))
    return replace(calibration, tables=kept, factors={})


def at_best(calibration: Calibration) -> Calibration:
    """Every table at the bound that `bounded` enforces: the least that ops can take inside a model."""
    kept = unbounded(calibration)
    return replace(kept, tables=tuple(_with(table, table.op_class, _best(table)) for table in kept.tables))


def _made(calibration: Calibration, name: str) -> bool:
    """Whether a table was made from another for one phase. Fused ops and forms are measured by themselves."""
    base, _, phase = name.partition(".")
    return phase in _PHASES and calibration.table(base) is not None


def _shares(table: Utilisation) -> Any:
    return np.array(table.values).reshape([len(points) for points in table.grid])


def _best(table: Utilisation) -> Any:
    """The best share of all; for products, the best with as many rows (few are bound by memory, many by compute)."""
    shares = _shares(table)
    if shares.ndim > 1 and table.axes[0] == "rows":
        return np.broadcast_to(shares.max(axis=tuple(range(1, shares.ndim)), keepdims=True), shares.shape)
    return np.full(shares.shape, shares.max())


def _with(table: Utilisation, name: str, shares: Any) -> Utilisation:
    return replace(table, op_class=name, values=tuple(float(share) for share in shares.ravel()))


def least_seconds(parts: Mapping[str, float], factors: Mapping[str, float], least: Mapping[str, float]) -> float:
    """Seconds of a step's parts with their factors, none below its least."""
    return sum(max(factors.get(name, 1.0) * seconds, least.get(name, 0.0)) for name, seconds in parts.items())

"""How near each row of a graph comes to its peaks in a phase: from a calibration's tables, else from class priors.

Nothing here knows one device from another of its kind, so that all of them share what is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.device import Origin
from inferometer.core.dims import Dim
from inferometer.core.kept import Kept
from inferometer.predict.price.deviations import FittedPrior, fitted_class, fitted_prior, is_fitted_for, prior_from
from inferometer.predict.price.kernels import Curve, KernelCurve, kernel_curve, known_tables
from inferometer.predict.price.price import NINE_IN_TEN
from inferometer.predict.price.priors import Prior, prior_for
from inferometer.predict.price.utilisation import (
    TableReader,
    factor_for,
    is_compute,
    reader_of,
    require_shape,
    residual_of,
    step_residual,
    tables_for,
)
from inferometer.predict.work.classes import FREE, MATRIX, attention_path, class_path, dims_of, forms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from inferometer.core.binding import Binding
    from inferometer.core.calibration import Calibration, Utilisation
    from inferometer.core.engine import RuntimeEffects
    from inferometer.predict.price.deviations import Standing
    from inferometer.predict.work.collect import Collected, OpRow
    from inferometer.predict.work.prepare import Quantities

DATASHEET_SPREAD = 3.0  # nothing is known of how near to its peak such an op comes
_HOST_RESIDUAL = 0.3  # what hosts take to start kernels differs by as much from run to run


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """A row that a table of the calibration is about.

    `factor` is what it takes inside a model over what it takes alone, `stream` what of (compute, memory) the table is a
    share of. `axes` are the row's sizes on the table's axes: numbers, places among the `dims` of all rows, or names of
    what is counted from its work.
    """

    number: int
    table: TableReader
    stream: slice | int
    factor: float
    axes: tuple[float | int | str, ...]
    doubted: bool  # the first of a row's tables says how far outside it lies


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Numbers of each row in one phase, [rows, 1] each.

    `spread` is the standard deviation of the logarithm of the time; rows of one of the `groups` (its members are 1) err
    together. Those whose class was in the whole steps that were measured are `in_steps`. Rows that the calibration has
    tables of are `covered`; `dims` are their sizes that vary, each with the share of it that one device has, and
    `moved` what is counted from their work. Rows with one of the `curves` take what a kernel was measured to take.
    `launches` are the kernels of a row, `kernels` those whose seconds are not in its ramp. What a device states of its
    own utilisation does not hold for rows that are `tabled`: they were measured, or they cost nothing. `prior` is what
    the rows that are `fitted` are priced by.
    """

    compute_share: Any
    compute_ramp_s: Any
    memory_share: Any
    memory_ramp_s: Any
    spread: Any
    launches: Any
    kernels: Any
    fitted: Any
    prior: FittedPrior | None
    step_spread: float | None
    host_spread: float
    groups: Mapping[str, Any]
    in_steps: Any
    tabled: Any
    origins: tuple[Origin, ...]
    covered: tuple[Covered, ...]
    dims: tuple[tuple[Dim, float], ...]
    moved: frozenset[str]
    curves: Mapping[int, Curve]  # rows whose seconds are those of a measured kernel

    def slower(self, binding: Binding, q: Quantities, *, doubt: bool = True) -> tuple[Any, Any]:
        """What the tables multiply the compute and the memory time of each row with, [2, rows, n].

        A stream that they say nothing of counts at its peak. With `doubt` also how far each row lies outside of its
        table, as a logarithm, [rows, n].
        """
        outside = np.zeros_like(q.bytes)
        slower = np.ones((2, *outside.shape))
        sizes = [binding.size(dim) * share for dim, share in self.dims]
        moved = {name: _moved(q, name) for name in self.moved}
        points = [tuple([_size(axis, row.number, sizes, moved) for axis in row.axes]) for row in self.covered]
        shares = _shares(self.covered, points, outside.shape[1])
        for row, point, share in zip(self.covered, points, shares, strict=True):
            slower[row.stream, row.number] = row.factor / share
            if doubt and row.doubted:
                outside[row.number] = row.table.beyond(point)
        return slower, outside


def _shares(covered: Sequence[Covered], points: Sequence[tuple[Any, ...]], columns: int) -> Any:
    """What each row reaches at its point. Many columns are looked up in logarithms, and come back from them at once."""
    if columns == 1:
        return [row.table.share(point) for row, point in zip(covered, points, strict=True)]
    logs, known = np.empty((len(covered), columns)), dict[int, Any]()
    for index, (row, point) in enumerate(zip(covered, points, strict=True)):
        logs[index] = row.table.log_shares(point, known)
    return np.minimum(1.0, np.exp(logs))


_rates = Kept(1024)


def rates_of(  # noqa: PLR0913, PLR0917 - what rates depend on
    collected: Collected,
    effects: RuntimeEffects,
    standing: Standing,
    phase: str,
    calibration: Calibration | None,
    binding: Binding,
) -> Rates:
    """The same for every graph that shares its ops and stands alike; `binding` has the formats of its kernels."""
    key = (id(collected), standing, phase, id(calibration), binding.precision)
    return _rates.get_or_make(
        key, (collected, calibration), lambda: _made(collected.rows, effects, standing, phase, calibration, binding)
    )


def _curves(rows: tuple[OpRow, ...], phase: str, calibration: Calibration | None, binding: Binding) -> dict[int, Curve]:
    tables = {} if calibration is None else known_tables(calibration)
    if not tables:
        return {}
    found = ((number, kernel_curve(row, phase, tables, binding)) for number, row in enumerate(rows))
    return {number: curve for number, curve in found if curve is not None}


def _made(  # noqa: PLR0913, PLR0917 - as above
    rows: tuple[OpRow, ...],
    effects: RuntimeEffects,
    standing: Standing,
    phase: str,
    calibration: Calibration | None,
    binding: Binding,
) -> Rates:
    curves = _curves(rows, phase, calibration, binding)
    numbers = np.zeros((len(rows), 8))
    unit, fitted = standing.unit, _fitted(standing, phase, calibration)
    published = calibration is not None and bool(calibration.parameters)
    origins: list[Origin] = []
    groups: list[str] = []
    whole: list[bool] = []
    tabled: list[bool] = []
    covered: list[Covered] = []
    dims: dict[tuple[Dim, float], int] = {}
    for number, row in enumerate(rows):
        path = attention_path(row.op, effects.attention)
        classes = class_path(row.op, phase, path, fused=row.fused.launches == 0)
        tables = () if calibration is None else tables_for(calibration, classes)
        curve = curves.get(number)
        prior = prior_for(unit, classes)
        measured = bool(tables) or curve is not None
        calibrated = bool(tables) or isinstance(curve, KernelCurve)
        origins.append("calibrated" if calibrated else "datasheet" if curve is None and prior is None else "prior")
        groups.append(tables[0].op_class if tables else curve.family if curve is not None else "prior")
        factor = factor_for(calibration, classes)
        # The models of measured steps have few of the shapes that ops of a form come in, and mixtures of probes have
        # those of the kernels beside them: what such tables are off by for kernels that were left out stays in doubt.
        doubted = row.op_class == "experts" or (bool(tables) and tables[0].op_class in forms_of(row.op))
        whole.append((factor is not None and not doubted) or row.op_class in FREE)
        tabled.append(measured or row.op_class in FREE | {"collective"})
        factor = 1.0 if factor is None else factor
        if curve is not None:  # its kernel was launched while it was measured
            numbers[number] = (1.0, 0.0, 1.0, 0.0, curve.residual, 0, 0, 0.0)
        elif tables and calibration is not None:
            covered += _covered(number, row, tables, factor, dims)
            spread = max(residual_of(calibration, table) for table in tables)
            numbers[number] = (1.0, 0.0, 1.0, 0.0, spread, _launches(row), _launches(row), 0.0)
        elif (
            fitted is not None
            and path != "padded"  # published steps attend with fused kernels, which says nothing of the unfused path
            and (rates := fitted.classes.get(fitted_class(row.op, phase) or "")) is not None
        ):
            origins[-1] = "calibrated" if published else "prior"
            whole[-1] = whole[-1] or published
            numbers[number] = _from_fit(row, fitted, rates, factor)
        else:
            numbers[number] = _from_prior(row, prior, factor)
        numbers[number, 6] += _groups(row, effects)
    columns = [np.ascontiguousarray(numbers[:, index : index + 1]) for index in range(numbers.shape[1])]
    residuals = {} if calibration is None else calibration.residuals
    mixed = any(row.op_class == "experts" for row in rows)
    return Rates(
        compute_share=columns[0],
        compute_ramp_s=columns[1],
        memory_share=columns[2],
        memory_ramp_s=columns[3],
        spread=columns[4],
        launches=columns[5],
        kernels=columns[6],
        fitted=columns[7],
        prior=fitted if columns[7].any() else None,
        step_spread=None if calibration is None else step_residual(calibration, phase, experts=mixed),
        host_spread=residuals.get("host", _HOST_RESIDUAL),
        groups={group: np.array([float(name == group) for name in groups]) for group in dict.fromkeys(groups)},
        in_steps=np.array(whole)[:, None],
        tabled=np.array(tabled)[:, None],
        origins=tuple(origins),
        covered=tuple(covered),
        dims=tuple(dims),
        moved=frozenset(axis for row in covered for axis in row.axes if isinstance(axis, str)),
        curves=curves,
    )


def _fitted(standing: Standing, phase: str, calibration: Calibration | None) -> FittedPrior | None:
    """The sums of a calibration that was fitted from published steps, else those of the shipped levels."""
    if calibration is None or not is_fitted_for(calibration.parameters, phase):
        return fitted_prior(standing, phase)
    spread = step_residual(calibration, phase) or 0.0
    return prior_from(calibration.parameters, standing, phase, spread=spread, rows=calibration.steps)


def _covered(
    number: int, row: OpRow, tables: tuple[Utilisation, ...], factor: float, known: dict[tuple[Dim, float], int]
) -> Iterator[Covered]:
    """`known` are the dimensions of the rows before, to which those of this one are added."""
    dims = _dims_on_device(row)
    for index, table in enumerate(tables):
        require_shape(table, {*dims, *_MOVED})
        axes = tuple(_axis(name, dims, known) for name in table.axes)
        stream = slice(None) if table.stream == "floor" else 0 if is_compute(table) else 1
        yield Covered(
            number=number, table=reader_of(table), stream=stream, factor=factor, axes=axes, doubted=index == 0
        )


def _axis(name: str, dims: Mapping[str, tuple[Dim, float]], known: dict[tuple[Dim, float], int]) -> float | int | str:
    if name not in dims:
        return name
    dim, share = dims[name]
    return float(dim * share) if isinstance(dim, int) else known.setdefault((dim, share), len(known))


def _size(axis: Any, number: int, sizes: Sequence[Any], moved: Mapping[str, Any]) -> Any:
    if isinstance(axis, float):
        return axis
    return moved[axis][number] if isinstance(axis, str) else sizes[axis]


def _launches(row: OpRow) -> int:
    return row.fused.launches if row.op_class not in FREE | {"collective"} else 0


def _groups(row: OpRow, effects: RuntimeEffects) -> int:
    """Kernels that an op takes beyond its own: its groups one by one, where inputs are gathered for each of them."""
    return row.op.get("groups", 1) - 1 if effects.gathered is not None and row.op.get("gathered") else 0


def _from_prior(row: OpRow, prior: Prior | None, factor: float) -> tuple[float, ...]:
    launches = _launches(row)
    if prior is None:
        spread = 0.0 if row.op_class in FREE else log(DATASHEET_SPREAD) / NINE_IN_TEN
        return 1.0, 0.0, 1.0, 0.0, spread, launches, launches, 0.0
    return (
        float(prior.compute_share or 1.0) / factor,
        factor * float(prior.compute_ramp_s or 0.0) * min(1, launches) if row.op_class in MATRIX else 0.0,
        float(prior.memory_share or 1.0) / factor,
        factor * float(prior.memory_ramp_s or 0.0) * launches,
        log(float(prior.spread)) / NINE_IN_TEN,
        launches,
        launches,
        0.0,
    )


def _from_fit(row: OpRow, fitted: FittedPrior, rates: tuple[float, float, float], factor: float) -> tuple[float, ...]:
    """The seconds of its kernels are in both ramps: they are spent whichever stream is the longer."""
    compute_share, memory_share, kernel_s = rates
    launches = _launches(row)
    ramp = factor * kernel_s * launches
    return compute_share / factor, ramp, memory_share / factor, ramp, fitted.spread, launches, 0.0, 1.0


def shape_in(row: OpRow, binding: Binding, q: Quantities, number: int) -> dict[str, Any]:
    """A row's whole shape on one device: every axis that a table may have."""
    shape = {name: binding.size(dim) * share for name, (dim, share) in _dims_on_device(row).items()}
    return shape | {name: _moved(q, name)[number] for name in _MOVED}


def _dims_on_device(row: OpRow) -> dict[str, tuple[Dim, float]]:
    """The axes that the op itself gives, each with the share of it that one device has."""
    shares = {"heads": row.scale.flops, "kv_heads": row.scale.kv}
    if row.op_class == "linear" and row.scale.flops < 1:
        shares["out_features" if row.scale.writes < 1 else "in_features"] = row.scale.flops
    return {name: (dim, shares.get(name, 1)) for name, dim in dims_of(row.op).items()}


_MOVED: dict[str, Callable[[Quantities], Any]] = {
    "flops": lambda q: sum(q.flops_by.values()),
    "bytes": lambda q: q.weights + q.activations + q.kv,
    "weight_bytes": lambda q: q.weights,
    "kv_bytes": lambda q: q.kv,
}


def _moved(q: Quantities, axis: str) -> Any:
    """What each row moves or computes: a number, or an array where there are several columns."""
    values = _MOVED[axis](q)
    return values if values.shape[1] > 1 else values[:, 0].tolist()

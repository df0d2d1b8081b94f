"""Many plans of one model priced at once, whatever device, engine and formats each is of.

Rows of different engines differ in number and kind, so they stand one after the other, each with the coefficients of
its own device folded in beforehand (as `lean` does for grids): what is left is one call of numpy for all plans instead
of some sixty for each of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inferometer.predict.price.price import exposed_host
from inferometer.predict.price.step import Sums
from inferometer.predict.work.polynomial import spread_monomials
from inferometer.predict.work.prepare import PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.predict.price.plan import PricePlan
    from inferometer.predict.price.step import Pace
    from inferometer.predict.work.polynomial import Monomial
    from inferometer.predict.work.prepare import PreparedWork, Quantities

_SINGLE_POINTS = 16  # of a calibrated plan that are read one by one: shapes that came before are remembered
# What a row's work comes to: seconds of arithmetic at the peak and as it is run, then bytes.
_WORK = ("bare", "compute", "held", "activations", "extra_bytes")
# What else a row is priced with. `most` is what a table has to read: no look-up reads more.
_OWN = (
    "counts", "cached", "most", "bandwidth", "cache_bandwidth", "cache_bytes", "spill_bytes", "memory_factor",
    "memory_ramp_s", "overhead_s", "host_s",
)  # fmt: skip


class FoldedRows(NamedTuple):
    """The rows of a plan in a phase, folded."""

    basis: tuple[Monomial, ...]
    work: Any  # [len(_WORK), monomials, rows]
    own: Any  # [len(_OWN), rows]
    kv: Any  # bytes, [monomials, rows]; of rows that are no polynomials nothing


def sums_together(plans: Sequence[PricePlan], sizes: Mapping[str, Any], phase: str, *, once: bool = False) -> Sums:
    """The seconds of a step of each plan, [plans, n], at sizes that are vectors of length n, or numbers.

    The plans must send nothing over links.
    """
    points = max((len(value) for value in sizes.values() if np.ndim(value)), default=1)
    basis = tuple(sorted({monomial for plan in plans for monomial in plan.prepared.monomials}))
    folded = [_folded(plan, phase, basis, once=once) for plan in plans]
    starts = np.cumsum([0, *(each.own.shape[1] for each in folded)])
    whose = np.repeat(np.arange(len(plans)), np.diff(starts))
    monomials = spread_monomials(basis, sizes, (points,))
    work = _at_points(np.concatenate([each.work for each in folded], axis=2), monomials)
    own = dict(zip(_OWN, np.concatenate([each.own for each in folded], axis=1)[:, :, None], strict=True))
    kv = _at_points(np.concatenate([each.kv for each in folded], axis=1), monomials)
    _count_loose(plans, starts, sizes, phase, work, kv)
    bare, compute, held, activations, extra = work
    held = np.minimum(held, own["most"])
    moved = held + activations
    # A row without a known cache bandwidth has an infinite one: it is never what the row waits for.
    reaching = held + extra + np.where(activations <= own["spill_bytes"], 0.0, activations)
    memory = np.maximum(reaching / own["bandwidth"], (moved + extra) / own["cache_bandwidth"])
    memory = memory * own["memory_factor"] + own["memory_ramp_s"]
    slower = _slower(plans, starts, sizes, phase, points)
    if slower is not None:
        compute, memory = compute * slower[0], memory * slower[1]
    time = np.maximum(compute, memory) + own["overhead_s"]

    def over_plans(values: Any) -> Any:
        """Rows one after the other, so that a point is added up alike whatever else is priced beside it."""
        places = whose[:, None] * points + np.arange(points)
        weighed = np.broadcast_to(values, places.shape)
        return np.bincount(places.ravel(), weighed.ravel(), len(plans) * points).reshape(len(plans), points)

    if any(plan.may_undercut for plan in plans):
        resident = np.array([[plan.weights_bytes] for plan in plans]) + over_plans(own["cached"] * kv)
        away = np.where(resident[whose] <= own["cache_bytes"], 0.0, 1.0)
        far = away * held + np.where(activations <= own["cache_bytes"], 0.0, activations)
        floor = np.maximum(bare, np.maximum(far / own["bandwidth"], moved / own["cache_bandwidth"]))
        time = np.maximum(time, floor)
    device = over_plans(own["counts"] * time)
    waiting = exposed_host(device, over_plans(own["counts"] * own["host_s"]))
    outside = outside_of([plan.pace(phase) for plan in plans], sizes["batch"], once=once)
    return Sums(
        time_s=device + waiting + outside,
        computing_s=over_plans(own["counts"] * compute),
        waiting_s=over_plans(own["counts"] * own["overhead_s"]) + waiting + outside,
    )


def outside_of(paces: Sequence[Pace], batch: Any, *, once: bool) -> Any:
    """The seconds of a step of each plan on no op, [plans, batches]."""
    step, sequence = (np.array([[getattr(pace, name)] for pace in paces]) for name in ("step_s", "sequence_s"))
    return np.broadcast_to(0.0 if once else step + sequence * np.ravel(batch), (len(paces), np.size(batch)))


def _at_points(coefficients: Any, monomials: Any) -> Any:
    """Polynomials [..., monomials, rows] at each point, [..., rows, n].

    Term by term: a product of matrices would change in the last bit with the number of rows and of points.
    """
    total: Any = 0.0
    for number, values in enumerate(monomials):
        total = total + coefficients[..., number, :, None] * values
    return total


def _folded(plan: PricePlan, phase: str, basis: tuple[Monomial, ...], *, once: bool) -> FoldedRows:
    key = ("together", phase, once)
    known: FoldedRows | None = plan.parts.get(key)
    if known is None or known.basis != basis:
        known = plan.parts[key] = _fold(plan, phase, basis, once=once)
    return known


def _fold(plan: PricePlan, phase: str, basis: tuple[Monomial, ...], *, once: bool) -> FoldedRows:
    prepared, pace, levels = plan.prepared, plan.pace(phase), plan.levels
    places = [basis.index(monomial) for monomial in prepared.monomials]
    rows = len(prepared.rows)
    spread = np.zeros((len(prepared.keys) + len(PARTS), len(basis), rows))
    spread[:, places] = prepared.by_row().swapaxes(1, 2)
    by_name = dict(zip((*prepared.keys, *PARTS), spread, strict=True))
    inverse = {key: _row(value, rows) for key, value in pace.inverse_peaks.items()}
    work = np.stack(_work(by_name, prepared.keys, inverse, _row(pace.unpack, rows)))
    times = float(pace.kernels)
    work[1] = times * work[1] / _row(pace.compute_share, rows)
    work[1, basis.index(())] += times * _row(pace.compute_ramp_s, rows)
    own = np.empty((len(_OWN), rows))
    most = np.full(rows, np.inf)
    most[[*prepared.tables]] = [*prepared.tables.values()]
    columns: dict[str, Any] = {
        "counts": prepared.counts(once=once),
        # The cache of every layer is resident in each step, whichever rows of it are counted here.
        "cached": prepared.counts(once=False),
        "most": most,
        "bandwidth": levels.bandwidth,
        "cache_bandwidth": np.inf if levels.cache_bandwidth is None else levels.cache_bandwidth,
        "cache_bytes": levels.cache_bytes,
        "spill_bytes": 0.0 if levels.cache_bandwidth is None else levels.spill_bytes,
        "memory_factor": times / _row(pace.memory_share, rows),
        "memory_ramp_s": times * _row(pace.memory_ramp_s, rows),
        "overhead_s": times * _row(pace.overhead_s, rows),
        "host_s": _row(pace.host_s, rows),
    }
    for number, name in enumerate(_OWN):
        own[number] = columns[name]
    return FoldedRows(basis=basis, work=work, own=own, kv=by_name["kv"])


def _work(
    quantities: Mapping[str, Any], keys: Sequence[str], inverse_peaks: Mapping[str, Any], unpack: Any
) -> tuple[Any, ...]:
    """What `_WORK` names, of quantities whose last axis are the rows that the peaks are of."""
    held = quantities["weights"] + quantities["kv"]
    bare = np.zeros_like(held)
    for key in keys:
        if (inverse := inverse_peaks.get(key.removeprefix("flops:"))) is not None:
            bare += quantities[key] * inverse
    added = (quantities["extra_flops"] + unpack * quantities["unpack"]) * sum(inverse_peaks.values())
    return bare, bare + added, held, quantities["activations"], quantities["extra_bytes"]


def _row(values: Any, rows: int) -> Any:
    """A column [rows, 1], or a number, as a vector over the rows."""
    return np.broadcast_to(values, (rows, 1))[:, 0]


def _count_loose(  # noqa: PLR0913, PLR0917 - what is counted, and where it goes
    plans: Sequence[PricePlan], starts: Any, sizes: Mapping[str, Any], phase: str, work: Any, kv: Any
) -> None:
    """Put in the rows that are no polynomials: their work is counted once for all devices, then priced by each."""
    counted: dict[int, tuple[dict[str, Any], PreparedWork]] = {}
    for plan, start in zip(plans, starts, strict=False):
        prepared = plan.prepared
        if not prepared.loose:
            continue
        if id(prepared) not in counted:
            counted[id(prepared)] = (_loose_work(prepared, sizes, kv.shape[1]), prepared)
        quantities, _ = counted[id(prepared)]
        numbers, pace, rows = [*prepared.loose], plan.pace(phase), len(prepared.rows)
        inverse = {key: _row(value, rows)[numbers] for key, value in pace.inverse_peaks.items()}
        values = np.stack(_work(quantities, prepared.keys, inverse, _row(pace.unpack, rows)[numbers]))
        times = float(pace.kernels)
        values[1] = times * values[1] / _row(pace.compute_share, rows)[numbers]
        values[1] += times * _row(pace.compute_ramp_s, rows)[numbers]
        places = [start + number for number in numbers]
        work[:, places] = values.swapaxes(1, 2)  # [work, n, rows] before
        kv[places] = quantities["kv"].T


def _loose_work(prepared: PreparedWork, sizes: Mapping[str, Any], points: int) -> dict[str, Any]:
    """The quantities of the rows that are no polynomials, [n, rows] by name."""
    found = {name: np.zeros((points, len(prepared.loose))) for name in (*prepared.keys, *PARTS)}
    for column, counted in enumerate(prepared.loose_work(sizes)):
        for name in found.keys() & counted.keys():
            found[name][:, column] = np.ravel(counted[name])
    return found


def _slower(  # noqa: PLR0917 - as above
    plans: Sequence[PricePlan], starts: Any, sizes: Mapping[str, Any], phase: str, points: int
) -> Any:
    """What calibrations multiply compute and memory by, [2, rows of all plans, n]; None where no plan has one."""
    measured = [plan.rates_in(phase) for plan in plans]
    if not any(rates.covered or rates.curves for rates in measured):
        return None
    slower = np.ones((2, starts[-1], points))
    works: dict[int, Quantities] = {}
    for plan, rates, start, end in zip(plans, measured, starts, starts[1:], strict=False):
        if not (rates.covered or rates.curves):
            continue
        if (work := works.get(id(plan.prepared))) is None:
            # a plan keeps its prepared work, so no other has its identity meanwhile
            work = works[id(plan.prepared)] = plan.prepared.quantities(sizes)
        slower[:, start:end] = _own_slower(plan, work, sizes, phase, points)
    return slower


def _own_slower(plan: PricePlan, work: Quantities, sizes: Mapping[str, Any], phase: str, points: int) -> Any:
    rates, prepared = plan.rates_in(phase), plan.prepared
    if rates.curves:
        before = rates.slower(prepared.binding(sizes), work, doubt=False)[0] if rates.covered else None
        return plan.as_measured(before, rates, sizes, plan.ideals(work))
    if points > _SINGLE_POINTS:
        return rates.slower(prepared.binding(sizes), work, doubt=False)[0]
    found = []
    for point in range(points):
        at = {name: value[point].item() if np.ndim(value) else value for name, value in sizes.items()}
        found.append(rates.slower(prepared.binding(at), _at(work, point), doubt=False)[0])
    return np.concatenate(found, axis=2)


def _at(work: Quantities, point: int) -> Quantities:
    """The work at one of the points."""
    column = slice(point, point + 1)
    return replace(
        work,
        flops_by={key: values[:, column] for key, values in work.flops_by.items()},
        weights=work.weights[:, column],
        activations=work.activations[:, column],
        kv=work.kv[:, column],
        bytes=work.bytes[:, column],
    )

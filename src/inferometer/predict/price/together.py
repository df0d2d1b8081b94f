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
from inferometer.predict.price.step import Pace, Sums
from inferometer.predict.work.polynomial import Memo, Monomial, spread_monomials
from inferometer.predict.work.prepare import PARTS, PreparedWork, Quantities

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from inferometer.predict.price.plan import PricePlan

_SINGLE_POINTS = 16  # of a calibrated plan that are read one by one: shapes that came before are remembered
# A row's work: seconds of arithmetic at the peak and as it is run, then bytes.
_WORK = ("bare", "compute", "held", "activations", "extra_bytes")
# The counted work of a row that is no polynomial, and the figures of its device that price it.
_COUNTED = ("flops", "weights", "activations", "kv", "extra_bytes", "extra_flops", "unpack")
_PEAKS = ("inverse", "together", "unpack", "compute_factor", "compute_ramp_s")
# What else a row is priced with. `most` is what a table has to read: no look-up reads more.
_OWN = (
    "counts", "cached", "most", "bandwidth", "cache_bandwidth", "cache_bytes", "spill_bytes", "memory_factor",
    "memory_ramp_s", "overhead_s", "host_s", "token_overhead_s", "token_host_s", "routed_s", "one_by_one",
)  # fmt: skip


class FoldedRows(NamedTuple):
    """The rows of a plan in a phase, folded."""

    basis: tuple[Monomial, ...]
    work: Any  # [len(_WORK), monomials, rows]
    own: Any  # [len(_OWN), rows]
    kv: Any  # bytes, [monomials, rows]
    loose: Any  # the rows that are no polynomials, which have nothing in the above; [n]
    peaks: Any  # theirs, [len(_PEAKS), n]


def sums_together(plans: Sequence[PricePlan], sizes: Mapping[str, Any], phase: str, *, once: bool = False) -> Sums:
    """The seconds of a step of each plan, [plans, n], at sizes that are vectors of length n, or numbers.

    The plans must send nothing over links.
    """
    points = max((len(value) for value in sizes.values() if np.ndim(value)), default=1)
    basis = tuple(sorted({monomial for plan in plans for monomial in plan.prepared.monomials}))
    folded = [_folded(plan, phase, basis, once=once) for plan in plans]
    starts = np.cumsum([0, *(rows.own.shape[1] for rows in folded)])
    whose = np.repeat(np.arange(len(plans)), np.diff(starts))
    monomials = spread_monomials(basis, sizes, (points,))
    work = _at_points(np.concatenate([rows.work for rows in folded], axis=2), monomials)
    own = dict(zip(_OWN, np.concatenate([rows.own for rows in folded], axis=1)[:, :, None], strict=True))
    kv = _at_points(np.concatenate([rows.kv for rows in folded], axis=1), monomials)
    _count_loose(plans, folded, starts, sizes, (work, kv))
    bare, compute, held, activations, extra = work
    held = np.minimum(held, own["most"])
    moved = held + activations
    # A row without a known cache bandwidth has an infinite one: it is never what the row waits for.
    reaching = held + extra + np.where(activations <= own["spill_bytes"], 0.0, activations)
    apart = _one_by_one(own, sizes["batch"], held - kv, activations)
    if apart is not None:
        reaching = np.minimum(reaching, held + extra + apart("spill_bytes"))
    memory = np.maximum(reaching / own["bandwidth"], (moved + extra) / own["cache_bandwidth"])
    memory = memory * own["memory_factor"] + own["memory_ramp_s"]
    slower = _slower(plans, starts, sizes, phase, points)
    if slower is not None:
        compute, memory = compute * slower[0], memory * slower[1]
    tokens = np.ravel(sizes["query"])
    overhead = own["overhead_s"] + (own["token_overhead_s"] + own["routed_s"] * np.ravel(sizes["batch"])) * tokens
    time = np.maximum(compute, memory) + overhead

    def over_plans(values: Any) -> Any:
        """Rows one after the other, so that a point is added up alike whatever else is priced beside it."""
        places = whose[:, None] * points + np.arange(points)
        weighed = np.broadcast_to(values, places.shape)
        return np.bincount(places.ravel(), weighed.ravel(), len(plans) * points).reshape(len(plans), points)

    undercut = np.array([[plan.may_undercut] for plan in plans])
    if undercut.any():
        resident = np.array([[plan.weights_bytes] for plan in plans]) + over_plans(own["cached"] * kv)
        away = np.where(resident[whose] <= own["cache_bytes"], 0.0, 1.0)
        far = away * held + np.where(activations <= own["cache_bytes"], 0.0, activations)
        if apart is not None:
            far = np.minimum(far, away * held + apart("cache_bytes", away))
        floor = np.maximum(bare, np.maximum(far / own["bandwidth"], moved / own["cache_bandwidth"]))
        time = np.where(undercut[whose], np.maximum(time, floor), time)  # no neighbour decides the last bit of others
    device = over_plans(own["counts"] * time)
    waiting = exposed_host(device, over_plans(own["counts"] * (own["host_s"] + own["token_host_s"] * tokens)))
    outside = outside_of([plan.pace(phase) for plan in plans], sizes["batch"], once=once)
    return Sums(
        time_s=device + waiting + outside,
        computing_s=over_plans(own["counts"] * compute),
        waiting_s=over_plans(own["counts"] * overhead) + waiting + outside,
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
    prepared, pace, levels, rows = plan.prepared, plan.pace(phase), plan.levels, len(plan.prepared.rows)
    spread = np.zeros((len(prepared.keys) + len(PARTS), len(basis), rows))
    spread[:, [basis.index(monomial) for monomial in prepared.monomials]] = prepared.by_row().swapaxes(1, 2)
    by_name = dict(zip((*prepared.keys, *PARTS), spread, strict=True))
    inverse = {f"flops:{name}": _row(value, rows) for name, value in pace.inverse_peaks.items()}
    times, together, unpack = float(pace.kernels), _row(pace.inverse_peak, rows), _row(pace.unpack, rows)
    factor, ramp_s = times / _row(pace.compute_share, rows), times * _row(pace.compute_ramp_s, rows)
    bare = sum((by_name[key] * each for key, each in inverse.items()), start=np.zeros((len(basis), rows)))
    compute = (bare + (by_name["extra_flops"] + unpack * by_name["unpack"]) * together) * factor
    compute[basis.index(())] += ramp_s
    held = by_name["weights"] + by_name["kv"]
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
        "one_by_one": levels.one_by_one,
        "memory_factor": times / _row(pace.memory_share, rows),
        "memory_ramp_s": times * _row(pace.memory_ramp_s, rows),
        "overhead_s": times * _row(pace.overhead_s, rows),
        "host_s": _row(pace.host_s, rows),
        "token_overhead_s": times * _row(pace.token_overhead_s, rows),
        "token_host_s": _row(pace.token_host_s, rows),
        "routed_s": times * _row(pace.routed_s, rows),
    }
    loose = np.array([*prepared.loose], int)
    own_peak = [inverse[f"flops:{key}"][number] for number, key in prepared.loose.items()]
    return FoldedRows(
        basis=basis,
        work=np.stack([bare, compute, held, by_name["activations"], by_name["extra_bytes"]]),
        own=np.stack([np.broadcast_to(columns[name], rows) for name in _OWN]),
        kv=by_name["kv"],
        loose=loose,
        peaks=np.stack([np.array(own_peak), *(each[loose] for each in (together, unpack, factor, ramp_s))]),
    )


def _one_by_one(own: Mapping[str, Any], batch: Any, weights: Any, activations: Any) -> Callable[..., Any] | None:
    """What comes from main memory beside the rest, one input after the other (`Levels`); None where nothing runs so.

    It is told for what has room in a cache, `away` being the share of the weights that does not lie there.
    """
    if not own["one_by_one"].any():
        return None
    batch = np.ravel(batch)

    def beside(room: str, away: Any = 1.0) -> Any:
        beyond = (batch - 1) * away * weights + np.where(activations <= batch * own[room], 0.0, activations)
        return np.where(own["one_by_one"], beyond, np.inf)

    return beside


def _row(values: Any, rows: int) -> Any:
    """A column [rows, 1], or a number, as a vector over the rows."""
    return np.broadcast_to(values, (rows, 1))[:, 0]


def _count_loose(
    plans: Sequence[PricePlan], folded: Sequence[FoldedRows], starts: Any, sizes: Mapping[str, Any], found: Any
) -> None:
    """Put the rows that are no polynomials into `work` and `kv`: counted once for all devices, priced by each."""
    having = [index for index, rows in enumerate(folded) if len(rows.loose)]
    if not having:
        return
    work, kv = found
    memo, points = Memo(), kv.shape[-1]
    prepared = {id(plan.prepared): plan.prepared for plan in plans}
    counted = {key: _loose_work(each, sizes, points, memo) for key, each in prepared.items() if each.loose}
    quantities = np.concatenate([counted[id(plans[index].prepared)] for index in having], axis=1)
    flops, weights, activations, cached, extra_bytes, extra_flops, unpack = quantities
    peaks = np.concatenate([folded[index].peaks for index in having], axis=1)[:, :, None]
    inverse, together, unpacked, factor, ramp_s = peaks
    places = np.concatenate([starts[index] + folded[index].loose for index in having])
    bare = flops * inverse
    compute = (bare + (extra_flops + unpacked * unpack) * together) * factor + ramp_s
    work[:, places] = bare, compute, weights + cached, activations, extra_bytes
    kv[places] = cached


def _loose_work(prepared: PreparedWork, sizes: Mapping[str, Any], points: int, memo: Memo) -> Any:
    """What is counted of the rows that are no polynomials, [len(_COUNTED), rows, n]."""
    work = np.zeros((len(_COUNTED), len(prepared.loose), points))
    for row, (key, counted) in enumerate(zip(prepared.loose.values(), prepared.loose_work(sizes, memo), strict=True)):
        # The operations as the device runs them, not those of all devices that `quantities` has by the same name.
        counted["flops"] = counted.get(f"flops:{key}", 0.0)
        for column, name in enumerate(_COUNTED):
            work[column, row] = np.ravel(counted.get(name, 0.0))
    return work


def _slower(plans: Sequence[PricePlan], starts: Any, sizes: Mapping[str, Any], phase: str, points: int) -> Any:
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
        return plan.as_measured(rates, sizes, plan.ideals(work, sizes["batch"]))
    if points > _SINGLE_POINTS:
        return rates.slower(prepared.binding(sizes), work, doubt=False)[0]
    factors = []
    for point in range(points):
        at = {name: value[point].item() if np.ndim(value) else value for name, value in sizes.items()}
        factors.append(rates.slower(prepared.binding(at), _at(work, point), doubt=False)[0])
    return np.concatenate(factors, axis=2)


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

"""Several plans of one graph priced at once: they have the same rows, and each plan's numbers are columns of their own.

The arithmetic is that of one plan. What it buys: numpy is called once for all devices and formats of a sweep, instead
of some sixty times for each of them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.predict.price.price import Levels
from inferometer.predict.price.step import Pace, Sums, over_rows, price_rows, sums_of
from inferometer.predict.work.prepare import Quantities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.predict.price.plan import PricePlan

_SINGLE_POINTS = 16  # of a calibrated plan that are read one by one: shapes that came before are remembered
_OF_ROWS = ("unpack", "compute_share", "compute_ramp_s", "memory_share", "memory_ramp_s", "overhead_s", "host_s")


def sums_together(plans: Sequence[PricePlan], sizes: Mapping[str, Any], phase: str, *, once: bool = False) -> Sums:
    """The seconds of a step of each plan, [plans, n], at sizes that are vectors of length n, or numbers.

    The plans must share their rows and send nothing over links.
    """
    if len(plans) == 1:  # a lone column may be added up in another order than one of many
        return sums_together((*plans, *plans), sizes, phase, once=once)[:1]
    # Plans of the same formats share their layout: its work is computed once and stands in the columns of each.
    layouts = {id(plan.prepared): plan.prepared for plan in plans}
    places = {key: index for index, key in enumerate(layouts)}
    works = [prepared.quantities(sizes) for prepared in layouts.values()]
    which = np.array([places[id(plan.prepared)] for plan in plans])
    points = works[0].bytes.shape[1]
    q, pace = _quantities(works, which), _pace([plan.pace(phase) for plan in plans], points)
    first = plans[0].prepared
    counts = first.counts(once=once)
    resident = None
    if any(plan.needs_floor(works[place]) for plan, place in zip(plans, which, strict=True)):
        # The cache of every layer is resident in each step, whichever rows of it are counted here: those that run in a
        # step have one.
        weights = np.repeat([plan.weights_bytes for plan in plans], points)
        resident = weights + over_rows(first.counts(once=False), q.kv)
    priced, _ = price_rows(
        q,
        pace,
        counts,
        resident=resident,
        slower=_slower(plans, [works[place] for place in which], sizes, phase),
    )
    batch = np.tile(np.broadcast_to(sizes["batch"], points), len(plans))
    sums = sums_of(priced, counts, pace.outside_s({"batch": batch}, once=once))
    return sums.shaped((len(plans), points))


def _quantities(works: Sequence[Quantities], which: Any) -> Quantities:
    """The work of each plan's layout, one plan after the other."""
    rows = len(works[0].bytes)

    def spread(arrays: Sequence[Any]) -> Any:
        return np.stack(arrays, axis=1)[:, which].reshape(rows, -1)

    # A format that only some layouts compute in: the others do none of it, and zero work takes no time at any peak.
    nothing = np.zeros_like(works[0].bytes)
    formats = dict.fromkeys(key for work in works for key in work.flops_by)
    names = [entry.name for entry in fields(Quantities) if entry.name != "flops_by"]
    return Quantities(
        flops_by={key: spread([work.flops_by.get(key, nothing) for work in works]) for key in formats},
        **{name: spread([getattr(work, name) for work in works]) for name in names},
    )


def _pace(paces: Sequence[Pace], points: int) -> Pace:
    def columns(arrays: Sequence[Any]) -> Any:
        return np.repeat(np.concatenate(arrays, axis=1), points, axis=1)

    formats = dict.fromkeys(key for pace in paces for key in pace.inverse_peaks)
    nothing = np.zeros_like(paces[0].overhead_s)
    of_rows: dict[str, Any] = {name: columns([getattr(pace, name) for pace in paces]) for name in _OF_ROWS}
    return Pace(
        inverse_peaks={key: columns([pace.inverse_peaks.get(key, nothing) for pace in paces]) for key in formats},
        levels=_levels([pace.levels for pace in paces], points),
        step_s=np.repeat([pace.step_s for pace in paces], points),
        sequence_s=np.repeat([pace.sequence_s for pace in paces], points),
        kernels=np.repeat([pace.kernels for pace in paces], points),
        **of_rows,
    )


def _levels(levels: Sequence[Levels], points: int) -> Levels:
    """A cache whose bandwidth is not known is infinitely fast: it is never what a row waits for."""

    def column(values: Sequence[float]) -> Any:
        return np.repeat(values, points)

    known = any(level.cache_bandwidth is not None for level in levels)
    fast = [np.inf if level.cache_bandwidth is None else level.cache_bandwidth for level in levels]
    return Levels(
        main="",
        bandwidth=column([level.bandwidth for level in levels]),
        cache_bytes=column([level.cache_bytes for level in levels]),
        cache_bandwidth=column(fast) if known else None,
        spill_bytes=column([level.spill_bytes for level in levels]),
    )


def _slower(plans: Sequence[PricePlan], works: Sequence[Quantities], sizes: Mapping[str, Any], phase: str) -> Any:
    """What calibrations multiply compute and memory by, [2, rows, plans · n]; None where no plan has one."""
    if not any(plan.rates_in(phase).covered or plan.rates_in(phase).curves for plan in plans):
        return None
    rows, points = works[0].bytes.shape
    slower = np.ones((2, rows, len(plans), points))
    for index, (plan, work) in enumerate(zip(plans, works, strict=True)):
        rates = plan.rates_in(phase)
        if rates.curves:
            before = rates.slower(plan.prepared.binding(sizes), work, doubt=False)[0] if rates.covered else None
            slower[:, :, index] = plan.as_measured(before, rates, sizes, plan.ideals(work))
            continue
        if not rates.covered:
            continue
        if points > _SINGLE_POINTS:
            slower[:, :, index], _ = rates.slower(plan.prepared.binding(sizes), work, doubt=False)
            continue
        for point in range(points):
            at = {name: value[point].item() if np.ndim(value) else value for name, value in sizes.items()}
            alone, _ = rates.slower(plan.prepared.binding(at), _at(work, point))
            slower[:, :, index, point] = alone[:, :, 0]
    return slower.reshape(2, rows, -1)


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

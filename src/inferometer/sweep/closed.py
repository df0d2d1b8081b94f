"""A step of a plan reduced to what sums need: a closed form in the sizes, or the plan itself where it has none.

Each row's arithmetic and memory time is a polynomial in the sizes, its constant the ramp. A step takes the sum over the
rows of the longer of the two and the overhead. Where one of the two has the larger coefficient of every monomial it is
the longer whatever the sizes are, and such rows are one polynomial together; the others take a maximum each. That is
some tens of nanoseconds a point. The floor needs no look: a share of a peak is at most 1, so the longer stream is never
below it. Rows that are no polynomials, tables of a calibration, links and caches with a bandwidth of their own go
through `Plan.step`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.kept import Kept
from inferometer.cost.price.price import exposed_host
from inferometer.cost.price.step import Sums
from inferometer.cost.work.polynomial import spread_monomials
from inferometer.cost.work.prepare import Quantities
from inferometer.cost.work.symbolic import SYMBOLIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from inferometer.cost.price.plan import Plan

_POINTS = 1024  # of a closed form at once: its rows stay in a core's own cache
PLAN_POINTS = 512  # of a plan, which has some ten times as much in its hands


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Coefficients [rows, monomials] of one phase, of the rows that run in it.

    `capped` are rows of `memory` that read no more than a whole table; `limits` are their coefficients once they do.
    """

    monomials: tuple[tuple[str, ...], ...]
    compute: Any
    memory: Any
    capped: Any
    limits: Any
    counts: Any
    overhead_s: float
    host_s: float
    step_s: float

    def fold(self, sizes: Mapping[str, Any]) -> _Folded:
        """Multiply the sizes that are numbers in, and tell the rows apart whose bound the others cannot change."""
        places: dict[tuple[str, ...], int] = {}
        moves = np.zeros((len(self.monomials), len(self.monomials)))
        fixed = {name: float(value) for name, value in sizes.items() if not np.ndim(value)}
        for number, monomial in enumerate(self.monomials):
            left = tuple(name for name in monomial if name not in fixed)
            place = places.setdefault(left, len(places))
            moves[number, place] = prod(fixed[name] for name in monomial if name in fixed)
        compute, memory, limits = (matrix @ moves[:, : len(places)] for matrix in _matrices(self))
        sure = np.all(compute <= memory, axis=1) | np.all(compute >= memory, axis=1)
        sure[self.capped] = False
        longer = np.maximum(compute, memory)[sure]
        order = [*self.capped, *(row for row in np.flatnonzero(~sure) if row not in self.capped)]
        return _Folded(
            monomials=tuple(places),
            whole=np.vstack([self.counts @ compute, self.counts[sure] @ longer]),
            compute=compute[order],
            memory=memory[order],
            limits=limits,
            counts=self.counts[order],
            closed=self,
        )


def _matrices(closed: Closed) -> tuple[Any, Any, Any]:
    return closed.compute, closed.memory, closed.limits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folded:
    """A closed form in the sizes that vary. `whole` has the arithmetic of all rows, and the time of the sure ones."""

    monomials: tuple[tuple[str, ...], ...]
    whole: Any
    compute: Any
    memory: Any
    limits: Any  # of the first rows
    counts: Any
    closed: Closed

    def sums(self, sizes: Mapping[str, Any]) -> Sums:
        varying = {name: value for name, value in sizes.items() if np.ndim(value)}
        length = len(next(iter(varying.values())))
        if length == 1:  # a lone point would be added up in another order than one of many
            return self.sums({name: np.repeat(value, 2) for name, value in varying.items()})[:1]
        values = spread_monomials(self.monomials, varying, (length,))
        longest = _evaluated(self.memory, values)
        if len(self.limits):
            first = longest[: len(self.limits)]
            np.minimum(first, _evaluated(self.limits, values), out=first)
        np.maximum(longest, _evaluated(self.compute, values), out=longest)
        longest *= self.counts[:, None]
        computing, sure = _evaluated(self.whole, values)
        time = longest.sum(axis=0) + sure + self.closed.overhead_s
        waiting = exposed_host(time, self.closed.host_s)
        return Sums(
            time_s=time + waiting + self.closed.step_s,
            computing_s=computing,
            waiting_s=waiting + self.closed.overhead_s + self.closed.step_s,
        )


def _evaluated(coefficients: Any, values: Any) -> Any:
    """The matrix product, the same to the last bit wherever the points are cut, which a library's is not."""
    return np.einsum("rm,mn->rn", coefficients, values)


_forms = Kept(4096)


def closed_form(plan: Plan, phase: str, *, once: bool = False) -> Closed | None:
    """As `close`, which takes as long as some thousand points; what was made is kept for the next tile."""
    return _forms.get_or_make((id(plan), phase, once), (plan,), lambda: close(plan, phase, once=once))


def close(plan: Plan, phase: str, *, once: bool = False) -> Closed | None:
    """The closed form of a phase; None where it has none."""
    prepared, rates = plan.prepared, plan.rates_in(phase)
    if prepared.loose or rates.covered or plan.levels.cache_bandwidth is not None:
        return None
    parts = _parts(plan)
    if parts["link"].any():
        return None
    counts = prepared.counts(once=once)
    runs = np.flatnonzero(counts)
    constant = np.array([[float(not monomial) for monomial in prepared.monomials]])
    busy = parts["extra_flops"] * sum(plan.inverse_peaks.values())
    for key, inverse in plan.inverse_peaks.items():
        busy = busy + parts[f"flops:{key}"] * inverse
    others = parts["activations"] + parts["kv"] + parts["extra_bytes"]
    rate = plan.levels.bandwidth * rates.memory_share
    ramp = constant * rates.memory_ramp_s
    capped = np.array([place for place, row in enumerate(runs) if row in prepared.tables], dtype=int)
    most = np.array([[prepared.tables.get(row, 0.0)] for row in range(len(prepared.rows))])
    pace = plan.pace(phase)
    return Closed(
        monomials=prepared.monomials,
        compute=(busy / rates.compute_share + constant * rates.compute_ramp_s)[runs],
        memory=((parts["weights"] + others) / rate + ramp)[runs],
        capped=capped,
        limits=((constant * most + others) / rate + ramp)[runs[capped]],
        counts=counts[runs],
        overhead_s=float(counts @ pace.overhead_s[:, 0]),
        host_s=float(counts @ pace.host_s[:, 0]),
        step_s=0.0 if once else pace.step_s,
    )


def _parts(plan: Plan) -> dict[str, Any]:
    """The coefficients by quantity, [rows, monomials] each, in the order of the prepared matrix."""
    prepared = plan.prepared
    names = (*prepared.keys, *(entry.name for entry in fields(Quantities) if entry.name != "flops_by"))
    table = prepared.matrix.reshape(len(names), len(prepared.rows), len(prepared.monomials))
    return dict(zip(names, table, strict=True))


def step_sums(plan: Plan, closed: Closed | None, sizes: Mapping[str, Any], phase: str, *, once: bool = False) -> Sums:
    """Price a step at every point, in cache-sized pieces. `sizes` are numbers and one vector or more, of one length."""
    folded = closed.fold(sizes) if closed else None
    found = [
        folded.sums(part) if folded else _plan_sums(plan, part, phase, once=once)
        for part in pieces_of(sizes, _POINTS if folded else PLAN_POINTS)
    ]
    if len(found) == 1:
        return found[0]
    time, computing, waiting = (np.concatenate([getattr(sums, name) for sums in found]) for name in Sums.__slots__)
    return Sums(time_s=time, computing_s=computing, waiting_s=waiting)


def _plan_sums(plan: Plan, sizes: Mapping[str, Any], phase: str, *, once: bool) -> Sums:
    return plan.step({name: sizes[name] for name in SYMBOLIC}, phase, once=once, doubt=False).sums()


def pieces_of(sizes: Mapping[str, Any], most: int) -> Iterator[Mapping[str, Any]]:
    """The sizes of some points at a time, in their order."""
    length = max(len(value) for value in sizes.values() if np.ndim(value))
    for start in range(0, length, most):
        piece = slice(start, start + most)
        yield {name: value[piece] if np.ndim(value) else value for name, value in sizes.items()}

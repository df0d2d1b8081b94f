"""A step of a plan reduced to what sums need: a closed form in the sizes, or the plan itself where it has none.

Each row's arithmetic and memory time is a polynomial in the sizes, its constant the ramp. A step takes the sum over the
rows of the longer of the two and the overhead: two small matrix products and a maximum, some tens of nanoseconds a
point. The floor needs no look: a share of a peak is at most 1, so the longer stream is never below it. Rows that are no
polynomials, tables of a calibration, links and caches with a bandwidth of their own go through `Plan.step`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.cost.polynomial import spread_monomials
from inferometer.cost.prepare import SYMBOLIC, Quantities
from inferometer.cost.price import exposed_host

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from inferometer.cost.plan import Plan

__all__ = ["Closed", "Sums", "close", "step_sums"]

_POINTS = 2048  # of a closed form at once: its rows stay in a core's own cache
_PLAN_POINTS = 512  # of a plan, which has some ten times as much in its hands


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Seconds of a step at each point: in all, with the arithmetic busy, and waiting for the host or for kernels."""

    time_s: Any
    computing_s: Any
    waiting_s: Any


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

    def sums(self, sizes: Mapping[str, Any]) -> Sums:
        """`sizes` are numbers, or vectors of one length."""
        varying = {name: value for name, value in sizes.items() if np.ndim(value)}
        names, (compute, memory, limits) = self._folded(sizes, varying)
        values = spread_monomials(names, varying, np.broadcast_shapes(*(np.shape(v) for v in varying.values())) or (1,))
        busy = compute @ values
        longest = memory @ values
        if len(self.capped):
            longest[self.capped] = np.minimum(longest[self.capped], limits @ values)
        np.maximum(longest, busy, out=longest)
        time = self.counts @ longest + self.overhead_s
        waiting = exposed_host(time, self.host_s)
        return Sums(
            time_s=time + waiting + self.step_s,
            computing_s=self.counts @ busy,
            waiting_s=waiting + self.overhead_s + self.step_s,
        )

    def _folded(self, sizes: Mapping[str, Any], varying: Mapping[str, Any]) -> tuple[list[tuple[str, ...]], list[Any]]:
        """The coefficients with the sizes that are numbers multiplied in: fewer monomials."""
        places: dict[tuple[str, ...], int] = {}
        moves = np.zeros((len(self.monomials), len(self.monomials)))
        for number, monomial in enumerate(self.monomials):
            left = tuple(name for name in monomial if name in varying)
            place = places.setdefault(left, len(places))
            moves[number, place] = prod(float(sizes[name]) for name in monomial if name not in varying)
        kept = moves[:, : len(places)]
        return list(places), [matrix @ kept for matrix in (self.compute, self.memory, self.limits)]


def close(plan: Plan, phase: str, *, once: bool = False) -> Closed | None:
    """The closed form of a phase; None where it has none."""
    prepared, rates = plan.prepared, plan.rates_in(phase)
    if prepared.loose or rates.tables or plan.levels.cache_bandwidth is not None:
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
    captured = phase in plan.overheads.captured
    return Closed(
        monomials=prepared.monomials,
        compute=(busy / rates.compute_share + constant * rates.compute_ramp_s)[runs],
        memory=((parts["weights"] + others) / rate + ramp)[runs],
        capped=capped,
        limits=((constant * most + others) / rate + ramp)[runs[capped]],
        counts=counts[runs],
        overhead_s=float(counts @ rates.overhead_s[:, 0]),
        host_s=0.0 if captured else float(counts @ rates.host_s[:, 0]),
        step_s=0.0 if once or plan.overheads.step_s is None else float(plan.overheads.step_s),
    )


def _parts(plan: Plan) -> dict[str, Any]:
    """The coefficients by quantity, [rows, monomials] each, in the order of the prepared matrix."""
    prepared = plan.prepared
    names = (*prepared.keys, *(entry.name for entry in fields(Quantities) if entry.name != "flops_by"))
    table = prepared.matrix.reshape(len(names), len(prepared.rows), len(prepared.monomials))
    return dict(zip(names, table, strict=True))


def step_sums(plan: Plan, closed: Closed | None, sizes: Mapping[str, Any], phase: str, *, once: bool = False) -> Sums:
    """Price a step at every point: `sizes` are numbers, or vectors of one length, worked on in cache-sized pieces."""
    length = max((len(value) for value in sizes.values() if np.ndim(value)), default=1)
    found = np.empty((3, length))
    for piece in _pieces(length, _POINTS if closed else _PLAN_POINTS):
        part = {name: value[piece] if np.ndim(value) else value for name, value in sizes.items()}
        sums = closed.sums(part) if closed else _priced(plan, part, phase, once=once)
        found[:, piece] = sums.time_s, sums.computing_s, sums.waiting_s
    return Sums(time_s=found[0], computing_s=found[1], waiting_s=found[2])


def _pieces(length: int, most: int) -> Iterator[slice]:
    return (slice(start, min(start + most, length)) for start in range(0, length, most))


def _priced(plan: Plan, sizes: Mapping[str, Any], phase: str, *, once: bool) -> Sums:
    known = {name: sizes[name] for name in SYMBOLIC}
    step = plan.step(known, phase, once=once)
    return Sums(
        time_s=step.total("time_s"),
        computing_s=step.total("compute_s"),
        waiting_s=step.total("overhead_s") + step.step_s,
    )

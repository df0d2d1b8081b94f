"""A step of one lone workload, with nothing counted but the sums that a phase is made of.

Most of what a lone step costs is not arithmetic but calls of numpy with twenty numbers each. So a plan's rows are
folded once (coefficients of seconds and bytes, and what their intervals need), one product gives all of them, and every
op's own numbers (`Plan.step`) are made when somebody reads them. The sums agree with those but for their last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inferometer.core.dims import evaluate
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.predict.price.hosts import WORTH_SAYING, waits_for_host
from inferometer.predict.price.kernels import kernel_sizes
from inferometer.predict.price.price import over_columns
from inferometer.predict.price.step import StepPrice, waiting_doubt
from inferometer.predict.work.polynomial import NAMES, Monomial, NotPolynomialError, coefficients
from inferometer.predict.work.prepare import PARTS

if TYPE_CHECKING:
    from inferometer.predict.price.plan import PricePlan
    from inferometer.predict.price.rates import Rates

# Polynomials of each row: seconds of arithmetic at the peak, with what the runtime adds, and as it reaches the peak;
# bytes; and the operations that tables are read at.
_WORK = ("bare", "ideal", "compute", "weights", "kv", "activations", "extra_bytes", "flops")
_WEIGHTS = _WORK.index("weights")


@frozen
class StepSums:
    """What a phase is made of: seconds, operations and bytes of a step, or of several columns of one together.

    `step_s` of the time are on no op. `whole` has every op.
    """

    time_s: float  # of the ops
    low_s: float
    high_s: float
    floor_s: float
    step_s: float
    flops: float
    bytes: float
    computing_s: float
    waiting_s: float
    waits_for_host: bool
    far: Mapping[str, float]  # classes with ops outside of their tables that take a share of the time, and how far out
    whole: Callable[[], StepPrice]


class _Whole:
    """A step with every op, priced when somebody first asks."""

    __slots__ = ("_asked", "_step")

    def __init__(self, plan: PricePlan, sizes: Mapping[str, Any], phase: str, once: bool) -> None:
        self._asked: tuple[PricePlan, Mapping[str, Any], str, bool] = (plan, sizes, phase, once)
        self._step: StepPrice | None = None

    def __call__(self) -> StepPrice:
        if self._step is None:
            plan, sizes, phase, once = self._asked
            self._step = plan.step(sizes, phase, once=once)
        return self._step


class LoneRows(NamedTuple):
    """The rows of a plan in a phase, folded; vectors have an entry a row."""

    work: Any  # [len(_WORK), rows, monomials]
    totals: Any  # the ops' own operations and bytes, [2, monomials]
    dims: Any  # sizes that tables are read at, [sizes, monomials]; None where one is no polynomial
    looking: tuple[tuple[int, float, float], ...]  # rows that look up, the bytes of their tables, how often each runs
    loose: Any  # [rows, (inverse peak, that of all formats, unpacked rows)]
    counts: Any
    cached: Any  # how often rows run in a step: whose caches are resident
    often: Any  # [3, rows]: how often each runs, and how often it counts in the time and the floor of what is executed
    worked: Any  # [2, rows]: … in operations and moved bytes
    compute_factor: Any
    compute_ramp_s: Any
    memory_factor: Any
    memory_ramp_s: Any
    overhead_s: Any
    host_s: Any
    token_overhead_s: Any  # … and of both more for each token
    token_host_s: Any
    routed_s: Any
    spread: Any
    known: Any  # of the spread: what whole steps have shown already
    groups: Any  # [groups, rows]
    fitted: Any  # [groups, rows]: rows whose doubt is that of the step's own seconds, too


def lone_sums(plan: PricePlan, sizes: Mapping[str, Any], phase: str, *, once: bool) -> StepSums | None:
    """None where the step must be priced op by op: several columns, one without logits, and what goes over links."""
    if plan.streamed or plan.prepared.collected.travels:
        return None
    if any(isinstance(size, np.ndarray) for size in sizes.values()) or not sizes["logits"]:
        return None
    key = ("lone", phase, once)
    if (rows := plan.parts.get(key)) is None:
        rows = plan.parts[key] = _fold(plan, phase, once=once)
    return _sums(plan, rows, sizes, phase, once=once)


def _sums(plan: PricePlan, rows: LoneRows, sizes: Mapping[str, Any], phase: str, *, once: bool) -> StepSums:
    prepared, levels, rates, pace = plan.prepared, plan.levels, plan.rates_in(phase), plan.pace(phase)
    monomials = np.array([float(prod([sizes[name] for name in monomial])) for monomial in prepared.monomials])
    work, (flops, moved) = rows.work @ monomials, (rows.totals @ monomials).tolist()
    for number, most, times in rows.looking:
        if (over := work.item(_WEIGHTS, number) - most) > 0:
            work[_WEIGHTS, number] = most
            moved -= times * over
    if prepared.loose:
        more = _count_loose(plan, rows, sizes, work)
        flops, moved = flops + more[0], moved + more[1]
    bare, ideal, compute, weights, kv, activations, extra, computed = work
    memory_ideal = levels.ideal(weights, activations, kv, extra)
    memory = memory_ideal * rows.memory_factor + rows.memory_ramp_s
    floor = np.maximum(bare, levels.floor(weights, activations, kv, plan.weights_bytes + float(rows.cached @ kv)))
    slower, far = None, None
    if rates.covered:
        counted = {"flops": computed, "bytes": weights + activations + kv, "weight_bytes": weights, "kv_bytes": kv}
        lengths = _lengths(plan, rows, rates, sizes, monomials)
        slower, far = _slower(rates, lengths, {name: counted[name] for name in rates.moved})
    elif rates.curves:  # a calibration has tables or kernels
        slower = np.ones((2, len(bare)))
        for number, seconds in _kernel_seconds(plan, sizes, phase):
            # A femtosecond is far below any op: it only keeps a row without work from dividing by nothing.
            slower[:, number] = seconds / max(ideal.item(number), memory_ideal.item(number), 1e-15)
    if slower is not None:
        compute, memory = compute * slower[0], memory * slower[1]
    overhead, host, waiting = rows.overhead_s, rows.host_s, 0.0
    if pace.counts_tokens:
        overhead = overhead + sizes["query"] * (rows.token_overhead_s + sizes["batch"] * rows.routed_s)
        host = host + sizes["query"] * rows.token_host_s
    time = np.maximum(np.maximum(compute, memory) + overhead, floor)
    if pace.waits_for_host and (host_s := float(rows.counts @ host)) > 0:
        waiting = max(0.0, host_s - float(rows.counts @ time))  # as `exposed_host`
        added = host * (waiting / host_s)
        time, overhead = time + added, overhead + added
    step_s = 0.0 if once else float(pace.step_s + pace.sequence_s * sizes["batch"])
    counted_s, time_s, _ = (rows.often @ time).tolist()
    least_s, _, floor_s = (rows.often @ floor).tolist()
    whole_s = counted_s + step_s
    spread = rows.spread if far is None else rows.spread * (1 + far)
    wide = _wide(plan, rows, phase, (rows.counts * time, spread), (whole_s, step_s, waiting))
    computing_s, waiting_s = (rows.counts @ each for each in (compute, overhead))
    step = _Whole(plan, sizes, phase, once)
    return StepSums(
        time_s=time_s,
        low_s=max(min(least_s, whole_s), whole_s / wide),
        high_s=whole_s * wide,
        floor_s=floor_s,
        step_s=step_s,
        flops=flops,
        bytes=moved,
        computing_s=float(computing_s),
        waiting_s=float(waiting_s),
        waits_for_host=waiting > WORTH_SAYING * whole_s,
        far={} if far is None or far.max() <= log(2.0) else step().outside(),
        whole=step,
    )


def _wide(plan: PricePlan, rows: LoneRows, phase: str, own: tuple[Any, Any], seconds: tuple[float, ...]) -> float:
    """How many times longer the step may be, or shorter: `StepPrice.interval` says why."""
    rates, (times, spread), (whole_s, step_s, waiting) = plan.rates_in(phase), own, seconds
    doubted = rates.step_spread or 0.0
    if waiting > 0:
        doubted = float(waiting_doubt(doubted, plan.host_doubt(phase), waiting / whole_s))
    together = rows.groups @ (times * (spread - rows.known))
    if rows.fitted is not None and step_s:
        together = together + step_s * (rows.fitted * spread).max(axis=1)
    share = float(together @ together + (doubted * whole_s) ** 2) ** 0.5 / (whole_s if whole_s > 0 else 1.0)
    return float(np.exp(EIGHT_IN_TEN * share))


def _lengths(plan: PricePlan, rows: LoneRows, rates: Rates, sizes: Mapping[str, Any], monomials: Any) -> list[float]:
    """The sizes that tables are read at."""
    if rows.dims is not None:
        found: list[float] = (rows.dims @ monomials).tolist()
        return found
    binding = plan.prepared.binding(sizes)
    return [binding.size(dim) * share for dim, share in rates.dims]


def _polynomials(rates: Rates, monomials: Sequence[Monomial]) -> Any:
    """The sizes that tables are read at by their coefficients; None where one is no polynomial of these monomials."""
    try:
        return coefficients([evaluate(dim, NAMES) * share for dim, share in rates.dims], monomials)
    except (NotPolynomialError, DomainError, KeyError):
        return None


def _slower(rates: Rates, sizes: Sequence[float], moved: Mapping[str, Any]) -> tuple[Any, Any]:
    """What tables multiply compute and memory with, [2, rows], and how far outside of them each row lies."""
    count = len(rates.rungs)
    slower, far = ([1.0] * count, [1.0] * count), [0.0] * count
    counted = {name: values.tolist() for name, values in moved.items()}
    for row in rates.covered:
        number = row.number
        point = tuple(
            [
                axis if isinstance(axis, float) else sizes[axis] if isinstance(axis, int) else counted[axis][number]
                for axis in row.axes
            ]
        )
        times = row.factor / row.table.share(point)
        for stream in (0, 1) if isinstance(row.stream, slice) else (row.stream,):
            slower[stream][number] = times
        if row.doubted:
            far[number] = row.table.beyond(point)
    return np.array(slower), np.array(far)


_REMEMBERED = 4096  # seconds of kernels at their sizes: those of a decode step come again with every prompt


def _kernel_seconds(plan: PricePlan, sizes: Mapping[str, Any], phase: str) -> list[tuple[int, float]]:
    """The rows whose kernels were measured, and the seconds of each."""
    rates, binding, known = plan.rates_in(phase), plan.prepared.binding(sizes), dict[int, tuple[Any, ...]]()
    remembered = plan.parts.setdefault(("kernels", phase), {})
    if len(remembered) > _REMEMBERED:
        remembered.clear()
    found = []
    for number, alike in rates.timed.items():
        if alike not in known:
            at = kernel_sizes(plan.prepared.rows[alike], binding)
            known[alike] = at, (*at.values(),)
        at, values = known[alike]
        if (seconds := remembered.get((number, values))) is None:
            taken = rates.curves[number].seconds(plan.peaks, at)
            seconds = remembered[number, values] = float(np.ravel(taken)[0])
        found.append((number, seconds))
    return found


def _count_loose(plan: PricePlan, rows: LoneRows, sizes: Mapping[str, Any], work: Any) -> tuple[float, float]:
    """Put in the rows that are no polynomials; the operations and bytes of all of them."""
    flops, moved = 0.0, 0.0
    loose = plan.prepared.loose
    for (number, key), counted in zip(loose.items(), plan.prepared.loose_work(sizes), strict=True):
        inverse, together, unpacked = rows.loose[number]
        here, get = float(counted.get(f"flops:{key}", 0.0)), counted.get
        bare = here * inverse
        ideal = bare + get("extra_flops", 0.0) * together
        compute = ideal + unpacked * get("unpack", 0.0) * together
        work[:, number] = (
            bare, ideal, compute * rows.compute_factor[number] + rows.compute_ramp_s[number], get("weights", 0.0),
            get("kv", 0.0), get("activations", 0.0), get("extra_bytes", 0.0), here,
        )  # fmt: skip
        flops += rows.worked.item(0, number) * float(get("flops", 0.0))
        moved += rows.worked.item(1, number) * float(get("bytes", 0.0))
    return flops, moved


def _fold(plan: PricePlan, phase: str, *, once: bool) -> LoneRows:
    prepared, pace, rates = plan.prepared, plan.pace(phase), plan.rates_in(phase)
    count, constant = len(prepared.rows), prepared.monomials.index(())

    def column(values: Any) -> Any:
        return np.broadcast_to(values, (count, 1))

    by_name = dict(zip((*prepared.keys, *PARTS), prepared.by_row(), strict=True))  # [rows, monomials] each
    inverse = {f"flops:{name}": column(value) for name, value in pace.inverse_peaks.items()}
    together, times = column(pace.inverse_peak), float(pace.kernels)
    bare = sum((by_name[key] * each for key, each in inverse.items()), start=np.zeros_like(by_name["kv"]))
    ideal = bare + by_name["extra_flops"] * together
    factor, ramp_s = times / column(pace.compute_share), times * column(pace.compute_ramp_s)
    compute = (ideal + column(pace.unpack) * by_name["unpack"] * together) * factor
    compute[:, constant] += ramp_s[:, 0]
    flops = sum((by_name[key] for key in prepared.keys), start=np.zeros_like(bare))
    numbers, executed = prepared.collected.executed[once]
    counted = np.stack([np.bincount(numbers, each, count) for each in executed])
    peaks = np.zeros((count, 3))
    for number, key in prepared.loose.items():
        peaks[number] = inverse[f"flops:{key}"][number, 0], together[number, 0], column(pace.unpack)[number, 0]
    counts = prepared.counts(once=once)
    spread = column(rates.spread * plan.doubt(rates, phase))[:, 0]
    groups = np.stack([*rates.groups.values()]) if rates.groups else np.zeros((0, count))
    columns = {**by_name, "bare": bare, "ideal": ideal, "compute": compute, "flops": flops}
    return LoneRows(
        work=np.stack([columns[name] for name in _WORK]),
        totals=np.stack([counted[2] @ by_name["flops"], counted[3] @ by_name["bytes"]]),
        dims=_polynomials(rates, prepared.monomials),
        looking=tuple([(number, most, counted.item(3, number)) for number, most in prepared.tables.items()]),
        loose=peaks,
        counts=counts,
        cached=prepared.counts(once=False),
        often=np.stack([counts, *counted[:2]]),
        worked=counted[2:],
        compute_factor=factor[:, 0],
        compute_ramp_s=ramp_s[:, 0],
        memory_factor=times / column(pace.memory_share)[:, 0],
        memory_ramp_s=times * column(pace.memory_ramp_s)[:, 0],
        overhead_s=times * column(pace.overhead_s)[:, 0],
        host_s=column(pace.host_s)[:, 0],
        token_overhead_s=times * column(pace.token_overhead_s)[:, 0],
        token_host_s=column(pace.token_host_s)[:, 0],
        routed_s=times * column(pace.routed_s)[:, 0],
        spread=spread,
        known=(rates.spread * rates.in_steps)[:, 0] if rates.step_spread is not None else np.zeros(count),
        groups=groups,
        # A spread of whole steps has these seconds among them; without a fit there are none.
        fitted=None if rates.step_spread is not None or rates.prior is None else (groups * rates.fitted[:, 0] > 0),
    )


def sums_of_step(plan: PricePlan, step: StepPrice, *, once: bool) -> StepSums:
    """The same of a step that was priced op by op."""
    priced, quantities = step.priced, step.quantities
    columns, collected = priced.time_s.shape[1], plan.prepared.collected
    alone = columns == 1 and not isinstance(step.step_s, np.ndarray)
    by_op = [over_columns(each) for each in (priced.time_s, priced.floor_s, quantities.flops, quantities.bytes)]
    numbers, counts = collected.executed[once]
    # Ops are added up one after the other in the order of execution.
    executed = counts * np.array(by_op)[:, numbers]
    time_s, floor_s, flops, moved = np.add.accumulate(executed, axis=1)[:, -1].tolist() if len(numbers) else [0.0] * 4
    low, high = step.interval()
    return StepSums(
        time_s=time_s,
        low_s=float(low.sum()),
        high_s=float(high.sum()),
        floor_s=floor_s,
        step_s=float(step.step_s if alone else np.broadcast_to(step.step_s, columns).sum()),
        flops=flops,
        bytes=moved,
        computing_s=float(step.total("compute_s").sum()),
        waiting_s=float(step.total("overhead_s").sum()),
        waits_for_host=waits_for_host(step),
        far=step.outside(),
        whole=lambda: step,
    )

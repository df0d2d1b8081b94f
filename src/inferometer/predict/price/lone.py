"""A step of one lone workload, with nothing counted but the sums that a phase is made of.

Most of what a lone step costs is not arithmetic but calls of numpy with twenty numbers each. So a plan's rows are
folded once (coefficients of seconds and bytes, and what their intervals need), one product gives all of them, and every
op's own numbers (`Plan.step`) are made when somebody reads them. The sums agree with those but for their last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import exp, log, prod
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
    from inferometer.predict.price.rates import Covered, Rates
    from inferometer.predict.price.utilisation import TableLine
    from inferometer.predict.work.collect import OpRow

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


class _Lookup(NamedTuple):
    """A row that a table is about; with a `line` where no more than one size of it changes, which is `axis`."""

    row: Covered
    streams: tuple[int, ...]
    line: TableLine | None
    axis: float | int | str


class _Timed(NamedTuple):
    """Rows of measured kernels that are read at the same sizes, which are made of `symbols`."""

    symbols: tuple[str, ...]
    first: OpRow
    numbers: tuple[int, ...]
    known: dict[tuple[Any, ...], list[float]]  # their seconds: those of a decode step come again with every prompt


class LoneRows(NamedTuple):
    """The rows of a plan in a phase, folded; vectors have an entry a row."""

    # [len(_WORK) · rows, then the ops' own operations and bytes, then sizes that tables are read at; monomials]
    polynomials: Any
    measured: bool  # whether those sizes are among them: each is a polynomial
    lookups: tuple[_Lookup, ...]
    timed: tuple[_Timed, ...]
    looking: tuple[tuple[int, float, float], ...]  # rows that look up, the bytes of their tables, how often each runs
    loose: Any  # [rows, (inverse peak, that of all formats, unpacked rows)]
    counts: Any
    cached: Any  # how often rows run in a step: whose caches are resident
    often: Any  # [rows, 3]: how often each runs, and how often it counts in the time and the floor of what is executed
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
    count = len(prepared.rows)
    # `dot` takes half as long as `@` does for so few numbers.
    counted_at = rows.polynomials.dot(monomials)
    work, (flops, moved, *lengths) = counted_at[: len(_WORK) * count], counted_at[len(_WORK) * count :].tolist()
    work = work.reshape(len(_WORK), count)
    for number, most, times in rows.looking:
        if (over := work.item(_WEIGHTS, number) - most) > 0:
            work[_WEIGHTS, number] = most
            moved -= times * over
    if prepared.loose:
        more = _count_loose(plan, rows, sizes, work)
        flops, moved = flops + more[0], moved + more[1]
    bare, ideal, compute, weights, kv, activations, extra, computed = work
    batch, resident = sizes["batch"], plan.weights_bytes + float(rows.cached.dot(kv))
    memory_ideal = levels.ideal(weights, activations, kv, extra, batch)
    memory = memory_ideal * rows.memory_factor + rows.memory_ramp_s
    priced = np.empty((4, count))  # what is added up
    floor = np.maximum(bare, levels.floor(weights, activations, kv, resident, batch), out=priced[0])
    slower: Any = None
    far: list[float] | None = None
    if rates.covered:
        counted = {"flops": computed, "bytes": weights + activations + kv, "weight_bytes": weights, "kv_bytes": kv}
        if not rows.measured:
            binding = prepared.binding(sizes)
            lengths = [binding.size(dim) * share for dim, share in rates.dims]
        slower, far = _slower(rows.lookups, lengths, {name: counted[name] for name in rates.moved}, count)
    elif rates.curves:  # a calibration has tables or kernels
        slower = np.ones((1, count))
        for number, seconds in _kernel_seconds(plan, rows.timed, sizes, phase):
            # A femtosecond is far below any op: it only keeps a row without work from dividing by nothing.
            slower[0, number] = seconds / max(ideal.item(number), memory_ideal.item(number), 1e-15)
    if slower is not None:
        compute, memory = compute * slower[0], memory * slower[-1]
    overhead, host, waiting = rows.overhead_s, rows.host_s, 0.0
    if pace.counts_tokens:
        overhead = overhead + sizes["query"] * (rows.token_overhead_s + sizes["batch"] * rows.routed_s)
        host = host + sizes["query"] * rows.token_host_s
    time = np.maximum(np.maximum(compute, memory) + overhead, floor, out=priced[1])
    if pace.waits_for_host and (host_s := float(rows.counts.dot(host))) > 0:
        waiting = max(0.0, host_s - float(rows.counts.dot(time)))  # as `exposed_host`
        added = host * (waiting / host_s)
        time += added
        overhead = overhead + added
    priced[2], priced[3] = compute, overhead
    step_s = 0.0 if once else float(pace.step_s + pace.sequence_s * sizes["batch"])
    # Of each: how often its ops run, and how often they count in the time and the floor of what is executed.
    (least_s, _, floor_s), (counted_s, time_s, _), (computing_s, *_), (waiting_s, *_) = priced.dot(rows.often).tolist()
    whole_s = counted_s + step_s
    spread = rows.spread if far is None else rows.spread * (1 + np.array(far))
    wide = _wide(plan, rows, phase, (rows.counts * time, spread), (whole_s, step_s, waiting))
    step = _Whole(plan, sizes, phase, once)
    return StepSums(
        time_s=time_s,
        low_s=max(min(least_s, whole_s), whole_s / wide),
        high_s=whole_s * wide,
        floor_s=floor_s,
        step_s=step_s,
        flops=flops,
        bytes=moved,
        computing_s=computing_s,
        waiting_s=waiting_s,
        waits_for_host=waiting > WORTH_SAYING * whole_s,
        far={} if far is None or max(far) <= log(2.0) else step().outside(),
        whole=step,
    )


def _wide(plan: PricePlan, rows: LoneRows, phase: str, own: tuple[Any, Any], seconds: tuple[float, ...]) -> float:
    """How many times longer the step may be, or shorter: `StepPrice.interval` says why."""
    rates, (times, spread), (whole_s, step_s, waiting) = plan.rates_in(phase), own, seconds
    doubted = rates.step_spread or 0.0
    if waiting > 0:
        doubted = float(waiting_doubt(doubted, plan.host_doubt(phase), waiting / whole_s))
    together = rows.groups.dot(times * (spread - rows.known))
    if rows.fitted is not None and step_s:
        together = together + step_s * (rows.fitted * spread).max(axis=1)
    share = (float(together.dot(together)) + (doubted * whole_s) ** 2) ** 0.5 / (whole_s if whole_s > 0 else 1.0)
    return exp(EIGHT_IN_TEN * share)


def _dims(rates: Rates, monomials: Sequence[Monomial]) -> Any:
    """The sizes that tables are read at by their coefficients; None where one is no polynomial of these monomials."""
    try:
        return coefficients([evaluate(dim, NAMES) * share for dim, share in rates.dims], monomials)
    except (NotPolynomialError, DomainError, KeyError):
        return None


def _slower(
    lookups: Iterable[_Lookup], sizes: Sequence[float], moved: Mapping[str, Any], count: int
) -> tuple[Any, list[float] | None]:
    """What tables multiply compute and memory with, [2, rows], and how far outside of them each row lies.

    None for rows that all lie inside.
    """
    slower, far = ([1.0] * count, [1.0] * count), [0.0] * count
    counted = {name: values.tolist() for name, values in moved.items()}

    def size(axis: float | str, number: int) -> float:
        if isinstance(axis, str):
            found: float = counted[axis][number]
            return found
        return sizes[axis] if isinstance(axis, int) else axis

    for row, streams, line, axis in lookups:
        number = row.number
        if line is not None:
            at = size(axis, number)
            share = line.share(at)
            if row.doubted:
                far[number] = line.beyond(at)
        else:
            point = tuple([size(each, number) for each in row.axes])
            share = row.table.share(point)
            if row.doubted:
                far[number] = row.table.beyond(point)
        for stream in streams:
            slower[stream][number] = row.factor / share
    return np.array(slower), far if any(far) else None


def _lookup(row: Covered) -> _Lookup:
    changing = [place for place, axis in enumerate(row.axes) if not isinstance(axis, float)]
    place = changing[0] if changing else 0
    line = row.table.line(place, row.axes) if len(changing) <= 1 else None
    return _Lookup(row, (0, 1) if isinstance(row.stream, slice) else (row.stream,), line, row.axes[place])


_REMEMBERED = 4096  # sizes of kernels whose seconds are kept


def _kernel_seconds(
    plan: PricePlan, timed: Iterable[_Timed], sizes: Mapping[str, Any], phase: str
) -> Iterator[tuple[int, float]]:
    """The rows whose kernels were measured, and the seconds of each."""
    for symbols, first, numbers, known in timed:
        values = tuple([sizes[name] for name in symbols])
        if (seconds := known.get(values)) is None:
            if len(known) > _REMEMBERED:
                known.clear()
            at, curves = kernel_sizes(first, plan.prepared.binding(sizes)), plan.rates_in(phase).curves
            taken = [curves[number].seconds(plan.peaks, at) for number in numbers]
            seconds = known[values] = [float(np.ravel(each)[0]) for each in taken]
        yield from zip(numbers, seconds, strict=True)


def _timed(plan: PricePlan, rates: Rates) -> tuple[_Timed, ...]:
    by_first: dict[int, list[int]] = {}
    for number, first in rates.timed.items():
        by_first.setdefault(first, []).append(number)
    firsts = [(plan.prepared.rows[first], (*numbers,)) for first, numbers in by_first.items()]
    return tuple([_Timed((*row.op.symbols,), row, numbers, {}) for row, numbers in firsts])


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
    totals, dims = (counted[2] @ by_name["flops"], counted[3] @ by_name["bytes"]), _dims(rates, prepared.monomials)
    return LoneRows(
        polynomials=np.vstack([*(columns[name] for name in _WORK), *totals, *([] if dims is None else dims)]),
        measured=dims is not None,
        lookups=tuple([_lookup(row) for row in rates.covered]),
        timed=_timed(plan, rates),
        looking=tuple([(number, most, counted.item(3, number)) for number, most in prepared.tables.items()]),
        loose=peaks,
        counts=counts,
        cached=prepared.counts(once=False),
        often=np.stack([counts, *counted[:2]], axis=1),
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
    """The sums of a step that was priced op by op."""
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

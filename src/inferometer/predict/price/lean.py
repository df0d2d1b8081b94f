"""Rows priced over a grid of batches and lengths, each with nothing counted that its price does not need.

`Plan.step` counts every quantity of every row at every point, because whoever asks for one point wants to see all of
them. Over a grid only the seconds are wanted, and they are polynomials but for three things: what a table or a curve
multiplies them with, what a cache holds, and which of the streams is the longest. So the peaks, shares and ramps of a
row are folded into its coefficients once, and a point costs what is left: some multiplications, and one exponential
where a table is read.

The arithmetic is that of `price_rows`, in another order of operations: the last digits differ, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.predict.price.kernel_floors import PeakRates
from inferometer.predict.price.kernels import Curve, kernel_sizes
from inferometer.predict.price.price import Levels
from inferometer.predict.price.rates import Covered
from inferometer.predict.price.utilisation import Crossed
from inferometer.predict.work.collect import OpRow
from inferometer.predict.work.prepare import PARTS

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.predict.price.plan import PricePlan

# Points at once: the arrays of a row's price stay in a core's own cache. They are as near to each other as they can be
# on both axes, so that most pieces lie in one cell of a table, which is then read once.
_CELLS, _WIDTH = 16_384, 128
_SLOWER = 1 + 1e-12  # a price this much above that of the peaks lies above its floor, however both are rounded
_LEAST = 1e-9  # a size of nothing has no logarithm; every real one is 1 or more

# By the power of the batch: what stands before it, as monomials of the other sizes and their factors. A grid is
# batches × lengths, so each of these is worked out along the lengths alone.
Factors = tuple[tuple[int, tuple[tuple[tuple[str, ...], float], ...]], ...]
Piece = tuple[slice, slice]  # of batches and of lengths


@frozen
class LeanRow:
    """A row as polynomials of seconds and bytes; `most` where it looks up: it reads no more of its weights than all.

    Seconds with shares and ramps in them are those of all `count` times that it runs, others and bytes those of one.
    """

    row: OpRow
    count: float
    bare: Factors  # seconds of arithmetic at the peak
    ideal: Factors  # … with what the runtime adds
    busy: Factors  # … at the share of the peak that it reaches
    held: Factors  # bytes of weights and cache
    weights: Factors  # … of the weights alone
    moved: Factors  # … with what the runtime moves on top
    activations: Factors
    moving: Factors | None  # seconds of memory, where no byte finds a cache that is priced
    counted: Mapping[str, Factors]  # what the axes of its tables are counted from
    most: float | None
    memory_share: float
    memory_ramp_s: float
    overhead_s: float
    floored: bool  # whether its price could lie below its floor
    hastened: bool  # … where a table makes it faster than at its peaks
    covered: tuple[Covered, ...]
    curve: Curve | None


@frozen
class LeanPart:
    """Rows that are priced together, on one device."""

    rows: tuple[LeanRow, ...]
    levels: Levels
    peaks: PeakRates
    dims: Mapping[int, tuple[Dim, float]]  # that its tables are read at, by their place among those of all rows
    times: float  # `Pace.kernels`: what all takes in an engine's step over what it took alone
    waiting_s: float  # for kernels to start, at every point

    def seconds(self, plan: PricePlan, sizes: Mapping[str, Any]) -> tuple[Any, Any, float]:
        """In all, with the arithmetic busy, and waiting: [batches, lengths], or shorter where nothing depends on them.

        `sizes` are numbers, but for a column of batches and rows of lengths.
        """
        shape = np.broadcast_shapes((1, 1), *(np.shape(value) for value in sizes.values()))
        time, computing = np.empty((2, *shape))
        for here in pieces_of(shape):
            time[here], computing[here], _ = self.seconds_in(plan, sizes, here)
        return time, computing, self.waiting_s

    def seconds_in(self, plan: PricePlan, sizes: Mapping[str, Any], here: Piece) -> tuple[Any, Any, float]:
        """… of one piece."""
        piece = {name: cut(value, here) for name, value in sizes.items()}
        return *self._at_once(_Points(piece, plan.prepared.binding(piece))), self.waiting_s

    def _at_once(self, points: _Points) -> tuple[Any, Any]:
        logs: dict[int, Any] = {}
        for axis, (dim, share) in self.dims.items():
            size = np.asarray(points.binding.size(dim) * share, float)
            logs[axis] = np.log(np.maximum(size, _LEAST)) if size.ndim else size.item()
        shares: dict[Any, Any] = {}
        (time, computing), *others = (self._row(each, points, logs, shares) for each in self.rows)
        for more, arithmetic in others:
            time, computing = time + more, computing + arithmetic
        return time, computing

    def _row(self, each: LeanRow, points: _Points, logs: Mapping[int, Any], shares: dict[Any, Any]) -> tuple[Any, Any]:
        over = None if each.most is None else np.maximum(0.0, points.value(each.counted["weight_bytes"]) - each.most)
        compute, memory = points.value(each.busy), self._memory(each, points, over)
        floored = each.floored
        for table in each.covered:
            slower = _slower(table, each, points, over, logs, shares)
            floored = floored or (each.hastened and (self.times < 1 or np.min(slower) < _SLOWER))
            if table.stream != 1:
                compute = compute * slower
            if table.stream != 0:
                memory = memory * slower
        if each.curve is not None:
            seconds = each.curve.seconds(self.peaks, kernel_sizes(each.row, points.binding))
            reached = each.memory_share / each.count
            longer = np.maximum(points.value(each.ideal), (memory - each.memory_ramp_s) * reached)
            # A femtosecond is far below any op: it only keeps a row without work from dividing by nothing.
            slower = seconds / np.maximum(longer, 1e-15)
            compute, memory = compute * slower, memory * slower
        if self.times != 1:
            compute, memory = self.times * compute, self.times * memory
        time = np.maximum(compute, memory)
        if each.overhead_s:
            time = time + self.times * each.overhead_s
        if floored:
            time = np.maximum(time, each.count * self._floor(each, points, over))
        return time, compute

    def _memory(self, each: LeanRow, points: _Points, over: Any) -> Any:
        if each.moving is not None:
            memory = points.value(each.moving)
            reached = self.levels.bandwidth * each.memory_share / each.count
            return memory if over is None else memory - over / reached
        moved = points.value(each.moved) if over is None else points.value(each.moved) - over
        activations = points.value(each.activations)
        if self.levels.one_by_one:
            others = points.value(each.moved) - points.value(each.weights)
            ideal = self.levels.ideal(moved - others, activations, 0.0, others, points.batch)
        else:
            ideal = self.levels.ideal(moved, activations, 0.0, 0.0)
        return ideal * (each.count / each.memory_share) + each.memory_ramp_s

    def _floor(self, each: LeanRow, points: _Points, over: Any) -> Any:
        held = points.value(each.held) if over is None else points.value(each.held) - over
        # Parts are of models that no cache holds: see `sums_over`.
        others = points.value(each.held) - points.value(each.weights) if self.levels.one_by_one else 0.0
        memory = self.levels.floor(held - others, points.value(each.activations), others, np.inf, points.batch)
        return np.maximum(points.value(each.bare), memory)


class _Points:
    """Some batches × lengths, and what was worked out along each of the two."""

    __slots__ = ("_batch", "_inner", "_sizes", "binding")

    def __init__(self, sizes: Mapping[str, Any], binding: Binding) -> None:
        self._sizes, self.binding = sizes, binding
        self._batch: dict[int, Any] = {0: 1.0, 1: sizes["batch"]}
        self._inner: dict[tuple[str, ...], Any] = {(): 1.0}

    @property
    def batch(self) -> Any:
        return self._batch[1]

    def value(self, factors: Factors) -> Any:
        total: Any = 0.0
        for number, (power, terms) in enumerate(factors):
            along = self._along(terms)
            value = self._power(power) * along if power else along
            total = total + value if number else value
        return total

    def on_axis(self, factors: Factors, over: Any) -> Any:
        """A counted size in the form of a table's axis: a number, or the logarithms of an array.

        Where it is a product along each of the two axes, there are fewer logarithms to take: see `Crossed`.
        """
        if over is None and len(factors) == 1:
            power, terms = factors[0]
            batch, along = self._power(power), self._along(terms)
            if isinstance(batch, np.ndarray) and isinstance(along, np.ndarray):
                return Crossed(np.log(batch), np.log(np.maximum(along, _LEAST)))
        value = self.value(factors) if over is None else self.value(factors) - over
        return np.log(np.maximum(value, _LEAST)) if isinstance(value, np.ndarray) else float(value)

    def _along(self, terms: Sequence[tuple[tuple[str, ...], float]]) -> Any:
        total: Any = 0.0
        for monomial, factor in terms:
            if monomial not in self._inner:
                value = self._sizes[monomial[0]]
                for name in monomial[1:]:
                    value = value * self._sizes[name]
                self._inner[monomial] = value
            total = total + factor * self._inner[monomial]
        return total

    def _power(self, power: int) -> Any:
        if power not in self._batch:
            self._batch[power] = self._sizes["batch"] * self._power(power - 1)
        return self._batch[power]


def pieces_of(shape: tuple[int, ...]) -> Iterator[Piece]:
    """A grid of [batches, lengths] in pieces, as near to square as it lets them be."""
    batches, lengths = shape
    width = min(lengths, max(_WIDTH, _CELLS // batches))
    height = max(1, _CELLS // width)
    for top in range(0, batches, height):
        for left in range(0, lengths, width):
            yield slice(top, top + height), slice(left, left + width)


def cut(value: Any, here: Piece) -> Any:
    """A piece of what varies along an axis."""
    if not np.ndim(value):
        return value
    return value[here[0] if value.shape[0] > 1 else slice(None), here[1] if value.shape[1] > 1 else slice(None)]


def _slower(  # noqa: PLR0913, PLR0917 - a table, a row, and where
    table: Covered, each: LeanRow, points: _Points, over: Any, logs: Mapping[int, Any], shares: dict[Any, Any]
) -> Any:
    """A table's factor for a row; rows that read it at the same place read it once."""
    counted = tuple(each.counted[axis] if isinstance(axis, str) else axis for axis in table.axes)
    key = (id(table.table), table.factor, counted, each.most)
    if key not in shares:
        point = tuple(
            points.on_axis(axis, over) if isinstance(axis, tuple) else logs[axis] if isinstance(axis, int) else axis
            for axis in counted
        )
        shares[key] = _above(log(table.factor), table.table.at_logarithms(point, shares))
    return shares[key]


def _above(log_factor: float, log_share: Any) -> Any:
    """The factor over the share, which is no more than 1."""
    if not np.ndim(log_share):
        return np.exp(log_factor - np.minimum(0.0, log_share))
    taken = np.minimum(0.0, log_share, out=log_share)
    return np.exp(np.subtract(log_factor, taken, out=taken), out=taken)


def lean_of(plan: PricePlan, phase: str, counts: Any) -> LeanPart | None:
    """The rows of a part, folded; None where one is no polynomial, or travels over a link."""
    prepared, rates, pace = plan.prepared, plan.rates_in(phase), plan.pace(phase)
    by_name = dict(zip((*prepared.keys, *PARTS), prepared.by_row(), strict=True))
    travels = plan.streamed or by_name["link"].any()
    if prepared.loose or travels or pace.counts_tokens or any(table.factor <= 0 for table in rates.covered):
        return None
    overhead = np.broadcast_to(pace.overhead_s, (len(counts), 1))[:, 0]
    return LeanPart(
        rows=tuple(_rows(plan, phase, counts, by_name)),
        levels=plan.levels,
        peaks=plan.peaks,
        dims={axis: rates.dims[axis] for table in rates.covered for axis in table.axes if isinstance(axis, int)},
        times=float(pace.kernels),
        waiting_s=float(pace.kernels * (counts @ overhead)),
    )


def _rows(plan: PricePlan, phase: str, counts: Any, by_name: Mapping[str, Any]) -> Iterator[LeanRow]:
    prepared, rates, pace = plan.prepared, plan.rates_in(phase), plan.pace(phase)
    constant = np.array([not monomial for monomial in prepared.monomials], float)
    names = [
        (monomial.count("batch"), tuple([name for name in monomial if name != "batch"]))
        for monomial in prepared.monomials
    ]
    inverse = {key: np.broadcast_to(value, (len(counts), 1)) for key, value in pace.inverse_peaks.items()}
    bare = sum(by_name[f"flops:{key}"] * value for key, value in inverse.items())
    together = sum(inverse.values())
    ideal = bare + by_name["extra_flops"] * together
    busy = ideal + pace.unpack * by_name["unpack"] * together
    column = {
        name: np.broadcast_to(getattr(pace, name), (len(counts), 1))[:, 0]
        for name in ("compute_share", "compute_ramp_s", "memory_share", "memory_ramp_s", "overhead_s")
    }
    held = by_name["weights"] + by_name["kv"]
    moved = held + by_name["extra_bytes"]
    moving = (moved + by_name["activations"]) / plan.levels.bandwidth
    counted = {
        "flops": sum(by_name[f"flops:{key}"] for key in inverse), "bytes": held + by_name["activations"],
        "weight_bytes": by_name["weights"], "kv_bytes": by_name["kv"],
    }  # fmt: skip
    for number, row in enumerate(prepared.rows):
        covered = tuple(table for table in rates.covered if table.number == number)
        axes = {axis for table in covered for axis in table.axes if isinstance(axis, str)}
        if number in prepared.tables:
            axes.add("weight_bytes")
        own, count = {name: float(values[number]) for name, values in column.items()}, float(counts[number])
        yield LeanRow(
            row=row,
            count=count,
            bare=_factors(bare[number], names),
            ideal=_factors(ideal[number], names),
            busy=_factors(count * (busy[number] / own["compute_share"] + constant * own["compute_ramp_s"]), names),
            held=_factors(held[number], names),
            weights=_factors(by_name["weights"][number], names),
            moved=_factors(moved[number], names),
            activations=_factors(by_name["activations"][number], names),
            moving=_factors(count * (moving[number] / own["memory_share"] + constant * own["memory_ramp_s"]), names)
            if plan.levels.cache_bandwidth is None
            else None,
            counted={axis: _factors(counted[axis][number], names) for axis in axes},
            most=prepared.tables.get(number),
            memory_share=own["memory_share"],
            memory_ramp_s=count * own["memory_ramp_s"],
            overhead_s=count * own["overhead_s"],
            # Nothing is faster than its floor but by a kernel's curve, a share above 1 or a factor below it.
            floored=number in rates.curves or max(own["compute_share"], own["memory_share"]) > 1,
            hastened=any(table.factor < 1 for table in covered),
            covered=() if number in rates.curves else covered,
            curve=rates.curves.get(number),
        )


def _factors(row: Any, monomials: Sequence[tuple[int, tuple[str, ...]]]) -> Factors:
    """A row of coefficients by the power of the batch; of each monomial, that power and its other names."""
    found: dict[int, list[tuple[tuple[str, ...], float]]] = {}
    for (power, inner), factor in zip(monomials, row.tolist(), strict=True):
        if factor:
            found.setdefault(power, []).append((inner, factor))
    return tuple([(power, tuple(terms)) for power, terms in sorted(found.items())])

"""A step's sums over a grid of sizes: a row is priced once for each value of what it depends on, and no more often.

In a grid of batches and prompts most rows (the products with weights) depend on the tokens of a step alone, those that
make logits on the batch alone, and only attention on both. So the rows are parted by what they depend on, each part is
priced where that differs, and the parts are added up over the grid. The arithmetic is that of `Plan.step`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial, reduce
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from inferometer.predict.price.kernels import distinct_of, kernel_sizes
from inferometer.predict.price.lean import LeanPart, Piece, cut, lean_of, pieces_of
from inferometer.predict.price.price import exposed_host
from inferometer.predict.price.step import Sums, price_rows, sums_of
from inferometer.predict.work.polynomial import SYMBOLIC
from inferometer.predict.work.prepare import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from inferometer.predict.price.plan import PricePlan

_CELLS = 14_000  # rows by columns at once: arrays stay in a core's own cache, and below what is paged in anew
_SPARSE = 8  # numbers up to the largest for each that occurs, above which sorting is quicker than a table of all
_TOKENS = frozenset({"batch", "query"})
# As many tokens in five ways: what is the same in all of them depends on their number alone.
_SPLIT = {
    "batch": np.array([210.0, 105.0, 42.0, 6.0, 1.0]), "query": np.array([1.0, 2.0, 5.0, 35.0, 210.0]),
    "context": 1.0, "logits": 1.0,
}  # fmt: skip


class PlanPart(NamedTuple):
    """Rows that depend on the same sizes, as a plan of their own without a host."""

    depends: frozenset[str]
    by_tokens: bool  # on the product of batch and query, however it is split
    plan: PricePlan
    counts: Any
    lean: LeanPart | None  # the same rows folded, where they are polynomials


def sums_over(
    plan: PricePlan, sizes: Mapping[str, Any], phase: str, *, once: bool = False
) -> Iterator[tuple[Piece, Sums]] | None:
    """The seconds of a step at every point that sizes span together, a piece of [batches, lengths] after the other.

    Each piece is worked out completely while it lies in a core's own cache. None where rows depend on each
    other. They do where the whole model may fit into a cache: what one row finds there depends on what the others hold.
    """
    if plan.weights_bytes <= plan.levels.cache_bytes:
        return None
    if (phase, once) not in plan.parts:
        plan.parts[phase, once] = [*_parts(plan, phase, once=once)]
    return _pieces(plan, _crossed(sizes), phase, once=once)


def _pieces(plan: PricePlan, sizes: Mapping[str, Any], phase: str, *, once: bool) -> Iterator[tuple[Piece, Sums]]:
    pace, counts = plan.pace(phase), plan.prepared.counts(once=once)
    _, host = pace.beside_s(sizes)
    host = np.reshape(
        counts @ np.broadcast_to(host, (len(counts), np.shape(host)[-1] if np.ndim(host) else 1)), (1, -1)
    )
    outside = np.reshape(pace.outside_s({"batch": np.ravel(sizes["batch"])}, once=once), (-1, 1))
    parts = [_seconds_of(part, sizes, phase) for part in plan.parts[phase, once]]
    for here in pieces_of(_shape(sizes)):
        seconds = zip(*(part(here) for part in parts), strict=True)
        device, computing, overhead = (reduce(np.add, each) for each in seconds)
        waiting = exposed_host(device, cut(host, here)) if np.min(device) < np.max(host) else 0.0
        outside_s = cut(outside, here)
        waiting = waiting + outside_s
        yield here, Sums(time_s=device + waiting, computing_s=computing, waiting_s=overhead + waiting)


def _shape(sizes: Mapping[str, Any]) -> tuple[int, int]:
    batches, lengths = np.broadcast_shapes((1, 1), *(np.shape(value) for value in sizes.values()))
    return batches, lengths


def _parts(plan: PricePlan, phase: str, *, once: bool) -> Iterator[PlanPart]:
    """The rows that run, by what they depend on."""
    prepared, counts, rates = plan.prepared, plan.prepared.counts(once=once), plan.rates_in(phase)
    work, binding = prepared.quantities(_SPLIT), prepared.binding(_SPLIT)
    alike = _is_alike(np.stack([*work.flops_by.values(), *(getattr(work, name) for name in PARTS)])).all(axis=0)
    axes = [_is_alike(np.asarray(binding.size(dim))) for dim, _ in rates.dims]
    for each in rates.covered:
        alike[each.number] &= all(axes[axis] for axis in each.axes if isinstance(axis, int))
    for number in rates.curves:
        alike[number] &= all(map(_is_alike, kernel_sizes(prepared.rows[number], binding).values()))
    together: dict[tuple[frozenset[str], bool, bool], list[int]] = {}
    for number in np.flatnonzero(counts).tolist():
        depends = prepared.names_of(number) | (prepared.rows[number].op.symbols & {*SYMBOLIC})
        by_tokens = depends - {"logits"} == _TOKENS and bool(alike[number])
        alike_in = (_TOKENS | {"logits"} if by_tokens else depends, by_tokens, number in prepared.loose)
        together.setdefault(alike_in, []).append(number)
    for (depends, by_tokens, _), numbers in sorted(together.items(), key=lambda each: len(each[0][0])):
        part = _only(plan, numbers, phase)
        lean = lean_of(part, phase, counts[numbers])
        yield PlanPart(depends=depends, by_tokens=by_tokens, plan=part, counts=counts[numbers], lean=lean)


def _is_alike(values: Any) -> Any:
    """Whether all along the last axis are one number, but for how its last digit was rounded."""
    # some hundred times a double's last digit: sums of a few terms in another order differ by less
    return np.ptp(values, axis=-1) <= 1e-13 * np.max(np.abs(values), axis=-1) if np.ndim(values) else True


def _only(plan: PricePlan, numbers: list[int], phase: str) -> PricePlan:
    """The plan of some of the rows, none of which waits for the host."""
    rates, pace = plan.rates_in(phase), plan.pace(phase)
    index, first = {number: index for index, number in enumerate(numbers)}, dict[int, int]()
    timed = [(number, alike) for number, alike in rates.timed.items() if number in index]
    some = replace(
        rates,
        covered=tuple(replace(row, number=index[row.number]) for row in rates.covered if row.number in index),
        curves={index[number]: curve for number, curve in rates.curves.items() if number in index},
        timed={index[number]: index[first.setdefault(alike, number)] for number, alike in timed},
    )
    columns: dict[str, Any] = {
        field.name: value[numbers]
        for field in fields(pace)
        if field.init and isinstance(value := getattr(pace, field.name), np.ndarray) and value.ndim == 2
    }
    peaks = {key: value[numbers] if np.ndim(value) else value for key, value in pace.inverse_peaks.items()}
    return replace(
        plan,
        prepared=plan.prepared.only(numbers),
        inverse_peaks=peaks,
        rates={phase: some},
        paces={phase: replace(pace, inverse_peaks=peaks, **{**columns, "host_s": 0.0, "token_host_s": 0.0})},
    )


def _crossed(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """A column of batches, and rows of all other sizes; numbers stay numbers."""
    lengths = np.broadcast_shapes(*(np.shape(value)[1:] for name, value in sizes.items() if name != "batch"))
    return {
        name: value
        if not np.ndim(value)
        else value.reshape(-1, 1)
        if name == "batch"
        else np.broadcast_to(value, (1, *lengths)).reshape(1, -1)
        if value.size > 1
        else value.reshape(1, 1)
        for name, value in sizes.items()
    }


def _seconds_of(part: PlanPart, sizes: Mapping[str, Any], phase: str) -> Callable[[Piece], tuple[Any, Any, Any]]:
    """What gives a piece's seconds: on the device, in arithmetic, and beside it, along the axes that it depends on."""
    if part.by_tokens:
        return _seconds_by_tokens(part, sizes, phase)
    here = {name: value if name in part.depends else _first(value) for name, value in sizes.items()}
    if part.lean is not None and min(_shape(here)) > 1:
        return partial(part.lean.seconds_in, part.plan, here)
    seconds = _priced(part, here, phase)
    return lambda piece: tuple(cut(each, piece) for each in seconds)


def _first(value: Any) -> Any:
    return value[:1, :1] if np.ndim(value) else value


def _seconds_by_tokens(part: PlanPart, sizes: Mapping[str, Any], phase: str) -> Callable[[Piece], tuple[Any, Any, Any]]:
    """Each number of tokens that occurs is priced once, and looked up wherever it does."""
    batch, query = (np.asarray(sizes[name]).astype(np.int64) for name in ("batch", "query"))
    most, points = int(batch.max() * query.max()), batch.size * query.size
    if dense := most <= _SPARSE * points:
        seen = np.zeros(most + 1, bool)
        for here in pieces_of((batch.size, query.size)):
            seen[cut(batch, here) * cut(query, here)] = True
        distinct = np.flatnonzero(seen)
        rank = np.cumsum(seen, dtype=np.int32) - 1
    else:
        distinct = distinct_of((batch * query).ravel())
    found = _priced(part, {**dict.fromkeys(SYMBOLIC, 1.0), "query": distinct[None].astype(float)}, phase)

    def seconds(here: Piece) -> tuple[Any, Any, Any]:
        tokens = cut(batch, here) * cut(query, here)
        places = rank.take(tokens) if dense else np.searchsorted(distinct, tokens)
        return tuple(each.take(places) if np.ndim(each) else each for each in found)

    return seconds


def _priced(part: PlanPart, sizes: Mapping[str, Any], phase: str) -> tuple[Any, Any, Any]:
    """At every batch of a column and all lengths of a row: folded, or as vectors of some points at a time.

    A lone point comes twice: it would be added up in another order, and its last digit would tell how grids are cut.
    """
    if part.lean is not None:
        return part.lean.seconds(part.plan, sizes)
    shape = _shape(sizes)
    flat = {name: np.broadcast_to(value, shape).ravel() if np.ndim(value) else value for name, value in sizes.items()}
    # with fewer columns the calls of numpy would cost more than their arithmetic
    length, most = prod(shape), max(64, _CELLS // len(part.counts))
    blocks = []
    for start in range(0, length, most):
        end = min(start + most, length)
        columns = [start, start] if end - start == 1 else slice(start, end)
        piece = {name: value[columns] if np.ndim(value) else value for name, value in flat.items()}
        blocks.append(_at_once(part, piece, phase)[:, : end - start])
    time, computing, waiting = (each.reshape(shape) for each in np.concatenate(blocks, axis=1))
    return time, computing, waiting


def _at_once(part: PlanPart, sizes: Mapping[str, Any], phase: str) -> Any:
    plan = part.plan
    rates, work = plan.rates_in(phase), plan.prepared.quantities(sizes)
    slower = rates.slower(plan.prepared.binding(sizes), work, doubt=False)[0] if rates.covered else None
    if rates.curves:  # a calibration has tables or kernels
        slower = plan.as_measured(rates, sizes, plan.ideals(work, sizes["batch"]))
    priced, _ = price_rows(
        work,
        plan.pace(phase),
        part.counts,
        resident=plan.weights_bytes if plan.needs_floor(work) else None,
        slower=slower,
        links=plan.links(work, rates),
        sizes=sizes,
    )
    sums = sums_of(priced, part.counts, 0.0)
    return np.stack([sums.time_s, sums.computing_s, sums.waiting_s])

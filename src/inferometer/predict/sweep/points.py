"""The price of a phase at many points at once, on one plan or on several, with details where wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.predict.price.over import sums_over
from inferometer.predict.price.price import BOUNDS
from inferometer.predict.price.step import Sums
from inferometer.predict.price.together import sums_together
from inferometer.predict.sweep.columns import RUNNING
from inferometer.predict.sweep.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from inferometer.predict.phases import Site
    from inferometer.predict.price.plan import Plan
    from inferometer.predict.price.step import Step

Sizes = dict[str, Any]
_NAMES = np.array(BOUNDS, dtype=object)
_CELLS = 14_000  # rows by columns at once: arrays stay in a core's own cache, and below what is paged in anew


def points_of(batch: Any, query: Any, context: Any) -> tuple[Sizes, tuple[int, ...]]:
    """Sizes by name, each along its own axes, and the shape of the points that they span together."""
    sizes = {"batch": batch, "query": query, "context": context, "logits": 1}
    return sizes, np.broadcast_shapes(*(np.shape(value) for value in sizes.values()))


def _flat(sizes: Sizes, shape: tuple[int, ...]) -> Sizes:
    """Vectors over all points. Numbers stay numbers."""
    return {
        name: np.ravel(np.broadcast_to(value, shape)).astype(float) if np.ndim(value) else value
        for name, value in sizes.items()
    }


def price_points(  # noqa: PLR0913 - a phase, where, and how much of it
    plans: Sequence[Plan],
    site: Site,
    phase: str,
    points: tuple[Sizes, tuple[int, ...]],
    *,
    once: bool,
    details: bool,
    dense: bool,
) -> Stage:
    """Every plan is an entry of the first axis. `site` has the power of each, [plans, 1].

    `once` looks at the ops that run once a request. `dense`: so many points that plans go one by one.
    """
    shape = points[1]
    sizes = _flat(*points)
    if dense or any(row.op_class == "collective" or row.offloaded for row in plans[0].prepared.rows):
        sums = _stacked([_dense(plan, points, phase, once=once) for plan in plans])
    else:
        sums = _together(plans, sizes, phase, once=once)
    time = site.stretch * sums.time_s
    joules = _joules(site, time, sums).reshape(-1, *shape)
    if not details:
        return Stage(seconds=time.reshape(1, -1, *shape), energy_j=joules, bytes=np.array(np.nan))
    found = [_details(plan, sizes, phase, once=once) for plan in plans]
    low, high = np.stack([ends for ends, _, _ in found], axis=1)
    # the last bit may differ between the two ways to add up
    ends = np.minimum(site.stretch * low, time), np.maximum(site.stretch * high, time)
    seconds = np.stack([time, *ends]).reshape(3, -1, *shape)
    bound = np.stack([names for _, names, _ in found]).reshape(-1, *shape)
    streams = site.stretch * np.stack([streams for _, _, streams in found], axis=1).reshape(len(RUNNING), -1, *shape)
    return Stage(seconds=seconds, energy_j=joules, bytes=np.array(np.nan), bound=bound, streams=streams)


def _dense(plan: Plan, points: tuple[Sizes, tuple[int, ...]], phase: str, *, once: bool) -> Sums:
    """One plan at every point."""
    found = sums_over(plan, points[0], phase, once=once)
    if found is not None:
        return found
    sizes = _flat(*points)
    parts = [plan.step(part, phase, once=once, doubt=False).sums() for part in _pieces(plan, sizes)]
    time, computing, waiting = (np.concatenate([getattr(part, name) for part in parts]) for name in Sums.__slots__)
    return Sums(time_s=time, computing_s=computing, waiting_s=waiting)[: _length(sizes)]


def _together(plans: Sequence[Plan], sizes: Sizes, phase: str, *, once: bool) -> Sums:
    """All plans at every point."""
    many = max(1, _CELLS // (len(plans[0].prepared.rows) * _length(sizes)))
    found = [
        sums_together(plans[start : start + many], sizes, phase, once=once) for start in range(0, len(plans), many)
    ]
    return found[0] if len(found) == 1 else _stacked([sums[index] for sums in found for index in range(len(sums))])


def _stacked(found: Sequence[Sums]) -> Sums:
    time, computing, waiting = (np.stack([getattr(sums, name) for sums in found]) for name in Sums.__slots__)
    return Sums(time_s=time, computing_s=computing, waiting_s=waiting)


def _length(sizes: Sizes) -> int:
    return max(len(value) for value in sizes.values() if np.ndim(value))


def _pieces(plan: Plan, sizes: Sizes) -> Iterator[Sizes]:
    """The sizes of some points at a time, in their order. A lone point comes twice: it would be added up otherwise."""
    length, most = _length(sizes), max(64, _CELLS // len(plan.prepared.rows))
    for start in range(0, length, most):
        piece = range(start, min(start + most, length))
        places = [start, start] if len(piece) == 1 else slice(piece.start, piece.stop)
        yield {name: value[places] if np.ndim(value) else value for name, value in sizes.items()}


def _joules(site: Site, time: Any, sums: Sums) -> Any:
    """Energy of all devices. Each waits for the host, and for its turn in a pipeline."""
    if site.power is None:
        return np.full(time.shape, np.nan)
    idle = (1 - site.busy) * time + site.busy * site.stretch * sums.waiting_s
    computing = site.busy * site.stretch * sums.computing_s
    return site.devices * site.power.joules(time_s=time, computing_s=computing, waiting_s=idle)


def _details(plan: Plan, sizes: Sizes, phase: str, *, once: bool) -> tuple[Any, Any, Any]:
    """The low and the high end of a step's seconds, [2, n], what bounds it, [n], what each resource takes, [4, n]."""
    steps, length = [plan.step(part, phase, once=once) for part in _pieces(plan, sizes)], _length(sizes)
    ends = np.concatenate([np.stack(step.interval()) for step in steps], axis=1)
    if not all(row.counted_whole for row in plan.prepared.rows if row.once == once):
        ends[1] = np.inf  # with work that is not known, nobody can say how long it takes at most
    streams = np.concatenate([_streams(step) for step in steps], axis=1)
    return ends[:, :length], np.concatenate([_bounds(step) for step in steps])[:length], streams[:, :length]


def _streams(step: Step) -> Any:
    streams = step.streams()
    return np.stack([streams[name] for name in RUNNING])


def _bounds(step: Step) -> Any:
    """What most of the time is bound by, at each point, as `phases` says it of one."""
    priced = step.priced
    absent = np.zeros((1, 1))
    streams = (priced.compute_s, priced.memory_s, priced.link_s, priced.overhead_s)
    stacked = np.stack(np.broadcast_arrays(*(absent if each is None else each for each in streams), priced.time_s)[:4])
    longest = stacked.argmax(axis=0)
    seconds = np.stack([step.counts @ (priced.time_s * (longest == index)) for index in range(len(BOUNDS))])
    seconds[BOUNDS.index("overhead")] += step.step_s
    return _NAMES[seconds.argmax(axis=0)]

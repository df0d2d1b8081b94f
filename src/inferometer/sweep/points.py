"""The price of a phase at many points at once: the closed form where there is one, and the details where wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.cost.price.price import BOUNDS
from inferometer.sweep.closed import PLAN_POINTS, closed_form, pieces_of, plan_step, step_sums
from inferometer.sweep.stage import Stage

if TYPE_CHECKING:
    from inferometer.cost.phases import Site
    from inferometer.cost.price.plan import Plan, Step
    from inferometer.sweep.closed import Sums

__all__ = ["points_of", "price_points"]

Sizes = dict[str, Any]
_NAMES = np.array(BOUNDS, dtype=object)


def points_of(batch: Any, query: Any, context: Any) -> tuple[Sizes, tuple[int, ...]]:
    """Sizes as vectors over the points that they span together, and the axes of those. Numbers stay numbers."""
    nothing = 0.0 * (batch + query + context)
    named = {"batch": batch, "query": query, "context": context}
    sizes = {name: (value + nothing).ravel() if np.ndim(value) else value for name, value in named.items()}
    return {**sizes, "logits": 1}, nothing.shape


def price_points(  # noqa: PLR0913 - a phase, where, and how much of it
    plan: Plan, site: Site, phase: str, points: tuple[Sizes, tuple[int, ...]], *, once: bool, details: bool
) -> Stage:
    """`once` looks at the ops that run once a request."""
    sizes, shape = points
    sums = step_sums(plan, closed_form(plan, phase, once=once), sizes, phase, once=once)
    time = site.stretch * sums.time_s
    joules = _joules(site, time, sums).reshape(shape)
    if not details:
        return Stage(seconds=time.reshape(1, *shape), energy_j=joules, bytes=np.array(np.nan))
    (low, high), bound = _details(plan, sizes, phase, once=once)
    # the last bit may differ between the two ways to add up
    ends = np.minimum(site.stretch * low, time), np.maximum(site.stretch * high, time)
    seconds = np.stack([time, *ends]).reshape(3, *shape)
    return Stage(seconds=seconds, energy_j=joules, bytes=np.array(np.nan), bound=bound.reshape(shape))


def _joules(site: Site, time: Any, sums: Sums) -> Any:
    """Energy of all devices. Each waits for the host, and for its turn in a pipeline."""
    if site.power is None:
        return np.full(len(time), np.nan)
    idle = (1 - site.busy) * time + site.busy * site.stretch * sums.waiting_s
    computing = site.busy * site.stretch * sums.computing_s
    return site.devices * site.power.joules(time_s=time, computing_s=computing, waiting_s=idle)


def _details(plan: Plan, sizes: Sizes, phase: str, *, once: bool) -> tuple[Any, Any]:
    """The low and the high end of a step's seconds, [2, n], and what bounds it, [n]: the long way, row by row."""
    ends, bounds = [], []
    for part in pieces_of(sizes, PLAN_POINTS):
        step = plan_step(plan, part, phase, once=once)
        ends.append(np.stack(step.interval()))
        bounds.append(_bounds(step))
    return np.concatenate(ends, axis=1), np.concatenate(bounds)


def _bounds(step: Step) -> Any:
    """What most of the time is bound by, at each point, as `phases` says it of one."""
    priced = step.priced
    absent = np.zeros((1, 1))
    streams = (priced.compute_s, priced.memory_s, priced.link_s, priced.overhead_s)
    stacked = np.stack(np.broadcast_arrays(*(absent if each is None else each for each in streams), priced.time_s)[:4])
    longest = stacked.argmax(axis=0)
    seconds = np.stack([step.counts @ (priced.time_s * (longest == place)) for place in range(len(BOUNDS))])
    seconds[BOUNDS.index("overhead")] += step.step_s
    return _NAMES[seconds.argmax(axis=0)]

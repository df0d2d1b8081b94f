"""The price of a phase at many points at once, on one plan or on several: the quickest way there is, and details."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.cost.price.price import BOUNDS
from inferometer.cost.price.step import Sums
from inferometer.cost.price.together import sums_together
from inferometer.cost.work.symbolic import SYMBOLIC
from inferometer.sweep.closed import PLAN_POINTS, closed_form, pieces_of, step_sums
from inferometer.sweep.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.cost.phases import Site
    from inferometer.cost.price.plan import Plan
    from inferometer.cost.price.step import Step

Sizes = dict[str, Any]
_NAMES = np.array(BOUNDS, dtype=object)
_COLUMNS = 2048  # of several plans at once: their rows stay in a core's own cache


def points_of(batch: Any, query: Any, context: Any) -> tuple[Sizes, tuple[int, ...]]:
    """Sizes as vectors over the points that they span together, and the axes of those. Numbers stay numbers."""
    nothing = 0.0 * (batch + query + context)
    named = {"batch": batch, "query": query, "context": context}
    sizes = {name: (value + nothing).ravel() if np.ndim(value) else value for name, value in named.items()}
    return {**sizes, "logits": 1}, nothing.shape


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

    `once` looks at the ops that run once a request. `dense`: so many points that a plan is worth a closed form.
    """
    sizes, shape = points
    sums = _dense(plans, sizes, phase, once=once) if dense else _mixed(plans, sizes, phase, once=once)
    time = site.stretch * sums.time_s
    joules = _joules(site, time, sums).reshape(-1, *shape)
    if not details:
        return Stage(seconds=time.reshape(1, -1, *shape), energy_j=joules, bytes=np.array(np.nan))
    found = [_details(plan, sizes, phase, once=once) for plan in plans]
    low, high = np.stack([ends for ends, _ in found], axis=1)
    # the last bit may differ between the two ways to add up
    ends = np.minimum(site.stretch * low, time), np.maximum(site.stretch * high, time)
    seconds = np.stack([time, *ends]).reshape(3, -1, *shape)
    bound = np.stack([names for _, names in found]).reshape(-1, *shape)
    return Stage(seconds=seconds, energy_j=joules, bytes=np.array(np.nan), bound=bound)


def _dense(plans: Sequence[Plan], sizes: Sizes, phase: str, *, once: bool) -> Sums:
    """Plan by plan."""
    found = [step_sums(plan, closed_form(plan, phase, once=once), sizes, phase, once=once) for plan in plans]
    return _stacked(found)


def _mixed(plans: Sequence[Plan], sizes: Sizes, phase: str, *, once: bool) -> Sums:
    """All plans at once, where nothing goes over links."""
    length = max(len(value) for value in sizes.values() if np.ndim(value))
    if any(row.op_class == "collective" or row.offloaded for row in plans[0].prepared.rows):
        return _stacked([step_sums(plan, None, sizes, phase, once=once) for plan in plans])
    together = max(1, _COLUMNS // length)
    found = [
        sums_together(plans[start : start + together], sizes, phase, once=once)
        for start in range(0, len(plans), together)
    ]
    return (
        found[0] if len(found) == 1 else _stacked([sums[place] for sums in found for place in range(len(sums.time_s))])
    )


def _stacked(found: Sequence[Sums]) -> Sums:
    time, computing, waiting = (np.stack([getattr(sums, name) for sums in found]) for name in Sums.__slots__)
    return Sums(time_s=time, computing_s=computing, waiting_s=waiting)


def _joules(site: Site, time: Any, sums: Sums) -> Any:
    """Energy of all devices. Each waits for the host, and for its turn in a pipeline."""
    if site.power is None:
        return np.full(time.shape, np.nan)
    idle = (1 - site.busy) * time + site.busy * site.stretch * sums.waiting_s
    computing = site.busy * site.stretch * sums.computing_s
    return site.devices * site.power.joules(time_s=time, computing_s=computing, waiting_s=idle)


def _details(plan: Plan, sizes: Sizes, phase: str, *, once: bool) -> tuple[Any, Any]:
    """The low and the high end of a step's seconds, [2, n], and what bounds it, [n]: the long way, row by row."""
    ends, bounds = [], []
    for part in pieces_of(sizes, PLAN_POINTS):
        step = plan.step({name: part[name] for name in SYMBOLIC}, phase, once=once)
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

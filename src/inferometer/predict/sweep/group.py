"""Combinations of one graph with the same plan of devices, evaluated together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.workload import Parallel
from inferometer.predict.energy import PowerModel, power_model
from inferometer.predict.headline import with_own_steps
from inferometer.predict.money import hourly_price, million_usd
from inferometer.predict.options import Options
from inferometer.predict.phases import PlanDevices, load_phase, site_of
from inferometer.predict.price.over import sums_over
from inferometer.predict.price.price import BOUNDS
from inferometer.predict.price.step import StepPrice, Sums
from inferometer.predict.price.together import outside_of, sums_together
from inferometer.predict.ready import ReadyGraph
from inferometer.predict.sweep.columns import LOADING, RUNNING
from inferometer.predict.sweep.stage import SweepStage, absent_stage
from inferometer.predict.sweep.workloads import AskedWorkloads, Shares, shares_of

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.predict.price.plan import PricePlan


# The price of a phase at many points at once, on one plan or on several, with details where wanted.

Sizes = dict[str, Any]
_NAMES = np.array(BOUNDS, dtype=object)
_POWERS = ("idle_w", "moving_w", "computing_w", "full_share")  # of PowerModel
_SECONDS = ("time_s", "computing_s", "waiting_s")  # of Sums
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
    plans: Sequence[PricePlan],
    site: PlanDevices,
    phase: str,
    points: tuple[Sizes, tuple[int, ...]],
    *,
    once: bool,
    details: bool,
    dense: bool,
) -> SweepStage:
    """Every plan is an entry of the first axis. `site` has the power of each, [plans, 1, 1].

    `once` looks at the ops that run once a request. `dense`: with this many points plans go one by one.
    """
    shape = points[1]
    time, joules = (np.empty((len(plans), shape[0], prod(shape[1:]))) for _ in range(2))
    for here, sums in _sums(plans, points, phase, once=once, dense=dense):
        time[here] = sums.time_s if site.stretch == 1 else site.stretch * sums.time_s
        joules[here] = _joules(site, here[0], time[here], sums)
    joules = joules.reshape(-1, *shape)
    spent = outside_of([plan.pace(phase) for plan in plans], points[0]["batch"], once=once)
    outside = site.stretch * spent.reshape(len(plans), -1, 1, 1, 1)
    if not details:
        return SweepStage(
            seconds=time.reshape(1, -1, *shape), energy_j=joules, bytes=np.array(np.nan), outside_s=outside
        )
    sizes = _flat(*points)
    found = [_details(plan, sizes, phase, once=once) for plan in plans]
    low, high = np.stack([ends for ends, _, _ in found], axis=1)
    # the last bit may differ between the two ways to add up
    flat = time.reshape(len(plans), -1)
    ends = np.minimum(site.stretch * low, flat), np.maximum(site.stretch * high, flat)
    seconds = np.stack([flat, *ends]).reshape(3, -1, *shape)  # the time, its low end and its high end
    bound = np.stack([names for _, names, _ in found]).reshape(-1, *shape)
    streams = site.stretch * np.stack([streams for _, _, streams in found], axis=1).reshape(len(RUNNING), -1, *shape)
    return SweepStage(
        seconds=seconds, energy_j=joules, bytes=np.array(np.nan), outside_s=outside, bound=bound, streams=streams
    )


def _sums(
    plans: Sequence[PricePlan], points: tuple[Sizes, tuple[int, ...]], phase: str, *, once: bool, dense: bool
) -> Iterator[tuple[tuple[Any, slice, slice], Sums]]:
    """Every plan at every point: a piece of [plans, batches, lengths] after the other."""
    # What goes over a link is priced by each device's own link, which plans side by side do not have.
    alone = [dense or plan.streamed or plan.prepared.collected.travels for plan in plans]
    whole, shape = slice(None), (points[1][0], prod(points[1][1:]))
    for place in np.flatnonzero(alone).tolist():
        found = sums_over(plans[place], points[0], phase, once=once)
        if found is None:
            found = iter([((whole, whole), _stepped(plans[place], points, phase, once=once).shaped(shape))])
        for here, sums in found:
            yield (place, *here), sums
    beside, sizes = np.flatnonzero(np.logical_not(alone)).tolist(), {} if all(alone) else _flat(*points)
    for places in _runs(plans, beside, prod(points[1])):
        sums = sums_together([plans[place] for place in places], sizes, phase, once=once)
        yield (places, whole, whole), sums.shaped((len(places), *shape))


def _runs(plans: Sequence[PricePlan], places: list[int], length: int) -> Iterator[list[int]]:
    """As many plans at once as keep their arrays in the cache; one at least, however many points it has."""
    run: list[int] = []
    rows = 0
    for place in places:
        rows += len(plans[place].prepared.rows)
        if run and rows * length > _CELLS:
            yield run
            run, rows = [], len(plans[place].prepared.rows)
        run.append(place)
    if run:
        yield run


def _stepped(plan: PricePlan, points: tuple[Sizes, tuple[int, ...]], phase: str, *, once: bool) -> Sums:
    """One plan at every point, with all that a step is counted by."""
    sizes = _flat(*points)
    parts = [plan.step(part, phase, once=once, doubt=False).sums() for part in _pieces(plan, sizes)]
    time, computing, waiting = (np.concatenate([getattr(part, name) for part in parts]) for name in _SECONDS)
    return Sums(time_s=time, computing_s=computing, waiting_s=waiting)[: _length(sizes)]


def _length(sizes: Sizes) -> int:
    return max(len(value) for value in sizes.values() if np.ndim(value))


def _pieces(plan: PricePlan, sizes: Sizes) -> Iterator[Sizes]:
    """The sizes of some points at a time, in their order. A lone point comes twice: it would be added up otherwise."""
    # with fewer points the calls of numpy would cost more than their arithmetic
    length, most = _length(sizes), max(64, _CELLS // len(plan.prepared.rows))
    for start in range(0, length, most):
        piece = range(start, min(start + most, length))
        places = [start, start] if len(piece) == 1 else slice(piece.start, piece.stop)
        yield {name: value[places] if np.ndim(value) else value for name, value in sizes.items()}


def _joules(site: PlanDevices, places: Any, time: Any, sums: Sums) -> Any:
    """Energy of all devices of some plans. Each waits for the host, and for its turn in a pipeline."""
    power, share = site.power, site.busy * site.stretch
    powers = PowerModel(**{name: getattr(power, name)[places] for name in _POWERS})
    idle, computing = sums.waiting_s, sums.computing_s
    if site.busy < 1 or share != 1:
        idle, computing = (1 - site.busy) * time + share * idle, share * computing
    joules = powers.joules(time_s=time, computing_s=computing, waiting_s=idle)
    return joules if site.devices == 1 else site.devices * joules


def _details(plan: PricePlan, sizes: Sizes, phase: str, *, once: bool) -> tuple[Any, Any, Any]:
    """The low and the high end of a step's seconds, [2, n], what bounds it, [n], what each resource takes, [4, n]."""
    steps, length = [plan.step(part, phase, once=once) for part in _pieces(plan, sizes)], _length(sizes)
    ends = np.concatenate([np.stack(step.interval()) for step in steps], axis=1)
    if not all(row.counted_whole for row in plan.prepared.rows if row.once == once):
        ends[1] = np.inf  # with work that is not known, nobody can say how long it takes at most
    streams = np.concatenate([_streams(step) for step in steps], axis=1)
    return ends[:, :length], np.concatenate([_bounds(step) for step in steps])[:length], streams[:, :length]


def _streams(step: StepPrice) -> Any:
    streams = step.streams()
    return np.stack([streams[name] for name in RUNNING])


def _bounds(step: StepPrice) -> Any:
    """What most of the time is bound by, at each point, as `phases` says it of one."""
    priced = step.priced
    absent = np.zeros((1, 1))
    streams = (priced.compute_s, priced.memory_s, priced.link_s, priced.overhead_s)
    stacked = np.stack(np.broadcast_arrays(*(absent if each is None else each for each in streams), priced.time_s)[:4])
    longest = stacked.argmax(axis=0)
    seconds = np.stack([step.counts @ (priced.time_s * (longest == index)) for index in range(len(BOUNDS))])
    # What an engine takes for a step beside its kernels belongs to no row.
    seconds[BOUNDS.index("overhead")] += step.step_s
    return _NAMES[seconds.argmax(axis=0)]


@frozen
class GroupMember:
    """A combination that can be: its place among all, what it is answered with, and its device's memory."""

    place: int
    ready: ReadyGraph
    room_bytes: float

    @property
    def device(self) -> Device:
        return self.ready.plan.device


@frozen
class Group:
    """`site` has the power of each member, [members, 1, 1]."""

    members: Sequence[GroupMember]
    parallel: Parallel
    asked: AskedWorkloads
    shares: Shares
    site: PlanDevices
    options: Options
    details: bool
    dense: bool

    def stages(self) -> tuple[SweepStage, SweepStage]:
        if self.members[0].ready.generative:
            return self._first(), self._step()
        return self._forward(), absent_stage(details=self.details)

    def _forward(self) -> SweepStage:
        """Every step of a pass; of a pipeline, what runs once a picture as well."""
        ready = self.members[0].ready
        options = with_own_steps(ready.graph, self.options)
        found = self._phase("forward", query=self.asked.known_prompt, context=0, first=True).scaled(options.steps or 1)
        if not ready.layout.encodes:
            return found
        return found.after(self._phase("forward", query=self.asked.known_prompt, context=0, once=True, first=True))

    def _first(self) -> SweepStage:
        """What comes before and with the first token; NaN where no prompt is read."""
        asked, host, encodes = self.asked, self.options.host, self.members[0].ready.layout.encodes
        reads = ~np.isnan(asked.prompt)
        if not reads.any():
            return absent_stage(details=self.details)
        done = 0 if encodes else self.options.cached_prefix
        # A prompt that is wholly cached still has its last token read: logits come from it.
        query = np.maximum(1.0, asked.start - done)
        single = query == 1  # as `phases.rated` has it
        found = self._phase("decode" if single.all() else "prefill", query=query, context=done, first=True)
        if single.any() and not single.all():
            alone = self._phase("decode", query=np.ones((1,) * single.ndim), context=done, first=True)
            found = found.where(~single, alone)
        if encodes:
            found = found.after(self._phase("prefill", query=query, context=done, once=True, first=True))
        if host.tokenise_s_per_token is not None:
            found = found.with_host(host.tokenise_s_per_token * asked.prompt * asked.batch)
        if host.sampling_s is not None:
            found = found.with_host(host.sampling_s)
        return found.only(reads)

    def _step(self) -> SweepStage:
        """A decode step with what the host does around it; NaN where none is asked for."""
        asked, host = self.asked, self.options.host
        writes = ~np.isnan(asked.context) | (np.nan_to_num(asked.generate) > 1)
        if not writes.any():
            return absent_stage(details=self.details)
        found = self._phase("decode", query=1, context=asked.step_context, last=asked.last_context)
        if host.sampling_s is not None:
            found = found.with_host(host.sampling_s)
        if host.detokenise_s_per_token is not None:
            found = found.with_host(host.detokenise_s_per_token * asked.batch)
        return found.only(writes)

    def _phase(  # noqa: PLR0913 - what a stage is priced with
        self, phase: str, *, query: Any, context: Any, last: Any = None, once: bool = False, first: bool = False
    ) -> SweepStage:
        """The price at `context`, and the memory there or, where a later step needs more of it, at `last`.

        `first` is the step that makes the cache.
        """
        shares, plans = self.shares, [member.ready.plan for member in self.members]
        points = points_of(shares.device_batch, query, context)
        found = price_points(plans, self.site, phase, points, once=once, details=self.details, dense=self.dense)
        held = context if last is None else last
        if held is not context or shares.replica_batch is not shares.device_batch:
            points = points_of(shares.replica_batch, query, held)
        return replace(found, bytes=self._bytes(points, first=first))

    def _bytes(self, points: tuple[dict[str, Any], tuple[int, ...]], *, first: bool) -> Any:
        """Of each member: its weights, and what comes and goes, which those with other weights share."""
        sizes, shape = points
        residencies = [member.ready.residency for member in self.members]
        which = np.array([id(each.passing) for each in residencies])
        weights = np.array([each.weights_bytes for each in residencies]).reshape(-1, 1, 1, 1, 1)
        found = np.empty((len(residencies), *shape))
        # Batches in strips, so that a million points do not stand in memory once for every part of the sum.
        height = max(1, _CELLS // prod(shape[1:]))
        passings = {id(each.passing): each.passing for each in residencies}
        for passing in passings.values():
            members = which == id(passing) if len(passings) > 1 else slice(None)  # a mask takes several times as long
            for top in range(0, shape[0], height):
                batches = slice(top, top + height)
                piece = {name: value[batches] if name == "batch" else value for name, value in sizes.items()}
                found[members, batches] = weights[members] + passing.total_bytes(piece, first=first)
        return found

    def numbers(self) -> tuple[list[float], ...]:
        """Of each member: room in memory, and dollars for a million tokens at one a second; or NaN.

        With details also the seconds that storage and the host link take to load it.
        """
        prices = _prices(self.members, self.parallel.devices, self.options)
        rooms = [member.room_bytes for member in self.members]
        loads = [self._load(member) if self.details else {} for member in self.members]
        return rooms, prices, *([load.get(name, np.nan) for load in loads] for name in LOADING)

    def _load(self, member: GroupMember) -> Mapping[str, float]:
        site = site_of(member.device, member.ready.graph, self.parallel, self.options)
        phase, _ = load_phase(member.ready, member.device, site, self.options)
        return {} if phase is None else phase.streams


def group_of(  # noqa: PLR0913 - what a group is evaluated with
    members: Sequence[GroupMember],
    parallel: Parallel,
    asked: AskedWorkloads,
    options: Options,
    *,
    details: bool,
    dense: bool,
) -> Group:
    return Group(
        members=members,
        parallel=parallel,
        asked=asked,
        shares=shares_of(asked.batch, parallel, options),
        site=_site(members, parallel, options),
        options=options,
        details=details,
        dense=dense,
    )


def _site(members: Sequence[GroupMember], parallel: Parallel, options: Options) -> PlanDevices:
    """NaN stands for a power that is not known."""
    first = members[0]
    site = site_of(first.device, first.ready.graph, parallel, options)
    known = {id(member.device): power_model(member.device) for member in members}
    powers = [known[id(member.device)] for member in members]
    columns = {
        name: np.array([[[np.nan if power is None else getattr(power, name)]] for power in powers]) for name in _POWERS
    }
    power = PowerModel(**columns)  # type: ignore[arg-type]  # vectors of them
    return replace(site, power=power)


def _prices(members: Sequence[GroupMember], devices: int, options: Options) -> list[float]:
    known: dict[int, float] = {}
    for device in (member.device for member in members):
        if id(device) not in known:
            price = hourly_price(device, devices, options.place)
            # At one token a second: rows divide it by their own rate.
            known[id(device)] = np.nan if price is None else float(million_usd(price, 1.0))
    return [known[id(member.device)] for member in members]


@frozen
class Result:
    """What became of the combinations at these places."""

    places: list[int]
    first: SweepStage
    step: SweepStage
    numbers: tuple[list[float], ...]


def evaluated(group: Group) -> tuple[list[Result], dict[int, str]]:
    """The priced group, and the reason for each member that has no price; the group is then split for the others."""
    places = [member.place for member in group.members]
    try:
        first, step = group.stages()
        return [Result(places=places, first=first, step=step, numbers=group.numbers())], {}
    except DomainError as error:
        # One member that cannot be priced refuses the whole group, which is halved until it stands alone.
        if len(places) == 1:
            return [], {places[0]: str(error)}
    results: list[Result] = []
    refused: dict[int, str] = {}
    middle = len(places) // 2
    for members in (group.members[:middle], group.members[middle:]):
        site = _site(members, group.parallel, group.options)
        found, reasons = evaluated(replace(group, members=members, site=site))
        results += found
        refused |= reasons
    return results, refused

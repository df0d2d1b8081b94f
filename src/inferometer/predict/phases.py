"""From priced steps to the phases of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen, later
from inferometer.core.profile import Bound, OpTime, Phase
from inferometer.core.request import BETWEEN, PARTS, RUN
from inferometer.core.units import format_quantity
from inferometer.predict.energy import PowerModel, counted_joules, energy_costs, power_model
from inferometer.predict.headline import AROUND
from inferometer.predict.options import EnergyCosts, Options
from inferometer.predict.parallel import stage_share
from inferometer.predict.price.collectives import chosen_link, route_of
from inferometer.predict.price.price import bound_names, over_columns
from inferometer.predict.price.priors import storage_prior

if TYPE_CHECKING:
    from inferometer.core.device import Device, Sourced
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Graph
    from inferometer.core.workload import Parallel
    from inferometer.predict.price.lone import StepSums
    from inferometer.predict.price.plan import PricePlan
    from inferometer.predict.price.step import StepPrice
    from inferometer.predict.ready import ReadyGraph

LOOSE = 2.0  # a constant that was measured elsewhere
ONCE = frozenset({"encode", AROUND})  # phases of what runs once a request


@frozen
class PlanDevices:
    """The devices of a plan: how many, their power, and what a pipeline makes of the time.

    `stretch` is the time of a step over that of one micro-batch through all layers, `busy` the share of it in which a
    device has something to do.
    """

    power: PowerModel | None
    energy: EnergyCosts | None = None
    devices: int = 1
    stretch: float = 1.0
    busy: float = 1.0


def site_of(device: Device, graph: Graph, parallel: Parallel, options: Options) -> PlanDevices:
    """Through p stages m micro-batches take m + p − 1 times the longest; a device works m / p of a pass."""
    stages, micro = parallel.pp, options.micro_batches
    stretch = float(micro)
    if stages > 1:
        stretch = (micro + stages - 1) * stage_share(graph, stages)
    busy = min(1.0, micro / (stages * stretch))
    return PlanDevices(
        power=power_model(device),
        energy=energy_costs(device, options),
        devices=parallel.devices,
        stretch=stretch,
        busy=busy,
    )


def phase_of(name: str, sums: StepSums, plan: PricePlan, site: PlanDevices, phase: str | None = None) -> Phase:
    """A step, or several columns of one (the chunks of a prefill) together, with its ops in the order of execution.

    `phase` is the one whose rates it was priced with, where it is not that of its name.
    """
    once, stretch, phase = name in ONCE, site.stretch, phase or rated(name)
    once_s, floor_s = stretch * sums.step_s, stretch * sums.floor_s
    time_s = stretch * sums.time_s + once_s
    end = max(time_s, stretch * sums.high_s)  # the last bit may differ between the two ways to add up
    whole = plan.prepared.collected.whole[once]
    return Phase(
        name=name,
        time_s=time_s,
        low_s=min(time_s, max(floor_s, stretch * sums.low_s)),
        high_s=end if whole else None,  # with work that is not known, nobody can say how long it takes at most
        floor_s=floor_s,
        bound=later(lambda: _bound(sums.whole(), plan, site, once=once)),
        flops=sums.flops,
        bytes=sums.bytes,
        energy_j=_energy(sums, site, time_s),
        ops=later(lambda: tuple(_ops(sums.whole(), plan, phase, once=once, stretch=stretch))),
        unattributed_s=once_s,
        parts=later(lambda: _parts(name, sums.whole(), plan, site, time_s, phase=phase)),
        streams=later(lambda: {key: stretch * float(each.sum()) for key, each in sums.whole().streams().items()}),
    )


def _parts(  # noqa: PLR0913 - what the parts of a step are made of
    name: str, step: StepPrice, plan: PricePlan, site: PlanDevices, time_s: float, *, phase: str
) -> dict[str, float]:
    """The parts of a step as a loop around the model sees them, by the names that measurements have.

    The host launches while the device works on what came before: it is free when all is launched, and then waits for
    the device's `run` to end. A captured phase is one launch, the longer the more kernels it has. Without a host beside
    the device all of it is the run.
    """
    looped = rated(name)  # the loop writes and reads a prompt of one token as it does any other
    overheads, columns = plan.overheads, step.priced.time_s.shape[1]
    parts = {part: overheads.looped_s(part, looped) / plan.host_speed for part in ("write", "read", BETWEEN)}
    if phase in overheads.captured:
        kernels = float((step.counts[:, None] * plan.rates_in(phase).launches).sum())
        launched_s = overheads.looped_s("graph", looped) + kernels * overheads.looped_s("node", looped)
        parts["launch"] = columns * launched_s / plan.host_speed
    else:
        host_s = np.broadcast_to(step.starting_s, step.priced.time_s.shape)
        parts["launch"] = float((step.counts[:, None] * host_s).sum())
    if plan.device.unit == "cpu":  # a GPU chooses a token in its own run
        pace = plan.pace(looped)
        sequences = (float(np.max(step.step_s)) - pace.step_s) / pace.sequence_s if pace.sequence_s else 1.0
        parts["sample"] = plan.choosing_s(looped, sequences)
    parts = {part: site.stretch * seconds for part, seconds in parts.items() if seconds > 0}
    beside_s = sum(parts.values())
    if beside_s > time_s:  # the device ends before its host does
        parts = {part: seconds * time_s / beside_s for part, seconds in parts.items()}
    parts[RUN] = time_s - min(beside_s, time_s)
    return {part: parts[part] for part in PARTS if part in parts}


def energy_notes(device: Device, site: PlanDevices) -> list[str]:
    """Whose power the energy is counted with, and what of it is not known."""
    if site.energy is not None:
        idle = f"The idle power of {device.name} is not known and counts nothing: it uses more energy than predicted."
        return [idle] if site.power is None else []
    if site.power is None:
        return []
    whose = f"the whole chip {device.chip}" if device.shares_power else device.name
    if device.busy_w is not None:
        watts = format_quantity(device.busy_w.value, "W")
        told = f" ({device.busy_w.note})" if device.busy_w.note else ""
        return [f"Energy is counted with what {device.name} draws at work, {watts}{told}."]
    if site.power.bound:
        return [f"Energy is the power limit of {whose} times the time: an upper bound."]
    return [f"Energy is counted with the power of {whose}."] if device.shares_power else []


def latency_notes(device: Device, parallel: Parallel, options: Options) -> list[str]:
    """The note about links between machines, one of unknown latency, or a bus. Replicas do not talk."""
    link = chosen_link(device, options.link)
    if link is None or parallel.devices == parallel.dp:
        return []
    replica = parallel.tp * parallel.pp * (parallel.dp if parallel.ep > 1 else 1)
    route = route_of(device, options.link, replica)
    if route.between is not None:
        named = "" if options.link == route.between else "; --link names another"
        machines = f"{replica} devices are more than the {route.machine} of a machine"
        return [f"{machines}: what leaves one goes over {route.between.title}{named}."]
    if options.link is None and link is device.host_link and parallel.tp > 1:
        own = f"Messages over {link.title} are those of devices with access to each other's memory"
        return [f"{own}; where the host allows none, they take 2 to 4 times as long: --link pcie-5-x16-through-host."]
    if link.latency_s is not None:
        return []
    return [f"The latency of {link.title} is not known and counts nothing: short messages take longer than predicted."]


def outside_notes(name: str, sums: StepSums) -> list[str]:
    """Notes on ops that are larger or smaller than any that the calibration measured, where they matter."""
    if not sums.far:
        return []
    listed = ", ".join(f"{op_class} by {times:.3g} times" for op_class, times in sorted(sums.far.items()))
    return [f"In the {name} phase ops lie outside of what was calibrated ({listed}): the interval is wider there."]


def _ops(step: StepPrice, plan: PricePlan, phase: str, *, once: bool, stretch: float) -> list[OpTime]:
    priced, quantities, rows = step.priced, step.quantities, plan.prepared.rows
    times, lows, highs, floors = (
        _sums(values, stretch) for values in (priced.time_s, priced.low_s, priced.high_s, priced.floor_s)
    )
    flops, moved, sent = (_sums(values) for values in (quantities.flops, quantities.bytes, quantities.link))
    bounds, rates, unit = _bounds(step, plan), plan.rates_in(phase), plan.device.unit
    ops = []
    for entry in plan.prepared.entries:
        number, count, kind = entry.row, entry.count, entry.kind
        row = rows[number]
        if row.once != once:
            continue
        counted = row.has_work
        ops.append(
            OpTime(
                name=entry.name, kind=kind, block=entry.block, count=count, unit=unit,
                time_s=count * times[number], low_s=count * lows[number], high_s=count * highs[number],
                floor_s=count * floors[number] if counted else None, flops=count * flops[number] if counted else None,
                bytes=count * (sent[number] if kind == "collective" else moved[number]) if counted else None,
                bound=bounds[number], origin=rates.origins[number],
                rung=rates.rungs[number],
            )
        )  # fmt: skip
    return ops


def _sums(values: Any, times: float = 1.0) -> list[float]:
    """Each row over all columns."""
    total = over_columns(values)
    sums: list[float] = (total if times == 1 else times * total).tolist()
    return sums


def rated(name: str, query: Any = None) -> str:
    """The phase whose priors and tables hold for another.

    A prompt of one token, as the decoder behind an encoder begins with, runs the kernels of a decode step.
    """
    if name == "prefill" and isinstance(query, int) and query == 1:
        return "decode"
    return {"encode": "prefill", "draft": "decode", AROUND: "forward"}.get(name, name)


def _bounds(step: StepPrice, plan: PricePlan) -> list[Bound]:
    """What each row is bound by."""
    named = zip(bound_names(step.priced), plan.prepared.rows, strict=True)
    return [bound if row.has_work else "overhead" for bound, row in named]


def _bound(step: StepPrice, plan: PricePlan, site: PlanDevices, *, once: bool) -> Bound:
    """What most of the time is bound by."""
    outside = np.broadcast_to(step.step_s, step.priced.time_s.shape[1])
    seconds: dict[Bound, float] = {"overhead": site.stretch * float(outside.sum())}
    bounds, times = _bounds(step, plan), _sums(step.priced.time_s, site.stretch)
    numbers, counts = plan.prepared.collected.executed[once]
    for number, count in zip(numbers.tolist(), counts[0].tolist(), strict=True):
        bound = bounds[number]
        seconds[bound] = seconds.get(bound, 0.0) + count * times[number]
    return max(seconds, key=lambda name: seconds[name])


def _energy(sums: StepSums, site: PlanDevices, time_s: float) -> float | None:
    """Joules of all devices. Each waits for the host, and for its turn in a pipeline."""
    if site.energy is not None:
        idle_w = 0.0 if site.power is None else site.devices * site.power.resting_w
        return counted_joules(site.energy, flops=sums.flops, bytes_moved=sums.bytes, idle_w=idle_w, time_s=time_s)
    if site.power is None:
        return None
    waiting_s = site.stretch * (sums.waiting_s + sums.step_s)
    idle = (1 - site.busy) * time_s + site.busy * waiting_s
    computing_s = site.busy * site.stretch * sums.computing_s
    return float(site.devices * site.power.joules(time_s=time_s, computing_s=computing_s, waiting_s=idle))


def load_phase(
    ready: ReadyGraph, device: Device, site: PlanDevices, options: Options
) -> tuple[Phase | None, tuple[str, ...]]:
    """From storage to memory to the device, once: the weights of all devices from one storage, each its own link.

    The two may overlap, so the low end is the longer of them at its best and the high end their sum at its worst.
    None where the storage is not known: the link alone would be a part passed off as the whole.
    """
    storage = _storage(device, options)
    if storage is None:
        return None, (f"The storage of {device.name} is not known, so loading is not predicted.",)
    stored, ideal = ready.layout.weight_bytes, 0.0
    link = device.host_link.bandwidth_bytes_per_s if device.host_link else None
    if link is not None:  # without one, memory is the host's
        ideal = ready.residency.weights_bytes / float(link)
    across = ideal / _or_whole(device.shares.host)
    reading = stored / storage.usual
    low = max(stored / storage.fast, ideal)
    bound: Bound = "link" if across > reading else "storage"
    joules = None if site.power is None else site.power.idle_w * (reading + across) * site.devices
    phase = Phase(
        name="load", time_s=reading + across, low_s=low, high_s=stored / storage.slow + across, floor_s=low,
        bound=bound, flops=0.0, bytes=float(stored), energy_j=joules,
        streams={"storage": reading} if link is None else {"storage": reading, "host_link": across},
    )  # fmt: skip
    return phase, storage.notes


@frozen
class _Storage:
    """Bytes a second: at best, as expected and at worst, and what to say about them."""

    fast: float
    usual: float
    slow: float
    notes: tuple[str, ...] = ()


def _or_whole(share: Sourced | None) -> float:
    return 1.0 if share is None else float(share)


def _storage(device: Device, options: Options) -> _Storage | None:
    """What was asked for or the device's row states, else what such machines have."""
    stated = options.storage_bytes_per_s
    if stated is None and device.storage_bytes_per_s is not None:
        stated = float(device.storage_bytes_per_s)
    if stated is not None:
        reached = stated * _or_whole(device.shares.storage)
        return _Storage(fast=stated, usual=reached, slow=reached)
    prior = storage_prior(device.kind)
    if prior is None:
        return None
    source = prior.low_bytes_per_s.source
    note = f"Loading is from {prior.title}, as such machines have; its speed is a range ({source})."
    fast, slow = float(prior.high_bytes_per_s), float(prior.low_bytes_per_s)
    share = _or_whole(device.shares.storage)
    # The geometric mean of the range: as many times slower than the best as it is quicker than the worst.
    return _Storage(fast=fast, usual=share * float(np.sqrt(fast * slow)), slow=share * slow, notes=(note,))


def first_run_phase(effects: RuntimeEffects, graph: Graph) -> Phase | None:
    """Compiling before the first run, where the runtime's row knows it and nobody did it ahead: never inside a step."""
    if effects.first_run is None or graph.metadata.get("compiled"):
        return None
    return constant_phase("first_run", float(effects.first_run))


def constant_phase(name: str, seconds: float) -> Phase:
    """Something on the host that takes a known time."""
    return Phase(
        name=name, time_s=seconds, low_s=seconds / LOOSE, high_s=seconds * LOOSE, floor_s=0.0, bound="overhead"
    )

"""Corrected kernels as the ops of a profile: one for each layer of the model, and one for each kernel without a layer.

An engine's own work for a layer is an op beside it, in its block and under its name: `conv1/ReorderInput`.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import fsum

from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Phase
from inferometer.core.request import sampled_steps
from inferometer.engines.base import GRAPH_LAUNCH, Kernel
from inferometer.measure.run.correct import Corrected, capped, steady_mean
from inferometer.measure.run.layers import GraphLayer, Layers, layer_kind, main_layer

# Which kernel does the work of each layer, so that work, floors and predictions are counted once.
#
# A kernel's names are not claims: a compiler names every module whose values a fused kernel reads. The product itself
# is usually a kernel of its own, so a layer of matrices belongs to the kernel that names fewest others; any other layer
# belongs to the first that names it. A light layer that no kernel names ran inside a neighbour.

_MATRICES = frozenset({"linear", "matmul", "convolution", "attention", "moe_experts", "recurrent"})


@frozen
class Claim:
    """A kernel's row, and the layers whose work it does. `main` is the layer that the row is named after."""

    row: str
    main: GraphLayer | None = None
    layers: tuple[GraphLayer, ...] = ()


def claims_of(
    kernels: Sequence[Kernel], times_s: Sequence[float], layers: Layers, *, adopt: bool = True
) -> tuple[Claim, ...]:
    """One claim for each kernel. Every layer with work is claimed once, unless it is heavy and no kernel names it.

    Without `adopt`, only layers that a kernel names are claimed.
    """
    found = [layers.find(kernel.layers, layer_kind(kernel.kind)) for kernel in kernels]
    doers = _doers(kernels, times_s, found)
    named = _claimed(doers, layers.by_name, len(kernels))
    mains = [main_layer(mine) if mine else None for mine in named]
    # A kernel of several layers that claims none works for the one that it names first, and makes its row a fused one.
    fused = {number if named[number] else doers.get(mine[0].name) for number, mine in enumerate(found) if mine[1:]}
    adopted = _claimed(doers | _adopters(doers, layers, fused), layers.by_name, len(kernels)) if adopt else named
    return tuple(
        Claim(row=row, main=main, layers=adopted[number])
        for number, (row, main) in enumerate(_rows(kernels, found, mains, doers))
    )


def _doers(
    kernels: Sequence[Kernel], times_s: Sequence[float], found: Sequence[tuple[GraphLayer, ...]]
) -> dict[str, int]:
    """The number of the kernel that does each layer, by the layer's name."""
    best: dict[str, tuple[tuple[float, ...], int]] = {}
    for number, (kernel, mine) in enumerate(zip(kernels, found, strict=True)):
        for layer in () if kernel.own else mine:
            if not (layer.flops or layer.bytes):
                continue
            heavy = layer.kind in _MATRICES
            other = heavy and layer_kind(kernel.kind) not in _MATRICES
            rank = (float(other), float(len(mine)), -times_s[number]) if heavy else (float(number),)
            best[layer.name] = min(best.get(layer.name, (rank, number)), (rank, number))
    return {name: number for name, (_, number) in best.items()}


def _adopters(doers: Mapping[str, int], layers: Layers, fused: AbstractSet[int | None]) -> dict[str, int]:
    """For each light layer that no kernel names, the neighbour it ran in: a fused one, else the one before it.

    A layer of matrices that did not run ends the neighbourhood.
    """
    order = sorted(layers.by_name.values(), key=lambda layer: layer.place)
    before = _nearest(order, doers)
    after = _nearest(order[::-1], doers)
    adopters: dict[str, int] = {}
    for layer in order:
        if layer.name in doers or layer.kind in _MATRICES or not (layer.flops or layer.bytes):
            continue
        near = (before[layer.name], after[layer.name])
        number = next((number for number in near if number is not None and number in fused), near[0])
        if number is not None:
            adopters[layer.name] = number
    return adopters


def _nearest(order: Sequence[GraphLayer], doers: Mapping[str, int]) -> dict[str, int | None]:
    """For each layer, the kernel of the last layer before it in this order."""
    nearest: dict[str, int | None] = {}
    last: int | None = None
    for layer in order:
        nearest[layer.name] = last
        last = doers.get(layer.name, None if layer.kind in _MATRICES else last)
    return nearest


def _claimed(doers: Mapping[str, int], by_name: Mapping[str, GraphLayer], kernels: int) -> list[tuple[GraphLayer, ...]]:
    """The layers of each kernel, in the order of execution."""
    mine: list[list[GraphLayer]] = [[] for _ in range(kernels)]
    for name, number in doers.items():
        mine[number].append(by_name[name])
    return [tuple(sorted(each, key=lambda layer: layer.place)) for each in mine]


def _rows(
    kernels: Sequence[Kernel],
    found: Sequence[tuple[GraphLayer, ...]],
    mains: Sequence[GraphLayer | None],
    doers: Mapping[str, int],
) -> list[tuple[str, GraphLayer | None]]:
    """The row of each kernel. One that claims nothing stands in the row of the layer that it names first."""
    rows: list[tuple[str, GraphLayer | None]] = []
    for number, (kernel, mine, main) in enumerate(zip(kernels, found, mains, strict=True)):
        if kernel.own and mine:
            served = main_layer(mine)
            rows.append((f"{served.name}/{kernel.kind}", served))
            continue
        doer = doers.get(mine[0].name) if mine else None
        layer = main or (mains[doer] if doer is not None else mine[0] if mine else None)
        # Without a layer it keeps its name; the number keeps equal names in rows of their own.
        alone = kernel.layers[0] if len(kernel.layers) == 1 else f"{kernel.name}\0{number}"
        rows.append((alone if layer is None else layer.name, layer))
    return rows


_NAMED = 3  # kernels that an op names; the others are only counted


@dataclass(slots=True)
class _Group:
    """The kernels of one row. A module may run several, and an engine may split a layer."""

    block: str | None
    layers: list[GraphLayer] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)


def measured_ops(
    kernels: Sequence[Kernel], corrected: Corrected, layers: Layers, *, adopt: bool = True
) -> tuple[OpTime, ...]:
    """In the order in which each row's first kernel ran; their times add up as the kernels' did.

    With `adopt`, layers that no kernel names count where they ran; without it they count nowhere.
    """
    groups: dict[str, _Group] = {}
    claims = claims_of(kernels, corrected.times_s, layers, adopt=adopt)
    for kernel, seconds, claim in zip(kernels, corrected.times_s, claims, strict=True):
        group = groups.setdefault(claim.row, _Group(claim.main.block if claim.main else None))
        group.layers += claim.layers
        group.kernels.append(kernel)
        group.times_s.append(seconds)
    return tuple(_op(name, group) for name, group in groups.items())


def _op(name: str, group: _Group) -> OpTime:
    longest = max(range(len(group.kernels)), key=lambda index: group.times_s[index])
    kernel, layers = group.kernels[longest], sorted(group.layers, key=lambda layer: layer.place)
    names = () if kernel.own else kernel.layers if not layers else tuple(layer.name for layer in layers)
    kind = "launch" if kernel.kind == GRAPH_LAUNCH else layer_kind(kernel.kind, layers)
    counted = any(layer.counted for layer in layers)
    device = [sum(part.device_s) / len(part.device_s) for part in group.kernels if part.device_s]
    return OpTime(
        name=name.partition("\0")[0],
        kind=kind,
        time_s=sum(group.times_s),
        block=group.block,
        unit=kernel.unit,
        flops=sum(layer.flops for layer in layers) if counted or (kernel.own and not layers) else None,
        bytes=sum(layer.bytes for layer in layers) if counted else kernel.bytes,
        samples_s=_samples(group),
        layers=names if len(names) > 1 else (),
        kernel=_named(group.kernels),
        bound="overhead" if kind == "launch" else None,
        provider=kernel.provider,
        device_s=sum(device) if device else None,
        counters=_counted(group.kernels),
    )


def _counted(kernels: Sequence[Kernel]) -> dict[str, float]:
    """The sums of the counts that every kernel of the row has."""
    names = set.intersection(*(set(kernel.counters) for kernel in kernels))
    return {name: sum(kernel.counters[name] for kernel in kernels) for name in sorted(names)}


def _samples(group: _Group) -> tuple[float, ...] | None:
    """The timers' readings of each step, uncorrected."""
    columns = [kernel.device_s or kernel.samples_s for kernel in group.kernels]
    if not columns or len({len(column) for column in columns}) != 1:
        return None
    return tuple(sum(step) for step in zip(*columns, strict=True))


def _named(kernels: Sequence[Kernel]) -> str:
    names = list(dict.fromkeys(kernel.name for kernel in kernels))
    shown = " + ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} + {len(names) - _NAMED} more"


# Each instrumented step by itself: the ops' times in it, at the pace of the clean run.
#
# A kernel's readings of one step are compared only with the other kernels' of that step, so what slowed the machine
# for a moment is not taken for one op's time. What a step took without instruments is known where steps differ by
# their context (decode); where they are all alike, a step is as long as the phase, times how it compared with the
# others.
#
# What a device timed by its own clock stays as it is. Only the waits before its kernels are made to fit the step.


def with_steps(phase: Phase, ops: Sequence[OpTime], walls_s: Sequence[float]) -> tuple[OpTime, ...]:
    """The ops with their corrected times in each step, and with the mean of these as their time.

    Over the ops each step adds up to that step's share of what they all took; over the steps each op adds up to its
    time, at the pace of the phase: for decode is longer than the steps that were instrumented.
    """
    count = len(walls_s)
    inside_s = fsum(op.time_s for op in ops)
    known = any(op.samples_s is not None and len(op.samples_s) == count for op in ops)
    readings = [_readings(op, count) for op in ops]
    on_device = [_on_device(op, column) for op, column in zip(ops, readings, strict=True)]
    totals = [fsum(step) for step in zip(*readings, strict=True)]
    if not known or inside_s <= 0 or not all(total > 0 for total in totals):
        return tuple(replace(op, samples_s=None) for op in ops)
    steps = sampled_steps(phase) or _like_each_other(phase, walls_s)
    share = inside_s / phase.time_s
    fixed = [fsum(step) for step in zip(*on_device, strict=True)]
    factors = [_factors(share * step_s, *each) for step_s, *each in zip(steps, fixed, totals, strict=True)]
    pace = phase.time_s / fsum(steps)
    stepped = []
    for op, column, device in zip(ops, readings, on_device, strict=True):
        samples = tuple(
            kept * at_work + stretched * (reading - at_work)
            for reading, at_work, (kept, stretched) in zip(column, device, factors, strict=True)
        )
        stepped.append(replace(op, time_s=pace * fsum(samples), samples_s=samples))
    return tuple(stepped)


def _on_device(op: OpTime, readings: Sequence[float]) -> tuple[float, ...]:
    """The part of each reading that the device worked, by its own clock."""
    share = min(op.device_s / op.time_s, 1.0) if op.device_s and op.time_s > 0 else 0.0
    return tuple(share * reading for reading in readings)


def _factors(wanted_s: float, fixed_s: float, total_s: float) -> tuple[float, float]:
    """What a device's own times and all others are multiplied by, so that the step comes to what it took."""
    waits_s = total_s - fixed_s
    if wanted_s < fixed_s or waits_s <= 0:
        return wanted_s / total_s, wanted_s / total_s
    return 1.0, (wanted_s - fixed_s) / waits_s


def _readings(op: OpTime, count: int) -> tuple[float, ...]:
    """The op's readings with its correction: its timers' cost is taken out. An op without readings is always alike."""
    raw = op.samples_s
    if raw is None or len(raw) != count:
        return (op.time_s,) * count
    mean_s = steady_mean(raw)
    if mean_s <= 0:
        return (op.time_s,) * count
    return tuple(reading * op.time_s / mean_s for reading in capped(raw))


def _like_each_other(phase: Phase, walls_s: Sequence[float]) -> tuple[float, ...]:
    """Equal steps: each as far from the phase's time as its wall is from the mean wall, interruptions capped."""
    walls = capped(walls_s)
    mean_s = fsum(walls) / len(walls)
    return tuple(phase.time_s * wall / mean_s if mean_s > 0 else phase.time_s for wall in walls)

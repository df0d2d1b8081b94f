"""Corrected kernels as the ops of a profile: one for each layer of the model, and one for each kernel without a layer.

An engine's own work for a layer is an op beside it, in its block and under its name: `conv1/ReorderInput`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inferometer.core.profile import OpTime
from inferometer.engines.base import GRAPH_LAUNCH, Kernel
from inferometer.measure.run.claims import claims_of
from inferometer.measure.run.layers import Layer, Layers, layer_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.measure.run.correct import Corrected

_NAMED = 3  # kernels that an op names; the others are only counted


@dataclass(slots=True)
class _Group:
    """The kernels of one row. A module may run several, and an engine may split a layer."""

    block: str | None
    layers: list[Layer] = field(default_factory=list)
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

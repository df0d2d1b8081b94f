"""Corrected kernels as the ops of a profile: one for each layer of the model, and one for each kernel without a layer.

An engine's own work for a layer is an op beside it, in its block and under its name: `conv1/ReorderInput`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inferometer.core.profile import OpTime
from inferometer.measure.layers import Layer, Layers, layer_kind, main_layer
from inferometer.runtimes.base import Kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.measure.correct import Corrected

_NAMED = 3  # kernels that an op names; the others are only counted


@dataclass(slots=True)
class _Group:
    """The kernels of one layer. A module may run several, and an engine may split a layer."""

    layers: tuple[Layer, ...]
    block: str | None
    kernels: list[Kernel] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)


def measured_ops(kernels: Sequence[Kernel], corrected: Corrected, layers: Layers) -> tuple[OpTime, ...]:
    """In the order in which each layer's first kernel ran; their times add up as the kernels' did."""
    groups: dict[str, _Group] = {}
    for number, (kernel, seconds) in enumerate(zip(kernels, corrected.times_s, strict=True)):
        matched = layers.find(kernel.layers, layer_kind(kernel.kind))
        main = main_layer(matched) if matched else None
        mine = () if kernel.own else matched
        group = groups.setdefault(_row(kernel, main, number), _Group(mine, main.block if main else None))
        if len(mine) > len(group.layers):
            group.layers = mine
        group.kernels.append(kernel)
        group.times_s.append(seconds)
    return tuple(_op(name, group) for name, group in groups.items())


def _row(kernel: Kernel, main: Layer | None, number: int) -> str:
    """The row of a kernel. One without a layer keeps its name; the number keeps equal names in rows of their own."""
    if main is not None:
        return f"{main.name}/{kernel.kind}" if kernel.own else main.name
    return kernel.layers[0] if len(kernel.layers) == 1 else f"{kernel.name}\0{number}"


def _op(name: str, group: _Group) -> OpTime:
    longest = max(range(len(group.kernels)), key=lambda index: group.times_s[index])
    kernel, layers = group.kernels[longest], group.layers
    names = () if kernel.own else kernel.layers if not layers else tuple(layer.name for layer in layers)
    device = [sum(part.device_s) / len(part.device_s) for part in group.kernels if part.device_s]
    return OpTime(
        name=name.partition("\0")[0],
        kind=layer_kind(kernel.kind, layers),
        time_s=sum(group.times_s),
        block=group.block,
        unit=kernel.unit,
        flops=sum(layer.flops for layer in layers) if layers or kernel.own else None,
        bytes=sum(layer.bytes for layer in layers) if layers else kernel.bytes,
        samples_s=_samples(group),
        layers=names if len(names) > 1 else (),
        kernel=_named(group.kernels),
        provider=kernel.provider,
        device_s=sum(device) if device else None,
    )


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

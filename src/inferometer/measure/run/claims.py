"""Which kernel does the work of each layer, so that work, floors and predictions are counted once.

A kernel's names are not claims: a compiler names every module whose values a fused kernel reads. The product itself is
usually a kernel of its own, so a layer of matrices belongs to the kernel that names fewest others; any other layer
belongs to the first that names it. A light layer that no kernel names ran inside a neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferometer.measure.run.layers import Layer, Layers, layer_kind, main_layer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from inferometer.engines.base import Kernel

_MATRICES = frozenset({"linear", "matmul", "convolution", "attention", "moe_experts", "recurrent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A kernel's row, and the layers whose work it does. `main` is the layer that the row is named after."""

    row: str
    main: Layer | None = None
    layers: tuple[Layer, ...] = ()


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


def _doers(kernels: Sequence[Kernel], times_s: Sequence[float], found: Sequence[tuple[Layer, ...]]) -> dict[str, int]:
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


def _nearest(order: Sequence[Layer], doers: Mapping[str, int]) -> dict[str, int | None]:
    """For each layer, the kernel of the last layer before it in this order."""
    nearest: dict[str, int | None] = {}
    last: int | None = None
    for layer in order:
        nearest[layer.name] = last
        last = doers.get(layer.name, None if layer.kind in _MATRICES else last)
    return nearest


def _claimed(doers: Mapping[str, int], by_name: Mapping[str, Layer], kernels: int) -> list[tuple[Layer, ...]]:
    """The layers of each kernel, in the order of execution."""
    mine: list[list[Layer]] = [[] for _ in range(kernels)]
    for name, number in doers.items():
        mine[number].append(by_name[name])
    return [tuple(sorted(each, key=lambda layer: layer.place)) for each in mine]


def _rows(
    kernels: Sequence[Kernel],
    found: Sequence[tuple[Layer, ...]],
    mains: Sequence[Layer | None],
    doers: Mapping[str, int],
) -> list[tuple[str, Layer | None]]:
    """The row of each kernel. One that claims nothing stands in the row of the layer that it names first."""
    rows: list[tuple[str, Layer | None]] = []
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

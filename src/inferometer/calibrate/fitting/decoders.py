"""Decoders beside other networks, in one calibration of an engine that calls a model's modules one by one.

There a kernel takes as long as the Python around it, and that is not the same in a decoder's many small ops as in a
network's few large ones. So decoders are fitted by themselves, and what they gave stands under names of their phases
beside the rest: `linear.decode`, `kernel.decode`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from inferometer.calibrate.fitting.points import OpPoint, StepPoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.core.calibration import Calibration

T = TypeVar("T")

PHASES = ("prefill", "decode")
KERNEL = "kernel.decode"  # the reading of a kernel of decoders that stand beside networks
_SHARED = "attention.prefill"  # of networks and decoders alike: it stays the networks' if those have it


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    points: tuple[OpPoint, ...]
    steps: tuple[StepPoint, ...]


def told_apart(points: Sequence[OpPoint], steps: Sequence[StepPoint]) -> tuple[Readings, Readings | None]:
    """Those of networks, and those of decoders if what a kernel takes was read for them alone (`KERNEL`)."""
    if not any(point.op == KERNEL for point in points):
        return Readings(points=tuple(points), steps=tuple(steps)), None
    decoders = {point.probe for point in points if any(name.endswith(".decode") for name in point.classes)}
    networks, texts = (
        Readings(
            points=tuple(_alone(point) for point in points if (point.probe in decoders) == wanted),
            steps=tuple(step for step in steps if (step.phase in PHASES) == wanted),
        )
        for wanted in (False, True)
    )
    return networks, texts


def _alone(point: OpPoint) -> OpPoint:
    return replace(point, op="kernel") if point.op == KERNEL else point


def joined(networks: Calibration, decoders: Calibration) -> Calibration:
    """The calibration of networks, with that of decoders under the names of its phases."""
    named = [
        (name, table)
        for table in decoders.tables
        for name in _names(table.op_class, decoders)
        if networks.table(name) is None
    ]
    return replace(
        networks,
        tables=(*networks.tables, *(replace(table, op_class=name) for name, table in named)),
        overheads={**networks.overheads, **kernels_of(decoders.overheads)},
        factors={**decoders.factors, **networks.factors},
        residuals={
            **{name: decoders.residuals.get(table.op_class, table.residual) for name, table in named},
            **{name: value for name, value in decoders.residuals.items() if name.startswith("step.")},
            **networks.residuals,
        },
        valid={**{name: decoders.valid.get(table.op_class, {}) for name, table in named}, **networks.valid},
        points=networks.points + decoders.points,
        steps=networks.steps + decoders.steps,
        fitted_on=tuple(sorted({*networks.fitted_on, *decoders.fitted_on})),
        notes=tuple(dict.fromkeys((*networks.notes, *decoders.notes))),
    )


def kernels_of(overheads: Mapping[str, T]) -> dict[str, T]:
    """What a kernel of a decoder takes, under the names of both phases."""
    return {f"kernel.{phase}": overheads["kernel"] for phase in PHASES if "kernel" in overheads}


def _names(op_class: str, decoders: Calibration) -> list[str]:
    """Under which a table stands in both phases, unless it has one there already."""
    if "." in op_class:
        return [op_class]
    return [name for phase in PHASES if decoders.table(name := f"{op_class}.{phase}") is None]


def without_decoders(calibration: Calibration) -> Calibration:
    """What `joined` had of networks: where another calibration starts from, which fits its decoders anew."""
    if KERNEL not in calibration.overheads:
        return calibration
    return replace(
        calibration,
        tables=tuple(table for table in calibration.tables if not _is_decoders(table.op_class)),
        overheads=_of_networks(calibration.overheads),
        factors=_of_networks(calibration.factors),
        residuals=_of_networks(calibration.residuals),
        valid=_of_networks(calibration.valid),
    )


def _is_decoders(name: str) -> bool:
    return name.endswith(tuple(f".{phase}" for phase in PHASES)) and name != _SHARED


def _of_networks(named: Mapping[str, T]) -> dict[str, T]:
    return {name: value for name, value in named.items() if not _is_decoders(name)}

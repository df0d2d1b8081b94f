"""Decoders beside other networks, in one calibration of an engine that calls a model's modules one by one.

There a kernel takes as long as the Python around it, and that is not the same in a decoder's many small ops as in a
network's few large ones. So decoders are fitted by themselves, and what they gave stands under names of their phases
beside the rest: `linear.decode`, `kernel.decode`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.core.calibration import Calibration
    from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint

T = TypeVar("T")

PHASES = ("prefill", "decode")
_FEWEST = 2
_SHARED = "attention.prefill"  # of networks and decoders alike: it stays the networks' if those have it


def told_apart(points: Sequence[OpPoint], steps: Sequence[StepPoint]) -> tuple[list[StepPoint], list[StepPoint]]:
    """The steps of networks, and those of decoders if ops were timed, and none of a decoder.

    Of fewer than two decoders nothing can be told, and they are left out.
    """
    timed = [point for point in points if point.floor_s > 0]
    if not timed or any(name.endswith(".decode") for point in timed for name in point.classes):
        return [*steps], []
    decoders = [step for step in steps if step.phase in PHASES]
    few = len({step.model for step in decoders}) < _FEWEST
    return [step for step in steps if step.phase not in PHASES], [] if few else decoders


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
        overheads={**networks.overheads, **_by_phase(decoders.overheads)},
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


def _by_phase(overheads: Mapping[str, T]) -> dict[str, T]:
    return {f"{name}.{phase}": overheads[name] for name in ("kernel", "step") if name in overheads for phase in PHASES}


def _names(op_class: str, decoders: Calibration) -> list[str]:
    """Under which a table stands in both phases, unless it has one there already."""
    if "." in op_class:
        return [op_class]
    return [name for phase in PHASES if decoders.table(name := f"{op_class}.{phase}") is None]


def without_decoders(calibration: Calibration) -> Calibration:
    """What `joined` had of networks: where another calibration starts from, which fits its decoders anew."""
    if "kernel.decode" not in calibration.overheads:
        return calibration
    return replace(
        calibration,
        tables=tuple(table for table in calibration.tables if not _is_decoders(table.op_class)),
        overheads=_of_networks(calibration.overheads),
        factors=_of_networks(calibration.factors),
        residuals=_of_networks(calibration.residuals),
        valid=_of_networks(calibration.valid),
    )


def with_decoders_of(base: Calibration | None, calibration: Calibration) -> Calibration:
    """With what the base has of decoders, where none were measured since."""
    if base is None or "kernel.decode" not in base.overheads:
        return calibration
    return replace(
        calibration,
        tables=(*calibration.tables, *(table for table in base.tables if _is_decoders(table.op_class))),
        overheads={**base.overheads, **calibration.overheads},
        factors={**base.factors, **calibration.factors},
        residuals={**base.residuals, **calibration.residuals},
        valid={**base.valid, **calibration.valid},
    )


def _is_decoders(name: str) -> bool:
    return name.endswith(tuple(f".{phase}" for phase in PHASES)) and name != _SHARED


def _of_networks(named: Mapping[str, T]) -> dict[str, T]:
    return {name: value for name, value in named.items() if not _is_decoders(name)}

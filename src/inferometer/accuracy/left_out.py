"""How accurate datasheets and class priors are on a device that nobody measured: each device is left out in turn.

Before a device is predicted, the priors are corrected by the factor that the other devices' cases are off by, for each
unit, runtime and phase. So a device's own cases do not influence its prediction, not even through the priors. Each
device counts once, however many cases it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from statistics import median
from typing import TYPE_CHECKING

from inferometer.accuracy.judge import ErrorSummary, Judged, error_summary, judge_cases
from inferometer.catalog import device as device_named

if TYPE_CHECKING:
    from inferometer.accuracy.cases import AccuracyCase

HOW = "device left out"
Part = tuple[str, str, str]  # unit, runtime, phase


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One device: its cases as predicted from its datasheet and the other devices' cases.

    `factors` correct the priors, according to the others' cases; `others` says how many devices those are. Parts that
    no other device has cases of are predicted with the priors as they are.
    """

    device: str
    unit: str
    judged: tuple[Judged, ...]
    factors: Mapping[Part, float]
    others: Mapping[Part, int]


def leave_devices_out(
    cases: Sequence[AccuracyCase], *, watch: Callable[[int, int], None] | None = None
) -> tuple[tuple[LeftOut, ...], tuple[str, ...]]:
    """Leave out every device that has a datasheet, in turn; and say why some cases could not be predicted."""
    judged, refused = judge_cases([case for case in cases if has_datasheet(case.device)], priors=True, watch=watch)
    return left_out(judged, _unit), refused


def has_datasheet(device: str) -> bool:
    """Whether any peak of the device was published. Rows with measured rates say nothing about datasheets."""
    return any(peak.origin not in {"measured", "calibrated"} for peak in device_named(device).peaks.values())


def left_out(judged: Sequence[Judged], unit_of: Callable[[str], str]) -> tuple[LeftOut, ...]:
    """The same, from predictions with the priors as they are. `unit_of` says which kind of unit a device is."""
    offs = _offs(judged, unit_of)
    devices: dict[str, list[Judged]] = defaultdict(list)
    for prediction in judged:
        devices[prediction.case.device].append(prediction)
    return tuple(_without(name, devices[name], offs, unit_of(name)) for name in sorted(devices))


def unseen(devices: Sequence[LeftOut]) -> tuple[Judged, ...]:
    """The cases that count: those that other devices have cases like, so that a factor is known without their own."""
    return tuple(prediction for device in devices for prediction in device.judged if prediction.how == HOW)


def device_errors(devices: Sequence[LeftOut]) -> dict[tuple[str, ...], ErrorSummary]:
    """Errors, bias, coverage and width by kind of unit, device, and whether it could be left out."""
    rows: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for device in devices:
        for prediction in device.judged:
            rows[device.unit, device.device, prediction.how].append(prediction)
    return {name: error_summary(rows[name]) for name in sorted(rows)}


def _offs(judged: Sequence[Judged], unit_of: Callable[[str], str]) -> dict[Part, dict[str, float]]:
    """By part and device, the median logarithm of measured over predicted."""
    gathered: dict[Part, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for prediction in judged:
        gathered[_part(prediction, unit_of)][prediction.case.device].append(-prediction.bias)
    return {part: {name: median(offs) for name, offs in devices.items()} for part, devices in gathered.items()}


def _without(device: str, judged: Sequence[Judged], offs: Mapping[Part, Mapping[str, float]], unit: str) -> LeftOut:
    factors: dict[Part, float] = {}
    others: dict[Part, int] = {}
    for part in dict.fromkeys(_part(prediction, lambda _: unit) for prediction in judged):
        theirs = [off for name, off in offs[part].items() if name != device]
        others[part] = len(theirs)
        factors[part] = exp(median(theirs)) if theirs else 1.0
    moved = tuple(
        _moved(prediction, factors[part], others[part])
        for prediction in judged
        for part in [_part(prediction, lambda _: unit)]
    )
    return LeftOut(device=device, unit=unit, judged=moved, factors=factors, others=others)


def _moved(judged: Judged, factor: float, others: int) -> Judged:
    return replace(
        judged,
        time_s=judged.time_s * factor,
        low_s=judged.low_s * factor,
        high_s=judged.high_s * factor,
        how=HOW if others else judged.how,
    )


def _part(judged: Judged, unit_of: Callable[[str], str]) -> Part:
    return unit_of(judged.case.device), judged.case.runtime, judged.case.phase


def _unit(device: str) -> str:
    return device_named(device).unit

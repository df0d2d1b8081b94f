"""How good datasheets and class priors are on a device that nobody measured: each device is left out in turn.

What the cases of the other devices say of the priors is put in before a device is predicted: by unit, runtime and phase
the factor that the others are off by. So nothing of a device's own cases is in its prediction, not even the part that
they had in the priors. Each device counts once, however many cases there are of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from statistics import median
from typing import TYPE_CHECKING

from inferometer.accuracy.judge import Judged, Standing, judge, standing
from inferometer.catalog import device as device_named

if TYPE_CHECKING:
    from inferometer.accuracy.cases import Case

HOW = "device left out"
Part = tuple[str, str, str]  # unit, runtime, phase


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One device: its cases as its datasheet and what was learnt on others predict them.

    `factors` are those that the others' cases put on the priors; `others` says how many devices they come from. Parts
    that no other device has cases of are predicted with the priors as they are.
    """

    device: str
    unit: str
    judged: tuple[Judged, ...]
    factors: Mapping[Part, float]
    others: Mapping[Part, int]


def leave_devices_out(
    cases: Sequence[Case], *, watch: Callable[[int, int], None] | None = None
) -> tuple[tuple[LeftOut, ...], tuple[str, ...]]:
    """Every device of the cases that has a datasheet, left out in turn, and why some cases could not be predicted."""
    judged, refused = judge([case for case in cases if has_datasheet(case.device)], priors=True, watch=watch)
    return left_out(judged, _unit), refused


def has_datasheet(device: str) -> bool:
    """Whether any peak of the device was published: rows whose rates were measured here say nothing of datasheets."""
    return any(peak.origin not in {"measured", "calibrated"} for peak in device_named(device).peaks.values())


def left_out(judged: Sequence[Judged], unit_of: Callable[[str], str]) -> tuple[LeftOut, ...]:
    """The same from predictions with the priors as they are; `unit_of` says what kind of unit a device is."""
    offs = _offs(judged, unit_of)
    devices: dict[str, list[Judged]] = defaultdict(list)
    for each in judged:
        devices[each.case.device].append(each)
    return tuple(_without(name, devices[name], offs, unit_of(name)) for name in sorted(devices))


def unseen(found: Sequence[LeftOut]) -> tuple[Judged, ...]:
    """The cases that count: those of parts that other devices have cases of, so that theirs could be left out."""
    return tuple(each for device in found for each in device.judged if each.how == HOW)


def device_standings(found: Sequence[LeftOut]) -> dict[tuple[str, ...], Standing]:
    """Errors, bias, coverage and width by kind of unit, device, and whether it could be left out."""
    rows: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for device in found:
        for each in device.judged:
            rows[device.unit, device.device, each.how].append(each)
    return {name: standing(rows[name]) for name in sorted(rows)}


def _offs(judged: Sequence[Judged], unit_of: Callable[[str], str]) -> dict[Part, dict[str, float]]:
    """By part and device, the logarithm of what its cases took over what was predicted: the one in the middle."""
    gathered: dict[Part, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in judged:
        gathered[_part(each, unit_of)][each.case.device].append(-each.bias)
    return {part: {name: median(offs) for name, offs in devices.items()} for part, devices in gathered.items()}


def _without(device: str, judged: Sequence[Judged], offs: Mapping[Part, Mapping[str, float]], unit: str) -> LeftOut:
    factors: dict[Part, float] = {}
    others: dict[Part, int] = {}
    for part in dict.fromkeys(_part(each, lambda _: unit) for each in judged):
        theirs = [off for name, off in offs[part].items() if name != device]
        others[part] = len(theirs)
        factors[part] = exp(median(theirs)) if theirs else 1.0
    moved = tuple(
        _moved(each, factors[part], others[part]) for each in judged for part in [_part(each, lambda _: unit)]
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

"""Published device name → a row of the catalog, or a device that the name describes.

Rules, in this order: words without makers and marketing; the longest phrase that names a row of the asked unit; a
table of phones, boards and part numbers; instances of clouds; cores that the name lists. Nothing is guessed from a
part of a number: what no rule names is None.
"""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from inferometer.core import settings
from inferometer.core.device import Device, Sourced, Unit
from inferometer.known.files import row_named
from inferometer.known.hardware import device
from inferometer.known.names.described import described_cores, described_instance, overclocked
from inferometer.known.names.phrases import Candidate, candidates
from inferometer.known.names.table import name_table
from inferometer.known.names.words import count_in, plain, units_in, without_sizes, words_of

_GPU_CORES = re.compile(r"\b(\d+)[- ]core gpu\b")
_CORES_LISTED = re.compile(r"\(([^()]*\d\s*[gm]hz[^()]*)\)")  # a bracket that describes cores names no chip
_SAME_CLOCK = 0.08  # names round: 2.4 GHz is said of 2.36
_SEVERAL = re.compile(r"\(x\d+\).*\(x\d+\)")


class DeviceMatch(NamedTuple):
    """A row's name, or a device made from the name; and how many of them."""

    device: str | Device
    times: int


def match_device(name: str, unit: Unit | None = None) -> DeviceMatch | None:
    """The device that a published name means, on the unit asked for; None where no rule says.

    Without a unit it is the one that the name speaks of (`NPU-only`), otherwise the vendor's usual one. A name of CPU
    and GPU together is a device with the peaks of both.
    """
    return _match(name, unit, settings.catalog_folders())


@cache
def _match(name: str, unit: Unit | None, folders: tuple[Path, ...]) -> DeviceMatch | None:  # noqa: ARG001 - they decide on the rows
    named = row_named("devices", name)
    if named is not None and unit in {None, device(named.name).unit}:
        return DeviceMatch(named.name, 1)  # `raspberry-pi-5` is that row, and not the GPU of the board
    spoken = units_in(name)
    both = unit is None and set(spoken) == {"cpu", "gpu"} and "+" in name
    asked = unit or (spoken[0] if spoken and not both else None)
    found = None if _SEVERAL.search(plain(name)) else _best(name, asked, both=both)
    if found is None and asked in {None, "cpu"}:
        found = described_instance(name) or described_cores(name)
    return None if found is None else DeviceMatch(found, count_in(name))


def _best(name: str, unit: Unit | None, *, both: bool) -> str | Device | None:
    words = words_of(_CORES_LISTED.sub(" ", plain(name)) if _named_outside(name) else name)
    found = [*candidates(name, words), *candidates(name, without_sizes(words))]
    if both:
        chip = next((row for row in found if {"cpu", "gpu"} <= set(row.named.rows)), None)
        return _together(device(chip.named.rows["cpu"]), device(chip.named.rows["gpu"])) if chip else None
    fitting = [(candidate, row) for candidate in found if (row := _row(candidate, unit)) is not None]
    if not fitting:
        return None
    # On a GPU, a card beats the graphics of the host it sits in: `Pi 5 (AMD RX 7600)`.
    cards = [pair for pair in fitting if unit == "gpu" and pair[0].named.discrete]
    return _adjusted((cards or fitting)[0][1], name)


def _named_outside(name: str) -> bool:
    """Whether something is left of a name once the brackets that describe cores are gone."""
    return bool(words_of(_CORES_LISTED.sub(" ", plain(name))))


def _row(candidate: Candidate, unit: Unit | None) -> str | None:
    rows = candidate.named.rows
    if unit is None:
        usual = name_table().unit_of_vendor.get(candidate.named.vendor, "cpu")
        return rows.get(usual) or next(iter(rows.values()))
    return rows.get(unit) or (rows.get("tpu") if unit == "npu" else None)


def _adjusted(row: str, name: str) -> str | Device:
    """The row, or the row with the clock or the number of GPU cores that the name states."""
    text = plain(name)
    cores = _GPU_CORES.search(text)
    if cores is None and "hz" not in text:
        return row
    made = device(row)
    if cores is not None and made.cores is not None and made.unit == "gpu":
        return row if made.cores.value == int(cores[1]) else _with_cores(made, int(cores[1]))
    return overclocked(made, name) or _as_described(made, name) or row


def _as_described(row: Device, name: str) -> Device | None:
    """The row with the cores of the name, where those have another clock (another board's) or are far fewer."""
    told = described_cores(name) if row.unit == "cpu" and row.core_groups else None
    if told is None or told.core_groups[0].core != row.core_groups[0].core:
        return None
    clock = told.core_groups[0].clock_hz / row.core_groups[0].clock_hz
    few = sum(group.count for group in told.core_groups) < sum(group.count for group in row.core_groups) / 2
    if abs(clock - 1) <= _SAME_CLOCK and not few:
        return None
    return replace(
        row, name=f"{row.name}-{told.name}", aliases=(), peaks=told.peaks, cores=told.cores, clock_hz=told.clock_hz,
        core_groups=told.core_groups, notes="The cores are as the published name describes them.",
    )  # fmt: skip


def _with_cores(whole: Device, cores: int) -> Device:
    share = cores / (whole.cores.value if whole.cores else cores)
    peaks = {key: replace(peak, value=peak.value * share) for key, peak in whole.peaks.items()}
    groups = tuple(replace(group, count=cores) for group in whole.core_groups[:1])
    note = f"The row has {share and cores / share:g} cores; the published name says {cores}."
    counted = replace(whole.cores, value=cores) if whole.cores else None
    return replace(
        whole,
        name=f"{whole.name}-{cores}-cores",
        peaks=peaks,
        core_groups=groups,
        cores=counted,
        notes=note,
        aliases=(),
    )


def _together(cpu: Device, gpu: Device) -> Device:
    """CPU and GPU of one chip at work together: the peaks of both over the memory they share."""
    shared = [name for name in gpu.peaks if name in cpu.peaks]
    peaks = {name: _sum(cpu.peaks[name], gpu.peaks[name]) for name in shared}
    return replace(
        gpu, name=f"{cpu.name}+gpu", title=f"{cpu.title} and GPU together", peaks=peaks, core_groups=(), cores=None,
        clock_hz=None, aliases=(), notes="CPU and GPU share the work; the peaks are the sum of both.",
    )  # fmt: skip


def _sum(first: Sourced, second: Sourced) -> Sourced:
    return replace(second, value=first.value + second.value, note=f"CPU {first.value:.4g} + GPU {second.value:.4g}")

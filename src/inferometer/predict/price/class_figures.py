"""A device with the figures that its row lacks, from its class: a peak, a bandwidth, memory on the chip.

A figure that is filled in is no datasheet's: it is the peak that the fitted shares refer to. So a device whose maker
publishes little is still answered, from its class, with a wide interval and a note.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import exp
from pathlib import Path

from inferometer.core.device import UNITS, Device, Memory, Sourced
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.known.load import CatalogRow, read_rows

_FILE = Path(__file__).with_name("class_figures.toml")
_FORMATS = ("f32", "bf16", "f16", "i8")  # a class of unit has a figure for each, or leaves it to `_FALL`
# No datasheet: fitted shares refer to these peaks, so a wrong factor is made good by them.
_FALL = {"f16": 2.0, "bf16": 2.0, "f32": 2.0}  # a multiplier of whole numbers does half as many wide ones
_GROWTH = 0.3  # growth a year of the logarithm of an NPU's peak: that of the peaks that makers of phones state (0.29)
_WIDEST = 2.0  # times the bandwidth of a class: beyond that no stated peak tells how they grow


@frozen
class ClassFigures:
    """What stands in for a class of unit, or for its devices of one vendor or kind.

    `year` is the year of the peaks. With `by_bandwidth` the peaks belong to the class's bandwidth, and a device's own
    are scaled by (its bandwidth / the class's) to that power.
    """

    unit: str
    vendor: str | None
    kind: str | None
    year: int | None
    peaks: dict[str, Sourced]
    bandwidth: Sourced
    near_bytes: Sourced | None = None
    near_bandwidth: Sourced | None = None
    by_bandwidth: int | None = None
    core_bandwidth: Sourced | None = None  # what one core of a CPU can ask of its memory


_filled = Kept(512)  # devices; a sweep over the whole catalog makes some again


def with_class_figures(device: Device) -> tuple[Device, tuple[str, ...]]:
    """The device as it can be priced, and what to say about it. The same device gives the same object."""
    filled: tuple[Device, tuple[str, ...]] = _filled.get_or_make((), (device,), lambda: _fill(device))
    return filled


def memory_of_cores(device: Device, threads: int) -> Device:
    """A CPU whose memory bandwidth is what the cores in use can ask for.

    Each has a number of reads under way, and no more: one reads little of a server's memory, and all of a phone's. No
    core is held below an even share.
    """
    memory, figures = device.memory, _figures_for(device)
    whole = None if memory is None else memory.bandwidth_bytes_per_s
    if memory is None or whole is None or figures is None or figures.core_bandwidth is None:
        return device
    cores = core_count(device) or threads
    reached = threads * max(figures.core_bandwidth.value, whole.value / cores)
    if reached >= whole.value:
        return device
    note = f"what {threads} of {cores} cores ask of it: {figures.core_bandwidth.source}"
    limited = replace(memory, bandwidth_bytes_per_s=replace(whole, value=reached, origin="prior", note=note))
    return replace(device, memories=(limited, *device.memories[1:]))


def core_count(device: Device) -> int | None:
    """The cores of a CPU; None where its row does not say."""
    if device.core_groups:
        return sum(group.count for group in device.core_groups)
    return None if device.cores is None else int(device.cores.value)


def _figures_for(device: Device) -> ClassFigures | None:
    known, unit = _known(), device.unit
    nearest = (unit, device.vendor, None), (unit, None, device.kind), (unit, None, None)
    return next((known[key] for key in nearest if key in known), None)


def _fill(device: Device) -> tuple[Device, tuple[str, ...]]:
    figures = _figures_for(device)
    if figures is None:
        return device, ()
    peaks, missing = _peaks(device, figures)
    memories, without = _memories(device, figures)
    filled = replace(device, peaks=peaks, memories=memories)
    if not (missing or without):
        return (filled if filled != device else device), ()
    lacks = " and ".join([*(["a peak"] if missing else []), *(["a memory bandwidth"] if without else [])])
    return filled, (
        f"The row of {device.name} lacks {lacks}: those of its class stand in, and what it reaches of them is a fit.",
    )


def _peaks(device: Device, figures: ClassFigures) -> tuple[dict[str, Sourced], bool]:
    """The device's own peaks; its class's where it has none. An NPU's are halved for wide numbers."""
    peaks = dict(device.peaks)
    if not peaks:
        return _of_class(figures, device), True
    if device.unit == "npu" and "i8" in peaks and not {"f32", "bf16", "f16"} & peaks.keys():
        known = peaks["i8"]
        for name, times in _FALL.items():
            note = "half of its i8 peak, as such units do"
            peaks[name] = replace(known, value=known.value / times, origin="prior", note=note)
    return peaks, False


def _of_class(figures: ClassFigures, device: Device) -> dict[str, Sourced]:
    """The peaks of a class, of the device's year or beside its bandwidth: they grow, stated or not."""
    bandwidth = None if device.memory is None else device.memory.bandwidth_bytes_per_s
    if figures.by_bandwidth is not None and bandwidth is not None:
        times = min(bandwidth.value / figures.bandwidth.value, _WIDEST) ** figures.by_bandwidth
        note = "beside its memory's bandwidth, as stated peaks of phones and boards lie"
    elif figures.year is not None and device.year is not None:
        times = exp(_GROWTH * (device.year - figures.year))
        note = f"of {device.year}, as stated peaks of phones grow"
    else:
        return dict(figures.peaks)
    return {name: replace(peak, value=peak.value * times, note=note) for name, peak in figures.peaks.items()}


def _memories(device: Device, figures: ClassFigures) -> tuple[tuple[Memory, ...], bool]:
    main = device.memory or Memory(level="dram")
    lacks = main.bandwidth_bytes_per_s is None
    memories = (replace(main, bandwidth_bytes_per_s=figures.bandwidth) if lacks else main, *device.memories[1:])
    # Small networks live in the memory on the chip: without it all of their bytes would be priced as from outside.
    if len(memories) == 1 and figures.near_bytes is not None:
        near = Memory(level="near", capacity_bytes=figures.near_bytes, bandwidth_bytes_per_s=figures.near_bandwidth)
        memories = (*memories, near)
    return memories, lacks


@cache
def _known() -> dict[tuple[str, str | None, str | None], ClassFigures]:
    rows = (_row(row) for row in read_rows([_FILE], "figures").by_name.values())
    return {(row.unit, row.vendor, row.kind): row for row in rows}


def _row(row: CatalogRow) -> ClassFigures:
    row.allow(
        "unit", "vendor", "kind", "year", *_FORMATS, "bandwidth", "by_bandwidth", "near", "near_bandwidth",
        "core_bandwidth",
    )  # fmt: skip
    unit, bandwidth = row.text("unit") or row.name, row.number("bandwidth", "B/s")
    if unit not in UNITS or bandwidth is None:
        raise row.place.error("needs a known unit and a bandwidth.")
    peaks = {name: row.number(name, "FLOP/s") for name in _FORMATS}
    return ClassFigures(
        unit=unit,
        vendor=row.text("vendor"),
        kind=row.text("kind"),
        year=row.whole("year"),
        by_bandwidth=row.whole("by_bandwidth"),
        peaks={name: peak for name, peak in peaks.items() if peak is not None},
        bandwidth=bandwidth,
        near_bytes=row.number("near", "B"),
        near_bandwidth=row.number("near_bandwidth", "B/s"),
        core_bandwidth=row.number("core_bandwidth", "B/s"),
    )

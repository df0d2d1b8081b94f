"""A name that describes its cores (`Cortex-A76 2.4GHz x 4`) or its cloud instance (`c6g.4xlarge`) → such a device."""

import re
from collections.abc import Iterator
from dataclasses import replace

from inferometer.core.device import CoreGroup, Device, Sourced
from inferometer.known.cores import CoreDesign, core_aliases, core_design, group_of, peaks_of
from inferometer.known.names.table import name_table
from inferometer.known.names.words import plain

_CLOCK = re.compile(r"(\d+(?:\.\d+)?)\s*([gm])hz")
_TIMES = re.compile(r"[x×*]\s*(\d+)\b")
_NUMBER_WORDS = {"single": 1, "dual": 2, "quad": 4, "hexa": 6, "octa": 8}
_SPELLED = re.compile(r"\b(single|dual|quad|hexa|octa)[- ]?core\b")
_LED = re.compile(r"\b(\d+)[- ]cores?\b")
_ARM = re.compile(r"\bcortex[- ]?([amx]\d+\w*)|\bneoverse[- ]?([nve]\d\w*)|\b([ax]\d{2,3}(?:ae|c)?)\b")
_KRYO = re.compile(r"\bk(?:ry|yr)o\s*(\d)?\d*")
_KRYO_BIG = {
    None: "kryo",
    "2": "cortex-a73",
    "3": "cortex-a75",
    "4": "cortex-a76",
    "5": "cortex-a77",
    "6": "cortex-a78",
}
_KRYO_LITTLE = {None: "kryo", "2": "cortex-a53"}  # later generations: Cortex-A55
_OVERCLOCKED = re.compile(r"overclock(?:ed)? to (\d+(?:\.\d+)?)\s*ghz")
_AWS = re.compile(r"\b([acmr]\d[a-z]*)\.(\d*)(x?large|metal|medium)\b")
_AZURE = re.compile(r"\b([def])(\d+)([a-z]*) ?v(\d)\b")

Groups = list[tuple[CoreGroup, CoreDesign]]


def described_cores(name: str) -> Device | None:
    """A CPU made of the cores that the name lists, the fastest first; None where it lists none that are known."""
    groups: Groups = []
    for core, count, clock in _segments(plain(name)):
        design = core_design(core)
        if design is not None:
            groups.append((group_of(design, count, clock), design))
    return _device(name, groups, "described by its published name") if groups else None


def _segments(text: str) -> Iterator[tuple[str, int, float]]:
    """Core, count and clock of each part between plus signs; a part without a core has that of the part before."""
    core: str | None = None
    for part in re.split(r"\+|\bplus\b", text):
        clocks = _CLOCK.findall(part)
        if not clocks:
            continue
        clock = max(float(number) * (1e9 if prefix == "g" else 1e6) for number, prefix in clocks)
        core = _core_in(part, clock) or (_little(core, clock) if core else None)
        if core is not None:
            yield core, _count_in(part), clock


def _core_in(part: str, clock: float) -> str | None:
    kryo = _KRYO.search(part)
    if kryo:
        little = _KRYO_LITTLE.get(kryo[1], "cortex-a55")
        return little if kryo[1] and clock <= 1.9e9 else _KRYO_BIG.get(kryo[1], "cortex-a78")
    arm = _ARM.search(part)
    if arm:
        return f"cortex-{arm[1] or arm[3]}" if arm[1] or arm[3] else f"neoverse-{arm[2]}"
    known = core_aliases()
    return next((word for word in re.findall(r"[0-9a-z][0-9a-z-]*", part) if word in known), None)


def _little(core: str, clock: float) -> str:
    """The core of a part that names none: a Kryo's slow cores are little ones, others are as before."""
    return "cortex-a55" if core in {"cortex-a76", "cortex-a77", "cortex-a78"} and clock <= 1.9e9 else core


def _count_in(part: str) -> int:
    times, spelled, led = _TIMES.search(part), _SPELLED.search(part), _LED.search(part)
    if times:
        return int(times[1])
    if spelled:
        return _NUMBER_WORDS[spelled[1]]
    return int(led[1]) if led else 1


def _device(name: str, groups: Groups, why: str) -> Device:
    ordered = sorted(groups, key=lambda pair: -pair[0].peak("f32", 1))
    fastest = ordered[0][0]
    slug = "-".join(f"{group.count}x-{group.core}-{group.clock_hz / 1e9:g}ghz" for group, _ in ordered)
    return Device(
        name=f"described-{slug}",
        title=name,
        vendor="unknown",
        unit="cpu",
        family=fastest.core,
        peaks=peaks_of(ordered),
        cores=_said(sum(group.count for group, _ in ordered), why),
        core_groups=tuple(group for group, _ in ordered),
        clock_hz=_said(fastest.clock_hz, why),
        notes="Made of the cores that its published name describes; its memory is unknown.",
    )


def _said(value: float, source: str) -> Sourced:
    return Sourced(value=value, origin="datasheet", source=source, date="2026")


def overclocked(device: Device, name: str) -> Device | None:
    """The CPU at the clock that a name says it was raised to; None where it says nothing of the kind."""
    match = _OVERCLOCKED.search(plain(name))
    if match is None or device.unit != "cpu" or not device.core_groups:
        return None
    factor = float(match[1]) * 1e9 / device.core_groups[0].clock_hz
    groups = tuple(replace(group, clock_hz=group.clock_hz * factor) for group in device.core_groups)
    peaks = {key: replace(peak, value=peak.value * factor) for key, peak in device.peaks.items()}
    note = f"Overclocked to {match[1]} GHz, as its published name says."
    return replace(
        device, name=f"{device.name}-at-{match[1]}ghz", core_groups=groups, peaks=peaks,
        clock_hz=_said(float(match[1]) * 1e9, name), notes=note,
    )  # fmt: skip


def described_instance(name: str) -> Device | None:
    """The processor of an AWS or Azure instance: its threads on the cores of its family."""
    text = plain(name)
    aws, azure = _AWS.search(text), _AZURE.search(text)
    if aws:
        threads = {"medium": 1, "large": 2}.get(aws[3]) or 4 * int(aws[2] or 1)
        return _instance(name, f"aws-{aws[1]}", threads) if aws[3] != "metal" else None
    if azure:
        maker = "p" if "p" in azure[3] else "a" if "a" in azure[3] else "i"
        return _instance(name, f"azure-{maker}-v{azure[4]}", int(azure[2]))
    return None


def _instance(name: str, family: str, threads: int) -> Device | None:
    row = name_table().instances.get(family) or name_table().instances.get(re.sub(r"(aws-)[a-z]", r"\1c", family))
    design = core_design(row["core"]) if row else None
    if row is None or design is None:
        return None
    cores = max(1, threads // row["threads_per_core"])
    return _device(name, [(group_of(design, cores, row["ghz"] * 1e9), design)], row["source"])

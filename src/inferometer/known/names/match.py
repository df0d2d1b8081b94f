"""Published device name → a row of the catalog, or a device that the name describes.

Rules, in this order: words without makers and marketing; the longest phrase that names a row of the asked unit; a
table of phones, boards and part numbers; instances of clouds; cores that the name lists. Nothing is guessed from a
part of a number: what no rule names is None.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

from inferometer.core.device import CoreGroup, Device, Sourced, Unit
from inferometer.core.errors import CatalogError
from inferometer.core.frozen import frozen
from inferometer.known.files import of_catalog, own_texts, row_named, rows_of_users, tables
from inferometer.known.hardware import CoreDesign, core_aliases, core_design, device, group_of, peaks_of
from inferometer.known.names.words import (
    count_in,
    is_size,
    name_table,
    plain,
    units_in,
    vendors_in,
    without_sizes,
    words_of,
    words_of_row,
)

# Which words name which rows: an index over the catalog's names and aliases, read from the text of its files.
#
# Parsing a thousand rows takes longer than asking for one name, so the few lines that are needed (unit, chip, aliases)
# are read by pattern. A user's rows are parsed: their files may be any TOML.

_LINE = re.compile(r'^(unit|chip|vendor|kind) = "([^"]*)"', re.MULTILINE)
_ALIASES = re.compile(r"^aliases = \[(.*)\]", re.MULTILINE)
_QUOTED = re.compile(r'"([^"]*)"')
_UNIT_ENDING = re.compile(r"-(?:cpu|gpu|npu|tpu|ane)$")
_WITHOUT_GRAPHICS = re.compile(r"(\d{4,5}k?)f")  # an i5-12400F is an i5-12400 whose graphics are off
_FEW = 4  # words whose order names change: a100 pcie 80gb, a100 80gb pcie


@frozen
class NamedRow:
    name: str
    unit: str
    vendor: str
    chip: str | None
    kind: str | None
    aliases: tuple[str, ...]


@frozen
class PhraseMeaning:
    """The meaning of a phrase: the rows of one chip, or one row, by unit. A weak phrase is a bare number."""

    vendor: str
    rows: Mapping[str, str]  # unit → row
    discrete: bool
    weak: bool = False


@of_catalog
def phrases() -> Mapping[str, PhraseMeaning]:
    """Words run together (`rtx4090`, `snapdragon8gen3`) → their meaning."""
    rows = list(_rows())
    boards = {row.name for row in rows}
    rows = [
        replace(row, chip=board)  # `raspberry-pi-5-gpu` is a unit of the board `raspberry-pi-5`, and not all of it
        if row.chip is None and (board := _UNIT_ENDING.sub("", row.name)) in boards - {row.name}
        else row
        for row in rows
    ]
    chips: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.chip:
            chips.setdefault(row.chip, {})[row.unit] = row.name
    for row in rows:
        if row.name in chips:  # a board whose other units name it as their chip
            chips[row.name].setdefault(row.unit, row.name)
    index: dict[str, PhraseMeaning] = {}
    for row in rows:
        for phrase, weak in _of_row(row):
            if phrase and (phrase not in index or (index[phrase].weak and not weak)):
                index[phrase] = _named(row, chips, weak=weak)
    targets = _targets(rows, chips)
    for also, target in name_table().devices.items():
        index["".join(words_of_row(also))] = _target(target, targets)
    for whole, target in name_table().exact.items():
        index[f"={whole}"] = _target(target, targets)  # no run of words begins so
    return index


def _named(row: NamedRow, chips: Mapping[str, Mapping[str, str]], *, weak: bool = False) -> PhraseMeaning:
    of_chip = chips.get(row.chip or row.name)
    discrete = of_chip is None and row.unit == "gpu"
    return PhraseMeaning(vendor=row.vendor, rows=of_chip or {row.unit: row.name}, discrete=discrete, weak=weak)


def _targets(rows: Iterable[NamedRow], chips: Mapping[str, Mapping[str, str]]) -> Mapping[str, PhraseMeaning]:
    """The names that the table may use: of a row, of a chip, or of a chip's rows without their unit."""
    found: dict[str, PhraseMeaning] = {}
    for row in rows:
        whole = _named(row, chips)
        for name in (row.chip, _UNIT_ENDING.sub("", row.name)):
            if name is not None and row.chip is not None:
                found.setdefault(name, whole)
        found[row.name] = whole if row.chip is None else replace(whole, rows={row.unit: row.name})
    return found


def _target(target: str, targets: Mapping[str, PhraseMeaning]) -> PhraseMeaning:
    if target not in targets:
        raise CatalogError(f"names.toml: {target} is neither a row nor a chip of the catalog.")
    return targets[target]


def _of_row(row: NamedRow) -> Iterator[tuple[str, bool]]:
    for name in (row.name, *row.aliases):
        words = words_of_row(_UNIT_ENDING.sub("", name))
        yield from ((phrase, _weak(phrase)) for phrase in _orders(row, words))
        yield from ((part, _weak(part)) for part in _endings(row, words))
    if row.chip:
        whole = "".join(words_of_row(row.chip.lower()))
        yield whole, _weak(whole)


def _weak(phrase: str) -> bool:
    """Too short, or a bare number: it counts only beside a word of its maker, or alone."""
    return phrase.isdecimal() or len(phrase) <= 3


def _orders(row: NamedRow, words: tuple[str, ...]) -> Iterator[str]:
    """The words run together; those of a server card in any order."""
    if row.kind == "server" and row.unit == "gpu" and 1 < len(words) <= _FEW:
        yield from ("".join(order) for order in permutations(words))
    else:
        yield "".join(words)


def _endings(row: NamedRow, words: tuple[str, ...]) -> Iterator[str]:
    """Names without their series: `4070 Ti`, `13900K`, `7-155H`, `155H`, `5950X`."""
    if row.vendor in {"NVIDIA", "Intel", "AMD"}:
        for start in range(1, len(words)):
            ending = "".join(words[start:])
            if len(ending) > 3 and ending[0].isdecimal() and not is_size(words[start]):
                yield ending


def _rows() -> Iterator[NamedRow]:
    for text in own_texts("devices"):
        found: dict[str, str] = {}
        for (first, name), part in tables(text):
            if first == "devices" and name not in found:
                found[name] = part
        yield from (_light(name, part) for name, part in found.items())
    for row in rows_of_users("devices"):
        yield NamedRow(
            name=row.name, unit=row.required_text("unit"), vendor=row.required_text("vendor"), chip=row.text("chip"),
            kind=row.text("kind"), aliases=row.names("aliases"),
        )  # fmt: skip


def _light(name: str, part: str) -> NamedRow:
    stated = dict(_LINE.findall(part))
    aliases = _ALIASES.search(part)
    return NamedRow(
        name=name, unit=stated["unit"], vendor=stated["vendor"], chip=stated.get("chip"), kind=stated.get("kind"),
        aliases=tuple(_QUOTED.findall(aliases[1])) if aliases else (),
    )  # fmt: skip


@frozen
class PhraseFound:
    """A phrase found in a name: its length, its place, and its meaning."""

    length: int
    start: int
    named: PhraseMeaning


def candidates(name: str, words: tuple[str, ...]) -> list[PhraseFound]:
    """Every phrase that stands in the words, the longest first."""
    index, makers, found = phrases(), vendors_in(name), []
    whole = index.get(f"={plain(name)}")
    if whole is not None:
        return [PhraseFound(length=len(name), start=0, named=whole)]
    if "Intel" in makers:
        words = tuple(_WITHOUT_GRAPHICS.sub(r"\1", word) for word in words)
    for start in range(len(words)):
        joined = ""
        for end in range(start, min(start + 8, len(words))):
            joined += words[end]
            named = index.get(joined)
            alone = start == 0 and end == len(words) - 1
            if named is not None and (not named.weak or named.vendor in makers or alone):
                found.append(PhraseFound(length=len(joined), start=start, named=named))
    return sorted(found, key=lambda candidate: (-candidate.length, candidate.start))


# A name that describes its cores (`Cortex-A76 2.4GHz x 4`) or its cloud instance (`c6g.4xlarge`) → such a device.

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


_GPU_CORES = re.compile(r"\b(\d+)[- ]core gpu\b")
_CORES_LISTED = re.compile(r"\(([^()]*\d\s*[gm]hz[^()]*)\)")  # a bracket that describes cores names no chip
_SAME_CLOCK = 0.08  # names round: 2.4 GHz is said of 2.36
_SEVERAL = re.compile(r"\(x\d+\).*\(x\d+\)")


class DeviceMatch(NamedTuple):
    """A row's name, or a device made from the name; and how many of them."""

    device: str | Device
    times: int


@of_catalog
def match_device(name: str, unit: Unit | None = None) -> DeviceMatch | None:
    """The device that a published name means, on the unit asked for; None where no rule says.

    Without a unit it is the one that the name speaks of (`NPU-only`), otherwise the vendor's usual one. A name of CPU
    and GPU together is a device with the peaks of both.
    """
    named = row_named("devices", name)
    if named is not None and unit in {None, device(named.name).unit}:
        return DeviceMatch(named.name, 1)  # `raspberry-pi-5` is that row, and not the GPU of the board
    spoken = units_in(name)
    both = unit is None and set(spoken) == {"cpu", "gpu"} and "+" in name
    asked = unit or (spoken[0] if spoken and not both else None)
    matched = None if _SEVERAL.search(plain(name)) else _best(name, asked, both=both)
    if matched is None and asked in {None, "cpu"}:
        matched = described_instance(name) or described_cores(name)
    return None if matched is None else DeviceMatch(matched, count_in(name))


def _best(name: str, unit: Unit | None, *, both: bool) -> str | Device | None:
    words = words_of(_CORES_LISTED.sub(" ", plain(name)) if _named_outside(name) else name)
    phrases_in_name = [*candidates(name, words), *candidates(name, without_sizes(words))]
    if both:
        chip = next((row for row in phrases_in_name if {"cpu", "gpu"} <= set(row.named.rows)), None)
        return _together(device(chip.named.rows["cpu"]), device(chip.named.rows["gpu"])) if chip else None
    fitting = [(candidate, row) for candidate in phrases_in_name if (row := _row(candidate, unit)) is not None]
    if not fitting:
        return None
    # On a GPU, a card beats the graphics of the host it sits in: `Pi 5 (AMD RX 7600)`.
    cards = [pair for pair in fitting if unit == "gpu" and pair[0].named.discrete]
    # The row, or the row with the clock or the number of GPU cores that the name states
    row = (cards or fitting)[0][1]
    text = plain(name)
    cores = _GPU_CORES.search(text)
    if cores is None and "hz" not in text:
        return row
    matched = device(row)
    if cores is not None and matched.cores is not None and matched.unit == "gpu":
        return row if matched.cores.value == int(cores[1]) else _with_cores(matched, int(cores[1]))
    return overclocked(matched, name) or _as_described(matched, name) or row


def _named_outside(name: str) -> bool:
    """Whether something is left of a name once the brackets that describe cores are gone."""
    return bool(words_of(_CORES_LISTED.sub(" ", plain(name))))


def _row(candidate: PhraseFound, unit: Unit | None) -> str | None:
    rows = candidate.named.rows
    if unit is None:
        usual = name_table().unit_of_vendor.get(candidate.named.vendor, "cpu")
        return rows.get(usual) or next(iter(rows.values()))
    return rows.get(unit) or (rows.get("tpu") if unit == "npu" else None)


def _as_described(row: Device, name: str) -> Device | None:
    """The row with the cores of the name, where those have another clock (another board's) or are far fewer."""
    described = described_cores(name) if row.unit == "cpu" and row.core_groups else None
    if described is None or described.core_groups[0].core != row.core_groups[0].core:
        return None
    clock = described.core_groups[0].clock_hz / row.core_groups[0].clock_hz
    few = sum(group.count for group in described.core_groups) < sum(group.count for group in row.core_groups) / 2
    if abs(clock - 1) <= _SAME_CLOCK and not few:
        return None
    return replace(
        row, name=f"{row.name}-{described.name}", aliases=(), peaks=described.peaks, cores=described.cores,
        clock_hz=described.clock_hz, core_groups=described.core_groups,
        notes="The cores are as the published name describes them.",
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

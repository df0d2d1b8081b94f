"""Device and link rows → `Device`, `Link`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path

from inferometer.core.device import LOCAL, UNITS, CoreGroup, Device, DeviceShares, Link, Memory, Sourced, is_local
from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import CatalogError, DomainError, UnitError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.units import parse_quantity
from inferometer.known.files import all_of, of_catalog, one_named, row_named, rows_of
from inferometer.known.load import CatalogRow, did_you_mean, read_rows

# Designs of cores, and what a number of them reaches at a clock.
#
# A row says `core_groups = ["4 × cortex-a76 @ 2.4 GHz", "4 × cortex-a55 @ 1.8 GHz"]`, the fastest first. What one core
# of a design does in a cycle is a row of `cores.toml`, so that a peak is cores × clock × operations a cycle and stands
# nowhere twice. A "core" is what the vendor repeats: a CPU core, a multiprocessor, a compute unit, a shader core.

_GROUP = re.compile(r"(?P<count>\d+) [×x] (?P<core>\S+) @ (?P<clock>.+)")


@frozen
class CoreDesign:
    """Dense operations of one core in a cycle, by arithmetic format, a multiply-add being two."""

    name: str
    title: str
    ops_per_cycle: Mapping[str, Sourced]
    note: str | None = None  # which units give these rates


@of_catalog
def core_design(name: str) -> CoreDesign | None:
    """The design of that name or alias."""
    row = row_named("cores", name)
    return None if row is None else _design(row)


def core_aliases() -> Mapping[str, str]:
    """Each name that a core goes by, its own included → the name of its design."""
    rows = rows_of("cores")
    return {**{name: name for name in rows.by_name}, **rows.aliases}


def _design(row: CatalogRow) -> CoreDesign:
    rates = row.inner("ops")
    rates.allow(*DTYPES)
    known = {name: rate for name in DTYPES if (rate := rates.number(name, "1")) is not None}
    return row.value(CoreDesign, "aliases", "ops", ops_per_cycle=known)


def groups_of(row: CatalogRow) -> tuple[tuple[CoreGroup, CoreDesign], ...]:
    """The groups that a device's row states, in its order, with their designs."""
    return tuple(_group(row, text) for text in row.names("core_groups"))


def _group(row: CatalogRow, text: str) -> tuple[CoreGroup, CoreDesign]:
    place = row.place.at("core_groups")
    match = _GROUP.fullmatch(text)
    if match is None:
        raise place.error(f"{text!r} is not a group of cores.", remedy="Write '4 × cortex-a76 @ 2.4 GHz'.")
    design = core_design(match["core"])
    if design is None:
        remedy = did_you_mean(match["core"], core_aliases())
        raise place.error(f"names the core {match['core']!r}, which is not in cores.toml.", remedy=remedy)
    try:
        return group_of(design, int(match["count"]), _hertz(match["clock"])), design
    except UnitError as error:
        raise place.error(error.message, remedy=error.remedy) from None


@cache
def _hertz(text: str) -> float:
    return parse_quantity(text, "Hz")


def group_of(design: CoreDesign, count: int, clock_hz: float) -> CoreGroup:
    rates = {name: rate.value for name, rate in design.ops_per_cycle.items()}
    return CoreGroup(core=design.name, count=count, clock_hz=clock_hz, ops_per_cycle=rates)


def peaks_of(groups: Sequence[tuple[CoreGroup, CoreDesign]]) -> dict[str, Sourced]:
    """Cores × clock × operations a cycle, summed, in the formats that all groups compute."""
    if not groups:
        return {}
    (_, first), *others = groups
    shared = [name for name in first.ops_per_cycle if all(name in design.ops_per_cycle for _, design in others)]
    return {name: _peak(groups, name) for name in shared}


def _peak(groups: Sequence[tuple[CoreGroup, CoreDesign]], name: str) -> Sourced:
    terms = [f"{group.count} × {group.clock_hz / 1e9:g} GHz × {group.ops_per_cycle[name]:g}" for group, _ in groups]
    first = groups[0][1]
    rate = first.ops_per_cycle[name]
    note = f"computed: {' + '.join(terms)} a cycle{f' ({first.note})' if first.note else ''}"
    value = sum(group.peak(name) for group, _ in groups)
    return Sourced(value=value, origin=rate.origin, source=rate.source, date=rate.date, note=note)


# How much of a memory's label a program sees, by rule, where no driver's figure is known for the device itself.


@frozen
class UsableRule:
    """Devices of a vendor whose main memory has this level show so large a share of it, less what a system keeps.

    A vendor or a level of `*` is any.
    """

    name: str
    title: str
    vendor: str
    unit: str
    level: str
    share: Sourced
    kept: Sourced | None = None  # bytes
    kinds: tuple[str, ...] = ()  # kinds of devices; empty means all
    above_bytes: float = 0.0  # only for memories larger than this

    def holds(self, row: CatalogRow, level: str, capacity: float) -> bool:
        stated = ((row.text("vendor"), self.vendor), (row.text("unit"), self.unit), (level, self.level))
        kind_fits = not self.kinds or row.text("kind") in self.kinds
        return all(asked in {"*", found} for found, asked in stated) and kind_fits and capacity > self.above_bytes


def usable_by_rule(row: CatalogRow, level: str, capacity: Sourced | None) -> Sourced | None:
    """What the first rule for such a device leaves; None where no rule holds."""
    if capacity is None:
        return None
    rule = next((rule for rule in usable_rules() if rule.holds(row, level, capacity.value)), None)
    if rule is None:
        return None
    share, kept = rule.share, 0.0 if rule.kept is None else rule.kept.value
    less = f" less {kept:.3g} B" if kept else ""
    note = f"by rule: {share.value:.4g} of the label{less} ({rule.title})"
    value = capacity.value * share.value - kept
    return Sourced(value=value, origin=share.origin, source=share.source, date=share.date, note=note)


@cache
def usable_rules() -> tuple[UsableRule, ...]:
    return tuple(_rule(row) for row in rows_of("usable").by_name.values())


def _rule(row: CatalogRow) -> UsableRule:
    return row.value(
        UsableRule, "share", "kept", share=row.required("share", "1", below=1), kept=row.number("kept", "B")
    )


_ENDS = {"host": "its own link to the host", "peer": "its own link to another", "network": "its own network"}
_FASTEST_LINK = 1e15  # bytes a second, as for storage
_NO_SHARES = DeviceShares()  # of nearly all rows
_TRANSFERS = re.compile(r"-(\d{3,5})\b")


def devices() -> Mapping[str, Device]:
    """Every device of the catalog by name."""
    for kind in ("cores", "links"):  # what they name is found quicker in all rows than a thousand times in a few
        rows_of(kind)
    return all_of("devices", device_from_row)


def device(name: str) -> Device:
    """The device of that name or alias, matched exactly; a TOML file with one device; or `local`, this machine.

    A phone's name stands for its chip's NPU, and with a unit for that unit: `iphone-16-gpu`.

    `local` is the machine's best unit, `local:cpu` and `local:gpu` name one.
    """
    if is_local(name):
        from inferometer.known.machine.local import local_device  # noqa: PLC0415 - detection is only for this machine

        return local_device(name)
    if name.endswith(".toml"):
        return _only_one(Path(name))
    return _named(name)


# Words for the machine at hand, by the name that it has here.
_AT_HAND = {
    "cpu": LOCAL,
    "host": LOCAL,
    "localhost": LOCAL,
    "here": LOCAL,
    "gpu": f"{LOCAL}:gpu",
    "cuda": f"{LOCAL}:gpu",
}


@of_catalog
def _named(name: str) -> Device:
    if (here := _AT_HAND.get(name.lower())) is not None:
        raise UnknownNameError("device", name, (), listing=f"On this machine that is {here}.")
    if row_named("devices", name) is None and (row := _row_of_phone(name)) is not None:
        return device(row)
    try:
        return one_named("devices", name, device_from_row, what="device", also=("local",))
    except UnknownNameError:
        # Rows that a published name may mean, one of each unit: they are told, and never taken
        from inferometer.known.names import match_device  # noqa: PLC0415 - its table is read for names that no row has

        found = (match_device(name.replace("-", " "), unit) for unit in UNITS)
        meant = list(dict.fromkeys(match.device for match in found if match and isinstance(match.device, str)))
        if not meant:
            raise
        listing = f"In the catalog that is {' or '.join(meant)}."
        raise UnknownNameError("device", name, (), listing=listing) from None


_SAID_UNITS = {"npu": "npu", "ane": "npu", "tpu": "tpu", "gpu": "gpu", "cpu": "cpu"}  # what a phone is bought for first


def _row_of_phone(name: str) -> str | None:
    """The row of a phone by its whole name in our table: a unit of its chip, as `iphone-16-gpu` says.

    Without a unit it is the one that networks are compiled for: its NPU where it has one, else its GPU. A computer's
    name may mean any of its units: those are told, and none is taken.
    """
    from inferometer.known.names.words import name_table  # noqa: PLC0415 - as below

    words, known = name.casefold().replace("-", " "), name_table().devices
    stem, _, unit = words.rpartition(" ")
    units = tuple(_SAID_UNITS.values()) if words in known else (_SAID_UNITS.get(unit),)
    chip = known.get(words) or (known.get(stem) if unit in _SAID_UNITS else None)
    if chip is None:
        return None
    phones = [row for row in rows_of("devices").by_name.values() if row.text("kind") == "phone"]
    rows = [row for row in phones if chip in {row.text("chip"), row.name}]
    return next((row.name for wanted in units for row in rows if row.text("unit") == wanted), None)


def device_from_row(row: CatalogRow) -> Device:
    power, connected = row.inner("power"), row.inner("links")
    power.allow("tdp", "busy", "idle", "cooling", "warms", "battery")
    connected.allow("host", "peer", "network")
    per_flop, per_byte = _operation_energy(row.inner("energy"))
    price = row.inner("price")
    price.allow("list")
    stated = groups_of(row)
    groups = tuple(group for group, _ in stated)
    return row.value(
        Device, "peaks", "cores", "core_groups", "clock", "power", "energy", "price", "links", "utilisation", "memory",
        peaks={**peaks_of(stated), **_peaks(row.inner("peaks"))},
        memories=tuple(_memory(part, row) for part in row.inners("memory")),
        host_link=_linked(connected, "host"),
        peer_link=_linked(connected, "peer"),
        network_link=_linked(connected, "network"),
        shares=_shares(row.inner("utilisation")),
        cores=row.number("cores", "1") or _counted(row, sum(group.count for group in groups), "core_groups"),
        core_groups=groups,
        clock_hz=row.number("clock", "Hz") or _counted(row, groups[0].clock_hz if groups else 0.0, "core_groups"),
        vector_bits=_vector_bits(groups) if row.text("unit") == "cpu" else None,
        power_w=power.number("tdp", "W"),
        busy_w=power.number("busy", "W"),
        idle_w=power.number("idle", "W"),
        cooling_w=power.number("cooling", "W"),
        warms_s=power.number("warms", "s"),
        battery_j=power.number("battery", "J"),
        joules_per_flop=per_flop,
        joules_per_byte=per_byte,
        price_usd=price.number("list", "USD"),
    )  # fmt: skip


def _peaks(row: CatalogRow) -> dict[str, Sourced]:
    peaks: dict[str, Sourced] = {}
    for name in row.fields:
        if name == "source":
            continue
        if name not in DTYPES:
            remedy = did_you_mean(name, DTYPES) or f"Known: {', '.join(DTYPES)}."
            raise row.place.at(name).error("is not a number format.", remedy=remedy)
        peak = row.number(name, "FLOP/s")
        if peak is not None:
            peaks[name] = peak
    return peaks


def _vector_bits(groups: tuple[CoreGroup, ...]) -> int | None:
    """Two multiply-adds a cycle of eight f32 are 32 operations: a core that does 64 does them sixteen at a time."""
    return 512 if groups and groups[0].ops_per_cycle.get("f32", 0.0) >= 64 else None


def _counted(row: CatalogRow, value: float, stated_in: str, note: str | None = None) -> Sourced | None:
    """A number that follows from what the row states elsewhere, with the row's source; None where it is 0."""
    return row.sourced(value, {"note": note} if note else {}, stated_in) if value else None


def _memory(part: CatalogRow, row: CatalogRow) -> Memory:
    part.allow("level", "kind", "bits", "capacity", "usable", "bandwidth", "latency")
    level, capacity = part.required_text("level"), part.number("capacity", "B")
    return Memory(
        level=level,
        kind=part.text("kind"),
        capacity_bytes=capacity,
        usable_bytes=part.number("usable", "B") or usable_by_rule(row, level, capacity),
        bandwidth_bytes_per_s=part.number("bandwidth", "B/s") or _bus_rate(part),
        latency_s=part.number("latency", "s"),
    )


def _shares(row: CatalogRow) -> DeviceShares:
    if not row.fields:
        return _NO_SHARES
    names = [entry.name for entry in fields(DeviceShares)]
    row.allow(*names)
    shares = {name: row.number(name, "1", below=1.0) for name in names}
    for name, share in shares.items():
        if share is not None and not share.value > 0:
            raise row.place.at(name).error("must be greater than 0.")
    return DeviceShares(**shares)


def _operation_energy(row: CatalogRow) -> tuple[Sourced | None, Sourced | None]:
    """Joules of an operation and of a byte."""
    row.allow("flop", "byte")
    per_flop, per_byte = row.number("flop", "J"), row.number("byte", "J")
    if (per_flop is None) != (per_byte is None):
        raise row.place.error("has one of flop and byte.", remedy="Give both: they are counted together.")
    return per_flop, per_byte


def _bus_rate(part: CatalogRow) -> Sourced | None:
    """Transfers a second × the width of the bus: `kind = "LPDDR5X-8533"` on `bits = 64` moves 68.3 GB/s."""
    bits = part.whole("bits")
    if bits is None:
        return None
    rate = _TRANSFERS.search(part.text("kind") or "")
    if rate is None:
        raise part.place.at("bits").error(
            "needs a kind that ends in its million transfers a second, as LPDDR5X-8533 does."
        )
    return _counted(part, int(rate[1]) * 1e6 * bits / 8, "bits", f"computed: {rate[1]} MT/s × {bits} bits")


def _linked(row: CatalogRow, end: str) -> Link | None:
    """A link by its name in the catalog, or one of its own by its bandwidth: `host = "12 GB/s"`."""
    stated = row.fields.get(end)
    if isinstance(stated, dict) or (isinstance(stated, str) and stated[:1].isdigit()):
        bandwidth = row.number(end, "B/s")
        return Link(name=f"{row.name}-{end}", title=_ENDS[end], kind=end, bandwidth_bytes_per_s=bandwidth)
    name = row.text(end)
    if name is None:
        return None
    found = _link_named(name)
    if found is None:
        what = f"names the link {name!r}, which is not in the catalog."
        raise row.place.at(end).error(what, remedy=did_you_mean(name, links()))
    return found


@of_catalog
def _link_named(name: str) -> Link | None:
    """One link serves the many devices that name it."""
    row = row_named("links", name)
    return None if row is None else link_from_row(row)


def _only_one(file: Path) -> Device:
    rows = read_rows([file], "devices")
    if len(rows.by_name) != 1:
        raise CatalogError(
            f"{file}: holds {len(rows.by_name)} devices; one was asked for.",
            remedy="A device file has one [devices.NAME] table.",
        )
    return device_from_row(next(iter(rows.by_name.values())))


def links() -> Mapping[str, Link]:
    return all_of("links", link_from_row)


def link(name: str) -> Link:
    """A link of the catalog, or one with a rate that was asked for: `1.17GB/s`, as iperf3 measures a network."""
    if not (name[:1].isdigit() and name.endswith("/s")):
        return one_named("links", name, link_from_row, what="link")
    rate = parse_quantity(name, "B/s", bare=False)
    if not 1 <= rate <= _FASTEST_LINK:
        raise DomainError(f"A link's rate is from 1 B/s to {_FASTEST_LINK:.0e} B/s, and not {name}.")
    asked = Sourced(value=rate, origin="measured", source="asked for", date="")
    return Link(name=name, title=f"a link of {name}", kind="network", bandwidth_bytes_per_s=asked)


def link_from_row(row: CatalogRow) -> Link:
    if row.text("direction") not in {None, "per-direction"}:
        raise row.place.at("direction").error("must be 'per-direction': a link's bandwidth is stored one way.")
    return row.value(Link, "direction", "aliases", "year")

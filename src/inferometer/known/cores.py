"""Designs of cores, and what a number of them reaches at a clock.

A row says `core_groups = ["4 × cortex-a76 @ 2.4 GHz", "4 × cortex-a55 @ 1.8 GHz"]`, the fastest first. What one core of
a design does in a cycle is a row of `cores.toml`, so that a peak is cores × clock × operations a cycle and stands
nowhere twice. A "core" is what the vendor repeats: a CPU core, a multiprocessor, a compute unit, a shader core.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from inferometer.core import settings
from inferometer.core.device import CoreGroup, Sourced
from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import UnitError
from inferometer.core.frozen import frozen
from inferometer.core.units import parse_quantity
from inferometer.known.files import row_named, rows_of
from inferometer.known.load import CatalogRow, did_you_mean

_GROUP = re.compile(r"(?P<count>\d+) [×x] (?P<core>\S+) @ (?P<clock>.+)")


@frozen
class CoreDesign:
    """Dense operations of one core in a cycle, by arithmetic format, a multiply-add being two."""

    name: str
    title: str
    ops_per_cycle: Mapping[str, Sourced]
    note: str | None = None  # which units give these rates


def core_design(name: str) -> CoreDesign | None:
    """The design of that name or alias."""
    return _design_named(name, settings.catalog_folders())


@cache
def _design_named(name: str, folders: tuple[Path, ...]) -> CoreDesign | None:  # noqa: ARG001 - they decide on the rows
    row = row_named("cores", name)
    return None if row is None else _design(row)


def core_aliases() -> Mapping[str, str]:
    """Each name that a core goes by, its own included → the name of its design."""
    rows = rows_of("cores")
    return {**{name: name for name in rows.by_name}, **rows.aliases}


def _design(row: CatalogRow) -> CoreDesign:
    row.allow("title", "aliases", "ops", "note")
    rates = row.inner("ops")
    rates.allow(*DTYPES)
    return CoreDesign(
        name=row.name,
        title=row.required_text("title"),
        ops_per_cycle={name: rate for name in DTYPES if (rate := rates.number(name, "1")) is not None},
        note=row.text("note"),
    )


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

"""Device and link rows → `Device`, `Link`."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from inferometer import settings
from inferometer.catalog.files import row_named, rows_of
from inferometer.catalog.load import Row, Rows, read_rows
from inferometer.core.device import UNITS, Device, Link, Memory, Sourced, Unit
from inferometer.core.dtype import DTYPES
from inferometer.errors import CatalogError, UnknownNameError, nearest

__all__ = ["device", "device_from_row", "devices", "link", "links"]

_KEYS = (
    "title", "vendor", "unit", "kind", "family", "chip", "aliases", "year", "peaks", "cores", "clock", "launch",
    "power", "price", "links", "notes", "memory",
)  # fmt: skip


def devices() -> Mapping[str, Device]:
    """Every device of the catalog by name."""
    return {name: device_from_row(row) for name, row in rows_of("devices").by_name.items()}


def device(name: str) -> Device:
    """The device of that name or alias, matched exactly; a TOML file with one device; or `local`, this machine."""
    if name == "local":
        from inferometer.catalog.local import local_device  # noqa: PLC0415 - detection is only for this machine

        return local_device()
    if name.endswith(".toml"):
        return _only_one(Path(name))
    return _named(name, settings.catalog_folders())


@cache
def _named(name: str, folders: tuple[Path, ...]) -> Device:  # noqa: ARG001 - they decide on the rows
    row = row_named("devices", name)
    if row is None:
        rows = rows_of("devices")
        known = (*rows.by_name, *rows.aliases, "local")
        raise UnknownNameError("device", name, known, listing="`inferometer devices` lists them.")
    return device_from_row(row)


def device_from_row(row: Row) -> Device:
    row.allow(*_KEYS)
    power, connected = row.inner("power"), row.inner("links")
    power.allow("tdp", "idle")
    connected.allow("host", "peer")
    price = row.inner("price")
    price.allow("list")
    return Device(
        name=row.name,
        title=row.required_text("title"),
        vendor=row.required_text("vendor"),
        unit=_unit(row),
        kind=row.text("kind"),
        family=row.text("family"),
        chip=row.text("chip"),
        aliases=row.names("aliases"),
        year=row.whole("year"),
        peaks=_peaks(row.inner("peaks")),
        memories=tuple(_memory(part) for part in row.inners("memory")),
        host_link=_linked(connected, "host"),
        peer_link=_linked(connected, "peer"),
        cores=row.number("cores", "1"),
        clock_hz=row.number("clock", "Hz"),
        launch_s=row.number("launch", "s"),
        power_w=power.number("tdp", "W"),
        idle_w=power.number("idle", "W"),
        price_usd=price.number("list", "USD"),
        notes=row.text("notes"),
    )


def _unit(row: Row) -> Unit:
    stated = row.required_text("unit")
    for unit in UNITS:
        if unit == stated:
            return unit
    raise row.place.at("unit").error(f"is {stated!r}.", remedy=f"Known units: {', '.join(UNITS)}.")


def _peaks(row: Row) -> dict[str, Sourced]:
    peaks: dict[str, Sourced] = {}
    for name in row.fields:
        if name == "source":
            continue
        if name not in DTYPES:
            near = nearest(name, DTYPES, count=1)
            remedy = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(DTYPES)}."
            raise row.place.at(name).error("is not a number format.", remedy=remedy)
        peak = row.number(name, "FLOP/s")
        if peak is not None:
            peaks[name] = peak
    return peaks


def _memory(row: Row) -> Memory:
    row.allow("level", "kind", "capacity", "bandwidth", "latency")
    return Memory(
        level=row.required_text("level"),
        kind=row.text("kind"),
        capacity_bytes=row.number("capacity", "B"),
        bandwidth_bytes_per_s=row.number("bandwidth", "B/s"),
        latency_s=row.number("latency", "s"),
    )


def _linked(row: Row, end: str) -> Link | None:
    name = row.text(end)
    if name is None:
        return None
    found = _link_named(name)
    if found is None:
        near = nearest(name, links(), count=1)
        raise row.place.at(end).error(
            f"names the link {name!r}, which is not in the catalog.",
            remedy=f"Did you mean {near[0]}?" if near else None,
        )
    return found


def _only_one(file: Path) -> Device:
    rows: Rows = read_rows([file], "devices")
    if len(rows.by_name) != 1:
        raise CatalogError(
            f"{file}: holds {len(rows.by_name)} devices; one was asked for.",
            remedy="A device file has one [devices.NAME] table.",
        )
    return device_from_row(next(iter(rows.by_name.values())))


def links() -> Mapping[str, Link]:
    return {name: link_from_row(row) for name, row in rows_of("links").by_name.items()}


def _link_named(name: str) -> Link | None:
    row = row_named("links", name)
    return None if row is None else link_from_row(row)


def link(name: str) -> Link:
    found = _link_named(name)
    if found is None:
        rows = rows_of("links")
        raise UnknownNameError("link", name, (*rows.by_name, *rows.aliases))
    return found


def link_from_row(row: Row) -> Link:
    row.allow("title", "kind", "topology", "bandwidth", "latency", "direction", "aliases", "year")
    if row.text("direction") not in {None, "per-direction"}:
        raise row.place.at("direction").error("must be 'per-direction': a link's bandwidth is stored one way.")
    return Link(
        name=row.name,
        title=row.required_text("title"),
        kind=row.required_text("kind"),
        topology=row.text("topology"),
        bandwidth_bytes_per_s=row.number("bandwidth", "B/s"),
        latency_s=row.number("latency", "s"),
    )

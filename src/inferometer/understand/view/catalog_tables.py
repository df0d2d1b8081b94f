"""The catalog's other tables (links, instances, grids, PUE, memory, number formats) as lists and as cards.

One description a table serves the command, the pages of the hub and its API.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from inferometer.core.device import Sourced
from inferometer.core.dtypes import DTYPES, dtype
from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known import (
    dtype_facts,
    grid,
    grids,
    instance,
    instances,
    link,
    links,
    memory_level,
    memory_levels,
    pue,
    pues,
)
from inferometer.understand.view.cards import Card, CitedSources, Fact
from inferometer.understand.view.table import Column, ReportTable, cell_text

_NAME, _TITLE, _AS_OF = (Column(key=key, heading=heading) for key, heading in (
    ("name", "name"), ("title", "what"), ("date", "as of"),
))  # fmt: skip


@frozen
class CatalogTable:
    """`rows` gives every value by name, `find` one by its name or alias. `example` is a condition and a row.

    A column's machine name is the field of the value. `more` are columns that only the card of a row has.
    """

    name: str
    title: str
    about: str
    columns: tuple[Column, ...]
    rows: Callable[[], Mapping[str, Any]]
    find: Callable[[str], Any]
    example: tuple[str, str]
    more: tuple[Column, ...] = ()

    @property
    def conditions(self) -> dict[str, str | None]:
        """Field → unit of its number, or None where it is text: what `--where` compares."""
        return {column.key: column.unit or ("1" if column.exact else None) for column in self.columns}

    def records(self) -> list[dict[str, Any]]:
        return [self.record(value) for value in self.rows().values()]

    def record(self, value: Any) -> dict[str, Any]:
        """A row, flat: numbers in SI units, and the date of the first that the list shows."""
        parts = {column.key: getattr(value, column.machine_name, None) for column in self.columns}
        dates = (part.date for part in parts.values() if isinstance(part, Sourced))
        row = {key: _plain(part) for key, part in parts.items()}
        return row | ({"date": next(dates, None)} if _AS_OF in self.columns else {})

    def table(self, records: Iterable[Mapping[str, Any]]) -> ReportTable:
        return ReportTable(columns=self.columns, rows=tuple(records))

    def card(self, value: Any) -> Card:
        """Every figure of a row with its source."""
        sources = CitedSources()
        facts: list[Fact] = []
        for column in (*self.columns, *self.more):
            part = getattr(value, column.machine_name, None)
            if part is None or part == () or column in {_NAME, _TITLE}:
                continue
            remark = sources.cite(part) if isinstance(part, Sourced) else ""
            facts.append((column.heading, cell_text(column, _plain(part)), remark))
        return Card(title=value.title, subtitle=value.name, facts=tuple(facts), sources=sources.listed())

    def document(self, value: Any) -> dict[str, Any]:
        """A row for machines, with the origin and source of every number."""
        return {"table": self.name, **asdict(value)}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Sourced) else value


@frozen
class NumberFormat:
    """What is counted of a number format, and what the catalog says about it."""

    name: str
    title: str
    bits: float
    elements: int
    block_bytes: int
    arithmetic: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    exponent_bits: int | None = None
    mantissa_bits: int | None = None
    largest: Sourced | None = None
    smallest_normal: Sourced | None = None
    stored: str | None = None
    use: str | None = None
    perplexity_lost: Sourced | None = None


def number_formats() -> dict[str, NumberFormat]:
    return {name: _format(name) for name in DTYPES}


def number_format(name: str) -> NumberFormat:
    """The format of that name or alias."""
    return _format(dtype(name).name)


def _format(name: str) -> NumberFormat:
    kind, facts = DTYPES[name], dtype_facts().get(name)
    told = {} if facts is None else {entry.name: getattr(facts, entry.name) for entry in fields(facts)}
    counted: dict[str, Any] = {
        "bits": float(kind.bits), "elements": kind.elements, "block_bytes": kind.block_bytes,
        "arithmetic": kind.arithmetic, "aliases": kind.aliases,
    }  # fmt: skip
    return NumberFormat(**{"title": name, **told, "name": name, **counted})


def _number(key: str, unit: str, label: str, heading: str | None = None) -> Column:
    return Column(key=key, heading=heading or key, unit=unit, label=label)


def _count(key: str, heading: str) -> Column:
    return Column(key=key, heading=heading, exact=True)


def _text(key: str, heading: str | None = None) -> Column:
    return Column(key=key, heading=heading or key)


TABLES: dict[str, CatalogTable] = {
    table.name: table
    for table in (
        CatalogTable(
            name="links", title="Links",
            about="What devices and hosts talk over: NVLink, PCIe, InfiniBand, Ethernet. Bandwidth is one way.",
            columns=(
                _NAME, _TITLE, _text("kind"), _text("topology"),
                _number("bandwidth", "B/s", "bandwidth_bytes_per_s"), _number("latency", "s", "latency_s"), _AS_OF,
            ),
            rows=links, find=link, example=("bandwidth>=50GB/s", "nvlink-4"),
        ),
        CatalogTable(
            name="instances", title="Cloud instances",
            about="The devices of cloud instances, and what an hour of them costs.",
            columns=(
                _NAME, _text("provider"), _text("device"), _count("count", "×"),
                _number("price", "USD/h", "usd_per_hour", "on demand"), _number("spot", "USD/h", "spot_usd_per_hour"),
                _text("region"), _AS_OF,
            ),
            more=(
                _count("vcpus", "vCPUs"), Column(key="memory", heading="memory", label="memory_bytes", capacity=True),
                _number("network", "B/s", "network_bytes_per_s"), _text("notes", "note"),
            ),
            rows=instances, find=instance, example=("device=nvidia-h200", "aws-p5en.48xlarge"),
        ),
        CatalogTable(
            name="grids", title="Electricity grids",
            about="The carbon of a kilowatt-hour, for `predict --grid`.",
            columns=(_NAME, _TITLE, _number("carbon", "g/kWh", "carbon_g_per_kwh"), _AS_OF),
            rows=grids, find=grid, example=("title~united", "eu"),
        ),
        CatalogTable(
            name="pue", title="Power usage effectiveness",
            about="What a data centre draws over what its computers draw, for `predict --pue`.",
            columns=(_NAME, _TITLE, _number("pue", "1", "pue", "PUE"), _AS_OF),
            rows=pues, find=pue, example=("pue<=1.2", "google"),
        ),
        CatalogTable(
            name="memory", title="Memory hierarchy",
            about="Typical latencies and bandwidths; a device has its own in its row.",
            columns=(
                _NAME, _TITLE,
                _number("latency_low", "s", "latency_low_s", "latency from"),
                _number("latency_high", "s", "latency_high_s", "latency to"),
                _number("bandwidth_low", "B/s", "bandwidth_low_bytes_per_s", "bandwidth from"),
                _number("bandwidth_high", "B/s", "bandwidth_high_bytes_per_s", "bandwidth to"),
            ),
            rows=memory_levels, find=memory_level, example=("title~cache", "l2"),
        ),
        CatalogTable(
            name="formats", title="Number formats",
            about="Bits of a stored number, scales counted, and what it is computed in.",
            columns=(
                _NAME, _TITLE, _number("bits", "1", "bits", "bits stored"), _text("arithmetic", "computed in"),
                _count("exponent_bits", "exponent"), _count("mantissa_bits", "mantissa"),
                _number("largest", "1", "largest"),
            ),
            more=(
                _count("elements", "numbers in a block"), _number("block_bytes", "B", "block_bytes", "block"),
                _number("smallest_normal", "1", "smallest_normal", "smallest normal"), _text("stored"),
                _number("perplexity_lost", "1", "perplexity_lost", "perplexity lost"), _text("use", "used for"),
                _text("aliases", "also known as"),
            ),
            rows=number_formats, find=number_format, example=("bits<=5", "q4_0"),
        ),
    )
}  # fmt: skip


def catalog_table(name: str) -> CatalogTable:
    if name not in TABLES:
        raise UnknownNameError("table of the catalog", name, TABLES, listing=f"The tables are {', '.join(TABLES)}.")
    return TABLES[name]


def tables_table() -> ReportTable:
    """The tables themselves."""
    columns = (_text("name", "table"), _count("rows", "rows"), _text("about", "what"))
    rows = tuple({"name": table.name, "rows": len(table.rows()), "about": table.about} for table in TABLES.values())
    return ReportTable(columns=columns, rows=rows)

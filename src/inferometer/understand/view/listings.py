"""The columns of each list a command prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.understand.view.table import Column, ReportTable, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from inferometer.formats.synth import Synthesised
    from inferometer.known.machine.health import Check
    from inferometer.understand.view.cards import Card


def _listing(*columns: Column) -> Callable[[Iterable[Mapping[str, Any]]], ReportTable]:
    """A table of records that have a value for each column."""
    return lambda records: ReportTable(columns=columns, rows=tuple(records))


device_table = _listing(
    Column(key="name", heading="device"),
    Column(key="unit", heading="unit"),
    Column(key="year", heading="year"),
    Column(key="memory", heading="memory", label="memory_bytes", capacity=True),
    Column(key="bandwidth", heading="bandwidth", label="bandwidth_bytes_per_s", unit="B/s"),
    Column(key="f32", heading="f32", label="f32_flop_per_s", unit="FLOP/s"),
    Column(key="half", heading="bf16/f16", label="bf16_or_f16_flop_per_s", unit="FLOP/s"),
    Column(key="i8", heading="i8", label="i8_op_per_s", unit="OP/s"),
    Column(key="power", heading="power", label="power_w", unit="W"),
    Column(key="price", heading="price", label="price_usd", unit="USD"),
)
model_table = _listing(
    Column(key="name", heading="model"),
    Column(key="family", heading="family"),
    Column(key="year", heading="year"),
    Column(key="parameters", heading="parameters", exact=True),
    Column(key="layers", heading="layers", exact=True),
    Column(key="hidden", heading="hidden", exact=True),
    Column(key="context", heading="context", exact=True),
    Column(key="title", heading="title"),
)
formula_table = _listing(
    Column(key="name", heading="formula"),
    Column(key="section", heading="section"),
    Column(key="title", heading="what"),
    Column(key="arguments", heading="arguments"),
    Column(key="unit", heading="gives"),
)
runtime_table = _listing(
    Column(key="name", heading="runtime"),
    Column(key="state", heading="state"),
    Column(key="version", heading="version"),
    Column(key="remedy", heading="how to install"),
    Column(key="formats", heading="reads"),
    Column(key="package", heading="from"),
)
_CHECKS = columns(Column(key="code", heading="check"), "verdict", "found", "remedy")
_FACTS = (
    Column(key="label", heading="what"),
    Column(key="value", heading="value"),
    Column(key="remark", heading="from"),
)


def calculation_table(record: Mapping[str, Any]) -> ReportTable:
    """One row a value: a list of values is a list of rows."""
    values = record["value"] if isinstance(record["value"], list) else [record["value"]]
    columns = (
        Column(key="formula", heading="formula"),
        Column(key="value", heading="value"),
        Column(key="unit", heading="unit"),
    )
    return ReportTable(
        columns=columns,
        rows=tuple({"formula": record["formula"], "value": value, "unit": record["unit"]} for value in values),
    )


def check_table(checks: Iterable[Check]) -> ReportTable:
    rows = ({column.key: getattr(check, column.key) for column in _CHECKS} for check in checks)
    return ReportTable(columns=_CHECKS, rows=tuple(rows))


def synthesis_table(made: Synthesised) -> ReportTable:
    columns = (
        Column(key="path", heading="file"),
        Column(key="format", heading="format"),
        Column(key="weights", heading="weights"),
        Column(key="parameters", heading="parameters", exact=True),
        Column(key="nbytes", heading="size", label="bytes", unit="B"),
    )
    row = {column.key: getattr(made, column.key) for column in columns}
    return ReportTable(columns=columns, rows=({**row, "path": str(made.path)},), note=made.note)


def card_table(card: Card) -> ReportTable:
    """A card's facts as a table, for the forms that are not drawn."""
    facts = tuple({"label": label, "value": value, "remark": remark} for label, value, remark in card.facts)
    sources = tuple({"label": "source", "value": source} for source in card.sources)
    return ReportTable(columns=_FACTS, rows=(*facts, *sources))

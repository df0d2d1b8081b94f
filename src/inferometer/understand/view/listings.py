"""The columns of each list a command prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from inferometer.core.units import format_quantity
from inferometer.understand.view.cards import Card, Fact
from inferometer.understand.view.table import Column, ReportTable, columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from inferometer.core.workload import Precision
    from inferometer.formats.synth import Synthesised
    from inferometer.known.machine.health import Check
    from inferometer.predict import Footprint
    from inferometer.predict.memory.inventory import Inventory


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


# A model's inventory as a card and a table: what `inferometer models show` prints.

_LAYERS = (
    Column(key="name", heading="layer"),
    Column(key="kind", heading="kind"),
    Column(key="count", heading="×", exact=True),
    Column(key="shape", heading="output"),
    Column(key="parameters", heading="parameters", exact=True),
    Column(key="flops", heading="work", label="flops", unit="FLOP"),
    Column(key="bytes", heading="moved", label="bytes", unit="B"),
    Column(key="intensity", heading="intensity", label="flop_per_byte", unit="FLOP/B"),
    Column(key="weights", heading="stored as"),
)


def layer_table(inventory: Inventory) -> ReportTable:
    rows = tuple({**asdict(layer), "shape": " × ".join(map(str, layer.shape))} for layer in inventory.layers)
    return ReportTable(columns=_LAYERS, rows=rows)


def inventory_card(inventory: Inventory, *, published: int | None) -> Card:
    """The totals. `published` is the catalog's count, shown where it differs from what was counted."""
    differs = published is not None and published != inventory.parameters
    formats = ", ".join(f"{name} {format_quantity(size, 'B')}" for name, size in inventory.bytes_by_format.items())
    sizes = ", ".join(f"{name} {size}" for name, size in inventory.sizes.items())
    facts: list[Fact] = [
        ("parameters", f"{inventory.parameters:,}", f"published: {published:,}" if differs else ""),
        ("weights", format_quantity(inventory.weight_bytes, "B"), formats),
        *_work_facts(inventory, f"at {sizes}" if sizes else ""),
        *_memory_facts(inventory.footprint),
        ("covered", *_covered(inventory)),
    ]
    notes = tuple(f"Note: {note}" for note in inventory.notes)
    return Card(title=inventory.name, subtitle=inventory.architecture or "", facts=tuple(facts), sources=notes)


def _work_facts(inventory: Inventory, sizes: str) -> list[Fact]:
    """Work and traffic; or, where sizes are open, which they are and what to type."""
    if inventory.flops is None or inventory.bytes is None:
        left = inventory.open
        return [("open sizes", str(size), f"give it with {size.option}") for size in left] + [
            ("work", "–", "depends on the open sizes")
        ]
    return [
        ("work", format_quantity(inventory.flops, "FLOP"), sizes),
        ("moved", format_quantity(inventory.bytes, "B"), "weights, activations and cache, each read or write counted"),
    ]


def _memory_facts(memory: Footprint | None) -> list[Fact]:
    if memory is None:
        return []
    cache = (
        [("KV cache", f"{format_quantity(memory.kv_bytes_per_token, 'B')} a token", "")]
        if memory.kv_bytes_per_token
        else []
    )
    return [*cache, ("peak memory", format_quantity(memory.peak_bytes, "B"), _parts(memory))]


def inventory_document(inventory: Inventory, precision: Precision) -> dict[str, Any]:
    """The inventory for machines; names follow the profile document's. What depends on an open size is null."""
    memory = inventory.footprint
    return {
        "schema": "inferometer.model/1",
        "name": inventory.name,
        "architecture": inventory.architecture,
        "parameters": inventory.parameters,
        "weight_bytes": inventory.weight_bytes,
        "weight_bytes_by_format": dict(inventory.bytes_by_format),
        "kv_bytes_per_token": None if memory is None else memory.kv_bytes_per_token,
        "flops": inventory.flops,
        "bytes": inventory.bytes,
        "sizes": dict(inventory.sizes),
        "precision": asdict(precision),
        "open_sizes": [asdict(size) for size in inventory.open],
        "memory": None if memory is None else asdict(memory),
        "notes": list(inventory.notes),
        "coverage": {**asdict(inventory.coverage), "share": inventory.coverage.share},
        "layers": [asdict(layer) for layer in inventory.layers],
    }


def _parts(memory: Footprint) -> str:
    parts = (
        ("weights", memory.weights_bytes),
        ("cache", memory.kv_bytes),
        ("state", memory.state_bytes),
        ("activations", memory.activations_bytes),
        ("workspace", memory.workspace_bytes),
    )
    shown = ", ".join(f"{name} {format_quantity(size, 'B')}" for name, size in parts if size)
    return f"{shown}; highest at {memory.peak_at}" if memory.peak_at else shown


def _covered(inventory: Inventory) -> tuple[str, str]:
    coverage = inventory.coverage
    missing = sorted({entry.source_type or entry.kind for entry in coverage.uncovered})
    shown = f"not counted: {', '.join(missing)}" if missing else ""
    return f"{coverage.covered} of {coverage.ops} ops ({100 * coverage.share:.1f} %)", shown

"""A model's inventory as a card and a table: what `inferometer models show` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from inferometer.report.cards import Card
from inferometer.report.table import Column, ReportTable
from inferometer.units import format_quantity

if TYPE_CHECKING:
    from inferometer.core.workload import Precision
    from inferometer.cost.memory.inventory import Inventory
    from inferometer.report.cards import Fact

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
    memory = inventory.footprint
    differs = published is not None and published != inventory.parameters
    formats = ", ".join(f"{name} {format_quantity(size, 'B')}" for name, size in inventory.bytes_by_format.items())
    sizes = ", ".join(f"{name} {size}" for name, size in inventory.sizes.items())
    facts: list[Fact] = [
        ("parameters", f"{inventory.parameters:,}", f"published: {published:,}" if differs else ""),
        ("weights", format_quantity(inventory.weight_bytes, "B"), formats),
        ("work", format_quantity(inventory.flops, "FLOP"), f"at {sizes}" if sizes else ""),
        ("moved", format_quantity(inventory.bytes, "B"), "weights, activations and cache, each read or write counted"),
    ]
    if memory.kv_bytes_per_token:
        facts.append(("KV cache", f"{format_quantity(memory.kv_bytes_per_token, 'B')} a token", ""))
    facts += [
        ("peak memory", format_quantity(memory.peak_bytes, "B"), _parts(inventory)),
        ("covered", *_covered(inventory)),
    ]
    notes = tuple(f"Note: {note}" for note in inventory.notes)
    return Card(title=inventory.name, subtitle=inventory.architecture or "", facts=tuple(facts), sources=notes)


def inventory_document(inventory: Inventory, precision: Precision) -> dict[str, Any]:
    """The inventory for machines; names follow the profile document's."""
    return {
        "schema": "inferometer.model/1",
        "name": inventory.name,
        "architecture": inventory.architecture,
        "parameters": inventory.parameters,
        "weight_bytes": inventory.weight_bytes,
        "weight_bytes_by_format": dict(inventory.bytes_by_format),
        "kv_bytes_per_token": inventory.footprint.kv_bytes_per_token,
        "flops": inventory.flops,
        "bytes": inventory.bytes,
        "sizes": dict(inventory.sizes),
        "precision": asdict(precision),
        "memory": asdict(inventory.footprint),
        "notes": list(inventory.notes),
        "coverage": {**asdict(inventory.coverage), "share": inventory.coverage.share},
        "layers": [asdict(layer) for layer in inventory.layers],
    }


def _parts(inventory: Inventory) -> str:
    memory = inventory.footprint
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

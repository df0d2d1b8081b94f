"""One thing's facts as rows of (label, value, remark): what `show` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.catalog.records import ops_per_joule
from inferometer.units import format_quantity

if TYPE_CHECKING:  # the formulas bring numpy, which a device's card does not need
    from collections.abc import Iterator

    from inferometer.catalog.models import CatalogModel
    from inferometer.core.device import Device, Link, Memory, Sourced
    from inferometer.formulas.registry import Formula

__all__ = ["Fact", "device_facts", "formula_facts", "model_facts"]

Fact = tuple[str, str, str]


def device_facts(device: Device) -> list[Fact]:
    facts: list[Fact] = [("unit", device.unit, " · ".join(filter(None, (device.kind, device.family, device.chip))))]
    facts += [(f"peak {name}", _quantity(peak, "FLOP/s"), _remark(peak)) for name, peak in device.peaks.items()]
    for memory in device.memories:
        facts += _memory_facts(memory)
    for end, link in (("host link", device.host_link), ("peer link", device.peer_link)):
        if link is not None:
            facts.append(_link_fact(end, link))
    for label, sourced, unit in (
        ("cores", device.cores, "1"),
        ("clock", device.clock_hz, "Hz"),
        ("launch", device.launch_s, "s"),
        ("power", device.power_w, "W"),
        ("idle", device.idle_w, "W"),
        ("price", device.price_usd, "USD"),
    ):
        if sourced is not None:
            facts.append((label, _quantity(sourced, unit), _remark(sourced)))
    return facts + list(_derived(device)) + _words(device.aliases, device.notes)


def _memory_facts(memory: Memory) -> list[Fact]:
    named = f"{memory.level} ({memory.kind})" if memory.kind else memory.level
    rows = (
        ("capacity", memory.capacity_bytes, "B"),
        ("bandwidth", memory.bandwidth_bytes_per_s, "B/s"),
        ("latency", memory.latency_s, "s"),
    )
    return [
        (f"{named} {label}", _quantity(sourced, unit), _remark(sourced)) for label, sourced, unit in rows if sourced
    ]


def _link_fact(end: str, link: Link) -> Fact:
    bandwidth = link.bandwidth_bytes_per_s
    each_way = f", {_quantity(bandwidth, 'B/s')} each way" if bandwidth else ""
    return end, f"{link.title}{each_way}", _remark(bandwidth) if bandwidth else ""


def _derived(device: Device) -> Iterator[Fact]:
    """Figures that follow from the others; they are computed here and stored nowhere."""
    memory = device.memory
    efficiency = ops_per_joule(device)
    if efficiency is not None:
        yield "per watt", format_quantity(efficiency, "OP/J").replace("OP/J", "OP/s/W"), "computed: best peak / power"
    if memory is not None and memory.bandwidth_bytes_per_s is not None:
        for name in ("bf16", "f16", "f32", "i8"):
            if name in device.peaks:
                ridge = device.peaks[name].value / memory.bandwidth_bytes_per_s.value
                yield f"ridge {name}", format_quantity(ridge, "FLOP/B"), "computed: peak / main memory bandwidth"
                return


def model_facts(model: CatalogModel) -> list[Fact]:
    facts: list[Fact] = [("family", model.family, str(model.year or ""))]
    for label, sourced in (
        ("parameters", model.parameters),
        ("active", model.active_parameters),
        ("context", model.context),
    ):
        if sourced is not None:
            facts.append((label, f"{int(sourced.value):,}", _remark(sourced)))
    facts += [(f"config {key}", str(value), "") for key, value in model.config.items()]
    return facts + _words(model.aliases, model.notes)


def formula_facts(formula: Formula) -> list[Fact]:
    facts: list[Fact] = [("section", formula.section, formula.row), ("source", formula.source, "")]
    facts += [
        (f"{name}", quantity.unit if quantity.unit != "1" else "number", _domain(quantity.low, quantity.high))
        for name, quantity in formula.inputs.items()
    ]
    given = " ".join(f"{name}={value}" for name, value in formula.example.items())
    return [
        *facts,
        ("gives", formula.unit if formula.unit != "1" else "number", ""),
        ("example", given, f"= {formula.answer}"),
    ]


def _domain(low: float, high: float) -> str:
    if low > float("-inf") and high < float("inf"):
        return f"{low:g} to {high:g}"
    return f"{low:g} or more" if low > float("-inf") else ""


def _quantity(sourced: Sourced, unit: str) -> str:
    return format_quantity(sourced.value, unit)


def _remark(sourced: Sourced) -> str:
    note = f" ({sourced.note})" if sourced.note else ""
    return f"{sourced.origin}, {sourced.date}: {sourced.source}{note}"


def _words(aliases: tuple[str, ...], notes: str | None) -> list[Fact]:
    facts: list[Fact] = []
    if aliases:
        facts.append(("also known as", ", ".join(aliases), ""))
    if notes:
        facts.append(("note", notes, ""))
    return facts

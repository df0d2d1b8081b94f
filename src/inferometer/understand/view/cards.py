"""One item as a card: what `show` prints. Facts cite their sources by number; the sources are listed below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.dtypes import DTYPES
from inferometer.core.frozen import frozen
from inferometer.core.units import format_capacity, format_quantity
from inferometer.understand.view.records import ops_per_joule
from inferometer.understand.view.table import ReportTable

if TYPE_CHECKING:
    from inferometer.core.device import Device, Link, Memory, Sourced
    from inferometer.core.profile import Profile
    from inferometer.known.formulas.registry import Formula

Fact = tuple[str, str, str]  # label, value, remark


@frozen
class Card:
    title: str
    subtitle: str
    facts: tuple[Fact, ...]
    text: str | None = None
    sources: tuple[str, ...] = ()


@frozen
class View:
    """What is shown of a value, wherever it is shown: no renderer knows more of the value than this.

    `more` are tables that a page has room for and a terminal has not; `charts` make SVG, where charts can be drawn.
    `timeline` is drawn in letters, under its title.
    """

    card: Card
    tables: tuple[ReportTable, ...] = ()
    more: tuple[ReportTable, ...] = ()
    charts: tuple[Callable[[], str], ...] = ()
    timeline: str | None = None


class CitedSources:
    """Numbers the sources in the order they are first cited."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def cite(self, sourced: Sourced) -> str:
        number = self._numbers.setdefault(sourced.source, len(self._numbers) + 1)
        note = f" {sourced.note}" if sourced.note else ""
        return f"{sourced.origin} {sourced.date} [{number}]{note}"

    def listed(self) -> tuple[str, ...]:
        return tuple(f"[{number}] {source}" for source, number in self._numbers.items())


def device_card(device: Device) -> Card:
    sources = CitedSources()
    facts: list[Fact] = [("unit", device.unit, " · ".join(filter(None, (device.kind, device.family, device.chip))))]
    facts += [(f"peak {name}", _rate(name, peak), sources.cite(peak)) for name, peak in device.peaks.items()]
    facts += [fact for memory in device.memories for fact in _memory_facts(memory, sources)]
    links = {"host link": device.host_link, "peer link": device.peer_link, "network": device.network_link}
    for end, link in links.items():
        if link is not None:
            facts.append(_link_fact(end, link, sources))
    facts += [*_plain_facts(device, sources), *_core_facts(device)]
    facts += [*_derived(device), *_words(device.aliases, device.notes)]
    subtitle = " · ".join(filter(None, (device.name, device.vendor, str(device.year or ""))))
    return Card(title=device.title, subtitle=subtitle, facts=tuple(facts), sources=sources.listed())


def _rate(name: str, peak: Sourced) -> str:
    return format_quantity(peak.value, "OP/s" if DTYPES[name].name.startswith("i") else "FLOP/s")


def _memory_facts(memory: Memory, sources: CitedSources) -> Iterator[Fact]:
    named = f"{memory.level} ({memory.kind})" if memory.kind else memory.level
    for label, size in (("capacity", memory.capacity_bytes), ("usable", memory.usable_bytes)):
        if size:
            yield f"{named} {label}", format_capacity(size.value), sources.cite(size)
    for label, sourced, unit in (
        ("bandwidth", memory.bandwidth_bytes_per_s, "B/s"),
        ("latency", memory.latency_s, "s"),
    ):
        if sourced:
            yield f"{named} {label}", format_quantity(sourced.value, unit), sources.cite(sourced)


def _link_fact(end: str, link: Link, sources: CitedSources) -> Fact:
    bandwidth = link.bandwidth_bytes_per_s
    if bandwidth is None:
        return end, link.title, ""
    return end, f"{link.title}, {format_quantity(bandwidth.value, 'B/s')} each way", sources.cite(bandwidth)


def _plain_facts(device: Device, sources: CitedSources) -> Iterator[Fact]:
    for label, sourced, unit in (
        ("cores", device.cores, "1"),
        ("clock", device.clock_hz, "Hz"),
        ("launch", device.launch_s, "s"),
        ("call", device.call_s, "s"),
        ("power", device.power_w, "W"),
        ("power at work", device.busy_w, "W"),
        ("idle", device.idle_w, "W"),
        ("cooling", device.cooling_w, "W"),
        ("warms in", device.warms_s, "s"),
        ("battery", device.battery_j, "J"),
        ("energy of an operation", device.joules_per_flop, "J"),
        ("energy of a byte", device.joules_per_byte, "J"),
        ("storage", device.storage_bytes_per_s, "B/s"),
        ("flash", device.flash_bytes, "B"),
        ("price", device.price_usd, "USD"),
    ):
        if sourced is not None:
            yield label, format_quantity(sourced.value, unit), sources.cite(sourced)
    for name in ("compute", "memory", "storage", "host", "network"):
        share = getattr(device.shares, name)
        if share is not None:
            yield f"{name} utilisation", f"{100 * share.value:.3g} %", sources.cite(share)


def _core_facts(device: Device) -> Iterator[Fact]:
    """The groups of cores, the fastest first, as threads fill them."""
    for group in device.core_groups:
        rates = ", ".join(f"{name} {rate:g}" for name, rate in group.ops_per_cycle.items())
        clock = format_quantity(group.clock_hz, "Hz")
        yield "core group", f"{group.count} × {group.core} at {clock}", f"operations a cycle: {rates}" if rates else ""


def _derived(device: Device) -> Iterator[Fact]:
    """Figures that follow from the others; they are computed here and stored nowhere."""
    from inferometer.known.formulas.roofline import ridge_point  # noqa: PLC0415 - brings numpy, which lists do without

    memory = device.memory
    efficiency = ops_per_joule(device)
    if efficiency is not None:
        yield "per watt", format_quantity(efficiency, "OP/J").replace("OP/J", "OP/s/W"), "computed: best peak / power"
    elif device.power_w is not None and device.shares_power:
        yield "per watt", "–", "not known: the power is that of the whole chip, all its units together"
    if memory is not None and memory.bandwidth_bytes_per_s is not None:
        name = next((name for name in ("bf16", "f16", "f32", "i8") if name in device.peaks), None)
        if name is not None:
            ridge = ridge_point(peak=device.peaks[name].value, bandwidth=memory.bandwidth_bytes_per_s.value)
            yield f"ridge {name}", format_quantity(ridge, "FLOP/B"), "computed: peak / main memory bandwidth"


def formula_card(formula: Formula) -> Card:
    given = " ".join(f"{name}={value}" for name, value in formula.example.items())
    arguments = [
        (name, _unit(quantity.unit), _domain(quantity.low, quantity.high)) for name, quantity in formula.inputs.items()
    ]
    facts = (
        ("section", formula.section, formula.row),
        *arguments,
        ("gives", _unit(formula.unit), ""),
        ("example", given, f"= {formula.answer}"),
    )
    return Card(
        title=formula.name,
        subtitle=formula.title,
        facts=facts,
        text=formula.doc,
        sources=(f"Source: {formula.source}",),
    )


def _unit(unit: str) -> str:
    return "number" if unit == "1" else unit


def _domain(low: float, high: float) -> str:
    if low > float("-inf") and high < float("inf"):
        return f"{low:g} to {high:g}"
    return f"{low:g} or more" if low > float("-inf") else ""


def _words(aliases: tuple[str, ...], notes: str | None) -> Iterator[Fact]:
    if aliases:
        yield "also known as", ", ".join(aliases), ""
    if notes:
        yield "note", notes, ""


# The one door from a value to what is shown of it. Renderers (terminal, notebook, Markdown) take the View alone.

# By the kind of value, which module lays it out and by which function: only that one is loaded.
_LAYOUTS = {
    "Comparison": ("measured", "comparison_view"),
    "Device": ("cards", "device_card"),
    "Fit": ("serving", "memory_card"),
    "Measurement": ("measured", "measurement_card"),
    "Recording": ("spans_page", "recording_view"),
    "Rows": ("sweeps", "sweep_view"),
    "ServingAnswer": ("serving", "serving_card"),
}


def view_of(value: Any) -> View:
    """The headline, the tables and the charts of a profile, a comparison, a recording, a device, a fit, a sweep."""
    if isinstance(value, View):
        return value
    module, name = _profile_layout(value) if type(value).__name__ == "Profile" else _LAYOUTS[type(value).__name__]
    shown = getattr(import_module(f"inferometer.understand.view.{module}"), name)(value)
    return shown if isinstance(shown, View) else View(card=shown)


def _profile_layout(profile: Profile) -> tuple[str, str]:
    if profile.served is not None and profile.served.levels:
        return "load_tests", "load_view"
    return ("predictions", "prediction_view") if profile.kind == "predicted" else ("profiles", "measured_view")

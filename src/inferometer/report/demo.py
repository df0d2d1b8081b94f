"""The demo page: this machine, a device, a prediction and a formula, each in a few lines, and where to go on."""

from collections.abc import Sequence

from inferometer.catalog import device
from inferometer.catalog.detect import Host, detect_host
from inferometer.core.profile import Profile
from inferometer.formulas.listing import calculation_record
from inferometer.report.cards import Fact, device_card
from inferometer.report.predictions import comparison_table, summary_row
from inferometer.report.terminal import draw_fields, draw_heading, draw_table
from inferometer.units import format_capacity, format_quantity

__all__ = ["demo_page", "host_facts"]

_DEVICE = "nvidia-h200"
_FORMULA = ("ring_allreduce", ("n=8", "bytes=1GB", "bandwidth=50GB/s", "latency=5us"))


def demo_page(profiles: Sequence[Profile]) -> str:
    """`profiles` are predictions of one model on several devices."""
    found = device(_DEVICE)
    name, assignments = _FORMULA
    answer = calculation_record(name, assignments)["text"]
    return "\n".join((
        draw_heading("This machine", "inferometer doctor says whether it is fit to measure on"),
        draw_fields(host_facts(detect_host())),
        "",
        draw_heading("A device of the catalog", f"inferometer devices show {_DEVICE}"),
        draw_fields([("device", found.title, ""), *_values(device_card(found).facts[1:10])]),
        "",
        draw_heading("A prediction", f"inferometer predict {profiles[0].model.name} --on {_DEVICE}"),
        draw_table(comparison_table(summary_row(profile) for profile in profiles)),
        "",
        draw_heading("A formula", "inferometer formulas lists them all"),
        f"$ inferometer formulas calc {name} {' '.join(assignments)}",
        answer,
    ))  # fmt: skip


def _values(facts: tuple[Fact, ...]) -> list[Fact]:
    """Facts without their remarks: the sources they cite are on the card, not here."""
    return [(label, value, "") for label, value, _ in facts]


def host_facts(host: Host) -> list[Fact]:
    """What a person wants to know of a machine first; what the system did not tell is said to be unknown."""
    cpu, memory, limits = host.cpu, host.memory, host.limits
    caches = ", ".join(
        f"L{cache.level} {format_capacity(cache.total_bytes)}" for cache in cpu.caches if cache.kind != "instruction"
    )
    sensors = ", ".join(sensor.name for sensor in host.sensors if sensor.available)
    return [
        ("cpu", cpu.model or "unknown", cpu.architecture or ""),
        ("cores", f"{_known(cpu.physical_cores)} physical, {_known(cpu.logical_cores)} logical", _clock(cpu.max_hz)),
        ("instructions", " ".join(cpu.flags) or "unknown", ""),
        ("caches", caches or "unknown", "all cores together"),
        (
            "memory",
            format_quantity(memory.total_bytes, "B"),
            f"{format_quantity(memory.available_bytes, 'B')} available",
        ),
        ("limits", _limits(limits.quota_cpus, limits.memory_bytes), limits.container or limits.hypervisor or ""),
        *[("gpu", gpu.name or "unknown", format_quantity(gpu.memory_bytes, "B")) for gpu in host.gpus],
        ("power sensors", sensors or "none readable here", ""),
        ("system", f"{host.os.name or 'unknown'} {host.os.version or ''}".strip(), f"Python {host.python}"),
    ]


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _clock(hertz: float | None) -> str:
    return "" if hertz is None else f"up to {format_quantity(hertz, 'Hz')}"


def _limits(cpus: float | None, memory_bytes: int | None) -> str:
    parts = [f"{cpus:g} CPUs"] if cpus is not None else []
    parts += [format_quantity(memory_bytes, "B")] if memory_bytes is not None else []
    return ", ".join(parts) or "none found"

"""The demo page: this machine, a measurement on it, a prediction for others, and the command that shows each."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.core.profile import Profile
from inferometer.core.units import format_capacity, format_quantity
from inferometer.known.machine.detect import Host, detect_host
from inferometer.understand.view.cards import Fact
from inferometer.understand.view.explanations import finding_lines
from inferometer.understand.view.predictions import comparison_table, summary_row
from inferometer.understand.view.profiles import layer_table, profile_card
from inferometer.understand.view.terminal import draw_card, draw_fields, draw_heading, draw_table

_LAYERS, _FINDINGS = 8, 3


def machine_part() -> str:
    heading = draw_heading("This machine", "inferometer doctor says whether it is fit to measure on")
    return "\n".join((heading, draw_fields(host_facts(detect_host()))))


def measured_part(profile: Profile) -> str:
    """A measurement with its prediction beside it: the headline, then the layers that take the time."""
    name = profile.model.name
    forward = profile.phase("forward")
    return "\n".join((
        "",
        draw_heading("A measurement", f"inferometer profile {name} --runtime {profile.runtime} --predict"),
        draw_card(profile_card(profile)),
        "",
        draw_table(layer_table(profile, phase=forward, most=_LAYERS)),
        *([f"Bound by {forward.bound}."] if forward is not None and forward.bound else []),
    ))  # fmt: skip


def findings_part(explanation: Mapping[str, Any]) -> str:
    """What was noticed, the most important first."""
    findings = explanation["findings"][:_FINDINGS]
    lines = [line for number, finding in enumerate(findings, start=1) for line in finding_lines(finding, number)]
    return "\n".join(("", draw_heading("What to do", "inferometer explain last"), explanation["headline"], *lines))


def predicted_part(profiles: Sequence[Profile]) -> str:
    """`profiles` are predictions of one model on several devices, none of which is here."""
    first = profiles[0]
    return "\n".join((
        "",
        draw_heading("A prediction", f"inferometer predict {first.model.name} --on {first.device.name}"),
        draw_table(comparison_table(summary_row(profile) for profile in profiles)),
    ))  # fmt: skip


def host_facts(host: Host) -> list[Fact]:
    """What a person wants to know of a machine first; what the system does not report is shown as unknown."""
    cpu, memory, limits = host.cpu, host.memory, host.limits
    caches = ", ".join(
        f"L{cache.level} {format_capacity(cache.total_bytes)}" for cache in cpu.caches if cache.kind != "instruction"
    )
    sensors = ", ".join(sensor.name for sensor in host.sensors if sensor.available)
    clock = "" if cpu.max_hz is None else f"up to {format_quantity(cpu.max_hz, 'Hz')}"
    return [
        ("cpu", cpu.model or "unknown", cpu.architecture or ""),
        ("cores", f"{_known(cpu.physical_cores)} physical, {_known(cpu.logical_cores)} logical", clock),
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


def _limits(cpus: float | None, memory_bytes: int | None) -> str:
    parts = [f"{cpus:g} CPUs"] if cpus is not None else []
    parts += [format_quantity(memory_bytes, "B")] if memory_bytes is not None else []
    return ", ".join(parts) or "none found"

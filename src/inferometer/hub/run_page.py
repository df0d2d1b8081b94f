"""The values for the run page."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from inferometer.hub.run_charts import charts_of
from inferometer.hub.run_view import cards_of, layer_columns, percentile_rows, phase_rows
from inferometer.report.charts.memory import memory_parts
from inferometer.report.phrases import energy_notes, formats_of, place_of, profile_title
from inferometer.units import format_capacity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.machine import MachineFacts
    from inferometer.core.profile import Profile
    from inferometer.core.run import Run
    from inferometer.store.values import Metric

PROGRESS, HELD = "progress", "memory_bytes"  # metrics that the page does not list but draws
# What `environment.host` repeats of the machine.
_TOLD = {
    "cpu", "architecture", "logical_cores", "usable_cpus", "memory_bytes", "system", "container", "hypervisor", "gpus",
}  # fmt: skip
_SIZES = ("batch", "prompt", "generate", "context", "image")


def run_values(run: Run, profile: Profile) -> dict[str, Any]:
    return {
        "run": run,
        "profile": profile,
        "title": run.name or profile_title(profile),
        "subtitle": subtitle_of(profile),
        "badges": badges_of(profile),
        "cards": cards_of(profile),
        "phases": phase_rows(profile),
        "layers": layer_columns(profile),
        "charts": [chart for chart in charts_of(profile).values() if chart.shown],
        "percentiles": percentile_rows(profile),
        "memory": memory_parts(profile),
        "environment": environment_rows(profile),
    }


def held_of(metrics: Iterable[Metric]) -> list[tuple[float, float]]:
    """Seconds since the first step and the bytes the model held then: the steps of that metric are milliseconds."""
    return [(metric.step / 1e3, metric.value) for metric in metrics if metric.name == HELD]


def subtitle_of(profile: Profile) -> str:
    sizes = [f"{name} {value}" for name in _SIZES if (value := getattr(profile.workload, name)) is not None]
    sizes += [f"{name} {value}" for name, value in profile.sizes.items()]
    where = place_of(profile)
    return " · ".join(filter(None, (profile.model.name, where, profile.runtime, *sizes, formats_of(profile))))


def badges_of(profile: Profile) -> tuple[tuple[str, str, str], ...]:
    """The badges beside the title: word, tone, and an explanation."""
    badges: list[tuple[str, str, str]] = [
        (
            profile.kind,
            "plain",
            "predicted by the cost model" if profile.kind == "predicted" else "measured on a device",
        )
    ]
    verification, environment = profile.verification, profile.environment
    if verification is not None and verification.status != "unchecked":
        tone = "good" if verification.status == "verified" else "bad"
        badges.append(
            (
                verification.status,
                tone,
                f"outputs against {verification.reference}: {verification.reason or 'they agree'}",
            )
        )
    elif profile.kind == "measured":
        badges.append(("unverified", "quiet", "outputs were not compared with a reference: profile with --verify"))
    if environment is not None and environment.disturbed is not None:
        reasons = "; ".join(environment.reasons) or "the machine was quiet"
        badges.append(("disturbed", "bad", reasons) if environment.disturbed else ("quiet", "good", reasons))
    return tuple(badges)


def environment_rows(profile: Profile) -> list[tuple[str, str]]:
    rows: list[tuple[str, Any]] = []
    if profile.environment is not None:
        environment = profile.environment
        rows += _machine_rows(environment.machine)
        rows += [("threads", environment.threads), ("load before", environment.load_before)]
        rows += [("energy", note) for note in energy_notes(environment)]
        rows += [("load after", environment.load_after), *(("disturbed", reason) for reason in environment.reasons)]
        told = set() if environment.machine is None else _TOLD
        host = ((name, value) for name, value in environment.host.items() if name not in told)
        rows += [*environment.versions.items(), *host]
    if profile.provenance is not None:
        provenance = profile.provenance
        rows += [("tool", f"{provenance.tool} {provenance.version}"), ("created", provenance.created)]
        rows += [("command", provenance.command)]
        rows += [("note", note) for note in provenance.notes]
    return [(name, _text(value)) for name, value in rows if value is not None]


def _machine_rows(machine: MachineFacts | None) -> Iterable[tuple[str, Any]]:
    if machine is None:
        return
    yield "machine", machine.title()
    for name in (field.name for field in fields(machine)):
        value = getattr(machine, name)
        if value not in {None, ()} and name != "name":
            text = format_capacity(value) if name == "memory_bytes" else value
            yield {"id": "machine id", "memory_bytes": "memory"}.get(name, name.replace("_", " ")), text


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)

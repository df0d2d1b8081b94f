"""The values for the run page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.hub.run_charts import charts_of
from inferometer.hub.run_view import cards_of, layer_columns, percentile_rows, phase_rows
from inferometer.report.charts.memory import memory_parts
from inferometer.report.phrases import formats_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.profile import Profile
    from inferometer.core.run import Run
    from inferometer.store.values import Metric

PROGRESS, HELD = "progress", "memory_bytes"  # metrics that the page does not list but draws
_SIZES = ("batch", "prompt", "generate", "context", "image")


def run_values(run: Run, profile: Profile) -> dict[str, Any]:
    return {
        "run": run,
        "profile": profile,
        "title": run.name or f"{profile.model.name} on {profile.device.title or profile.device.name}",
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
    count = f"{profile.device.count} × " if profile.device.count > 1 else ""
    where = f"{count}{profile.device.title or profile.device.name}"
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
        rows += [("threads", environment.threads), ("load before", environment.load_before)]
        rows += [("load after", environment.load_after), *(("disturbed", reason) for reason in environment.reasons)]
        rows += [*environment.versions.items(), *environment.host.items()]
    if profile.provenance is not None:
        provenance = profile.provenance
        rows += [("tool", f"{provenance.tool} {provenance.version}"), ("created", provenance.created)]
        rows += [("command", provenance.command)]
        rows += [("note", note) for note in provenance.notes]
    return [(name, _text(value)) for name, value in rows if value is not None]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)

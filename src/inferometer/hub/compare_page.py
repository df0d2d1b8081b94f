"""The values for the compare page: every run against the first, the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.bench.compare import compare
from inferometer.errors import DomainError, InferometerError
from inferometer.report.charts.runs import difference_chart
from inferometer.report.charts.samples import overlaid
from inferometer.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.bench.compare import Comparison, Metric
    from inferometer.core.profile import Phase, Profile
    from inferometer.core.run import Run

_MOST_LAYERS = 500


def profiles_of(runs: Sequence[Run]) -> list[tuple[str, Profile]]:
    """The profiles of runs, with names that tell them apart."""
    named = []
    for run in runs:
        if run.profile is None:
            raise DomainError(f"Run {run.id} has no profile to compare: it is {run.status}.")
        name = run.name or run.profile.model.name
        ambiguous = sum((other.name or (other.profile and other.profile.model.name)) == name for other in runs) > 1
        named.append((f"{name} ({run.id})" if ambiguous else name, run.profile))
    return named


def compare_values(runs: Sequence[Run]) -> dict[str, Any]:
    named = profiles_of(runs)
    (first, baseline), *others = named
    comparisons = [compare(baseline, profile, names=(first, name)) for name, profile in others]
    samples = {
        name: phase.samples_s
        for name, profile in named
        if (phase := _phase_of(profile, comparisons[0].metric)) is not None and phase.samples_s
    }
    charts: dict[str, Any] = {}
    if len(samples) > 1:
        charts["samples"] = overlaid(samples)
    for index, comparison in enumerate(comparisons):
        try:
            charts[f"layers-{index}"] = difference_chart(comparison)
        except InferometerError:
            continue
    return {
        "title": f"{first} and {', '.join(name for name, _ in others)}",
        "runs": runs,
        "names": [name for name, _ in named],
        "comparisons": [_comparison_values(index, comparison) for index, comparison in enumerate(comparisons)],
        "charts": charts,
    }


def _phase_of(profile: Profile, metric: str) -> Phase | None:
    """The phase that a metric is the time of; latency is that of the forward pass."""
    return profile.phase("forward" if metric == "latency" else metric)


def _comparison_values(index: int, comparison: Comparison) -> dict[str, Any]:
    layers = sorted(comparison.ops, key=lambda op: -abs((op.b or 0.0) - (op.a or 0.0)))
    return {
        "index": index,
        "a": comparison.a,
        "b": comparison.b,
        "main": comparison.main,
        "metrics": [_metric_row(metric) for metric in comparison.metrics],
        "layers": [_metric_row(op) for op in layers[:_MOST_LAYERS]],
        "left": max(0, len(layers) - _MOST_LAYERS),
        "notes": comparison.notes,
    }


def _metric_row(metric: Metric) -> dict[str, Any]:
    def text(value: float | None) -> str:
        return "–" if value is None else format_quantity(value, metric.unit)

    interval = "" if metric.low is None or metric.high is None else f"{metric.low:.3f} – {metric.high:.3f}"
    return {
        "name": metric.name,
        "phase": metric.phase,
        "a": text(metric.a),
        "b": text(metric.b),
        "ratio": "–" if metric.ratio is None else f"{metric.ratio:.3f}",
        "interval": interval,
        "verdict": metric.verdict,
        "reason": metric.reason,
    }

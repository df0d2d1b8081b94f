"""The values for the compare page: every run against the first, the baseline, and what differs between them."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any
from urllib.parse import urlencode

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.profile import Phase, Profile, Run
from inferometer.core.request import kept_steps
from inferometer.core.units import format_quantity
from inferometer.hub.web.pages.run import shown_table
from inferometer.measure.bench.compare import Comparison, compare
from inferometer.understand.changes import changes_between, sentence_of
from inferometer.understand.view.charts import difference_chart
from inferometer.understand.view.charts.render import COLOURS
from inferometer.understand.view.measured import comparison_table, metric_row, verdict_text
from inferometer.understand.view.page import facts_of
from inferometer.understand.view.phrases import formats_of

_MOST_LAYERS = 500
_DETAILED = 7  # comparisons that are shown layer by layer
_MOST_STEPS = 300  # of a line of readings: more are closer than pixels
_MOST_FACTS = 4  # that a sentence names; the table below has all of them
# Facts that may be why one is faster than the other; the rest are names and addresses.
_TELLING = {
    "kind", "model", "formats", "device", "machine", "runtime", "batch", "prompt", "generate", "context", "image",
    "threads", "machine was", "tp", "pp", "ep", "dp",
}  # fmt: skip


def profiles_of(runs: Sequence[Run]) -> list[tuple[str, Profile]]:
    """The profiles of runs, with names that tell them apart: by their device if that does, else by their id."""
    profiles = [_profile(run) for run in runs]
    names = [run.name or profile.model.name for run, profile in zip(runs, profiles, strict=True)]
    devices = [device_of(run, profile) for run, profile in zip(runs, profiles, strict=True)]
    placed = [f"{name} on {device}" for name, device in zip(names, devices, strict=True)]
    named = []
    for run, name, at, profile in zip(runs, names, placed, profiles, strict=True):
        if names.count(name) > 1:
            name = at if placed.count(at) == 1 else f"{name} ({run.id})"  # noqa: PLW2901 - a longer name of the same
        named.append((name, profile))
    return named


def _profile(run: Run) -> Profile:
    if run.profile is None:
        raise DomainError(f"Run {run.id} has no profile to compare: it is {run.status}.")
    return run.profile


def device_of(run: Run, profile: Profile) -> str:
    """The name that the fleet has for it, or what it is."""
    return str(run.parameters.get("device") or profile.device.name)


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
    detailed = comparisons[:_DETAILED]
    stories = [
        _story(runs[0], run, baseline, profile, comparison)
        for run, (_, profile), comparison in zip(runs[1:], others, detailed, strict=False)
    ]
    for index, comparison in enumerate(detailed):
        try:
            charts[f"layers-{index}"] = difference_chart(comparison)
        except InferometerError:
            continue
    return {
        "title": f"{first} and {', '.join(name for name, _ in others)}",
        "runs": [_heading(run, name, profile, runs) for run, (name, profile) in zip(runs, named, strict=True)],
        "matrix": _matrix(comparisons),
        "differing": differing_facts(runs),
        "comparisons": [
            _comparison_values(index, comparison) | {"story": story}
            for index, (comparison, story) in enumerate(zip(detailed, stories, strict=True))
        ],
        "charts": charts,
        "readings": _readings(samples) if len(samples) > 1 else None,
    }


def _readings(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The share of readings up to each time, a line of steps a run, in a box of 100 × 100; what lies left is faster."""
    low, high = min(map(min, samples.values())), max(map(max, samples.values()))
    wide = (high - low) or 1.0
    lines = []
    for (name, values), colour in zip(samples.items(), cycle(COLOURS), strict=False):
        placed = sorted(values)
        steps = (
            f"H{100 * (placed[number] - low) / wide:.2f}V{100 - 100 * (number + 1) / len(placed):.2f}"
            for number in kept_steps(len(placed), _MOST_STEPS)
        )
        lines.append({"name": name, "colour": colour, "path": f"M0 100{''.join(steps)}H100"})
    times = [format_quantity(low + wide * part / 4, "s", digits=3) for part in range(5)]
    return {"lines": lines, "times": times}


def _story(before: Run, after: Run, a: Profile, b: Profile, comparison: Comparison) -> dict[str, Any]:
    """What changed and why, in a sentence; and the pieces of the model that moved, each with a bar for its change."""
    main = comparison.main
    facts = [
        (name, values[0], values[1])
        for name, values in differing_facts([before, after])
        if name in _TELLING or name.startswith("version of ")
    ]
    phase = _phase_of(a, comparison.metric)
    changes = None if phase is None else changes_between(a, b, phase.name)
    if main.verdict not in {"faster", "slower"} or changes is None:
        listed = "; ".join(f"{name} ({one} → {other})" for name, one, other in facts[:_MOST_FACTS])
        text = f"{comparison.b} against {comparison.a}: {verdict_text(main.verdict)}, {main.reason}."
        return {"text": text + (f" The two differ in {listed}." if listed else ""), "moved": [], "others": 0}
    most = max((abs(piece.change_s) for piece in changes.moved), default=0.0)
    moved = [
        {
            "name": piece.name,
            "count": piece.count,
            "a": format_quantity(piece.a_s, "s", digits=3),
            "b": format_quantity(piece.b_s, "s", digits=3),
            "change": _signed(piece.change_s),
            "tone": "bad" if piece.change_s > 0 else "good",
            "share": round(100 * abs(piece.change_s) / most),
            "why": "; ".join(piece.why) or "run in the same way, as far as is known",
        }
        for piece in changes.moved
    ]
    text = sentence_of(changes, comparison.a, comparison.b, facts[:_MOST_FACTS])
    rest = _signed(changes.rest_s)
    return {"text": text, "moved": moved, "others": changes.others, "rest": rest, "phase": changes.phase}


def _signed(seconds: float) -> str:
    return ("+" if seconds > 0 else "−" if seconds < 0 else "") + format_quantity(abs(seconds), "s", digits=3)


def _heading(run: Run, name: str, profile: Profile, runs: Sequence[Run]) -> dict[str, Any]:
    """A run at the top of its column, with the addresses that make it the baseline, or leave it out."""
    rest = [("run", other.id) for other in runs if other.id != run.id]
    return {
        "id": run.id,
        "name": name,
        "about": " · ".join(filter(None, (profile.model.name, profile.runtime, formats_of(profile)))),
        "created": run.created[:16].replace("T", " "),
        "as_baseline": "?" + urlencode([("run", run.id), *rest, ("baseline", run.id)]),
        "without": "?" + urlencode(rest) if len(rest) > 1 else None,
    }


def _matrix(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """A row for each metric, a cell for each run: first the baseline's value, then each other's with its verdict."""
    keys = dict.fromkeys((metric.name, metric.phase) for each in comparisons for metric in each.metrics)
    rows = []
    for name, phase in keys:
        cells = [
            next((metric for metric in each.metrics if (metric.name, metric.phase) == (name, phase)), None)
            for each in comparisons
        ]
        known = next(cell for cell in cells if cell is not None)
        main = any(each.metric == name for each in comparisons)
        text = "–" if known.a is None else format_quantity(known.a, known.unit)
        others = [None if cell is None else metric_row(cell) for cell in cells]
        rows.append({"name": name, "phase": phase, "main": main, "baseline": text, "cells": others})
    return sorted(rows, key=lambda row: not row["main"])


def differing_facts(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Settings and surroundings in which the runs differ: a value for each run."""
    facts = [
        {**facts_of(profile), **{f"with {name}": str(value) for name, value in run.parameters.items()}}
        for run in runs
        if (profile := run.profile) is not None
    ]
    names = dict.fromkeys(name for each in facts for name in each)
    rows = [(name, [each.get(name, "–") for each in facts]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _phase_of(profile: Profile, metric: str) -> Phase | None:
    """The phase that a metric is the time of; latency is that of the forward pass."""
    return profile.phase("forward" if metric == "latency" else metric)


def _comparison_values(index: int, comparison: Comparison) -> dict[str, Any]:
    table = comparison_table(comparison, most=_MOST_LAYERS)
    return {
        "index": index, "a": comparison.a, "b": comparison.b, "main": metric_row(comparison.main),
        "table": shown_table(table), "left": table.left, "notes": comparison.notes,
    }  # fmt: skip

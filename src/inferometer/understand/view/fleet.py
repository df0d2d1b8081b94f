"""The fleet for people: one model on several devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.understand.view.table import Column, ReportTable, columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.job import JobResult

_FIGURES = ("latency_s", "ttft_s", "tpot_s", "tokens_per_s", "peak_memory_bytes")


def each_table(names: Sequence[str], results: Sequence[JobResult]) -> ReportTable:
    """A row for each device, the fastest first; one that could not measure it says why."""
    rows = [_row(name, result) for name, result in zip(names, results, strict=True)]
    rows.sort(key=lambda row: (row["error"] is not None, row["latency_s"] or row["tpot_s"] or 0.0))
    shown = [name for name in _FIGURES if any(row[name] is not None for row in rows)]
    error = ["error"] if any(row["error"] for row in rows) else []
    named = (Column(key="device", heading="device"), Column(key="runtime", heading="runtime"))
    return ReportTable(columns=columns(*named, *shown, *error), rows=tuple(rows))


def _row(name: str, result: JobResult) -> dict[str, Any]:
    profile = result.profiles[0] if result.profiles else None
    figures = {key: None if profile is None else getattr(profile.summary, key) for key in _FIGURES}
    runtime = result.job.runtime if profile is None else profile.runtime
    return {"device": name, "runtime": runtime, **figures, "error": None if result.complete else result.error}

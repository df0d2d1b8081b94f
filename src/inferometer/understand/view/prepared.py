"""What `inferometer prepare` shows: a row for each step, the whole, and the formats that a search found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.units import format_quantity
from inferometer.understand.view.table import Column, ReportTable

if TYPE_CHECKING:
    from inferometer.measure.prepare.run import Prepared, StepResult
    from inferometer.measure.prepare.search import Found

_STEPS = (
    Column(key="name", heading="step"),
    Column(key="tool", heading="tool"),
    Column(key="bytes", heading="size", label="bytes", unit="B"),
    Column(key="outputs", heading="outputs", label="verified"),
    Column(key="drift", heading="drift"),
    Column(key="predicted", heading="predicted gain", label="predicted_gain"),
    Column(key="measured", heading="measured gain", label="measured_gain"),
    Column(key="verdict", heading="verdict"),
    Column(key="kept", heading="kept"),
)
_SEARCH = (
    Column(key="quantise", heading="format"),
    Column(key="bytes", heading="size", unit="B"),
    Column(key="drift", heading="drift"),
    Column(key="predicted", heading="predicted gain", label="predicted_gain"),
    Column(key="measured", heading="measured gain", label="measured_gain"),
    Column(key="best", heading="on the front"),
    Column(key="reason", heading="why not"),
)


def prepared_table(prepared: Prepared) -> ReportTable:
    return ReportTable(columns=_STEPS, rows=tuple(_step(row) for row in prepared.steps), note=_note(prepared))


def _step(row: StepResult) -> dict[str, Any]:
    outputs = {True: "right", False: "wrong", None: "unchecked"}[row.verified]
    return {
        "name": row.name,
        "tool": row.tool,
        "bytes": row.bytes,
        "outputs": None if row.verdict == "on the way" else outputs,
        "drift": drift_text(row.drift),
        "predicted": gain_text(row.predicted_gain, row.predicted_low, row.predicted_high),
        "measured": gain_text(row.measured_gain, row.measured_low, row.measured_high),
        "verdict": row.verdict,
        "kept": row.kept,
    }


def drift_text(drift: float | None) -> str | None:
    return None if drift is None else "0" if not drift else f"{100 * drift:.2g} %"


def gain_text(gain: float | None, low: float | None = None, high: float | None = None) -> str | None:
    if gain is None:
        return None
    interval = "" if low is None or high is None or low == high else f" ({low:.2g} to {high:.2g})"
    return f"{gain:.2f} ×{interval}"


def _note(prepared: Prepared) -> str:
    lines = [whole_text(prepared)]
    lines += [f"{row.name}: {note}" for row in prepared.steps for note in row.notes]
    return "\n".join([*lines, *prepared.notes])


def whole_text(prepared: Prepared) -> str:
    """One sentence: from what to what, and how much faster."""
    before = format_quantity(prepared.original_bytes, "B")
    if prepared.artifact is None or prepared.bytes is None:
        return f"Nothing was written: {prepared.model} ({before}) stays as it is."
    after = format_quantity(prepared.bytes, "B")
    parts = [f"In all {before} became {after} for {prepared.runtime}"]
    if (measured := gain_text(prepared.measured_gain, prepared.measured_low, prepared.measured_high)) is not None:
        parts.append(f"measured gain {measured}, {prepared.verdict}")
    if (predicted := gain_text(prepared.predicted_gain)) is not None:
        parts.append(f"predicted {predicted}")
    return f"{', '.join(parts)}: {prepared.artifact}"


def search_table(found: tuple[Found, ...]) -> ReportTable:
    note = "On the front: no other format is faster, smaller and nearer to the original at once."
    return ReportTable(columns=_SEARCH, rows=tuple(_found(row) for row in found), note=note)


def _found(row: Found) -> dict[str, Any]:
    prepared = row.prepared
    return {
        "quantise": row.quantise,
        "bytes": None if prepared is None else prepared.bytes or prepared.original_bytes,
        "drift": None if prepared is None else drift_text(prepared.drift),
        "predicted": None if prepared is None else gain_text(prepared.predicted_gain),
        "measured": None
        if prepared is None
        else gain_text(prepared.measured_gain, prepared.measured_low, prepared.measured_high),
        "best": row.best,
        "reason": row.reason,
    }

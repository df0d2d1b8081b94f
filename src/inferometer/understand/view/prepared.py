"""What `inferometer prepare` shows: a row for each step, the whole, and the formats that a search found."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from inferometer.core.units import format_quantity
from inferometer.understand.view.table import Column, ReportTable

if TYPE_CHECKING:
    from inferometer.measure.prepare.foretell import Foretold
    from inferometer.measure.prepare.run import Prepared, StepResult
    from inferometer.measure.prepare.search import Found, Tuned

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
    Column(key="meets", heading="keeps the goals", label="meets"),
    Column(key="reason", heading="why not"),
)
_FORETOLD = (
    Column(key="quantise", heading="format"),
    Column(key="tools", heading="made by", label="tools"),
    Column(key="bytes", heading="weights", label="weight_bytes", unit="B"),
    Column(key="gain", heading="predicted gain", label="predicted_gain"),
    Column(key="verdict", heading="foretold"),
    Column(key="reason", heading="why not"),
)
_OPS = (
    Column(key="name", heading="op"),
    Column(key="kind", heading="kind"),
    Column(key="count", heading="×"),
    Column(key="before_s", heading="before", unit="s"),
    Column(key="after_s", heading="after", unit="s"),
    Column(key="gain", heading="gain"),
    Column(key="drift", heading="drift alone"),
)
_TUNED = (
    Column(key="change", heading="setting"),
    Column(key="measured", heading="measured gain", label="measured_gain"),
    Column(key="verdict", heading="verdict"),
    Column(key="kept", heading="kept"),
    Column(key="reason", heading="why not"),
)


def prepared_table(prepared: Prepared) -> ReportTable:
    lines = [whole_text(prepared)]
    lines += [f"{row.name}: {note}" for row in prepared.steps for note in row.notes]
    return ReportTable(
        columns=_STEPS, rows=tuple(_step(row) for row in prepared.steps), note="\n".join([*lines, *prepared.notes])
    )


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


def foretold_table(found: tuple[Foretold, ...]) -> ReportTable:
    """A row for each format, and below it why each is as fast as it is."""
    rows = tuple(
        {
            "quantise": row.quantise,
            "tools": ", ".join(f"{tool} (not installed)" if tool in row.missing else tool for tool in row.tools),
            "bytes": row.weight_bytes,
            "gain": None if row.gain is None else gain_text(row.gain.gain, row.gain.low, row.gain.high),
            "verdict": row.verdict,
            "reason": row.reason,
        }
        for row in found
    )
    why = [f"{row.quantise}: {note}" for row in found for note in row.why]
    return ReportTable(columns=_FORETOLD, rows=rows, note="\n".join([*why, "Nothing was made or measured."]))


def foretold_ops(found: Foretold, *, rows: int | None = None) -> ReportTable:
    """The ops that change most with a format."""
    shown = found.ops[:rows]
    left, told = len(found.ops) - len(shown), any(op.drift is not None for op in found.ops)
    return ReportTable(
        title=f"What {found.quantise} changes",
        columns=_OPS if told else _OPS[:-1],
        rows=tuple(
            asdict(op)
            | {"gain": f"{op.before_s / op.after_s:.2f} ×" if op.after_s else None, "drift": drift_text(op.drift)}
            for op in shown
        ),
        note=f"{left} more ops: --format json lists all of them." if left else None,
    )


def search_table(found: tuple[Found, ...]) -> ReportTable:
    note = "On the front: no other format is faster, smaller and nearer to the original at once."
    aimed = any(row.meets is not None for row in found)
    columns = tuple(column for column in _SEARCH if aimed or column.key != "meets")
    return ReportTable(columns=columns, rows=tuple(_found(row) for row in found), note=note)


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
        "meets": row.meets,
        "reason": row.reason,
    }


def tuned_table(tuned: Tuned) -> ReportTable:
    """A row for each setting, over the best before it; the last is of all that were kept, over the engine's choice."""
    tried = (*tuned.tried, *((tuned.whole,) if tuned.whole is not None else ()))
    rows = tuple(
        {
            "change": row.change, "measured": gain_text(row.gain, row.low, row.high), "verdict": row.verdict,
            "kept": row.kept, "reason": row.reason,
        }
        for row in tried
    )  # fmt: skip
    proven = tuned.whole is not None and tuned.whole.kept
    note = f"Open it with {tuned.setting.flags}." if proven else "The engine's own choice stays."
    return ReportTable(columns=_TUNED, rows=rows, note=note)

"""A calibration as a table: a row for each class of op, one for each overhead, one for whole steps; and a list."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any

from inferometer.core.units import counted, format_quantity
from inferometer.understand.view.table import Column, ReportTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.calibration import Calibration, Utilisation
    from inferometer.measure.calibrate.from_table import MeasuringPlan
    from inferometer.measure.calibrate.here import HeldCalibration

_COLUMNS = (
    Column(key="what", heading="what"),
    Column(key="over", heading="over"),
    Column(key="least", heading="least share"),
    Column(key="most", heading="most share"),
    Column(key="factor", heading="in models"),
    Column(key="residual", heading="off by"),
)


def calibration_table(calibration: Calibration) -> ReportTable:
    rows = [_class(calibration, table) for table in calibration.tables]
    rows += [
        {"what": f"overhead: {name}", "over": format_quantity(seconds.value, "s")}
        for name, seconds in calibration.overheads.items()
    ]
    rows += [
        {"what": f"whole {name.partition('.')[2] or 'step'}", "residual": f"{residual:.1%}"}
        for name, residual in calibration.residuals.items()
        if name.partition(".")[0] == "step"
    ]
    title = (
        f"{calibration.runtime} on {calibration.device}, {calibration.dtype}: {counted(calibration.points, 'point')}"
    )
    return ReportTable(title=title, columns=_COLUMNS, rows=tuple(rows))


def _class(calibration: Calibration, table: Utilisation) -> dict[str, Any]:
    name = table.op_class
    factors = [
        f"{key.partition('.')[2]} × {value:.2f}".strip()  # one of every phase names none
        for key, value in calibration.factors.items()
        if key == name or key.startswith(f"{name}.")
    ]
    return {
        "what": name,
        "over": ", ".join(table.axes),
        "least": f"{min(table.values):.1%}",
        "most": f"{max(table.values):.1%}",
        "factor": ", ".join(factors) or None,
        "residual": f"{calibration.residuals.get(name, table.residual):.1%}",
    }


_STANDINGS = (
    Column(key="engine", heading="engine"),
    Column(key="format", heading="format"),
    Column(key="threads", heading="threads"),
    Column(key="version", heading="version"),
    Column(key="made", heading="made"),
    Column(key="ops", heading="ops"),
    Column(key="steps", heading="whole steps"),
    Column(key="off", heading="off by"),
    Column(key="state", heading="state"),
)


def standings_table(standings: Sequence[HeldCalibration]) -> ReportTable:
    """What predictions for this machine stand on: a row for each calibration."""
    rows = []
    for standing in standings:
        made = standing.calibration
        whole = [residual for name, residual in made.residuals.items() if name.partition(".")[0] == "step"]
        steps = f"{made.steps} of {counted(len(made.fitted_on), 'model')}" if made.fitted_on else made.steps
        rows.append({
            "engine": made.runtime,
            "format": made.dtype,
            "threads": made.threads,
            "version": ", ".join(f"{name} {version}" for name, version in made.versions.items()) or None,
            "made": made.created[:10],
            "ops": made.points,
            "steps": steps,
            "off": f"{max(whole):.1%}" if whole else None,
            "state": _state(standing),
        })  # fmt: skip
    return ReportTable(title="What predictions for this machine stand on", columns=_STANDINGS, rows=tuple(rows))


_MEASURING = (
    Column(key="number", heading="measured"),
    Column(key="model", heading="measure next"),
    Column(key="low", heading="eight in ten of the others from"),
    Column(key="high", heading="to"),
)


def measuring_table(plan: MeasuringPlan) -> ReportTable:
    """Which models to measure on a device, the best first, and what is left open after each."""
    rows = [
        {"number": number, "model": model, "low": f"{exp(-half) - 1:+.0%}", "high": f"{exp(half) - 1:+.0%}"}
        for number, (model, half) in enumerate(zip((*plan.models, None), plan.halves, strict=True))
    ]
    command = f"inferometer calibrate --from FILE.csv --device {plan.device} --runtime {plan.runtime}"
    return ReportTable(
        title=f"What to measure of {plan.device} with {plan.runtime} in {plan.dtype}: whole models, a batch of one",
        columns=_MEASURING,
        rows=tuple(rows),
        note=f"Write their times into a table that `inferometer atlas` knows, then: {command}",
    )


def _state(standing: HeldCalibration) -> str:
    if standing.path is None:
        return f"shipped, of {standing.calibration.device}"
    return "changed since" if standing.changed else "as it was made"


def standing_document(standing: HeldCalibration) -> dict[str, Any]:
    """The same of one for programs, with the models that fed it and what has changed since."""
    made = standing.calibration
    plain = {
        name: getattr(made, name) for name in ("device", "runtime", "dtype", "threads", "created", "points", "steps")
    }
    return plain | {
        "versions": dict(made.versions),
        "fitted_on": list(made.fitted_on),
        "notes": list(made.notes),
        "changed": list(standing.changed),
        "path": None if standing.path is None else str(standing.path),
    }

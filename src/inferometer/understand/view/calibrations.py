"""A calibration as a table: a row for each class of op, one for each overhead, one for whole steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.units import counted, format_quantity
from inferometer.understand.view.table import Column, ReportTable

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration, Utilisation

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

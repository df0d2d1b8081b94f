"""The values for the run page."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.codec import settled
from inferometer.core.errors import InferometerError
from inferometer.core.finding import Finding
from inferometer.core.frozen import frozen
from inferometer.core.job import PROOF
from inferometer.core.json_text import parse_json
from inferometer.core.profile import Profile, Run
from inferometer.hub.web.guard.catalog_names import roofs_of
from inferometer.store.store import Store
from inferometer.store.values import Filter, Metric, RunRow
from inferometer.understand.attribution import Breakdown
from inferometer.understand.view.measured import verdict_text
from inferometer.understand.view.page import PageView, page_of
from inferometer.understand.view.table import ReportTable, cell_text

_PROGRESS, _HELD = "progress", "memory_bytes"  # metrics that the page does not list but draws
_PROOF_BYTES = 1_000_000
_LOOKED_AT = 50  # runs, to find the last one of the same


def run_values(run: Run, profile: Profile, metrics: Sequence[Metric] = ()) -> dict[str, Any]:
    """The values on the page. That of a load test has levels and requests instead of phases and layers."""
    page = page_of(profile, roofs_of(profile))
    return {
        "run": run,
        "metrics": [metric for metric in metrics if metric.name not in {_PROGRESS, _HELD}],
        "held": held_of(metrics),
        "at": f"/runs/{run.id}",  # where the page finds its parts
        "title": run.name or page.title,
        "layers": page.layers(),
        **page_values(page),
    }


def page_values(page: PageView) -> dict[str, Any]:
    """The values that templates read; tables as text."""
    load = page.load and {
        **{field.name: getattr(page.load, field.name) for field in fields(page.load)},
        "levels": shown_table(page.load.levels),
        "latencies": shown_table(page.load.latencies),
    }
    return {
        **{name: getattr(page, name) for name in ("subtitle", "badges", "figures", "memory", "environment")},
        "phases": shown_table(page.phases),
        "percentiles": shown_table(page.percentiles),
        "charts": [chart for chart in page.charts.values() if chart.shown],
        **({"load": load} if load else {}),
    }


def shown_table(table: ReportTable) -> dict[str, Any]:
    """A table as text, with whether each column is of numbers."""
    rows = [[cell_text(column, row.get(column.key)) for column in table.columns] for row in table.rows]
    return {"columns": [(column.heading, column.numeric) for column in table.columns], "rows": rows}


def proof_of(store: Store, run: Run) -> dict[str, Any] | None:
    """What was prepared, step by step, and its files; None where a run prepared nothing."""
    from inferometer.measure.prepare.run import Prepared  # noqa: PLC0415 - only where something was prepared
    from inferometer.understand.view.prepared import prepared_table  # noqa: PLC0415 - as above

    kept = next((file for file in run.artifacts if file.name == PROOF and file.size_bytes <= _PROOF_BYTES), None)
    if kept is None:
        return None
    try:
        plain = parse_json(store.artifact(run.id, PROOF).read_bytes())
        prepared = msgspec.convert(plain, settled(Prepared), dec_hook=lambda kind, value: kind(value))
    except (OSError, ValueError, InferometerError):
        return None
    if prepared.artifact is not None:
        prepared = replace(prepared, artifact=Path(prepared.artifact.name))
    table = prepared_table(prepared)
    return {
        "title": f"Prepared{f' as {prepared.quantise}' if prepared.quantise else ''} for {prepared.runtime}",
        "right": prepared.right, "table": shown_table(table), "lines": (table.note or "").split("\n"),
        "files": [file for file in run.artifacts if file.name not in {PROOF, "log.txt"}],
    }  # fmt: skip


def earlier_run(store: Store, row: RunRow) -> RunRow | None:
    """The last run before this one that measured the same: model, machine, engine, sizes and formats."""
    if row.profile_kind != "measured" or row.model is None:
        return None
    asked = Filter(
        project=row.project, model=row.model, device=row.device, runtime=row.runtime, kind=row.kind,
        status=("finished",), until=row.created,
    )  # fmt: skip
    same = ("machine_id", "batch", "precision", "threads", "workload", "profile_kind")
    rows = store.list(asked, sort="-created", limit=_LOOKED_AT).rows
    return next(
        (
            other
            for other in rows
            if other.id != row.id and all(getattr(other, name) == getattr(row, name) for name in same)
        ),
        None,
    )


def change_since(earlier: Run, run: Run) -> dict[str, Any] | None:
    """How a run compares with an earlier one of the same, as a card; None if they cannot be compared."""
    from inferometer.measure.bench.compare import compare  # noqa: PLC0415 - only where there is an earlier one

    if earlier.profile is None or run.profile is None:
        return None
    try:
        main = compare(earlier.profile, run.profile, ops=False).main
    except InferometerError:
        return None
    if main.ratio is None:
        return None
    tone = {"faster": "good", "slower": "bad"}.get(main.verdict, "plain")
    change = "±0 %" if round(1000 * (main.ratio - 1)) == 0 else f"{100 * (main.ratio - 1):+.1f} %"
    at = datetime.fromisoformat(earlier.created).timestamp()
    return {"run": earlier.id, "value": change, "verdict": verdict_text(main.verdict), "reason": main.reason,
            "tone": tone, "at": at}  # fmt: skip


def held_of(metrics: Iterable[Metric]) -> list[tuple[float, float]]:
    """Seconds since the first step and the bytes the model held then: the steps of that metric are milliseconds."""
    return [(metric.step / 1e3, metric.value) for metric in metrics if metric.name == _HELD]


# The explanation of a profile, for a page: where the time goes and what to do.

_MOST_ROWS = 8
_MACHINE = "environment."  # how the codes of findings begin that are about the machine
_UNREADABLE = (InferometerError, ArithmeticError, ValueError)  # odd numbers in an odd profile


@frozen
class PageExplanation:
    """The rows of each of `tables`, the largest first, and its remainder add up to the whole.

    `findings` begin with what is wrong; the changes that would surely gain most follow.
    """

    headline: str | None = None
    findings: tuple[Finding, ...] = ()
    tables: tuple[dict[str, Any], ...] = ()
    next: tuple[str, ...] = ()

    @property
    def advice(self) -> tuple[Finding, ...]:
        """Those about the model and how it was run."""
        return tuple(finding for finding in self.findings if not finding.code.startswith(_MACHINE))

    @property
    def machine(self) -> tuple[Finding, ...]:
        """Those about the machine while it was measured, which say nothing of the model."""
        return tuple(finding for finding in self.findings if finding.code.startswith(_MACHINE))


def page_explanation(profile: Profile, *, name: str | None = None) -> PageExplanation:
    """The explanation of a profile; if it cannot be explained, only the findings stored with it."""
    from inferometer.api.explanations import explained  # noqa: PLC0415 - slow: only with the first explanation

    try:
        explanation = explained(profile, name=name)
    except _UNREADABLE:
        return PageExplanation(findings=_in_order(profile.findings))
    return PageExplanation(
        headline=explanation.headline,
        findings=_in_order(explanation.findings),
        tables=tuple(_attribution_rows(table) for table in explanation.tables if table.rows),
        next=explanation.next,
    )


def _in_order(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """A gain is sure as far as the low end of its interval; those without one keep their order behind the others."""

    def place(finding: Finding) -> tuple[bool, float]:
        return finding.severity != "critical", -max(finding.gain_low or finding.gain or 1.0, 1.0)

    return tuple(sorted(findings, key=place))


def _attribution_rows(table: Breakdown) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [
        {"name": row.name, "time_s": row.time_s, "share": row.share, "count": row.count} for row in table.rows
    ]
    shown, others = rows[:_MOST_ROWS], rows[_MOST_ROWS:]
    if others:
        rest = {key: sum(row[key] for row in others) for key in ("time_s", "share", "count")}
        shown.append({"name": f"{len(others)} more", **rest})
    return {
        "by": table.by,
        "phase": table.phase,
        "whole_s": table.whole_s,
        "rows": shown,
        "remainder": table.remainder,
        "remainder_s": table.remainder_s,
        "remainder_share": table.remainder_share,
    }

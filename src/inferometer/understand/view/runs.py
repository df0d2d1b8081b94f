"""Runs and projects for people and machines: lists, and one run on a card. Nothing is computed here."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from inferometer.core.codec import document
from inferometer.core.units import format_quantity
from inferometer.understand.view.cards import Card, Fact
from inferometer.understand.view.phrases import headline_figures, machine_facts_text
from inferometer.understand.view.table import Column, ReportTable, columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from inferometer.core.job import JobResult
    from inferometer.core.profile import Profile, Run
    from inferometer.store.values import Metric, Project, RunRow
    from inferometer.understand.series import Alarm

_DRAWN = {"table", "md"}
_RUNS = columns(
    Column(key="id", heading="run"),
    Column(key="created", heading="created", aside=True), "status", "name", "model", "device",
    Column(key="machine", heading="machine", aside=True), Column(key="runtime", heading="runtime", aside=True),
    "latency_s", Column(key="ttft_s", heading="TTFT", unit="s"),
    Column(key="tpot_s", heading="TPOT", unit="s"),
    "tokens_per_s", "peak_memory_bytes", "disturbed", "verified", "tags", "project", "kind", "author", "batch",
    "precision", "threads", "workload", "note",
    Column(key="profile_kind", heading="profile"),
    "started", "ended", "parent", "reason", "machine_id",
)  # fmt: skip
_ALWAYS = {"id", "created", "status", "model"}
# Too much for a line; `show` has them.
_NEVER = {
    "kind", "profile_kind", "started", "ended", "parent", "reason", "machine_id", "author", "batch", "precision",
    "threads", "workload", "note",
}  # fmt: skip
_PROJECTS = columns(
    Column(key="name", heading="project"),
    "runs",
    Column(key="last", heading="newest run"),
    "created", "description",
)  # fmt: skip


def run_table(rows: Sequence[RunRow], form: str) -> ReportTable:
    """For people, only the columns that say something; for machines, all of them, always."""
    records = tuple(_record(row, form) for row in rows)
    if form not in _DRAWN:
        return ReportTable(columns=_RUNS, rows=records)
    names = machine_names(rows)
    records = tuple({**record, **machine_cells(row, names)} for row, record in zip(rows, records, strict=True))
    known = {key for record in records for key, value in record.items() if value not in {None, "", ()}}
    shown = tuple(column for column in _RUNS if column.key in _ALWAYS | (known - _NEVER))
    return ReportTable(columns=shown, rows=records)


def machine_cells(row: RunRow, names: Mapping[str, str]) -> Mapping[str, str | None]:
    """A run on the machine itself needs no device: `local` is another machine for each reader."""
    machine = names.get(row.machine_id or "")
    return {"machine": machine, "device": None if machine is not None and row.device == "local" else row.device}


def machine_names(rows: Iterable[RunRow]) -> dict[str, str]:
    """What to call each machine among these runs, by its id: two that share a name are told apart by their ids."""
    called: dict[str, str] = {}
    for row in rows:
        if row.machine_id is not None:
            called.setdefault(row.machine_id, row.machine or row.machine_id)  # the newest name, where it was renamed
    names = list(called.values())
    return {each: f"{name} ({each[:4]})" if names.count(name) > 1 else name for each, name in called.items()}


def _record(row: RunRow, form: str) -> Mapping[str, Any]:
    times = {name: _moment(getattr(row, name), form) for name in ("created", "started", "ended")}
    return {**asdict(row), **times}


def project_table(projects: Iterable[Project], form: str) -> ReportTable:
    rows = tuple(
        {**asdict(project), "created": _moment(project.created, form), "last": _moment(project.last, form)}
        for project in projects
    )
    return ReportTable(columns=_PROJECTS, rows=rows)


def _moment(seconds: float | None, form: str) -> str | None:
    """For people, the time on their clock; for machines, UTC to the microsecond."""
    if seconds is None:
        return None
    moment = datetime.fromtimestamp(seconds, tz=UTC)
    if form in _DRAWN:
        return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return moment.isoformat(timespec="microseconds")


def run_document(run: Run, row: RunRow, metrics: Sequence[Metric], link: str) -> dict[str, Any]:
    """The run's document, and how the run went."""
    story = {"kind": row.kind, "started": _moment(row.started, "json"), "ended": _moment(row.ended, "json")}
    people = {"author": row.author, "note": row.note}
    known = {**people, "reason": row.reason, "metrics": [asdict(metric) for metric in metrics], "link": link}
    return {**document(run), **story, **known}


def run_card(run: Run, row: RunRow, metrics: Sequence[Metric], link: str) -> Card:
    facts: list[Fact] = [("status", run.status, row.reason or "")]
    facts.append(("created", _moment(row.created, "table") or "", ""))
    if row.seconds is not None:
        facts.append(("took", format_quantity(row.seconds, "s"), ""))
    if row.author:
        facts.append(("author", row.author, ""))
    if row.note:
        facts.append(("note", row.note, ""))
    if run.tags:
        facts.append(("tags", ", ".join(run.tags), ""))
    if run.parent:
        facts.append(("parent", run.parent, ""))
    facts += [] if run.profile is None else _profile_facts(run.profile)
    facts += [(f"with {name}", value, "") for name, value in run.parameters.items()]
    facts += _metric_facts(metrics)
    facts += [(f"file {a.name}", format_quantity(a.size_bytes, "B"), a.media_type or "") for a in run.artifacts]
    facts.append(("page", link, "while `inferometer hub` runs"))
    subtitle = f"{run.id} · {row.kind} · project {run.project}"
    return Card(title=run.name or run.id, subtitle=subtitle, facts=tuple(facts))


def _profile_facts(profile: Profile) -> Iterator[Fact]:
    yield "model", profile.model.name, profile.kind
    yield "device", profile.device.title or profile.device.name, profile.runtime or ""
    machine = profile.environment.machine if profile.environment else None
    if machine is not None:
        yield "machine", machine.title(), ", ".join(machine_facts_text(machine))
    elif profile.kind == "measured":
        yield "machine", "unknown", "the run does not say"
    for label, value in headline_figures(profile.summary):
        yield label, value, ""
    for phase in profile.phases:
        yield phase.name, format_quantity(phase.time_s, "s"), phase.statistic or ""
    if profile.environment is not None and profile.environment.disturbed is not None:
        quiet = "disturbed" if profile.environment.disturbed else "quiet"
        yield "meanwhile", quiet, profile.environment.disturbance


def _metric_facts(metrics: Sequence[Metric]) -> Iterator[Fact]:
    """The last value of each, and how many there are."""
    last = {metric.name: metric for metric in metrics}
    for name, metric in last.items():
        count = sum(other.name == name for other in metrics)
        yield f"metric {name}", f"{metric.value:.6g}", f"step {metric.step}, {count} values" if count > 1 else ""


def file_table(run: str, file: Path) -> ReportTable:
    columns = (
        Column(key="file", heading="file"),
        Column(key="bytes", heading="size", unit="B"),
        Column(key="run", heading="run"),
    )
    return ReportTable(columns=columns, rows=({"file": str(file), "bytes": file.stat().st_size, "run": run},))


def alarm_card(alarm: Alarm) -> Card:
    """The newest run of a series: the sentence, then what it stands on."""
    facts: list[Fact] = [("state", alarm.state, alarm.sentence)]
    if alarm.noise is not None and alarm.ratio is not None and alarm.errors is not None:
        facts.append(("ratio", f"{alarm.ratio:.3f}", f"{abs(alarm.errors):.1f} standard errors from 1"))
        facts.append(("noise", f"{alarm.noise:.1%}", f"between {len(alarm.baseline)} runs of the series"))
    facts += [("changed", each.name, f"{each.before} → {each.after}") for each in alarm.environment]
    facts += [("other level", f"from run {run} on", "") for run in alarm.change_points]
    title = " · ".join(filter(None, (alarm.series["model"], alarm.series["runtime"], alarm.series["machine"])))
    return Card(
        title=title, subtitle=f"run {alarm.run}", facts=tuple(facts), text="\n".join(alarm.notes) or None
    )  # fmt: skip


def alarm_table(alarm: Alarm) -> ReportTable:
    plain = {name: value for name, value in alarm.document().items() if not isinstance(value, dict | list | tuple)}
    return ReportTable(columns=tuple(Column(key=name, heading=name) for name in plain), rows=(plain,))


# The fleet for people: one model on several devices.

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

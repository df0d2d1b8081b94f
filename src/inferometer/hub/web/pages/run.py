"""The values for the run page."""

from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.codec import settled
from inferometer.core.errors import InferometerError
from inferometer.core.job import PROOF
from inferometer.core.json_text import parse_json
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import Profile, Run
from inferometer.core.units import format_capacity, format_quantity
from inferometer.hub.web.pages.run_view import cards_of, charts_of, layer_columns, percentile_rows, phase_rows
from inferometer.store.store import Store
from inferometer.store.values import Filter, Metric, RunRow
from inferometer.understand.view.charts.layers import memory_parts
from inferometer.understand.view.measured import verdict_text
from inferometer.understand.view.phrases import energy_notes, formats_of, place_of, profile_title

PROGRESS, HELD = "progress", "memory_bytes"  # metrics that the page does not list but draws
# What `environment.host` repeats of the machine.
_TOLD = {
    "cpu", "architecture", "logical_cores", "usable_cpus", "memory_bytes", "system", "container", "hypervisor", "gpus",
}  # fmt: skip
_ENDINGS = {"s": "s", "hz": "Hz", "w": "W", "j": "J"}
_CALLED = {"memory": "memory held", "placed": "ops placed on"}  # what says little by its name in the document
_PROOF_BYTES = 1_000_000
_LOOKED_AT = 50  # runs, to find the last one of the same
_FEW = 16  # numbers that a person reads in a row
_SIZES = ("batch", "prompt", "generate", "context", "image")


def run_values(run: Run, profile: Profile) -> dict[str, Any]:
    """What the page shows. A load test has a page of its own kind: levels and requests instead of phases and layers."""
    values = _profile_values(run, profile)
    if profile.served is not None and profile.served.levels:
        from inferometer.hub.web.pages.run_view import load_values  # noqa: PLC0415 - numpy's sums, for these runs alone

        values |= load_values(profile.served)
    return values


def _profile_values(run: Run, profile: Profile) -> dict[str, Any]:
    return {
        "run": run,
        "at": f"/runs/{run.id}",  # where the page finds its parts
        "profile": profile,
        "title": run.name or profile_title(profile),
        "subtitle": subtitle_of(profile),
        "badges": badges_of(profile),
        "cards": cards_of(profile),
        "phases": phase_rows(profile),
        "layers": layer_columns(profile),
        "charts": [chart for chart in charts_of(profile).values() if chart.shown],
        "percentiles": percentile_rows(profile),
        "memory": memory_parts(profile),
        "environment": environment_groups(profile),
    }


def proof_of(store: Store, run: Run) -> dict[str, Any] | None:
    """What was prepared, step by step, and its files; None where a run prepared nothing."""
    from inferometer.hub.web.pages.run_view import shown_table  # noqa: PLC0415 - only where something was prepared
    from inferometer.measure.prepare.run import Prepared  # noqa: PLC0415 - as above
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
    return [(metric.step / 1e3, metric.value) for metric in metrics if metric.name == HELD]


def subtitle_of(profile: Profile) -> str:
    named = _SIZES if profile.served is None else _SIZES[1:]  # a service batches as it likes
    sizes = [f"{name} {value}" for name in named if (value := getattr(profile.workload, name)) is not None]
    sizes += [f"{name} {value}" for name, value in profile.sizes.items()]
    where = place_of(profile)
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
    elif profile.kind == "measured" and profile.served is None:
        badges.append(("unverified", "quiet", "outputs were not compared with a reference: profile with --verify"))
    if environment is not None and environment.disturbed is not None:
        reasons = "; ".join(environment.reasons) or "the machine was quiet"
        badges.append(("disturbed", "bad", reasons) if environment.disturbed else ("quiet", "good", reasons))
    return tuple(badges)


def environment_groups(profile: Profile) -> list[tuple[str, list[tuple[str, str]]]]:
    """What it ran on and how, under headings that a person looks for; groups without facts are left out."""
    environment, provenance = profile.environment, profile.provenance
    groups: dict[str, list[tuple[str, Any]]] = {}
    if environment is not None:
        told = set() if environment.machine is None else _TOLD
        host = [(name, value) for name, value in environment.host.items() if name not in told]
        groups["Machine"] = [*_machine_rows(environment.machine), *(_humane(name, value) for name, value in host)]
        groups["Software"] = [*environment.versions.items()]
        groups["While it was measured"] = [
            ("threads", environment.threads), ("load before", environment.load_before),
            ("load after", environment.load_after), *(("disturbed", reason) for reason in environment.reasons),
            *(("energy", note) for note in energy_notes(environment)),
        ]  # fmt: skip
    if provenance is not None:
        groups["How it was made"] = [
            ("tool", f"{provenance.tool} {provenance.version}"), ("created", provenance.created),
            ("command", provenance.command), *(("note", note) for note in provenance.notes),
        ]  # fmt: skip
    known = ((title, [(n, environment_text(v)) for n, v in rows if v is not None]) for title, rows in groups.items())
    return [(title, rows) for title, rows in known if rows]


def _humane(name: str, value: Any) -> tuple[str, Any]:
    """A fact of the host by its name in the document, whose ending is the unit."""
    words, _, unit = name.rpartition("_")
    if isinstance(value, int | float) and not isinstance(value, bool) and words:
        if unit == "bytes":
            return words.replace("_", " "), format_capacity(value)
        if unit in _ENDINGS:
            return words.replace("_", " "), format_quantity(value, _ENDINGS[unit])
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return _CALLED.get(name) or name.replace("_", " "), value


def _machine_rows(machine: MachineFacts | None) -> Iterable[tuple[str, Any]]:
    if machine is None:
        return
    yield "machine", machine.title()
    for name in (field.name for field in fields(machine)):
        value = getattr(machine, name)
        if value not in {None, ()} and name != "name":
            text = format_capacity(value) if name == "memory_bytes" else value
            yield {"id": "machine id", "memory_bytes": "memory"}.get(name, name.replace("_", " ")), text


def _is_series(value: Any) -> bool:
    """Readings over time, which a chart shows and nobody reads."""
    return isinstance(value, list | tuple) and len(value) > _FEW and all(isinstance(one, int | float) for one in value)


def environment_text(value: Any) -> str:
    if isinstance(value, dict):
        parts = (_humane(str(name), item) for name, item in value.items() if not _is_series(item))
        return ", ".join(f"{name} {environment_text(item)}" for name, item in parts)
    if isinstance(value, list | tuple):
        return f"{len(value)} values" if _is_series(value) else ", ".join(map(environment_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""A judged profile → Explanation: where the time goes, what bounds it, the findings, what to do next."""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from inferometer.core.device import Device, is_local
from inferometer.core.finding import CODES, Finding
from inferometer.core.frozen import frozen
from inferometer.core.lazy import late
from inferometer.core.profile import COUNTED, Profile
from inferometer.core.units import format_quantity
from inferometer.understand.attribution import Breakdown, attribution, one_time
from inferometer.understand.case import Case, case_of
from inferometer.understand.roofline import Roofline

SCHEMA = "inferometer.explanation/1"
_WORK = {
    "compute": "arithmetic", "memory": "moving bytes", "link": "moving bytes over links", "storage": "reading the disk",
    "overhead": "overhead",
}  # fmt: skip


@frozen
class Explanation:
    """`next` lists commands to run."""

    profile: Profile
    headline: str
    tables: tuple[Breakdown, ...]
    roof: Roofline
    findings: tuple[Finding, ...]
    next: tuple[str, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<explanation of {self.profile.model.name}: {self.headline}>"

    def _repr_html_(self) -> str:
        return str(late("notebook", "explanation_html")(explanation_document(self)))


def explain(profile: Profile, *, notes: tuple[str, ...] = (), name: str | None = None) -> Explanation:
    """Explain a profile as it was judged: nothing is measured, chosen or predicted here.

    `name` is what the user calls the profile, for the commands to run next.
    """
    case = case_of(profile)
    # What bounds each op, according to the roofline; for one-time phases, according to the profile.
    of_phase: dict[str, list[str]] = {}
    for point in case.roof.ops:
        of_phase.setdefault(point.phase, []).append(point.regime)
    known = {
        id(op): regime
        for phase in case.profile.phases
        for op, regime in zip(phase.ops, of_phase.get(phase.name, ()), strict=False)
    }
    return Explanation(
        profile=profile,
        headline=_headline(case),
        tables=attribution(profile, bound=lambda op: known.get(id(op)) or op.bound or "unknown"),
        roof=case.roof,
        findings=profile.findings,
        next=tuple(dict.fromkeys(_next(case, profile.findings, name))),
        notes=(*notes, *(profile.provenance.notes if profile.provenance else ())),
    )


def _headline(case: Case) -> str:
    """One sentence: how long it takes, how far that is from the floor, what the time is spent on."""
    profile = case.profile
    phase = profile.steady
    if phase is None:
        return f"{profile.model.name}: the profile has no time of a run."
    what = {"decode": "a token", "forward": "a forward pass", "prefill": "reading the prompt"}.get(phase.name, "a run")
    verb = "should take" if profile.kind == "predicted" else "takes"
    parts = [f"{what[0].upper()}{what[1:]} {verb} {format_quantity(phase.time_s, 's')}"]
    if (times := phase.above_floor) is not None:
        parts.append(_above(times))
    if phase.counted < COUNTED:
        what = "of it is in ops" if profile.kind == "measured" else "of its ops are ones"
        return f"{parts[0]}, but {1 - phase.counted:.0%} {what} whose work is not known."
    known = {name: share for name, share in case.regimes(phase).items() if name != "unknown" and share >= 0.005}
    ranked = sorted(known.items(), key=lambda pair: -pair[1])
    shares = [f"{share:.0%} {'is ' if not index else ''}{_WORK[name]}" for index, (name, share) in enumerate(ranked)]
    if shares:
        parts.append(f"of which {', '.join(shares)}")
    return f"{', '.join(parts)}."


def _above(floors: float) -> str:
    if floors < 1:
        return "less than its floor"  # the roof was measured while the machine was busy; a note says so
    return f"{floors:,.0f} × its floor" if floors >= 100 else f"{floors:.2g} × its floor"


def _next(case: Case, findings: tuple[Finding, ...], name: str | None) -> Iterator[str]:
    profile = case.profile
    codes = {finding.code for finding in findings}
    quoted = shlex.quote(name) if name else None
    if "environment.noisy" in codes:
        yield "inferometer doctor"
    ours = profile.kind == "measured" and profile.provenance and profile.provenance.tool == "inferometer profile"
    if quoted and ours and any(finding.changes for finding in findings):
        yield f"inferometer explain {quoted} --try"
    if quoted and case.device is None:
        yield f"inferometer explain {quoted} --on DEVICE"
    changes = [finding.changes[0] for finding in findings if finding.gain is not None and _can_predict(finding.changes)]
    device = case.device.name if case.device else None
    if changes and device is not None and not is_local(device) and not profile.model.source:
        options = " ".join(f"--what-if {change}" for change in dict.fromkeys(changes))
        yield f"inferometer predict {shlex.quote(profile.model.name)} --on {device} {options}"
    if profile.kind == "predicted":
        yield f"inferometer profile {shlex.quote(profile.model.name)} --predict"
    if findings:
        yield f"inferometer explain {findings[0].code}"
    if (command := _preparing(profile, case.device, findings)) is not None:
        yield command


def _preparing(profile: Profile, device: Device | None, findings: Iterable[Finding]) -> str | None:
    """The command that carries a finding out, where one asks for a change."""
    changing = [finding for finding in findings if finding.changes]
    if not changing:
        return None
    from inferometer.understand.advice import prepare_command  # noqa: PLC0415 - it knows every tool, and takes a while

    return prepare_command(profile, device, changing)


def _can_predict(changes: tuple[str, ...]) -> bool:
    """Whether the first change is one that `predict --what-if` accepts."""
    return bool(changes) and changes[0].partition("=")[0] in {"weights", "activations", "kv", "batch", "runtime"}


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """The JSON document; the terminal's page is rendered from it too."""
    profile = explanation.profile
    # The machine a run was measured on, by its name and what ran there; otherwise the device.
    title = profile.device.title
    machine = profile.environment.machine if profile.environment else None
    place = machine.title(title) if machine else title or profile.device.name
    return {
        "schema": SCHEMA,
        "kind": profile.kind,
        "model": profile.model.name,
        "device": place,
        "runtime": profile.runtime,
        "workload": {
            key: value
            for key in ("batch", "prompt", "generate", "context", "image")
            if (value := getattr(profile.workload, key)) is not None
        }
        | dict(profile.sizes),
        "headline": explanation.headline,
        "summary": asdict(profile.summary),
        "once": [{"name": phase.name, "time_s": phase.time_s} for phase in one_time(profile)],
        "attribution": [_table(table) for table in explanation.tables],
        "roofline": _roof(explanation.roof),
        "findings": [_finding(finding) for finding in explanation.findings],
        "next": list(explanation.next),
        "notes": list(explanation.notes),
    }


def _table(table: Breakdown) -> dict[str, Any]:
    return {
        "by": table.by,
        "phase": table.phase,
        "whole_s": table.whole_s,
        "remainder_s": table.remainder_s,
        "remainder": table.remainder,
        "rows": [_flat(row) for row in table.rows],
    }


def _flat(value: Any) -> dict[str, Any]:
    """A value of plain fields as a dict. There are thousands, so without `asdict`'s deep copies."""
    return {name: getattr(value, name) for name in value.__slots__}


def _finding(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "evidence": dict(finding.evidence), "about": CODES[finding.code]}


def _roof(roof: Roofline) -> dict[str, Any]:
    return {
        "ceilings": [asdict(ceiling) for ceiling in roof.ceilings],
        "peak": asdict(roof.peak) if roof.peak else None,
        "memory": asdict(roof.memory) if roof.memory else None,
        "ridge_flop_per_byte": roof.ridge,
        "phases": [{**asdict(phase_roof.point), "regimes": dict(phase_roof.regimes)} for phase_roof in roof.phases],
        "ops": [_flat(point) for point in roof.ops],
    }

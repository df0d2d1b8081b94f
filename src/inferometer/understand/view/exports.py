"""A profile as text: its layers as CSV, and a summary in Markdown for a pull request."""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from inferometer.core.profile import OpTime
from inferometer.core.units import format_quantity
from inferometer.understand.view.phrases import headline_figures, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from inferometer.core.finding import Finding
    from inferometer.core.profile import Phase, Profile

_TOP = 10
_LISTS = {"samples_s", "layers"}
_COLUMNS = tuple(entry.name for entry in fields(OpTime) if entry.name not in _LISTS)
_RISKY = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run as a formula


def layers_csv(profile: Profile) -> str:
    """One line an op, the phase first; SI units, empty where not known. Names are safe to open in a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("phase", *_COLUMNS))
    for phase in profile.phases:
        for op in phase.ops:
            writer.writerow((phase.name, *(_cell(getattr(op, name)) for name in _COLUMNS)))
    return out.getvalue()


def requests_csv(profile: Profile) -> str:
    """One line a request of a load test, with the columns of a trace first; empty where not known."""
    from inferometer.understand.view.load_tests import REQUEST_COLUMNS, request_rows  # noqa: PLC0415 - numpy, for these alone

    out = io.StringIO()
    writer = csv.DictWriter(out, REQUEST_COLUMNS, lineterminator="\n")
    writer.writeheader()
    if profile.served is not None:
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in request_rows(profile.served))
    return out.getvalue()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_RISKY) else value


def markdown(profile: Profile, *, title: str | None = None, findings: Iterable[Finding] = ()) -> str:
    """The headline, the phases, the layers that take the most time and what was found."""
    where = place_of(profile)
    lines = [f"## {_plain(title or profile.model.name)}", ""]
    lines += [_plain(" · ".join(filter(None, (profile.kind, profile.model.name, where, profile.runtime)))), ""]
    lines += [f"- **{label}**: {value}" for label, value in _headline(profile)]
    lines += ["", *_table(("phase", "time", "predicted", "floor", "bound by"), map(_phase, profile.phases))]
    for phase in (phase for phase in profile.phases if phase.ops):
        lines += ["", f"**{_plain(phase.name)}**: the layers that take the most time", ""]
        top = sorted(phase.ops, key=lambda op: -op.time_s)[:_TOP]
        head = ("layer", "kind", "unit", "time", "share", "predicted", "floor")
        lines += _table(head, (_layer(op, phase) for op in top))
    noticed = [*findings] or [*profile.findings]
    if noticed:
        lines += ["", "**Findings**", "", *(f"- {_finding(finding)}" for finding in noticed)]
    return "\n".join(lines) + "\n"


def _headline(profile: Profile) -> Iterator[tuple[str, str]]:
    yield from headline_figures(profile.summary)
    environment = profile.environment
    if environment is not None and environment.disturbed:
        yield "disturbed", _plain("; ".join(environment.reasons) or "yes")


def _phase(phase: Phase) -> Sequence[str]:
    times = (format_quantity(value, "s") if value is not None else "" for value in (phase.predicted_s, phase.floor_s))
    return (phase.name, format_quantity(phase.time_s, "s"), *times, phase.bound or "")


def _layer(op: OpTime, phase: Phase) -> Sequence[str]:
    share = f"{op.time_s / phase.time_s:.1%}" if phase.time_s > 0 else ""
    times = (format_quantity(value, "s") if value is not None else "" for value in (op.predicted_s, op.floor_s))
    return (op.name, op.kind, op.unit or "", format_quantity(op.time_s, "s"), share, *times)


def _finding(finding: Finding) -> str:
    gain = f" Predicted gain: {finding.gain:.2f} ×." if finding.gain is not None else ""
    return _plain(f"{finding.severity}: {finding.title}. {finding.advice or ''}{gain}")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(_plain(cell) for cell in row)} |"


def _plain(text: str) -> str:
    """Text that is neither markup nor a cell's end where Markdown is drawn."""
    for letter, written in (("\\", "\\\\"), ("|", "\\|"), ("`", "\\`"), ("<", "&lt;"), (">", "&gt;"), ("\n", " ")):
        text = text.replace(letter, written)
    return text

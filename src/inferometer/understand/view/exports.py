"""A profile as text: its layers as CSV, and a summary in Markdown for a pull request."""

import csv
import io
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from inferometer.core.finding import Finding
from inferometer.core.profile import OpTime, Profile
from inferometer.understand.view.cards import view_of
from inferometer.understand.view.render import markdown_table

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
    """A profile for a pull request: what `view_of` lays out, and what was found."""
    view = view_of(profile)
    lines = [f"## {_plain(title or profile.model.name)}", "", _plain(f"{view.card.title}: {view.card.subtitle}"), ""]
    for label, value, remark in view.card.facts:
        lines.append(f"- **{_plain(label)}**: {_plain(value)}{remark and f' ({_plain(remark)})'}")
    for table in (table for table in (*view.tables, *view.more) if table.rows):
        lines += ["", f"**{_plain(table.title)}**", ""] if table.title else [""]
        lines += [markdown_table(table, _plain)]
        lines += ["", _plain(table.note)] if table.note else []
    noticed = [*findings] or [*profile.findings]
    if noticed:
        lines += ["", "**Findings**", "", *(f"- {_finding(finding)}" for finding in noticed)]
    notes = [note for note in view.card.sources if not any(finding.title in note for finding in noticed)]
    lines += ["", *(f"- {_plain(note)}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _finding(finding: Finding) -> str:
    gain = f" Predicted gain: {finding.gain:.2f} ×." if finding.gain is not None else ""
    return _plain(f"{finding.severity}: {finding.title}. {finding.advice or ''}{gain}")


def _plain(text: str) -> str:
    """Text that is neither markup nor a cell's end where Markdown is drawn."""
    for letter, written in (("\\", "\\\\"), ("|", "\\|"), ("`", "\\`"), ("<", "&lt;"), (">", "&gt;"), ("\n", " ")):
        text = text.replace(letter, written)
    return text

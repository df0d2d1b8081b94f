"""A profile as text: its layers as CSV, and a summary in Markdown for a pull request, as of any other value."""

from collections.abc import Iterable, Sequence

from inferometer.core.finding import Finding
from inferometer.core.profile import Profile
from inferometer.understand.view.cards import View, view_of
from inferometer.understand.view.profiles import record_table
from inferometer.understand.view.render import markdown_table, render
from inferometer.understand.view.terminal import plain_text


def profile_csv(profile: Profile) -> str:
    """A line an op, the phase first; of a load test a line a request. SI units, empty where not known."""
    return render(record_table(profile), "csv") + "\n"


def markdown(profile: Profile, *, title: str | None = None, findings: Iterable[Finding] = ()) -> str:
    """A profile for a pull request: what `view_of` lays out, and what was found."""
    return view_markdown(view_of(profile), title or profile.model.name, [*findings] or [*profile.findings])


def view_markdown(view: View, title: str, findings: Sequence[Finding] = ()) -> str:
    about = filter(None, (view.card.title, view.card.subtitle))
    lines = [f"## {_plain(title)}", "", *map(_plain, ": ".join(about).split("\n")), ""]
    for label, value, remark in view.card.facts:
        lines.append(f"- **{_plain(label)}**: {_plain(value)}{remark and f' ({_plain(remark)})'}")
    for table in (table for table in (*view.tables, *view.more) if table.rows):
        lines += ["", f"**{_plain(table.title)}**", ""] if table.title else [""]
        lines += [markdown_table(table, _plain)]
        lines += ["", _plain(table.note)] if table.note else []
    if view.timeline:
        heading, _, bars = view.timeline.partition("\n")
        lines += ["", f"**{heading}**", "", "```text", bars, "```"]
    if findings:
        lines += ["", "**Findings**", "", *(f"- {_finding(finding)}" for finding in findings)]
    notes = [note for note in view.card.sources if not any(finding.title in note for finding in findings)]
    lines += ["", *(f"- {_plain(note)}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _finding(finding: Finding) -> str:
    gain = f" Predicted gain: {finding.gain:.2f} ×." if finding.gain is not None else ""
    return _plain(f"{finding.severity}: {finding.title}. {finding.advice or ''}{gain}")


def _plain(text: str) -> str:
    """Text that is neither markup nor a cell's end where Markdown is drawn, and that no terminal obeys."""
    text = plain_text(text)
    for letter, written in (("\\", "\\\\"), ("|", "\\|"), ("`", "\\`"), ("<", "&lt;"), (">", "&gt;"), ("\n", " ")):
        text = text.replace(letter, written)
    return text

"""The explanation of a profile, for a page: where the time goes and what to do.

A page must appear even if the explanation of an odd profile fails, so what goes wrong here is left out, not raised.
"""

from typing import Any

from inferometer.core.errors import InferometerError
from inferometer.core.finding import Finding
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile
from inferometer.understand.attribution import Breakdown

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

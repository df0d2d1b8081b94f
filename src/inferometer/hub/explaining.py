"""The seam to `explain`: where the time goes and what to do, where that can be had, and nothing where it cannot.

A page must show even where the explanation of one odd profile fails, so what goes wrong there is left out, not raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferometer.core.finding import Finding
from inferometer.errors import InferometerError

if TYPE_CHECKING:
    from inferometer.core.profile import Profile

_MOST_ROWS = 8
_UNREADABLE = (InferometerError, ArithmeticError, ValueError)  # odd numbers of an odd profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """`tables` close: each has its rows, the largest first, and what no row has."""

    headline: str | None = None
    findings: tuple[Finding, ...] = ()
    tables: tuple[dict[str, Any], ...] = ()
    next: tuple[str, ...] = ()


def explained(profile: Profile, *, name: str | None = None) -> Explained:
    """What is known of a profile beyond its numbers; at the least, the findings that it carries itself."""
    from inferometer.verbs.explanations import explained as explain  # noqa: PLC0415 - with the first explanation

    try:
        found = explain(profile, name=name)
    except _UNREADABLE:
        return Explained(findings=profile.findings)
    return Explained(
        headline=found.headline,
        findings=found.findings,
        tables=tuple(_table(each) for each in found.tables if each.rows),
        next=found.next,
    )


def _table(found: Any) -> dict[str, Any]:
    rows = [{"name": row.name, "time_s": row.time_s, "share": row.share, "count": row.count} for row in found.rows]
    shown, left = rows[:_MOST_ROWS], rows[_MOST_ROWS:]
    if left:
        rest = {key: sum(row[key] for row in left) for key in ("time_s", "share", "count")}
        shown.append({"name": f"{len(left)} more", **rest})
    return {
        "by": found.by,
        "phase": found.phase,
        "whole_s": found.whole_s,
        "rows": shown,
        "remainder": found.remainder,
        "remainder_s": found.remainder_s,
        "remainder_share": found.remainder_share,
    }

"""The catalog of findings: a small function for each code, Case → Finding or None, and the order they are shown in."""

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

from inferometer.core.errors import CatalogError, UnknownNameError
from inferometer.core.finding import CODES, SEVERITIES, Finding
from inferometer.core.frozen import frozen
from inferometer.understand.case import Case
from inferometer.understand.findings import bounds, overheads, times

__all__ = ["FINDERS", "Finder", "findings_of"]

Finder = Callable[[Case], Finding | None]


def _finders() -> dict[str, Finder]:
    """Each function of these modules from a Case to a Finding, by its code: memory_kv_cache finds memory.kv-cache."""
    functions = [each for module in (bounds, overheads, times) for each in vars(module).items()]
    return {
        name.replace("_", ".", 1).replace("_", "-"): function
        for name, function in functions
        if not name.startswith("_") and getattr(function, "__annotations__", {}).get("return") == Finding | None
    }


FINDERS = _finders()
_IN_DOUBT = ("outputs.wrong", "memory.does-not-fit", "environment.noisy")  # they cast doubt on every other number
_ONCE = ("load.dominates", "load.storage-bound")  # their seconds are paid once, not in a request


def findings_of(case: Case) -> tuple[Finding, ...]:
    """Every finding: by severity, then what casts doubt on the rest, then by the seconds at stake."""
    findings = [finding for finder in FINDERS.values() if (finding := finder(case)) is not None]
    return tuple(sorted(findings, key=_rank))


def _rank(finding: Finding) -> tuple[int, bool, bool, float, str]:
    severity = SEVERITIES.index(finding.severity)
    doubtful, once = finding.code in _IN_DOUBT, finding.code in _ONCE
    return -severity, not doubtful, once, -(finding.stake_s or 0.0), finding.code


# A page for each finding's code: what it is, its evidence, why it happens, what to do, and how certain it is.

_FILE = Path(__file__).parent / "findings.toml"
PARTS = ("evidence", "why", "do", "sure")


@frozen
class FindingPage:
    """`what` is the code's sentence in `core/finding.py`; the rest comes from `findings.toml`."""

    code: str
    what: str
    evidence: str
    why: str
    do: str
    sure: str


@cache
def pages() -> dict[str, FindingPage]:
    """Every code has a page, and every page belongs to a known code."""
    rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    if rows.keys() != CODES.keys():
        odd = ", ".join(sorted(rows.keys() ^ CODES.keys()))
        raise CatalogError(f"{_FILE.name} and the codes of findings do not agree: {odd}.")
    return {
        code: FindingPage(code=code, what=what, **{part: rows[code][part] for part in PARTS})
        for code, what in CODES.items()
    }


def finding_page(code: str) -> FindingPage:
    known = pages()
    if code not in known:
        raise UnknownNameError("finding", code, known)
    return known[code]

"""A page for each finding's code: what it is, its evidence, why it happens, what to do, and how certain it is."""

import tomllib
from functools import cache
from pathlib import Path

from inferometer.core.errors import CatalogError, UnknownNameError
from inferometer.core.finding import CODES
from inferometer.core.frozen import frozen

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

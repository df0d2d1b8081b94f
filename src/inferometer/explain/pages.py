"""A page for each code: what it is, the evidence, why it happens, what to do, and how sure that is."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from inferometer.core.finding import CODES
from inferometer.core.frozen import frozen
from inferometer.errors import CatalogError, UnknownNameError

_FILE = Path(__file__).parent / "findings.toml"
PARTS = ("evidence", "why", "do", "sure")


@frozen
class Page:
    """`what` is the code's own sentence; the rest are rows of `findings.toml`."""

    code: str
    what: str
    evidence: str
    why: str
    do: str
    sure: str


@cache
def pages() -> dict[str, Page]:
    """Every code has a page, and no page is of a code that is not known."""
    rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    if rows.keys() != CODES.keys():
        odd = ", ".join(sorted(rows.keys() ^ CODES.keys()))
        raise CatalogError(f"{_FILE.name} and the codes of findings do not agree: {odd}.")
    return {
        code: Page(code=code, what=what, **{part: rows[code][part] for part in PARTS}) for code, what in CODES.items()
    }


def page(code: str) -> Page:
    known = pages()
    if code not in known:
        raise UnknownNameError("finding", code, known)
    return known[code]

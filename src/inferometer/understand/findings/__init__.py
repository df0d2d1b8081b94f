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
from inferometer.understand.findings import bounds as placement
from inferometer.understand.findings import overheads as tokens

__all__ = ["FINDERS", "Finder", "findings_of"]

Finder = Callable[[Case], Finding | None]

FINDERS: dict[str, Finder] = {
    "attention.grows": tokens.attention_grows,
    "batch.small": bounds.batch_small,
    "communication.bound": overheads.communication_bound,
    "compute.bound": bounds.compute_bound,
    "environment.noisy": times.environment_noisy,
    "experts.imbalance": tokens.experts_imbalance,
    "host.copies": overheads.host_copies,
    "host.gap": overheads.host_gap,
    "latency.drift": times.latency_drift,
    "latency.first-token": tokens.latency_first_token,
    "latency.tail": times.latency_tail,
    "launch.bound": overheads.launch_bound,
    "layout.moves": overheads.layout_moves,
    "load.dominates": times.load_dominates,
    "load.storage-bound": times.load_storage_bound,
    "memory.bound": bounds.memory_bound,
    "memory.does-not-fit": placement.memory_does_not_fit,
    "memory.kv-cache": placement.memory_kv_cache,
    "memory.nearly-full": placement.memory_nearly_full,
    "op.dominates": times.op_dominates,
    "optimisation.off": times.optimisation_off,
    "outputs.wrong": times.outputs_wrong,
    "padding.waste": overheads.padding_waste,
    "placement.fallback": placement.placement_fallback,
    "quantisation.overhead": overheads.quantisation_overhead,
    "threads.too-few": placement.threads_too_few,
    "threads.too-many": placement.threads_too_many,
    "utilisation.low": bounds.utilisation_low,
}
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

"""Findings: what was noticed, the numbers behind it, what to do, and what that would gain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

__all__ = ["CODES", "SEVERITIES", "Finding", "Severity"]

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

# Every code a finding may have, and what it means. docs/findings.md is made from this.
CODES: dict[str, str] = {
    "memory.does-not-fit": (
        "The model, its cache and its activations need more memory than the device has. The times are those it would "
        "have if it fitted. Use fewer bits a weight, a shorter context, a smaller batch, or more devices."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    code: str
    severity: Severity
    title: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    advice: str | None = None
    gain: float | None = None  # predicted speed-up: 1.3 is 30 % faster
    gain_low: float | None = None
    gain_high: float | None = None

"""Findings: what was noticed, the numbers behind it, what to do, and what that would gain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

__all__ = ["SEVERITIES", "Finding", "Severity"]

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


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

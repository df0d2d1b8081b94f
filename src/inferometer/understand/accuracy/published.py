"""What the fit of the priors is off by on published steps that were left out of it: read from its committed results."""

from __future__ import annotations

from functools import cache

import msgspec

from inferometer.measure.calibrate.priors.judged import JudgedSteps
from inferometer.understand.accuracy.cases import CASES

RESULTS = (CASES / "published-left-out.json", CASES / "published-tokens-left-out.json")


@cache
def left_out_results() -> tuple[JudgedSteps, ...]:
    """As `python -m inferometer.measure.calibrate.priors` wrote them: one row a group and way of leaving out."""
    read = (msgspec.json.decode(path.read_bytes(), type=tuple[JudgedSteps, ...]) for path in RESULTS)
    return tuple(group for groups in read for group in groups)

"""What the fit of the priors is off by on published steps that were left out of it: read from its committed results."""

from __future__ import annotations

from functools import cache

import msgspec

from inferometer.accuracy.cases import CASES
from inferometer.calibrate.priors.judged import JudgedSteps

RESULTS = (CASES / "published-left-out.json", CASES / "published-tokens-left-out.json")


@cache
def left_out_results() -> tuple[JudgedSteps, ...]:
    """As `python -m inferometer.calibrate.priors` wrote them: one row a group and way of leaving out."""
    read = (msgspec.json.decode(path.read_bytes(), type=tuple[JudgedSteps, ...]) for path in RESULTS)
    return tuple(group for groups in read for group in groups)

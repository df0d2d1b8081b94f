"""Service-level objectives as people write them: `ttft<=500ms` of every request, `tpot_p95<=50ms` of 95 % of them."""

import re
from typing import get_args, get_type_hints

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.served import Objective
from inferometer.core.units import parse_quantity

METRICS: tuple[str, ...] = get_args(get_type_hints(Objective)["metric"])
_FORM = re.compile(r"^\s*(\w+?)(?:_p(\d+(?:\.\d+)?))?\s*(?:<=|<|≤)\s*(.+?)\s*$", re.IGNORECASE)
_REMEDY = "Write ttft<=500ms for every request, or tpot_p95<=50ms for 95 % of them; there is ttft, tpot, itl and e2e."


def parse_objective(text: str) -> Objective:
    matched = _FORM.match(text)
    if matched is None or matched[1].lower() not in METRICS:
        raise DomainError(f"{text!r} is not an objective.", remedy=_REMEDY)
    share = None if matched[2] is None else round(float(matched[2]) / 100, 9)
    if share is not None and not 0 < share < 1:
        raise DomainError(f"{text!r} asks for a percentile that is not between 0 and 100.", remedy=_REMEDY)
    try:
        limit = parse_quantity(matched[3], "s")
    except InferometerError as error:
        raise DomainError(f"{text!r} is not an objective: {error.message}", remedy=_REMEDY) from None
    if not limit > 0:
        raise DomainError(f"{text!r} asks for a time that is not greater than 0.", remedy=_REMEDY)
    return Objective(metric=matched[1].lower(), share=share, limit_s=limit)  # type: ignore[arg-type] # checked above

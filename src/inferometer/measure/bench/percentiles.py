"""A percentile between two readings: an interval that holds for any distribution, and stays open where it must.

How many of n independent readings lie below the p-th percentile is binomial, B(n, p). So the percentile lies at or
above the l-th reading, and below the u-th, with a chance that the binomial gives, whatever the times are distributed
like (Hahn & Meeker 1991, section 5.2). Of few readings none lies surely above a high percentile: the upper end is then
open, and the honest answer is "at least".
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from inferometer.core import statistics as plain
from inferometer.core.errors import DomainError
from inferometer.core.profile import Phase
from inferometer.core.statistics import Percentile
from inferometer.measure.bench.statistics import autocorrelation_time


def percentile_between(
    values: Sequence[float], share: float, *, confidence: float = 0.95, alike: float | None = None
) -> Percentile:
    """A percentile of readings with its interval, equal chances of error on both sides.

    Readings that follow each other may be alike: `alike` of them (by default the autocorrelation time) count as one
    independent reading, and the ends move out accordingly. The value itself is given where so many were taken that one
    of them is to be expected beyond it: P99 from 100 on, though both ends of its interval need about 370.
    """
    if not 0 < share < 1:
        raise DomainError(f"A percentile lies between 0 and 100, and {100 * share:g} was asked for.")
    if not 0 < confidence < 1:
        raise DomainError(f"A confidence lies between 0 and 1, and is {confidence!r}.")
    ordered = plain.ordered(values)
    count = len(ordered)
    independent = max(1, math.floor(count / (autocorrelation_time(values) if alike is None else alike)))
    low, high = order_ranks(independent, share, confidence)
    at_least = None if low is None else ordered[(low - 1) * count // independent]
    at_most = None if high is None else ordered[-(-high * count // independent) - 1]
    reached = independent * min(share, 1 - share) >= 1  # a reading is to be expected beyond it
    return Percentile(
        share=share,
        value=plain.percentile_of(ordered, share) if reached else None,
        low=at_least,
        high=at_most,
        confidence=confidence,
        count=count,
        needed=math.ceil(plain.needed(share) * count / independent),
    )


def order_ranks(count: int, share: float, confidence: float) -> tuple[int | None, int | None]:
    """The ranks, from 1, of the readings between which a percentile lies; None where no reading bounds it."""
    beyond = (1 - confidence) / 2
    below = _quantile(count, share, beyond)
    above = count - _quantile(count, 1 - share, beyond) + 1  # the same from the other end
    return below or None, above if above <= count else None


def _quantile(count: int, share: float, chance: float) -> int:
    """The least k with P(B ≤ k) ≥ `chance`, for B readings of `count` below the percentile."""
    total, odds = 0.0, math.log(share) - math.log1p(-share)
    log_mass = count * math.log1p(-share)  # of B = 0; each next one from the one before, in logarithms
    for k in range(count):
        total += math.exp(log_mass)
        if total >= chance:
            return k
        log_mass += math.log((count - k) / (k + 1)) + odds
    return count


def percentile_documents(phase: Phase, shares: Iterable[float]) -> list[dict[str, Any]]:
    """A phase's percentiles for a JSON document, in seconds; an end that is open is null."""
    found = (percentile_between(phase.samples_s or (), share) for share in shares)
    return [
        {
            "percentile": round(100 * each.share, 9),
            "value_s": each.value,
            "low_s": each.low,
            "high_s": each.high,
            "confidence": each.confidence,
            "samples": each.count,
        }
        for each in found
    ]

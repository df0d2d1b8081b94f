"""Statistics of plain sequences of numbers, with the standard library alone.

**When a percentile is given.** A sample says nothing about a percentile that may lie beyond all its readings. The
chance that all n readings fall below the p-th percentile is pⁿ (above it: (1 − p)ⁿ). `supported` asks that both are at
most 2.5 %, so that a two-sided 95 % interval between order statistics exists: p50 from 6 readings, p90 from 36, p95
from 72, p99 from 368, p99.9 from 3688. Below that the answer is None, not a guess.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen

# Standard deviations on each side that hold so many readings of a normal distribution.
EIGHT_IN_TEN, NINE_IN_TEN = 1.2816, 1.645

# Raw readings, and the statistics made of them. Each statistic has its name; one the sample cannot support is None.


@frozen
class Sample:
    """Readings in the order they were taken; warm-up is not among them."""

    name: str
    unit: str
    values: tuple[float, ...]


@frozen
class Interval:
    low: float
    high: float
    confidence: float


@frozen
class Percentile:
    """A percentile and the readings it lies between. An end is None where no reading bounds it.

    The value is None where there are so few readings that none is to be expected beyond it.
    `needed` is about how many such readings give both ends.
    """

    share: float
    value: float | None
    low: float | None
    high: float | None
    confidence: float
    count: int
    needed: int


@frozen
class Summary:
    """`std` has n − 1 in its denominator; percentiles are linear between ranks (Hyndman–Fan 7).

    Intervals are bootstrapped. Outliers lie outside Tukey's fences. `exclusive` is the total without what nested spans
    took. Rates divide by the total. Drift is Theil–Sen's slope, `drift_share` its sum over the run as a share of the
    median, `drift_p_value` Mann–Kendall's. `steady_from` is the first reading of the steady part.
    """

    name: str
    unit: str
    count: int
    total: float
    min: float
    max: float
    mean: float
    median: float
    std: float | None = None
    mad: float | None = None
    cv: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p999: float | None = None
    mean_interval: Interval | None = None
    median_interval: Interval | None = None
    outliers: int | None = None
    drift_per_run: float | None = None
    drift_share: float | None = None
    drift_p_value: float | None = None
    steady_from: int | None = None
    exclusive: float | None = None
    per_s: float | None = None
    tokens_per_s: float | None = None
    bytes_per_s: float | None = None
    flop_per_s: float | None = None


FENCE_REACH = 1.5  # Tukey's fences stand this many interquartile ranges beyond the quartiles
_BEYOND = 0.025  # the chance we allow that a whole sample lies on one side of the percentile it is asked for


def total(values: Sequence[float]) -> float:
    """The exact sum, rounded once."""
    return math.fsum(values)


def mean(values: Sequence[float]) -> float:
    _require_readings(values)
    return math.fsum(values) / len(values)


def ordered(values: Sequence[float]) -> list[float]:
    """The readings sorted; one that is not a finite number has no place in the order and is refused."""
    _require_readings(values)
    if not all(map(math.isfinite, values)):
        wrong = next(value for value in values if not math.isfinite(value))
        raise DomainError(f"A statistic was asked of readings that hold {wrong}.")
    return sorted(values)


def median(values: Sequence[float]) -> float:
    """The middle reading; of an even number of them, the mean of the two in the middle."""
    return percentile_of(ordered(values), 0.5)


def percentile_of(ordered: Sequence[float], p: float) -> float:
    """Of sorted readings, linear between ranks (Hyndman–Fan 7). Whether the sample supports it is not asked here."""
    _require_readings(ordered)
    _require_share(p)
    position = (len(ordered) - 1) * p
    below = math.floor(position)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    part = position - below
    # Weighted from the nearer end, so that equal neighbours stay equal and the result stays between them.
    return low + part * (high - low) if part < 0.5 else high - (1 - part) * (high - low)


def percentile(values: Sequence[float], p: float) -> float | None:
    """The percentile, or None where there are too few readings (see the module's rule)."""
    return percentile_of(ordered(values), p) if supported(p, len(values)) else None


def supported(p: float, count: int) -> bool:
    return count >= needed(p)


@lru_cache(maxsize=64)
def needed(p: float) -> int:
    """The smallest sample that supports a percentile: the least n with max(p, 1 − p)ⁿ ≤ 2.5 %."""
    _require_share(p)
    side = max(p, 1 - p)
    if side == 1:
        return 1  # the minimum and the maximum are readings, not estimates
    return math.ceil(math.log(_BEYOND) / math.log(side) - 1e-9)


def std(values: Sequence[float]) -> float | None:
    """The sample standard deviation, n − 1 in the denominator. One reading has none."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, unscaled: × 1.4826 it estimates a normal σ."""
    centre = median(values)
    return median([abs(value - centre) for value in values])


def cv(values: Sequence[float]) -> float | None:
    """Standard deviation over the mean; None for one reading, and where the mean is 0."""
    spread, centre = std(values), mean(values)
    return None if spread is None or centre == 0 else spread / abs(centre)


def fences(values: Sequence[float], *, reach: float = FENCE_REACH) -> tuple[float, float]:
    """Tukey's fences: the quartiles, and `reach` interquartile ranges beyond them on either side."""
    in_order = ordered(values)
    low, high = percentile_of(in_order, 0.25), percentile_of(in_order, 0.75)
    return low - reach * (high - low), high + reach * (high - low)


def outliers(values: Sequence[float], *, reach: float = FENCE_REACH) -> tuple[int, ...]:
    """The positions of the readings outside the fences."""
    low, high = fences(values, reach=reach)
    return tuple(index for index, value in enumerate(values) if not low <= value <= high)


def slope(values: Sequence[float]) -> float | None:
    """Least-squares change from one reading to the next; None for fewer than two."""
    count = len(values)
    if count < 2:
        return None
    middle, centre = (count - 1) / 2, mean(values)
    rise = math.fsum((index - middle) * (value - centre) for index, value in enumerate(values))
    return rise / (count * (count * count - 1) / 12)  # Σ(i − middle)² of 0 … n−1


def _require_readings(values: Sequence[float]) -> None:
    if len(values) == 0:
        raise DomainError("A statistic was asked of no readings.")


def _require_share(p: float) -> None:
    if not 0 <= p <= 1:
        raise DomainError(f"A percentile is a share from 0 to 1, and {p!r} was asked for.", remedy="0.95 is the 95th.")


# Few readings: Student's distribution.

_NEARLY_NORMAL = 500


def _student_within(angle: float, freedom: int) -> float:
    """P(|T| ≤ √freedom · tan(angle)): the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@lru_cache(maxsize=256)
def student_quantile(confidence: float, freedom: int) -> float:
    """The t within which a share `confidence` of Student's distribution lies, to both sides."""
    if freedom > _NEARLY_NORMAL:
        from statistics import NormalDist  # noqa: PLC0415 - it loads random numbers, and a prediction asks for none

        return NormalDist().inv_cdf((1 + confidence) / 2)
    low, high = 0.0, math.pi / 2  # atan(t / √freedom), so that the range is bounded
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_within(middle, freedom) < confidence else (low, middle)
    return math.tan(low) * math.sqrt(freedom)

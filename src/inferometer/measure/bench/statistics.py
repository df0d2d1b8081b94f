"""Statistics of runs that numpy makes quick: intervals, settling, drift, and what a sample can detect.

The plain ones (median, percentiles, spread, fence) are in `core.statistics`; rank tests are in `ranks`.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from inferometer.core import statistics as plain
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Phase
from inferometer.core.statistics import Interval, Percentile, Summary, student_quantile
from inferometer.measure.bench.ranks import Floats, Readings, average_ranks, mann_whitney, two_sided

Statistic = Literal["mean", "median"]

RESAMPLES = 2000
_PERCENTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_LEAST_TO_FENCE = 4  # fewer have no quartiles worth the name
_CHUNK = 4_000_000  # readings resampled at a time: 32 MB
_MANY = 5000  # beyond this the median's resampled rank is as good as normal
_BLOCKS = 500
_LEAST_TO_CORRELATE = 8
_LEAST_TO_SETTLE = 10
_SETTLED_BY_CHANCE = 0.01


@frozen
class Drift:
    """`per_run` is the slope in the readings' unit; `share` the change from first to last run, of the median."""

    per_run: float
    share: float
    p_value: float


def summarise(  # noqa: PLR0913 - what a throughput is of
    values: Sequence[float],
    *,
    name: str,
    unit: str = "s",
    tokens: float | None = None,
    nbytes: float | None = None,
    flops: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Summary:
    """Every statistic that the readings support; the others are None. `tokens`, `nbytes`, `flops` are of one run."""
    ordered = plain.ordered(values)
    n, total = len(values), plain.total(values)
    rate = n / total if total > 0 and unit == "s" else None
    trend = drift(values)
    return Summary(
        name=name,
        unit=unit,
        count=n,
        total=total,
        min=ordered[0],
        max=ordered[-1],
        mean=plain.mean(values),
        median=plain.percentile_of(ordered, 0.5),
        std=plain.std(values),
        mad=plain.mad(values) if n > 1 else None,
        cv=plain.cv(values),
        **{
            label: plain.percentile_of(ordered, p) if plain.supported(p, n) else None
            for label, p in _PERCENTILES.items()
        },
        mean_interval=bootstrap_interval(values, "mean", confidence=confidence, seed=seed),
        median_interval=bootstrap_interval(values, "median", confidence=confidence, seed=seed),
        outliers=len(plain.outliers(values)) if n >= _LEAST_TO_FENCE else None,
        drift_per_run=trend.per_run if trend else None,
        drift_share=trend.share if trend else None,
        drift_p_value=trend.p_value if trend else None,
        steady_from=steady_from(values),
        per_s=rate,
        tokens_per_s=_times(rate, tokens),
        bytes_per_s=_times(rate, nbytes),
        flop_per_s=_times(rate, flops),
    )


def _times(rate: float | None, count: float | None) -> float | None:
    return None if rate is None or count is None else rate * count


def autocorrelation_time(values: Readings) -> float:
    """How many consecutive readings say as much as one independent one; 1 for independent readings.

    Geyer's initial monotone sequence on the ranks: neighbouring autocorrelations are summed in pairs while the pairs
    stay positive, and none counts for more than the one before it. Ranks, so that one outlier does not hide the rest.
    """
    n = len(values)
    if n < _LEAST_TO_CORRELATE:
        return 1.0
    ranks, _ = average_ranks(np.asarray(values, dtype=np.float64))
    centred = ranks - ranks.mean()
    spectrum = np.fft.rfft(centred, 2 * n)
    covariances = np.fft.irfft(spectrum * spectrum.conj())[:n]
    if covariances[0] <= 0:
        return 1.0
    correlations = covariances / covariances[0]
    pairs = correlations[0 : n - 1 : 2] + correlations[1:n:2]
    ended = np.flatnonzero(pairs <= 0)
    kept = np.minimum.accumulate(pairs[: ended[0]] if len(ended) else pairs)
    return float(min(max(2 * kept.sum() - 1, 1.0), n / 2))


def widening(runs: int, alike: float, *, confidence: float) -> float:
    """How much wider an interval from `runs` readings is, if `alike` of them say as much as one independent reading.

    The square root of `alike`, and Student's t for the few readings that remain in place of that for all of them.
    """
    if alike <= 1:
        return 1.0
    few = max(math.floor(runs / alike) - 1, 1)
    return math.sqrt(alike) * student_quantile(confidence, few) / student_quantile(confidence, max(runs - 1, 1))


def bootstrap_interval(
    values: Readings,
    statistic: Statistic = "median",
    *,
    confidence: float = 0.95,
    seed: int = 0,
    alike: float | None = None,
) -> Interval | None:
    """Percentile bootstrap; None for fewer than two readings.

    It is widened for runs that are alike because they follow each other (`alike`, by default the autocorrelation time):
    resampling them one by one would claim too much. The lower end of readings above zero is widened by a factor, so
    that no time becomes negative.
    """
    if not 0 < confidence < 1:
        raise DomainError(f"A confidence lies between 0 and 1, and is {confidence!r}.")
    data = np.asarray(values, dtype=np.float64)
    if len(data) < 2:
        return None
    middle = float(np.median(data) if statistic == "median" else np.mean(data))
    resampled = _resampled(data, statistic, np.random.default_rng(seed))
    low, high = np.quantile(resampled, ((1 - confidence) / 2, (1 + confidence) / 2))
    wide = widening(len(data), autocorrelation_time(values) if alike is None else alike, confidence=confidence)
    above_zero = float(data.min()) > 0
    return Interval(
        low=middle * (float(low) / middle) ** wide if above_zero else middle - (middle - float(low)) * wide,
        high=middle + (float(high) - middle) * wide,
        confidence=confidence,
    )


def _resampled(data: Floats, statistic: Statistic, generator: np.random.Generator) -> Floats:
    n = len(data)
    if n > _MANY:
        # The same distribution without the resamples: a mean's is normal, and so is the rank of a median.
        n = len(data)
        drawn = generator.standard_normal(RESAMPLES)
        if statistic == "mean":
            return np.asarray(np.mean(data) + drawn * np.std(data) / math.sqrt(n))
        shares = np.clip(0.5 + drawn / (2 * math.sqrt(n)), 0.0, 1.0)
        return np.asarray(np.quantile(data, shares))
    function = np.median if statistic == "median" else np.mean
    rows = max(_CHUNK // n, 1)
    parts = [
        function(data[generator.integers(0, n, size=(min(rows, RESAMPLES - start), n))], axis=1)
        for start in range(0, RESAMPLES, rows)
    ]
    return np.concatenate(parts)


def is_steady(values: Readings, *, window: int = 5, tolerance: float = 0.02) -> bool:
    """Whether warm-up is over: the last runs are as fast as those before them.

    The medians of the last two windows differ by no more than `tolerance`, or by no more than their own noise would
    make them differ (two standard errors, from the median absolute deviation).
    """
    if len(values) < 2 * window:
        return False
    last, before = np.asarray(values[-window:]), np.asarray(values[-2 * window : -window])
    middle = float(np.median(last))
    if middle <= 0:
        return True
    deviations = np.concatenate([np.abs(last - middle), np.abs(before - np.median(before))])
    noise = 1.4826 * float(np.median(deviations)) / middle
    allowed = max(tolerance, 2 * noise * math.sqrt(math.pi / 2) * math.sqrt(2 / window))
    return abs(float(np.median(before)) / middle - 1) <= allowed


def steady_from(values: Readings) -> int | None:
    """The first run of the steady part: 0 where it was steady at once, None where it never was (or too few to say).

    The head that is cut makes the standard error of the rest's mean least (MSER, White 1997), at most half of the
    runs; readings are drawn in to the 5th and 95th percentile first, so that a late outlier is not taken for the end of
    settling. A head that a rank test cannot tell from the rest stays. A cut at the half means: still settling.
    """
    n = len(values)
    if n < _LEAST_TO_SETTLE:
        return None
    data = np.asarray(values, dtype=np.float64)
    data = np.clip(data, *np.quantile(data, (0.05, 0.95)))
    kept = np.arange(n, 0, -1)
    sums, squares = np.cumsum(data[::-1])[::-1], np.cumsum(data[::-1] ** 2)[::-1]
    errors = (squares - sums**2 / kept) / kept.astype(np.float64) ** 2
    cut = int(np.argmin(errors[: n // 2 + 1]))
    if cut == 0 or mann_whitney(data[cut:], data[:cut]).p_value >= _SETTLED_BY_CHANCE:
        return 0
    return None if cut == n // 2 else cut


def drift(values: Readings) -> Drift | None:
    """How the time changes from run to run: Theil–Sen slope, with the Mann–Kendall test of there being any.

    Very many readings are taken as medians of consecutive blocks. None for fewer than four readings.
    """
    n = len(values)
    if n < 4:
        return None
    data = np.asarray(values, dtype=np.float64)
    size = math.ceil(n / _BLOCKS)
    if size > 1:
        data = np.median(data[: n // size * size].reshape(-1, size), axis=1)
    first, second = np.triu_indices(len(data), k=1)
    rises = data[second] - data[first]
    slope = float(np.median(rises / (second - first))) / size
    score = float(np.sum(np.sign(rises)))
    middle = float(np.median(data))
    return Drift(per_run=slope, share=slope * (n - 1) / middle if middle else 0.0, p_value=_kendall_p(score, data))


def _kendall_p(score: float, data: Floats) -> float:
    n = len(data)
    _, ties = np.unique(data, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float(np.sum(ties * (ties - 1.0) * (2 * ties + 5)))) / 18
    if variance <= 0:
        return 1.0
    return min(1.0, two_sided(max(abs(score) - 1, 0.0) / math.sqrt(variance)))


def minimum_detectable_effect(error: float, *, alpha: float, power: float) -> float:
    """The smallest relative difference that a test at `alpha` finds with `power`, if its log ratio has this error."""
    return math.expm1(_sum_of_quantiles(alpha, power) * error)


def runs_needed(runs: int, error: float, effect: float, *, alpha: float, power: float) -> int:
    """Runs per side to find `effect` with `power`, when `runs` of them gave the log ratio this standard error."""
    if error <= 0:
        return runs
    return max(math.ceil(runs * (_sum_of_quantiles(alpha, power) * error / math.log1p(effect)) ** 2), 2)


def _sum_of_quantiles(alpha: float, power: float) -> float:
    return NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)


# A percentile between two readings: an interval that holds for any distribution, and stays open where it must.
#
# How many of n independent readings lie below the p-th percentile is binomial, B(n, p). So the percentile lies at or
# above the l-th reading, and below the u-th, with a chance that the binomial gives, whatever the times are
# distributed like (Hahn & Meeker 1991, section 5.2). Of few readings none lies surely above a high percentile: the
# upper end is then open, and the honest answer is "at least".


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

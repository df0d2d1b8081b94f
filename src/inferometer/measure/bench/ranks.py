"""Rank tests and the ratio they imply: whether B is slower than A, by how much, and with what interval.

The ratio and its interval come from the same test as the p-value (Hodges–Lehmann estimate, interval by inversion), so
that they never contradict each other. Both work on logarithms, since a slow-down is a factor. Readings are taken
as independent here; `verdict` allows for those that are not.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from inferometer.core.frozen import frozen

Floats = NDArray[np.float64]
Readings = Sequence[float] | Floats

_EXACT_RUNS = 8  # up to here on the smaller side the null distribution is counted, beyond it is normal
_EXACT_PAIRS = 50
_POINTS = 1500  # order statistics kept of a side: their pairwise differences stay within a few million


@frozen
class RankTest:
    """`p_value` is two-sided. `delta` is Cliff's: how much more often B is above A than below, from −1 to 1."""

    name: str
    p_value: float
    delta: float


@frozen
class Ratio:
    """B over A. `low` is 0 and `high` infinite where so few runs cannot bound it at this confidence."""

    ratio: float
    low: float
    high: float
    confidence: float

    @property
    def bounded(self) -> bool:
        return self.low > 0 and math.isfinite(self.high)

    def widened(self, factor: float) -> "Ratio":
        """The interval `factor` times as far from the ratio, on the logarithm."""
        return Ratio(
            ratio=self.ratio,
            low=self.ratio * (self.low / self.ratio) ** factor,
            high=self.ratio * (self.high / self.ratio) ** factor,
            confidence=self.confidence,
        )


def two_sided(z: float) -> float:
    """The share of a normal distribution at least `z` standard deviations from its middle."""
    return math.erfc(abs(z) / math.sqrt(2))


def mann_whitney(a: Readings, b: Readings) -> RankTest:
    """Whether a run of B tends to be above a run of A.

    Exact for few runs without ties, else normal, corrected for ties and for continuity.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    n, m = len(first), len(second)
    ordered = np.sort(first)
    below = np.searchsorted(ordered, second, side="left")
    upto = np.searchsorted(ordered, second, side="right")
    wins = float(np.sum(below) + np.sum(upto)) / 2  # a tie is half a win
    delta = 2 * wins / (n * m) - 1
    _, counts = np.unique(np.concatenate([first, second]), return_counts=True)
    tied = bool(np.any(counts > 1))
    if not tied and min(n, m) <= _EXACT_RUNS:
        p_value = _exact_p(_win_counts(n, m), wins)
    else:
        runs = n + m
        ties = float(np.sum(counts.astype(np.float64) ** 3 - counts)) / (runs * (runs - 1))
        win_variance = n * m / 12 * (runs + 1 - ties)
        p_value = _normal_p(abs(wins - n * m / 2), win_variance)
    return RankTest(name="Mann–Whitney", p_value=p_value, delta=delta)


def signed_rank(differences: Readings) -> RankTest:
    """Wilcoxon's signed-rank test: whether paired differences lie to one side of zero. Zeros are left out."""
    values = np.asarray(differences, dtype=np.float64)
    delta = float(np.mean(np.sign(values))) if len(values) else 0.0
    values = values[values != 0]
    n = len(values)
    if n == 0:
        return RankTest(name="Wilcoxon signed-rank", p_value=1.0, delta=delta)
    ranks, counts = average_ranks(np.abs(values))
    positive = float(np.sum(ranks[values > 0]))
    if n <= _EXACT_PAIRS and n == len(differences) and not np.any(counts > 1):
        p_value = _exact_p(_rank_sum_counts(n), positive)
    else:
        variance = n * (n + 1) * (2 * n + 1) / 24 - float(np.sum(counts**3 - counts)) / 48
        p_value = _normal_p(abs(positive - n * (n + 1) / 4), variance)
    return RankTest(name="Wilcoxon signed-rank", p_value=p_value, delta=delta)


def ratio(a: Readings, b: Readings, *, confidence: float) -> Ratio:
    """The typical ratio of a run of B to a run of A: the median over all pairs, and the interval of the rank test."""
    first, second = _thinned(np.log(np.asarray(a))), _thinned(np.log(np.asarray(b)))
    differences = np.sort(np.subtract.outer(second, first), axis=None)
    n, m = len(a), len(b)
    if min(n, m) <= _EXACT_RUNS:
        rank = float(_cut(_win_counts(n, m), 1 - confidence))
    else:
        variance = n * m * (n + m + 1) / 12
        rank = n * m / 2 - NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance)
    return _interval(differences, rank / (n * m), confidence)


def paired_ratio(a: Readings, b: Readings, *, confidence: float) -> Ratio:
    """The typical ratio within a pair: the median of all averages of two log ratios, with its signed-rank interval."""
    logs = np.log(np.asarray(b)) - np.log(np.asarray(a))
    n = len(logs)
    kept = _thinned(logs)
    upper = np.triu_indices(len(kept))
    averages = np.sort((kept[upper[0]] + kept[upper[1]]) / 2)
    pairs = n * (n + 1) / 2
    if n <= _EXACT_PAIRS:
        rank = float(_cut(_rank_sum_counts(n), 1 - confidence))
    else:
        variance = n * (n + 1) * (2 * n + 1) / 24
        rank = pairs / 2 - NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance)
    return _interval(averages, rank / pairs, confidence)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's correction: the chance that any of them is below by luck stays below the level they are held to."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return tuple(adjusted)


def least_runs(alpha: float, *, paired: bool) -> int:
    """The fewest runs per side with which the most extreme outcome possible is rarer than `alpha`."""
    runs = 2
    while (2 * 0.5**runs if paired else 2 / math.comb(2 * runs, runs)) >= alpha:
        runs += 1
    return runs


def _interval(ordered: Floats, share: float, confidence: float) -> Ratio:
    """The middle of the ordered differences, and the two that leave `share` of them outside on each side."""
    total = len(ordered)
    middle = math.exp(float((ordered[(total - 1) // 2] + ordered[total // 2]) / 2))
    outside = math.floor(share * total + 1e-9)
    if outside < 1:
        return Ratio(ratio=middle, low=0.0, high=math.inf, confidence=confidence)
    low, high = ordered[outside - 1], ordered[total - outside]
    return Ratio(ratio=middle, low=math.exp(float(low)), high=math.exp(float(high)), confidence=confidence)


def _thinned(values: Floats) -> Floats:
    """All readings, or evenly spaced order statistics of very many."""
    if len(values) <= _POINTS:
        return values
    return np.quantile(values, (np.arange(_POINTS) + 0.5) / _POINTS)


def average_ranks(values: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Ranks from 1, equal values sharing the middle of theirs, and how many share each."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse], counts


def _normal_p(distance: float, variance: float) -> float:
    if variance <= 0:
        return 1.0
    return min(1.0, two_sided(max(distance - 0.5, 0.0) / math.sqrt(variance)))


def _exact_p(counts: tuple[int, ...], statistic: float) -> float:
    low = min(statistic, len(counts) - 1 - statistic)
    return min(1.0, 2 * sum(counts[: math.floor(low) + 1]) / sum(counts))


def _cut(counts: tuple[int, ...], alpha: float) -> int:
    """How many differences may be left outside on each side: the largest k with P(statistic < k) ≤ alpha / 2."""
    total, below, cut = sum(counts), 0, 0
    while cut < len(counts) and (below + counts[cut]) / total <= alpha / 2:
        below += counts[cut]
        cut += 1
    return cut


@lru_cache(maxsize=256)
def _win_counts(n: int, m: int) -> tuple[int, ...]:
    """In how many of all orders of n + m readings there are 0, 1, 2 … wins: the Gaussian binomial coefficients."""
    counts = [1] + [0] * (n * m)
    for i in range(1, min(n, m) + 1):
        step = max(n, m) + i
        for wins in range(n * m, step - 1, -1):  # times 1 − q^step
            counts[wins] -= counts[wins - step]
        for wins in range(i, n * m + 1):  # divided by 1 − q^i
            counts[wins] += counts[wins - i]
    return tuple(counts)


@lru_cache(maxsize=64)
def _rank_sum_counts(n: int) -> tuple[int, ...]:
    """How many subsets of the ranks 1 … n have each sum, from 0."""
    counts = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(counts) - 1, rank - 1, -1):
            counts[total] += counts[total - rank]
    return tuple(counts)

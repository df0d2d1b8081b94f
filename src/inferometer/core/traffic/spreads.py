"""Many times as counts over bins of equal ratio (`core.served.Spread`): flat in memory, percentiles to half a bin."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from inferometer.core.served import Distribution, Spread
from inferometer.core.statistics import supported

_RATIO = 1.005
_SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def spread_of(times: NDArray[np.float64]) -> Spread | None:
    """The spread of these times; None of none."""
    return weighted_spread(times, np.ones(len(times), np.int64))


def weighted_spread(times: NDArray[np.float64], counts: NDArray[np.int64]) -> Spread | None:
    """The spread of times, each with its count; None without any."""
    known = counts > 0
    if not known.all():
        times, counts = times[known], counts[known]
    if len(times) == 0:
        return None
    is_positive = times > 0
    positive, often = (times, counts) if is_positive.all() else (times[is_positive], counts[is_positive])
    places = np.floor(np.log(positive) / math.log(_RATIO)).astype(np.int64)
    lowest = int(places.min()) if len(places) else 0
    totals = np.bincount(places - lowest, weights=often).astype(np.int64)
    bins = np.flatnonzero(totals)
    count = int(counts.sum())
    return Spread(
        count=count,
        total_s=float((times * counts).sum()),
        min_s=float(times.min()),
        max_s=float(times.max()),
        zeros=count - int(often.sum()),
        ratio=_RATIO,
        bins=tuple((bins + lowest).tolist()),
        counts=tuple(totals[bins].tolist()),
    )


def merged(spreads: Iterable[Spread]) -> Spread | None:
    parts = list(spreads)
    if not parts:
        return None
    held: dict[int, int] = {}
    for part in parts:
        for index, count in zip(part.bins, part.counts, strict=True):
            held[index] = held.get(index, 0) + count
    return Spread(
        count=sum(part.count for part in parts),
        total_s=math.fsum(part.total_s for part in parts),
        min_s=min(part.min_s for part in parts),
        max_s=max(part.max_s for part in parts),
        zeros=sum(part.zeros for part in parts),
        ratio=parts[0].ratio,
        bins=tuple(sorted(held)),
        counts=tuple(held[index] for index in sorted(held)),
    )


def quantile(spread: Spread, share: float) -> float:
    """The time that this share of the readings does not exceed: the middle of its bin, within the ends."""
    wanted = share * (spread.count - 1) + 1
    reached = spread.zeros
    if reached >= wanted:
        return 0.0
    for index, count in zip(spread.bins, spread.counts, strict=True):
        reached += count
        if reached >= wanted:
            return min(max(math.pow(spread.ratio, index + 0.5), spread.min_s), spread.max_s)
    return spread.max_s


def distribution_of_spread(spread: Spread | None) -> Distribution | None:
    if spread is None:
        return None
    known = {name: quantile(spread, p) if supported(p, spread.count) else None for name, p in _SHARES.items()}
    return Distribution(
        count=spread.count, mean=spread.total_s / spread.count, min=spread.min_s, max=spread.max_s, **known
    )


def distribution(times: NDArray[np.float64]) -> Distribution | None:
    """Mean, ends, and the percentiles that there are enough readings for (linear between ranks, as everywhere here)."""
    if len(times) == 0:
        return None
    known = {name: float(np.quantile(times, p)) if supported(p, len(times)) else None for name, p in _SHARES.items()}
    return Distribution(
        count=len(times), mean=float(times.mean()), min=float(times.min()), max=float(times.max()), **known
    )

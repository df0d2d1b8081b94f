"""What the raw samples of a phase show beyond their median: how steps grow with the context."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from inferometer.core.profile import Phase

_LEAST = 10  # contexts that a trend needs
_SURE = 0.01  # p-value below which a trend is not chance


@frozen
class Growth:
    """`share` is how much steps grew from the first context to the last, as a share of the median step."""

    per_token_s: float
    share: float


def growth(phase: Phase) -> Growth | None:
    """How much longer a step is for each token in the cache: Theil–Sen over the contexts. None if there is no trend."""
    samples, contexts = phase.samples_s, phase.context
    if not samples or not contexts or len(samples) != len(contexts) or len(set(contexts)) < _LEAST:
        return None
    import numpy as np  # noqa: PLC0415 - only samples with contexts need it

    from inferometer.measure.bench.statistics import drift  # noqa: PLC0415 - as above

    data, at = np.asarray(samples), np.asarray(contexts)
    known = np.unique(at)
    middles = [float(np.median(data[at == context])) for context in known]
    trend = drift(middles)
    if trend is None or trend.p_value > _SURE or trend.per_run <= 0 or not isfinite(trend.share):
        return None
    steps = (len(known) - 1) / float(known[-1] - known[0])  # readings per token
    return Growth(per_token_s=trend.per_run * steps, share=trend.share)


def level_samples(phase: Phase) -> tuple[float, ...]:
    """The samples with their growth with the context taken out: it is neither a tail nor a drift."""
    samples = tuple(value for value in phase.samples_s or () if isfinite(value) and value > 0)
    trend = growth(phase)
    if trend is None or phase.context is None or len(samples) != len(phase.context):
        return samples
    middle = sorted(phase.context)[len(phase.context) // 2]
    level = (value - trend.per_token_s * (at - middle) for value, at in zip(samples, phase.context, strict=True))
    return tuple(max(value, 1e-12) for value in level)

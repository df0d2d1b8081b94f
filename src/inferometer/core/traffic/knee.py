"""Where more load stops paying: the knee of a sweep, and the level from which on the service is saturated."""

from collections.abc import Sequence

from inferometer.core.frozen import frozen
from inferometer.core.served import LevelFigures
from inferometer.core.traffic.figures import median_of

_SATURATED = 0.95  # of the highest throughput


@frozen
class Knee:
    """Indices of levels. None: there is none, or it lies beyond the highest load that was tried (`beyond`).

    `within` is the highest load that met every objective.
    """

    knee: int | None
    saturated: int | None
    within: int | None
    beyond: bool = False


def knee_of(levels: Sequence[LevelFigures]) -> Knee:
    """The knee is the level of the greatest power, throughput over latency (Kleinrock 1979).

    Below it more load brings more throughput than latency, above it more latency than throughput. A service is
    saturated from the first level on that reaches 95 % of the highest throughput of all.
    """
    throughput = [level.output_tokens_per_s or level.requests_per_s for level in levels]
    latency = [median_of(level.e2e_s) for level in levels]
    power = {
        index: rate / time for index, (rate, time) in enumerate(zip(throughput, latency, strict=True)) if rate and time
    }
    known = [rate for rate in throughput if rate]
    several = len(power) > 2
    last = len(levels) - 1
    best = max(power, key=lambda index: power[index]) if several else None
    saturated = next((i for i, rate in enumerate(throughput) if rate and rate >= _SATURATED * max(known)), None)
    met = [i for i, level in enumerate(levels) if level.objectives and all(level.objectives.values())]
    return Knee(
        knee=None if best == last else best,
        saturated=saturated if several and saturated != last else None,
        within=met[-1] if met else None,
        beyond=several and best == last,
    )


def headline_of(figures: Sequence[LevelFigures]) -> int:
    """The highest load within the objectives; without any, the knee; of one or two levels, the last that answered."""
    found = knee_of(figures)
    answered = [index for index, each in enumerate(figures) if each.completed]
    last = answered[-1] if answered else 0
    return found.within if found.within is not None else found.knee if found.knee is not None else last

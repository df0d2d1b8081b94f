"""From the columns of a level to its figures: latencies, rates, goodput, Little's law, growth, the spread of rounds.

Latencies are of the requests that were due in a window and were answered; errors are counted by kind and never averaged
in. Rates count what arrived in the windows, over their length. docs/load.md has every definition.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.served import OK, Distribution, Level, LevelFigures, Objective, Window
from inferometer.core.statistics import supported
from inferometer.core.traffic.requests import Flags, Floats, Requests
from inferometer.core.traffic.spreads import distribution, distribution_of_spread

_PARTS = 3  # equal parts of one window, where there was one round only
_MOMENTS = 240
_LEAST_PER_ROUND = 6  # requests that a median needs
_PILED_UP = 0.25  # of the mean number in flight: growth over the window that is more than chance


def figures_of(level: Level, objectives: Sequence[Objective] = ()) -> LevelFigures:
    """The figures of a level: computed from its requests, or as stated by a source without them."""
    if level.requests is None:
        return level.stated or LevelFigures(requests=0, completed=0)
    requests = Requests.of(level.requests)
    errors = Counter(outcome for outcome in level.requests.outcome if outcome != OK)
    base = {"requests": len(requests), "completed": int(requests.ok.sum()), "errors": dict(errors.most_common())}
    windows = [window for window in level.windows if window.seconds > 0]
    if not windows or not requests.ok.any():
        return LevelFigures(**base)  # type: ignore[arg-type] # three fields of three types
    inside = _inside(requests, windows)
    counted = requests.where(inside)
    seconds = sum(window.seconds for window in windows)
    e2e = distribution(_known(counted.e2e_s))
    rate = _arrived(requests, windows) / seconds
    is_open = level.rate_per_s is not None and level.rate_to_per_s is None
    in_flight, growth, growing = _occupancy(requests, windows, is_open=is_open)
    met = _met(counted, objectives)
    return LevelFigures(
        **base,  # type: ignore[arg-type] # as above
        counted=int(counted.ok.sum()),
        window_s=seconds,
        ttft_s=distribution(_known(counted.ttft_s)),
        tpot_s=distribution(_known(counted.tpot_s)),
        itl_s=distribution_of_spread(level.gaps),
        e2e_s=e2e,
        requests_per_s=rate,
        offered_per_s=_offered(requests, windows),
        input_tokens_per_s=_or_none(_arrived(requests, windows, requests.input_tokens) / seconds),
        output_tokens_per_s=_or_none(_arrived(requests, windows, requests.output_tokens) / seconds),
        goodput_per_s=_arrived(requests, windows, _met(requests, objectives).astype(float)) / seconds
        if objectives
        else None,
        attained=float(met.mean()) if objectives and len(met) else None,
        objectives={str(goal): _held(goal, counted) for goal in objectives},
        in_time={str(goal): float(_met(counted, [goal]).mean()) for goal in objectives if len(met)},
        in_flight=in_flight,
        little=None if e2e is None or e2e.mean is None else rate * e2e.mean,
        growth_per_s=growth,
        growing=growing,
        input_tokens=_mean(counted.input_tokens[counted.ok]),
        output_tokens=_mean(counted.output_tokens[counted.ok]),
        spread=_spread(requests, windows) if level.rate_to_per_s is None else {},
        rounds=_rounds(windows),
    )


def _inside(requests: Requests, windows: Sequence[Window]) -> Flags:
    chosen = np.zeros(len(requests), bool)
    for window in windows:
        chosen |= (requests.due_s >= window.start_s) & (requests.due_s <= window.end_s)
    return chosen


def _known(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _mean(values: Floats) -> float | None:
    known = _known(values)
    return float(known.mean()) if len(known) else None


def _or_none(value: float) -> float | None:
    return value or None


def _arrived(requests: Requests, windows: Sequence[Window], weights: Floats | None = None) -> float:
    """How many answers arrived in the windows (or the sum of their weights); one partly in a window counts in part."""
    each = np.ones(len(requests)) if weights is None else np.nan_to_num(weights)
    return float(sum((each * requests.share_between(w.start_s, w.end_s)).sum() for w in windows))


def _offered(requests: Requests, windows: Sequence[Window]) -> float | None:
    """Requests that became due, a second: from the first to the last of each window, not until its last answer."""
    gaps = spans = 0.0
    for window in windows:
        due = requests.due_s[_inside(requests, [window])]
        if len(due) > 1:
            gaps, spans = gaps + len(due) - 1, spans + float(np.ptp(due))
    return gaps / spans if spans > 0 else None


def _times(requests: Requests, metric: str) -> Floats:
    return {"ttft": requests.ttft_s, "tpot": requests.tpot_s, "e2e": requests.e2e_s, "itl": requests.gap_s}[metric]


def _met(requests: Requests, objectives: Sequence[Objective]) -> Flags:
    """Which requests were answered within every limit; of one token there is no TPOT that could break one.

    The limit of a percentile counts here for each request, too: goodput is what came in time.
    """
    met = requests.ok.copy()
    for goal in objectives:
        times = _times(requests, goal.metric)
        met &= ~(np.nan_to_num(times, nan=-1.0) > goal.limit_s)
    return met


def _held(goal: Objective, requests: Requests) -> bool | None:
    """Whether an objective held. An error breaks that of every request, and counts as beyond a percentile's limit."""
    met = _met(requests, [goal])
    if not len(met):
        return None
    if goal.share is None:
        return bool(met.all())
    return bool(met.mean() >= goal.share) if supported(goal.share, len(met)) else None


def _occupancy(
    requests: Requests, windows: Sequence[Window], *, is_open: bool
) -> tuple[float | None, float | None, bool]:
    """The mean number in flight, how many more each second, and whether that is more than chance.

    A closed loop cannot grow. The slope is least squares over even moments; it counts where over the window it adds a
    quarter of the mean number, and three times its square root, which is what Poisson arrivals vary by anyway.
    """
    means, slopes, grown = [], [], []
    for window in windows:
        moments = np.linspace(window.start_s, window.end_s, _MOMENTS)
        held = requests.in_flight(moments)
        means.append(float(held.mean()))
        slope = float(np.polyfit(moments - moments[0], held, 1)[0])
        slopes.append(slope)
        grown.append(slope * window.seconds > max(2.0, _PILED_UP * means[-1], 3 * means[-1] ** 0.5))
    growing = is_open and all(grown)
    return float(np.mean(means)), float(np.mean(slopes)) if is_open else None, growing


def _spread(requests: Requests, windows: Sequence[Window]) -> dict[str, float]:
    """Between equal rounds, or parts of the only one: (largest − smallest) / mean, of the medians and the rates."""
    parts = list(_equal_parts(windows))
    rounds = [requests.where(_inside(requests, [part])) for part in parts]
    if any(int(each.ok.sum()) < _LEAST_PER_ROUND for each in rounds):
        return {}
    found: dict[str, list[float]] = {
        "requests_per_s": [_arrived(requests, [part]) / part.seconds for part in parts],
        "output_tokens_per_s": [_arrived(requests, [part], requests.output_tokens) / part.seconds for part in parts],
    }
    for metric in ("ttft", "tpot", "e2e"):
        known = [_known(_times(each, metric)) for each in rounds]
        if all(len(times) for times in known):
            found[f"{metric}_s"] = [float(np.median(times)) for times in known]
    return {name: float(np.ptp(values) / np.mean(values)) for name, values in found.items() if np.mean(values) > 0}


def _equal_parts(windows: Sequence[Window]) -> Iterator[Window]:
    if len(windows) > 1:
        yield from windows
        return
    edges = np.linspace(windows[0].start_s, windows[0].end_s, _PARTS + 1)
    for start, end in pairwise(edges):
        yield Window(start_s=float(start), end_s=float(end), why="a part")


def _rounds(windows: Sequence[Window]) -> str:
    return f"{len(windows)} equal rounds" if len(windows) > 1 else f"{_PARTS} equal parts of the window"


def times_of(level: Level, metric: str) -> tuple[float, ...]:
    """Every counted request's time of one kind, in the order they were due: for verdicts and histograms."""
    if level.requests is None:
        return ()
    requests = Requests.of(level.requests)
    counted = requests.where(_inside(requests, level.windows))
    return tuple(_known(_times(counted, metric)).tolist())


def median_of(found: Distribution | None) -> float | None:
    """The median if there are enough requests for one, else the mean."""
    return None if found is None else found.p50 if found.p50 is not None else found.mean


# Where more load stops paying: the knee of a sweep, and the level from which on the service is saturated.

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

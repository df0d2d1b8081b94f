"""Which load to try next, to find where a service saturates, or the highest that is within the objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

from inferometer.core.frozen import frozen
from inferometer.core.served import LevelFigures, Objective
from inferometer.core.units import counted
from inferometer.serving.load.plan import LoadStep

_GAIN = 1.05  # twice the load must bring at least so much more throughput to go on
_KEPT_UP = 0.9  # of the offered rate
_MOST_PLACES, _MOST_RATE = 4096, 100_000.0
_CLOSER = 2  # loads tried between the last that was kept up with and the first that was not

_NEAR = 1.06  # the ratio of a load that misses to one that does not at which a bisection ends
_REPEATS = 3  # of a load whose share in time is too near to the objective's to tell
_LEAST_RATE = 1 / 1024  # of the load that was asked for first
_ANSWERED = 0.97  # of the offered rate
_SURE = 1.96  # standard deviations: nineteen times in twenty

Tried = Sequence[tuple[LoadStep, LevelFigures]]


def next_step(tried: Tried) -> LoadStep | None:
    """The next load; None when it is known where more brings no more."""
    last, figures = tried[-1]
    if not figures.completed:
        return None
    return _next_places(tried) if last.concurrency is not None else _next_rate(tried)


def _throughput(figures: LevelFigures) -> float:
    return figures.output_tokens_per_s or figures.requests_per_s or 0.0


def _next_places(tried: Tried) -> LoadStep | None:
    last, figures = tried[-1]
    before = max((_throughput(each) for _, each in tried[:-1]), default=0.0)
    if before and _throughput(figures) < _GAIN * before:
        return None
    places = 2 * (last.concurrency or 1)
    return LoadStep(concurrency=places) if places <= _MOST_PLACES else None


def keeps_up(figures: LevelFigures) -> bool:
    """Whether a service answers what is offered: nothing piles up, and little fails."""
    offered, answered = figures.offered_per_s or 0.0, figures.requests_per_s or 0.0
    failed = sum(figures.errors.values())
    return not figures.growing and answered >= _KEPT_UP * offered and failed <= (1 - _KEPT_UP) * figures.requests


def _next_rate(tried: Tried) -> LoadStep | None:
    kept = [step.load for step, figures in tried if keeps_up(figures)]
    lost = [step.load for step, figures in tried if not keeps_up(figures)]
    arrivals = tried[-1][0].arrivals
    assert arrivals is not None  # noqa: S101 - an open loop has arrivals
    if not lost:
        rate = 2 * max(kept)
        return LoadStep(arrivals=replace(arrivals, rate_per_s=rate)) if rate <= _MOST_RATE else None
    first_lost = next(index for index, (_, figures) in enumerate(tried) if not keeps_up(figures))
    if len(tried) - first_lost > _CLOSER:
        return None
    below = max((rate for rate in kept if rate < min(lost)), default=0.0)
    return LoadStep(arrivals=replace(arrivals, rate_per_s=round((below + min(lost)) / 2, 6)))


@frozen
class JudgedLoad:
    """All that was tried of one load: whether it is within the objectives, and whether that is more than chance.

    `share` is of the requests that were in time, by the objective that is missed by most, or met by least; it lies
    between `low` and `high` nineteen times in twenty.
    """

    step: LoadStep
    met: bool
    sure: bool
    share: float
    low: float
    high: float
    requests: int
    rounds: int
    piles_up: bool = False


def judged_loads(tried: Tried, objectives: Sequence[Objective]) -> list[JudgedLoad]:
    """The loads, the lowest first, each with all its rounds together."""
    loads: dict[float, list[tuple[LoadStep, LevelFigures]]] = {}
    for step, figures in tried:
        loads.setdefault(step.load, []).append((step, figures))
    return [_judged(loads[load], objectives) for load in sorted(loads)]


def _judged(tried: Tried, objectives: Sequence[Objective]) -> JudgedLoad:
    counts = [figures.counted or 0 for _, figures in tried]
    whole = sum(counts)
    worst: tuple[float, float, float, float, float] | None = None
    for goal in objectives:
        shares = [figures.in_time.get(str(goal), figures.attained or 0.0) for _, figures in tried]
        share = sum(map(float.__mul__, shares, map(float, counts))) / whole if whole else 0.0
        target = 1.0 if goal.share is None else goal.share
        low, high = wilson(share, whole)
        worst = min(worst or (2.0, 0.0, 0.0, 0.0, 0.0), (share - target, share, low, high, target))
    assert worst is not None  # noqa: S101 - the command asks for an objective
    _, share, low, high, target = worst
    piles_up = sum(map(_piles_up, (figures for _, figures in tried))) * 2 > len(tried)
    return JudgedLoad(
        step=tried[0][0], met=share >= target and not piles_up, piles_up=piles_up,
        share=share, low=low, high=high, requests=whole, rounds=len(tried),
        sure=piles_up or target == 1.0 or not low < target <= high,
    )  # fmt: skip


def _piles_up(figures: LevelFigures) -> bool:
    """Whether less is answered than comes, and more and more waits: growth alone may be chance in a short round."""
    offered, answered = figures.offered_per_s or 0.0, figures.requests_per_s or 0.0
    return not figures.completed or (figures.growing and answered < _ANSWERED * offered)


def wilson(share: float, count: int) -> tuple[float, float]:
    """The interval of a share, from the share of a sample (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    z = _SURE**2 / count
    middle, wide = share + z / 2, _SURE * sqrt(share * (1 - share) / count + z / (4 * count))
    return (middle - wide) / (1 + z), (middle + wide) / (1 + z)


def next_within(tried: Tried, objectives: Sequence[Objective]) -> LoadStep | None:
    """The next load on the way to the highest within the objectives; None when it is known closely enough."""
    loads = judged_loads(tried, objectives)
    unsure = next((each for each in loads if each.step.load == tried[-1][0].load), loads[-1])
    if not unsure.sure and unsure.rounds < _REPEATS:
        return unsure.step
    met = max((each.step.load for each in loads if each.met), default=None)
    missed = min(
        (each.step.load for each in loads if not each.met and (met is None or each.step.load > met)), default=None
    )
    if missed is None:
        return _at(tried[0][0], 2 * (met or 0.0), low=met or 0.0)
    if met is None:
        return _at(tried[0][0], missed / 2) if missed > _LEAST_RATE * tried[0][0].load else None
    return _at(tried[0][0], sqrt(met * missed), low=met, high=missed)


def _at(step: LoadStep, load: float, *, low: float = 0.0, high: float = float("inf")) -> LoadStep | None:
    """The same kind of load at another height; None if no height lies between the known ones."""
    if step.concurrency is not None:
        places = min(max(round(load), int(low) + 1), _MOST_PLACES)
        if high < float("inf"):
            places = min(places, int(high) - 1)
        return LoadStep(concurrency=places) if low < places < high else None
    assert step.arrivals is not None  # noqa: S101 - an open loop has arrivals
    if high < _NEAR * low or load > _MOST_RATE:
        return None
    return LoadStep(arrivals=replace(step.arrivals, rate_per_s=float(f"{load:.4g}")))


def within_words(tried: Tried, objectives: Sequence[Objective]) -> str:
    """What a search for the highest load within the objectives has found."""
    loads = judged_loads(tried, objectives)
    goals = ", ".join(map(str, objectives))
    met = [each for each in loads if each.met]
    missed = [each for each in loads if not each.met and (not met or each.step.load > met[-1].step.load)]
    parts = [_found(met[-1]) if met else f"No load that was tried is within {goals}"]
    if missed:
        parts.append(f"{missed[0].step.name} is not ({_shares(missed[0])})")
    elif met:
        parts.append("higher ones were not tried")
    return (f"Highest load within {goals}: " if met else "") + "; ".join(parts) + "."


def _found(load: JudgedLoad) -> str:
    doubt = "" if load.sure else ", which may be chance"
    return f"{load.step.name} ({_shares(load)}{doubt})"


def _shares(load: JudgedLoad) -> str:
    piled = ", and requests pile up" if load.piles_up else ""
    return f"{load.share:.1%} in time, {load.low:.1%} to {load.high:.1%} by {counted(load.requests, 'request')}{piled}"

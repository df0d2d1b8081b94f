"""Which load to try next, to find where a service saturates: double until it does, then look closer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inferometer.core.served import LevelFigures
from inferometer.serving.load.plan import LoadStep

_GAIN = 1.05  # twice the load must bring at least so much more throughput to go on
_KEPT_UP = 0.9  # of the offered rate
_MOST_PLACES, _MOST_RATE = 4096, 100_000.0
_CLOSER = 2  # loads tried between the last that was kept up with and the first that was not

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

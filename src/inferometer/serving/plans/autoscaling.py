"""Replicas that follow the load: played by the simulator's autoscaler, judged with every cold start, paid as held.

Of a trace all requests are played. Of a day the loads lie on straight lines between the middles of its parts, and a
stretch of each line is played at the day's own pace: a day has millions of requests. One stretch more begins where the
load is about to outgrow the fewest replicas on the steepest rise, so that a new one starts in it.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.served import LevelFigures
from inferometer.core.traffic.arrivals import LEAST_RATE, Arrivals
from inferometer.core.traffic.figures import figures_of
from inferometer.core.traffic.traces import part_of, scaled
from inferometer.predict.served.steady import Traffic, held_tokens
from inferometer.serving.load.plan import LoadStep
from inferometer.serving.plans.asked import Autoscaled
from inferometer.serving.simulate.run import simulate
from inferometer.serving.simulate.service import Scaling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.core.traffic.traces import RequestTrace
    from inferometer.predict.served.question import ServedReplica
    from inferometer.serving.plans.asked import PlanSearch
    from inferometer.serving.plans.closed import LoadCurve
    from inferometer.serving.simulate.plan import SimulationPlan

DAY_S = 86400.0
# Kubernetes' HorizontalPodAutoscaler (kubernetes.io, "Horizontal Pod Autoscaling"): it looks every 15 s
# (--horizontal-pod-autoscaler-sync-period), changes nothing within a tenth of the target (…-tolerance), and takes
# replicas away after five minutes (…-downscale-stabilization).
INTERVAL_S, TOLERANCE, IDLE_S = 15.0, 0.1, 300.0
_FULL = (0.9, 0.75, 0.6, 0.45, 0.3)  # of a replica's capacity: how full one is where another is asked for
_WAITING = (8.0, 4.0, 2.0, 1.0, 0.5)  # requests that wait at a replica, in their place
_MOST_STRETCHES = 12
_REQUESTS = 60_000  # of all stretches, or of a trace: some four seconds
_SIMULATED = 12  # replicas at most; of more, a share with its share of the load
_BIN_S = 60.0  # of a trace: the busiest minute says how many replicas there are at most
_COLD_STARTS = 2  # that a trace takes at least: in less no replica that it asks for helps it


@frozen
class Stretch:
    """A part of a day: loads at its begin and end, and the highest load in the time before that replicas are kept."""

    seconds: float
    from_per_s: float
    to_per_s: float
    before_per_s: float
    counts: bool = True  # whether what is held in it stands for its part of the day


@frozen
class Following:
    """What came of it: how many replicas there are and are held, and the figures of the worst stretch."""

    scaled: Autoscaled
    figures: LevelFigures
    kv_share: float
    requests: int
    notes: tuple[str, ...] = ()


def require_varying(search: PlanSearch) -> None:
    """Refuse demands that replicas cannot follow."""
    scaling = search.autoscale
    if scaling is None:
        return
    if search.availability is not None:
        raise DomainError(
            "An autoscaler counts spare replicas among those that it has, and takes them away again.",
            remedy="Leave --availability out, and give what should stay free: --headroom 0.3.",
        )
    if search.day and search.trace is not None:
        raise DomainError("A trace says itself how its load varies.", remedy="Leave --day out, or --trace.")
    trace = search.trace
    if trace is None:
        if len(set(search.day)) < 2:
            raise DomainError(
                "The demand does not vary, so there is nothing for an autoscaler to follow.",
                remedy="Say how it varies: --day 0.2,0.4,1,0.7, or a trace with times; or leave --autoscale out.",
            )
        if scaling.cold_start_s > DAY_S / len(search.day):
            raise DomainError(
                f"A replica that takes {scaling.cold_start_s:g} s to start comes after the part of the day that it is "
                f"for ({DAY_S / len(search.day):g} s).",
                remedy="Give a shorter --cold-start, or fewer parts of a day.",
            )
    elif not (trace.is_timed and trace.seconds > _COLD_STARTS * scaling.cold_start_s):
        raise DomainError(
            f"{trace.name} takes {trace.seconds:.4g} s by its own clock, and a new replica is there after "
            f"{scaling.cold_start_s:g} s: none would come in time.",
            remedy="Give a longer trace with times, or a shorter --cold-start.",
        )


def follow(  # noqa: PLR0913 - what serves, how much it takes, and who judges
    search: PlanSearch,
    asked: SimulationPlan,
    what: ServedReplica,
    curve: LoadCurve,
    *,
    replicas: int,
    most: int,
    missed: Callable[[LevelFigures], str | None],
) -> Following | str:
    """The fullest replicas that meet the objectives while others start; or what the emptiest still miss.

    `replicas` take the peak of a day, `most` may be used. A trace asks for as many as its busiest minute needs.
    """
    assert search.autoscale is not None  # noqa: S101 - asked before
    capacity = curve.capacity(search.objectives) * (1 - search.headroom)
    trace, words = _played_trace(search)
    why = ""
    for full, waiting in zip(_FULL, _WAITING, strict=True):
        signal = search.autoscale.signal
        load = full * capacity
        target = waiting if signal == "waiting" else _target(search, signal == "cache", what, curve.at(load)[2])
        top = replicas if trace is None else min(most, max(replicas, ceil(_peak_per_s(trace) / load)))
        scaling = Scaling(
            least=1, most=top, target=target, cold_start_s=search.autoscale.cold_start_s, interval_s=INTERVAL_S,
            idle_s=IDLE_S, signal=signal, tolerance=TOLERANCE,
        )  # fmt: skip
        # What a replica has when nothing changes: requests wait only where it can take no more at all.
        settled = float(curve.rate_per_s.max()) if signal == "waiting" else load
        played = _day(search, asked, scaling, settled, missed) if trace is None else (
            _trace(search, asked, scaling, settled, missed, trace)
        )  # fmt: skip
        if not isinstance(played, str):
            return replace(played, notes=(*words, *played.notes))
        why = played
    return why


def _target(search: PlanSearch, is_cache: bool, what: ServedReplica, running: float) -> float:
    """A replica's part of the signal for its requests under way, in whole requests, as autoscalers are set."""
    if not is_cache:
        return float(max(1, round(running)))
    if what.memory is None:
        raise DomainError("How large the cache is is not known.", remedy="Leave --scale-by cache out.")
    traffic = Traffic(prompt=max(1, round(search.prompt.mean)), generate=max(1, round(search.generate.mean)))
    share = running / what.replicas * held_tokens(what.limits, traffic) / what.memory.kv_tokens
    return max(0.01, round(min(share, 1.0), 2))


def load_at(search: PlanSearch, at_s: float) -> float:
    """Requests a second at a time of the day: on straight lines between the middles of its parts, night to night."""
    part = DAY_S / len(search.day)
    middles = (np.arange(-1, len(search.day) + 1) + 0.5) * part
    shares = (search.day[-1], *search.day, search.day[0])
    return search.cloud_rate_per_s * float(np.interp(at_s % DAY_S, middles, shares))


def stretches_of(search: PlanSearch, scaling: Scaling, load: float) -> Iterator[Stretch]:
    """The steepest rise where it outgrows the fewest replicas of so much load each, then one of each line."""
    lines = len(search.day)
    part = DAY_S / lines
    begins = [(number + 0.5) * part for number in range(lines)]
    rises = [load_at(search, begin + part) - load_at(search, begin) for begin in begins]
    chosen = np.unique(np.linspace(0, lines - 1, min(_MOST_STRETCHES, lines)).round().astype(int))
    mean = sum(load_at(search, begins[line] + part / 2) for line in chosen) * _share_of(scaling)
    # Long enough for a replica to come or to go; a service with little to do is played all day.
    seconds = min(part, max(scaling.cold_start_s, scaling.idle_s, _REQUESTS / max(mean, LEAST_RATE)))

    def stretch(begin: float, seconds: float, *, counts: bool) -> Stretch:
        before = max(load_at(search, at) for at in np.linspace(begin - scaling.idle_s, begin, 5))
        return Stretch(
            seconds=seconds, from_per_s=load_at(search, begin), to_per_s=load_at(search, begin + seconds),
            before_per_s=before, counts=counts,
        )  # fmt: skip

    steepest = int(np.argmax(rises))
    low, whole = load_at(search, begins[steepest]), min(part, seconds + scaling.cold_start_s)
    outgrown = (int(low / load) + 1) * load
    reached = part * min(1.0, (outgrown - low) / rises[steepest])
    yield stretch(begins[steepest] + max(0.0, min(reached - whole / 4, part - whole)), whole, counts=False)
    for line in chosen:
        yield stretch(begins[line] + (part - seconds) / 2, seconds, counts=True)


def _share_of(scaling: Scaling) -> float:
    """The share of the replicas that is played, and of their load."""
    return min(1.0, _SIMULATED / scaling.most)


def _day(
    search: PlanSearch,
    asked: SimulationPlan,
    scaling: Scaling,
    load: float,
    missed: Callable[[LevelFigures], str | None],
) -> Following | str:
    share = _share_of(scaling)
    few = replace(scaling, most=round(scaling.most * share))
    held, worst, requests = [], None, 0
    for stretch in stretches_of(search, scaling, load):
        rates = [max(LEAST_RATE, share * rate) for rate in (stretch.from_per_s, stretch.to_per_s)]
        begin = min(few.most, max(few.least, ceil(share * stretch.before_per_s / load)))
        if sum(rates) / 2 * stretch.seconds < 1:
            held += [few.least / share] if stretch.counts else []
            continue
        step = LoadStep(arrivals=Arrivals(rate_per_s=rates[0], to_per_s=rates[1]))
        traffic = replace(asked.traffic, steps=(step,), requests=None, duration_s=stretch.seconds)
        figures, mean, cache = _played(replace(asked, traffic=traffic, scaling=replace(few, begin=begin)), search)
        why = missed(figures)
        if why is not None:
            return f"{why} while replicas follow the load"
        requests += figures.requests
        if stretch.counts:
            held.append(mean / share)
        if worst is None or _first_token(figures) > _first_token(worst[0]):
            worst = figures, cache
    if worst is None:
        raise DomainError("Less than a request comes in any part of the day.", remedy="Leave --autoscale out.")
    figures, cache = worst
    return _following(
        scaling, search.cloud_rate_per_s, (sum(held) / len(held), DAY_S / 3600), (figures, cache, requests)
    )


def _trace(  # noqa: PLR0913, PLR0917 - as `_day`, and the trace
    search: PlanSearch,
    asked: SimulationPlan,
    scaling: Scaling,
    load: float,
    missed: Callable[[LevelFigures], str | None],
    trace: RequestTrace,
) -> Following | str:
    first = trace.arrival_s[np.isfinite(trace.arrival_s)]
    rate = float((first <= _BIN_S).sum()) / _BIN_S * len(trace) / trace.first_turns
    begin = min(scaling.most, max(scaling.least, ceil(rate / load)))
    traffic = replace(asked.traffic, steps=(LoadStep(),), trace=trace, requests=len(trace))
    figures, mean, cache = _played(replace(asked, traffic=traffic, scaling=replace(scaling, begin=begin)), search)
    why = missed(figures)
    if why is not None:
        return f"{why} while replicas follow the load"
    return _following(scaling, _peak_per_s(trace), (mean, trace.seconds / 3600), (figures, cache, figures.requests))


def _following(
    scaling: Scaling, peak_per_s: float, held: tuple[float, float], found: tuple[LevelFigures, float, int]
) -> Following:
    (mean, hours), (figures, cache, requests) = held, found
    made = Autoscaled(
        least=scaling.least, most=scaling.most, target=scaling.target, signal=scaling.signal,
        cold_start_s=scaling.cold_start_s, interval_s=scaling.interval_s, idle_s=scaling.idle_s,
        tolerance=scaling.tolerance, peak_per_s=peak_per_s, mean_replicas=mean, replica_hours=mean * hours, hours=hours,
    )  # fmt: skip
    return Following(scaled=made, figures=figures, kv_share=cache, requests=requests)


def _played(plan: SimulationPlan, search: PlanSearch) -> tuple[LevelFigures, float, float]:
    """The figures, the replicas that were held on average, and the fullest cache."""
    profile = simulate(plan)
    assert profile.served is not None  # noqa: S101 - of a simulation
    level = profile.served.levels[0]
    assert level.server is not None  # noqa: S101 - as above
    mean = level.server.counters["replica_seconds"] / (level.seconds or 1.0)
    return figures_of(level, search.objectives), mean, level.server.gauges.get("kv_share", (0.0, 0.0))[1]


def _first_token(figures: LevelFigures) -> float:
    return 0.0 if figures.ttft_s is None else figures.ttft_s.p95 or figures.ttft_s.mean or 0.0


def _played_trace(search: PlanSearch) -> tuple[RequestTrace | None, tuple[str, ...]]:
    """The trace at the rate that was asked for, its first requests where there are very many."""
    trace = search.trace
    if trace is None:
        return None, ()
    factor = search.cloud_rate_per_s * trace.seconds / len(trace)
    trace, notes = scaled(trace, factor) if abs(factor - 1) > 1e-9 else trace, []
    if factor > 1 + 1e-9:
        notes.append(f"the trace is played {factor:.3g} times as fast, and cold starts are as long as they are")
    if len(trace) > _REQUESTS:
        notes.append(f"the first {_REQUESTS:,} of {len(trace):,} requests of the trace are played")
        trace = part_of(trace, count=_REQUESTS)
    return trace, tuple(notes)


def _peak_per_s(trace: RequestTrace) -> float:
    """Requests a second in the busiest minute, those of a session with its first."""
    known = trace.arrival_s[np.isfinite(trace.arrival_s)]
    counts, _ = np.histogram(known, bins=max(1, int(trace.seconds / _BIN_S)))
    return float(counts.max()) / (trace.seconds / len(counts)) * len(trace) / len(known)

"""Running a language model for a calibration: prompts and decode steps, timed one by one.

Between two events a generation stands still, so a piece of fixed work fits there, and each step can be judged by it.
The weights of a small probe would stay in the cache from one step to the next, which a real model's cannot: a `flood`
between two events evicts them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from inferometer.engines.base import Event, Kernel, Request
from inferometer.measure.calibrate.probes.pace import MachinePace, Timed, steady_places, steady_seconds, usual_seconds
from inferometer.measure.run.texts import prompt_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.engines.base import TextSession
    from inferometer.measure.run.order import TextOrder

_PHASES = {"prefill": "prefill", "token": "decode"}
_FEWEST = 2
_MOST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """One phase of a generation: reading the prompt, or a decode step at the mean context of the steps."""

    phase: str
    seconds: float
    query: int
    context: int
    runs: int
    steady: int
    kernels: tuple[Kernel, ...] = field(default=(), compare=False)


def run_texts(  # noqa: PLR0913 - what is run, how long, and what stands between
    session: Any,
    run: TextOrder,
    pace: MachinePace,
    *,
    limit_s: float,
    threads: int,
    flood: Callable[[], None] | None = None,
) -> tuple[PhaseTimes, ...]:
    """Generate for `limit_s`, at least twice after a warm-up; once and cold if a cache has to be filled first."""
    ids = prompt_ids(session, run, 0)
    request = Request(prompt=ids, generate=run.generate, depth=run.depth, apart=True)
    if not run.depth:
        _once(session, Request(prompt=ids, generate=1), pace)
    steps: dict[str, list[Timed]] = defaultdict(list)
    contexts: dict[str, list[int]] = defaultdict(list)
    begun, done = pace.clock(), 0
    while done < (1 if run.depth else _FEWEST) or (done < _MOST and pace.clock() - begun < limit_s):
        for phase, context, step in _once(session, request, pace, flood):
            steps[phase].append(step)
            contexts[phase].append(context)
        done += 1
    return tuple(
        PhaseTimes(
            phase=phase,
            seconds=_seconds(phase, steps[phase], pace, threads),
            query=run.prompt if phase == "prefill" else 1,
            context=round(fmean(contexts[phase])),
            runs=len(steps[phase]),
            steady=len(steady_places(steps[phase], pace, threads=threads)),
        )
        for phase in steps
    )


def _seconds(phase: str, steps: list[Timed], pace: MachinePace, threads: int) -> float:
    """A real model's prompt takes a hundred times as long as a probe's, and meets every pace of the machine."""
    return usual_seconds(steps, threads=threads) if phase == "prefill" else steady_seconds(steps, pace, threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """An event, when it was asked for, and what passed until it was told: on the wall, and on the process's clock."""

    event: Event
    asked_s: float
    spent_s: float
    own_s: float
    beside_s: float


def _once(
    session: TextSession, request: Request, pace: MachinePace, flood: Callable[[], None] | None = None
) -> list[tuple[str, int, Timed]]:
    """One generation: each event with its clocks. Filling the cache before the prompt belongs to no event."""
    told: list[_Told] = []
    events = iter(session.generate(request))
    while True:
        if flood is not None:
            flood()
        before = pace.beside()
        mine, asked = pace.own(), pace.clock()
        event = next(events, None)
        own, spent = pace.own() - mine, pace.clock() - asked
        if event is None:
            break
        beside = max(before, pace.beside())
        told.append(_Told(event=event, asked_s=asked, spent_s=spent, own_s=own, beside_s=beside))
    at_once = any(each.event.end_ns * 1e-9 <= each.asked_s for each in told)
    share = min(1.0, told[0].own_s / told[0].spent_s) if at_once else None
    return [(_PHASES[each.event.kind], each.event.context, _timed(each, share, request)) for each in told]


def _timed(told: _Told, share: float | None, request: Request) -> Timed:
    """An event's seconds a step. `share` is that of the wall which was the process's own, if one call made them all."""
    event = told.event
    wall = (event.end_ns - event.start_ns) * 1e-9
    own = told.own_s if share is None else share * wall
    if event.kind == "prefill" and request.depth:
        own = wall  # the clock also ran while the cache was filled
    elif event.own_s is not None:
        own = event.own_s
    many = event.tokens if event.kind == "token" else 1
    return Timed(wall_s=wall / many, own_s=own / many, beside_s=told.beside_s)


def generation_kernels(
    session: TextSession, run: TextOrder, flood: Callable[[], None] | None = None
) -> Mapping[str, tuple[Kernel, ...]]:
    """The kernels of a short generation with timers on, by phase, after a warm-up."""
    ids = prompt_ids(session, run, 0)
    for generate in (min(run.generate, 6),) if run.depth else (1, min(run.generate, 6)):
        session.kernels()
        for _ in session.generate(Request(prompt=ids, generate=generate, depth=run.depth, apart=True)):
            if flood is not None:
                flood()
    return session.kernels()

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

from inferometer.calibrate.probes.pace import MachinePace, Timed, steady_places, steady_seconds, usual_seconds
from inferometer.measure.texts import prompt_ids
from inferometer.runtimes.base import Kernel, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.measure.order import TextOrder
    from inferometer.runtimes.base import TextSession

_PHASES = {"prefill": "prefill", "token": "decode"}
_FEWEST = 2
_MOST = 12
_WENT_ON = 0.05  # of an event's time: a call that returns later than that after its end has made more than it


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


def _once(
    session: TextSession, request: Request, pace: MachinePace, flood: Callable[[], None] | None = None
) -> list[tuple[str, int, Timed]]:
    """One generation: each event with its clocks. Filling the cache before the prompt belongs to no event."""
    timed_events: list[tuple[str, int, Timed]] = []
    events, share = iter(session.generate(request)), 1.0
    while True:
        if flood is not None:
            flood()
        before = pace.beside()
        mine, asked = pace.own(), pace.clock()
        event = next(events, None)
        own, spent = pace.own() - mine, pace.clock() - asked
        if event is None:
            return timed_events
        after = pace.beside()
        wall = (event.end_ns - event.start_ns) * 1e-9
        phase = _PHASES[event.kind]
        end = event.end_ns * 1e-9
        went_on = end > asked and asked + spent - end > _WENT_ON * wall
        if went_on:
            share = min(1.0, own / spent)
        if phase == "prefill" and request.depth:
            own = wall  # the clock also ran while the cache was filled
        elif went_on or end <= asked:
            own = share * wall  # one call makes the whole generation: of each event, as much is its own
        many = event.tokens if phase == "decode" else 1
        timed = Timed(wall_s=wall / many, own_s=own / many, beside_s=max(before, after))
        timed_events.append((phase, event.context, timed))


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

"""Running a language model for a calibration: prompts and steps of decoding, timed one by one.

Between two events a generation stands still, so a piece of fixed work fits there, and each step can be judged by it.
The weights of a small probe would stay in a cache from one step to the next, which those of a real model cannot: a
`flood` between two events takes them out.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from inferometer.calibrate.probes.pace import Pace, Timed, steady, steady_seconds, usual_seconds
from inferometer.measure.order import TextOrder
from inferometer.measure.texts import prompt_ids
from inferometer.runtimes.base import Kernel, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.runtimes.base import TextSession

_PHASES = {"prefill": "prefill", "token": "decode"}
_FEWEST = 2
_MOST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRun:
    prompt: int
    generate: int
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRan:
    """One phase of a generation: a prompt that was read, or a step at the mean context of those that were taken."""

    phase: str
    seconds: float
    query: int
    context: int
    runs: int
    steady: int
    kernels: tuple[Kernel, ...] = field(default=(), compare=False)


def run_texts(  # noqa: PLR0913 - what is run, how long, and what stands between
    session: Any,
    run: TextRun,
    pace: Pace,
    *,
    limit_s: float,
    threads: int,
    flood: Callable[[], None] | None = None,
) -> tuple[PhaseRan, ...]:
    """Generations for `limit_s`, two at least after one to warm up; where a cache is filled before each, one alone."""
    ids = prompt_ids(session, TextOrder(prompt=run.prompt, generate=run.generate, depth=run.depth), 0)
    request = Request(prompt=ids, generate=run.generate, depth=run.depth)
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
        PhaseRan(
            phase=phase,
            seconds=_seconds(phase, steps[phase], pace, threads),
            query=run.prompt if phase == "prefill" else 1,
            context=round(fmean(contexts[phase])),
            runs=len(steps[phase]),
            steady=len(steady(steps[phase], pace, threads=threads)),
        )
        for phase in steps
    )


def _seconds(phase: str, steps: list[Timed], pace: Pace, threads: int) -> float:
    """A prompt of a real model takes a hundred times as long as a probe's, and meets every pace of the machine."""
    return usual_seconds(steps, threads=threads) if phase == "prefill" else steady_seconds(steps, pace, threads=threads)


def _once(
    session: TextSession, request: Request, pace: Pace, flood: Callable[[], None] | None = None
) -> list[tuple[str, int, Timed]]:
    """One generation: each event with its clocks. Filling the cache before the prompt is in no event's own time."""
    found: list[tuple[str, int, Timed]] = []
    events = iter(session.generate(request))
    while True:
        if flood is not None:
            flood()
        before = pace.beside()
        mine = pace.own()
        event = next(events, None)
        own = pace.own() - mine
        if event is None:
            return found
        after = pace.beside()
        wall = (event.end_ns - event.start_ns) * 1e-9
        phase = _PHASES[event.kind]
        if phase == "prefill" and request.depth:
            own = wall  # the clock also ran while the cache was filled
        many = event.tokens if phase == "decode" else 1
        timed = Timed(wall_s=wall / many, own_s=own / many, beside_s=max(before, after))
        found.append((phase, event.context, timed))


def kernels_of(
    session: TextSession, run: TextRun, flood: Callable[[], None] | None = None
) -> Mapping[str, tuple[Kernel, ...]]:
    """What an instrumented session ran in a short generation, by phase, after one to warm up."""
    ids = prompt_ids(session, TextOrder(prompt=run.prompt, generate=run.generate, depth=run.depth), 0)
    for generate in (min(run.generate, 6),) if run.depth else (1, min(run.generate, 6)):
        session.kernels()
        for _ in session.generate(Request(prompt=ids, generate=generate, depth=run.depth)):
            if flood is not None:
                flood()
    return session.kernels()

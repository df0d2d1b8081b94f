"""Engines without timers: what their whole steps say of single ops.

Nothing tells how the time of one step falls to its ops. But steps of several models, prompts and contexts have the
operations and the bytes of each class of op in different proportions, and a few numbers have to explain them all: what
an operation of a class takes over the peak, what a byte of its weights, of the cache and of activations takes over the
bandwidth, and what a kernel and a step cost. `fit_streams` finds these numbers from all steps at once, each drawn to
what all streams together take; an op's seconds follow from them. What a step took beyond them falls to its ops alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import log

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.measure.calibrate.fitting.fit import class_for, residual_spread
from inferometer.measure.calibrate.fitting.points import OpPoint, OpWork, StepPoint, measured_point, overhead
from inferometer.measure.calibrate.fitting.steps import StepBase, StepFit, WholeStep, explained_seconds, fit_busy

_FREEDOM = 1.0  # of the logarithm of each number: a stream may well take a third, or three times, of what all take
_OVERHEADS = {"kernel": 1e-6, "step": 1e-5}  # seconds to start from where the engine's row states none
_LEAST, _MOST = 0.5, 2.0  # times what is explained: a step further off was disturbed


@frozen
class StepWorks:
    """A whole step with its ops, those of all passes in which a prompt is read."""

    step: StepPoint
    works: tuple[OpWork, ...]

    def apart(self) -> WholeStep:
        """Its parts are the seconds that each stream of each class would take at the peaks."""
        parts: dict[str, float] = defaultdict(float)
        for work in self.works:
            for name, seconds in streams_of(work).items():
                parts[name] += work.count * seconds
        launches = float(sum(work.count * work.launches for work in self.works))
        step = self.step
        return WholeStep(
            model=step.model, phase=step.phase, seconds=step.seconds, parts=dict(parts), launches=launches
        )  # fmt: skip


@frozen
class StreamFit:
    """The fit: factors on the seconds at the peaks, by class and stream, and seconds of a kernel and of a step."""

    times: Mapping[str, float]
    overheads: Mapping[str, float]
    start: Mapping[str, float] = field(default_factory=dict)  # the overheads that the fit began with
    steps: tuple[StepWorks, ...] = ()  # that they were found from

    def explained(self, step: WholeStep) -> float:
        return explained_seconds(step, self.times, self.overheads)

    def seconds(self, work: OpWork) -> float:
        """Of one op, without its launches."""
        return sum(self.times.get(name, 1.0) * seconds for name, seconds in streams_of(work).items())


def streams_of(work: OpWork) -> dict[str, float]:
    """Seconds at the peaks of an op's operations, and of its bytes by what they are."""
    name, moved = class_for(work.classes), max(work.axes.get("bytes", 0.0), 1.0)
    weights, cache = (work.memory_s * work.axes.get(axis, 0.0) / moved for axis in ("weight_bytes", "kv_bytes"))
    streams = {
        "compute": work.compute_s,
        "weights": weights,
        "cache": cache,
        "activations": max(0.0, work.memory_s - weights - cache),
    }
    return {f"{name}/{stream}": seconds for stream, seconds in streams.items() if seconds > 0}


def fit_streams(known: Sequence[StepWorks], start: Mapping[str, float]) -> StreamFit:
    """The numbers that explain all steps together. `start` has the overheads that are known of the engine."""
    steps = [step.apart() for step in known]
    names = {name for step in steps for name in step.parts}
    together = sum(step.seconds for step in steps) / sum(sum(step.parts.values()) for step in steps)
    base = StepBase(factors=dict.fromkeys(names, together), residuals={}, steps=0.0)
    times, overheads = fit_busy(steps, {**_OVERHEADS, **start}, base, freedom=_FREEDOM)
    return StreamFit(times=times, overheads=overheads, start=start, steps=tuple(known))


def points_from(streams: StreamFit, rates: Mapping[str, float]) -> list[OpPoint]:
    """Every op of every step with the seconds that it must have taken, and the overheads."""
    first = streams.steps[0].step
    points = [
        overhead(name, seconds, dtype=first.dtype, probe=first.model) for name, seconds in streams.overheads.items()
    ]
    for known in streams.steps:
        step, whole = known.step, known.apart()
        spent = streams.explained(replace(whole, parts={}))  # on no op's work
        # A step all of whose ops cost nothing explains nothing: its ratio is then cut at _MOST.
        off = (step.seconds - spent) / max(streams.explained(whole) - spent, 1e-12)
        off = min(max(off, _LEAST), _MOST)
        for work in known.works:
            if work.floor_s > 0:
                seconds = off * streams.seconds(work) + streams.overheads["kernel"] * work.launches
                workload = f"{step.phase} {step.query} + {step.context}"
                point = measured_point(work, seconds, dtype=step.dtype, probe=step.model, workload=workload)
                points.append(replace(point, rates=dict(rates)))
    return points


def left_out_fit(
    streams: StreamFit, tabled: Callable[[StreamFit, Sequence[StepPoint]], Sequence[WholeStep]]
) -> StepFit:
    """The errors of whole steps, each model left out in turn: of the numbers, and of the tables made of them.

    `tabled` has steps as the tables of some streams price them. Ops take inside models what the tables say: no other
    factors.
    """
    errors: list[tuple[WholeStep, float]] = []
    for model in dict.fromkeys(known.step.model for known in streams.steps):
        others = [known for known in streams.steps if known.step.model != model]
        refitted = fit_streams(others, streams.start) if others else streams
        left = tabled(refitted, [known.step for known in streams.steps if known.step.model == model])
        errors += [(step, log(step.seconds / explained_seconds(step, {}, refitted.overheads))) for step in left]
    by_phase: dict[str, list[float]] = defaultdict(list)
    for step, error in errors:
        by_phase[f"step.{step.phase}"].append(error)
    return StepFit(
        factors=dict.fromkeys(sorted({name for step, _ in errors for name in step.parts}), 1.0),
        overheads=streams.overheads,
        residuals={name: residual_spread(np.array(of_phase)) for name, of_phase in by_phase.items()},
        counts={name: len(of_phase) for name, of_phase in by_phase.items()},
        errors=tuple(errors),
        start=streams.overheads,
        measured=len(errors),
    )

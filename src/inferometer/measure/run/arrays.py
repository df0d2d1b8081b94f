"""Measuring a model that maps arrays to arrays: a plain session for the time, an instrumented one for its shape."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast

from inferometer.core.errors import EngineError
from inferometer.engines.base import Kernel, Runtime, Session, instrumented_again, look_at_host
from inferometer.known.machine.counters import HardwareCounters, hardware_counters
from inferometer.known.machine.detect import LocalMachine
from inferometer.measure.bench.energy import MeteredSubject
from inferometer.measure.bench.guard import Guard, NoGuard
from inferometer.measure.bench.loop import LoopProgress, LoopSamples, collect
from inferometer.measure.bench.subject import FunctionSubject, RunOutcome, Stopwatch, calls_for
from inferometer.measure.run.around import Around
from inferometer.measure.run.energy import CaseEnergy
from inferometer.measure.run.inputs import make_inputs
from inferometer.measure.run.order import MeasureOrder
from inferometer.measure.run.raw import Shape, StepCounters, Tell
from inferometer.measure.run.turns import Turns
from inferometer.measure.spans.energy import NO_ENERGY, EnergyMeter, energy_meter

_STEPS = (5, 50)  # instrumented steps, at least and at most
_WARM = 2  # instrumented steps before the first that counts
_TELL_S = 0.25  # between two reports of new samples
_FAILED = "Try another graph optimisation level, other inputs (--input NAME=FILE.npy), or another runtime."
_TURN = 5  # steps of one session before the other's turn; the first of each turn finds cold caches and is dropped
# Between two runs the loop does work of its own, and the first step after it finds the caches cold. That would lengthen
# short steps by much, so several are timed at once: one in a few is cold, as in a program that runs them in a loop.
_SHORT_S, _LONG_ENOUGH_S = 0.5e-3, 1e-3
_COUNTED, _COUNTED_S = 20, 0.2  # steps in which the processor counts, at most, and for how long


def measure_arrays(
    order: MeasureOrder, runtime: Runtime, tell: Tell, *, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Report each result as soon as it is there: if the engine crashes later, the parent has it already."""
    with closing(Turns(order.turns)) as turns:  # the other goes on as soon as this one has ended
        around = Around(order, tell)
        meter = energy_meter(LocalMachine()).at_rest() if order.energy else None
        counters = hardware_counters()  # before the engine makes threads, which are then counted too
        with (
            closing(counters),
            closing(cast("Session", runtime.open(replace(order.target, watched=order.shape)))) as session,
        ):
            tell("opened", session.opened)
            feed_session(order, session)
            around.opened()
            start = clock()
            session.step()
            tell("first_s", clock() - start)
            tell("opened", session.opened)  # an engine may compile on the first step
            around.begin(session.opened.unit)
            subject = _metered(order, session, meter)
            modules_s: list[float] = []
            looking = partial(look_at_host, session, modules_s)
            clean = _clean(order, runtime, subject, around.guard, tell=tell, turns=turns, look=looking)
            turns.next()
            around.tell_memory(session)
            tell("clean", clean)
            if launches := getattr(session, "launches_s", ()):
                tell("launch_s", median(launches))
            around.tell_surroundings(clean.disturbances, modules_s)
            if meter is not None:
                measured = subject.energy("forward", unit=session.opened.unit)
                joules = {} if measured.energy_j is None else {"forward": measured.energy_j}
                tell("energy", CaseEnergy(joules=joules, facts=measured.facts))
            if order.shape and clean.samples_s and session.opened.unit == "cpu":
                tell("counters", count_steps(session.step, counters, min(clean.samples_s)))
            if order.outputs is not None:
                _keep(order.outputs, session, tell)
            if order.shape and runtime.capabilities.per_op and clean.samples_s:
                seconds = sum(clean.samples_s) * clean.calls  # as long as the clean steps took
                _instrumented(order, runtime, session, tell, seconds=seconds, clock=clock)


def count_steps(step: Callable[[], None], counters: HardwareCounters, step_s: float) -> StepCounters:
    """What the processor counts in a step: the mean of a few, taken apart from the steps that are timed."""
    if not counters.descriptors:
        return StepCounters(reason=counters.reason)
    steps = max(1, min(_COUNTED, int(_COUNTED_S / max(step_s, 1e-9))))
    with counters.counting():
        for _ in range(steps):
            step()
    return StepCounters(counts={name: count / steps for name, count in counters.counts.items()})


def feed_session(order: MeasureOrder, session: Session) -> None:
    inputs = make_inputs(
        session.opened.inputs,
        sizes={**order.sizes, **order.target.sizes},
        shapes=order.target.shapes,
        limits=order.limits,
        given=order.inputs,
        seed=order.seed,
    )
    session.feed(inputs)


def _metered(order: MeasureOrder, session: Session, meter: EnergyMeter | None) -> MeteredSubject:
    """The model's step, in seconds and in joules; the sensors of the unit that it runs on count."""
    calls = calls_for(order.plan.calls, order.plan.warmup)
    stopwatch = Stopwatch(session.step, calls, short_s=_SHORT_S, enough_s=_LONG_ENOUGH_S)
    used = NO_ENERGY if meter is None else meter.for_unit(session.opened.unit)
    return MeteredSubject(subject=FunctionSubject(name=order.runtime, stopwatch=stopwatch), meter=used)


def _clean(  # noqa: PLR0913 - the run and its surroundings
    order: MeasureOrder,
    runtime: Runtime,
    stepping: MeteredSubject,
    guard: Guard | NoGuard,
    *,
    tell: Tell,
    turns: Turns,
    look: Callable[[], None] = lambda: None,
) -> LoopSamples:
    """The clean run. A step that fails raises: an engine that failed once is not measured further."""
    subject = _Telling(subject=stepping, tell=tell, turns=turns, look=look)
    (clean,) = collect([subject], order.plan, watch=guard, progress=subject.progress)
    if clean.failures:
        reason = clean.failures[0].reason
        if reason.startswith("MemoryError"):
            raise MemoryError
        raise EngineError(f"{runtime.title} failed while it ran the model: {reason.rstrip('.')}.", remedy=_FAILED)
    return clean


@dataclass(slots=True, kw_only=True)
class _Telling:
    """A subject that reports its times a few times a second, so that the parent has them if the engine crashes."""

    subject: MeteredSubject
    tell: Tell
    turns: Turns
    look: Callable[[], None] = lambda: None  # at the host, between samples
    clock: Callable[[], float] = time.monotonic
    new: list[float] = field(default_factory=list)
    reported: float = 0.0

    @property
    def name(self) -> str:
        return self.subject.name

    def run(self, *, watched: bool = False) -> RunOutcome:
        self.turns.next()
        outcome = self.subject.run(watched=watched)
        if outcome.seconds is not None:
            self.new.append(outcome.seconds)
        return outcome

    def close(self) -> None:
        self.subject.close()

    def progress(self, step: LoopProgress) -> None:
        self.tell("progress", step)
        if step.stage == "warm-up":
            self.new.clear()
        elif self.new and self.clock() - self.reported >= _TELL_S:
            self.tell("samples", tuple(self.new))
            self.new.clear()
            self.look()
            self.reported = self.clock()


def _keep(folder: Path, session: Session, tell: Tell) -> None:
    import numpy as np  # noqa: PLC0415 - outputs are kept only where they are to be verified

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "outputs.npz"
    outputs = session.outputs()
    arrays: dict[str, Any] = {f"o{index}": value for index, value in enumerate(outputs.values())}
    np.savez(path, names=np.array(list(outputs)), **arrays)
    tell("kept", {"outputs": str(path)})


def _instrumented(  # noqa: PLR0913 - both sessions, and how long
    order: MeasureOrder, runtime: Runtime, clean: Session, tell: Tell, *, seconds: float, clock: Callable[[], float]
) -> None:
    """Steps with the engine's timers on, in turns with clean ones: what slows the machine meanwhile slows both."""
    again = instrumented_again(clean) or runtime.open(replace(order.target, instrument=True))
    with closing(cast("Session", again)) as session:
        feed_session(order, session)
        _timed(session, _WARM, clock)
        session.kernels()
        walls: list[float] = []
        paired: list[float] = []
        begun = clock()
        while len(walls) < _STEPS[0] or (len(walls) < _STEPS[1] and clock() - begun < seconds):
            walls += _timed(session, _TURN, clock)
            paired += _timed(clean, _TURN, clock)
        cost, idle = (getattr(session, name, None) for name in ("cost_per_kernel_s", "idle_per_step_s"))
        timed = session.kernels()
        if not timed:  # why, only the session knows that was to time them
            known = clean.opened.notes
            reasons = tuple(note for note in session.opened.notes if note not in known)
            tell("opened", replace(clean.opened, notes=(*known, *reasons)))
        for phase, kernels in timed.items():
            tell(
                "shape",
                Shape(
                    phase=phase,
                    kernels=tuple(_warm(kernel, len(walls)) for kernel in kernels),
                    walls_s=tuple(_but_first(walls)),
                    paired_s=tuple(_but_first(paired)),
                    cost_s=cost,
                    idle_s=idle,
                ),
            )


def _but_first(readings: Sequence[float]) -> list[float]:
    """Without the first of every turn."""
    return [reading for number, reading in enumerate(readings) if number % _TURN]


def _warm(kernel: Kernel, steps: int) -> Kernel:
    if len(kernel.samples_s) != steps:
        return kernel  # it did not run once in every step
    device, waited = (
        None if column is None else tuple(_but_first(column)) for column in (kernel.device_s, kernel.waited_s)
    )
    return replace(kernel, samples_s=tuple(_but_first(kernel.samples_s)), device_s=device, waited_s=waited)


def _timed(session: Session, steps: int, clock: Callable[[], float]) -> list[float]:
    times = []
    for _ in range(steps):
        start = clock()
        session.step()
        times.append(clock() - start)
    return times

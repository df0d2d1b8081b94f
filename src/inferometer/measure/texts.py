"""Measuring a language model: whole generations for the time, an instrumented one for its shape."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from inferometer.bench.guard import FirstLook, Guard, NoGuard
from inferometer.bench.loop import Step
from inferometer.catalog.detect import LocalMachine
from inferometer.core.profile import Environment
from inferometer.errors import InferometerError
from inferometer.measure.energy import TextEnergy
from inferometer.measure.order import MeasureOrder, TextOrder
from inferometer.measure.raw import Generation, MemoryReadings, Shape, Tell, event_seconds
from inferometer.profiler.energy import NO_ENERGY, EnergyMeter, energy_meter
from inferometer.profiler.meters import process_memory
from inferometer.runtimes.base import Request, TextSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from inferometer.bench.disturbance import Disturbance
    from inferometer.runtimes.base import Event, Runtime

FEWEST = 3  # generations of each length, however long they take
_INSTRUMENTED = 16  # tokens of an instrumented generation
_CHECKED = (64, 16)  # tokens of a prompt and of an answer that are compared with a reference, at most
_ROOM = 0.4  # of the free memory: a second copy of the model may take no more


def measure_text(
    order: MeasureOrder, runtime: Runtime, tell: Tell, *, clock: Callable[[], float] = time.perf_counter
) -> None:
    guard = Guard() if order.guarded else NoGuard()
    first_look = guard.before(retries=order.plan.retries) if isinstance(guard, Guard) else None
    gauge = process_memory()
    before = gauge.read().current
    disturbances: list[Disturbance] = []
    meter = energy_meter(LocalMachine()).at_rest() if order.energy else NO_ENERGY
    with closing(cast("TextSession", runtime.open(order.target))) as session:
        tell("opened", session.opened)
        opened = gauge.read().current
        restarted = gauge.restart()
        used = meter.for_unit(session.opened.unit)
        scene = _Scene(order=order, session=session, guard=guard, tell=tell, clock=clock, meter=used)
        for number, text in enumerate(order.text):
            disturbances += scene.repeat(text, first=number == 0)
        tell("opened", session.opened)  # compilation on the way is known only now
        peak = gauge.read().peak if restarted else None
        device = getattr(session, "memory_peak_bytes", None)
        tell(
            "memory",
            MemoryReadings(before_bytes=before, opened_bytes=opened, peak_bytes=peak, device_peak_bytes=device),
        )
        tell("environment", _environment(guard, first_look, disturbances))
        if order.outputs is not None:
            _keep(order, runtime, session, tell)
        wanted = order.shape and runtime.capabilities.per_op
        beside = wanted and _room_for_two(opened - before)
        if beside:
            _instrumented(order, runtime, tell, clean=session)
    if wanted and not beside:
        _instrumented(order, runtime, tell, clean=None)


def _environment(guard: Guard | NoGuard, first_look: FirstLook | None, disturbances: list[Disturbance]) -> Environment:
    if not isinstance(guard, Guard) or first_look is None:
        return Environment()
    return guard.environment(first_look, tuple(dict.fromkeys(disturbances)), guard.after(first_look))


def prompt_ids(session: TextSession, text: TextOrder, seed: int) -> tuple[int, ...]:
    """The tokens of the given words, or random ones; not the lowest ids, which often end or steer a text."""
    if text.words is not None:
        return session.tokenise(text.words)
    import numpy as np  # noqa: PLC0415 - the engine has brought it

    low = min(session.vocabulary // 2, 260)
    random = np.random.default_rng([seed, text.prompt, text.depth])
    return tuple(int(number) for number in random.integers(low, session.vocabulary, text.prompt))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """What all generations of an order have in common."""

    order: MeasureOrder
    session: TextSession
    guard: Guard | NoGuard
    tell: Tell
    clock: Callable[[], float]
    meter: EnergyMeter

    def warm_up(self, text: TextOrder, ids: tuple[int, ...], energy: TextEnergy, *, whole: bool) -> None:
        """One generation that is reported apart: the first after loading is a number of its own."""
        wanted = text if whole else replace(text, generate=min(text.generate, 2))
        events = energy.generated(lambda: tuple(_generated(self.session, ids, wanted)), counts=False)
        self.tell("generation", Generation(order=text, events=events, first=True))

    def repeat(self, text: TextOrder, *, first: bool) -> list[Disturbance]:
        """Generate until the plan is fulfilled; a disturbed generation is repeated while retries last."""
        plan, ids = self.order.plan, prompt_ids(self.session, text, self.order.seed)
        energy = TextEnergy(meter=self.meter, order=text)
        if first or plan.warmup != 0:
            self.warm_up(text, ids, energy, whole=first)
        wanted, retries, kept = max(min(plan.runs, plan.runs_at_most), 1), plan.retries, 0
        disturbances: list[Disturbance] = []
        begun = self.clock()
        while not _enough(kept, self.clock() - begun, wanted, plan.seconds, plan.seconds_at_most):
            generation, disturbed = self.once(text, ids, energy)
            if disturbed and retries > 0:
                retries -= 1
                continue
            kept += 1
            disturbances += disturbed
            self.tell("generation", generation)
            self.tell("progress", Step(stage="generations", done=kept, share=min(kept / wanted, 1.0)))
        if self.order.energy:
            self.tell("energy", energy.finished(lambda wanted: _generated(self.session, ids, wanted)))
        return disturbances

    def once(
        self, text: TextOrder, ids: tuple[int, ...], energy: TextEnergy
    ) -> tuple[Generation, tuple[Disturbance, ...]]:
        mark = self.guard.mark()
        tokenise_s = _timed_tokenise(self.session, ids, self.clock)
        events = energy.generated(lambda: tuple(_generated(self.session, ids, text)))
        detokenise_s = _timed_detokenise(self.session, events, self.clock)
        disturbances = self.guard.since(mark)
        generation = Generation(
            order=text,
            events=events,
            tokenise_s=tokenise_s,
            detokenise_s=detokenise_s,
            disturbed=tuple(map(str, disturbances)),
        )
        return generation, disturbances


def _enough(kept: int, spent_s: float, wanted: int, seconds: float, seconds_at_most: float) -> bool:
    if kept < min(FEWEST, wanted):
        return False
    return spent_s >= seconds_at_most or (kept >= wanted and spent_s >= min(seconds, seconds_at_most))


def _generated(session: TextSession, ids: tuple[int, ...], text: TextOrder) -> Iterator[Event]:
    return session.generate(Request(prompt=ids, generate=text.generate, depth=text.depth))


def _timed_tokenise(session: TextSession, ids: tuple[int, ...], clock: Callable[[], float]) -> float | None:
    """Seconds to tokenise a text of about that many tokens; None without a tokeniser."""
    try:
        words = session.detokenise(ids)
        start = clock()
        session.tokenise(words)
    except InferometerError:
        return None
    return clock() - start


def _timed_detokenise(session: TextSession, events: tuple[Event, ...], clock: Callable[[], float]) -> float | None:
    ids = tuple(number for event in events for number in event.ids)
    if not ids:
        return None
    try:
        start = clock()
        session.detokenise(ids)
    except InferometerError:
        return None
    return clock() - start


def _keep(order: MeasureOrder, runtime: Runtime, session: TextSession, tell: Tell) -> None:
    """Keep the logits of a short text for verification, if the engine has them; otherwise the tokens it chose."""
    import numpy as np  # noqa: PLC0415 - as above

    if order.outputs is None:
        return
    order.outputs.mkdir(parents=True, exist_ok=True)
    path = order.outputs / "outputs.npz"
    first = order.text[0]
    text = replace(first, prompt=min(first.prompt, _CHECKED[0]), depth=0, generate=min(first.generate, _CHECKED[1]))
    ids = prompt_ids(session, text, order.seed)
    answer = [number for event in _generated(session, ids, text) for number in event.ids]
    arrays: dict[str, Any] = {"ids": np.array(ids), "made": np.array(answer)}
    if runtime.capabilities.logits:
        arrays["logits"] = session.score(ids)
    np.savez(path, **arrays)
    tell("kept", {"outputs": str(path)})


def _room_for_two(nbytes: int) -> bool:
    """Whether a second copy of the model fits beside the first."""
    import psutil  # noqa: PLC0415 - needed once

    return nbytes < psutil.virtual_memory().available * _ROOM


def _instrumented(order: MeasureOrder, runtime: Runtime, tell: Tell, *, clean: TextSession | None) -> None:
    """Run each length once more with the timers on."""
    with closing(cast("TextSession", runtime.open(replace(order.target, instrument=True)))) as session:
        for text in order.text:
            _shape_of(order, text, session, tell, clean=clean)


def _shape_of(
    order: MeasureOrder, text: TextOrder, session: TextSession, tell: Tell, *, clean: TextSession | None
) -> None:
    """A generation with the timers on, shorter than the clean one: the cost of a token changes slowly.

    If both sessions fit into memory, clean ones come before and after it: they show how fast the machine was.
    """
    ids = prompt_ids(session, text, order.seed)
    for _ in _generated(session, ids, replace(text, generate=2)):
        pass
    session.kernels()
    short = replace(text, generate=min(text.generate, _INSTRUMENTED))
    paired = [] if clean is None else [*_generated(clean, ids, short)]
    events = [*_generated(session, ids, short)]
    paired += [] if clean is None else [*_generated(clean, ids, short)]
    cost, idle = (getattr(session, name, None) for name in ("cost_per_kernel_s", "idle_per_step_s"))
    walls, clean_walls = _by_phase(events), _by_phase(paired)
    for phase, kernels in session.kernels().items():
        tell(
            "shape",
            Shape(
                phase=phase,
                kernels=kernels,
                walls_s=walls.get(phase, ()),
                paired_s=clean_walls.get(phase, ()),
                cost_s=cost,
                idle_s=_idle(paired, phase, idle),
                order=text,
            ),
        )


_KINDS = {"prefill": "prefill", "decode": "token"}


def _by_phase(events: Iterable[Event]) -> dict[str, tuple[float, ...]]:
    events = list(events)
    return {
        phase: tuple(event_seconds(event) for event in events if event.kind == kind) for phase, kind in _KINDS.items()
    }


def _idle(clean: Iterable[Event], phase: str, in_run_s: float | None) -> float | None:
    """Seconds of a step outside all kernels: all but the engine's run, and the part of the run that is in none."""
    around = [
        event_seconds(event) - event.parts["run"]
        for event in clean
        if event.kind == _KINDS[phase] and "run" in event.parts
    ]
    return None if in_run_s is None or not around else median(around) + in_run_s

"""Measuring a language model: whole generations for the time, an instrumented one for its shape."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import field, replace
from statistics import median
from typing import Any, cast

import psutil

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.request import RUN, kept_steps
from inferometer.engines.base import (
    Event,
    Kernel,
    Request,
    Runtime,
    TextSession,
    instrumented_again,
    look_at_host,
)
from inferometer.known.machine.detect import LocalMachine
from inferometer.measure.bench.guard import Guard, NoGuard
from inferometer.measure.bench.loop import Disturbance, LoopProgress
from inferometer.measure.run.around import Around
from inferometer.measure.run.energy import TextEnergy
from inferometer.measure.run.order import MeasureOrder, TextOrder
from inferometer.measure.run.raw import Generation, Shape, Tell, event_seconds
from inferometer.measure.run.turns import Turns
from inferometer.measure.spans.energy import NO_ENERGY, EnergyMeter, energy_meter

FEWEST = 3  # generations of each length, however long they take
_FEWEST_INSTRUMENTED = 16  # tokens of an instrumented generation, however long they take
_INSTRUMENTED_S = 3.0  # … and as many as a plain one makes in this time
_READINGS = 50_000  # … and as give so many readings of kernels: engines keep each until they are asked
_BESIDE_RUN = frozenset({"write", "sample", "read"})  # parts of a step in which no layer runs
_CHECKED = (64, 16)  # tokens of a prompt and of an answer that are compared with a reference, at most
_ROOM = 0.4  # of the free memory: a second copy of the model may take no more


def measure_text(
    order: MeasureOrder, runtime: Runtime, tell: Tell, *, clock: Callable[[], float] = time.perf_counter
) -> None:
    with closing(Turns(order.turns)) as turns:  # the other goes on as soon as this one has ended
        around = Around(order, tell)
        disturbances: list[Disturbance] = []
        meter = energy_meter(LocalMachine()).at_rest() if order.energy else NO_ENERGY
        with closing(cast("TextSession", runtime.open(replace(order.target, watched=order.shape)))) as session:
            tell("opened", session.opened)
            held = around.opened()
            used = meter.for_unit(session.opened.unit)
            around.begin(session.opened.unit)
            scene = _Scene(
                order=order, session=session, guard=around.guard, tell=tell, clock=clock, meter=used, turns=turns
            )  # fmt: skip
            for number, text in enumerate(order.text):
                disturbances += scene.repeat(text, first=number == 0)
            turns.next()
            tell("opened", session.opened)  # compilation on the way is known only now
            around.tell_memory(session)
            around.tell_surroundings(tuple(dict.fromkeys(disturbances)), scene.modules_s)
            if order.outputs is not None:
                _keep(order, runtime, session, tell)
            wanted = order.shape and runtime.capabilities.per_op
            again = instrumented_again(session) if wanted else None
            beside = wanted and (again is not None or _room_for_two(held))
            if beside:
                _instrumented(order, again or _opened_again(order, runtime), tell, clean=session, step_s=scene.step_s)
        if wanted and not beside:
            _instrumented(order, _opened_again(order, runtime), tell, clean=None, step_s=scene.step_s)


def prompt_ids(session: TextSession, text: TextOrder, seed: int) -> tuple[int, ...]:
    """The tokens of the given words, or random ones; not the lowest ids, which often end or steer a text."""
    if text.words is not None:
        return session.tokenise(text.words)
    import numpy as np  # noqa: PLC0415 - the engine has brought it

    low = min(session.vocabulary // 2, 260)
    random = np.random.default_rng([seed, text.prompt, text.depth])
    return tuple(int(number) for number in random.integers(low, session.vocabulary, text.prompt))


@frozen
class _Scene:
    """What all generations of an order have in common."""

    order: MeasureOrder
    session: TextSession
    guard: Guard | NoGuard
    tell: Tell
    clock: Callable[[], float]
    meter: EnergyMeter
    turns: Turns
    steps_s: list[float] = field(default_factory=list)
    modules_s: list[float] = field(default_factory=list)  # how fast the host was between generations

    @property
    def step_s(self) -> float | None:
        """A typical step of all that were generated; None before there is one."""
        return median(self.steps_s) if self.steps_s else None

    def generated(self, ids: tuple[int, ...], text: TextOrder) -> Iterator[Event]:
        return _generated(self.session, ids, text, bare=self.order.bare)

    def warm_up(self, text: TextOrder, ids: tuple[int, ...], energy: TextEnergy, *, whole: bool) -> None:
        """One generation that is reported apart: the first after loading is a number of its own."""
        wanted = text if whole else replace(text, generate=min(text.generate, 2))
        events = energy.generated(lambda: tuple(self.generated(ids, wanted)), counts=False)
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
            self.turns.next()
            generation, disturbed = self.once(text, ids, energy)
            if disturbed and retries > 0:
                retries -= 1
                continue
            kept += 1
            self.steps_s.extend(event_seconds(event) for event in generation.events if event.kind == "token")
            disturbances += disturbed
            self.tell("generation", generation)
            self.tell("progress", LoopProgress(stage="generations", done=kept, share=min(kept / wanted, 1.0)))
        if self.order.energy:
            self.tell("energy", energy.finished(lambda wanted: self.generated(ids, wanted)))
        return disturbances

    def once(
        self, text: TextOrder, ids: tuple[int, ...], energy: TextEnergy
    ) -> tuple[Generation, tuple[Disturbance, ...]]:
        look_at_host(self.session, self.modules_s)
        mark = self.guard.mark()
        tokenise_s = _timed_tokenise(self.session, ids, self.clock)
        events = energy.generated(lambda: tuple(self.generated(ids, text)))
        detokenise_s = _timed_detokenise(self.session, events, self.clock)
        disturbances = self.guard.since(mark)
        look_at_host(self.session, self.modules_s)
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


def _generated(session: TextSession, ids: tuple[int, ...], text: TextOrder, *, bare: bool = False) -> Iterator[Event]:
    return session.generate(Request(prompt=ids, generate=text.generate, depth=text.depth, bare=bare))


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
    return nbytes < psutil.virtual_memory().available * _ROOM


def _opened_again(order: MeasureOrder, runtime: Runtime) -> TextSession:
    return cast("TextSession", runtime.open(replace(order.target, instrument=True)))


def _instrumented(
    order: MeasureOrder, opened: TextSession, tell: Tell, *, clean: TextSession | None, step_s: float | None
) -> None:
    """Run each length once more with the timers on."""
    with closing(opened) as session:
        for text in order.text:
            _shape_of(order, text, session, tell, clean=clean, step_s=step_s)


def _shape_of(  # noqa: PLR0913 - both sessions, and how fast a step is
    order: MeasureOrder,
    text: TextOrder,
    session: TextSession,
    tell: Tell,
    *,
    clean: TextSession | None,
    step_s: float | None,
) -> None:
    """A generation with the timers on. If both sessions fit into memory, clean ones come before and after it.

    They show how fast the machine was meanwhile.
    """
    ids = prompt_ids(session, text, order.seed)
    for _ in _generated(session, ids, replace(text, generate=2)):
        pass
    readings = len(session.kernels().get("decode", ()))
    short = replace(text, generate=min(text.generate, _instrumented_tokens(readings, step_s)))
    paired = [] if clean is None else [*_generated(clean, ids, short)]
    events = [*_generated(session, ids, short)]
    paired += [] if clean is None else [*_generated(clean, ids, short)]
    cost, idle = (getattr(session, name, None) for name in ("cost_per_kernel_s", "idle_per_step_s"))
    for phase, kernels in session.kernels().items():
        tell("shape", replace(_shape(phase, kernels, events, paired), cost_s=cost, idle_s=idle, order=text))


def _instrumented_tokens(readings: int, step_s: float | None) -> int:
    """How many tokens are made with the timers on: the whole answer if it is quick, at least a few."""
    by_readings = _READINGS // max(readings, 1)
    by_time = by_readings if not step_s else int(_INSTRUMENTED_S / step_s)
    return 1 + max(_FEWEST_INSTRUMENTED, min(by_readings, by_time))


_KINDS = {"encode": "encode", "prefill": "prefill", "decode": "token"}


def _shape(phase: str, kernels: Sequence[Kernel], events: Iterable[Event], paired: Iterable[Event]) -> Shape:
    """The steps of one phase, as many as are kept.

    Where the host times the kernels, they can only fill the part of a step in which the engine runs: sampling, reading
    and the like are parts of their own. A device works on while the host does these.
    """
    steps, clean = ([event for event in some if event.kind == _KINDS[phase]] for some in (events, paired))
    by_host = all(kernel.device_s is None for kernel in kernels)
    in_run = by_host and all(RUN in event.parts for event in (*steps, *clean))
    kept = kept_steps(len(steps))
    contexts = tuple(steps[place].context for place in kept)
    return Shape(
        phase=phase,
        kernels=tuple(_thinned(kernel, kept, len(steps)) for kernel in kernels if not (in_run and _beside_run(kernel))),
        walls_s=tuple(_wall(steps[place], in_run=in_run) for place in kept),
        paired_s=tuple(_wall(event, in_run=in_run) for event in clean if event.context in contexts),
        context=contexts,
    )


def _wall(event: Event, *, in_run: bool) -> float:
    return event.parts[RUN] if in_run else event_seconds(event)


def _beside_run(kernel: Kernel) -> bool:
    """Whether it ran in another part of the step; PyTorch's recorder also sees what samples and reads a token."""
    return not kernel.layers and kernel.name.partition("/")[0] in _BESIDE_RUN


def _thinned(kernel: Kernel, kept: Sequence[int], steps: int) -> Kernel:
    if len(kernel.samples_s) != steps:
        return kernel  # it did not run once in every step
    device, waited = (
        None if column is None else tuple(column[place] for place in kept)
        for column in (kernel.device_s, kernel.waited_s)
    )
    return replace(kernel, samples_s=tuple(kernel.samples_s[place] for place in kept), device_s=device, waited_s=waited)

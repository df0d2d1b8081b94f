"""Decoders as probes: prompts and decode steps of small language models, one weight format at a time.

An engine that reports the times of kernels has them scaled to the clean step, as in every measurement. One that has no
timers inside a step gives whole steps alone: at several widths, lengths and contexts they tell the ops apart
(`fitting.streams`). A calibration is for one format of the weights; activations and the cache
have the formats of the engine's descriptor, whatever the file holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from inferometer.core.device import Device
from inferometer.core.dtypes import dtype as format_named
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.settings import cache_folder
from inferometer.core.workload import Workload
from inferometer.engines.base import Event, Kernel, Request, Runtime, Target, TextSession
from inferometer.engines.host import captured_stderr
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint, device_rates, overhead
from inferometer.measure.calibrate.probes.models import (
    WRITES,
    Probe,
    ProbeRun,
    beyond_caches,
    converted_checkpoint,
    deepened,
    file_of,
    graph_of,
    largest_cache,
    making_s,
    read_probes,
    steps_to,
)
from inferometer.measure.calibrate.probes.pace import (
    Flood,
    MachinePace,
    Timed,
    first_decile,
    steady_places,
    steady_seconds,
    usual_seconds,
)
from inferometer.measure.calibrate.probes.points import (
    PricedProbe,
    ProbeTimes,
    SmallOps,
    ops_of,
    price_probe,
    probe_points,
)
from inferometer.measure.calibrate.probes.provider import (
    ABOVE,
    CEILINGS,
    Ceilings,
    best_of,
    ceiling_runs,
    ceilings_from,
    is_rated,
    known_ceilings,
    spanning,
    unit_rates,
    whole_rates,
    with_rates,
    write_ceilings,
)
from inferometer.measure.calibrate.probes.workshop import Workshop
from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate
from inferometer.measure.prepare.steps import PrepareStep, require_tool
from inferometer.measure.run.order import TextOrder
from inferometer.measure.run.texts import prompt_ids
from inferometer.predict.basis.calibrations import formats_of

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.core.graph import Graph
    from inferometer.core.profile import OpTime


# Running a language model for a calibration: prompts and decode steps, timed one by one.
#
# Between two events a generation stands still, so a piece of fixed work fits there, and each step can be judged by it.
# The weights of a small probe would stay in the cache from one step to the next, which a real model's cannot: a `flood`
# between two events evicts them.

_PHASES = {"prefill": "prefill", "token": "decode"}
_FEWEST = 2  # generations, so that one disturbed step is seen to be one
_MOST = 12  # generations: the median has settled, and other probes wait for the time


@frozen
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


@frozen
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


_WRITTEN = ("gguf", "config")  # the formats of decoders that need no converter
_PLAIN = "f32"  # the arithmetic of everything but matrix products
_STEPS = 8  # tokens of a generation
_ROOM = 16  # tokens of the cache beyond those needed
_SECONDS = 1.2  # to open twice, and to decode for two workloads
_PASSES = 5  # times that a prompt is read
_SHORT = 32  # tokens of a prompt: each width has one run so short, and with it those of a few rows
_ROWS = (2, 3, 4, 6)  # tokens in a step, as of sequences that decode together: from 4 on llama.cpp has other kernels
_SLOWEST = 3.0  # times its floor: the longest that it is expected to take
_LEAST_LAUNCH = 0.02  # of a step of the smallest probe


@dataclass(slots=True, kw_only=True)
class DecoderProvider:
    """Candidates are the workloads of the decoders among the probes. `weights` is the format of their files.

    Without `timed` no kernel's own time counts, though the engine reports it: of an engine whose steps are mostly what
    lies between kernels.
    """

    runtime: Runtime
    device: Device
    weights: str
    folder: Path
    threads: int
    limit_s: float = 0.4
    timed: bool = True
    probes: Sequence[Probe] = field(default_factory=read_probes)
    pace: MachinePace = field(default_factory=MachinePace)
    flood: Callable[[], None] | None = None  # one for the device's caches unless another is given
    tools: Workshop = field(default_factory=Workshop)
    _beside: SmallOps = field(default_factory=SmallOps)
    _cases: dict[str, tuple[Probe, ProbeRun]] = field(default_factory=dict)
    _converter: PrepareStep | None = None  # of engines that do not open what is written here
    _read: int = 0  # bytes of weights in a step of what is converted

    def __post_init__(self) -> None:
        self.flood = self.flood or Flood(largest_cache(self.device))
        if self._written is None:
            self._converter = self._require_converter()
            self._read = beyond_caches(self.device)
            self.probes = [
                deepened(probe, self.weights, self._read) if probe.kind == WRITES else probe for probe in self.probes
            ]
        if self.pace.fastest_s == float("inf"):
            self.pace.learn()

    @property
    def _written(self) -> str | None:
        return next((name for name in _WRITTEN if name in self.runtime.formats), None)

    @property
    def _per_op(self) -> bool:
        return self.timed and self.runtime.capabilities.per_op

    def _require_converter(self) -> PrepareStep:
        steps = steps_to(self.runtime.formats)
        if not steps:
            raise DomainError(
                f"{self.runtime.title} opens {', '.join(sorted(self.runtime.formats))}, and no tool makes decoders so."
            )
        step = steps.get(self.weights)
        if step is None:
            raise DomainError(
                f"Decoders for {self.runtime.title} cannot be made with weights in {self.weights}.",
                remedy=f"Give --dtype {' or '.join(steps)}.",
            )
        require_tool(step)
        return step

    def candidates(self) -> list[ProbeCandidate]:
        """Without timers, the smallest probe tells nothing: its weights stay in a cache, and launches are fitted."""
        timed = self._per_op
        self._cases = {
            f"{probe.name} {self.weights} {run.words}": (probe, run)
            for probe in self.probes
            if probe.kind == WRITES and (timed or probe.role != "overhead")
            for run in probe.runs
        }
        return [self._candidate(key, *case) for key, case in self._cases.items()]

    def _candidate(self, key: str, probe: Probe, run: ProbeRun) -> ProbeCandidate:
        """Its shape is that of its largest product. Most of what a context costs is filling the cache."""
        read = PhaseTimes(phase="prefill", seconds=1.0, query=run.prompt or 1, context=0, runs=1, steady=1)
        known = self.priced(graph_of(probe), read, weights=self.weights)
        largest = max(
            (work for work in known.works.values() if work.classes[-1] == "linear"), key=lambda work: work.floor_s
        )
        passes = _PASSES + (run.context or 0) / (run.prompt or 1)
        # without timers only the whole is known: half above what ceilings allow is let pass
        slowest = _SLOWEST if self._per_op else 1.5 * ABOVE
        return ProbeCandidate(
            key=key,
            op_class="linear" if self.timed else "step.decode",
            axes=largest.axes,
            seconds=_SECONDS + passes * slowest * known.floor_s,
            making_s=making_s(self._read) if self._converter else 0.0,
            floor_s=passes * known.floor_s,
            probe=probe.name,
            first=probe.role != "shape",
        )

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        probe, run = self._cases[candidate.key]
        points: list[OpPoint] = []
        steps: list[StepPoint] = []
        runs, timed = 0, self._per_op
        for ran in self.runs(probe, run):
            points += self.points(probe, run, ran) if timed else ()
            steps += [self._step(probe, ran)] if probe.role == "shape" or not timed else []
            runs = max(runs, ran.runs)
        return CandidateResult(points=tuple(points), steps=tuple(steps), runs=runs)

    def _step(self, probe: Probe, ran: PhaseTimes) -> StepPoint:
        return StepPoint(
            model=probe.name,
            phase=ran.phase,
            seconds=ran.seconds,
            dtype=self.weights,
            config=dict(probe.config),
            query=ran.query,
            context=ran.context,
        )

    def runs(self, probe: Probe, run: ProbeRun) -> list[PhaseTimes]:
        """Read the prompt into an empty cache and decode; then decode after the context."""
        path = self._file(probe, run)
        texts = text_runs(run)
        held = max(text.prompt + text.generate + text.depth for text in texts) + _ROOM
        opened_as = self._converter.gives if self._converter is not None else self._written or ""
        target = Target(
            path=path, format=opened_as, text=True, threads=self.threads, unit=self.device.unit, context=held
        )  # fmt: skip
        times: list[PhaseTimes] = []
        with ExitStack() as stack:
            stack.enter_context(captured_stderr())  # what engines print when they open a model
            plain: Any = stack.enter_context(closing(self.runtime.open(target)))
            timed: Any = None
            if self._per_op:
                timed = stack.enter_context(closing(self.runtime.open(replace(target, instrument=True))))
            for text in texts:
                kernels = {} if timed is None else generation_kernels(timed, text, self.flood)
                phases = run_texts(plain, text, self.pace, limit_s=self.limit_s, threads=self.threads, flood=self.flood)
                times += [
                    replace(ran, kernels=_readings(kernels.get(ran.phase, ())))
                    for ran in phases
                    if ran.phase == "decode" or not text.depth  # that prompt's clock includes filling the cache
                ]
        return times

    def points(self, probe: Probe, run: ProbeRun, ran: PhaseTimes) -> tuple[OpPoint, ...]:
        graph = _read(str(self._file(probe, run)))
        known = self.priced(graph, ran)
        rates = device_rates(self.device, self.device.peaks.keys())
        workload = f"{ran.phase} {ran.query} + {ran.context}"
        points = probe_points(
            self._ops(graph, ran), known, self._beside, rates=rates, dtype=self.weights, probe=probe.name,
            workload=workload,
        )  # fmt: skip
        if probe.role == "overhead" and ran.phase == "decode":
            # Of the smallest probe's step, without its own work at a third of the peaks. A pipeline does more between
            # two steps than launch kernels: no launch takes longer than a kernel mostly does.
            kernel_s = max(_LEAST_LAUNCH * ran.seconds, ran.seconds - _SLOWEST * known.floor_s) / known.launches
            taken = [point.seconds / point.launches for point in points if point.launches]
            kernel_s = min(kernel_s, median(taken)) if taken and self._converter is not None else kernel_s
            self._beside.kernel_s = kernel_s
            points += (overhead("kernel", kernel_s, dtype=self.weights, probe=probe.name),)
        return points

    def priced(self, graph: Graph, ran: PhaseTimes, weights: str | None = None) -> PricedProbe:
        """`weights` is needed if the graph is not a file's: a file states their format itself."""
        return price_probe(
            graph, self.device, self.runtime.name, workload=self._workload(weights), sizes=_sizes(ran), phase=ran.phase
        )

    def _workload(self, weights: str | None = None) -> Workload:
        return Workload(precision=replace(formats_of(self.runtime.name, self.weights), weights=weights))

    def _ops(self, graph: Graph, ran: PhaseTimes) -> tuple[OpTime, ...]:
        times = ProbeTimes(clean_s=ran.seconds, kernels=ran.kernels, runs=ran.runs, steady=ran.steady)
        return ops_of(graph, self._workload(), _sizes(ran), times)

    def _file(self, probe: Probe, run: ProbeRun) -> Path:
        if self._converter is None:
            return file_of(probe, run, format=self._written or "", weights=self.weights, folder=self.folder)
        return converted_checkpoint(self._converter, probe, run, folder=self.folder, tools=self.tools)

    def best(self, probe: Probe, run: ProbeRun) -> tuple[float, float]:
        """The best rates of a probe in any of its phases. The provider must have a bare device."""
        graph = _read(str(self._file(probe, run)))
        rates = [(0.0, 0.0)]
        for ran in self.runs(probe, run):
            known = self.priced(graph, ran)
            timed = self._per_op
            rates.append(best_of(self._ops(graph, ran), known) if timed else whole_rates(known, ran.seconds))
        flops, moved = (max(column) for column in zip(*rates, strict=True))
        return flops, moved

    def close(self) -> None:
        """No model stays open between candidates; what makes them does."""
        self.tools.close()


def decoder_provider(  # noqa: PLR0913 - what a provider is made for
    runtime: Runtime,
    device: Device,
    weights: str,
    *,
    journal: Path,
    threads: int,
    folder: Path | None = None,
    limit_s: float = 0.4,
    base: Calibration | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> DecoderProvider:
    """The provider for one weight format. A device whose row states no peak gets the best rate its probes reach.

    Products of a quantised format run in an arithmetic of their own and everything else in f32. Both get the one peak
    that was reached, because no table tells them apart.
    """
    name = format_named(weights).name
    place, pace = folder or cache_folder() / "probes", MachinePace()
    provider = DecoderProvider(
        runtime=runtime, device=device, weights=name, folder=place, threads=threads, limit_s=limit_s, pace=pace
    )
    if is_rated(device, _PLAIN):
        return provider
    ceilings = known_ceilings(journal, name, threads)
    if ceilings is None:
        bare = replace(provider, device=_rated(device, runtime, unit_rates(name)))
        best = [bare.best(probe, run) for probe, run in ceiling_runs(bare.probes, writes=True)]
        ceilings = ceilings_from(best, runtime, dtype=name, threads=threads, now=now)
        write_ceilings(journal / CEILINGS, ceilings)
    return replace(provider, device=_rated(device, runtime, spanning(ceilings, device, base)))


def _rated(device: Device, runtime: Runtime, ceilings: Ceilings) -> Device:
    """The device with the peak in f32 and in the arithmetic that the runtime uses for such weights."""
    first, *_ = require_effects(runtime.name).candidates("linear", ceilings.dtype)
    for name in (_PLAIN, first):
        device = with_rates(device, replace(ceilings, dtype=name))
    return device


def text_runs(run: ProbeRun) -> tuple[TextOrder, ...]:
    first = TextOrder(prompt=run.prompt or 1, generate=_STEPS)
    if not run.context:
        return (first,)
    few = [TextOrder(prompt=rows, generate=1) for rows in _ROWS if rows < first.prompt <= _SHORT]
    return first, TextOrder(prompt=1, generate=2 * _STEPS, depth=run.context), *few


def _sizes(ran: PhaseTimes) -> dict[str, int]:
    return {"batch": 1, "query": ran.query, "context": ran.context, "logits": 1}


def _readings(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    return tuple(replace(kernel, samples_s=(first_decile(kernel.samples_s),), device_s=None) for kernel in kernels)


@cache
def _read(path: str) -> Graph:
    """Read once: what pricing prepares is kept with the graph itself."""
    from inferometer.formats.resolve import read  # noqa: PLC0415 - only who measures needs a reader

    return read(path)

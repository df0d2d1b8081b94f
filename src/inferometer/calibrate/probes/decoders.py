"""Decoders as probes: prompts and steps of decoding of small language models, one format of weights at a time.

llama.cpp tells the time of each node of its graph where its library can be called; the nodes are scaled to the clean
step, as in every measurement. The format a calibration is of is that of the weights: activations are f32 there and the
cache is f16, whatever the file holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.calibrate.fitting.points import Point, StepPoint, overhead
from inferometer.calibrate.probes.models import WRITES, Probe, ProbeRun, file_of, graph_of, read_probes
from inferometer.calibrate.probes.pace import Flood, Pace, quiet
from inferometer.calibrate.probes.points import Beside, Priced, ops_of, points_of, priced, rates_of
from inferometer.calibrate.probes.provider import (
    CEILINGS,
    Ceilings,
    best_of,
    ceiling_runs,
    ceilings_from,
    is_rated,
    known_ceilings,
    with_rates,
    write_ceilings,
)
from inferometer.calibrate.probes.steps import Ran
from inferometer.calibrate.probes.texts import PhaseRan, TextRun, kernels_of, run_texts
from inferometer.calibrate.run import Candidate, Measured
from inferometer.catalog.engines import require_effects
from inferometer.core.device import Device
from inferometer.core.dtype import dtype
from inferometer.core.workload import Precision, Workload
from inferometer.errors import DomainError
from inferometer.runtimes.base import Runtime, Target
from inferometer.settings import cache_folder

if TYPE_CHECKING:
    from inferometer.core.graph import Graph
    from inferometer.runtimes.base import Kernel

_PLAIN = "f32"  # what everything but products is computed in
_STEPS = 8  # tokens a generation makes
_ROOM = 16  # tokens of the cache beyond those that are asked for
_SECONDS = 1.2  # opening twice, and steps of decoding for two workloads
_PASSES = 5  # times that a prompt is read
_SLOWEST = 3.0  # times its floor that it is expected to take at most, when its cost is reckoned


@dataclass(slots=True, kw_only=True)
class DecoderProvider:
    """Candidates are the workloads of the decoders among the probes. `weights` is the format of their files."""

    runtime: Runtime
    device: Device
    weights: str
    folder: Path
    threads: int
    limit_s: float = 0.4
    probes: Sequence[Probe] = field(default_factory=read_probes)
    pace: Pace = field(default_factory=Pace)
    flood: Callable[[], None] = field(default_factory=Flood)
    _beside: Beside = field(default_factory=Beside)
    _cases: dict[str, tuple[Probe, ProbeRun]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "gguf" not in self.runtime.formats:
            raise DomainError(f"{self.runtime.title} opens no GGUF files, and decoders are probed with those.")
        if self.pace.fastest_s == float("inf"):
            self.pace.learn()

    def candidates(self) -> list[Candidate]:
        self._cases = {
            f"{probe.name} {self.weights} {run.words}": (probe, run)
            for probe in self.probes
            if probe.kind == WRITES
            for run in probe.runs
        }
        return [self._candidate(key, *case) for key, case in self._cases.items()]

    def _candidate(self, key: str, probe: Probe, run: ProbeRun) -> Candidate:
        """Its shape is that of the largest product over its prompt. Filling a cache is most of what a context costs."""
        read = PhaseRan(phase="prefill", seconds=1.0, query=run.prompt or 1, context=0, runs=1, steady=1)
        known = self.priced(graph_of(probe), read, weights=self.weights)
        largest = max(
            (work for work in known.works.values() if work.classes[-1] == "linear"), key=lambda work: work.floor_s
        )
        passes = _PASSES + (run.context or 0) / (run.prompt or 1)
        return Candidate(
            key=key,
            op_class="linear",
            axes=largest.axes,
            seconds=_SECONDS + passes * _SLOWEST * known.floor_s,
            floor_s=passes * known.floor_s,
            first=probe.role != "shape",
        )

    def measure(self, candidate: Candidate) -> Measured:
        probe, run = self._cases[candidate.key]
        points: list[Point] = []
        steps: list[StepPoint] = []
        runs = 0
        for ran in self.runs(probe, run):
            points += self.points(probe, run, ran)
            steps += [self._step(probe, ran)] if probe.role == "shape" else []
            runs = max(runs, ran.runs)
        return Measured(points=tuple(points), steps=tuple(steps), runs=runs)

    def _step(self, probe: Probe, ran: PhaseRan) -> StepPoint:
        return StepPoint(
            model=probe.name,
            phase=ran.phase,
            seconds=ran.seconds,
            dtype=self.weights,
            config=dict(probe.config),
            query=ran.query,
            context=ran.context,
        )

    def runs(self, probe: Probe, run: ProbeRun) -> list[PhaseRan]:
        """The prompt into an empty cache and steps after it; then steps after the context."""
        path = self._file(probe, run)
        asked = text_runs(run)
        held = max(each.prompt + each.generate + each.depth for each in asked) + _ROOM
        target = Target(path=path, format="gguf", text=True, threads=self.threads, context=held)
        found: list[PhaseRan] = []
        with ExitStack() as stack:
            plain: Any = stack.enter_context(closing(self.runtime.open(target)))
            timed: Any = None
            if self.runtime.capabilities.per_op:
                timed = stack.enter_context(closing(self.runtime.open(replace(target, instrument=True))))
            for each in asked:
                kernels = {} if timed is None else kernels_of(timed, each, self.flood)
                phases = run_texts(plain, each, self.pace, limit_s=self.limit_s, threads=self.threads, flood=self.flood)
                found += [
                    replace(ran, kernels=_readings(kernels.get(ran.phase, ())))
                    for ran in phases
                    if ran.phase == "decode" or not each.depth  # filling the cache is in the clock of that prompt
                ]
        return found

    def points(self, probe: Probe, run: ProbeRun, ran: PhaseRan) -> tuple[Point, ...]:
        graph = _read(str(self._file(probe, run)))
        sizes = {"batch": 1, "query": ran.query, "context": ran.context, "logits": 1}
        known = self.priced(graph, ran)
        whole = Ran(clean_s=ran.seconds, kernels=ran.kernels, runs=ran.runs, steady=ran.steady)
        words = f"{ran.phase} {ran.query} + {ran.context}"
        found = points_of(
            ops_of(graph, _workload(), sizes, whole),
            known,
            self._beside,
            dtype=self.weights,
            probe=probe.name,
            workload=words,
            rates=rates_of(self.device, self.device.peaks.keys()),
        )
        if probe.role == "overhead" and ran.phase == "decode":
            each = max(1e-9, ran.seconds - 3 * known.floor_s) / known.launches
            self._beside.kernel_s = each
            found += (overhead("kernel", each, dtype=self.weights, probe=probe.name),)
        return found

    def priced(self, graph: Graph, ran: PhaseRan, weights: str | None = None) -> Priced:
        """`weights` where the graph is none of a file, which says their format itself."""
        sizes = {"batch": 1, "query": ran.query, "context": ran.context, "logits": 1}
        workload = _workload(weights)
        return priced(graph, self.device, self.runtime.name, workload=workload, sizes=sizes, phase=ran.phase)

    def _file(self, probe: Probe, run: ProbeRun) -> Path:
        return file_of(probe, run, format="gguf", weights=self.weights, folder=self.folder)

    def best(self, probe: Probe, run: ProbeRun) -> tuple[float, float]:
        """The best rates of a probe in any of its phases. The provider must have a bare device."""
        graph = _read(str(self._file(probe, run)))
        found = [(0.0, 0.0)]
        for ran in self.runs(probe, run):
            sizes = {"batch": 1, "query": ran.query, "context": ran.context, "logits": 1}
            whole = Ran(clean_s=ran.seconds, kernels=ran.kernels, runs=ran.runs, steady=ran.steady)
            found.append(best_of(ops_of(graph, _workload(), sizes, whole), self.priced(graph, ran)))
        flops, moved = (max(column) for column in zip(*found, strict=True))
        return flops, moved

    def close(self) -> None:
        """Nothing stays open."""


def decoder_provider(  # noqa: PLR0913 - what a provider is made for
    runtime: Runtime,
    device: Device,
    weights: str,
    *,
    journal: Path,
    threads: int,
    folder: Path | None = None,
    limit_s: float = 0.4,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> DecoderProvider:
    """The provider of one format of weights. A device whose row states no peak gets the best that its probes reach.

    The products of a quantised format run in an arithmetic of their own, and everything else in f32: both get the one
    peak that was reached, for no table tells them apart.
    """
    name = dtype(weights).name
    place, pace = folder or cache_folder() / "probes", Pace()
    made = DecoderProvider(
        runtime=runtime, device=device, weights=name, folder=place, threads=threads, limit_s=limit_s, pace=pace
    )
    if is_rated(device, _PLAIN):
        return made
    found = known_ceilings(journal, name, threads)
    if found is None:
        bare = replace(made, device=_rated(device, runtime, _unit_rates(name)))
        best = [bare.best(probe, run) for probe, run in ceiling_runs(bare.probes, writes=True)]
        found = ceilings_from(best, runtime, dtype=name, threads=threads, now=now)
        write_ceilings(journal / CEILINGS, found)
    return replace(made, device=_rated(device, runtime, found))


def _unit_rates(weights: str) -> Ceilings:
    return Ceilings(flop_per_s=1.0, bytes_per_s=1.0, dtype=weights, threads=0, source="unit rates", date="")


def _rated(device: Device, runtime: Runtime, ceilings: Ceilings) -> Device:
    """The peak in f32 and in what the runtime computes such weights in."""
    first, *_ = require_effects(runtime.name).candidates("linear", ceilings.dtype)
    for name in (_PLAIN, first):
        device = with_rates(device, replace(ceilings, dtype=name))
    return device


def text_runs(run: ProbeRun) -> tuple[TextRun, ...]:
    first = TextRun(prompt=run.prompt or 1, generate=_STEPS)
    if not run.context:
        return (first,)
    return first, TextRun(prompt=1, generate=2 * _STEPS, depth=run.context)


def _workload(weights: str | None = None) -> Workload:
    return Workload(precision=Precision(weights=weights, activations="f32", kv="f16"))


def _readings(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    return tuple(replace(kernel, samples_s=(quiet(kernel.samples_s),), device_s=None) for kernel in kernels)


@cache
def _read(path: str) -> Graph:
    """Read once: what pricing prepares is kept with the graph itself."""
    from inferometer.readers.resolve import read  # noqa: PLC0415 - only who measures needs a reader

    return read(path)

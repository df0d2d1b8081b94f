"""Decoders as probes: prompts and steps of decoding of small language models, one format of weights at a time.

llama.cpp tells the time of each node of its graph where its library can be called; the nodes are scaled to the clean
step, as in every measurement. The format a calibration is of is that of the weights: activations are f32 there and the
cache is f16, whatever the file holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.calibrate.points import Point, overhead
from inferometer.calibrate.probe_models import WRITES, Probe, ProbeRun, file_of, read_probes
from inferometer.calibrate.probe_pace import Flood, Pace, quiet
from inferometer.calibrate.probe_points import Beside, Priced, ops_of, points_of, priced
from inferometer.calibrate.probe_steps import Ran
from inferometer.calibrate.probe_texts import PhaseRan, TextRun, kernels_of, run_texts
from inferometer.calibrate.run import Candidate, Measured
from inferometer.core.device import Device
from inferometer.core.workload import Precision, Workload
from inferometer.errors import DomainError
from inferometer.runtimes.base import Runtime, Target

if TYPE_CHECKING:
    from inferometer.core.graph import Graph
    from inferometer.runtimes.base import Kernel

__all__ = ["DecoderProvider", "text_runs"]

_STEPS = 8  # tokens a generation makes
_ROOM = 16  # tokens of the cache beyond those that are asked for
_SECONDS = 1.6  # opening twice and two workloads


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
        return [
            Candidate(
                key=key,
                op_class="linear" if number % 2 else "attention.decode",
                axes={},
                seconds=_SECONDS,
                first=probe.role == "overhead",
            )
            for number, (key, (probe, _)) in enumerate(self._cases.items())
        ]

    def measure(self, candidate: Candidate) -> Measured:
        probe, run = self._cases[candidate.key]
        points: list[Point] = []
        steps = 0
        for ran in self.runs(probe, run):
            points += self.points(probe, run, ran)
            steps = max(steps, ran.runs)
        return Measured(points=tuple(points), runs=steps)

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
            rates=self._rates(),
        )
        if probe.role == "overhead" and ran.phase == "decode":
            each = max(1e-9, ran.seconds - 3 * known.floor_s) / known.launches
            self._beside.kernel_s = each
            found += (overhead("kernel", each, dtype=self.weights, probe=probe.name),)
        return found

    def priced(self, graph: Graph, ran: PhaseRan) -> Priced:
        sizes = {"batch": 1, "query": ran.query, "context": ran.context, "logits": 1}
        return priced(graph, self.device, self.runtime.name, workload=_workload(), sizes=sizes, phase=ran.phase)

    def _file(self, probe: Probe, run: ProbeRun) -> Path:
        return file_of(probe, run, format="gguf", weights=self.weights, folder=self.folder)

    def _rates(self) -> dict[str, float]:
        memory = self.device.memory
        rates = {f"peak:{name}": float(peak) for name, peak in self.device.peaks.items()}
        if memory is not None and memory.bandwidth_bytes_per_s is not None:
            rates[f"bandwidth:{memory.level}"] = float(memory.bandwidth_bytes_per_s)
        return rates


def text_runs(run: ProbeRun) -> tuple[TextRun, ...]:
    first = TextRun(prompt=run.prompt or 1, generate=_STEPS)
    if not run.context:
        return (first,)
    return first, TextRun(prompt=1, generate=2 * _STEPS, depth=run.context)


def _workload() -> Workload:
    return Workload(precision=Precision(activations="f32", kv="f16"))


def _readings(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
    return tuple(replace(kernel, samples_s=(quiet(kernel.samples_s),), device_s=None) for kernel in kernels)


@cache
def _read(path: str) -> Graph:
    """Read once: what pricing prepares is kept with the graph itself."""
    from inferometer.readers.resolve import read  # noqa: PLC0415 - only who measures needs a reader

    return read(path)

"""Probe models as a provider: an engine that runs files, calibrated by running small networks through it.

Before anything else the engine's ceilings are measured: the best rates that large products and long streams reach.
They are the peaks that every floor is counted with, so they are kept beside the journal, and a run that goes on where
another stopped counts with the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from inferometer.calibrate.fitting.points import OpWork, Point, StepPoint, overhead
from inferometer.calibrate.probes.models import WRITES, Probe, ProbeRun, file_of, graph_of, read_probes
from inferometer.calibrate.probes.pace import Pace
from inferometer.calibrate.probes.points import Beside, Priced, ops_of, points_of, priced, rates_of
from inferometer.calibrate.probes.steps import Ran, fed, order_of, run_in_turns
from inferometer.calibrate.run import Candidate, Measured
from inferometer.catalog.engines import engines
from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.workload import Precision
from inferometer.errors import DomainError, EngineError, FormatError, InferometerError
from inferometer.runtimes.base import Runtime, Target
from inferometer.runtimes.host import captured_stderr
from inferometer.settings import cache_folder

if TYPE_CHECKING:
    from inferometer.core.graph import Graph
    from inferometer.core.profile import OpTime

CEILINGS = "ceilings.json"
_FORMATS = ("onnx", "tflite", "config")  # that probes which take arrays can be made in, the first that an engine opens
_PRODUCTS = frozenset({"linear", "matmul", "convolution", "attention"})
_OPENING_S = 0.4  # making, opening twice and feeding a probe of a few million weights
Opener = Callable[[Runtime, Target, Probe, ProbeRun], Any]
_SLOWEST = 8.0  # times its floor that a probe is expected to take at most, when its cost is reckoned


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The best an engine reached on this machine: operations and bytes a second."""

    flop_per_s: float
    bytes_per_s: float
    dtype: str
    threads: int
    source: str
    date: str


def read_ceilings(path: Path) -> Ceilings | None:
    """Those of an earlier run; None where there are none."""
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Ceilings)
    except (OSError, msgspec.DecodeError) as error:
        raise FormatError(f"{path} holds no ceilings: {error}.", remedy="Start again with --fresh.") from None


def write_ceilings(path: Path, ceilings: Ceilings) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(ceilings))


def with_rates(device: Device, ceilings: Ceilings) -> Device:
    """The device with the ceilings as its peaks. Caches keep their sizes and lose their rates.

    Small streams come from a cache, so the best rate of any stream stands for memory: a table over the bytes says how
    far below it each op stays, and no share passes 1.
    """

    def found(value: float) -> Sourced:
        return Sourced(value=value, origin="measured", source=ceilings.source, date=ceilings.date)

    main, *caches = device.memories or (Memory(level="dram"),)
    return replace(
        device,
        peaks={**device.peaks, ceilings.dtype: found(ceilings.flop_per_s)},
        memories=(
            replace(main, bandwidth_bytes_per_s=found(ceilings.bytes_per_s)),
            *(replace(cache, bandwidth_bytes_per_s=None) for cache in caches),
        ),
    )


def bare_device(device: Device, dtype: str) -> Device:
    """The device at unit rates: what it says of an op are its operations and bytes, not its seconds."""
    one = Ceilings(flop_per_s=1.0, bytes_per_s=1.0, dtype=dtype, threads=0, source="unit rates", date="")
    return with_rates(device, one)


@dataclass(slots=True, kw_only=True)
class ProbeProvider:
    """Candidates are the workloads of the probes; measuring one gives a point for each of its ops, and the whole step.

    `limit_s` is what the steps of one candidate may take together, without opening it.
    """

    runtime: Runtime
    device: Device
    dtype: str
    folder: Path
    threads: int
    limit_s: float = 0.6
    probes: Sequence[Probe] = field(default_factory=read_probes)
    known: Sequence[Point] = ()
    pace: Pace = field(default_factory=Pace)
    opener: Opener | None = None  # where probes are opened otherwise than as files
    _beside: Beside = field(default_factory=Beside)
    _cases: dict[str, tuple[Probe, ProbeRun]] = field(default_factory=dict)
    _open: tuple[Path, ExitStack, Any, Any] | None = None

    def __post_init__(self) -> None:
        if not any(each in self.runtime.formats for each in _FORMATS):
            raise DomainError(
                f"{self.runtime.title} opens {', '.join(sorted(self.runtime.formats))}; probe models can be made as "
                f"{' or '.join(_FORMATS)} only.",
                remedy=f"Calibrate {' or '.join(name for name, each in engines().items() if each.calibrated)}.",
            )
        self._beside.add(self.known)
        if self.pace.fastest_s == float("inf"):
            self.pace.learn()

    def candidates(self) -> list[Candidate]:
        """Decoders are left out here: they have phases of their own."""
        self._cases = {
            f"{probe.name} {run.words}": (probe, run)
            for probe in self.probes
            for run in probe.runs
            if probe.kind != WRITES
        }
        return [self._candidate(key, *case) for key, case in self._cases.items()]

    def _candidate(self, key: str, probe: Probe, run: ProbeRun) -> Candidate:
        """Its class is the one that most of its time would be of, and its shape that of the largest op of it."""
        known = self._priced(graph_of(probe), run)
        by_class: dict[str, float] = {}
        for work in known.works.values():
            by_class[work.classes[-1]] = by_class.get(work.classes[-1], 0.0) + work.floor_s
        name = max(by_class, key=lambda each: by_class[each])
        largest: OpWork = max(
            (work for work in known.works.values() if work.classes[-1] == name), key=lambda work: work.floor_s
        )
        return Candidate(
            key=key,
            op_class=name,
            axes=largest.axes,
            seconds=_OPENING_S + max(self.limit_s, _SLOWEST * known.floor_s),
            floor_s=known.floor_s,
            first=probe.role != "shape",
        )

    def measure(self, candidate: Candidate) -> Measured:
        probe, run = self._cases[candidate.key]
        graph, precision = graph_of(probe), self._precision
        ran = self._run(probe, run)
        sizes = _sizes(run)
        workload = run.workload(precision)
        known = self._priced(graph, run)
        points = points_of(
            _told(ops_of(graph, workload, sizes, ran)),
            known,
            self._beside,
            dtype=self.dtype,
            probe=probe.name,
            workload=run.words,
            rates=rates_of(self.device, {self.dtype}),
        )
        if probe.role == "overhead":
            self._beside.kernel_s = ran.clean_s / known.launches
            points += (overhead("kernel", ran.clean_s / known.launches, dtype=self.dtype, probe=probe.name),)
        return Measured(points=points, steps=self._steps(probe, run, ran), runs=ran.runs)

    def _steps(self, probe: Probe, run: ProbeRun, ran: Ran) -> tuple[StepPoint, ...]:
        if probe.role != "shape":
            return ()
        step = StepPoint(
            model=probe.name,
            phase="forward",
            seconds=ran.clean_s,
            dtype=self.dtype,
            config=dict(probe.config),
            batch=run.batch,
            query=run.prompt or 1,
            image=run.image,
        )
        return (step,)

    @property
    def _precision(self) -> Precision:
        return Precision(weights=self.dtype, activations=self.dtype, kv=self.dtype)

    def _priced(self, graph: Graph, run: ProbeRun) -> Priced:
        workload = run.workload(self._precision)
        return priced(graph, self.device, self.runtime.name, workload=workload, sizes=_sizes(run), phase="forward")

    def _run(self, probe: Probe, run: ProbeRun) -> Ran:
        """What engines write to stderr meanwhile (each start of the profiler of PyTorch, two lines) is dropped."""
        with captured_stderr():
            plain, timed = self._sessions(probe, run)
            order = order_of(self.runtime, self._target(probe, run), graph_of(probe), run.workload())
            return run_in_turns(
                fed(order, plain),
                None if timed is None else fed(order, timed),
                self.pace,
                limit_s=self.limit_s,
                threads=self.threads,
            )

    def _target(self, probe: Probe, run: ProbeRun) -> Target:
        kind = next(each for each in _FORMATS if each in self.runtime.formats)
        path = file_of(probe, run, format=kind, weights=self.dtype, folder=self.folder)
        return Target(path=path, format=kind, threads=self.threads, batch=run.batch)

    def _sessions(self, probe: Probe, run: ProbeRun) -> tuple[Any, Any]:
        """The file's sessions; the last one's are kept open, as the next workload is often of the same file."""
        target = self._target(probe, run)
        if self._open is not None and self._open[0] == target.path:
            return self._open[2:]
        self.close()
        stack = ExitStack()
        try:
            plain = stack.enter_context(closing(self._opened(target, probe, run)))
            timed = None
            if self.runtime.capabilities.per_op:
                timed = stack.enter_context(closing(self._opened(replace(target, instrument=True), probe, run)))
        except BaseException:
            stack.close()
            raise
        self._open = (target.path, stack, plain, timed)
        return plain, timed

    def _opened(self, target: Target, probe: Probe, run: ProbeRun) -> Any:
        return self.runtime.open(target) if self.opener is None else self.opener(self.runtime, target, probe, run)

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


def _told(ops: Sequence[OpTime]) -> tuple[OpTime, ...]:
    """Without those too short for the engine's clock: LiteRT's counts whole microseconds."""
    return tuple(op for op in ops if op.time_s > 0)


def _sizes(run: ProbeRun) -> dict[str, int]:
    return {"batch": run.batch, "query": run.prompt or 1, "context": 0, "logits": 1}


def measure_ceilings(provider: ProbeProvider, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Ceilings:
    """The best rates of the ceiling probes. `provider` must have a bare device."""
    best = [(0.0, 0.0)]
    for probe, run in ceiling_runs(provider.probes, writes=False):
        graph = graph_of(probe)
        try:
            ran = provider._run(probe, run)  # noqa: SLF001 - the ceilings are the provider's own first step
        except InferometerError:
            continue  # an engine that cannot build one of them has its ceilings from the others
        known = provider._priced(graph, run)  # noqa: SLF001 - as above
        workload = run.workload(provider._precision)  # noqa: SLF001 - as above
        best.append(best_of(_told(ops_of(graph, workload, _sizes(run), ran)), known))
    return ceilings_from(best, provider.runtime, dtype=provider.dtype, threads=provider.threads, now=now)


def best_of(ops: Sequence[OpTime], known: Priced) -> tuple[float, float]:
    """Operations a second of the best product, and bytes a second of the best op. `known` is priced at unit rates.

    Of an op's repetitions the middle one counts: in the last layer engines leave out what nothing reads.
    """
    taken: dict[tuple[str, ...], list[float]] = defaultdict(list)
    kernels: dict[tuple[str, ...], list[OpWork]] = {}
    for op in ops:
        works = [known.works[name] for name in op.layers or (op.name,) if name in known.works]
        if works:
            key = tuple(work.name for work in works)
            taken[key].append(op.time_s)
            kernels[key] = works
    flops, moved = 0.0, 0.0
    for key, works in kernels.items():
        seconds = median(taken[key])
        if any(work.classes[-1] in _PRODUCTS for work in works):
            flops = max(flops, sum(work.axes["flops"] for work in works) / seconds)
        moved = max(moved, sum(work.axes["bytes"] for work in works) / seconds)
    return flops, moved


def ceilings_from(
    best: Sequence[tuple[float, float]], runtime: Runtime, *, dtype: str, threads: int, now: Callable[[], datetime]
) -> Ceilings:
    """The best of all. An engine that tells nothing of its ops has none."""
    flops, moved = (max(column) for column in zip(*best, strict=True))
    if flops <= 0 or moved <= 0:
        raise EngineError(f"{runtime.title} told no times of the ops it ran, so its peaks are not known.")
    words = f"{runtime.name}, {threads} threads: the best of the ceiling probes"
    return Ceilings(
        flop_per_s=flops,
        bytes_per_s=moved,
        dtype=dtype,
        threads=threads,
        source=words,
        date=now().date().isoformat(),
    )


def ceiling_runs(probes: Sequence[Probe], *, writes: bool) -> Iterator[tuple[Probe, ProbeRun]]:
    """Those of decoders, or those of probes that take arrays."""
    ours = [probe for probe in probes if probe.role == "ceiling" and (probe.kind == WRITES) == writes]
    found = [(probe, run) for probe in ours for run in probe.runs]
    if not found:
        raise DomainError("There is no probe for the ceilings.", remedy='Give one the role "ceiling".')
    return iter(found)


def is_rated(device: Device, dtype: str) -> bool:
    """Whether a row states the peak and the bandwidth."""
    memory = device.memory
    return dtype in device.peaks and memory is not None and memory.bandwidth_bytes_per_s is not None


def known_ceilings(journal: Path, dtype: str, threads: int) -> Ceilings | None:
    """Those beside a journal, where they are of this format and as many threads."""
    found = read_ceilings(journal / CEILINGS)
    return found if found is not None and (found.dtype, found.threads) == (dtype, threads) else None


def probe_provider(  # noqa: PLR0913 - what a provider is made for
    runtime: Runtime,
    device: Device,
    dtype: str,
    *,
    journal: Path,
    threads: int,
    folder: Path | None = None,
    limit_s: float = 0.6,
    known: Sequence[Point] = (),
    opener: Opener | None = None,
) -> ProbeProvider:
    """The provider of an engine that runs probe models. Its ceilings are those beside the journal, else measured.

    A device whose catalog row states the peak and the bandwidth keeps its own.
    """
    place = folder or cache_folder() / "probes"
    pace = Pace()
    if not is_rated(device, dtype):
        found = known_ceilings(journal, dtype, threads)
        if found is None:
            bare = ProbeProvider(
                runtime=runtime, device=bare_device(device, dtype), dtype=dtype, folder=place, threads=threads,
                limit_s=limit_s, pace=pace, opener=opener,
            )  # fmt: skip
            with closing(bare):
                found = measure_ceilings(bare)
            write_ceilings(journal / CEILINGS, found)
        device = with_rates(device, found)
    return ProbeProvider(
        runtime=runtime, device=device, dtype=dtype, folder=place, threads=threads, limit_s=limit_s, known=known,
        pace=pace, opener=opener,
    )  # fmt: skip

"""Probe models as a provider: an engine that opens files is calibrated by running small networks through it.

The engine's ceilings are measured first: the best rates that large products and long streams reach. They are the peaks
that every floor is computed from, so they are stored beside the journal, and a resumed run uses the same ones.
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

from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.errors import DomainError, EngineError, FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.settings import cache_folder
from inferometer.core.workload import Precision
from inferometer.engines.base import Runtime, Target
from inferometer.engines.host import captured_stderr
from inferometer.known.engines import engines
from inferometer.measure.calibrate.fitting.base import shared_rates
from inferometer.measure.calibrate.fitting.points import OpPoint, OpWork, StepPoint, device_rates, overhead
from inferometer.measure.calibrate.probes.converted import (
    MAKING_S,
    ConvertedProbe,
    converted_probe,
    converter_to,
    source_of,
)
from inferometer.measure.calibrate.probes.models import (
    READS,
    SEES,
    WRITES,
    Probe,
    ProbeRun,
    file_of,
    graph_of,
    read_probes,
)
from inferometer.measure.calibrate.probes.pace import MachinePace
from inferometer.measure.calibrate.probes.points import (
    PricedProbe,
    ProbeTimes,
    SmallOps,
    fed,
    ops_of,
    order_of,
    price_probe,
    probe_points,
    run_in_turns,
)
from inferometer.measure.calibrate.probes.workshop import Workshop
from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate
from inferometer.measure.prepare.steps import PrepareStep, require_tool

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.core.graph import Graph
    from inferometer.core.profile import OpTime

CEILINGS = "ceilings.json"
_FORMATS = ("onnx", "tflite", "config")  # of probes that take arrays: the first that an engine opens
_PRODUCTS = frozenset({"linear", "matmul", "convolution", "attention"})
_OPENING_S = 0.4  # to make, open twice and feed a probe of a few million weights
Opener = Callable[[Runtime, Target, Probe, ProbeRun], Any]
_IMAGES = frozenset({"convolution", "depthwise", "vector"})
_LAID_OUT = frozenset({"in_features", "plane", "aligned"})  # axes that follow from how an image lies in memory
ABOVE = 4.0  # times the rates of a whole step: what its best ops reach is not known, and no share may exceed 1
_SLOWEST = 8.0  # times its floor: the longest that a probe is expected to take


@frozen
class Ceilings:
    """The best rates an engine reached on this machine: operations and bytes per second."""

    flop_per_s: float
    bytes_per_s: float
    dtype: str
    threads: int
    source: str
    date: str


def read_ceilings(path: Path) -> Ceilings | None:
    """The ceilings of an earlier run; None if there are none."""
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

    Small streams come from a cache, so the best rate of any stream is taken for memory: a table over the bytes says how
    far each op stays below it, and no share exceeds 1.
    """

    def measured(value: float) -> Sourced:
        return Sourced(value=value, origin="measured", source=ceilings.source, date=ceilings.date)

    main, *caches = device.memories or (Memory(level="dram"),)
    return replace(
        device,
        peaks={**device.peaks, ceilings.dtype: measured(ceilings.flop_per_s)},
        memories=(
            replace(main, bandwidth_bytes_per_s=measured(ceilings.bytes_per_s)),
            *(replace(cache, bandwidth_bytes_per_s=None) for cache in caches),
        ),
    )


def spanning(ceilings: Ceilings, device: Device, base: Calibration | None) -> Ceilings:
    """The ceilings of the base that a run starts from, both raised alike until they reach the measured ones.

    The base's tables are shares of its own ceilings. While the two keep their ratio, a share of one is a share of the
    other.
    """
    rates = None if base is None else shared_rates(base, device)
    if rates is None:
        return ceilings
    peak, bandwidth = (rate.value for rate in rates)
    times = max(1.0, ceilings.flop_per_s / peak, ceilings.bytes_per_s / bandwidth)
    return replace(ceilings, flop_per_s=times * peak, bytes_per_s=times * bandwidth)


def unit_rates(dtype: str) -> Ceilings:
    """Rates of 1: the floor of an op is then its operations or bytes, not its seconds."""
    return Ceilings(flop_per_s=1.0, bytes_per_s=1.0, dtype=dtype, threads=0, source="unit rates", date="")


@dataclass(slots=True, kw_only=True)
class ProbeProvider:
    """Candidates are the workloads of the probes; measuring one gives a point for each of its ops, and the whole step.

    `limit_s` limits the steps of one candidate together; opening it is extra.
    """

    runtime: Runtime
    device: Device
    dtype: str
    folder: Path
    threads: int
    limit_s: float = 0.6
    probes: Sequence[Probe] = field(default_factory=read_probes)
    known: Sequence[OpPoint] = ()
    pace: MachinePace = field(default_factory=MachinePace)
    opener: Opener | None = None  # for probes that are not opened as files
    tools: Workshop = field(default_factory=Workshop)
    _beside: SmallOps = field(default_factory=SmallOps)
    _cases: dict[str, tuple[Probe, ProbeRun]] = field(default_factory=dict)
    _open: tuple[Target, ExitStack, Any, Any] | None = None
    _converter: PrepareStep | None = None

    def __post_init__(self) -> None:
        if self.runtime.formats.isdisjoint(_FORMATS):
            self._converter = self._require_converter()
        self._beside.add(self.known)
        if self.pace.fastest_s == float("inf"):
            self.pace.learn()

    def _require_converter(self) -> PrepareStep:
        step = converter_to(self.runtime.formats)
        if step is None:
            raise DomainError(
                f"{self.runtime.title} opens {', '.join(sorted(self.runtime.formats))}; probe models can be made as "
                f"{' or '.join(_FORMATS)} only.",
                remedy=f"Calibrate {' or '.join(name for name, other in engines().items() if other.calibrated)}.",
            )
        require_tool(step)
        return step

    def candidates(self) -> list[ProbeCandidate]:
        """Decoders are left out: they have phases of their own, and a provider of their own.

        So are encoders where a converter renames layers: it merges attention with the products around it.
        """
        kinds = {SEES} if self._converter is not None and self._converter.renames else {SEES, READS}
        self._cases = {
            f"{probe.name} {run.words}": (probe, run)
            for probe in self.probes
            for run in probe.runs
            if probe.kind in kinds and (run.batch == 1 or self.runtime.capabilities.batches)
        }
        return [self._candidate(key, *case) for key, case in self._cases.items()]

    def _candidate(self, key: str, probe: Probe, run: ProbeRun) -> ProbeCandidate:
        """Its class is the one with most of its floor, and its shape that of the largest op of that class."""
        known = self._priced(graph_of(probe), run)
        by_class: dict[str, float] = {}
        for work in known.works.values():
            by_class[work.classes[-1]] = by_class.get(work.classes[-1], 0.0) + work.floor_s
        name = max(by_class, key=lambda op_class: by_class[op_class])
        largest: OpWork = max(
            (work for work in known.works.values() if work.classes[-1] == name), key=lambda work: work.floor_s
        )
        return ProbeCandidate(
            key=key,
            op_class=name,
            axes=largest.axes,
            seconds=_OPENING_S + max(self.limit_s, _SLOWEST * known.floor_s),
            making_s=0.0 if self._converter is None else MAKING_S[source_of(self._converter) or "onnx"],
            floor_s=known.floor_s,
            probe=probe.name,
            first=probe.role != "shape",
        )

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        probe, run = self._cases[candidate.key]
        graph = self._graph(probe, run)
        ran = self._run(probe, run)
        known = self._priced(graph, run)
        timed = self.runtime.capabilities.per_op
        points = self._points(probe, run, ran, known) if timed else ()
        if timed and self._converter is not None and not points and probe.role == "shape":
            raise EngineError(f"Its layers cannot be told apart once {self._converter.tool} has merged them.")
        if probe.role == "overhead":
            self._beside.kernel_s = ran.clean_s / known.launches
            points += (overhead("kernel", ran.clean_s / known.launches, dtype=self.dtype, probe=probe.name),)
        return CandidateResult(
            points=self._comparable(probe, run, points), steps=self._steps(probe, run, ran), runs=ran.runs
        )

    def _points(self, probe: Probe, run: ProbeRun, ran: ProbeTimes, known: PricedProbe) -> tuple[OpPoint, ...]:
        graph = self._graph(probe, run)
        return probe_points(
            _timed(ops_of(graph, run.workload(self._precision), _sizes(run), ran)),
            known,
            self._beside,
            dtype=self.dtype,
            probe=probe.name,
            workload=run.words,
            rates=device_rates(self.device, {self.dtype}),
            own_graph=graph is not graph_of(probe),
        )

    def _comparable(self, probe: Probe, run: ProbeRun, points: tuple[OpPoint, ...]) -> tuple[OpPoint, ...]:
        """Without the axes that mean something else in the graphs that predictions are made of."""
        if self._converter is None or self._converted(self._converter, probe, run).laid_out:
            return points
        return tuple(
            point
            if point.classes[-1] not in _IMAGES
            else replace(point, axes={name: size for name, size in point.axes.items() if name not in _LAID_OUT})
            for point in points
        )

    def _steps(self, probe: Probe, run: ProbeRun, ran: ProbeTimes) -> tuple[StepPoint, ...]:
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

    def _priced(self, graph: Graph, run: ProbeRun) -> PricedProbe:
        workload = run.workload(self._precision)
        return price_probe(graph, self.device, self.runtime.name, workload=workload, sizes=_sizes(run), phase="forward")

    def _run(self, probe: Probe, run: ProbeRun) -> ProbeTimes:
        """Steps of both sessions. What engines print meanwhile is dropped, such as PyTorch's profiler at each start."""
        with captured_stderr():
            plain, timed = self._sessions(probe, run)
            order = order_of(self.runtime, self._target(probe, run), self._graph(probe, run), run.workload())
            return run_in_turns(
                fed(order, plain),
                None if timed is None else fed(order, timed),
                self.pace,
                limit_s=self.limit_s,
                threads=self.threads,
            )

    def _graph(self, probe: Probe, run: ProbeRun) -> Graph:
        """The graph that the engine's layers are named after."""
        return graph_of(probe) if self._converter is None else self._converted(self._converter, probe, run).graph

    def _converted(self, step: PrepareStep, probe: Probe, run: ProbeRun) -> ConvertedProbe:
        tools = self.tools if source_of(step) != "onnx" else None
        return converted_probe(step, probe, run, weights=self.dtype, folder=self.folder, tools=tools)

    def _target(self, probe: Probe, run: ProbeRun) -> Target:
        if self._converter is not None:
            made = self._converted(self._converter, probe, run)
            return Target(
                path=made.path, format=self._converter.gives, threads=self.threads, unit=self.device.unit,
                batch=run.batch, shapes=made.shapes, nodes=made.nodes,
            )  # fmt: skip
        kind = next(name for name in _FORMATS if name in self.runtime.formats)
        path = file_of(probe, run, format=kind, weights=self.dtype, folder=self.folder)
        return Target(path=path, format=kind, threads=self.threads, unit=self.device.unit, batch=run.batch)

    def _sessions(self, probe: Probe, run: ProbeRun) -> tuple[Any, Any]:
        """The file's sessions. The last file's stay open: the next workload is often of the same file."""
        target = self._target(probe, run)
        if self._open is not None and (self._open[0].path, self._open[0].shapes) == (target.path, target.shapes):
            return self._open[2:]
        self._shut()
        stack = ExitStack()
        try:
            plain = stack.enter_context(closing(self._opened(target, probe, run)))
            timed = None
            if self.runtime.capabilities.per_op:
                timed = stack.enter_context(closing(self._opened(replace(target, instrument=True), probe, run)))
        except BaseException:
            stack.close()
            raise
        self._open = (target, stack, plain, timed)
        return plain, timed

    def _opened(self, target: Target, probe: Probe, run: ProbeRun) -> Any:
        return self.runtime.open(target) if self.opener is None else self.opener(self.runtime, target, probe, run)

    def _shut(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def close(self) -> None:
        self._shut()
        self.tools.close()


def _timed(ops: Sequence[OpTime]) -> tuple[OpTime, ...]:
    """The ops that were long enough for the engine's clock: LiteRT's counts whole microseconds."""
    return tuple(op for op in ops if op.time_s > 0)


def _sizes(run: ProbeRun) -> dict[str, int]:
    return {"batch": run.batch, "query": run.prompt or 1, "context": 0, "logits": 1}


def measure_ceilings(provider: ProbeProvider, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Ceilings:
    """The best rates of the ceiling probes. `provider` must have a bare device."""
    best = [(0.0, 0.0)]
    for probe, run in ceiling_runs(provider.probes, writes=False):
        try:
            graph = provider._graph(probe, run)  # noqa: SLF001 - the ceilings are the provider's own first step
            ran = provider._run(probe, run)  # noqa: SLF001 - as above
        except InferometerError:
            continue  # an engine that cannot build one takes its ceilings from the others
        known = provider._priced(graph, run)  # noqa: SLF001 - as above
        workload = run.workload(provider._precision)  # noqa: SLF001 - as above
        timed = provider.runtime.capabilities.per_op
        ops = _timed(ops_of(graph, workload, _sizes(run), ran)) if timed else ()
        best.append(best_of(ops, known) if timed else whole_rates(known, ran.clean_s))
    return ceilings_from(best, provider.runtime, dtype=provider.dtype, threads=provider.threads, now=now)


def best_of(ops: Sequence[OpTime], known: PricedProbe) -> tuple[float, float]:
    """Operations per second of the best product, bytes per second of the best op. `known` is priced at unit rates.

    The median of an op's repetitions counts: in the last layer engines skip what nothing reads.
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


def whole_rates(known: PricedProbe, seconds: float) -> tuple[float, float]:
    """Operations and bytes per second that no op of a step exceeds, by far. `known` is priced at unit rates."""
    flops, moved = (sum(work.count * work.axes[axis] for work in known.entries) for axis in ("flops", "bytes"))
    return ABOVE * flops / seconds, ABOVE * moved / seconds


def ceilings_from(
    best: Sequence[tuple[float, float]], runtime: Runtime, *, dtype: str, threads: int, now: Callable[[], datetime]
) -> Ceilings:
    """The best rates of all probes. An engine that reports no ops has none."""
    flops, moved = (max(column) for column in zip(*best, strict=True))
    if flops <= 0 or moved <= 0:
        raise EngineError(f"{runtime.title} reported no times of the ops it ran, so its peaks are unknown.")
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
    """The ceiling probes with their runs: decoders if `writes`, otherwise models of arrays."""
    ours = [probe for probe in probes if probe.role == "ceiling" and (probe.kind == WRITES) == writes]
    runs = [(probe, run) for probe in ours for run in probe.runs]
    if not runs:
        raise DomainError("There is no probe for the ceilings.", remedy='Give one the role "ceiling".')
    return iter(runs)


def _at_least(ceilings: Ceilings, device: Device) -> Ceilings:
    """The ceilings, or what the device's row states where that is more."""
    peak = device.peaks.get(ceilings.dtype)
    stated = device.memory.bandwidth_bytes_per_s if device.memory is not None else None
    return replace(
        ceilings,
        flop_per_s=max(ceilings.flop_per_s, peak.value if peak else 0.0),
        bytes_per_s=max(ceilings.bytes_per_s, stated.value if stated else 0.0),
    )


def is_rated(device: Device, dtype: str) -> bool:
    """Whether the device's row states the peak and the bandwidth."""
    memory = device.memory
    return dtype in device.peaks and memory is not None and memory.bandwidth_bytes_per_s is not None


def known_ceilings(journal: Path, dtype: str, threads: int) -> Ceilings | None:
    """The ceilings beside a journal, if they are of this format and number of threads."""
    ceilings = read_ceilings(journal / CEILINGS)
    return ceilings if ceilings is not None and (ceilings.dtype, ceilings.threads) == (dtype, threads) else None


def probe_provider(  # noqa: PLR0913 - what a provider is made for
    runtime: Runtime,
    device: Device,
    dtype: str,
    *,
    journal: Path,
    threads: int,
    folder: Path | None = None,
    limit_s: float = 0.6,
    known: Sequence[OpPoint] = (),
    opener: Opener | None = None,
    base: Calibration | None = None,
    beyond_peaks: bool = False,
) -> ProbeProvider:
    """The provider for an engine that runs probe models, with ceilings from beside the journal or measured now.

    A device whose catalog row states the peak and the bandwidth keeps those, unless the engine goes `beyond_peaks`.
    """
    place = folder or cache_folder() / "probes"
    pace, tools = MachinePace(), Workshop()
    if not is_rated(device, dtype) or beyond_peaks:
        ceilings = known_ceilings(journal, dtype, threads)
        if ceilings is None:
            bare = ProbeProvider(
                runtime=runtime, device=with_rates(device, unit_rates(dtype)), dtype=dtype, folder=place,
                threads=threads, limit_s=limit_s, pace=pace, opener=opener, tools=tools,
            )  # fmt: skip
            ceilings = measure_ceilings(bare)
            bare._shut()  # noqa: SLF001 - what makes probes is needed again
            write_ceilings(journal / CEILINGS, ceilings)
        device = with_rates(device, spanning(_at_least(ceilings, device), device, base))
    return ProbeProvider(
        runtime=runtime, device=device, dtype=dtype, folder=place, threads=threads, limit_s=limit_s, known=known,
        pace=pace, opener=opener, tools=tools,
    )  # fmt: skip

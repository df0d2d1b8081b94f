"""An engine's session with its profiler on: it says what ran, run by run.

The engine writes its profile once, when profiling ends, and keeps a million events at most. So a session is replaced by
a fresh one after each reading, and before the events would be too many; the first run in a fresh one is not counted.
An engine that has ONNX Runtime underneath begins its own sessions: they too end a profile and give its file.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import onnxruntime as ort

from inferometer.core.errors import EngineError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Kernel, Stage
from inferometer.engines.onnx_nodes import Topology, load_model, name_nodes, topology_of
from inferometer.engines.onnxruntime.fusion import Fusion, map_fusion, map_layout, needs_layout_step, with_served
from inferometer.engines.onnxruntime.loading import CPU, ORT, Clock, LoadingPlan, as_onnx, load, unit_of

# The engine's profile, a list of events as JSON, into seconds a node and run.
#
# Sizes are text, `dur` is in whole microseconds, and nothing numbers the runs: a `model_run` ends each. What runs
# within a node (a branch, a loop's body) has events of its own, listed before the node's; they are taken out of its
# time.

_SUFFIX = "_kernel_time"
_HOLDERS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_MICRO = 1e-6


class Details(msgspec.Struct, gc=False):
    op_name: str = ""
    provider: str = ""
    activation_size: str = "0"
    output_size: str = "0"
    output_type_shape: list[dict[str, list[int]]] = []


class ProfileEvent(msgspec.Struct, gc=False):
    cat: str
    name: str
    ts: int
    dur: int
    args: Details | None = None


@frozen
class NodeTime:
    """A node in one run: the time that is its own, however often it ran; `bytes` read and written, weights apart."""

    name: str
    kind: str
    provider: str
    seconds: float
    bytes: float
    dtype: str | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    inside: str | None = None  # the name of the node in whose graph it ran


@dataclass(slots=True, kw_only=True)
class NodeTable:
    """Nodes of several runs in order, each with one sample a run: 0 where it did not run."""

    rows: dict[str, NodeTime] = field(default_factory=dict)
    samples_s: dict[str, list[float]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    runs: int = 0


def parse_profile(text: bytes) -> list[list[ProfileEvent]]:
    """The events of nodes, a list a run. What came before the first run, and after the last whole one, is left out."""
    try:
        events = msgspec.json.decode(text, type=list[ProfileEvent])
    except msgspec.DecodeError as error:
        raise EngineError(
            f"ONNX Runtime wrote a profile that cannot be read: {error}.",
            remedy="Measure without per-op times, or with another version of onnxruntime.",
        ) from error
    runs: list[list[ProfileEvent]] = []
    current: list[ProfileEvent] = []
    for event in events:
        if event.cat == "Node" and event.name.endswith(_SUFFIX):
            current.append(event)
        elif event.cat == "Session" and event.name == "model_run":
            runs.append(current)
            current = []
    return runs


def node_times(events: Sequence[ProfileEvent]) -> list[NodeTime]:
    """One run's nodes by start, each once. Two of one name in the graphs of different nodes are two."""
    own = list(_own_times(events))
    own.sort(key=lambda row: row[0].ts)  # stable: of two at the same microsecond the holder was put first
    times: dict[tuple[str | None, str], NodeTime] = {}
    for event, micros, inside in own:
        name, details = event.name.removesuffix(_SUFFIX), event.args or Details()
        before = times.get((inside, name))
        moved = float(details.activation_size) + float(details.output_size)
        outputs = [next(iter(entry.items())) for entry in details.output_type_shape if entry]
        times[inside, name] = NodeTime(
            name=name,
            kind=details.op_name or name,
            provider=details.provider,
            seconds=micros * _MICRO + (before.seconds if before else 0.0),
            bytes=moved + (before.bytes if before else 0.0),
            dtype=outputs[0][0] if outputs else None,
            shapes=tuple(tuple(shape) for _, shape in outputs),
            inside=inside,
        )
    return list(times.values())


_Own = tuple[ProfileEvent, int, str | None]  # an event, microseconds that are its own, and the node it ran in


def _own_times(events: Sequence[ProfileEvent]) -> list[_Own]:
    """Events with the time that is not within others. A holder takes those before it that started after it.

    The gaps between those are not its own either: they are mostly the profiler's.
    """
    open_: list[tuple[ProfileEvent, list[_Own]]] = []  # events no holder has taken, with what they hold
    for event in events:
        held: list[_Own] = []
        within = 0
        if event.args is not None and event.args.op_name in _HOLDERS:
            start = len(open_)
            while start and open_[start - 1][0].ts >= event.ts:
                start -= 1
            inside = [inner for inner, _ in open_[start:]]
            name = event.name.removesuffix(_SUFFIX)
            held = [(row, micros, outer or name) for _, rows in open_[start:] for row, micros, outer in rows]
            within = max((inner.ts + inner.dur for inner in inside), default=0) - min(
                (inner.ts for inner in inside), default=0
            )
            del open_[start:]
        open_.append((event, [(event, max(0, event.dur - within), None), *held]))
    return [row for _, rows in open_ for row in rows]


def add_run(table: NodeTable, rows: Sequence[NodeTime]) -> None:
    """One run more. A node that the runs before it had not stands after its neighbour in this one."""
    fresh = [row.name for row in rows if row.name not in table.rows]
    for name in fresh:
        table.samples_s[name] = [0.0] * table.runs
    if not table.order:
        table.order.extend(fresh)
    elif fresh:
        _insert(table.order, [row.name for row in rows])
    for row in rows:
        table.rows[row.name] = row
    times: Mapping[str, float] = {row.name: row.seconds for row in rows}
    for name, samples in table.samples_s.items():
        samples.append(times.get(name, 0.0))
    table.runs += 1


def _insert(order: list[str], names: Sequence[str]) -> None:
    known, place = set(order), 0
    for name in names:
        if name in known:
            place = order.index(name) + 1
        else:
            order.insert(place, name)
            place += 1


# What the engine's profiler itself costs inside the time it reports of a node, and what a run costs besides its nodes.
#
# Two chains of nodes that do next to nothing are run with and without it. Without it, one node more costs so much, and
# a chain of none would still take the rest; with it, a node reports more than that. The difference is the profiler's
# own, and what rounding `dur` down to whole microseconds takes off is in it too.

_SHAPE = (1, 1, 1, 1)
_SHORT, _LONG, _RUNS, _WARM = 16, 144, 40, 5


@frozen
class Timers:
    node_s: float  # that the profiler adds to what it reports of a node
    step_s: float  # of a run without it that are spent in no node


def timers_from(reported_s: float, short_s: float, long_s: float) -> Timers:
    """From the mean reported time of a node, and the two chains' runs without the profiler; never below zero."""
    each_s = (long_s - short_s) / (_LONG - _SHORT)
    return Timers(node_s=max(0.0, reported_s - each_s), step_s=max(0.0, short_s - _SHORT * each_s))


def measure_timers(threads: int, *, clock: Clock = time.perf_counter) -> Timers:
    """Measured here and now on the CPU provider."""
    with TemporaryDirectory(prefix="inferometer-") as folder:
        place = Path(folder)
        chains = {count: _chain(place / f"{count}.onnx", count) for count in (_SHORT, _LONG)}
        plain = {count: load(_plan(path, threads))[0] for count, path in chains.items()}
        timed = load(_plan(chains[_LONG], threads), profile=place / "profile")[0]
        steps = {count: _step(session) for count, session in plain.items()}
        timed_step = _step(timed)
        walls: dict[int, list[float]] = {_SHORT: [], _LONG: []}
        for run in range(_WARM + _RUNS):
            timed_step()
            for count, step in steps.items():
                step()  # its caches are its own again
                start = clock()
                step()
                if run >= _WARM:
                    walls[count].append(clock() - start)
        runs = parse_profile(Path(timed.end_profiling()).read_bytes())[_WARM:]
        reported = _quiet(sum(row.seconds for row in node_times(events)) / _LONG for events in runs)
    return timers_from(reported, _quiet(walls[_SHORT]), _quiet(walls[_LONG]))


def _quiet(values: Iterable[float]) -> float:
    """The first decile: a busy machine only ever adds to a time."""
    ordered = sorted(values)
    return ordered[len(ordered) // 10]


def _plan(path: Path, threads: int) -> LoadingPlan:
    return LoadingPlan(path=path, threads=threads, providers=((CPU, {}),), level="none")


def _chain(path: Path, count: int) -> Path:
    """Sums of a tensor and two stored ones: as many inputs as a convolution has, since each is written down."""
    onnx = import_module("onnx")
    made, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [made.make_node("Sum", [f"t{i}", "a", "b"], [f"t{i + 1}"], name=f"n{i}") for i in range(count)]
    ports = [made.make_tensor_value_info(name, kind, _SHAPE) for name in ("t0", f"t{count}")]
    stored = [made.make_tensor(name, kind, _SHAPE, [0.0]) for name in ("a", "b")]
    graph = made.make_graph(nodes, "chain", ports[:1], ports[1:], stored)
    model = made.make_model(graph, ir_version=8, opset_imports=[made.make_opsetid("", 14)])
    path.write_bytes(model.SerializeToString())
    return path


def _step(session: Any) -> Callable[[], Any]:
    import numpy as np  # noqa: PLC0415 - beside the engine that needs it

    binding = session.io_binding()
    binding.bind_ortvalue_input("t0", ort.OrtValue.ortvalue_from_numpy(np.ones(_SHAPE, np.float32)))
    binding.bind_output(session.get_outputs()[0].name)
    return partial(session.run_with_iobinding, binding)


# Which node a name stands for that the engine prints.
#
# A function of the file (HardSwish) is replaced by nodes without names. The engine's profile prints such a node as its
# kind and a number (`Mul_571`) that stands nowhere else; but both lists keep the order of execution. And in a file of
# the engine's own format, branches and loops may hold nodes of the same name: those are told apart by the node around
# them.

_NUMBERED = re.compile(r"(?P<kind>.+)_\d+")


def printed_names(optimised: Topology, ran: Sequence[NodeTime]) -> dict[tuple[str | None, str], str]:
    """By what is printed of a node and of the one around it, its name in the topology. `ran` is one run in order."""
    around = {node.name: node.printed or node.engine_name for node in optimised.nodes}
    place: dict[tuple[str | None, str], int] = {}
    for number, node in enumerate(optimised.nodes):
        if node.printed:
            place.setdefault((None if node.inside is None else around[node.inside], node.printed), number)
    names: dict[tuple[str | None, str], str] = {}
    reached = -1  # the last node that is known to have run: what comes next lies behind it
    for row in ran:
        key = (row.inside, row.name)
        match = _NUMBERED.fullmatch(row.name)
        if key in place:
            reached = place[key]
            names[key] = optimised.nodes[reached].engine_name
        elif match is not None and match["kind"] == row.kind:
            later = range(reached + 1, len(optimised.nodes))
            fitting = (n for n in later if not optimised.nodes[n].printed and optimised.nodes[n].kind == row.kind)
            reached = next(fitting, reached)
            if not optimised.nodes[reached].printed:
                names[key] = optimised.nodes[reached].engine_name
    return names


EVENTS_AT_MOST = 100_000  # in one profile; the engine drops what comes after a million, and each takes a kilobyte
SKIP = ""  # the phase of runs that do not count
Begin = Callable[[LoadingPlan, Path], Any]  # a session of another engine, whose profile's name begins so
_DTYPES = {"float": "float32", "double": "float64"}


class ProfileRecorder:
    """Owns the session that is profiled. The caller reports runs with `ran`, and rebinds when `ready` gives another."""

    def __init__(self, plan: LoadingPlan, *, begin: Begin | None = None, clock: Clock = time.perf_counter) -> None:
        self._begin = begin
        self._folder = TemporaryDirectory(prefix="inferometer-")
        self._clock = clock
        model = as_onnx(plan)
        given = name_nodes(model)
        self.plan = plan
        # What is in the engine's own format, or is opened by another engine, is run as it is, whatever its names.
        if given and plan.path.suffix != ORT and begin is None:
            self.plan = replace(plan, model=model.SerializeToString())
        self.original: Topology = topology_of(model, given)
        del model
        self.optimised, self.fusion, self.session, self.stages = self._first()
        self._tables: dict[str, NodeTable] = {}
        self._phases: list[str] = []
        self._events_a_run = max(1, len(self.optimised.nodes))
        self._renamed = any(node.engine_name != node.printed for node in self.optimised.nodes)
        self._ended = False

    def _first(self) -> tuple[Topology, Fusion, Any, tuple[Stage, ...]]:
        place = Path(self._folder.name)
        own = None if self._begin else place / "profile"
        session, stages = load(self.plan, profile=own, optimised=place / "a.onnx", clock=self._clock)
        if self._begin:
            session = self._begin(self.plan, place / "profile")
        optimised = _written(place, "a.onnx")
        return optimised, with_served(self.original, optimised, self._fused(optimised)), session, stages

    def _fused(self, optimised: Topology) -> Fusion:
        if not needs_layout_step(optimised):
            return map_fusion(self.original, optimised)
        place = Path(self._folder.name)
        load(replace(self.plan, level="extended"), optimised=place / "b.onnx")
        before = _written(place, "b.onnx")
        return map_layout(before, optimised, map_fusion(self.original, before))

    @cached_property
    def timers(self) -> Timers:
        return measure_timers(self.plan.threads, clock=self._clock)

    def ready(self, runs: int, rebind: Callable[[Any], None]) -> None:
        """Before that many runs: a fresh session where the profile was read, or would be too long."""
        if not self._ended and (len(self._phases) + runs) * self._events_a_run > EVENTS_AT_MOST and self._phases:
            self._read()
        if self._ended:
            profile = Path(self._folder.name) / "profile"
            self.session = self._begin(self.plan, profile) if self._begin else load(self.plan, profile=profile)[0]
            self._ended = False
            rebind(self.session)

    def ran(self, phase: str) -> None:
        self._phases.append(phase)

    def take(self) -> Mapping[str, tuple[Kernel, ...]]:
        """By phase, what ran since the last time."""
        if self._phases and not self._ended:
            self._read()
        tables, self._tables = self._tables, {}
        return {phase: kernels_from_table(table, self.fusion, self._weights) for phase, table in tables.items()}

    @cached_property
    def _weights(self) -> Mapping[str, float]:
        """Bytes of stored tensors that each kernel reads, by its name."""
        stored = self.optimised.stored
        return {node.engine_name: sum(stored.get(name, 0.0) for name in node.inputs) for node in self.optimised.nodes}

    def _read(self) -> None:
        path = Path(self.session.end_profiling())
        self._ended = True
        runs = parse_profile(path.read_bytes())
        path.unlink()
        phases, self._phases = self._phases, []
        if len(runs) != len(phases):
            raise EngineError(
                f"ONNX Runtime ran {len(phases)} times and its profile holds {len(runs)} runs: events were dropped.",
                remedy="Run fewer steps between two readings of the kernels.",
            )
        for phase, events in zip(phases, runs, strict=True):
            self._events_a_run = max(self._events_a_run, len(events))
            if phase != SKIP:
                add_run(self._tables.setdefault(phase, NodeTable()), self._named(node_times(events)))

    def _named(self, rows: Sequence[NodeTime]) -> list[NodeTime]:
        """A run under the names of the topology."""
        if not self._renamed:
            return list(rows)
        names = printed_names(self.optimised, rows)
        return [replace(row, name=names.get((row.inside, row.name), row.name)) for row in rows]

    def close(self) -> None:
        if not self._ended and self.session is not None:
            self.session.end_profiling()
            self._ended = True
        self.session = None
        self._folder.cleanup()


def _written(folder: Path, name: str) -> Topology:
    """The graph that the engine wrote; the weights it wrote beside it are removed at once."""
    model = load_model(folder / name)
    for path in folder.glob("*.bin"):
        path.unlink()
    (folder / name).unlink()
    return topology_of(model, name_nodes(model))


def kernels_from_table(table: NodeTable, fusion: Fusion, weights: Mapping[str, float]) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(
            name=name,
            kind=row.kind,
            samples_s=tuple(table.samples_s[name]),
            unit=unit_of(row.provider),
            layers=fusion.layers.get(name) or fusion.serves.get(name, ()),
            own=name in fusion.serves,
            provider=row.provider or None,
            dtype=_DTYPES.get(row.dtype, row.dtype) if row.dtype else None,
            bytes=row.bytes + weights.get(name, 0.0),
            shapes=row.shapes,
        )
        for name, row in ((name, table.rows[name]) for name in table.order)
    )

"""An engine's session with its profiler on: it says what ran, run by run.

The engine writes its profile once, when profiling ends, and keeps a million events at most. So a session is replaced by
a fresh one after each reading, and before the events would be too many; the first run in a fresh one is not counted.
An engine that has ONNX Runtime underneath begins its own sessions: they too end a profile and give its file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError
from inferometer.engines.base import Kernel, Stage
from inferometer.engines.onnx_nodes import Topology, load_model, name_nodes, topology_of
from inferometer.engines.onnxruntime.events import NodeTable, add_run, node_times, parse_profile
from inferometer.engines.onnxruntime.fusion import Fusion, map_fusion, map_layout, needs_layout_step, with_served
from inferometer.engines.onnxruntime.loading import ORT, Clock, LoadPlan, as_onnx, load
from inferometer.engines.onnxruntime.overhead import Timers, measure_timers
from inferometer.engines.onnxruntime.printed import printed_names
from inferometer.engines.onnxruntime.providers import unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.engines.onnxruntime.events import NodeTime

EVENTS_AT_MOST = 100_000  # in one profile; the engine drops what comes after a million, and each takes a kilobyte
SKIP = ""  # the phase of runs that do not count
Begin = Callable[[LoadPlan, Path], Any]  # a session of another engine, whose profile's name begins so
_DTYPES = {"float": "float32", "double": "float64"}


class ProfileRecorder:
    """Owns the session that is profiled. The caller reports runs with `ran`, and rebinds when `ready` gives another."""

    def __init__(self, plan: LoadPlan, *, begin: Begin | None = None, clock: Clock = time.perf_counter) -> None:
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

"""What the engine's profiler itself costs inside the time it reports of a node, and what a run costs besides its nodes.

Two chains of nodes that do next to nothing are run with and without it. Without it, one node more costs so much, and a
chain of none would still take the rest; with it, a node reports more than that. The difference is the profiler's own,
and what rounding `dur` down to whole microseconds takes off is in it too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

from inferometer.engines.onnxruntime.events import node_times, parse_profile
from inferometer.engines.onnxruntime.loading import Clock, LoadPlan, load
from inferometer.engines.onnxruntime.providers import CPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SHAPE = (1, 1, 1, 1)
_SHORT, _LONG, _RUNS, _WARM = 16, 144, 40, 5


@dataclass(frozen=True, slots=True, kw_only=True)
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


def _plan(path: Path, threads: int) -> LoadPlan:
    return LoadPlan(path=path, threads=threads, providers=((CPU, {}),), level="none")


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

"""From a probe's times to points: each op of the graph with its share of the clean step.

An engine runs several ops as one kernel, while a price is the sum of the ops' own. So the small ops of such a kernel
get the time that their table predicts, and the large op gets the rest: the sum is then what was measured. The time of
kernels that belong to no op of the graph (layout changes, shape arithmetic) is spread over the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from inferometer.calibrate.fitting.fit import Fitted, fit_class, predicted_seconds
from inferometer.calibrate.fitting.points import OpPoint, OpWork, measured_point, works_of
from inferometer.catalog.engines import require_effects
from inferometer.cost.options import Options
from inferometer.cost.ready import make_ready
from inferometer.measure.correct import correct
from inferometer.measure.layers import graph_layers
from inferometer.measure.ops import measured_ops
from inferometer.readers.sizes import bind

if TYPE_CHECKING:
    from inferometer.calibrate.probes.steps import ProbeTimes
    from inferometer.core.device import Device
    from inferometer.core.graph import Graph
    from inferometer.core.profile import OpTime
    from inferometer.core.workload import Workload

_LEAST_PART = 0.3  # of a kernel: the large op keeps this much, whatever the small ones are predicted to take
_LEAST_INSIDE = 0.5  # of the time must be in ops of the graph: otherwise names do not match, and the rest is a guess
_FEW = 8  # points that a table needs before it is used
_BESIDES = frozenset({"vector", "indexing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedProbe:
    """The ops of a graph at one workload as they would be priced, by the name of each of their repetitions."""

    works: Mapping[str, OpWork]
    launches: float
    floor_s: float


@dataclass(slots=True)
class Beside:
    """How long small ops take when they run alone, from the points so far; refitted now and then."""

    kernel_s: float = 0.0
    points: list[OpPoint] = field(default_factory=list)
    _fitted: Fitted | None = None
    _of: int = 0

    def add(self, points: Sequence[OpPoint]) -> None:
        self.points += [point for point in points if point.classes[-1] in _BESIDES and point.floor_s > 0]

    def seconds(self, work: OpWork) -> float:
        if len(self.points) < _FEW:
            return work.floor_s
        if self._fitted is None or len(self.points) > 1.5 * self._of:
            self._fitted, self._of = fit_class("vector", self.points, kernel_s=self.kernel_s), len(self.points)
        point = measured_point(work, 1.0, dtype="", probe="")
        return predicted_seconds(self._fitted, point, self.kernel_s)


def price_probe(  # noqa: PLR0913 - what a price depends on
    graph: Graph, device: Device, runtime: str, *, workload: Workload, sizes: Mapping[str, int], phase: str
) -> PricedProbe:
    effects = require_effects(runtime)
    ready = make_ready(graph, device, effects=effects, workload=workload, options=Options())
    known = {work.name: work for work in works_of(ready.plan, sizes, phase)}
    named: dict[str, OpWork] = {}
    for block in graph.blocks:
        for op in block.ops:
            first = known.get(block.full_name(op.name))
            for name in (block.full_name(op.name, number) for number in range(block.count)):
                if (work := known.get(name, first)) is not None:
                    named[name] = work
    return PricedProbe(
        works=named,
        launches=float(sum(work.count * work.launches for work in known.values())),
        floor_s=sum(work.count * work.floor_s for work in known.values()),
    )


def device_rates(device: Device, formats: Collection[str]) -> dict[str, float]:
    """The peaks that floors are computed from, for every point: the calibration adopts them."""
    memory = device.memory
    rates = {f"peak:{name}": float(peak) for name, peak in device.peaks.items() if name in formats}
    if memory is not None and memory.bandwidth_bytes_per_s is not None:
        rates[f"bandwidth:{memory.level}"] = float(memory.bandwidth_bytes_per_s)
    return rates


def ops_of(graph: Graph, workload: Workload, sizes: Mapping[str, int], ran: ProbeTimes) -> tuple[OpTime, ...]:
    """The kernels as ops of the graph; with what is in no kernel they add up to the clean step."""
    known = {name: size for name, size in sizes.items() if name in graph.symbols}
    layers = graph_layers(graph, bind(graph, workload, known))
    total = sum(sum(kernel.device_s or kernel.samples_s) for kernel in ran.kernels)
    corrected = correct(
        ran.kernels,
        clean_s=ran.clean_s,
        walls_s=(max(total, ran.clean_s),),
        paired_s=(ran.clean_s,),
        cost_s=ran.cost_s,
        idle_s=ran.idle_s,
    )
    return measured_ops(ran.kernels, corrected, layers, adopt=False)


def probe_points(  # noqa: PLR0913 - an op is measured, priced and named
    ops: Sequence[OpTime],
    known: PricedProbe,
    beside: Beside,
    *,
    dtype: str,
    probe: str,
    workload: str,
    rates: Mapping[str, float],
) -> tuple[OpPoint, ...]:
    """One point per op of the graph: the median over its repetitions. No points if most of the time is in no op."""
    groups = [(op, [known.works[name] for name in op.layers or (op.name,) if name in known.works]) for op in ops]
    inside, whole_s = sum(op.time_s for op, works in groups if works), sum(op.time_s for op in ops)
    if inside < _LEAST_INSIDE * whole_s:
        return ()
    spread = whole_s / inside if inside > 0 else 1.0
    seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
    mains: dict[tuple[str, ...], tuple[OpWork, ...]] = {}
    for op, works in groups:
        if works:
            main = max(works, key=lambda work: (work.axes.get("flops", 0.0), work.floor_s))
            others = tuple(work for work in works if work is not main)
            key = (main.name, *(work.name for work in others))
            mains[key] = (main, *others)
            seconds[key].append(op.time_s * spread)
    points = []
    for key, (main, *rest) in mains.items():
        kernel_s = median(seconds[key])
        own = max(kernel_s - sum(beside.seconds(work) for work in rest), _LEAST_PART * kernel_s)
        point = measured_point(main, own, dtype=dtype, probe=probe, workload=workload)
        points.append(replace(point, rates=dict(rates)))
    beside.add([point for point in points if point.op in {key[0] for key in mains if len(key) == 1}])
    return tuple(points)

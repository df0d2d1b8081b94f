"""From a probe's times to points: each op of the graph with its share of the clean step.

An engine runs several ops as one kernel, while a price is the sum of the ops' own. So the small ops of such a kernel
get the time that such ops take alone, as far as that is known, and the large op gets the rest: the sum is then what was
measured. The time of kernels that belong to no op of the graph (layout changes, shape arithmetic) is spread over the
others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, cast

from inferometer.core.frozen import frozen
from inferometer.core.sizes import bind
from inferometer.engines.base import Kernel, Runtime, Session, Target
from inferometer.known.engines import require_effects
from inferometer.measure.bench.plan import Plan
from inferometer.measure.calibrate.fitting.fit import Fitted, fit_class, predicted_seconds
from inferometer.measure.calibrate.fitting.points import OpPoint, OpWork, measured_point, works_of
from inferometer.measure.calibrate.probes.pace import (
    MachinePace,
    Timed,
    first_decile,
    nearly,
    steady_places,
    steady_seconds,
)
from inferometer.measure.run.arrays import feed_session
from inferometer.measure.run.correct import correct
from inferometer.measure.run.inputs import index_limits, input_shapes
from inferometer.measure.run.layers import graph_layers
from inferometer.measure.run.ops import measured_ops
from inferometer.measure.run.order import MeasureOrder
from inferometer.predict.options import Options
from inferometer.predict.ready import make_ready
from inferometer.predict.work.classes import PLAIN

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.graph import Graph
    from inferometer.core.profile import OpTime
    from inferometer.core.workload import Workload

# Running a probe: a plain session for its time and an instrumented one for its shape, in turns, for a short while.

_TURN = 2  # steps that are timed at once where no other session waits
# Of each session before it is the other's turn. Threads that slept wake up on CPUs where others run, and are moved
# within some milliseconds; those of a model that runs on end stay where they are.
_TURN_S = 0.12
_FEWEST = 3  # clean steps: the fewest that have a median which one bad step does not move
_MOST = 40  # steps: further ones of a small probe tell nothing new
_OVERTIME = 2.0  # times the limit: the most that is spent to find steps that count


@frozen
class ProbeTimes:
    """Seconds of a probe's clean step, and the kernels of its instrumented steps with one reading each."""

    clean_s: float
    kernels: tuple[Kernel, ...] = ()
    cost_s: float | None = None
    idle_s: float | None = None
    runs: int
    steady: int  # clean steps that counted
    versions: Mapping[str, str] = field(default_factory=dict)


def run_in_turns(  # noqa: PLR0913 - both sessions, and how long
    plain: Session, instrumented: Session | None, pace: MachinePace, *, limit_s: float, threads: int, most: int = _MOST
) -> ProbeTimes:
    """Run both for `limit_s`, or up to twice as long until three clean steps count."""
    plain.step()
    if instrumented is None:
        return _ran(
            _until_enough(plain, None, pace, limit_s=limit_s, threads=threads, most=most)[0], pace, threads, plain
        )
    instrumented.step()
    with suppress(KeyError):
        instrumented.kernels()
    steps, timed = _until_enough(plain, instrumented, pace, limit_s=limit_s, threads=threads, most=most)
    good = steady_places(timed, pace, threads=threads) or nearly(timed)
    kernels = instrumented.kernels().get("forward", ())
    return replace(
        _ran(steps, pace, threads, plain),
        kernels=tuple(_reading(kernel, good, len(timed)) for kernel in kernels),
        cost_s=getattr(instrumented, "cost_per_kernel_s", None),
        idle_s=getattr(instrumented, "idle_per_step_s", None),
    )


def _ran(steps: Sequence[Timed], pace: MachinePace, threads: int, session: Session) -> ProbeTimes:
    return ProbeTimes(
        clean_s=steady_seconds(steps, pace, threads=threads),
        runs=len(steps),
        steady=len(steady_places(steps, pace, threads=threads)),
        versions=dict(session.opened.versions),
    )


def _until_enough(  # noqa: PLR0913 - both sessions, and when it is enough
    plain: Session, instrumented: Session | None, pace: MachinePace, *, limit_s: float, threads: int, most: int
) -> tuple[list[Timed], list[Timed]]:
    steps: list[Timed] = []
    timed: list[Timed] = []
    begun = pace.clock()
    while len(steps) < most:
        spent = pace.clock() - begun
        counted = len(steady_places(steps, pace, threads=threads))
        if steps and (spent > _OVERTIME * limit_s or (spent > limit_s and counted >= _FEWEST)):
            break
        if instrumented is None:
            steps += [pace.timed(plain.step) for _ in range(_TURN if steps else 1)]
            continue
        steps += _turn(plain, pace, most)
        timed += _turn(instrumented, pace, most)
    return steps, timed


def _turn(session: Session, pace: MachinePace, most: int) -> list[Timed]:
    """Steps of one of two sessions, once the other's threads rest.

    Engines' threads spin for a while after a step, waiting for the next one. Those of the session before took CPUs from
    this one's: ONNX Runtime's probes on four cores took up to twice their time, and so did what they predicted. Turns
    of two steps did the same: the engine's own threads had slept, and shared CPUs until the turn was over.
    """
    pace.rest()
    begun = pace.clock()
    steps = [pace.timed(session.step)]
    while len(steps) < most and pace.clock() - begun < _TURN_S:
        steps.append(pace.timed(session.step))
    return steps


def _reading(kernel: Kernel, good: Sequence[int], steps: int) -> Kernel:
    """The kernel with one reading, from the steps that count: its time when nothing interrupts it."""

    def chosen(samples: Sequence[float]) -> tuple[float]:
        kept = [samples[place] for place in good] if len(samples) == steps else list(samples)
        return (first_decile(kept),)

    device = None if kernel.device_s is None else chosen(kernel.device_s)
    return replace(kernel, samples_s=chosen(kernel.samples_s), device_s=device)


def order_of(runtime: Runtime, target: Target, graph: Graph, workload: Workload) -> MeasureOrder:
    """A session's inputs: the workload's shapes, random numbers, and ids that are in the tables."""
    binding = bind(graph, workload)
    return MeasureOrder(
        runtime=runtime.name,
        target=replace(target, shapes=input_shapes(graph, binding)),
        plan=Plan(),
        sizes={name: int(size) for name, size in binding.sizes.items()},
        limits=index_limits(graph),
    )


def fed(order: MeasureOrder, session: Any) -> Session:
    """The session with its inputs in place."""
    ready = cast("Session", session)
    feed_session(order, ready)
    return ready


_LEAST_PART = 0.3  # of a kernel: the large op keeps this much, whatever the small ones are predicted to take
_LEAST_INSIDE = 0.5  # of the time must be in ops of the graph: otherwise names do not match, and the rest is a guess
_FEW = 8  # points that a table needs before it is used
_BESIDES = frozenset({"vector", "indexing"})


@frozen
class PricedProbe:
    """The ops of a graph at one workload as they would be priced, by the name of each of their repetitions.

    `entries` are all of them, equal ones once with their count, and the ones that the engine stores as one matrix.
    """

    works: Mapping[str, OpWork]
    launches: float
    floor_s: float
    entries: tuple[OpWork, ...] = ()


@dataclass(slots=True)
class SmallOps:
    """How long small ops take when they run alone, by their most specific class; refitted now and then.

    A relu says nothing of a gelu, which may take twenty times as long, so an op whose class was never seen alone takes
    its floor.
    """

    kernel_s: float = 0.0
    points: dict[str, list[OpPoint]] = field(default_factory=dict)
    _fitted: dict[str, Fitted] = field(default_factory=dict)

    def add(self, points: Sequence[OpPoint]) -> None:
        for point in points:
            if point.classes[-1] in _BESIDES and point.floor_s > 0:
                self.points.setdefault(point.classes[0], []).append(point)

    def seconds(self, work: OpWork) -> float:
        name = work.classes[0]
        known = self.points.get(name, [])
        if len(known) < _FEW:
            return work.floor_s
        fitted = self._fitted.get(name)
        # half as many again: a fit for each would cost more than it tells
        if fitted is None or len(known) > 1.5 * fitted.points:
            fitted = self._fitted[name] = fit_class(name, known, kernel_s=self.kernel_s)
        point = measured_point(work, 1.0, dtype="", probe="")
        return predicted_seconds(fitted, point, self.kernel_s)


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
        entries=tuple(known.values()),
    )


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
    beside: SmallOps,
    *,
    dtype: str,
    probe: str,
    workload: str,
    rates: Mapping[str, float],
    own_graph: bool = False,
) -> tuple[OpPoint, ...]:
    """One point per op of the graph: the median over its repetitions. No points if most of the time is in no op.

    An op for which the engine's timer shows nothing has none either.

    Of what runs inside another op's kernel only plain ops get a point: no kernel of their own tells what they take. In
    the engine's `own_graph` a plain op that ran alone, though its price says that it would not, says nothing of those.
    """
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
        kernel_s = median(seconds[key]) or fmean(seconds[key])  # a timer of whole microseconds shows 0 for most
        if kernel_s == 0:
            continue
        least = min(kernel_s, max(_LEAST_PART * kernel_s, main.floor_s))
        asked = [beside.seconds(work) for work in rest]
        own = max(kernel_s - sum(asked), least)
        shrunk = (kernel_s - own) / sum(asked) if sum(asked) > 0 else 1.0
        shared = [(main, own), *((work, part * shrunk) for work, part in zip(rest, asked, strict=True))]
        for work, taken in shared:
            is_plain = work.classes[0] == PLAIN
            if (is_plain and rest and taken > 0) or (work is main and not (is_plain and own_graph)):
                point = measured_point(work, taken, dtype=dtype, probe=probe, workload=workload)
                points.append(replace(point, rates=dict(rates)))
    beside.add([point for point in points if point.op in {key[0] for key in mains if len(key) == 1}])
    return tuple(points)

"""Running a probe: a plain session for its time and an instrumented one for its shape, in turns, for a short while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, cast

from inferometer.core.frozen import frozen
from inferometer.engines.base import Kernel
from inferometer.formats.sizes import bind
from inferometer.measure.bench.plan import Plan
from inferometer.measure.calibrate.probes.pace import (
    MachinePace,
    Timed,
    first_decile,
    nearly,
    steady_places,
    steady_seconds,
)
from inferometer.measure.run.arrays import feed_session
from inferometer.measure.run.inputs import index_limits, input_shapes
from inferometer.measure.run.order import MeasureOrder

if TYPE_CHECKING:
    from inferometer.core.graph import Graph
    from inferometer.core.workload import Workload
    from inferometer.engines.base import Runtime, Session, Target

_TURN = 2  # steps of each session before it is the other's turn
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
    steps, timed = [pace.timed(plain.step)], []
    if instrumented is not None:
        timed.append(pace.timed(instrumented.step))
    begun = pace.clock()
    while len(steps) < most:
        spent = pace.clock() - begun
        counted = len(steady_places(steps, pace, threads=threads))
        if spent > _OVERTIME * limit_s or (spent > limit_s and counted >= _FEWEST):
            break
        steps += [pace.timed(plain.step) for _ in range(_TURN)]
        if instrumented is not None:
            timed += [pace.timed(instrumented.step) for _ in range(_TURN)]
    return steps, timed


def _reading(kernel: Kernel, good: Sequence[int], steps: int) -> Kernel:
    """The kernel with one reading, from the steps that count: its time when nothing interrupts it."""

    def chosen(samples: Sequence[float]) -> tuple[float]:
        kept = [samples[place] for place in good] if len(samples) == steps else list(samples)
        return (first_decile(kept),)

    device = None if kernel.device_s is None else chosen(kernel.device_s)
    return replace(kernel, samples_s=chosen(kernel.samples_s), device_s=device)


def order_of(runtime: Runtime, target: Target, graph: Graph, workload: Workload) -> MeasureOrder:
    """What a session is fed: the workload's shapes, random numbers, and ids that the tables have."""
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

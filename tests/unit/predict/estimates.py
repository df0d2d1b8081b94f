"""The price of a single op: what the plan of a whole graph says of one of its ops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from inferometer.core.graph import Block, Graph
from inferometer.core.profile import Estimate
from inferometer.core.workload import Parallel
from inferometer.known.engines import require_effects
from inferometer.predict.parallel import place
from inferometer.predict.price.plan import plan_of
from inferometer.predict.price.price import bound_names
from inferometer.predict.work.merge import with_sizes
from inferometer.predict.work.polynomial import SYMBOLIC
from inferometer.predict.work.prepare import Terms, prepare

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Op

__all__ = ["estimate_op"]


def estimate_op(
    op: Op,
    binding: Binding,
    device: Device,
    *,
    runtime: RuntimeEffects | str = "ideal",
    phase: str = "forward",
    calibration: Calibration | None = None,
) -> Estimate:
    """One op at the binding's sizes and formats, alone: nothing is fused with it, and no host runs ahead of it."""
    effects = replace(require_effects(runtime), fusion="none")
    graph = Graph(name=op.name, blocks=(Block(name="op", ops=(op,)),), precision=binding.precision.activations)
    graph = with_sizes(graph, {name: size for name, size in binding.sizes.items() if name not in SYMBOLIC})
    terms = Terms(precision=binding.precision, effects=effects)
    prepared = prepare(graph, place(graph, Parallel()), terms)
    plan = plan_of(prepared, device, weights_bytes=float("inf"), calibration=calibration)
    sizes = {name: binding.sizes.get(name, 1 if name != "context" else 0) for name in SYMBOLIC}
    priced = plan.step(sizes, phase).priced
    bound, *_ = bound_names(priced)
    origin, *_ = plan.rates_in(phase).origins
    return Estimate(
        time_s=float(priced.time_s[0, 0]),
        low_s=float(priced.low_s[0, 0]),
        high_s=float(priced.high_s[0, 0]),
        floor_s=float(priced.floor_s[0, 0]),
        bound=bound,
        origin=origin,
        rule=op.kind,
        level=plan.levels.main if bound == "memory" else None,
    )

"""From points and whole steps to a Calibration: overheads first, then tables, then what whole steps add to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import hypot
from statistics import median
from typing import TYPE_CHECKING

from inferometer.asking.calibrations import formats_of
from inferometer.asking.files import sealed
from inferometer.calibrate.fitting.bounds import at_best, bounded, unbounded
from inferometer.calibrate.fitting.fit import Fitted, fit_points
from inferometer.calibrate.fitting.points import drifts, middle_of, middle_steps
from inferometer.calibrate.fitting.steps import WholeStep, taken_apart, whole_fit
from inferometer.core.calibration import Calibration
from inferometer.core.device import Device, Sourced
from inferometer.core.engine import RuntimeEffects
from inferometer.core.workload import Workload
from inferometer.cost.options import Options
from inferometer.cost.ready import make_ready
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.calibrate.fitting.points import Point, StepPoint
    from inferometer.core.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was measured: the device as it is priced, the runtime as its effects say, and the circumstances."""

    device: Device
    runtime: RuntimeEffects
    dtype: str
    created: str
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    source: str = "inferometer calibrate"

    def sourced(self, value: float, note: str | None = None) -> Sourced:
        return Sourced(value=value, origin="calibrated", source=self.source, date=self.created[:10], note=note)


def assemble(subject: Subject, points: Sequence[Point], steps: Sequence[StepPoint] = ()) -> Calibration:
    """The calibration, sealed with its hash."""
    ours = middle_of(point for point in points if point.dtype == subject.dtype)
    if not any(point.floor_s > 0 for point in ours) and not any(step.dtype == subject.dtype for step in steps):
        raise DomainError(
            f"No op was measured in {subject.dtype}, so there is nothing to fit.",
            remedy="Give more time with --budget, or another --dtype.",
        )
    overheads = overheads_of(ours)
    fitted = fit_points(ours, kernel_s=overheads.get("kernel", 0.0))
    rates = best_rates(ours)
    made = Calibration(
        device=subject.device.name,
        runtime=subject.runtime.name,
        dtype=subject.dtype,
        created=subject.created,
        unit=subject.device.unit,
        threads=subject.threads,
        tables=tuple(each.table for each in fitted),
        overheads={name: subject.sourced(value) for name, value in overheads.items()},
        residuals={each.table.op_class: round(each.residual, 4) for each in fitted},
        peaks={name: subject.sourced(rate) for name, rate in rates[0].items()},
        bandwidths={name: subject.sourced(rate) for name, rate in rates[1].items()},
        valid={each.table.op_class: dict(each.valid) for each in fitted},
        points=len(ours),
        versions=dict(subject.versions),
        environment={**subject.environment, **_circumstances(ours)},
        notes=_thin(fitted),
    )
    taken = [step for step in steps if step.dtype == subject.dtype]
    whole = whole_steps(subject, made, middle_steps(taken))
    if whole:
        made = whole_fit(whole, _start(subject, overheads)).applied_to(
            made, source=subject.source, date=subject.created[:10]
        )
        made = _with_drift(made, drifts(taken))
    return sealed(bounded(made))


def _with_drift(made: Calibration, drift: Mapping[str, float]) -> Calibration:
    """A prediction is held against another time, when the machine differs from itself: that adds to the residuals."""
    wider = {f"step.{phase}": value for phase, value in drift.items()}
    residuals = {name: hypot(value, wider.get(name, 0.0)) for name, value in made.residuals.items()}
    told = {f"drift_{phase}": f"{value:.3g}" for phase, value in drift.items()}
    return replace(made, residuals=residuals, environment={**made.environment, **told})


def _thin(fitted: Sequence[Fitted]) -> tuple[str, ...]:
    """Classes that one probe alone stands for: their residuals say little."""
    names = [each.table.op_class for each in fitted if each.probes < 2]
    return (f"One probe alone was measured of {', '.join(names)}.",) if names else ()


def overheads_of(points: Sequence[Point]) -> dict[str, float]:
    """The median of the readings of each overhead."""
    found: dict[str, list[float]] = defaultdict(list)
    for point in points:
        if point.classes == ("overhead",):
            found[point.op].append(point.seconds)
    return {name: median(readings) for name, readings in found.items()}


def best_rates(points: Sequence[Point]) -> tuple[dict[str, float], dict[str, float]]:
    """The best rates that any point reached: `peak:FORMAT` in operations, `bandwidth:LEVEL` in bytes per second."""
    best: dict[str, float] = {}
    for point in points:
        for name, rate in point.rates.items():
            best[name] = max(best.get(name, 0.0), rate)
    peaks, levels = (
        {name.partition(":")[2]: rate for name, rate in best.items() if name.startswith(start)}
        for start in ("peak:", "bandwidth:")
    )
    return peaks, levels


def _circumstances(points: Sequence[Point]) -> dict[str, str]:
    """What was read beside the ops: the rate that lasts over the first, and watts at full load."""
    found = {}
    for point in points:
        for name, rate in point.rates.items():
            kind, _, what = name.partition(":")
            if kind in {"sustained", "power"}:
                found[f"{kind}_{what}"] = f"{rate:.4g}"
    return found


def _start(subject: Subject, overheads: Mapping[str, float]) -> dict[str, float]:
    """Where the fit of overheads begins: what was measured, else what the runtime's row says."""
    stated = subject.runtime.on(subject.device.unit)
    known = {"kernel": stated.kernel_s, "host": stated.host_s, "step": stated.step_s}
    return {name: float(value) for name, value in known.items() if value is not None} | dict(overheads)


def whole_steps(subject: Subject, calibration: Calibration, steps: Sequence[StepPoint]) -> list[WholeStep]:
    """Each step taken apart as the calibration's tables price it, before any factor."""
    bare = unbounded(calibration)
    best = at_best(bare)
    found = []
    for step in steps:
        precision = formats_of(subject.runtime.name, step.dtype)
        workload = Workload(batch=step.batch, prompt=step.query, image=step.image, precision=precision)
        plan, least = (
            make_ready(
                graph_of_step(step),
                subject.device,
                effects=subject.runtime,
                workload=workload,
                options=Options(),
                calibration=each,
            ).plan
            for each in (bare, best)
        )
        words = f"{step.batch} x {step.query} + {step.context}"
        found.append(
            taken_apart(
                plan, step.sizes, step.phase, model=step.model, seconds=step.seconds, workload=words, best=least
            )
        )
    return found


_GRAPHS: dict[str, Graph] = {}


def graph_of_step(step: StepPoint) -> Graph:
    """The model of a step; read once, because what pricing prepares is kept with the graph itself."""
    from inferometer.readers.huggingface import graph_from_config  # noqa: PLC0415 - only whole steps need a reader
    from inferometer.readers.resolve import read  # noqa: PLC0415 - as above

    if step.model not in _GRAPHS:
        made = graph_from_config(step.config, name=step.model) if step.config else read(step.model)
        _GRAPHS[step.model] = replace(made, context_limit=None)  # what was measured was measured
    return _GRAPHS[step.model]

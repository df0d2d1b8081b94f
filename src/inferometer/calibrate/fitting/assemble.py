"""From points and whole steps to a Calibration: overheads first, then tables, then the factors of whole steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import hypot
from statistics import median
from typing import TYPE_CHECKING

from inferometer.asking.calibrations import formats_of, higher_rates
from inferometer.asking.files import sealed
from inferometer.calibrate.fitting.base import base_factors, base_note, base_overheads, on_base, pooled, steps_of_phase
from inferometer.calibrate.fitting.bounds import at_best, bounded, unbounded
from inferometer.calibrate.fitting.fit import Fitted, fit_points
from inferometer.calibrate.fitting.points import device_rates, drifts, middle_of, middle_steps, works_of
from inferometer.calibrate.fitting.steps import StepBase, WholeStep, taken_apart, whole_fit
from inferometer.calibrate.fitting.streams import StepWorks, fit_streams, left_out_fit, points_from
from inferometer.core.calibration import Calibration
from inferometer.core.device import Device, Sourced
from inferometer.core.engine import RuntimeEffects
from inferometer.core.workload import Workload
from inferometer.cost.options import Options
from inferometer.cost.ready import make_ready
from inferometer.cost.request import step_sizes
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.calibrate.fitting.points import OpPoint, StepPoint
    from inferometer.core.graph import Graph
    from inferometer.cost.price.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSubject:
    """What was measured: the device as it is priced, the runtime's effects, and the circumstances."""

    device: Device
    runtime: RuntimeEffects
    dtype: str
    created: str
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    host_call_s: float | None = None
    source: str = "inferometer calibrate"

    def sourced(self, value: float, note: str | None = None) -> Sourced:
        return Sourced(value=value, origin="calibrated", source=self.source, date=self.created[:10], note=note)


def assemble_calibration(
    subject: CalibrationSubject,
    points: Sequence[OpPoint],
    steps: Sequence[StepPoint] = (),
    base: Calibration | None = None,
) -> Calibration:
    """The calibration, sealed with its hash. `base` is the one before it, which the points and steps then correct."""
    ours = middle_of(point for point in points if point.dtype == subject.dtype)
    if not any(point.floor_s > 0 for point in ours) and not any(step.dtype == subject.dtype for step in steps):
        raise DomainError(
            f"No op was measured in {subject.dtype}, so there is nothing to fit.",
            remedy="Give more time with --budget: probes that were made are kept. Or give another --dtype.",
        )
    our_steps = [step for step in steps if step.dtype == subject.dtype]
    told = None
    if not any(point.floor_s > 0 for point in ours):  # the engine has no timers
        known = [works_of_step(subject, step) for step in middle_steps(our_steps)]
        told = fit_streams(known, _start(subject, overheads_of(ours)))
        others = [point for point in ours if point.op not in told.overheads]
        ours = others + points_from(told, device_rates(subject.device, subject.device.peaks.keys()))
    if base is None:
        calibration, start, before = *_from_points(subject, ours), None
    else:
        calibration, start, before = _from_base(subject, ours, base)
    whole = whole_steps(subject, calibration, middle_steps(our_steps))
    if whole:
        fitted = left_out_fit(told, whole) if told and base is None else whole_fit(whole, start, before)
        calibration = fitted.applied_to(calibration, source=subject.source, date=subject.created[:10])
        drift = {phase: value for phase, value in drifts(our_steps).items() if f"step.{phase}" in fitted.counts}
        calibration = _with_drift(calibration, drift)
        calibration = calibration if base is None else _with_residuals(calibration, fitted.counts, base)
    return sealed(bounded(calibration))


def _from_points(subject: CalibrationSubject, points: Sequence[OpPoint]) -> tuple[Calibration, dict[str, float]]:
    """What the points say by themselves, and the overheads that the fit of whole steps starts from."""
    overheads = overheads_of(points)
    fitted = fit_points(points, kernel_s=overheads.get("kernel", 0.0))
    calibration = _calibration(subject, points, fitted, overheads)
    return replace(calibration, notes=_thin(fitted)), _start(subject, overheads)


def _from_base(
    subject: CalibrationSubject, points: Sequence[OpPoint], base: Calibration
) -> tuple[Calibration, dict[str, float], StepBase]:
    """The base, corrected by the points; whole steps start from its overheads and factors."""
    alone, inside = base_overheads(base, overhead_readings(points))
    apart = {f"alone.{name}": value for name, value in alone.items()}
    kernel_s = alone.get("kernel", 0.0)
    fitted = fit_points(points, kernel_s=kernel_s)
    classes = on_base(base, fitted, points, kernel_s=kernel_s)
    calibration = _calibration(subject, points, [entry.fitted for entry in classes], {**inside, **apart})
    factors = base_factors(base, classes)
    whole = {name: value for name, value in base.residuals.items() if name == "host" or name.startswith("step")}
    calibration = replace(
        calibration,
        factors=factors,
        residuals={**calibration.residuals, **whole},
        peaks=higher_rates(calibration.peaks, base.peaks),
        bandwidths=higher_rates(calibration.bandwidths, base.bandwidths),
        points=base.points + len(points),
        steps=base.steps,
        fitted_on=base.fitted_on,
        environment={**calibration.environment, "started_from": base.content_hash or ""},
        notes=(base_note(base, classes, {fit.table.op_class for fit in fitted}),),
    )
    start = {**_start(subject, {}), **inside}
    before = StepBase(factors=factors, residuals=whole, steps=steps_of_phase(base), alone={**start, **alone})
    return calibration, start, before


def _calibration(
    subject: CalibrationSubject, points: Sequence[OpPoint], fitted: Sequence[Fitted], overheads: Mapping[str, float]
) -> Calibration:
    rates = best_rates(points)
    return Calibration(
        device=subject.device.name,
        runtime=subject.runtime.name,
        dtype=subject.dtype,
        created=subject.created,
        unit=subject.device.unit,
        threads=subject.threads,
        tables=tuple(fit.table for fit in fitted),
        overheads={name: subject.sourced(value) for name, value in overheads.items()},
        residuals={fit.table.op_class: round(fit.residual, 4) for fit in fitted},
        peaks={name: subject.sourced(rate) for name, rate in rates[0].items()},
        bandwidths={name: subject.sourced(rate) for name, rate in rates[1].items()},
        valid={fit.table.op_class: dict(fit.valid) for fit in fitted},
        points=len(points),
        versions=dict(subject.versions),
        environment={**subject.environment, **_circumstances(points)},
        host_call_s=subject.host_call_s,
    )


def _with_residuals(calibration: Calibration, counts: Mapping[str, int], base: Calibration) -> Calibration:
    """The residuals of whole steps over the base's steps and the new ones."""
    both = {
        name: pooled(base.residuals[name], steps_of_phase(base), calibration.residuals[name], count)
        for name, count in counts.items()
        if name in base.residuals
    }
    return replace(calibration, residuals={**calibration.residuals, **both})


def _with_drift(calibration: Calibration, drift: Mapping[str, float]) -> Calibration:
    """Predictions are for another time, when the machine is a little different: that adds to the residuals."""
    wider = {f"step.{phase}": value for phase, value in drift.items()}
    residuals = {name: hypot(value, wider.get(name, 0.0)) for name, value in calibration.residuals.items()}
    noted = {f"drift_{phase}": f"{value:.3g}" for phase, value in drift.items()}
    return replace(calibration, residuals=residuals, environment={**calibration.environment, **noted})


def _thin(fitted: Sequence[Fitted]) -> tuple[str, ...]:
    """A note on classes with one probe only: their residuals say little."""
    names = [fit.table.op_class for fit in fitted if fit.probes < 2]
    return (f"Only one probe was measured for {', '.join(names)}.",) if names else ()


def overhead_readings(points: Sequence[OpPoint]) -> dict[str, list[float]]:
    readings: dict[str, list[float]] = defaultdict(list)
    for point in points:
        if point.classes == ("overhead",):
            readings[point.op].append(point.seconds)
    return readings


def overheads_of(points: Sequence[OpPoint]) -> dict[str, float]:
    """The median of the readings of each overhead."""
    return {name: median(seconds) for name, seconds in overhead_readings(points).items()}


def best_rates(points: Sequence[OpPoint]) -> tuple[dict[str, float], dict[str, float]]:
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


def _circumstances(points: Sequence[OpPoint]) -> dict[str, str]:
    """Readings beside the ops: the sustained rate over the initial one, and watts at full load."""
    circumstances = {}
    for point in points:
        for name, rate in point.rates.items():
            kind, _, what = name.partition(":")
            if kind in {"sustained", "power"}:
                circumstances[f"{kind}_{what}"] = f"{rate:.4g}"
    return circumstances


def _start(subject: CalibrationSubject, overheads: Mapping[str, float]) -> dict[str, float]:
    """Where the fit of overheads starts: at what was measured, otherwise at what the runtime's row says."""
    stated = subject.runtime.on(subject.device.unit)
    known = {"kernel": stated.kernel_s, "host": stated.host_s, "step": stated.step_s}
    return {name: float(value) for name, value in known.items() if value is not None} | dict(overheads)


def whole_steps(subject: CalibrationSubject, calibration: Calibration, steps: Sequence[StepPoint]) -> list[WholeStep]:
    """Each step, split by class as the calibration's tables price it, before any factor."""
    bare = unbounded(calibration)
    best = at_best(bare)
    apart = []
    for step in steps:
        plan, least = (_plan_of(subject, step, priced_by) for priced_by in (bare, best))
        sizes = step_sizes(step.passes(plan.prepared.effects), step.batch)
        words = f"{step.batch} x {step.query} + {step.context}"
        apart.append(
            taken_apart(plan, sizes, step.phase, model=step.model, seconds=step.seconds, workload=words, best=least)
        )
    return apart


def _plan_of(subject: CalibrationSubject, step: StepPoint, calibration: Calibration | None = None) -> Plan:
    precision = formats_of(subject.runtime.name, step.dtype)
    workload = Workload(batch=step.batch, prompt=step.query, image=step.image, precision=precision)
    return make_ready(
        graph_of_step(step), subject.device, effects=subject.runtime, workload=workload, options=Options(),
        calibration=calibration,
    ).plan  # fmt: skip


def works_of_step(subject: CalibrationSubject, step: StepPoint) -> StepWorks:
    """A step with its ops at the peaks, as no table prices them yet."""
    plan = _plan_of(subject, step)
    *others, last = step.passes(plan.prepared.effects)
    works = [
        work
        for passing in (*others, last)
        for work in works_of(
            plan, {**step_sizes([passing], step.batch), "logits": 1 if passing is last else 0}, step.phase
        )
    ]
    return StepWorks(step=step, works=tuple(works))


_GRAPHS: dict[str, Graph] = {}


def graph_of_step(step: StepPoint) -> Graph:
    """The model of a step. It is read once, because pricing caches its preparations with the graph."""
    from inferometer.readers.huggingface import graph_from_config  # noqa: PLC0415 - only whole steps need a reader
    from inferometer.readers.resolve import read  # noqa: PLC0415 - as above

    if step.model not in _GRAPHS:
        graph = graph_from_config(step.config, name=step.model) if step.config else read(step.model)
        # no limit: what was measured beyond the window was measured with a longer one
        _GRAPHS[step.model] = replace(graph, context_limit=None)
    return _GRAPHS[step.model]

"""From points and whole steps to a Calibration: overheads first, then tables, then the factors of whole steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import hypot, log
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, TypeVar

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.errors import DomainError
from inferometer.measure.calibrate.fitting.base import (
    at_best,
    base_factors,
    base_note,
    base_overheads,
    bounded,
    on_base,
    pooled,
    steps_of_phase,
    unbounded,
    with_best_share,
)
from inferometer.measure.calibrate.fitting.fit import LEAST_RESIDUAL, Fitted, fit_points
from inferometer.measure.calibrate.fitting.held_against import without_worse_tables
from inferometer.measure.calibrate.fitting.points import (
    OpPoint,
    StepPoint,
    device_rates,
    drifts,
    middle_of,
    middle_steps,
    works_of,
)
from inferometer.measure.calibrate.fitting.steps import StepBase, StepFit, WholeStep, taken_apart, whole_fit
from inferometer.measure.calibrate.fitting.streams import StepWorks, StreamFit, fit_streams, left_out_fit, points_from
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, plan_of
from inferometer.measure.calibrate.fitting.whole_models import FEWEST, models_apart, with_shared, without_shared
from inferometer.predict.basis.calibrations import higher_rates
from inferometer.predict.basis.files import sealed
from inferometer.predict.request import step_sizes
from inferometer.predict.work.classes import FUSED, PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# Decoders beside other networks, in one calibration of an engine that calls a model's modules one by one.
#
# There a kernel takes as long as the Python around it, and that is not the same in a decoder's many small ops as in a
# network's few large ones. So decoders are fitted by themselves, and what they gave stands under names of their phases
# beside the rest: `linear.decode`, `kernel.decode`.

T = TypeVar("T")

PHASES = ("prefill", "decode")
_FEWEST = 2  # models: one decoder's steps cannot tell its own habits from the machine's
_SHARED = "attention.prefill"  # of networks and decoders alike: it stays the networks' if those have it


def told_apart(points: Sequence[OpPoint], steps: Sequence[StepPoint]) -> tuple[list[StepPoint], list[StepPoint]]:
    """The steps of networks, and those of decoders if ops were timed, and none of a decoder.

    Of fewer than two decoders nothing can be told, and they are left out.
    """
    timed = [point for point in points if point.floor_s > 0]
    if not timed or any(name.endswith(".decode") for point in timed for name in point.classes):
        return [*steps], []
    decoders = [step for step in steps if step.phase in PHASES]
    few = len({step.model for step in decoders}) < _FEWEST
    return [step for step in steps if step.phase not in PHASES], [] if few else decoders


def joined(networks: Calibration, decoders: Calibration) -> Calibration:
    """The calibration of networks, with that of decoders under the names of its phases."""
    named = [
        (name, table)
        for table in decoders.tables
        for name in _names(table.op_class, decoders)
        if networks.table(name) is None
    ]
    return replace(
        networks,
        tables=(*networks.tables, *(replace(table, op_class=name) for name, table in named)),
        overheads={
            **networks.overheads,
            **{
                f"{name}.{phase}": decoders.overheads[name]
                for name in ("kernel", "step")
                if name in decoders.overheads
                for phase in PHASES
            },
        },
        factors={**decoders.factors, **networks.factors},
        residuals={
            **{name: decoders.residuals.get(table.op_class, table.residual) for name, table in named},
            **{name: value for name, value in decoders.residuals.items() if name.startswith("step.")},
            **networks.residuals,
        },
        valid={**{name: decoders.valid.get(table.op_class, {}) for name, table in named}, **networks.valid},
        points=networks.points + decoders.points,
        steps=networks.steps + decoders.steps,
        fitted_on=tuple(sorted({*networks.fitted_on, *decoders.fitted_on})),
        notes=tuple(dict.fromkeys((*networks.notes, *decoders.notes))),
    )


def _names(op_class: str, decoders: Calibration) -> list[str]:
    """Under which a table stands in both phases, unless it has one there already."""
    if "." in op_class:
        return [op_class]
    return [name for phase in PHASES if decoders.table(name := f"{op_class}.{phase}") is None]


def without_decoders(calibration: Calibration) -> Calibration:
    """The network part of `joined`: another calibration starts from it, and fits its decoders anew."""
    if "kernel.decode" not in calibration.overheads:
        return calibration
    return replace(
        calibration,
        tables=tuple(table for table in calibration.tables if not _is_decoders(table.op_class)),
        overheads=_of_networks(calibration.overheads),
        factors=_of_networks(calibration.factors),
        residuals=_of_networks(calibration.residuals),
        valid=_of_networks(calibration.valid),
    )


def with_decoders_of(base: Calibration | None, calibration: Calibration) -> Calibration:
    """With what the base has of decoders, where none were measured since."""
    if base is None or "kernel.decode" not in base.overheads:
        return calibration
    return replace(
        calibration,
        tables=(*calibration.tables, *(table for table in base.tables if _is_decoders(table.op_class))),
        overheads={**base.overheads, **calibration.overheads},
        factors={**base.factors, **calibration.factors},
        residuals={**base.residuals, **calibration.residuals},
        valid={**base.valid, **calibration.valid},
    )


def _is_decoders(name: str) -> bool:
    return name.endswith(tuple(f".{phase}" for phase in PHASES)) and name != _SHARED


def _of_networks(named: Mapping[str, T]) -> dict[str, T]:
    return {name: value for name, value in named.items() if not _is_decoders(name)}


_TOLD_BY, _STEPS = "ops_told_by", "whole steps"  # in the environment of a calibration
_MODELS = 3  # at least, of which each is left out in turn


def assemble_calibration(
    subject: CalibrationSubject,
    points: Sequence[OpPoint],
    steps: Sequence[StepPoint] = (),
    base: Calibration | None = None,
) -> Calibration:
    """The calibration, sealed with its hash. `base` is the one before it, which the points and steps then correct.

    On a CPU, decoders beside other networks are fitted by themselves, and anew; and whole models are kept out of every
    fit, and show what it is off by.
    """
    if base is None and subject.reached:
        subject, points = at_reached_peak(subject, points)
    probes, models = models_apart(subject, steps, timed=any(point.floor_s > 0 for point in points))
    networks, decoders = told_apart(points, probes) if subject.device.unit == "cpu" else (probes, [])
    start = None if base is None else without_shared(without_decoders(base))
    calibration = _chosen(subject, points, networks, start)
    if decoders:
        calibration = joined(calibration, _chosen(subject, (), decoders))
    else:
        calibration = with_decoders_of(base, calibration)
    return sealed(with_shared(subject, calibration, models, base))


_PRODUCTS = frozenset({"linear", "matmul", "convolution"})
_REACHED = 0.95  # of the products: a few that were timed too short raise nothing
_ABOVE_PEAK = 1.02  # what a clock may err by


def at_reached_peak(
    subject: CalibrationSubject, points: Sequence[OpPoint]
) -> tuple[CalibrationSubject, Sequence[OpPoint]]:
    """Both with the peak that products reached, where the probe of ceilings found a lower one.

    A ceiling is measured once, before all else. Beside another program it comes out at half of what the machine does,
    and since no share of a peak is above 1, every prompt would then be predicted to take twice its time.
    """

    def computed_s(point: OpPoint) -> float:
        peak = max((rate for name, rate in point.rates.items() if name.startswith("peak:")), default=0.0)
        return point.axes.get("flops", 0.0) / peak if peak else 0.0

    bound = {id(point): computed_s(point) >= 0.99 * point.floor_s > 0 for point in points}
    shares = sorted(
        point.floor_s / point.seconds
        for point in points
        if bound[id(point)] and point.dtype == subject.dtype and point.classes[-1] in _PRODUCTS
    )
    times = shares[int(_REACHED * (len(shares) - 1))] if shares else 1.0
    if times <= _ABOVE_PEAK:
        return subject, points

    def raised(point: OpPoint) -> OpPoint:
        rates = {name: rate * (times if name.startswith("peak:") else 1) for name, rate in point.rates.items()}
        moved = max((rate for name, rate in rates.items() if name.startswith("bandwidth:")), default=0.0)
        memory_s = point.axes.get("bytes", 0.0) / moved if moved else 0.0
        floor_s = max(point.floor_s / times, min(point.floor_s, memory_s)) if bound[id(point)] else point.floor_s
        return replace(point, rates=rates, floor_s=floor_s)

    names = {name.removeprefix("peak:") for point in points for name in point.rates if name.startswith("peak:")}
    peaks = {
        name: replace(peak, value=peak.value * times) if name in names else peak
        for name, peak in subject.device.peaks.items()
    }
    return replace(subject, device=replace(subject.device, peaks=peaks)), [raised(point) for point in points]


def _chosen(
    subject: CalibrationSubject,
    points: Sequence[OpPoint],
    steps: Sequence[StepPoint],
    base: Calibration | None = None,
) -> Calibration:
    """From ops that were timed, or from whole steps where nothing timed ops or whole steps predict left-out models."""
    ours = middle_of(point for point in points if point.dtype == subject.dtype)
    if not any(point.floor_s > 0 for point in ours) and not any(step.dtype == subject.dtype for step in steps):
        raise DomainError(
            f"No op was measured in {subject.dtype}, so there is nothing to fit.",
            remedy="Give more time with --budget: probes that were made are kept. Or give another --dtype.",
        )
    our_steps = [step for step in steps if step.dtype == subject.dtype]
    timed = any(point.floor_s > 0 for point in ours)
    by_ops = _assembled(subject, ours, our_steps, base) if timed else None
    if by_ops is not None and not _steps_may_tell(subject, our_steps, base):
        return bounded(by_ops)
    by_whole_steps = fit_streams(
        [works_of_step(subject, step) for step in middle_steps(our_steps)], _start(subject, overheads_of(ours))
    )
    by_steps = _assembled(subject, _told_points(subject, ours, by_whole_steps), our_steps, base, by_whole_steps)
    if by_ops is not None and base is None and _off(by_ops) <= _off(by_steps):
        return bounded(by_ops)
    return bounded(with_best_share(by_steps, subject.device) if subject.reached else by_steps)


def _steps_may_tell(subject: CalibrationSubject, steps: Sequence[StepPoint], base: Calibration | None) -> bool:
    """Whether what ops take is looked for in whole steps too, though they were timed: in those of language models.

    Their layers are all alike, so that few numbers explain them, and a kernel that is timed alone has less to read from
    memory than inside a model. A base decides for its successors. Steps that may wait for a host tell less.
    """
    if base is not None:
        return base.environment.get(_TOLD_BY) == _STEPS
    models = {step.model for step in steps if step.phase in {"prefill", "decode"}}
    return len(models) >= _MODELS and len(models) == len({step.model for step in steps}) and not _waits(subject)


def _waits(subject: CalibrationSubject) -> bool:
    return subject.runtime.on(subject.device.unit).host_s is not None


def _off(calibration: Calibration) -> float:
    """The error of whole steps over all phases: the geometric mean."""
    spreads = [log(value) for name, value in calibration.residuals.items() if name.startswith("step.")]
    return fmean(spreads) if spreads else 0.0


def _assembled(
    subject: CalibrationSubject,
    points: Sequence[OpPoint],
    steps: Sequence[StepPoint],
    base: Calibration | None,
    told: StreamFit | None = None,
) -> Calibration:
    """The calibration from timed points of ops, on top of `base`; `told` are the ops' times by whole steps instead."""
    if base is None:
        calibration, start, before = *_from_points(subject, points), None
    else:
        calibration, start, before = _from_base(subject, points, base)
    if told is not None:
        calibration = replace(calibration, environment={**calibration.environment, _TOLD_BY: _STEPS})
    middle = middle_steps(steps)
    if base is not None:
        if not middle:
            return calibration
        fitted = whole_fit(whole_steps(subject, calibration, middle), start, before)
        return _with_residuals(_with_steps(subject, calibration, fitted, steps), fitted.counts, base)
    if told is not None:
        fitted = left_out_fit(told, lambda found, left: _tabled(subject, _told_points(subject, points, found), left))
        return _with_steps(subject, calibration, fitted, steps)
    fewer = without_worse_tables(subject, calibration, points, steps)
    if not middle:
        return fewer
    # What ops say one by one is not what models say of them all: both choices are held against models left out.
    judged = len({step.model for step in middle}) >= FEWEST and fewer is not calibration
    choices = (fewer, calibration) if judged else (fewer,)
    fits = [(choice, whole_fit(whole_steps(subject, choice, middle), start)) for choice in choices]
    return min((_with_steps(subject, choice, fitted, steps) for choice, fitted in fits), key=_off)


def _with_steps(
    subject: CalibrationSubject, calibration: Calibration, fitted: StepFit, steps: Sequence[StepPoint]
) -> Calibration:
    """With what whole steps say, and how much they drift from one time to another."""
    calibration = fitted.applied_to(calibration, source=subject.source, date=subject.created[:10])
    drift = {phase: value for phase, value in drifts(steps).items() if f"step.{phase}" in fitted.counts}
    return _with_drift(calibration, drift)


def _told_points(subject: CalibrationSubject, points: Sequence[OpPoint], told: StreamFit) -> list[OpPoint]:
    """Points by whole steps in place of the timed ones of the same ops; other readings stay."""
    others = [point for point in points if not point.floor_s > 0 and point.op not in told.overheads]
    return others + points_from(told, device_rates(subject.device, subject.device.peaks.keys()))


def _tabled(subject: CalibrationSubject, points: Sequence[OpPoint], steps: Sequence[StepPoint]) -> list[WholeStep]:
    """Steps as the tables of these points price them."""
    calibration, _ = _from_points(subject, points)
    return whole_steps(subject, calibration, steps)


def _from_points(subject: CalibrationSubject, points: Sequence[OpPoint]) -> tuple[Calibration, dict[str, float]]:
    """A calibration from points alone, and the overheads that the fit of whole steps starts from."""
    overheads = overheads_of(points)
    fitted = fit_points(points, kernel_s=overheads.get("kernel", 0.0))
    calibration = _calibration(subject, points, (*fitted, *_inside_others(subject, fitted)), overheads)
    return replace(calibration, notes=_thin(fitted)), _start(subject, overheads)


def _inside_others(subject: CalibrationSubject, fitted: Sequence[Fitted]) -> tuple[Fitted, ...]:
    """Ops that run inside others and have no point: in this engine's files the others' times include them.

    Their times contain it. By the table of ops that run alone it would be counted again.
    """
    fitted_classes = {fit.table.op_class for fit in fitted}
    if (
        subject.runtime.at(subject.device).fusion != "epilogues"
        or "vector" not in fitted_classes
        or fitted_classes & {FUSED, PLAIN}
    ):
        return ()
    alike: dict[str, Any] = {"stream": "floor", "axes": ("elements",), "grid": ((1.0,),), "values": (1.0,)}
    return tuple(
        Fitted(
            table=Utilisation(op_class=name, residual=LEAST_RESIDUAL, **alike), residual=LEAST_RESIDUAL, bias=0.0,
            # no measurement bounds it: it is the floor itself, at any size
            points=0, probes=0, valid={"elements": (1.0, float(1 << 40))},
        )
        for name in (FUSED, PLAIN)
    )  # fmt: skip


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
        notes=(base_note(base, classes),),
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
        plan, least = (plan_of(subject, step, priced_by) for priced_by in (bare, best))
        sizes = step_sizes(step.passes(plan.prepared.effects), step.batch)
        words = f"{step.batch} x {step.query} + {step.context}"
        apart.append(
            taken_apart(plan, sizes, step.phase, model=step.model, seconds=step.seconds, workload=words, best=least)
        )
    return apart


def works_of_step(subject: CalibrationSubject, step: StepPoint) -> StepWorks:
    """A step with its ops at the peaks, as no table prices them yet."""
    plan = plan_of(subject, step)
    *others, last = step.passes(plan.prepared.effects)
    works = [
        work
        for passing in (*others, last)
        for work in works_of(
            plan, {**step_sizes([passing], step.batch), "logits": 1 if passing is last else 0}, step.phase
        )
    ]
    return StepWorks(step=step, works=tuple(works))

"""Held against what was known before: a calibration counts only where it predicts better what it has not seen.

Both are judged by the same measurements. The table of a class is judged by probes that were left out of it, and the
whole calibration by models that were left out. What was known before saw none of them: it is the calibration that a
run started from, or else the priors. Where it is nearer, it stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.statistics import NINE_IN_TEN
from inferometer.measure.calibrate.fitting.fit import LEAST_RESIDUAL, class_for, residual_spread
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint, middle_steps
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, graph_of_step, plan_of, workload_of
from inferometer.measure.calibrate.fitting.whole_models import FEWEST, models_apart, without_shared
from inferometer.measure.calibrate.probes.models import ProbeRun
from inferometer.predict.basis.learned import stranger_to
from inferometer.predict.basis.roof import roof_for
from inferometer.predict.price.priors import prior_for
from inferometer.predict.question import Question
from inferometer.predict.request import step_sizes

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device


def without_worse_tables(
    subject: CalibrationSubject, calibration: Calibration, points: Sequence[OpPoint], steps: Sequence[StepPoint]
) -> Calibration:
    """The calibration without the tables of classes that the prior is nearer to; a note names them.

    What the prior is off by is seen where it prices the ops of three probes or more; else what it states counts, on a
    CPU, where every probe gives a step. A class without a table is priced by the rungs below, and a factor of whole
    steps still corrects what they say.
    """
    prior = _prior_seconds(subject, replace(calibration, tables=()), steps)
    worse: dict[str, str] = {}
    for table in calibration.tables:
        errors: dict[str, list[float]] = defaultdict(list)
        for point in points:
            seconds = prior.get((point.probe, point.workload, point.op), 0.0)
            if seconds > 0 and table.op_class in {class_for(point.classes), *point.classes}:
                errors[point.probe].append(log(point.seconds / seconds))
        off = residual_spread(np.array([error for of_probe in errors.values() for error in of_probe]))
        if len(errors) < FEWEST:
            stated = prior_for(subject.device.unit, (table.op_class, table.op_class.partition(".")[0]))
            counts = stated is not None and subject.device.unit == "cpu"
            off = log(float(stated.spread)) / NINE_IN_TEN if stated is not None and counts else float("inf")
        if off < table.residual:
            worse[table.op_class] = f"{table.op_class} ({_percent(off)}, its table {_percent(table.residual)})"
    if not worse:
        return calibration
    note = f"Left to the prior, which is less off for what was left out: {', '.join(worse.values())}."
    return replace(
        calibration,
        tables=tuple(table for table in calibration.tables if table.op_class not in worse),
        residuals={name: value for name, value in calibration.residuals.items() if name not in worse},
        valid={name: ranges for name, ranges in calibration.valid.items() if name not in worse},
        notes=(*calibration.notes, note),
    )


def _prior_seconds(
    subject: CalibrationSubject, bare: Calibration, steps: Sequence[StepPoint]
) -> dict[tuple[str, str, str], float]:
    """The prior's seconds of each op of the steps, by probe, workload and op; `bare` has no tables."""
    seconds: dict[tuple[str, str, str], float] = {}
    for step in middle_steps(steps):
        plan = plan_of(subject, step, bare)
        passes = step.passes(plan.prepared.effects)
        if len(passes) > 1:  # ops of a prompt that is read in two passes were timed in neither
            continue
        priced = plan.step(step_sizes(passes, step.batch), step.phase).priced.time_s
        prompt = step.query if step.image is None else None
        words = ProbeRun(batch=step.batch, image=step.image, prompt=prompt, context=step.context or None).words
        for entry in plan.prepared.entries:
            seconds[step.model, words, entry.name] = float(priced[entry.row].item())
    return seconds


@frozen
class HeldAgainst:
    """The errors of whole steps by phase, as standard deviations of logarithms.

    `now` is from the calibration with the model of each step left out, `before` from what was known before it.
    """

    now: Mapping[str, float]
    before: Mapping[str, float]

    @property
    def is_worse(self) -> bool:
        """Over all phases, by the geometric mean. Where nothing could be compared it is not."""
        return bool(self.now) and fmean(log(self.now[phase] / self.before[phase]) for phase in self.now) > 0

    def __str__(self) -> str:
        told = [
            f"{_percent(now)} in {phase} (before: {_percent(self.before[phase])})" for phase, now in self.now.items()
        ]
        return f"Models that were left out are off by {', '.join(told)}."


def held_against(  # noqa: PLR0913 - two calibrations and what judges them
    device: Device,
    subject: CalibrationSubject,
    calibration: Calibration,
    steps: Sequence[StepPoint],
    base: Calibration | None,
    *,
    taught: bool = False,
) -> HeldAgainst:
    """The calibration held against its base, or else against the priors of the `device` as its row or roof has it.

    By whole models, where enough were measured, else by probes. Where predictions are `taught` by those models, what
    all of them share counts for neither: they are corrected by it whichever serves.
    """
    ours = [step for step in steps if step.dtype == subject.dtype and f"step.{step.phase}" in calibration.residuals]
    probes, models = models_apart(subject, ours, timed=True)
    roof = roof_for(device)

    def served_by(step: StepPoint) -> tuple[CalibrationSubject, Calibration | None]:
        known = Question(
            graph=graph_of_step(step), device=device, runtime=subject.runtime, workload=workload_of(subject, step),
            calibrated=False, calibration=base, roof=roof,
        ).basis()  # fmt: skip
        return replace(subject, device=known.device), known.calibration

    now, before = {}, {}
    ours_off = _errors(models, lambda _: (subject, without_shared(calibration)))
    served_off = _errors(models, served_by)
    for phase, errors in ours_off.items():
        if len(errors) >= FEWEST:
            served = served_off[phase]
            now[phase] = _spread(_beside_others(errors, calibration.residuals[f"step.{phase}"]))
            before[phase] = _spread(_left_out(served) if taught else [fmean(each) for each in served.values()])
    for phase, errors in _errors([step for step in probes if step.phase not in now], served_by).items():
        if len(errors) >= FEWEST:
            now[phase] = calibration.residuals[f"step.{phase}"]
            before[phase] = residual_spread(np.array([error for of_model in errors.values() for error in of_model]))
    return HeldAgainst(now=now, before=before)


def _errors(
    steps: Sequence[StepPoint], priced_by: Callable[[StepPoint], tuple[CalibrationSubject, Calibration | None]]
) -> dict[str, dict[str, list[float]]]:
    """By phase and model, log(measured / predicted) of whole steps."""
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for step in middle_steps(steps):
        priced_on, known = priced_by(step)
        plan = plan_of(priced_on, step, known)
        priced = plan.step(step_sizes(step.passes(plan.prepared.effects), step.batch), step.phase)
        errors[step.phase][step.model].append(log(step.seconds / float(np.sum(priced.total("time_s")))))
    return errors


def _beside_others(errors: Mapping[str, Sequence[float]], spread: float) -> list[float]:
    """Each model's error in a calibration of the others, which has not seen it."""
    means = {model: fmean(of_model) for model, of_model in errors.items()}
    return [
        mean - stranger_to({other: means[other] for other in means if other != model}, spread).shift
        for model, mean in means.items()
    ]


def _left_out(errors: Mapping[str, Sequence[float]]) -> list[float]:
    """Each model's error beside the factor that the others share."""
    means = [fmean(of_model) for of_model in errors.values()]
    return [(mean - fmean(means)) * len(means) / (len(means) - 1) for mean in means]


def _spread(errors: Sequence[float]) -> float:
    return max(LEAST_RESIDUAL, sqrt(fmean(error**2 for error in errors)))


def _percent(deviation: float) -> str:
    return f"{exp(deviation) - 1:.0%}"

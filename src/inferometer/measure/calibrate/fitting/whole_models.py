"""Whole models measured beside probes: kept out of the fit, they show its error.

Probes are timed at their best moments in the calibrator's process, models as `profile` times them. What that makes of
an engine on a machine is much alike for all models (`predict.basis.learned`), and it is no habit of single classes of
op: a fit to both would spread it over their factors. So a calibration is fitted to probes, what models share is one
factor of each phase, and the interval of a model that nobody measured follows from how much those models differ.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from inferometer.measure.calibrate.fitting.points import StepPoint, middle_steps
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, plan_of
from inferometer.predict.basis.learned import SHARED, Correction, corrected, stranger_to, work_error
from inferometer.predict.request import step_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.core.calibration import Calibration

FEWEST = 3  # models that show the error of others: with fewer, chance decides


def models_apart(
    subject: CalibrationSubject, steps: Sequence[StepPoint], *, timed: bool
) -> tuple[list[StepPoint], list[StepPoint]]:
    """The steps of probes, and those of models of the catalog: probes carry their configs.

    On a GPU models are the probes. Where nothing else was measured (no op was `timed`) there is nothing to fit but
    models.
    """
    probes = [step for step in steps if step.config]
    if subject.device.unit != "cpu" or not (probes or timed):
        return [*steps], []
    return probes, [step for step in steps if not step.config]


def errors_by_model(
    subject: CalibrationSubject, calibration: Calibration | None, steps: Sequence[StepPoint]
) -> dict[str, dict[str, float]]:
    """By phase and model, log(measured / predicted) of what is no overhead."""
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for step in middle_steps(step for step in steps if step.dtype == subject.dtype):
        plan = plan_of(subject, step, calibration)
        priced = plan.step(step_sizes(step.passes(plan.prepared.effects), step.batch), step.phase)
        predicted, overhead = (float(each.sum()) for each in (priced.total("time_s"), priced.streams()["overhead"]))
        errors[step.phase][step.model].append(work_error(step.seconds, predicted, overhead))
    return {
        phase: {model: fmean(of_model) for model, of_model in by_model.items()} for phase, by_model in errors.items()
    }


def with_shared(
    subject: CalibrationSubject, calibration: Calibration, steps: Sequence[StepPoint], base: Calibration | None = None
) -> Calibration:
    """The calibration of probes with what models share; where too few were measured, with what its `base` had.

    Beside the models, what whole probes are off by counts for how much models differ, where any was measured.
    """
    errors = errors_by_model(subject, calibration, steps)
    found = {
        phase: stranger_to(of_phase, calibration.residuals.get(f"step.{phase}", stdev(of_phase.values())))
        for phase, of_phase in errors.items()
        if len(of_phase) >= FEWEST
    }
    before = {
        phase: Correction(shift=shift, spread=calibration.residuals[f"step.{phase}"], lines=0, models=0)
        for phase, shift in _shifts(base).items()
        if phase not in found and f"step.{phase}" in calibration.residuals
    }
    noted = {f"{SHARED}{phase}": f"{each.shift:.6g}" for phase, each in (before | found).items()}
    models = {model for phase in found for model in errors[phase]}
    return replace(
        corrected(calibration, before | found),
        environment={**calibration.environment, **noted},
        steps=calibration.steps + sum(len(errors[phase]) for phase in found),
        fitted_on=tuple(sorted({*calibration.fitted_on, *models})),
    )


def without_shared(base: Calibration) -> Calibration:
    """The base as its probes alone had it: where a fit to probes starts."""
    back = {
        phase: Correction(shift=-shift, spread=base.residuals[f"step.{phase}"], lines=0, models=0)
        for phase, shift in _shifts(base).items()
    }
    plain = {name: value for name, value in base.environment.items() if not name.startswith(SHARED)}
    return replace(corrected(base, back), environment=plain) if back else base


def _shifts(calibration: Calibration | None) -> Mapping[str, float]:
    environment = {} if calibration is None else calibration.environment
    return {name.removeprefix(SHARED): float(value) for name, value in environment.items() if name.startswith(SHARED)}

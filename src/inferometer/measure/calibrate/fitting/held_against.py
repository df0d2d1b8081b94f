"""Held against what was known before: a calibration counts only where it predicts better what it has not seen.

Both are judged by the same measurements. The table of a class is judged by probes that were left out of it, and the
whole calibration by models that were left out. What was known before saw none of them: it is the calibration that a
run started from, or else the priors. Where it is nearer, it stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import exp, log
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.measure.calibrate.fitting.fit import class_for, residual_spread
from inferometer.measure.calibrate.fitting.points import middle_steps
from inferometer.measure.calibrate.fitting.subject import graph_of_step, plan_of, workload_of
from inferometer.measure.calibrate.probes.models import ProbeRun
from inferometer.predict.basis.roof import roof_for
from inferometer.predict.price.price import NINE_IN_TEN
from inferometer.predict.price.priors import prior_for
from inferometer.predict.question import Question
from inferometer.predict.request import step_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint
    from inferometer.measure.calibrate.fitting.subject import CalibrationSubject

FEWEST = 3  # probes or models that both are judged by: of fewer, chance decides


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
    """What the prior says of each op of the steps, by probe, workload and op; `bare` has no tables."""
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
    """What whole steps are off by, by phase, as standard deviations of logarithms.

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


def held_against(
    device: Device,
    subject: CalibrationSubject,
    calibration: Calibration,
    steps: Sequence[StepPoint],
    base: Calibration | None,
) -> HeldAgainst:
    """The calibration held against its base, or else against the priors of the `device` as its row or roof has it."""
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    roof = roof_for(device)
    for step in middle_steps(step for step in steps if step.dtype == subject.dtype):
        if f"step.{step.phase}" not in calibration.residuals:
            continue
        known = Question(
            graph=graph_of_step(step), device=device, runtime=subject.runtime, workload=workload_of(subject, step),
            calibrated=False, calibration=base, roof=roof,
        ).basis()  # fmt: skip
        plan = plan_of(replace(subject, device=known.device), step, known.calibration)
        priced = plan.step(step_sizes(step.passes(plan.prepared.effects), step.batch), step.phase)
        errors[step.phase][step.model].append(log(step.seconds / float(np.sum(priced.total("time_s")))))
    before = {
        phase: residual_spread(np.array([error for found in by_model.values() for error in found]))
        for phase, by_model in errors.items()
        if len(by_model) >= FEWEST
    }
    return HeldAgainst(now={phase: calibration.residuals[f"step.{phase}"] for phase in before}, before=before)


def _percent(deviation: float) -> str:
    return f"{exp(deviation) - 1:.0%}"

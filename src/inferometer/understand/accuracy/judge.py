"""How accurate predictions are: measured cases, predicted as a user would, and their errors.

A case whose model was used to fit its calibration is predicted with one fitted again without that model; if that is
impossible, the case is `seen` and counted apart. The error of a case is |predicted / measured − 1|, its bias the
logarithm of the ratio, and an interval covers it if the measured time lies inside.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.calibration import Calibration
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile
from inferometer.known import device as device_named
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.assemble import whole_steps
from inferometer.measure.calibrate.fitting.base import bounded, unbounded
from inferometer.measure.calibrate.fitting.steps import whole_fit
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.predict.ask import ask
from inferometer.predict.basis.calibrations import HostSetup, by_weights, choose_calibration
from inferometer.predict.basis.files import SHIPPED
from inferometer.understand.accuracy.cases import AccuracyCase, Peer, case_graph, family_of, step_of_case

ErrorSummary = dict[str, Any]
_MOSTLY = 0.5  # of a prediction's time


@frozen
class Judged:
    """A case and its prediction. `how` is `held out`, `left out` (its model was, in a refit), `seen` or `priors`.

    A case that class priors were made from is `seen` if most of its predicted time comes from them.
    """

    case: AccuracyCase
    time_s: float
    low_s: float
    high_s: float
    how: str
    by_kind: Mapping[str, float] = field(default_factory=dict)

    @property
    def error(self) -> float:
        return abs(self.time_s / self.case.seconds - 1)

    @property
    def bias(self) -> float:
        return log(self.time_s / self.case.seconds)

    @property
    def covered(self) -> bool:
        return self.low_s <= self.case.seconds <= self.high_s

    @property
    def width(self) -> float:
        """The interval's width over the prediction."""
        return (self.high_s - self.low_s) / self.time_s


def judge_cases(
    cases: Sequence[AccuracyCase],
    *,
    priors: bool = False,
    folders: Sequence[Path] = (),
    shipped: Path | None = SHIPPED,
    watch: Callable[[int, int], None] | None = None,
) -> tuple[tuple[Judged, ...], tuple[str, ...]]:
    """Predict every case; and say why some could not be. `priors` uses the datasheet and class priors alone."""
    calibrations: dict[Any, Calibration | None] = {}
    judged, refused = [], []
    for number, case in enumerate(cases):
        if watch is not None:
            watch(number, len(cases))
        try:
            calibration, how = (
                (None, "priors") if priors else _calibration(case, cases, calibrations, (folders, shipped))
            )
            judged.append(_judged(case, calibration, how))
        except InferometerError as error:
            refused.append(f"{case.model} on {case.device}, {case.phase}: {error.message}")
    return tuple(judged), tuple(dict.fromkeys(refused))


def _calibration(
    case: AccuracyCase,
    cases: Sequence[AccuracyCase],
    calibrations: dict[Any, Calibration | None],
    places: tuple[Any, Any],
) -> tuple[Calibration | None, str]:
    key = _key(case)
    if key not in calibrations:
        setup = None if case.threads is None else HostSetup(threads=case.threads)
        chosen = choose_calibration(*key[:3], folders=places[0], shipped=places[1], setup=setup)
        calibrations[key] = chosen.calibration
    calibration = calibrations[key]
    if calibration is None:
        return None, "priors"
    if case.model not in calibration.fitted_on:
        return calibration, "held out"
    without = (*key, case.model)
    if without not in calibrations:
        train = [other for other in cases if _key(other) == key and other.role == "train"]
        calibrations[without] = without_model(calibration, train, case.model)
    refit = calibrations[without]
    return (calibration, "seen") if refit is None else (refit, "left out")


def _key(case: AccuracyCase) -> tuple[str, str, str, int | None]:
    """The device, runtime, format and threads that a calibration is chosen by."""
    stored = case.weights if by_weights(case.runtime) else None
    return device_named(case.device).name, case.runtime, stored or case.dtype, case.threads


def without_model(calibration: Calibration, train: Sequence[AccuracyCase], model: str) -> Calibration | None:
    """The calibration fitted again from the steps of the other models; None if there are none."""
    others = [case for case in train if case.model != model]
    alone = {
        name.removeprefix("alone."): value.value
        for name, value in calibration.overheads.items()
        if name.startswith("alone.")
    }
    if not others or not alone:
        return None
    subject = CalibrationSubject(
        device=device_named(calibration.device),
        runtime=require_effects(calibration.runtime),
        dtype=calibration.dtype,
        created=calibration.created,
    )
    kept = {name: value for name, value in calibration.residuals.items() if not name.startswith("step")}
    bare = replace(unbounded(calibration), residuals=kept)
    steps = whole_steps(subject, bare, [step_of_case(case) for case in others])
    return bounded(whole_fit(steps, alone).applied_to(bare, source="refit", date=calibration.created[:10]))


def _judged(case: AccuracyCase, calibration: Calibration | None, how: str) -> Judged:
    profile = ask_like(case, calibration)
    phase = profile.phase(case.phase)
    if phase is None or phase.low_s is None or phase.high_s is None:
        raise DomainError(f"The prediction has no phase {case.phase}.")
    kinds: dict[str, float] = defaultdict(float)
    guessed = 0.0
    for op in phase.ops:
        kinds[op.kind] += op.time_s
        guessed += op.time_s if op.origin != "calibrated" else 0.0
    if how in {"held out", "priors"} and "priors" in case.used_for and guessed > _MOSTLY * phase.time_s:
        how = "seen"
    return Judged(case=case, time_s=phase.time_s, low_s=phase.low_s, high_s=phase.high_s, how=how, by_kind=kinds)


def ask_like(case: AccuracyCase, calibration: Calibration | None) -> Profile:
    """The prediction that a user of `predict` would get, with this calibration or without one."""
    question = ask(
        case_graph(case.model), on=case.device, runtime=case.runtime, calibration=calibration, calibrated=False,
        **case.ask_arguments,
    )  # fmt: skip
    return question.answer()


def by_group(
    judged: Sequence[Judged], group: Callable[[Judged], tuple[str, ...]]
) -> dict[tuple[str, ...], ErrorSummary]:
    """The error summary of each group, in the order of their names."""
    groups: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for prediction in judged:
        groups[group(prediction)].append(prediction)
    return {name: error_summary(groups[name]) for name in sorted(groups)}


def error_summary(judged: Sequence[Judged]) -> ErrorSummary:
    """n, the error's median and 90th percentile, bias, and the 80 % intervals' coverage and median relative width."""
    if not judged:
        return {"n": 0}
    errors = np.array([prediction.error for prediction in judged])
    return {
        "n": len(judged),
        "median": float(np.median(errors)),
        "p90": float(np.quantile(errors, 0.9)),
        "bias": exp(float(np.mean([prediction.bias for prediction in judged]))) - 1,
        "covered": float(np.mean([prediction.covered for prediction in judged])),
        "width": float(np.median([prediction.width for prediction in judged])),
    }


def peer_errors(judged: Sequence[Judged], peers: Sequence[Peer]) -> list[ErrorSummary]:
    """Each peer's errors on the cases it predicts, and ours on the same cases."""
    ours: dict[Any, list[Judged]] = defaultdict(list)
    for prediction in judged:
        ours[prediction.case.key].append(prediction)
    groups: dict[tuple[str, str, str], list[tuple[float, Judged]]] = defaultdict(list)
    for peer in peers:
        for prediction in ours.get(peer.key, ()):
            groups[peer.peer, prediction.case.phase, prediction.case.runtime].append((peer.seconds, prediction))
    rows = []
    for (name, phase, runtime), pairs in sorted(groups.items()):
        theirs = np.array([abs(seconds / prediction.case.seconds - 1) for seconds, prediction in pairs])
        rows.append(
            {
                "peer": name,
                "phase": phase,
                "runtime": runtime,
                "n": len(pairs),
                "median": float(np.median(theirs)),
                "p90": float(np.quantile(theirs, 0.9)),
                "ours": float(np.median([prediction.error for _, prediction in pairs])),
            }
        )
    return rows


def groups_of(what: str) -> Callable[[Judged], tuple[str, ...]]:
    """A grouping of cases: by `family`, by `model`, by the longest kind of `op`, or else by device and phase."""
    if what == "family":
        return lambda prediction: (family_of(prediction.case.model), prediction.case.runtime)
    if what == "model":
        return lambda prediction: (prediction.case.model, prediction.case.runtime)
    if what == "op":
        return lambda prediction: (
            max(prediction.by_kind, key=lambda kind: prediction.by_kind[kind]),
            prediction.case.runtime,
        )
    return lambda prediction: (
        prediction.case.device,
        prediction.case.runtime,
        prediction.case.phase,
        prediction.case.weights or prediction.case.dtype,
    )


def chart_rows(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Cases as rows of the chart."""
    return [
        {
            "model": prediction.case.model,
            "runtime": prediction.case.runtime,
            "phase": prediction.case.phase,
            "batch": prediction.case.batch,
            "length": prediction.case.prompt or prediction.case.context or prediction.case.image,
            "measured_s": prediction.case.seconds,
            "predicted_s": prediction.time_s,
            "low_s": prediction.low_s,
            "high_s": prediction.high_s,
        }
        for prediction in judged
    ]

"""Rows left out of the fit and then predicted: whole devices, whole models, and all but a few models of a device.

A model that others have measured is predicted with its effect: what it took elsewhere over what its work says. The
effect comes from rows that were not left out, so nothing of a left-out row is in its own prediction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.measure.calibrate.priors.judged import (
    DEVICE_OUT,
    FEW,
    MODEL_OUT,
    JudgedRow,
    JudgedSteps,
    judged_rows,
    summaries,
)
from inferometer.predict.price.deviations import UNKNOWN_SPREAD, known_by
from inferometer.predict.price.likeness import alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from inferometer.measure.calibrate.priors.hierarchy import Hierarchy
    from inferometer.measure.calibrate.priors.stack import Case


ENOUGH = 12  # residuals that an interval of its own needs


@dataclass(slots=True)
class LeftOut:
    """Of each case: log(published / predicted), NaN where it was not left out; and how its model was known.

    `known` is whether it was measured with this engine elsewhere, `likeness` that of the nearest model which was.
    """

    residuals: Any
    known: Any
    likeness: Any


def left_out(fit: Hierarchy, folds: Iterable[Any], *, judged: Iterable[Any] | None = None, rounds: int = 1) -> LeftOut:
    """`folds` are masks of rows left out together; `judged` of those then looked at, all of them by default."""
    cases = fit.cases
    residuals, known = np.full(len(cases), np.nan), np.zeros(len(cases), dtype=bool)
    likeness = np.zeros(len(cases))
    masks = list(folds)
    for mask, looked in zip(masks, masks if judged is None else judged, strict=True):
        other = fit.without(mask, rounds=rounds)
        errors = other.residuals()
        told = {(case.model, case.runs_on) for case, out in zip(cases, mask.tolist(), strict=True) if not out}
        for row in np.flatnonzero(looked).tolist():
            known[row] = (cases[row].model, cases[row].runs_on) in told
            residuals[row] = errors[row]
        likeness[looked] = _likeness(cases, mask)[looked]
    return LeftOut(residuals=residuals, known=known, likeness=likeness)


def _likeness(cases: Sequence[Case], mask: Any) -> Any:
    """How like each case's model is to the nearest that was kept with its engine; 0 where no features are known."""
    features = {case.model: case.features for case in cases if case.features is not None}
    kept: dict[str, set[str]] = {}
    for case, out in zip(cases, mask.tolist(), strict=True):
        if not out and case.model in features:
            kept.setdefault(case.runs_on, set()).add(case.model)
    nearest: dict[tuple[str, str], float] = {}
    for where, models in kept.items():
        asked = sorted({case.model for case in cases if case.runs_on == where and case.model in features})
        most = alike([features[model] for model in asked], [features[model] for model in sorted(models)]).max(axis=1)
        nearest |= {(model, where): float(value) for model, value in zip(asked, most, strict=True)}
    return np.array([nearest.get((case.model, case.runs_on), 0.0) for case in cases])


def device_folds(cases: Sequence[Case], folds: int, seed: int = 0) -> list[Any]:
    """Devices of one table go to different folds: of three cards, leaving two out at once tells of no unseen one."""
    order = sorted({(case.dataset, case.standing.unit, case.standing.device) for case in cases})
    np.random.default_rng(seed).shuffle(order)
    order.sort(key=lambda name: name[:2])
    fold: dict[str, int] = {}
    for _, table in groupby(order, key=lambda name: name[:2]):
        devices = [device for *_, device in table]
        used = Counter(fold[device] for device in devices if device in fold)  # of another table, with its fold
        for device in devices:
            if device not in fold:
                fold[device] = min(range(folds), key=lambda number: (used[number], (number - len(fold)) % folds))
                used[fold[device]] += 1
    of_rows = np.array([fold[case.standing.device] for case in cases])
    return [of_rows == number for number in range(min(folds, len(fold)))]


def model_folds(cases: Sequence[Case], folds: int, seed: int = 1) -> list[Any]:
    """A model is left out with all its sizes of picture, everywhere."""
    return _folds([case.model.partition("@")[0] for case in cases], folds, seed)


def _folds(names: Sequence[str], folds: int, seed: int) -> list[Any]:
    distinct = sorted(set(names))
    np.random.default_rng(seed).shuffle(distinct)
    fold = {name: index % folds for index, name in enumerate(distinct)}
    of_rows = np.array([fold[name] for name in names])
    return [of_rows == number for number in range(min(folds, len(distinct)))]


@dataclass(slots=True)
class Validation:
    """Residuals of every case, left out in three ways."""

    devices: LeftOut
    models: LeftOut
    few: LeftOut


def judge_validation(cases: Sequence[Case], validation: Validation) -> list[JudgedSteps]:
    """What was left out of the fit, in three ways; an interval's width comes from the other half of the models."""
    judged: list[JudgedRow] = []
    for way, kept in ((DEVICE_OUT, validation.devices), (MODEL_OUT, validation.models), (FEW, validation.few)):
        halves = _crossed(cases, kept)
        judged += judged_rows(cases, kept.residuals, halves, [way] * len(cases))
    return summaries(judged)


def _crossed(cases: Sequence[Case], kept: LeftOut) -> Any:
    """The half-width that holds eight in ten residuals of the other half of a group's models.

    The group is the nearest that has enough of them on the other side, as an answer's interval is: first of models that
    are known as well.
    """
    names = sorted({case.model for case in cases})
    side = {name: index % 2 for index, name in enumerate(names)}
    known = [
        "known" if seen else known_by(likeness)
        for seen, likeness in zip(kept.known.tolist(), kept.likeness.tolist(), strict=True)
    ]
    ways = [_group_names(case, how) for case, how in zip(cases, known, strict=True)]
    told: dict[tuple[str, int], list[float]] = {}
    for case, groups, residual in zip(cases, ways, kept.residuals.tolist(), strict=True):
        if not np.isnan(residual):
            for name in groups:
                told.setdefault((name, side[case.model]), []).append(abs(residual))
    halves = {key: float(np.quantile(values, 0.8)) for key, values in told.items() if len(values) >= ENOUGH}
    return np.array([_other_half(each, halves, 1 - side[case.model]) for case, each in zip(cases, ways, strict=True)])


def _other_half(names: Iterable[str], halves: Mapping[tuple[str, int], float], side: int) -> float:
    return next((halves[name, side] for name in names if (name, side) in halves), UNKNOWN_SPREAD)


def _group_names(case: Case, known: str) -> tuple[str, ...]:
    """The nearest first: with models that are known in the same way, then with all."""
    names = case.standing.spread_names(case.quantity)
    return (*(f"{name}:{known}" for name in names[:1]), *names)

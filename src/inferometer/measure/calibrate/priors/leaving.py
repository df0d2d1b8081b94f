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

from inferometer.predict.price.likeness import alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from inferometer.measure.calibrate.priors.hierarchy import Hierarchy
    from inferometer.measure.calibrate.priors.stack import Case

FEW = {"timm": 20}  # models that a device is calibrated from; elsewhere ten
_TEN = 10


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


def few_models(cases: Sequence[Case], mask: Any, count: int | None = None, seed: int = 2) -> Any:
    """Of the devices in a fold: the rows of all but `count` models each, which are left out; ten, of timm's twenty."""
    draw = np.random.default_rng(seed)
    models: dict[tuple[str, str], list[str]] = {}
    for row in np.flatnonzero(mask).tolist():
        name, key = cases[row].model.partition("@")[0], (cases[row].dataset, cases[row].standing.device)
        if name not in models.setdefault(key, []):
            models[key].append(name)
    kept: Mapping[tuple[str, str], set[str]] = {
        key: set(draw.permutation(sorted(names))[: count or FEW.get(key[0], _TEN)].tolist())
        for key, names in models.items()
    }
    out = mask.copy()
    for row in np.flatnonzero(mask).tolist():
        case = cases[row]
        out[row] = case.model.partition("@")[0] not in kept[case.dataset, case.standing.device]
    return out

"""Rows left out of the fit and then predicted: devices, families of them, models, sources, and most of a device.

A model that others have measured is predicted with its effect: what it took elsewhere over what its work says. The
effect comes from rows that were not left out, so nothing of a left-out row is in its own prediction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.measure.calibrate.priors.judged import (
    DEVICE_OUT,
    EVERY,
    EVIDENCE,
    FAMILY_OUT,
    FEW,
    MODEL_OUT,
    SOURCE_OUT,
    JudgedRow,
    JudgedSteps,
    judged_rows,
    summaries,
)
from inferometer.predict.price.deviations import UNKNOWN_SPREAD, known_by
from inferometer.predict.price.likeness import alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from inferometer.measure.calibrate.priors.stack import StackCase
    from workshop.priors.hierarchy import SharedHierarchy


ENOUGH = 12  # residuals that an interval of its own needs


@dataclass(slots=True)
class LeftOut:
    """Of each case: log(published / predicted), NaN where it was not left out; and how its model was known.

    `known` is whether it was measured with this engine elsewhere, `likeness` that of the nearest model which was.
    `near` says whether the device was `seen` with the engine, its family was, or neither (`stranger`), and `fitted`
    whether at least half of what is known of the engine on such a unit was kept.
    """

    residuals: Any
    known: Any
    likeness: Any
    near: Any
    fitted: Any


def left_out(
    fit: SharedHierarchy, folds: Iterable[Any], *, judged: Iterable[Any] | None = None, rounds: int = 1
) -> LeftOut:
    """`folds` are masks of rows left out together; `judged` of those then looked at, all of them by default."""
    cases = fit.cases
    residuals, known = np.full(len(cases), np.nan), np.zeros(len(cases), dtype=bool)
    likeness, near = np.zeros(len(cases)), np.full(len(cases), "seen", dtype=object)
    fitted, everyone = np.ones(len(cases), dtype=bool), Counter((c.standing.unit, c.standing.engine) for c in cases)
    masks = list(folds)
    for mask, looked in zip(masks, masks if judged is None else judged, strict=True):
        other = fit.without(mask, rounds=rounds)
        errors = other.answered().residuals()
        kept = [case for case, out in zip(cases, mask.tolist(), strict=True) if not out]
        told = {(case.model, case.runs_on) for case in kept}
        devices = {(case.standing.device, case.standing.engine) for case in kept}
        families = {family_of(case) for case in kept}
        engines = Counter((case.standing.unit, case.standing.engine) for case in kept)
        for row in np.flatnonzero(looked).tolist():
            case = cases[row]
            known[row] = (case.model, case.runs_on) in told
            residuals[row] = errors[row]
            seen = (case.standing.device, case.standing.engine) in devices
            near[row] = "seen" if seen else "unseen" if family_of(case) in families else "stranger"
            engine = case.standing.unit, case.standing.engine
            fitted[row] = 2 * engines[engine] >= everyone[engine]
        likeness[looked] = _likeness(cases, mask)[looked]
    return LeftOut(residuals=residuals, known=known, likeness=likeness, near=near, fitted=fitted)


def family_of(case: StackCase) -> str:
    """The generation of chips that a device is of, with its kind of unit: what its neighbours would tell of it."""
    return f"{case.standing.unit}:{case.standing.family or case.standing.vendor}"


def family_folds(cases: Sequence[StackCase]) -> list[Any]:
    """Every device of a family at once, and of each kind of unit one family at a time.

    A sibling that stays would tell what an unseen device is asked for, and a family that goes with it takes what other
    devices of the engine tell. Kinds of units share no level, so one family of each can go together.
    """
    families: dict[str, list[str]] = {}
    for name in sorted({family_of(case) for case in cases}):
        families.setdefault(name.partition(":")[0], []).append(name)
    fold = {name: number for names in families.values() for number, name in enumerate(names)}
    of_rows = np.array([fold[family_of(case)] for case in cases])
    return [of_rows == number for number in range(max(map(len, families.values())))]


def source_folds(cases: Sequence[StackCase], folds: int) -> list[Any]:
    """A source with all of its habits; those that share an engine in different folds, so that another still tells."""
    ran: dict[str, set[tuple[str, str]]] = {}
    for case in cases:
        ran.setdefault(case.dataset, set()).add((case.standing.unit, case.standing.engine))
    fold: dict[str, int] = {}
    for name in sorted(ran, key=lambda name: (-len(ran[name]), name)):
        shared = [[len(ran[name] & ran[other]) for other in fold if fold[other] == at] for at in range(folds)]
        fold[name] = min(range(folds), key=lambda at: (sum(shared[at]), len(shared[at]), at))
    of_rows = np.array([fold[case.dataset] for case in cases])
    return [of_rows == number for number in range(min(folds, len(ran)))]


def _likeness(cases: Sequence[StackCase], mask: Any) -> Any:
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


def device_folds(cases: Sequence[StackCase], folds: int, seed: int = 0) -> list[Any]:
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


def model_folds(cases: Sequence[StackCase], folds: int, seed: int = 1) -> list[Any]:
    """A model is left out with all its sizes of picture, everywhere."""
    names = [case.model.partition("@")[0] for case in cases]
    distinct = sorted(set(names))
    np.random.default_rng(seed).shuffle(distinct)
    fold = {name: index % folds for index, name in enumerate(distinct)}
    of_rows = np.array([fold[name] for name in names])
    return [of_rows == number for number in range(min(folds, len(distinct)))]


@dataclass(slots=True)
class Validation:
    """Residuals of every case, left out in five ways."""

    devices: LeftOut
    families: LeftOut
    models: LeftOut
    sources: LeftOut
    few: LeftOut


def judge_validation(cases: Sequence[StackCase], validation: Validation, source_halves: Any) -> list[JudgedSteps]:
    """What was left out of the fit, in five ways; an interval's width comes from the other half of the models.

    That of a source left out comes from other sources (`source_halves`). All together once more, by what stood behind
    an answer.
    """
    judged: list[JudgedRow] = []
    ways = (
        (DEVICE_OUT, validation.devices), (FAMILY_OUT, validation.families), (MODEL_OUT, validation.models),
        (FEW, validation.few),
    )  # fmt: skip
    for way, kept in ways:
        judged += judged_rows(cases, kept.residuals, _crossed(cases, kept), [way] * len(cases))
    sources = validation.sources
    judged += judged_rows(cases, sources.residuals, source_halves, [SOURCE_OUT] * len(cases))
    same, seen, unseen, without = EVIDENCE
    behind = [
        (seen if near == "seen" else unseen) if fitted else without
        for near, fitted in zip(sources.near.tolist(), sources.fitted.tolist(), strict=True)
    ]
    together = judged_rows(cases, sources.residuals, source_halves, behind)
    together += [replace(row, way=same) for row in judged if row.way == FEW]
    everything = [replace(row, dataset=EVERY, unit="all", engine="all", quantity="all") for row in together]
    return summaries([*judged, *everything])


def _crossed(cases: Sequence[StackCase], kept: LeftOut) -> Any:
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


def _group_names(case: StackCase, known: str) -> tuple[str, ...]:
    """The nearest first: with models that are known in the same way, then with all."""
    names = case.standing.spread_names(case.quantity)
    return (*(f"{name}:{known}" for name in names[:1]), *names)

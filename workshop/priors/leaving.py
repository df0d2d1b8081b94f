"""Rows left out of the fit and then predicted: devices, their families, makers, models, sources, most of a device.

A model that others have measured is predicted with its effect: what it took elsewhere over what its work says. The
effect comes from rows that were not left out, so nothing of a left-out row is in its own prediction.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from inferometer.measure.calibrate.priors.judged import (
    DEVICE_OUT,
    EVERY,
    EVIDENCE,
    FAMILY_OUT,
    FEW,
    MAKER_OUT,
    MODEL_OUT,
    SOURCE_OUT,
    JudgedRow,
    JudgedSteps,
    judged_rows,
    summaries,
)
from inferometer.predict.price.deviations import half_of, known_by, nearness
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
    `near` is how near the device is to those that were kept (`nearness`), and `fitted` whether at least half of what is
    known of the engine on such a unit was kept.
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
        engines, makers = Counter((case.standing.unit, case.standing.engine) for case in kept), makers_of(kept)
        for row in np.flatnonzero(looked).tolist():
            case = cases[row]
            known[row] = (case.model, case.runs_on) in told
            residuals[row] = errors[row]
            seen = (case.standing.device, case.standing.engine) in devices
            near[row] = nearness(case.standing, makers, seen=seen, related=family_of(case) in families)
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


def makers_of(cases: Iterable[StackCase]) -> dict[str, dict[str, int]]:
    """By unit and engine, the makers that it was published on, with how many devices of each."""
    devices: dict[str, dict[str, set[str]]] = {}
    for case in cases:
        standing = case.standing
        makers = devices.setdefault(f"{standing.unit}:{standing.engine}", {})
        makers.setdefault(standing.vendor, set()).add(standing.device)
    return {name: {maker: len(each) for maker, each in makers.items()} for name, makers in devices.items()}


def maker_folds(cases: Sequence[StackCase]) -> list[Any]:
    """An engine without everything that it ran on of one maker: of each that ran on several, one maker at a time.

    Other engines still tell of those devices, as they do where somebody asks for vLLM on a card that only OpenVINO ran
    on.
    """
    places = {
        (engine, maker): number
        for engine, makers in makers_of(cases).items()
        for number, maker in enumerate(sorted(makers))
        if len(makers) > 1
    }
    of_rows = np.array([
        places.get((f"{case.standing.unit}:{case.standing.engine}", case.standing.vendor), -1) for case in cases
    ])  # fmt: skip
    return [of_rows == number for number in range(max(places.values(), default=-1) + 1)]


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
    asked: dict[str, set[str]] = {}
    for case in cases:
        if case.model in features:
            asked.setdefault(case.runs_on, set()).add(case.model)
    nearest: dict[tuple[str, str], float] = {}
    for where, models in kept.items():
        names = sorted(asked[where])
        most = alike([features[model] for model in names], [features[model] for model in sorted(models)]).max(axis=1)
        nearest |= {(model, where): float(value) for model, value in zip(names, most, strict=True)}
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


_NAMES = re.compile(r"[a-z]+?(?=v?\d|[^a-z]|$)")  # `mobilenet` of mobilenetv3_large_100 and of mobilenet_v2


def name_family(model: str) -> str:
    """The word that a network's name begins with, in whatever package: its siblings share it, at every size."""
    name = model.partition("@")[0].rpartition(":")[2].casefold().removeprefix("legacy_").removeprefix("tf_")
    word = _NAMES.match(name)
    return word[0] if word and word[0] else name


def model_folds(cases: Sequence[StackCase], folds: int) -> list[Any]:
    """A model is left out with its siblings and at all sizes of picture, everywhere.

    A family's name alone says which fold it is in: a new table leaves the others where they are.
    """
    of_rows = np.array([crc32(name_family(case.model).encode()) % folds for case in cases])
    return [of_rows == number for number in sorted(set(of_rows.tolist()))]


@dataclass(slots=True)
class Validation:
    """Residuals of every case, left out in six ways."""

    devices: LeftOut
    families: LeftOut
    makers: LeftOut
    models: LeftOut
    sources: LeftOut
    few: LeftOut


def judge_validation(
    cases: Sequence[StackCase], validation: Validation, source_halves: Any, told: Sequence[Mapping[str, float]]
) -> list[JudgedSteps]:
    """What was left out of the fit, in six ways; an interval's width is what the other half of the models told.

    `told` are the spreads that each half of the models (`side_of`) tells, which answers are made from as users' are.
    The width of a source left out comes from other sources (`source_halves`). All together once more, by what stood
    behind an answer.
    """
    judged: list[JudgedRow] = []
    ways = (
        (DEVICE_OUT, validation.devices), (FAMILY_OUT, validation.families), (MAKER_OUT, validation.makers),
        (MODEL_OUT, validation.models), (FEW, validation.few),
    )  # fmt: skip
    for way, kept in ways:
        judged += judged_rows(cases, kept.residuals, _crossed(cases, kept, told), [way] * len(cases))
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


def side_of(cases: Sequence[StackCase]) -> Any:
    """Which half of the models each case is of, 0 or 1: every second of their names in order."""
    side = {name: index % 2 for index, name in enumerate(sorted({case.model for case in cases}))}
    return np.array([side[case.model] for case in cases])


def _crossed(cases: Sequence[StackCase], kept: LeftOut, told: Sequence[Mapping[str, float]]) -> Any:
    """Of each row left out, the half-width that answers would have from what the other half of the models told."""
    halves = np.zeros(len(cases))
    for row, side in enumerate(side_of(cases).tolist()):
        if not np.isnan(kept.residuals[row]):
            known = "known" if kept.known[row] else known_by(kept.likeness[row])
            case = cases[row]
            halves[row] = half_of(told[1 - side], case.standing, case.quantity, near=kept.near[row], known=known)
    return halves

"""The data file of the priors: fitted from the atlas, with the intervals and model effects that left-out rows earn."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import numpy as np

from inferometer.measure.calibrate.priors.hierarchy import KINDS
from inferometer.measure.calibrate.priors.judged import few_models
from inferometer.predict.price.deviations import (
    FILE,
    PARAMETERS,
    UNMEASURED,
    Deviations,
    LevelRow,
    half_of,
    known_by,
    source_half,
    source_names,
)
from inferometer.predict.work.classes import FITTED
from workshop.priors.hierarchy import SharedHierarchy, hierarchy_of, starting_point
from workshop.priors.leaving import (
    ENOUGH,
    LeftOut,
    Validation,
    device_folds,
    family_folds,
    left_out,
    maker_folds,
    makers_of,
    model_folds,
    source_folds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from inferometer.measure.calibrate.priors.stack import StackCase

ROUNDS, BEGUN_ROUNDS = 16, 5
JUDGED_CASES = 8000  # of each dataset, about, that a fit is judged by: a quarter of the models would be like no other
# Four devices of six left out at once say little of a seventh; cases of tokens are small, and can be left out in more.
DEVICE_FOLDS, TOKEN_DEVICE_FOLDS, MODEL_FOLDS = 4, 12, 24
SOURCE_FOLDS = 5
FEW_ROUNDS = 4  # a device's levels have most of its rows taken away, and share out anew what the few that are left say
# Of n devices or models the next one lies within the (n + 1) / n · 80th percentile of what was seen, since rows of one
# err together; and of one or two nobody knows, so no more is taken than of a dozen.
COVERED, MOST_COVERED = 0.8, 0.87
_WORTH_A_ROW = 0.004  # deviations below change no answer
_TOLD = 0.97  # a posterior spread this near to the prior's has learned nothing
_WIDER = 6.0  # devices or models that a group must have to say as much of itself as the wider one does


def fitted(
    cases: Sequence[StackCase], log: Callable[[str], None] | None = None, *, begun: SharedHierarchy | None = None
) -> SharedHierarchy:
    """All levels; where a fit of some of the cases has `begun`, from what it found."""
    fit = hierarchy_of(list(cases))
    for name, level in fit.levels.items() if begun is not None else ():
        if begun is not None and name in begun.levels:
            level.value = begun.levels[name].value.copy()
    if begun is not None:
        fit.variances = {pool: begun.variances.get(pool, variance) for pool, variance in fit.variances.items()}
    fit.fit_with_effects(ROUNDS if begun is None else BEGUN_ROUNDS, log=log)
    return fit


def thinned(cases: Sequence[StackCase]) -> list[StackCase]:
    """Of a dataset with many cases those of some models, chosen by their names: enough to judge a fit by.

    Leaving out takes a fit for each fold, and a thousand models of one package say little more of the next table than
    two hundred do.
    """
    many = Counter(case.dataset for case in cases)
    return [
        case for case in cases
        if crc32(case.model.partition("@")[0].encode()) % 1000 < 1000 * JUDGED_CASES / many[case.dataset]
    ]  # fmt: skip


def validated(
    fit: SharedHierarchy,
    log: Callable[[str], None] | None = None,
    keep: Callable[[str, Callable[[], Any]], Any] | None = None,
) -> Validation:
    """Every row predicted without its device, family, maker, model or source, and from a few models of its device."""
    cases = fit.cases
    devices = device_folds(cases, TOKEN_DEVICE_FOLDS if cases[0].tokens else DEVICE_FOLDS)
    ways: dict[str, tuple[list[Any], int]] = {
        "devices": (devices, 1), "families": (family_folds(cases), 1),
        "makers": (maker_folds(cases), 1), "models": (model_folds(cases, MODEL_FOLDS), 1),
        "sources": (source_folds(cases, SOURCE_FOLDS), 1),
        "few": ([few_models(cases, fold, of_short_lists=True) for fold in devices], FEW_ROUNDS),
    }  # fmt: skip
    kept: dict[str, LeftOut] = {}
    for name, (folds, rounds) in ways.items():
        make = partial(left_out, fit, folds, rounds=rounds)
        kept[name] = make() if keep is None else keep(name, make)
        if log is not None:
            log(f"left out: {name}")
    return Validation(**kept)


def document(fit: SharedHierarchy, judged: Sequence[StackCase], validation: Validation, *, made: str) -> Deviations:
    """`validation` is of the cases `judged`, which may be fewer than were fitted."""
    cases, halves = fit.cases, spreads(judged, validation)
    return Deviations(
        made=made,
        base={unit: _base(unit) for unit in sorted({case.standing.unit for case in cases})},
        covered=_covered(cases),
        levels=_levels(fit.answered()),
        variances={kind: _by_kind(np.sqrt(values)) for kind, values in sorted(fit.variances.items())},
        spreads=halves | source_spreads(judged, validation.sources, halves),
        makers={name: dict(sorted(makers.items())) for name, makers in sorted(makers_of(cases).items())},
        **_effects(fit),
        datasets=dict(sorted(Counter(case.dataset for case in cases).items())),
    )


def write(deviations: Deviations, path: Path = FILE) -> None:
    """As one line: nobody reads it but the program."""
    path.write_bytes(msgspec.json.encode(deviations) + b"\n")


def _base(unit: str) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in zip(PARAMETERS, starting_point(unit), strict=True) if value}


def _effects(fit: SharedHierarchy) -> dict[str, Any]:
    """What is usual, the pulls of the groups by where they ran and their models, and the features of those."""
    if fit.effects is None:
        return {}
    effects = fit.effects
    means, counts = effects.means(fit.residuals() + fit.offsets, fit.weights > 0)
    usual, strengths = effects.pulls(means, counts)
    pulls: dict[str, dict[str, tuple[float, int]]] = {}
    for (model, way), pull, devices in zip(effects.names, strengths.tolist(), counts.tolist(), strict=True):
        if devices:
            pulls.setdefault(way, {})[model] = (round(pull, 3), int(devices))
    features = {case.model: case.features for case in fit.cases if case.features is not None}
    return {
        "usual": {name: round(value, 4) for name, value in sorted(zip(effects.engines, usual.tolist(), strict=True))},
        "pulls": {way: dict(sorted(pulls[way].items())) for way in sorted(pulls)},
        "features": dict(sorted(features.items())),
    }


def _covered(cases: Sequence[StackCase]) -> dict[str, tuple[str, ...]]:
    seen: dict[str, set[int]] = {}
    for case in cases:
        seen.setdefault(case.standing.unit, set()).update(np.unique(case.classes).tolist())
    return {unit: tuple(FITTED[place] for place in sorted(places)) for unit, places in sorted(seen.items())}


def _levels(fit: SharedHierarchy) -> dict[str, LevelRow]:
    rows = np.bincount(fit.stack.leaf, minlength=len(fit.leaves))
    devices = [next(name for name in names if name.startswith("device:")) for names in fit.leaves]
    levels = {}
    for name, level in sorted(fit.levels.items()):
        spread = np.sqrt(np.diag(level.posterior))
        told = (np.abs(level.value) >= _WORTH_A_ROW) & (spread < _TOLD * np.sqrt(fit.variances[level.pool]))
        values = {PARAMETERS[place]: round(float(level.value[place]), 3) for place in np.flatnonzero(told).tolist()}
        levels[name] = LevelRow(
            devices=len({devices[place] for place in level.members.tolist()}),
            rows=int(rows[level.members].sum()),
            values=values,
        )
    return levels


def _by_kind(values: Any) -> dict[str, float]:
    return {str(kind): round(float(values[kind == KINDS][0]), 3) for kind in dict.fromkeys(KINDS)}


def _ways(validation: Validation, *, tokens: bool) -> list[tuple[str, LeftOut, bool | None]]:
    """What a spread is of, the rows left out that tell it, and whether their models must be known from elsewhere.

    Language models are few: a device of the tables has seldom ten, and most of them are known from somewhere.
    """
    if tokens:
        devices, models = validation.devices, validation.models
        return [
            ("unseen:known", devices, None), ("unseen:new", devices, None), ("seen:known", models, None),
            ("seen:new", models, None), ("stranger:known", validation.families, None),
            ("stranger:new", validation.families, None), ("foreign:known", validation.makers, None),
            ("foreign:new", validation.makers, None),
        ]  # fmt: skip
    return [
        ("unseen:known", validation.devices, True),
        ("stranger:known", validation.families, True),
        ("foreign:known", validation.makers, True),
        ("seen:known", validation.few, True),
        *((f"seen:{known}", validation.models, False) for known in UNMEASURED),
    ]


def spreads(cases: Sequence[StackCase], validation: Validation, among: Any = True) -> dict[str, float]:
    """Half-widths that hold eight in ten left-out residuals of the rows `among` them, by unit, engine and quantity.

    A device that was not seen answers as those left out did; a seen one as those of which a few models were kept, and
    for a new model as models left out on known devices did that were as like to a kept one. Few devices or models say
    little of the next one: their half-width holds more of what was seen, and is mixed with that of the wider group.
    """
    halves: dict[str, float] = {}
    for what, kept, known in _ways(validation, tokens=any(case.tokens for case in cases)):
        chosen = ~np.isnan(kept.residuals) & among
        if known is not None:
            chosen &= kept.known == known
        if known is False:
            chosen &= np.array([known_by(likeness) == what.partition(":")[2] for likeness in kept.likeness.tolist()])
        told: dict[str, dict[str, list[float]]] = {}
        for row in np.flatnonzero(chosen).tolist():
            case = cases[row]
            member = case.model if what.startswith("seen") else case.standing.device
            for name in case.standing.spread_names(case.quantity):
                told.setdefault(name, {}).setdefault(member, []).append(abs(float(kept.residuals[row])))
        for name in sorted(told, key=lambda name: name.count(":")):  # the wider ones first
            residuals = np.concatenate([np.array(values) for values in told[name].values()])
            half = float(np.quantile(residuals, min(MOST_COVERED, COVERED * (1 + 1 / len(told[name])))))
            if (wider := halves.get(f"{name.rpartition(':')[0]}:{what}")) is not None:
                told_by = len(told[name])
                half = float(np.sqrt((told_by * half**2 + _WIDER * wider**2) / (told_by + _WIDER)))
            halves[f"{name}:{what}"] = round(half, 3)
    return dict(sorted(halves.items()))


_FEW_SOURCES = 3  # that say as much of a quantity or a unit as all sources together say of any


def source_spreads(
    cases: Sequence[StackCase], kept: LeftOut, halves: Mapping[str, float], chosen: Any = None
) -> dict[str, float]:
    """What a source that was left out adds to the half-widths, so that eight in ten of its rows lie within both.

    By whether another source has its engine, by quantity, by kind of unit, and by how near its device is to those of
    other sources. A source counts by the root of its rows: its rows err together. `chosen` are the rows that tell, all
    by default.
    """
    told: dict[str, list[tuple[float, float, str]]] = {}
    for row in np.flatnonzero(~np.isnan(kept.residuals) & (True if chosen is None else chosen)).tolist():
        half, names = _behind(cases[row], kept, row, halves)
        for name in names:
            told.setdefault(name, []).append((abs(float(kept.residuals[row])), half, cases[row].dataset))
    added: dict[str, float] = {}
    for name in sorted(told, key=lambda name: name.count(":")):  # the wider ones first
        squares = _added(told[name]) ** 2
        if (wider := added.get(name.rpartition(":")[0])) is not None:
            sources = len({dataset for *_, dataset in told[name]}) if len(told[name]) >= ENOUGH else 0
            squares = (sources * squares + _FEW_SOURCES * wider**2) / (sources + _FEW_SOURCES)
        added[name] = round(float(np.sqrt(squares)), 3)
    return dict(sorted(added.items()))


def _added(told: Sequence[tuple[float, float, str]]) -> float:
    """The least half-width that, beside each row's own, holds eight in ten."""
    rows = Counter(dataset for *_, dataset in told)
    errors, halves = np.array([row[0] for row in told]), np.array([row[1] for row in told])
    weights = np.array([1 / np.sqrt(rows[dataset]) for *_, dataset in told])
    missing = np.sqrt(np.maximum(errors**2 - halves**2, 0.0))  # what each row would need
    order = np.argsort(missing)
    at = np.searchsorted(np.cumsum(weights[order]), COVERED * weights.sum())
    return float(missing[order][min(at, len(order) - 1)])


def source_halves(cases: Sequence[StackCase], kept: LeftOut, halves: Mapping[str, float]) -> Any:
    """Of each row of a source left out the half-width that an answer would have had, told by other sources alone."""
    widths = np.zeros(len(cases))
    for fold in source_folds(cases, SOURCE_FOLDS):
        added = source_spreads(cases, kept, halves, chosen=~fold)
        for row in np.flatnonzero(fold).tolist():
            half, names = _behind(cases[row], kept, row, halves)
            widths[row] = np.hypot(half, source_half(added, names))
    return widths


def _behind(case: StackCase, kept: LeftOut, row: int, halves: Mapping[str, float]) -> tuple[float, tuple[str, ...]]:
    """Of a row of a source left out: the half-width within a source, and who tells what a source of its own adds."""
    known = "known" if kept.known[row] else known_by(kept.likeness[row])
    half = half_of(halves, case.standing, case.quantity, near=kept.near[row], known=known)
    return half, source_names(case.quantity, case.standing.unit, kept.near[row], bool(kept.fitted[row]))

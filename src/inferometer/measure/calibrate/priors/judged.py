"""How far predictions of published steps are off: errors, bias, coverage and width, beside a plain roofline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.measure.calibrate.priors.cases import cases_of
from inferometer.measure.calibrate.priors.language import QUANTITIES, language_cases
from inferometer.measure.calibrate.priors.own import own_levels
from inferometer.measure.calibrate.priors.stack import StackCase, log_times, stack_of
from inferometer.predict.price.deviations import (
    PARAMETERS,
    ModelEffect,
    Standing,
    known_unit,
    model_effect,
    spread_of,
    sums_of,
    was_seen,
)

if TYPE_CHECKING:
    from inferometer.known.atlas import PublishedMeasurement

DEVICE_OUT, FAMILY_OUT, MAKER_OUT, MODEL_OUT, BOTH_OUT, SOURCE_OUT, FEW, SEEN = (
    "device left out", "family left out", "engine's rows of the maker left out", "model left out",
    "device and model left out", "source left out", "calibrated from a few models", "in the fit",
)  # fmt: skip
EVERY = (
    "every source"  # the dataset and the engine of rows that are judged together, by what stood behind their answers
)
EVIDENCE = (
    "same source, device seen", "other source, device seen", "other source, device unseen", "no source has the engine",
)  # fmt: skip
_FEW_MODELS = {"timm": 20}  # models that a device is calibrated from; elsewhere ten
_TEN = 10  # models that somebody measures to calibrate a device, as `calibrate --from which` proposes
WAYS = (DEVICE_OUT, FAMILY_OUT, MAKER_OUT, MODEL_OUT, BOTH_OUT, SOURCE_OUT, FEW, SEEN)


@frozen
class JudgedRow:
    """One published figure: what it is of, how it was predicted, and how far off that was.

    `residual` is log(published / predicted), `half` half the width of the interval as a logarithm, and `roofline` the
    error of every op at the longer of its two peaks; None where no such figure was made.
    """

    dataset: str
    unit: str
    engine: str
    quantity: str
    way: str
    device: str
    model: str
    residual: float
    half: float
    roofline: float | None = None

    @property
    def group(self) -> tuple[str, ...]:
        return self.dataset, self.unit, self.engine, self.quantity, self.way


@frozen
class JudgedSteps:
    """One group of published steps: what they are, how they were predicted, and how far off that was.

    Errors are |predicted / published − 1|, `bias` the median of the signed one. `coverage` and `width` are of the
    intervals of eight in ten; `roofline` is the median error of every op at the longer of its two peaks.
    """

    dataset: str
    unit: str
    engine: str
    quantity: str
    way: str
    steps: int
    devices: int
    models: int
    median: float
    p90: float
    bias: float
    coverage: float
    width: float
    roofline: float | None


@frozen
class JudgedFile:
    """The rows of a file that could be asked, and how many others there are by their reasons."""

    judged: tuple[JudgedRow, ...]
    rows: int
    left: Mapping[str, int] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[JudgedSteps, ...]:
        return tuple(summaries(self.judged))


def judge_rows(
    rows: Iterable[PublishedMeasurement], *, from_models: int | None = None, engine: str = "local"
) -> JudgedFile:
    """Every row as `predict` answers it, told apart by whether its device and its model were in the fit.

    Devices that were not are also calibrated from a few of their models here, and the others predicted; with
    `from_models` every device is, from so many. Speeds of tokens and forward passes are judged by the fit that each
    has. `engine` is where many networks are counted: see `cases_of`.
    """
    taken = list(rows)
    spoken = [row for row in taken if row.quantity in QUANTITIES]
    forward = cases_of((row for row in taken if row.quantity not in QUANTITIES), engine=engine)
    readings = (language_cases(spoken), forward)
    judged = [row for reading in readings for row in _judge(list(reading.cases), from_models)]
    return JudgedFile(
        judged=tuple(judged), rows=len(taken), left=dict(sum((each.left for each in readings), Counter()))
    )


def _judge(cases: list[StackCase], from_models: int | None) -> list[JudgedRow]:
    """Cases of one fit."""
    if not cases:
        return []
    seen = np.array([was_seen(case.standing, tokens=case.tokens) for case in cases])
    effects = [effect_on(case) for case in cases]
    named = np.array([effect.devices > 0 for effect in effects])
    judged: list[JudgedRow] = []
    if from_models is None:
        residuals, halves = _answers(cases, effects, seen)
        judged += judged_rows(cases, residuals, halves, [way_of(*each) for each in zip(seen, named, strict=True)])
    wanted = ~seen if from_models is None else np.ones(len(cases), dtype=bool)
    if wanted.any():
        few, narrow = _from_few(cases, wanted, effects, from_models)
        judged += judged_rows(cases, few, narrow, [FEW] * len(cases))
    return judged


def way_of(device_seen: bool, model_seen: bool) -> str:
    """How a row is predicted, by what of it was in the fit."""
    return (BOTH_OUT, DEVICE_OUT, MODEL_OUT, SEEN)[2 * int(device_seen) + int(model_seen)]


def effect_on(case: StackCase) -> ModelEffect:
    """The time of its model over the time of its work."""
    standing = known_unit(case.standing, tokens=case.tokens)
    return model_effect(case.model, standing, case.quantity, lambda: case.features)


def _answers(cases: Sequence[StackCase], effects: Sequence[Any], seen: Any) -> tuple[Any, Any]:
    """The residuals and the half-widths of the intervals, both as logarithms."""
    standings = list(dict.fromkeys(case.standing for case in cases))
    places = {standing: index for index, standing in enumerate(standings)}
    leaf = np.array([places[case.standing] for case in cases])
    base = np.array([sums_vector(standing, tokens=cases[0].tokens) for standing in standings])
    stack = stack_of(list(cases), leaf, base)
    logs, _ = log_times(stack, np.zeros_like(base), slopes=False)
    logs = logs + np.log([effect.times for effect in effects])
    halves = [
        _half(case, seen=bool(known), known=effect.known)
        for case, known, effect in zip(cases, seen, effects, strict=True)
    ]
    return stack.logs - logs, np.array(halves)


def _half(case: StackCase, *, seen: bool, known: str) -> float:
    return spread_of(known_unit(case.standing, tokens=case.tokens), case.quantity, seen=seen, known=known)


def sums_vector(standing: Standing, *, tokens: bool = False) -> Any:
    sums = sums_of(known_unit(standing, tokens=tokens), tokens=tokens)
    return np.array([sums.get(name, 0.0) for name in PARAMETERS])


def _from_few(cases: Sequence[StackCase], wanted: Any, effects: Sequence[Any], count: int | None) -> tuple[Any, Any]:
    """The wanted devices, each calibrated from a few of its models; NaN where a row was among those."""
    residuals, halves = np.full(len(cases), np.nan), np.zeros(len(cases))
    out = few_models(cases, wanted, count)
    for device in sorted({case.standing.device for case, chosen in zip(cases, wanted, strict=True) if chosen}):
        rows = np.array([case.standing.device == device for case in cases])
        places = np.flatnonzero(rows).tolist()
        if not out[places].any():
            continue
        fit = own_levels([cases[place] for place in places], [effects[place] for place in places])
        other = fit.without(out[places], rounds=6)
        errors = fit.stack.logs - log_times(fit.stack, other.theta(), slopes=False)[0]
        for place, error in zip(places, errors.tolist(), strict=True):
            if out[place]:
                case = cases[place]
                residuals[place] = error
                halves[place] = _half(case, seen=True, known=effects[place].known)
    return residuals, halves


def few_models(
    cases: Sequence[StackCase], mask: Any, count: int | None = None, *, of_short_lists: bool = False, seed: int = 2
) -> Any:
    """Of the devices in a fold: the rows of all but `count` models each, which are left out; ten, of timm's twenty.

    With `of_short_lists` half of them, where there are not twice as many: of those too something is left to judge.
    """
    draw = np.random.default_rng(seed)
    models: dict[tuple[str, str], list[str]] = {}
    for row in np.flatnonzero(mask).tolist():
        name, key = cases[row].model.partition("@")[0], (cases[row].dataset, cases[row].standing.device)
        if name not in models.setdefault(key, []):
            models[key].append(name)
    kept: Mapping[tuple[str, str], set[str]] = {
        key: set(draw.permutation(sorted(names))[: min(most, len(names) // 2) if of_short_lists else most].tolist())
        for key, names in models.items()
        for most in [count or _FEW_MODELS.get(key[0], _TEN)]
    }
    out = mask.copy()
    for row in np.flatnonzero(mask).tolist():
        case = cases[row]
        out[row] = case.model.partition("@")[0] not in kept[case.dataset, case.standing.device]
    return out


def judged_rows(cases: Sequence[StackCase], residuals: Any, halves: Any, ways: Sequence[str]) -> list[JudgedRow]:
    """The rows that have a residual."""
    judged = []
    for place in np.flatnonzero(~np.isnan(residuals)).tolist():
        case = cases[place]
        floor = float(np.sum(case.repeats * np.maximum(case.compute, case.memory)))
        judged.append(
            JudgedRow(
                dataset=case.dataset,
                unit=case.standing.unit,
                engine=case.standing.engine,
                quantity=case.quantity,
                way=ways[place],
                device=case.standing.device,
                model=case.model,
                residual=float(residuals[place]),
                half=float(halves[place]),
                roofline=abs(floor / case.seconds - 1),
            )
        )
    return judged


def summaries(judged: Iterable[JudgedRow]) -> list[JudgedSteps]:
    """One summary for each dataset, kind of unit, engine, quantity and way."""
    groups: dict[tuple[str, ...], list[JudgedRow]] = {}
    for row in judged:
        groups.setdefault(row.group, []).append(row)
    made = []
    for (dataset, unit, engine, quantity, way), rows in sorted(groups.items()):
        floors = [row.roofline for row in rows if row.roofline is not None]
        made.append(
            JudgedSteps(
                dataset=dataset,
                unit=unit,
                engine=engine,
                quantity=quantity,
                way=way,
                steps=len(rows),
                devices=len({row.device for row in rows}),
                models=len({row.model for row in rows}),
                **how_far(rows),
                roofline=_rounded(np.median(floors)) if floors else None,
            )
        )
    return made


def how_far(rows: Sequence[JudgedRow]) -> dict[str, float]:
    """Errors, bias, coverage and width of some rows, by the names that `JudgedSteps` has for them."""
    residuals, halves = np.array([row.residual for row in rows]), np.array([row.half for row in rows])
    errors = np.expm1(-residuals)
    return {
        "median": _rounded(np.median(np.abs(errors))),
        "p90": _rounded(np.quantile(np.abs(errors), 0.9)),
        "bias": _rounded(np.median(errors)),
        "coverage": _rounded(np.mean(np.abs(residuals) <= halves)),
        "width": _rounded(np.median(np.exp(halves) - np.exp(-halves))),
    }


def _rounded(value: Any) -> float:
    return round(float(value), 4)

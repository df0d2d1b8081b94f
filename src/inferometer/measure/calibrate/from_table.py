"""Calibrating a device that is not at hand: from a table of published whole-model times, or from the atlas."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.calibration import Calibration
from inferometer.core.device import Device, Sourced
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.known import device as device_named
from inferometer.known.atlas import PublishedMeasurement, SetAside
from inferometer.known.atlas.reading import read_atlas
from inferometer.known.atlas.shipped import load
from inferometer.known.engines import engine as engine_named
from inferometer.measure.calibrate.priors.cases import cases_of
from inferometer.measure.calibrate.priors.judged import effect_on, sums_vector
from inferometer.measure.calibrate.priors.language import QUANTITIES, language_cases
from inferometer.measure.calibrate.priors.own import own_levels, own_variances
from inferometer.measure.calibrate.priors.stack import StackCase, log_times, stack_of
from inferometer.predict.basis.files import own_folder, write_calibration
from inferometer.predict.price.class_figures import with_class_figures
from inferometer.predict.price.deviations import PARAMETERS, half_of, known_deviations, known_unit, spread_of, was_seen
from inferometer.predict.published_rows import impossible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from inferometer.measure.calibrate.priors.hierarchy import Hierarchy


# A device that nobody here can touch, calibrated from whole-model times that others published.
#
# The fit moves only the narrowest level, the device's own. It starts from the sum of its parents, the wider levels,
# and is pulled back to it, the harder the closer devices usually lie to their parents. The effect that a model has on
# every device is taken out first. Each model is left out once; how far off its prediction then is gives the interval.

LEAST_MODELS = 3  # one is left out at a time to judge the fit, and two must be left to make it
_FOLDS = 30  # at most: beyond it a fit for each model left out takes minutes and tells no more
_LEAST_SPREAD = 0.03  # a few models that agree by chance must not promise less than measurements repeat to
_WIDER = 6.0  # models that say as much of the next one as all devices with few known models do


@frozen
class PublishedFit:
    """The calibration, the rows that were not used with their reasons, and how the models left out came off."""

    calibration: Calibration
    rows: int
    set_aside: tuple[SetAside, ...]
    left: Counter[str]
    median_error: float


def calibration_from(  # noqa: PLR0913 - what is fitted, from what, and what can be
    rows: Iterable[PublishedMeasurement],
    *,
    device: str,
    runtime: str,
    dtype: str | None = None,
    set_aside: Sequence[SetAside] = (),
    impossible: Callable[[PublishedMeasurement], str | None] | None = None,
    now: Callable[[], datetime] | None = None,
) -> PublishedFit:
    """Fit from the rows of a device with a runtime; `dtype` is the activations' format, the commonest by default."""
    where, engine = device_named(device), engine_named(runtime)
    own, aside = _usable(rows, where, engine.name, impossible)
    speaks = sum(row.quantity in QUANTITIES for row in own) * 2 > len(own)
    reading = language_cases(own) if speaks else cases_of(own)
    cases = _in_one_format(reading.cases, dtype)
    models = sorted({case.model for case in cases})
    if len(models) < LEAST_MODELS:
        raise DomainError(
            f"{len(models)} models of {where.name} with {engine.name} can be used; a fit needs {LEAST_MODELS} or more, "
            f"and ten make it good.{_why(reading.left, aside)}",
            remedy="Give a table with more models whose names `inferometer models` knows.",
        )
    fit = own_levels(cases, [effect_on(case) for case in cases])
    residuals = _left_out(fit, cases)
    spread = max(_LEAST_SPREAD, _half(residuals, len(models), cases[0]) / EIGHT_IN_TEN)
    sums = fit.stack.base[0] + fit.theta()[0]
    created = (now or (lambda: datetime.now(UTC)))().isoformat(timespec="seconds")
    calibration = Calibration(
        device=where.name,
        runtime=engine.name,
        dtype=cases[0].standing.activations,
        created=created,
        unit=where.unit,
        parameters={name: float(f"{np.exp(value):.5g}") for name, value in zip(PARAMETERS, sums, strict=True) if value},
        residuals={"step": round(spread, 4)},
        peaks=_effective(where, created)[0],
        bandwidths=_effective(where, created)[1],
        steps=len(cases),
        fitted_on=tuple(models),
        notes=(f"Fitted from {len(cases)} published steps of {len(models)} models; no op was measured.",),
    )
    median = float(np.median(np.abs(np.expm1(-residuals))))
    return PublishedFit(
        calibration=calibration,
        rows=len(cases),
        set_aside=(*set_aside, *aside),
        left=reading.left,
        median_error=median,
    )


def _usable(
    rows: Iterable[PublishedMeasurement],
    device: Device,
    runtime: str,
    impossible: Callable[[PublishedMeasurement], str | None] | None,
) -> tuple[list[PublishedMeasurement], list[SetAside]]:
    own, aside = [], []
    for row in rows:
        if row.device != device.name or row.engine != runtime:
            continue
        reason = None if impossible is None else impossible(row)
        if reason is None:
            own.append(row)
        else:
            aside.append(SetAside(file=row.file or "", line=row.line or 0, reason=reason))
    return own, aside


def _in_one_format(cases: Sequence[StackCase], dtype: str | None) -> list[StackCase]:
    """The cases in one format of weights and activations; of several ways to run, the one with the most rows."""
    wanted = [case for case in cases if dtype in {None, case.standing.activations}]
    if not wanted:
        return []
    commonest = Counter(case.standing for case in wanted).most_common(1)[0][0]
    return [case for case in wanted if case.standing == commonest]


def _why(left: Counter[str], aside: Sequence[SetAside]) -> str:
    reasons = [f"{reason} ({rows} rows)" for reason, rows in left.most_common(3)]
    reasons += [f"{each.file}, line {each.line}: {each.reason}" for each in aside[:3]]
    return f" Not used: {'; '.join(reasons)}." if reasons else ""


def _left_out(fit: Hierarchy, cases: Sequence[StackCase]) -> Any:
    """The error of each row when its model is left out."""
    names = [case.model.partition("@")[0] for case in cases]
    distinct = sorted(set(names))
    fold = {name: index % min(_FOLDS, len(distinct)) for index, name in enumerate(distinct)}
    of_rows = np.array([fold[name] for name in names])
    residuals = np.zeros(len(cases))
    for number in range(of_rows.max() + 1):
        out = of_rows == number
        other = fit.without(out, rounds=2)
        residuals[out] = (fit.stack.logs - log_times(fit.stack, other.theta(), slopes=False)[0])[out]
    return residuals


def _half(residuals: Any, models: int, case: StackCase) -> float:
    """Half the width of its intervals: of its own models left out, and of devices that a few models were known of.

    By the share that intervals are judged by: a few models that are far off do not widen all others, as a mean of
    squares would. Three models lie near together by chance: intervals from three were half as wide as from ten.
    """
    standing, spreads = known_unit(case.standing, tokens=case.tokens), known_deviations(tokens=case.tokens).spreads
    usual = half_of(spreads, standing, case.quantity, near="seen", known="known")
    own = float(np.quantile(np.abs(residuals), 0.8))
    return float(np.sqrt((models * own**2 + _WIDER * usual**2) / (models + _WIDER)))


def _effective(device: Device, created: str) -> tuple[dict[str, Sourced], dict[str, Sourced]]:
    """The peaks and the bandwidth that the shares are of, where the device's row has none: its class's, marked so."""
    filled, notes = with_class_figures(device)
    if not notes:
        return {}, {}

    def marked(figure: Sourced) -> Sourced:
        note = "effective: what the fitted shares are shares of, no datasheet's figure"
        return Sourced(value=figure.value, origin="prior", source=figure.source, date=created[:10], note=note)

    peaks = {} if device.peaks else {name: marked(peak) for name, peak in filled.peaks.items()}
    main, had = filled.memory, device.memory
    lacks = main is not None and (had is None or had.bandwidth_bytes_per_s is None)
    if main is None or main.bandwidth_bytes_per_s is None or not lacks:
        return peaks, {}
    return peaks, {main.level: marked(main.bandwidth_bytes_per_s)}


ATLAS = "atlas"


def calibrate_from(source: str | Path, *, device: str, runtime: str, dtype: str | None = None) -> PublishedFit:
    """Fit a calibration of a device with a runtime from a CSV file in a form of the atlas, or from the `atlas` itself.

    `dtype` is the format of the activations; by default the one with the most rows. `save_fit` keeps it for `predict`.
    """
    name = device_named(device).name
    rows: tuple[PublishedMeasurement, ...]
    set_aside: tuple[SetAside, ...] = ()
    if str(source) == ATLAS:
        rows = tuple(load().where(device=name).rows())
    else:
        reading = read_atlas(Path(source))
        rows, set_aside = tuple(reading.table.rows()), reading.set_aside
    return calibration_from(rows, device=name, runtime=runtime, dtype=dtype, set_aside=set_aside, impossible=impossible)


# Which models to measure: each moves what is doubtful of the device by as much as its time leans on it.
#
# A model's time has a slope in every parameter of the device (how much of it is convolutions, kernels, bytes), and each
# parameter a doubt: how far devices lie from their parents. The models are taken one by one, each time the one after
# which the others' times are least in doubt. What a model keeps to itself, no other model tells.

WHICH = "which"
_TEN = 10  # models are proposed: further ones narrow the interval by little
_CANDIDATES = 48  # the models measured on most devices: other devices have them too


@frozen
class MeasuringPlan:
    """The models that tell most of a device, the best first.

    `halves` are half-widths of eight in ten of the others' answers, as logarithms: now, and after each of them.
    """

    device: str
    runtime: str
    dtype: str
    models: tuple[str, ...]
    halves: tuple[float, ...]


def models_to_measure(*, device: str, runtime: str, dtype: str | None = None) -> MeasuringPlan:
    """Which ten models to measure on a device with a runtime, to know the others best."""
    where, engine = device_named(device), engine_named(runtime)
    cases = _in_one_format(_as_if_measured(where, engine.name, ran=engine.name), dtype)
    if len(cases) < LEAST_MODELS and engine.runs_on(where):
        # models differ by their ops, so models that others ran on such units count, in whatever engine
        cases = _in_one_format(_as_if_measured(where, engine.name, ran=None), dtype)
    if len(cases) < LEAST_MODELS:
        raise DomainError(
            f"The atlas has {len(cases)} models that {engine.name} ran on a {where.unit}: too few to choose from.",
            remedy="Measure ten that differ: small and large, convolutions and transformers.",
        )
    tokens, standing = cases[0].tokens, known_unit(cases[0].standing, tokens=cases[0].tokens)
    base = np.array([sums_vector(standing, tokens=tokens)])
    _, slopes = log_times(stack_of(cases, np.zeros(len(cases), dtype=int), base), np.zeros_like(base))
    # Later measurements have the same source as these: only the models' own effects stay in doubt.
    spreads, quantity = known_deviations(tokens=tokens).spreads, cases[0].quantity
    noise = (half_of(spreads, standing, quantity, near="seen", known="known") / EIGHT_IN_TEN) ** 2
    now = spread_of(standing, quantity, seen=was_seen(standing, tokens=tokens), known="known") / EIGHT_IN_TEN
    doubt = np.diag(sum(own_variances(standing, tokens=tokens).values(), np.zeros(len(PARAMETERS))))
    # How far devices left out were off says how large the doubt is; the variances of parameters, of what it is made.
    across = float(np.einsum("mi,ij,mj->m", slopes, doubt, slopes).mean())
    doubt *= max(now**2 - noise, 0.0) / across
    chosen: list[int] = []
    halves = [_half_of(slopes, doubt, noise)]
    while len(chosen) < min(_TEN, len({case.model for case in cases}) - 1):
        after = [_told_by(doubt, slope, noise) for slope in slopes]
        known = {cases[at].model for at in chosen}
        left = [
            np.inf if case.model in known else _half_of(slopes, each, noise)
            for case, each in zip(cases, after, strict=True)
        ]
        chosen.append(int(np.argmin(left)))
        doubt = after[chosen[-1]]
        halves.append(left[chosen[-1]])
    return MeasuringPlan(
        device=where.name,
        runtime=engine.name,
        dtype=cases[0].standing.activations,
        models=tuple(cases[at].model for at in chosen),
        halves=tuple(halves),
    )


def _as_if_measured(device: Device, engine: str, *, ran: str | None) -> tuple[StackCase, ...]:
    """Models that others `ran` with an engine, or with any, on such a unit: as steps of this device, of one input."""
    there = load().where(unit=device.unit, quantity=("forward", "prefill", "decode"))
    there = there if ran is None else there.where(engine=ran)
    rows: dict[tuple[str | None, ...], PublishedMeasurement] = {}
    devices: dict[tuple[str | None, ...], set[str]] = {}
    for row in there.rows():
        if row.model is not None and row.batch in {None, 1} and row.count == 1 and row.part is None:
            key = (row.model, row.weights, row.activations, row.quantity)
            rows.setdefault(key, row)
            devices.setdefault(key, set()).add(row.device_published)
    formats = Counter(key[1:] for key, names in devices.items() for _ in names)
    order = sorted(rows, key=lambda key: (-formats[key[1:]], -len(devices[key]), str(key)))
    asked = [
        replace(rows[key], device=device.name, device_spelling=None, engine=engine, settings={}, parameters=None)
        for key in order[:_CANDIDATES]
    ]
    speaks = sum(row.quantity in QUANTITIES for row in asked) * 2 > len(asked)
    return (language_cases(asked) if speaks else cases_of(asked)).cases


def _told_by(doubt: Any, slope: Any, noise: float) -> Any:
    """The remaining doubt once a model with such slopes is measured."""
    leant = doubt @ slope
    return doubt - np.outer(leant, leant) / (slope @ leant + noise)


def _half_of(slopes: Any, doubt: Any, noise: float) -> float:
    return float(EIGHT_IN_TEN * np.sqrt(np.einsum("mi,ij,mj->m", slopes, doubt, slopes).mean() + noise))


def save_fit(fit: PublishedFit, out: Path | None = None) -> Path:
    """Write the calibration where `predict` finds it, or to a file or a folder."""
    return write_calibration(fit.calibration, out or own_folder())

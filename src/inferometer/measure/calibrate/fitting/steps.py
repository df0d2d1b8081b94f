"""Whole steps: how long the ops of a model take together, compared with how long they take alone.

Kernels that follow each other inside a model share caches, power and the launch queue, and a runtime does things
between them that are in no table of ops. A measured step is split into the seconds of its op classes, as the tables
price them, and its number of kernels. The fit finds a factor for each class, and the cost of a kernel, of a launch by
the host and of a step, that explain all steps together. Each factor is drawn towards 1, more strongly the better its
class is known, so that few steps move it little. Large errors count less than their square.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.device import Sourced
from inferometer.core.frozen import frozen
from inferometer.measure.calibrate.fitting.base import READING_SPREAD, beyond_chance, clearly_better, least_seconds
from inferometer.measure.calibrate.fitting.fit import residual_spread
from inferometer.predict.work.classes import FREE, FUSED, PLAIN, attention_path, class_path, forms_of

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.predict.price.plan import PricePlan

# How far a factor or an overhead may plausibly be from where it starts: the standard deviation of its logarithm.
FREEDOM = {
    "linear": 0.15, "matmul": 0.3, "attention": 0.6, "convolution": 0.3, "depthwise": 0.3, "vector": 0.6,
    "indexing": 0.6, "kernel": 0.3, "host": 1.0, "step": 0.3,
}  # fmt: skip
_NOISE = 0.05  # relative error of a single step that no factor explains
_QUIET = 0.35  # quantile of the seconds per kernel of steps that wait for their host
_SHORTEST = 0.1  # … and of all steps, as an upper bound to start from
_BUSY = 0.7  # of a step that the device works: if it is less, the step may wait for its host
_FAR = 2.0  # in units of noise: larger errors pull no harder
_STRAY = 2.33  # in units of freedom: 98 in 100 factors are nearer; one further off explains something not modelled
_MINOR = 0.15  # of the ops of steps that have it: a class of less that strays took the blame for others, and is dropped
_WORSE = 1.1  # times the error of ops alone: a fit with a larger error for left-out models is not kept


@frozen
class WholeStep:
    """One measured step. `parts` are seconds on the device by class, without launches.

    `launches` counts kernels; `queued` is what the host takes to start them one by one while the device works, in
    kernels that it takes as long for, as `Pace` prices it. The steps of one `model` are left out together.
    """

    model: str
    phase: str
    seconds: float
    parts: Mapping[str, float]
    launches: float
    queued: float = 0.0
    workload: str = ""
    least: Mapping[str, float] = field(default_factory=dict)  # lower bounds of the parts


@frozen
class StepBase:
    """An earlier calibration's fit of whole steps: a fit starts there, instead of at factors of 1.

    `residuals` (`step.PHASE`, `host`) say how far single steps were off then: such errors are chance, and move little.
    """

    factors: Mapping[str, float]
    residuals: Mapping[str, float]
    steps: float  # of each phase
    alone: Mapping[str, float] = field(default_factory=dict)  # overheads outside of models

    def host_s(self, taken: Sequence[float], before: float) -> float:
        """The host's seconds per kernel, from those of the steps that wait for it.

        The earlier value stands while some steps were shorter and some longer.
        """
        shortest, quiet, half = np.quantile(taken, (_SHORTEST, _QUIET, 0.5)).tolist()
        if shortest <= before <= half:
            return before
        error = max(READING_SPREAD, self.residuals.get("host", 0.0)) / sqrt(len(taken))
        if quiet < before:  # no step is shorter than its host, so that leaves less doubt
            error /= 2
        return before * exp(beyond_chance(log(quiet / before), error))


_NOTHING = StepBase(factors={}, residuals={}, steps=0.0)


@frozen
class StepFit:
    """The result of the fit: `factors` by class, `overheads` in seconds (kernel, host, step), residuals by phase.

    Phases whose fit makes no sense are `left` out: their ops stay as they were measured alone.
    """

    factors: Mapping[str, float]
    overheads: Mapping[str, float]
    residuals: Mapping[str, float]
    counts: Mapping[str, int]  # of the steps behind each residual
    errors: tuple[tuple[WholeStep, float], ...]  # log(measured / explained), the model of each step left out
    start: Mapping[str, float]  # overheads as they were measured alone
    left: tuple[str, ...] = ()
    measured: int = 0  # steps, those of the phases that were left out included

    def applied_to(self, calibration: Calibration, *, source: str, date: str) -> Calibration:
        """The calibration with these factors and overheads, and the residuals of whole steps."""
        alone = {f"alone.{name}": value for name, value in self.start.items()}  # where another fit starts
        sourced = {
            name: Sourced(value=value, origin="calibrated", source=source, date=date)
            for name, value in {**self.overheads, **alone}.items()
        }
        models, known = {step.model for step, _ in self.errors}, calibration.residuals
        return replace(
            calibration,
            factors={**calibration.factors, **self.factors},
            overheads={**calibration.overheads, **sourced},
            residuals={**calibration.residuals, **self.residuals},
            steps=calibration.steps + self.measured,
            fitted_on=tuple(sorted({*calibration.fitted_on, *models})),
            notes=(*calibration.notes, *(alone_note(phase) for phase in self.left if f"step.{phase}" not in known)),
        )


def alone_note(phase: str) -> str:
    return (
        f"What whole models took in {phase} does not follow from what their ops take, "
        f"so {phase} is predicted from ops that were measured one by one."
    )


def taken_apart(  # noqa: PLR0913 - a step, and what is known of it
    plan: PricePlan,
    sizes: Mapping[str, Any],
    phase: str,
    *,
    model: str,
    seconds: float,
    workload: str = "",
    best: PricePlan | None = None,
) -> WholeStep:
    """A step, split by class as the plan prices it. The plan must have no factors yet; `best` prices lower bounds."""
    parts, launches = _parts(plan, sizes, phase)
    started = phase not in plan.overheads.captured and plan.overheads.host_s is not None
    queued = float((plan.prepared.counts(once=False) * plan.rates_in(phase).calls[:, 0]).sum()) if started else 0.0
    return WholeStep(
        model=model,
        phase=phase,
        seconds=seconds,
        parts=parts,
        launches=launches,
        queued=queued,
        workload=workload,
        least={} if best is None else _parts(best, sizes, phase, at_best=True)[0],
    )


def _parts(
    plan: PricePlan, sizes: Mapping[str, Any], phase: str, *, at_best: bool = False
) -> tuple[dict[str, float], float]:
    """Seconds by class, and the number of kernels. `at_best` ops without a table take no less than their floor."""
    step = plan.step(sizes, phase)
    priced, counts, path = step.priced, step.counts, plan.prepared.effects.attention
    longest = np.maximum(priced.compute_s, priced.memory_s)
    if at_best:
        longest = np.where(step.rates.tabled, longest, np.broadcast_to(priced.floor_s, longest.shape))
    apart = plan.calibration is not None and any(plan.calibration.table(name) for name in (FUSED, PLAIN))
    parts: dict[str, float] = {}
    launches = 0.0
    for number, row in enumerate(plan.prepared.rows):
        if row.op_class in FREE | {"collective"}:
            continue
        inside = apart and row.fused.launches == 0
        names = class_path(row.op, phase, attention_path(row.op, path), fused=inside)
        name = next(
            name for name in names if name not in forms_of(row.op)
        )  # few models tell no form of a class from another
        key = name.removesuffix(".narrow").removesuffix(".wide")
        parts[key] = parts.get(key, 0.0) + float(counts[number] * longest[number].sum())
        launches += float(counts[number] * step.rates.kernels[number, 0])
    return parts, launches


def explained_seconds(step: WholeStep, factors: Mapping[str, float], overheads: Mapping[str, float]) -> float:
    """Seconds of a step: its ops and kernels, or the host if that takes longer, and the step's own overhead."""
    device, host = _both(step, factors, overheads)
    return max(device, host) + overheads.get("step", 0.0)


def _both(step: WholeStep, factors: Mapping[str, float], overheads: Mapping[str, float]) -> tuple[float, float]:
    device = least_seconds(step.parts, factors, step.least)
    return device + overheads.get("kernel", 0.0) * step.launches, overheads.get("host", 0.0) * step.queued


def fit_steps(
    steps: Sequence[WholeStep], start: Mapping[str, float], base: StepBase | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Factors by class, and overheads. `start` has the initial overheads in seconds; only those are fitted.

    The host is fitted separately, to the steps that wait for it: disturbances only ever add time, so a low quantile of
    its seconds per kernel is nearer to the truth than the median.
    """
    overheads, factors = dict(start), dict((base or _NOTHING).factors)
    queued = [step for step in steps if step.queued]
    if (
        base is not None
    ):  # it says what the device takes: where that is most of a step, the step says nothing of its host
        queued = [step for step in queued if _both(step, factors, start)[0] < _BUSY * step.seconds]
    if queued and "host" in overheads:  # no step is shorter than its host: the shortest ones bound it from above
        overheads["host"] = float(np.quantile([step.seconds / step.queued for step in queued], _SHORTEST))
    # Host and device are fitted in turns, since which steps wait for the host follows from both; after one turn it
    # would follow from the values at the start alone.
    for _ in range(3):
        waits = [step for step in steps if _waits(step, factors, overheads)]
        if waits and "host" in overheads:
            taken = [max(1e-9, (step.seconds - overheads.get("step", 0.0)) / step.queued) for step in waits]
            quiet = float(np.quantile(taken, _QUIET))
            overheads["host"] = quiet if base is None else base.host_s(taken, start["host"])
        busy = [step for step in steps if not _waits(step, factors, overheads)]
        if busy:
            fitted, moved = fit_busy(busy, start, base or _NOTHING)
            factors, overheads = {**factors, **fitted}, {**overheads, **moved}
    return factors, overheads


def _waits(step: WholeStep, factors: Mapping[str, float], overheads: Mapping[str, float]) -> bool:
    """Whether a step is bound by its host."""
    device, host = _both(step, factors, overheads)
    return host > device


def fit_busy(
    steps: Sequence[WholeStep], start: Mapping[str, float], base: StepBase, *, freedom: float | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Factors and overheads of steps that do not wait for their host; `freedom` is that of each, if it is one for all.

    They start from the base's factors and from `start`.
    """
    classes = sorted({name for step in steps for name, seconds in step.parts.items() if seconds > 0})
    fitted = [name for name in start if name != "host"]
    own = [freedom or FREEDOM.get(name.partition(".")[0], 0.5) for name in (*classes, *fitted)]
    noise = np.array([max(_NOISE, base.residuals.get(f"step.{step.phase}", 0.0)) for step in steps])

    def values(moved: Any) -> tuple[dict[str, float], dict[str, float]]:
        factors = {name: base.factors.get(name, 1.0) * exp(moved[index]) for index, name in enumerate(classes)}
        return factors, {name: start[name] * exp(moved[len(classes) + index]) for index, name in enumerate(fitted)}

    seconds, launches = (np.array(column) for column in zip(*((s.seconds, s.launches) for s in steps), strict=True))
    parts, least = (
        np.array([[of_step.get(name, 0.0) for name in classes] for of_step in column])
        for column in ([step.parts for step in steps], [step.least for step in steps])
    )

    def errors(moved: Any) -> Any:
        """As `_error`, of all steps at once."""
        factors, overheads = values(moved)
        working = np.maximum(parts * [factors[name] for name in classes], least).sum(axis=1)
        return np.log(seconds / (working + overheads.get("kernel", 0.0) * launches + overheads.get("step", 0.0)))

    return values(_solve(errors, np.array(own), noise))


def _solve(errors: Callable[[Any], Any], freedom: Any, noise: Any) -> Any:
    """Gauss–Newton steps on errors in units of noise, drawn to 0 by freedom, with Huber's weights."""
    moved = np.zeros(len(freedom))
    for _ in range(30):  # it ends when it settles, below; a fit that swings is stopped
        residuals = errors(moved)
        # An error of exactly 0 weighs 1 as all small ones do.
        weights = np.minimum(1.0, _FAR * noise / np.maximum(np.abs(residuals), 1e-12))
        # a nudge far above rounding and far below where the sum of maxima bends
        slopes = np.stack([(errors(moved + nudge) - residuals) / 1e-4 for nudge in 1e-4 * np.eye(len(moved))], axis=1)
        scaled = (np.sqrt(weights) / noise)[:, None]
        left = np.vstack([slopes * scaled, np.diag(1 / freedom)])
        right = np.concatenate([residuals * scaled[:, 0], moved / freedom])
        change = np.linalg.lstsq(left, -right, rcond=None)[0]
        change = np.clip(change, -0.5, 0.5)  # a factor of 1.6 at once: slopes are not true further off
        moved = moved + change
        if float(np.abs(change).max()) < 1e-5:  # a thousandth of a percent: far below any timer
            break
    return moved


def _error(step: WholeStep, factors: Mapping[str, float], overheads: Mapping[str, float]) -> float:
    return log(step.seconds / explained_seconds(step, factors, overheads))


def leave_one_out(
    steps: Sequence[WholeStep],
    start: Mapping[str, float],
    base: StepBase | None = None,
    dropped: frozenset[str] = frozenset(),
) -> tuple[tuple[WholeStep, float, bool], ...]:
    """log(measured / explained) of every step, fitted to the other models; and whether it waits for its host.

    Factors of classes that were `dropped` explain the other models, and are not used for this one.
    """
    left_out: list[tuple[WholeStep, float, bool]] = []
    for model in dict.fromkeys(step.model for step in steps):
        factors, overheads = fit_steps([step for step in steps if step.model != model], start, base)
        fit = _without(factors, dropped, base), overheads
        left_out += [(step, _error(step, *fit), _waits(step, *fit)) for step in steps if step.model == model]
    return tuple(left_out)


def whole_fit(steps: Sequence[WholeStep], start: Mapping[str, float], base: StepBase | None = None) -> StepFit:
    """Factors and overheads from all steps, residuals from leaving each model out in turn.

    Steps that wait for their host have a residual of their own, `host`: it is mostly the host's noise.
    """
    factors, overheads = fit_steps(steps, start, base)
    # Classes of little time whose factors stray: they explain what larger classes take.
    moved = _moved(steps, factors, base)
    dropped = frozenset(name for name in moved if strays(name, moved) and _share(steps, name) < _MINOR)
    left = _left(steps, start, base, (_without(factors, dropped, base), overheads), dropped)
    others = [step for step in steps if step.phase not in left]
    if left and others:
        factors, overheads = fit_steps(others, start, base)
    elif left:
        host = {name: value for name, value in overheads.items() if name == "host"}
        factors, overheads = dict((base or _NOTHING).factors), {**start, **host}
    left_out = leave_one_out(others, start, base, dropped)
    errors: dict[str, list[float]] = defaultdict(list)
    for step, error, waits in left_out:
        errors["host" if waits else _residual_name(step)].append(error)
    # What the base, or ops alone, say of a phase that was left out still stands, and is this far off.
    for step in steps:
        if step.phase in left and (base is None or f"step.{step.phase}" in base.residuals):
            name = "host" if _waits(step, factors, overheads) else _residual_name(step)
            errors[name].append(_error(step, factors, overheads))
    return StepFit(
        factors=_without(factors, dropped, base),
        overheads=overheads,
        residuals={name: residual_spread(np.array(of_phase)) for name, of_phase in errors.items()},
        counts={name: len(of_phase) for name, of_phase in errors.items()},
        errors=tuple((step, error) for step, error, _ in left_out),
        start=dict(start if base is None else base.alone),
        left=left,
        measured=len(steps),
    )


def _without(factors: Mapping[str, float], dropped: frozenset[str], base: StepBase | None) -> dict[str, float]:
    """The factors, those of some classes as they were in the base; without one, these have none."""
    before = {name: factor for name, factor in (base or _NOTHING).factors.items() if name in dropped}
    return {name: factor for name, factor in factors.items() if name not in dropped} | before


def _moved(steps: Sequence[WholeStep], factors: Mapping[str, float], base: StepBase | None) -> dict[str, float]:
    """How far each factor has gone from where it started, no further than the bounds of its ops let it."""
    before = (base or _NOTHING).factors
    return {name: _felt(steps, name, factor) / before.get(name, 1.0) for name, factor in factors.items()}


def _felt(steps: Sequence[WholeStep], name: str, factor: float) -> float:
    """The effective factor of a class: below some value its ops are at their bounds, and less changes nothing."""
    parts = [(step.parts[name], step.least.get(name, 0.0)) for step in steps if step.parts.get(name)]
    return max(factor, float(np.median([least / seconds for seconds, least in parts]))) if parts else factor


def _share(steps: Sequence[WholeStep], name: str) -> float:
    """The share of a class in the steps that have it, at the median."""
    shares = [step.parts[name] / sum(step.parts.values()) for step in steps if step.parts.get(name)]
    return float(np.median(shares)) if shares else 0.0


def _residual_name(step: WholeStep) -> str:
    """Mixtures of experts have larger errors than dense models, and say nothing about them."""
    mixed = any(name.partition(".")[0] == "experts" for name in step.parts)
    return f"step.{step.phase}.experts" if mixed else f"step.{step.phase}"


def _left(
    steps: Sequence[WholeStep],
    start: Mapping[str, float],
    base: StepBase | None,
    fit: tuple[Mapping[str, float], Mapping[str, float]],
    dropped: frozenset[str],
) -> tuple[str, ...]:
    """Phases whose fit makes no sense, or predicts models that it left out no better than what there was before.

    That is the base, than which a fit has to be clearly better; or else ops as they were measured alone.
    """
    left = _strayed(steps, _moved(steps, fit[0], base), fit[1].get("kernel", 0.0) / start.get("kernel", 1.0))
    now, then = defaultdict(list), defaultdict(list)
    for step, error, waits in leave_one_out(steps, start, base, dropped):
        if not waits:
            now[step.phase].append(error)
            then[step.phase].append(_error(step, (base or _NOTHING).factors, start))
    if base is None:
        worse = (phase for phase in now if _wide(now[phase]) > _WORSE * _wide(then[phase]))
        return tuple(dict.fromkeys((*left, *worse)))
    no_better = [
        phase
        for phase, errors in now.items()
        if not clearly_better(
            residual_spread(np.array(errors)),
            residual_spread(np.array(then[phase])),
            count=len(errors),
            count_before=base.steps,
            known=f"step.{phase}" in base.residuals,
        )
    ]
    return tuple(dict.fromkeys((*left, *no_better)))


def _wide(errors: Sequence[float]) -> float:
    return residual_spread(np.array(errors))


def _strayed(steps: Sequence[WholeStep], factors: Mapping[str, float], kernel: float) -> tuple[str, ...]:
    """Phases with a class whose factor is implausibly far from where it started.

    All phases, if a kernel takes that much longer inside a model than alone: then it is not kernels that take it.
    """
    phases = tuple(dict.fromkeys(step.phase for step in steps))
    if kernel > 1 and strays("kernel", {"kernel": kernel}):
        return phases
    return tuple(
        phase
        for phase in phases
        if any(strays(name, factors) for step in steps if step.phase == phase for name in step.parts)
    )


def strays(name: str, factors: Mapping[str, float]) -> bool:
    freedom = FREEDOM.get(name.partition(".")[0], 0.5)
    return abs(log(factors.get(name, 1.0))) > _STRAY * freedom

"""Starting from the calibration that a device had: what is measured now corrects it, as far as chance does not.

A short run measures few ops, and few of each class. So its points are held against the tables of the calibration before
it, the base. How much slower or faster a class is now than the base says is a shift of its whole table, and a shift
counts only beyond what the scatter of so few probes explains. A table of the new points alone takes its place where it
spans the base's range and predicts left-out probes clearly better. What was not measured stays as it was.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import exp, log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.measure.calibrate.fitting.fit import Fitted, KnownPoints, class_for, residual_spread
from inferometer.predict.price.utilisation import interpolate, residual_of
from inferometer.predict.work.classes import FUSED, PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.core.calibration import Calibration, Utilisation
    from inferometer.core.device import Device, Sourced
    from inferometer.measure.calibrate.fitting.points import OpPoint

# Bounds on factors: inside a whole model, no op comes nearer to its floor than the best op did alone.
#
# A factor below 1 means that ops run faster inside a model than alone. Small ops may, if launches overlap or weights
# stay in a cache. But none is assumed to come nearer to its floor than the best that was measured with as many rows:
# the factor is applied to a table of its own for the phase, and the shares in it are capped.

_PHASES = frozenset({"prefill", "decode", "forward"})


def bounded(calibration: Calibration) -> Calibration:
    """The calibration with its factors below 1 written into tables, `linear.decode` beside `linear`; those are then 1.

    Factors of classes without a table under their bare name stay as they are (attention has one for each path), and so
    do those of classes whose forms have tables, since they hold for all of these.
    """
    tables, factors, residuals = list(calibration.tables), dict(calibration.factors), dict(calibration.residuals)
    for name, factor in calibration.factors.items():
        base = calibration.table(name.partition(".")[0])
        if factor >= 1 or base is None or base.op_class == name or calibration.table(name) is not None:
            continue
        if name.endswith(".forward") and any(
            table.op_class.startswith(f"{base.op_class}.")
            and table.op_class not in {FUSED, PLAIN}
            and not _made(calibration, table.op_class)
            for table in calibration.tables
        ):
            continue
        shares = np.minimum(_best(base), _shares(base) / factor)
        tables.append(_with(base, name, shares))
        factors[name] = 1.0
        residuals[name] = residuals.get(base.op_class, base.residual)
    return replace(calibration, tables=tuple(tables), factors=factors, residuals=residuals)


def factors_of(calibration: Calibration) -> dict[str, float]:
    """The fitted factors; a factor that `bounded` moved into a table is read back from the table."""
    factors = dict(calibration.factors)
    for name in factors:
        table, base = calibration.table(name), calibration.table(name.partition(".")[0])
        if table is not None and base is not None and _made(calibration, name):
            # shares at their bound rose by less than the others, which rose by the factor
            factors[name] *= float((_shares(base) / _shares(table)).min())
    return factors


def unbounded(calibration: Calibration) -> Calibration:
    """The calibration with only the tables of ops measured alone, and no factors: whole steps are fitted from it."""
    timed_alone = tuple(table for table in calibration.tables if not _made(calibration, table.op_class))
    return replace(calibration, tables=timed_alone, factors={})


def at_best(calibration: Calibration) -> Calibration:
    """Every table at the bound that `bounded` enforces: the least that ops can take inside a model."""
    alone = unbounded(calibration)
    return replace(alone, tables=tuple(_with(table, table.op_class, _best(table)) for table in alone.tables))


def _made(calibration: Calibration, name: str) -> bool:
    """Whether a table was made from another for one phase. Fused ops and forms are measured by themselves."""
    base, _, phase = name.partition(".")
    return phase in _PHASES and calibration.table(base) is not None


def _shares(table: Utilisation) -> Any:
    return np.array(table.values).reshape([len(points) for points in table.grid])


def _best(table: Utilisation) -> Any:
    """The best share of all; for products, the best with as many rows (few are bound by memory, many by compute)."""
    shares = _shares(table)
    if shares.ndim > 1 and table.axes[0] == "rows":
        return np.broadcast_to(shares.max(axis=tuple(range(1, shares.ndim)), keepdims=True), shares.shape)
    return np.full(shares.shape, shares.max())


def _with(table: Utilisation, name: str, shares: Any) -> Utilisation:
    return replace(table, op_class=name, values=tuple(float(share) for share in shares.ravel()))


def least_seconds(parts: Mapping[str, float], factors: Mapping[str, float], least: Mapping[str, float]) -> float:
    """Seconds of a step's parts with their factors, none below its least."""
    return sum(max(factors.get(name, 1.0) * seconds, least.get(name, 0.0)) for name, seconds in parts.items())


_CHANCE = 2.0  # standard errors: a shift that is smaller may be chance
_ALIKE = 0.25  # of the variance of a class is shared by all its points: a kind of kernel is off alike at every size
_PROBES = 6  # that the base's own residual counts for, beside the scatter of the new ones
_HALF = 0.5  # of the base's error on what was left out: a fit of few new measurements is better below that
_NEARLY = 2.0  # times: a range that ends so near to another's end still spans it
READING_SPREAD = 0.4  # what a host takes to start a kernel differs by as much from one run to the next


def beyond_chance(shift: float, error: float) -> float:
    """A shift, less what chance explains: none of it below two standard errors, nearly all of it far above.

    It is the positive part of James and Stein's estimate, with the standard error doubled.
    """
    doubt = (_CHANCE * error) ** 2
    return shift * (1 - doubt / shift**2) if shift**2 > doubt else 0.0


def clearly_better(now: float, before: float, *, count: float, count_before: float, known: bool = True) -> bool:
    """Whether a fit's residual is so much smaller than the base's on the same measurements that it takes its place.

    The more measurements a fit rests on beside the base's, the less better it has to be. Half is enough, unless the
    base had measured and found nothing that fits.
    """
    return now < max(_HALF if known else 0.0, count / (count + count_before)) * before


def pooled(before: float, count_before: float, now: float, count: float) -> float:
    """The residual of errors of two runs together, by their numbers."""
    return sqrt((count_before * before**2 + count * now**2) / (count_before + count))


@frozen
class BaseClass:
    """A class of op on its base. `shift` is the logarithm of how much slower it is now than the base says.

    It was `measured` if there are points of it now, though perhaps too few for a table of their own.
    Where the table is `new`, `carried` is the logarithm of what the factors of its whole steps are multiplied by: they
    were fitted to the base's table, and another in its place must not change what they say together.
    """

    fitted: Fitted
    shift: float = 0.0
    carried: float = 0.0
    new: bool = False
    measured: bool = True


def on_base(
    base: Calibration, fitted: Sequence[Fitted], points: Sequence[OpPoint], *, kernel_s: float
) -> tuple[BaseClass, ...]:
    """Every class that the base knows or that was measured. `fitted` are the tables of the points alone.

    A point counts for its class, and for the narrowest form that the base has a table of, which prices such ops.
    """
    own = {fit.table.op_class: fit for fit in fitted}
    kept = unbounded(base)
    groups: dict[str, list[OpPoint]] = defaultdict(list)
    for point in points:
        if point.floor_s > 0:
            wide = class_for(point.classes)
            for name in {wide, next((name for name in point.classes if kept.table(name) is not None), wide)}:
                groups[name].append(point)
    classes = [BaseClass(fitted=fit, new=True) for name, fit in own.items() if kept.table(name) is None]
    for table in kept.tables:
        before, ours = _before(kept, table), groups.get(table.op_class)
        still = BaseClass(fitted=before, measured=False)
        classes.append(_moved(before, own.get(table.op_class), ours, kernel_s) if ours else still)
    return tuple(sorted(classes, key=lambda entry: entry.fitted.table.op_class))


def _before(base: Calibration, table: Utilisation) -> Fitted:
    """A table of the base. How many of its points were of which class is not recorded: all have the same share."""
    return Fitted(
        table=table,
        residual=residual_of(base, table),
        bias=0.0,
        points=max(1, base.points // len(base.tables)),
        probes=0,
        valid={axis: (min(ends), max(ends)) for axis, ends in base.valid.get(table.op_class, {}).items()},
    )


def _moved(before: Fitted, own: Fitted | None, points: Sequence[OpPoint], kernel_s: float) -> BaseClass:
    """The table before, shifted, or that of the points alone. A form of few points has none."""
    known = KnownPoints(points=points, kernel_s=kernel_s)
    shares = np.log(np.array([interpolate(before.table, point.axes) for point in points]))
    slower = shares - known.shares
    shift = _shift(slower, known, before.residual)
    # For every point, the shift that the other probes give.
    shifts = np.zeros(len(slower))
    for probe in set(known.probes):
        rest = known.probes != probe
        shifts[~rest] = _shift(slower[rest], known.only(rest), before.residual)
    left_out = residual_spread(known.errors(shares - shifts, slice(None)))
    count, valid = len(points), before.valid if own is None else _union(before, own)
    better = own is not None and clearly_better(own.residual, left_out, count=count, count_before=before.points)
    if own is not None and better and _spans(own, before):
        mine = np.log(np.array([interpolate(own.table, point.axes) for point in points]))
        carried = float(np.average(mine - (shares - shift), weights=known.weights))
        return BaseClass(fitted=own, shift=shift, carried=carried, new=True)
    residual = pooled(before.residual, before.points, left_out, count)
    # A share above 1 would beat the floor, and at 0 nothing would ever end: an op that moved that far keeps a
    # billionth.
    values = tuple(float(value) for value in np.clip(np.array(before.table.values) * exp(-shift), 1e-9, 1.0))
    table = replace(before.table, values=values, residual=residual)
    return BaseClass(fitted=replace(before, table=table, residual=residual, valid=valid), shift=shift)


def _shift(slower: Any, known: KnownPoints, residual: float) -> float:
    """The mean over probes, whose points err together, beyond what their scatter or the base's residual explains."""
    probes = sorted(set(known.probes))
    if not probes:
        return 0.0
    of_probe = [known.probes == probe for probe in probes]
    means = np.array([np.average(slower[mine], weights=known.weights[mine]) for mine in of_probe])
    weights = np.array([known.weights[mine].mean() for mine in of_probe])
    weights = weights / weights.sum()
    shift = float(weights @ means)
    scatter = len(probes) * float(weights @ (means - shift) ** 2)
    variance = (_PROBES * residual**2 + scatter) / (_PROBES + len(probes) - 1)
    return beyond_chance(shift, sqrt(variance * (_ALIKE + (1 - _ALIKE) * float(weights @ weights))))


def _spans(own: Fitted, before: Fitted) -> bool:
    """Whether the new points reach as far as the base's on every axis of its table."""
    return all(
        axis in own.valid and own.valid[axis][0] <= _NEARLY * grid[0] and own.valid[axis][1] >= grid[-1] / _NEARLY
        for axis, grid in zip(before.table.axes, before.table.grid, strict=True)
    )


def _union(before: Fitted, own: Fitted) -> dict[str, tuple[float, float]]:
    ends = {axis: (*before.valid.get(axis, ()), *own.valid.get(axis, ())) for axis in (*before.valid, *own.valid)}
    return {axis: (min(values), max(values)) for axis, values in sorted(ends.items())}


def base_factors(base: Calibration, classes: Sequence[BaseClass]) -> dict[str, float]:
    """The base's factors of whole steps, for the tables that stand now."""
    carried = {entry.fitted.table.op_class: entry.carried for entry in classes}
    return {
        name: factor * exp(carried.get(name, carried.get(name.partition(".")[0], 0.0)))
        for name, factor in factors_of(base).items()
    }


def steps_of_phase(base: Calibration) -> float:
    """How many of the base's whole steps were of one phase. It is not recorded of which: all have the same share."""
    phases = [name for name in base.residuals if name == "host" or name.startswith("step")]
    return max(1.0, base.steps / max(1, len(phases)))


def base_overheads(
    base: Calibration, readings: Mapping[str, Sequence[float]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Overheads as they are alone and inside whole steps, moved by readings as far as chance does not explain."""
    seconds = {name: value.value for name, value in base.overheads.items()}
    inside = {name: value for name, value in seconds.items() if not name.startswith("alone.")}
    alone = {name: seconds.get(f"alone.{name}", value) for name, value in inside.items()}
    for name, taken in readings.items():
        reading = float(np.median(taken))
        if name not in alone:
            alone[name] = inside[name] = reading
            continue
        moved = exp(beyond_chance(log(reading / alone[name]), READING_SPREAD / sqrt(len(taken))))
        alone[name], inside[name] = moved * alone[name], moved * inside[name]
    return alone, inside


def base_note(base: Calibration, classes: Sequence[BaseClass]) -> str:
    """A note about the parts that come from the base, and the ones that changed."""
    names = {entry.fitted.table.op_class: entry for entry in classes}
    # A shift that is 0 % as it would be written is none to tell of.
    changed = [_change(name, entry) for name, entry in names.items() if entry.new or round(100 * abs(entry.shift)) > 0]
    kept = [name for name, entry in names.items() if not entry.measured]
    note = f"Started from the calibration of {base.created[:10]} ({base.points} ops, {base.steps} whole steps). "
    note += f"Changed since: {', '.join(changed)}." if changed else "What was measured since agrees with it."
    return note + (f" Not measured again: {', '.join(kept)}." if kept else "")


def _change(name: str, entry: BaseClass) -> str:
    if entry.new:
        return f"{name} (fitted anew)"
    return f"{name} ({exp(abs(entry.shift)) - 1:.0%} {'slower' if entry.shift > 0 else 'faster'})"


def shared_rates(base: Calibration, device: Device) -> tuple[Sourced, Sourced] | None:
    """The peak and the bandwidth that the base's shares are of, if its device's row states none; None if unknown."""
    level = device.memories[0].level if device.memories else "dram"
    peak, bandwidth = base.peaks.get("f32"), base.bandwidths.get(level)
    return None if peak is None or bandwidth is None else (peak, bandwidth)


def with_peaks_of(device: Device, base: Calibration) -> Calibration | None:
    """The base with shares of another device's peaks, which are its own raised alike: it predicts the same.

    None if its peaks are not known.
    """
    rates = shared_rates(base, device)
    if rates is None:
        return None
    return with_higher_peaks(base, device, device.peaks["f32"].value / rates[0].value)


def with_higher_peaks(calibration: Calibration, device: Device, times: float) -> Calibration:
    """The calibration with its peaks multiplied and its shares divided by one factor: it predicts the same."""
    level = device.memories[0].level
    bandwidth = calibration.bandwidths[level]
    return replace(
        calibration,
        tables=tuple(replace(table, values=tuple(v / times for v in table.values)) for table in calibration.tables),
        peaks={name: replace(rate, value=times * rate.value) for name, rate in calibration.peaks.items()},
        bandwidths={**calibration.bandwidths, level: replace(bandwidth, value=times * bandwidth.value)},
    )


def with_best_share(calibration: Calibration, device: Device) -> Calibration:
    """The calibration with the peaks that its best ops reach, where the stated peaks are a guess above them."""
    best = max(max(table.values) for table in calibration.tables)
    return with_higher_peaks(calibration, device, best)

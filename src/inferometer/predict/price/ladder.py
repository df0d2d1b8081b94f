"""The sources of an op's time, as a ladder: the first rung that covers a row of a graph answers for it.

`LADDER` is the order, from what was timed nearest to the row down to the peaks alone, and each class says what it
covers. A rung answers with `RowRates`: the share of each peak that the row reaches, seconds beside it, and how far it
may be off. Two factors are applied afterwards, whichever rung answered. The *factor of whole steps* is the time of a
class of op inside whole models over its time alone (`RowRates.in_whole_steps`, here). The *model effect* is the time of
one model over the time of its work (`Plan.pace`). An op of a profile names its rung: `inferometer predict … --why`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import log, sqrt
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from inferometer.core.binding import Binding
from inferometer.core.calibration import Calibration, FormRates, KernelRates, Utilisation
from inferometer.core.device import DeviceShares, Origin, is_local
from inferometer.core.frozen import frozen
from inferometer.core.statistics import EIGHT_IN_TEN, NINE_IN_TEN
from inferometer.known.engines import known_engine
from inferometer.predict.price.deviations import (
    UNKNOWN_SPREAD,
    FittedPrior,
    Standing,
    fitted_prior,
    is_fitted_for,
    known_deviations,
    known_unit,
    prior_from,
    spread_of,
)
from inferometer.predict.price.kernels import Curve, KernelCurve, Tables, kernel_curve, kernel_tables
from inferometer.predict.price.priors import prior_for
from inferometer.predict.price.utilisation import residual_of, step_residual, tables_for
from inferometer.predict.work.classes import FREE, MATRIX, fitted_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.predict.work.collect import OpRow

# A factor that nine in ten such ops lie within, as in `priors.toml`: the spreads there go from 1.5 to 3.5, and what
# nobody has even a prior of is as much in doubt as the vaguest of those.
DATASHEET_SPREAD = 3.0
ENOUGH_STEPS = 10  # published of a device with an engine, before what they are off by among themselves is believed
UNPRICED = FREE | {"collective"}  # nothing moves, or it moves over links: no share of a peak is in their price
UNMEASURED = "prior"  # the group of rows that nothing here was measured of: they err together


class RowRates(NamedTuple):
    """What a rung says of one row. By default it runs at the peaks, takes no time beside, and is not in doubt.

    A ramp is the time in which a stream gets to its share and drains; it is paid `…_ramps` times. `launches` are the
    kernels that the host starts, `kernels` those of them whose own seconds are in no ramp. `spread` is the standard
    deviation of the logarithm of the time, and rows of one `group` err together.
    """

    compute_share: float = 1.0
    compute_ramp_s: float = 0.0
    compute_ramps: int = 0
    memory_share: float = 1.0
    memory_ramp_s: float = 0.0
    memory_ramps: int = 0
    spread: float = 0.0
    launches: int = 0
    kernels: int = 0
    fitted: bool = False  # from whole steps, so the model effect applies
    in_steps: bool = False  # the error of whole steps includes its own doubt
    unpacks: bool = True  # weights are unpacked beside its products: that is not in its compute share
    group: str = UNMEASURED
    tables: tuple[Utilisation, ...] = ()  # the shares are read from them at each size
    curve: Curve | None = None  # its seconds are read from it at each size
    held: bool = False  # what was fitted elsewhere does not hold here: see `deviations`

    def in_whole_steps(self, factor: float) -> RowRates:
        """The same inside whole models, where an op takes `factor` times what it takes alone."""
        return self._replace(
            compute_share=self.compute_share / factor,
            compute_ramp_s=factor * self.compute_ramp_s,
            memory_share=self.memory_share / factor,
            memory_ramp_s=factor * self.memory_ramp_s,
        )


NUMBERS = RowRates._fields[: RowRates._fields.index("group")]  # the columns that a whole step is priced with at once


class AskedRow(NamedTuple):
    """A row as rungs look at it."""

    row: OpRow
    classes: tuple[str, ...]  # the names that its class may have in tables, the most specific first
    path: str | None  # how it attends
    factor: float | None  # of whole steps
    launches: int


@frozen
class RungSources:
    """Everything that a rung may be made of."""

    standing: Standing
    phase: str
    binding: Binding
    calibration: Calibration | None = None
    stated: DeviceShares | None = None  # None where they are of links and storage alone


class Rung:
    """One source of rates. `name` is what an op of a profile calls it.

    Rows that are `measured` keep their rates whatever the device's row states. If the rates belong to ops `alone`, the
    factor of whole steps is applied afterwards.
    """

    origin: Origin = "prior"
    measured: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    name: str

    @classmethod
    def of(cls, sources: RungSources, below: tuple[Rung, ...]) -> Rung | None:
        """The rung, with those below it; None where there is no such source."""
        raise NotImplementedError

    def rates(self, asked: AskedRow) -> RowRates | None:
        """The row's rates; None if the source does not cover it."""
        raise NotImplementedError

    def name_of(self, rates: RowRates) -> str:  # noqa: ARG002 - of one answer, where answers differ
        return self.name


class NoWork(Rung):
    """Views, and ops whose work cannot be counted: they have no price."""

    origin: Origin = "datasheet"
    measured = True
    name = "no work to price"

    @classmethod
    def of(cls, sources: RungSources, below: tuple[Rung, ...]) -> Rung:  # noqa: ARG003 - it is always there
        return cls()

    def rates(self, asked: AskedRow) -> RowRates | None:
        return RowRates() if asked.row.op_class in FREE else None


class MeasuredKernel(Rung):
    """The engine's own kernel, timed on the device: first, because nothing is nearer to what a row will run.

    It was launched while it was timed, so a row has no launches besides. Products, attention, experts and messages.
    """

    measured = True
    origin: Origin = "calibrated"
    rates_kind: ClassVar[type] = KernelRates
    title: ClassVar[str] = "measured kernel"

    def __init__(self, calibration: Calibration, sources: RungSources) -> None:
        self._tables: Tables = kernel_tables(calibration)
        self._phase, self._binding = sources.phase, sources.binding
        engine = known_engine(calibration.runtime)
        serving = None if engine is None else engine.serving
        self._byte_experts = "" if serving is None else serving.byte_experts
        # The time of attention beside its kernel is a cost of the engine's step: the factor of kernels does not apply.
        added, factor = calibration.overheads.get("context"), calibration.factors.get("kernels.decode", 1.0)
        self._cached_s = 0.0 if added is None or self._phase != "decode" else added.value / factor
        version = calibration.versions.get(calibration.runtime)
        of_engine = " ".join(filter(None, (calibration.runtime if engine is None else engine.title, version)))
        self.name = f"{self.title} of {of_engine} on {calibration.device}"

    @classmethod
    def of(cls, sources: RungSources, below: tuple[Rung, ...]) -> Rung | None:  # noqa: ARG003 - as above
        calibration = sources.calibration
        if calibration is None or not isinstance(calibration.rates, cls.rates_kind):
            return None
        return cls(calibration, sources)

    def rates(self, asked: AskedRow) -> RowRates | None:
        curve = kernel_curve(asked.row, self._phase, self._tables, self._binding, byte_experts=self._byte_experts)
        if curve is None:
            return None
        if self._cached_s and asked.row.op.kind == "attention":
            curve = replace(curve, cached_s=self._cached_s)
        return RowRates(spread=curve.residual, group=curve.family, curve=curve)

    def name_of(self, rates: RowRates) -> str:
        """A kernel of another shape or format stands in where the row's own was not timed."""
        is_own = not isinstance(rates.curve, KernelCurve) or rates.curve.exact
        return self.name if is_own else f"nearest {self.name}"


class FormOfKernels(MeasuredKernel):
    """The form of such kernels in five numbers: used without the table of single kernels, never beside it."""

    origin: Origin = "prior"
    rates_kind = FormRates
    title = "kernel form"


class CalibrationTable(Rung):
    """Ops of the row's class, timed by themselves on the device: not the row's very kernel, but this machine."""

    measured = True
    origin: Origin = "calibrated"

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._found: dict[tuple[tuple[str, ...], int], RowRates | None] = {}  # most rows are like another
        where = "here" if is_local(calibration.device) else f"on {calibration.device}"
        self.name = f"calibrated {where} on {calibration.created[:10]}"

    @classmethod
    def of(cls, sources: RungSources, below: tuple[Rung, ...]) -> Rung | None:  # noqa: ARG003 - as above
        calibration = sources.calibration
        return None if calibration is None or not calibration.tables else cls(calibration)

    def rates(self, asked: AskedRow) -> RowRates | None:
        key = (asked.classes, asked.launches)
        if key not in self._found:
            self._found[key] = self._of_class(*key)
        return self._found[key]

    def _of_class(self, classes: tuple[str, ...], launches: int) -> RowRates | None:
        """The table's own shares, and the factor of whole steps with them, are read at each size: `rates.Covered`."""
        tables = tables_for(self._calibration, classes)
        if not tables:
            return None
        spread = max(residual_of(self._calibration, table) for table in tables)
        return RowRates(spread=spread, launches=launches, kernels=launches, group=tables[0].op_class, tables=tables)


class StatedShare(Rung):
    """The utilisation that the device's row states: its owner knows more than any guess below, and less than a timing.

    A stream without a stated share is answered by the rungs below, and so is the spread. It holds for whole models, so
    no factor is applied to it.
    """

    name = "stated in the device's row"

    def __init__(self, stated: DeviceShares, below: tuple[Rung, ...]) -> None:
        self._below = below
        self._shares: dict[str, float] = {}
        for stream, share in (("compute", stated.compute), ("memory", stated.memory)):
            if share is not None:
                self._shares |= {f"{stream}_share": float(share), f"{stream}_ramp_s": 0.0}
        if stated.compute is not None:
            self._shares["unpacks"] = False  # whole models unpack too
        first = stated.compute or stated.memory
        self.origin = "datasheet" if first is None else first.origin

    @classmethod
    def of(cls, sources: RungSources, below: tuple[Rung, ...]) -> Rung | None:
        return None if sources.stated is None else cls(sources.stated, below)

    def rates(self, asked: AskedRow) -> RowRates | None:
        if asked.row.op_class in UNPRICED:
            return None
        _, rates = climb(self._below, asked)
        return rates._replace(**self._shares)  # type: ignore[arg-type]


class PublishedTimes(Rung):
    """Whole models that others timed on this very device with this engine, fitted by `calibrate --from FILE`."""

    origin: Origin = "calibrated"
    alone = True

    def __init__(self, prior: FittedPrior, phase: str, name: str, *, in_steps: bool) -> None:
        self.prior, self.name = prior, name
        self._phase, self._in_steps = phase, in_steps
        self._found: dict[tuple[str, int], RowRates] = {}  # most rows are like another

    @classmethod
    def of(cls, sources: RungSources, below: tuple[Rung, ...]) -> Rung | None:  # noqa: ARG003 - as above
        calibration, phase = sources.calibration, sources.phase
        if calibration is None or not is_fitted_for(calibration.parameters, phase):
            return None
        spread = step_residual(calibration, phase) or 0.0
        prior = prior_from(calibration.parameters, sources.standing, phase, spread=spread, rows=calibration.steps)
        return cls(prior, phase, f"{prior.name}, fitted on {calibration.created[:10]}", in_steps=True)

    def rates(self, asked: AskedRow) -> RowRates | None:
        name = fitted_class(asked.row.op, self._phase)
        if name is None or name not in self.prior.classes:
            return None
        key = (name, asked.launches)
        if key not in self._found:
            self._found[key] = self._of_class(*key)
        return self._found[key]

    def _of_class(self, name: str, launches: int) -> RowRates:
        """The seconds of a kernel are in both ramps: they are spent whichever stream is the longer."""
        compute_share, memory_share, kernel_s = self.prior.classes[name]
        held = name in self.prior.held
        spread = max(self.prior.spread, UNKNOWN_SPREAD / EIGHT_IN_TEN) if held else self.prior.spread
        return RowRates(
            compute_share=compute_share, compute_ramp_s=kernel_s, compute_ramps=launches,
            memory_share=memory_share, memory_ramp_s=kernel_s, memory_ramps=launches,
            spread=spread, launches=launches, fitted=True, in_steps=self._in_steps,
            held=held,
        )  # fmt: skip

    def name_of(self, rates: RowRates) -> str:
        """The name says so if a class's sums were held: its devices are too far from this one."""
        return f"{self.name}, held to what most reach" if rates.held else self.name


class ShippedFit(PublishedTimes):
    """The fit over all published tables, of this device and similar ones, that comes with the package."""

    origin: Origin = "prior"

    @classmethod
    def of(cls, sources: RungSources, below: tuple[Rung, ...]) -> Rung | None:  # noqa: ARG003 - as above
        calibration, phase = sources.calibration, sources.phase
        if calibration is not None and is_fitted_for(calibration.parameters, phase):
            return None  # where the fit of the device alone began: it says nothing that the rung above does not
        prior = fitted_prior(sources.standing, phase)
        prior = None if prior is None else _of_few(prior, sources.standing, phase)
        # The one residual of a published calibration is that of whole steps, and holds for phases it has no fit of.
        in_steps = calibration is not None and calibration.is_published
        return None if prior is None else cls(prior, phase, prior.name, in_steps=in_steps)


def _of_few(prior: FittedPrior, standing: Standing, phase: str) -> FittedPrior:
    """The spread of a fit to fewer than ten published steps of a device: widened towards that of its kind.

    A mean of n steps is off by 1/√n of their spread itself, which is added, up to that of a device that was never seen;
    and as such it counts where those n had other formats.
    """
    tokens = phase in {"prefill", "decode"}
    steps = _published_steps(standing.device, standing.engine, tokens=tokens)
    if not 0 < steps < ENOUGH_STEPS:
        return prior
    of_kind = replace(known_unit(standing, tokens=tokens), device="", vendor="")

    def at_least(spread: float, model: str) -> float:
        seen, unseen = (spread_of(of_kind, phase, seen=each, known=model) for each in (True, False))
        half = max(seen, min(unseen, sqrt(1 + 1 / steps) * seen)) if prior.rows > 0 else unseen
        return max(spread, half / EIGHT_IN_TEN)

    unmeasured = {model: at_least(spread, model) for model, spread in prior.unmeasured.items()}
    return replace(prior, spread=at_least(prior.spread, "known"), unmeasured=unmeasured)


@cache
def _published_steps(device: str, engine: str, *, tokens: bool) -> int:
    """Of a device with an engine, in whatever formats."""
    level = known_deviations(tokens=tokens).levels.get(f"device+engine:{device}:{engine}")
    return 0 if level is None else level.rows


class ClassPrior(Rung):
    """A kind of op on a kind of unit: two numbers a stream in `priors.toml`, with a source each. A rule of thumb."""

    alone = True
    name = "class prior"

    def __init__(self, unit: str) -> None:
        self._unit = unit

    @classmethod
    def of(cls, sources: RungSources, below: tuple[Rung, ...]) -> Rung:  # noqa: ARG003 - as above
        return cls(sources.standing.unit)

    def rates(self, asked: AskedRow) -> RowRates | None:
        return _class_rates(self._unit, asked.classes, asked.launches, matrix=asked.row.op_class in MATRIX)


@cache
def _class_rates(unit: str, classes: tuple[str, ...], launches: int, *, matrix: bool) -> RowRates | None:
    """Arithmetic of a `matrix` gets up to speed once an op, however many kernels it is; memory once a kernel."""
    prior = prior_for(unit, classes)
    if prior is None:
        return None
    return RowRates(
        compute_share=float(prior.compute_share or 1.0),
        compute_ramp_s=float(prior.compute_ramp_s or 0.0),
        compute_ramps=min(1, launches) if matrix else 0,
        memory_share=float(prior.memory_share or 1.0),
        memory_ramp_s=float(prior.memory_ramp_s or 0.0),
        memory_ramps=launches,
        spread=log(float(prior.spread)) / NINE_IN_TEN,
        launches=launches,
        kernels=launches,
    )


class PeaksAlone(Rung):
    """The peaks alone, with a wide interval, for an op that nothing is known about. It covers every row."""

    origin: Origin = "datasheet"
    name = "the peaks alone"

    @classmethod
    def of(cls, sources: RungSources, below: tuple[Rung, ...]) -> Rung:  # noqa: ARG003 - as above
        return cls()

    def rates(self, asked: AskedRow) -> RowRates:
        launches = asked.launches
        return RowRates(spread=log(DATASHEET_SPREAD) / NINE_IN_TEN, launches=launches, kernels=launches)


LADDER: tuple[type[Rung], ...] = (
    NoWork,  # there is nothing to ask about
    MeasuredKernel,  # this engine's kernel on this device, timed
    FormOfKernels,  # … or the form that its kernels follow
    CalibrationTable,  # this class of op on this device, timed
    StatedShare,  # the share that the device's owner states: above everything learned elsewhere or from whole models
    PublishedTimes,  # whole models on this device with this engine, that others timed and the user gave
    ShippedFit,  # whole models on this device or its kin, that others timed and we gathered
    ClassPrior,  # this kind of op on this kind of unit, as a rule
    PeaksAlone,  # the floor of every op
)


def ladder_of(sources: RungSources) -> tuple[Rung, ...]:
    """The rungs that there are sources for, in the order of `LADDER`."""
    rungs: tuple[Rung, ...] = ()
    for kind in reversed(LADDER):
        rung = kind.of(sources, rungs)
        rungs = rungs if rung is None else (rung, *rungs)
    return rungs


def climb(rungs: Sequence[Rung], asked: AskedRow) -> tuple[Rung, RowRates]:
    """The first rung that covers a row, and the row's rates inside whole models."""
    for rung in rungs:
        rates = rung.rates(asked)
        if rates is not None:
            if rung.alone and asked.factor is not None:
                rates = rates.in_whole_steps(asked.factor)
            return rung, rates
    raise AssertionError(f"{PeaksAlone.__name__} covers every row.")  # pragma: no cover

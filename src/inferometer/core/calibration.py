"""Calibration: what a device reached when it was measured, and how far predictions from it may be off.

A time read from it is `kernel · launches + floor / u`: `u` from the table of the op's class, the floor being the work
over the peaks with all that the runtime does to it. What the launch of a kernel costs is therefore no part of a table.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from inferometer.core.device import Sourced
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen


@frozen
class Utilisation:
    """The share of peak one class of op reaches, over a grid of shapes.

    `axes` name the shape (rows, in_features …), `grid` holds the points of each axis, `values` the shares in row-major
    order, each in (0, 1]. `residual` is the leave-one-out error as a ratio: 0.08 is 8 % off at one standard deviation.
    """

    op_class: str
    stream: str  # the peak it is a share of: a dtype, a memory level, or `floor` for whichever binds
    axes: tuple[str, ...]
    grid: tuple[tuple[float, ...], ...]
    values: tuple[float, ...]
    residual: float

    def __post_init__(self) -> None:
        size = 1
        for points in self.grid:
            size *= len(points)
            if list(points) != sorted(set(points)):
                raise DomainError(f"The grid of {self.op_class} must rise strictly, and is {points}.")
        if len(self.axes) != len(self.grid) or size != len(self.values):
            raise DomainError(
                f"The table of {self.op_class} has {len(self.axes)} axes for {len(self.grid)} grids, "
                f"and {len(self.values)} values for {size} points."
            )
        if not all(0 < value <= 1 for value in self.values):
            raise DomainError(f"A utilisation of {self.op_class} is outside (0, 1].")


@frozen
class KernelShares:
    """The share of its floor that each measured kernel of one family reached: points, where `Utilisation` has a grid.

    `sizes` has one array an axis (rows, heads, bytes …), `texts` one array a name (the format of weights, of the
    cache), `shares` the shares in the same order, each in (0, 1]. The floors are those of
    `predict.price.kernel_floors`, so that the shares carry over to a device that has other peaks.
    """

    family: str  # gemm, attention.prefill, attention.decode, mla.prefill, mla.decode, experts, all_reduce …
    sizes: Mapping[str, Any]
    texts: Mapping[str, Any]
    shares: Any
    residual: float = 0.1

    def __len__(self) -> int:
        return len(self.shares)


@frozen
class KernelForm:
    """What kernels of one family and format take, in five numbers.

    Two are shares of peaks, `ramp_s` is what any launch takes and `each_s` what each of its pieces does, which
    `predict.price.kernel_floors` names. Of n devices that share experts the busiest has n to the power of `uneven`
    times its part. `residual` is what single kernels are off by, as a ratio at one standard deviation.
    """

    compute_share: float
    memory_share: float
    ramp_s: float
    each_s: float
    uneven: float
    residual: float

    def seconds(self, compute_s: Any, memory_s: Any, pieces: Any, sharing: Any) -> Any:
        """From the seconds of a kernel's operations and of its bytes at the peaks; where both are long, they add."""
        busiest = compute_s * (sharing**self.uneven / self.compute_share)
        moving = memory_s / self.memory_share
        seconds = (busiest * busiest + moving * moving) ** 0.5 + self.ramp_s
        return seconds + pieces * self.each_s if self.each_s else seconds


@frozen
class KernelForms:
    """A family by its forms, where `KernelShares` has each kernel: by format, or by the devices of a message."""

    family: str
    by_format: Mapping[str, KernelForm]


@frozen
class TableRates:
    """Ops timed by themselves on the device: a table a class. What a calibration without any rates has, too."""

    tables: tuple[Utilisation, ...]


@frozen
class KernelRates:
    """A serving engine's kernels, timed one by one: by family."""

    kernels: Mapping[str, KernelShares]


@frozen
class FormRates:
    """What a serving engine's kernels follow, where they are not at hand one by one: by family."""

    forms: Mapping[str, KernelForms]


@frozen
class PublishedRates:
    """A fit to whole-model times that others published: the sums of `predict.price.deviations`, as odds and seconds."""

    parameters: Mapping[str, float]


CalibratedRates = TableRates | KernelRates | FormRates | PublishedRates


@frozen
class Calibration:
    """What was learned of one (device, runtime, dtype): its rates, which are of one of four kinds, and what goes along.

    `dtype` is the format of the activations. Of `tables`, `kernels`, `forms` and `parameters` one is filled, as the
    document has it; code matches on `rates` and never looks which. `residuals` are by op class, as ratios at one
    standard deviation; under `step` and `step.PHASE` stands what whole steps are off by when their ops are summed.
    `factors`, by op class or class and phase (`linear.decode`), are what ops take inside whole models over what they
    take alone. `valid` holds, by op class and axis, the range that was measured. `peaks` and `bandwidths` are the best
    that any op reached, for devices whose own are not known. `points` says how many ops were measured, `steps` how many
    whole models' steps. `host_call_s` is what `doctor` reads as the speed of a host, of the one that it was made on.
    """

    device: str
    runtime: str
    dtype: str
    created: str
    unit: str | None = None
    threads: int | None = None
    tables: tuple[Utilisation, ...] = ()
    kernels: Mapping[str, KernelShares] = field(default_factory=dict)
    forms: Mapping[str, KernelForms] = field(default_factory=dict)
    overheads: Mapping[str, Sourced] = field(default_factory=dict)  # seconds: per op, per step, per launch …
    residuals: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    peaks: Mapping[str, Sourced] = field(default_factory=dict)  # operations per second, by arithmetic format
    bandwidths: Mapping[str, Sourced] = field(default_factory=dict)  # bytes per second, by memory level
    valid: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)  # least and greatest
    points: int = 0
    steps: int = 0
    fitted_on: tuple[str, ...] = ()  # the models whose whole steps were used
    parameters: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    host_call_s: float | None = None
    notes: tuple[str, ...] = ()
    content_hash: str | None = None

    def __post_init__(self) -> None:
        filled = [name for name in ("tables", "kernels", "forms", "parameters") if getattr(self, name)]
        if len(filled) > 1:
            raise DomainError(
                f"A calibration has rates of one kind, and that of {self.device} with {self.runtime} has "
                f"{' and '.join(filled)}.",
                remedy="Make one calibration of each.",
            )

    @property
    def rates(self) -> CalibratedRates:
        """What prices are read from: the one place that looks which field of the document is filled."""
        if self.kernels:
            return KernelRates(kernels=self.kernels)
        if self.forms:
            return FormRates(forms=self.forms)
        if self.parameters:
            return PublishedRates(parameters=self.parameters)
        return TableRates(tables=self.tables)

    @property
    def is_published(self) -> bool:
        """Whether no op was measured: what is known of models and units elsewhere is then below it."""
        rates = self.rates
        corrects = isinstance(rates, TableRates) and not rates.tables and not self.overheads  # factors and nothing else
        return corrects or isinstance(rates, PublishedRates)

    def table(self, op_class: str) -> Utilisation | None:
        return next((table for table in self.tables if table.op_class == op_class), None)

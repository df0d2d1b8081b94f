"""Calibration: what a device reached when it was measured, and how far a prediction from it may be off."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from inferometer.core.device import Sourced
from inferometer.errors import DomainError

__all__ = ["Calibration", "Utilisation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """The share of peak one class of op reaches, over a grid of shapes.

    `axes` name the shape (rows, in_features …), `grid` holds the points of each axis, `values` the shares in row-major
    order, each in (0, 1]. `residual` is the leave-one-out error as a ratio: 0.08 is 8 % off at one standard deviation.
    """

    op_class: str
    stream: str  # which peak it is a share of: a dtype for arithmetic, a memory level for bytes
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Utilisation tables and overheads of one (device, runtime, dtype)."""

    device: str
    runtime: str
    dtype: str
    created: str
    tables: tuple[Utilisation, ...] = ()
    overheads: Mapping[str, Sourced] = field(default_factory=dict)  # seconds: per op, per step, per launch …
    residuals: Mapping[str, float] = field(default_factory=dict)  # by op class, as ratios
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    content_hash: str | None = None

    def table(self, op_class: str) -> Utilisation | None:
        return next((table for table in self.tables if table.op_class == op_class), None)

"""Estimate: how long, within what interval, bounded by what, and based on which data."""

from typing import Literal

from inferometer.core.device import Origin
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen

Bound = Literal["compute", "memory", "link", "overhead", "storage"]


@frozen
class Estimate:
    """`floor_s` is the time at 100 % of every peak. No estimate beats it."""

    time_s: float
    low_s: float
    high_s: float
    floor_s: float
    bound: Bound
    origin: Origin
    rule: str
    level: str | None = None  # which memory level, where memory bounds
    energy_j: float | None = None

    def __post_init__(self) -> None:
        ordered = 0 <= self.floor_s <= self.low_s <= self.time_s <= self.high_s < float("inf")
        if not ordered:
            raise DomainError(
                f"An estimate needs floor ≤ low ≤ time ≤ high, and has "
                f"{self.floor_s!r}, {self.low_s!r}, {self.time_s!r}, {self.high_s!r}."
            )

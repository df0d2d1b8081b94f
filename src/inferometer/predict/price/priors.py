"""Class priors: the share of a peak that a kind of op reaches on a kind of unit, where nothing was measured there.

Rows of `priors.toml`; shares of power and speeds of storage stand beside it. A prior is two numbers for each stream:
the share of the peak that large ops reach, and a ramp, the time a kernel takes to get there and to drain. `seconds =
work / (peak · share) + ramp`, so the utilisation `work / (peak · seconds)` is small for small ops, nears the share for
large ones, and never passes 1.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.device import UNITS, Sourced
from inferometer.core.frozen import frozen
from inferometer.known.load import CatalogRow, read_rows
from inferometer.predict.work.classes import CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = Path(__file__).parent


@frozen
class Prior:
    """`spread` is a factor: of ten ops of the class about nine lie within time / spread and time · spread."""

    name: str
    unit: str
    op_class: str
    spread: Sourced
    compute_share: Sourced | None = None
    compute_ramp_s: Sourced | None = None
    memory_share: Sourced | None = None
    memory_ramp_s: Sourced | None = None
    link_share: Sourced | None = None
    notes: str | None = None


@frozen
class PowerPrior:
    """Shares of the power limit that a unit draws: idle, moving data, and computing for `full_share` of the time."""

    unit: str
    idle_share: Sourced
    moving_share: Sourced
    computing_share: Sourced
    full_share: Sourced
    spread: Sourced


@frozen
class StoragePrior:
    """The usual storage of a kind of machine, from which models are loaded if no storage is named."""

    kind: str
    title: str
    low_bytes_per_s: Sourced
    high_bytes_per_s: Sourced


@cache
def prior_for(unit: str, classes: tuple[str, ...]) -> Prior | None:
    """The first of the class names that the unit has a prior for."""
    rows = known_priors()
    # The names come from the most special to the plain class, so a row for a form is taken before that of its class.
    return next((rows[unit, name] for name in classes if (unit, name) in rows), None)


@cache
def known_priors() -> Mapping[tuple[str, str], Prior]:
    rows = (_prior(row) for row in read_rows([_HERE / "priors.toml"], "priors").by_name.values())
    return {(prior.unit, prior.op_class): prior for prior in rows}


@cache
def power_prior(unit: str) -> PowerPrior | None:
    row = read_rows([_HERE / "power.toml"], "power").by_name.get(unit)
    if row is None:
        return None
    row.allow("idle", "moving", "computing", "full", "spread")
    return PowerPrior(
        unit=unit,
        idle_share=_required(row, "idle"),
        moving_share=_required(row, "moving"),
        computing_share=_required(row, "computing"),
        full_share=_required(row, "full"),
        spread=_required(row, "spread", most=None),
    )


@cache
def storage_prior(kind: str | None) -> StoragePrior | None:
    for row in read_rows([_HERE / "storage.toml"], "storage").by_name.values():
        row.allow("title", "kinds", "low", "high")
        low, high = row.number("low", "B/s"), row.number("high", "B/s")
        if kind in row.names("kinds") and low is not None and high is not None:
            title = row.required_text("title")
            return StoragePrior(kind=row.name, title=title, low_bytes_per_s=low, high_bytes_per_s=high)
    return None


def _prior(row: CatalogRow) -> Prior:
    row.allow(
        "unit", "class", "compute_share", "compute_ramp", "memory_share", "memory_ramp", "link_share", "spread", "notes"
    )
    unit, op_class = row.required_text("unit"), row.required_text("class")
    if unit not in UNITS:
        raise row.place.at("unit").error(f"is {unit!r}.", remedy=f"Known units: {', '.join(UNITS)}.")
    # Behind the point stands a form of the class (`attention.decode`), of which there may be more than are listed.
    if op_class.partition(".")[0] not in CLASSES:
        raise row.place.at("class").error(f"is {op_class!r}.", remedy=f"Known: {', '.join(sorted(CLASSES))}.")
    return Prior(
        name=row.name,
        unit=unit,
        op_class=op_class,
        spread=_required(row, "spread", most=None),
        compute_share=_share(row, "compute_share"),
        compute_ramp_s=row.number("compute_ramp", "s"),
        memory_share=_share(row, "memory_share"),
        memory_ramp_s=row.number("memory_ramp", "s"),
        link_share=_share(row, "link_share"),
        notes=row.text("notes"),
    )


def _share(row: CatalogRow, key: str) -> Sourced | None:
    # Of a peak: above 1 an op would be quicker than its floor, and at 0 it would never end.
    share = row.number(key, "1", below=1.0)
    if share is not None and share.value <= 0:
        raise row.place.at(key).error("must be greater than 0.")
    return share


def _required(row: CatalogRow, key: str, *, most: float | None = 1.0) -> Sourced:
    number = row.number(key, "1", below=most)
    if number is None:
        raise row.place.error(f"{key} is missing.")
    # A spread divides the low end and multiplies the high one: below 1 they would change places.
    if most is None and number.value < 1:
        raise row.place.at(key).error("must be 1 or more.")
    return number

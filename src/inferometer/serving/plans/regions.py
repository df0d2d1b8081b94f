"""A plan for each region of a service, and their sum: demand, hours, prices and the way to its users are its own.

The way to a region's servers and back is a floor under what its users see: it is taken off the objectives on the first
token and on the whole answer, and added to the figures again.
"""

from __future__ import annotations

import tomllib
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError, FormatError, UnitError
from inferometer.core.frozen import frozen
from inferometer.core.traffic.lengths import read_text
from inferometer.core.units import format_quantity, parse_quantity
from inferometer.known import device as device_named
from inferometer.known import grid as grid_named
from inferometer.predict.flags import options_from
from inferometer.predict.sweep.engines import spread_over
from inferometer.serving.plans.asked import COLD_START_S, PlanAnswer, PlanSearch, ServingPlan, up_between
from inferometer.serving.plans.search import Configuration, all_configurations, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


# What a region may have of its own. Those of the second row are as the options of the same names.
_FIELDS = {
    "rate", "round_trip", "day", "on", "prices",
    "grid", "pue", "spot", "max_power", "discount", "availability", "interruptions", "cold_start",
}  # fmt: skip
_MOST_REGIONS = 64
_FROM_AFAR = frozenset({"ttft", "e2e"})  # what waits for the way; tokens after the first come at the servers' pace


@frozen
class Region:
    """`devices` are those to choose from there, and `prices` USD an hour of one; empty or None: as everywhere.

    `replica_up` is the share of time in which a replica is there, `grid` whose electricity it runs on.
    """

    name: str
    rate_per_s: float
    round_trip_s: float = 0.0
    day: tuple[float, ...] = ()
    devices: tuple[str, ...] = ()
    prices: tuple[tuple[str, float], ...] = ()
    grid: str | None = None
    pue: str | float | None = None
    spot: bool | None = None
    most_watts: float | None = None
    discount: float | None = None
    availability: float | None = None
    replica_up: float | None = None
    cold_start_s: float | None = None

    def asked(self, search: PlanSearch) -> PlanSearch:
        """The search of this region; an objective below the way to its servers cannot be met."""
        objectives = []
        for goal in search.objectives:
            left = goal.limit_s - (self.round_trip_s if goal.metric in _FROM_AFAR else 0.0)
            if left <= 0:
                way = f"{format_quantity(self.round_trip_s, 's')} to its servers and back"
                raise DomainError(
                    f"{goal} cannot be met in {self.name}: it is {way}.",
                    remedy="Put servers nearer to the users, or allow more.",
                )
            objectives.append(replace(goal, limit_s=left))
        own = ("most_watts", "discount", "availability", "replica_up")
        placed = {name: value for name in ("grid", "pue", "spot") if (value := getattr(self, name)) is not None}
        return replace(
            search, rate_per_s=self.rate_per_s, objectives=tuple(objectives), day=self.day or search.day,
            devices=self.devices or search.devices, prices=self.prices or search.prices,
            options=options_from(placed, search.options),
            autoscale=search.autoscale and replace(
                search.autoscale, cold_start_s=self.cold_start_s or search.autoscale.cold_start_s
            ),
            **{name: value for name in own if (value := getattr(self, name)) is not None},
        )  # fmt: skip


@frozen
class RegionPlan:
    region: Region
    answer: PlanAnswer | None
    why_not: str | None = None

    @property
    def plan(self) -> ServingPlan | None:
        """The best one, with the way to it in the first token."""
        if self.answer is None or not self.answer.plans:
            return None
        best, way = self.answer.plans[0], self.region.round_trip_s
        mean, high = (None if time is None else time + way for time in (best.ttft_s, best.ttft_p95_s))
        return replace(best, ttft_s=mean, ttft_p95_s=high)


@frozen
class RegionsAnswer:
    """The best plan of each region. Sums are None where a region has no plan, or one of them no price or power."""

    regions: tuple[RegionPlan, ...]

    def total(self, field: str) -> float | None:
        values = [None if each.plan is None else getattr(each.plan, field) for each in self.regions]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    @property
    def why_not(self) -> str | None:
        missing = [f"{each.region.name}: {each.why_not}" for each in self.regions if each.plan is None]
        return " ".join(missing) or None

    def document(self) -> dict[str, Any]:
        regions = [
            {
                **asdict(each.region),
                "plan": None if each.plan is None else each.plan.document(),
                "why_not": each.why_not,
                "candidates": 0 if each.answer is None else each.answer.candidates,
                "simulated": 0 if each.answer is None else each.answer.simulated,
            }
            for each in self.regions
        ]
        sums = ("count", "usd_per_hour", "usd_per_month", "watts", "co2e_g_per_hour")
        return {
            "schema": "inferometer.regions/1",
            "regions": regions,
            "total": {name: self.total(name) for name in sums},
            "why_not": self.why_not,
        }


def plan_regions(
    search: PlanSearch,
    regions: Sequence[Region],
    *,
    engine: str = "local",
    progress: Callable[[str], None] | None = None,
) -> RegionsAnswer:
    """What a replica can take is found once for all of them; how many there are is each region's own."""
    everywhere = {name for region in regions for name in region.devices or search.devices}
    anywhere = any(not (region.devices or search.devices) for region in regions)
    made = []
    with spread_over(engine) as spread:
        devices = () if anywhere else tuple(sorted(everywhere))
        found, refused = all_configurations(replace(search, devices=devices), spread)
        for region in regions:
            try:
                asked = region.asked(search)
                known = ([each for each in found if _is_there(asked, each)], refused)
                answer = plan_of(asked, spread, progress, known)
                made.append(RegionPlan(region=region, answer=answer, why_not=answer.why_not))
            except DomainError as error:
                made.append(RegionPlan(region=region, answer=None, why_not=error.message))
    return RegionsAnswer(regions=tuple(made))


def _is_there(search: PlanSearch, configuration: Configuration) -> bool:
    return not search.devices or configuration.way.device in {device_named(name).name for name in search.devices}


def read_regions(path: Path) -> tuple[Region, ...]:
    """A TOML table a region, as `[eu]`, `rate = 20`, `round_trip = "30ms"`, `grid = "de"`, `spot = true`."""
    remedy = 'Write a table a region: [eu], rate = 20, round_trip = "30ms", day = [0.2, 1].'
    try:
        tables = tomllib.loads(read_text(path))
        if not 1 <= len(tables) <= _MOST_REGIONS:
            raise FormatError(f"{path} has {len(tables)} regions; 1 to {_MOST_REGIONS} are taken.", remedy=remedy)
        return tuple(_region(name, table) for name, table in tables.items())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError, ValueError, KeyError, UnitError) as error:
        raise FormatError(f"{path} is no table of regions ({error}).", remedy=remedy) from None


def _region(name: str, table: Mapping[str, Any]) -> Region:
    if not isinstance(table, dict) or not table.keys() <= _FIELDS or "rate" not in table:
        known = ", ".join(sorted(_FIELDS))
        raise ValueError(f"{name} needs a rate, and has nothing but {known}")
    way_s = _quantity(table, "round_trip", "s") or 0.0
    up, cold_s = None, _quantity(table, "cold_start", "s")
    if "interruptions" in table:
        up = up_between(float(table["interruptions"]), cold_s or COLD_START_S)
    shares: dict[str, Any] = {name: float(table[name]) for name in ("discount", "availability") if name in table}
    grid = table.get("grid")
    if grid is not None:
        grid_named(str(grid))  # an unknown one is told before anything is searched
    if not isinstance(table.get("prices", {}), dict):
        raise TypeError(f"the prices of {name} are a table: prices = {{nvidia-l4 = 0.7}}")
    prices = {device_named(device).name: float(usd) for device, usd in dict(table.get("prices", {})).items()}
    if not 0 <= way_s < 60 or not all(0 <= usd < 1e6 for usd in prices.values()):
        raise ValueError(f"{name} has a way of a minute or more, or a price that nobody pays")
    devices = tuple(device_named(str(device)).name for device in _listed(table, "on"))
    day = tuple(float(share) for share in _listed(table, "day"))
    return Region(
        name=name, rate_per_s=float(table["rate"]), round_trip_s=way_s, day=day, devices=devices,
        prices=tuple(prices.items()), pue=table.get("pue"), spot=table.get("spot"),
        most_watts=_quantity(table, "max_power", "W"), replica_up=up, cold_start_s=cold_s, grid=grid,
        **shares,
    )  # fmt: skip


def _listed(table: Mapping[str, Any], name: str) -> list[Any]:
    """A list, or one line as the command's options have it: `on = "nvidia-l4,nvidia-l40s"`."""
    value = table.get(name, [])
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)


def _quantity(table: Mapping[str, Any], name: str, unit: str) -> float | None:
    value = table.get(name)
    return parse_quantity(value, unit) if isinstance(value, str) else None if value is None else float(value)

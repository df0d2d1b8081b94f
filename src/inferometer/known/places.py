"""Where a model runs: cloud instances with prices, electricity grids with their carbon, data centres' overhead."""

from collections.abc import Mapping

from inferometer.core.device import Sourced
from inferometer.core.frozen import frozen
from inferometer.known.files import all_of, of_catalog, one_named, rows_with
from inferometer.known.load import CatalogRow


@frozen
class Instance:
    name: str
    title: str
    provider: str
    device: str
    count: int
    region: str | None = None
    vcpus: int | None = None
    memory_bytes: Sourced | None = None
    network_bytes_per_s: Sourced | None = None
    usd_per_hour: Sourced | None = None
    spot_usd_per_hour: Sourced | None = None
    notes: str | None = None


@frozen
class Grid:
    name: str
    title: str
    carbon_g_per_kwh: Sourced


@frozen
class Pue:
    """Power usage effectiveness: what the site draws over what its computers draw."""

    name: str
    title: str
    pue: Sourced


def instances() -> Mapping[str, Instance]:
    return all_of("instances", _instance)


def instance(name: str) -> Instance:
    return one_named("instances", name, _instance, what="instance")


@of_catalog
def instances_with(device: str) -> tuple[Instance, ...]:
    """The instances that have a device, by its name in the catalog."""
    rows = rows_with("instances", device).by_name.values()
    return tuple(_instance(row) for row in rows if row.text("device") == device)


def grids() -> Mapping[str, Grid]:
    return all_of("grids", _grid)


def grid(name: str) -> Grid:
    return one_named("grids", name, _grid, what="electricity grid")


def pues() -> Mapping[str, Pue]:
    return all_of("pue", _pue)


def pue(name: str) -> Pue:
    return one_named("pue", name, _pue, what="PUE row")


def _instance(row: CatalogRow) -> Instance:
    price = row.inner("price")
    price.allow("on_demand", "spot")
    count = row.whole("count")
    if not count:
        raise row.place.at("count").error("must be a whole number of 1 or more.")
    return row.value(
        Instance, "count", "price", "aliases",
        count=count,
        usd_per_hour=price.number("on_demand", "USD/h"),
        spot_usd_per_hour=price.number("spot", "USD/h"),
    )  # fmt: skip


def _grid(row: CatalogRow) -> Grid:
    return row.value(Grid, "aliases")


def _pue(row: CatalogRow) -> Pue:
    stated = row.number("pue", "1")
    if stated is None or stated.value < 1:
        raise row.place.at("pue").error("must be a number of 1 or more.")
    return row.value(Pue, "pue", "aliases", pue=stated)

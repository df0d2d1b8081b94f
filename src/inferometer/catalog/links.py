"""Link rows → `Link`."""

from collections.abc import Mapping

from inferometer.catalog.files import rows_of
from inferometer.catalog.load import Row
from inferometer.core.device import Link
from inferometer.errors import UnknownNameError

__all__ = ["link", "link_named", "links"]


def links() -> Mapping[str, Link]:
    return {name: _link(row) for name, row in rows_of("links").by_name.items()}


def link_named(name: str) -> Link | None:
    rows = rows_of("links")
    canonical = rows.canonical(name)
    return None if canonical is None else _link(rows.by_name[canonical])


def link(name: str) -> Link:
    found = link_named(name)
    if found is None:
        rows = rows_of("links")
        raise UnknownNameError("link", name, (*rows.by_name, *rows.aliases))
    return found


def _link(row: Row) -> Link:
    row.allow("title", "kind", "topology", "bandwidth", "latency", "direction", "aliases", "year")
    if row.text("direction") not in {None, "per-direction"}:
        raise row.place.at("direction").error("must be 'per-direction': a link's bandwidth is stored one way.")
    return Link(
        name=row.name,
        title=row.required_text("title"),
        kind=row.required_text("kind"),
        topology=row.text("topology"),
        bandwidth_bytes_per_s=row.number("bandwidth", "B/s"),
        latency_s=row.number("latency", "s"),
    )

"""How much of a memory's label a program sees, by rule, where no driver's figure is known for the device itself."""

from functools import cache

from inferometer.core.device import Sourced
from inferometer.core.frozen import frozen
from inferometer.known.files import rows_of
from inferometer.known.load import CatalogRow


@frozen
class UsableRule:
    """Devices of a vendor whose main memory has this level show so large a share of it, less what a system keeps.

    A vendor or a level of `*` is any.
    """

    name: str
    title: str
    vendor: str
    unit: str
    level: str
    share: Sourced
    kept: Sourced | None = None  # bytes
    kinds: tuple[str, ...] = ()  # kinds of devices; empty means all
    above_bytes: float = 0.0  # only for memories larger than this

    def holds(self, row: CatalogRow, level: str, capacity: float) -> bool:
        stated = ((row.text("vendor"), self.vendor), (row.text("unit"), self.unit), (level, self.level))
        kind_fits = not self.kinds or row.text("kind") in self.kinds
        return all(asked in {"*", found} for found, asked in stated) and kind_fits and capacity > self.above_bytes


def usable_by_rule(row: CatalogRow, level: str, capacity: Sourced | None) -> Sourced | None:
    """What the first rule for such a device leaves; None where no rule holds."""
    if capacity is None:
        return None
    rule = next((rule for rule in usable_rules() if rule.holds(row, level, capacity.value)), None)
    if rule is None:
        return None
    share, kept = rule.share, 0.0 if rule.kept is None else rule.kept.value
    less = f" less {kept:.3g} B" if kept else ""
    note = f"by rule: {share.value:.4g} of the label{less} ({rule.title})"
    value = capacity.value * share.value - kept
    return Sourced(value=value, origin=share.origin, source=share.source, date=share.date, note=note)


@cache
def usable_rules() -> tuple[UsableRule, ...]:
    return tuple(_rule(row) for row in rows_of("usable").by_name.values())


def _rule(row: CatalogRow) -> UsableRule:
    row.allow("title", "vendor", "unit", "level", "kinds", "above", "share", "kept")
    share, kept, above = row.number("share", "1", below=1), row.number("kept", "B"), row.number("above", "B")
    if share is None:
        raise row.place.error("share is missing.")
    return UsableRule(
        name=row.name,
        title=row.required_text("title"),
        vendor=row.required_text("vendor"),
        unit=row.required_text("unit"),
        level=row.required_text("level"),
        share=share,
        kept=kept,
        kinds=row.names("kinds"),
        above_bytes=0.0 if above is None else above.value,
    )

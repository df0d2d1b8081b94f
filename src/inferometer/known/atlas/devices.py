"""The device of a row: a catalog's, or one that the published name describes."""

from typing import cast

from inferometer.core.device import UNITS, Device, Unit
from inferometer.known.names import match_device


def device_meant(spelling: str, unit: str | None) -> str | Device | None:
    """What the first of several names means that is known: a row's name, or a device made from the name.

    No row of the catalog is CPU and GPU together: for such a unit only a device that was made from the name will do.
    """
    alone = unit is None or unit in UNITS
    matches = (match_device(name, cast("Unit | None", unit if alone else None)) for name in spelling.split("|"))
    meant = (match.device for match in matches if match is not None)
    return next((device for device in meant if alone or isinstance(device, Device)), None)


def catalog_device(spelling: str, unit: str | None) -> str | None:
    """As `device_meant`, where it is a row of the catalog."""
    meant = device_meant(spelling, unit)
    return meant if isinstance(meant, str) else None

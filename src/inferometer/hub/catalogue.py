"""Names from a request, found in the catalog alone: never a path, which would read this machine's files for a guest."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from inferometer.errors import UnknownNameError

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.profile import Profile

__all__ = ["device_named", "device_of", "model_named", "roofed"]

_LOCAL = "local"


def device_named(name: str) -> Device:
    from inferometer.catalog import device  # noqa: PLC0415 - pages of runs do without the catalog
    from inferometer.catalog.files import row_named, rows_of  # noqa: PLC0415 - as above

    if row_named("devices", name) is None:
        raise UnknownNameError("device", name, rows_of("devices").by_name, listing="The devices page lists them.")
    return device(name)


def model_named(name: str) -> str:
    from inferometer.catalog.files import row_named, rows_of  # noqa: PLC0415 - as above

    if row_named("models", name) is None:
        raise UnknownNameError("model", name, rows_of("models").by_name, listing="`inferometer models` lists them.")
    return name


def device_of(profile: Profile) -> Device | None:
    """The device a profile was taken on, where its figures are known: of the catalog, or this very machine."""
    if profile.device.name == _LOCAL:
        here = _here()
        return here if here is not None and here.title == profile.device.title else None
    try:
        return device_named(profile.device.name)
    except UnknownNameError:
        return None


def roofed(device: Device) -> Device:
    """The device with its peaks and bandwidth. This machine's are measured once, in a second, when first asked for."""
    return _roofed_here() if device.name == _LOCAL and not device.peaks else device


@lru_cache(maxsize=1)
def _roofed_here() -> Device:
    from inferometer.asking.roof import with_ceilings  # noqa: PLC0415 - numpy, where a roof is drawn
    from inferometer.catalog import device  # noqa: PLC0415 - as above

    return with_ceilings(device(_LOCAL))


@lru_cache(maxsize=1)
def _here() -> Device | None:
    from inferometer.catalog import device  # noqa: PLC0415 - as above
    from inferometer.errors import InferometerError  # noqa: PLC0415 - as above

    try:
        return device(_LOCAL)
    except InferometerError:
        return None

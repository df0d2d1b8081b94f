"""The atlas: what others have measured, as one table with sources."""

from typing import TYPE_CHECKING

from inferometer.core.lazy import attributes

if TYPE_CHECKING:
    from inferometer.known.atlas.looking import atlas
    from inferometer.known.atlas.measurement import QUANTITIES, AtlasSource, PublishedMeasurement, SetAside
    from inferometer.known.atlas.reading import AtlasReading, read_atlas
    from inferometer.known.atlas.shipped import load, sources
    from inferometer.known.atlas.table import AtlasTable

__all__ = [
    "QUANTITIES", "AtlasReading", "AtlasSource", "AtlasTable", "PublishedMeasurement", "SetAside", "atlas", "load",
    "read_atlas", "sources",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.known.atlas.looking": ("atlas",),
    "inferometer.known.atlas.measurement": ("QUANTITIES", "AtlasSource", "PublishedMeasurement", "SetAside"),
    "inferometer.known.atlas.reading": ("AtlasReading", "read_atlas"),
    "inferometer.known.atlas.shipped": ("load", "sources"),
    "inferometer.known.atlas.table": ("AtlasTable",),
})  # fmt: skip

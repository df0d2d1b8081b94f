"""The atlas: what others have measured, as one table with sources.

The package is a verb too: `inferometer.atlas(model="resnet50")` gives the published measurements as columns.
"""

from typing import TYPE_CHECKING

from inferometer.lazy import attributes, callable_package

if TYPE_CHECKING:
    from inferometer.atlas.looking import atlas
    from inferometer.atlas.measurement import QUANTITIES, AtlasSource, PublishedMeasurement, SetAside
    from inferometer.atlas.reading import AtlasReading, read_atlas
    from inferometer.atlas.shipped import load, sources
    from inferometer.atlas.table import AtlasTable

__all__ = [
    "QUANTITIES", "AtlasReading", "AtlasSource", "AtlasTable", "PublishedMeasurement", "SetAside", "atlas", "load",
    "read_atlas", "sources",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.atlas.measurement": ("QUANTITIES", "AtlasSource", "PublishedMeasurement", "SetAside"),
    "inferometer.atlas.reading": ("AtlasReading", "read_atlas"),
    "inferometer.atlas.shipped": ("load", "sources"),
    "inferometer.atlas.table": ("AtlasTable",),
})  # fmt: skip


callable_package(__name__, "inferometer.atlas.looking")

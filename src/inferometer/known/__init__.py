"""What is known beforehand: devices, models, engines, links and places, as rows of TOML with sources.

Names are matched exactly. Beside them `formulas`, `atlas` (what others have measured) and `machine` (the one at hand).
"""

from typing import TYPE_CHECKING

from inferometer.core.lazy import attributes

if TYPE_CHECKING:
    from inferometer.known.hardware import device, devices, link, links
    from inferometer.known.places import (
        Grid,
        Instance,
        Pue,
        grid,
        grids,
        instance,
        instances,
        instances_with,
        pue,
        pues,
    )
    from inferometer.known.reference import dtype_facts, memory_level, memory_levels
    from inferometer.known.zoo import CatalogModel, model, models

__all__ = [
    "CatalogModel", "Grid", "Instance", "Pue", "device", "devices", "dtype_facts", "grid", "grids", "instance",
    "instances", "instances_with", "link", "links", "memory_level", "memory_levels", "model", "models", "pue", "pues",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.known.hardware": ("device", "devices", "link", "links"),
    "inferometer.known.places": (
        "Grid", "Instance", "Pue", "grid", "grids", "instance", "instances", "instances_with", "pue", "pues",
    ),
    "inferometer.known.reference": ("dtype_facts", "memory_level", "memory_levels"),
    "inferometer.known.zoo": ("CatalogModel", "model", "models"),
})  # fmt: skip

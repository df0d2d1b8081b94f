"""The catalog: devices, models, links, places, as rows of TOML with sources. Names are matched exactly."""

from typing import TYPE_CHECKING

from inferometer.lazy import attributes

if TYPE_CHECKING:
    from inferometer.catalog.hardware import device, devices, link, links
    from inferometer.catalog.places import (
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
    from inferometer.catalog.reference import dtype_facts, memory_levels
    from inferometer.catalog.zoo import CatalogModel, model, models

__all__ = [
    "CatalogModel", "Grid", "Instance", "Pue", "device", "devices", "dtype_facts", "grid", "grids", "instance",
    "instances", "instances_with", "link", "links", "memory_levels", "model", "models", "pue", "pues",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.catalog.hardware": ("device", "devices", "link", "links"),
    "inferometer.catalog.places": (
        "Grid", "Instance", "Pue", "grid", "grids", "instance", "instances", "instances_with", "pue", "pues",
    ),
    "inferometer.catalog.reference": ("dtype_facts", "memory_levels"),
    "inferometer.catalog.zoo": ("CatalogModel", "model", "models"),
})  # fmt: skip

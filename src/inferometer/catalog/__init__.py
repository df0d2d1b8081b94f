"""Facts about the world: devices, models, links, places. Rows of TOML with sources; names matched exactly."""

from inferometer.catalog.devices import device, devices
from inferometer.catalog.links import link, links
from inferometer.catalog.models import CatalogModel, model, models
from inferometer.catalog.places import Grid, Instance, Pue, grid, grids, instance, instances, pue, pues
from inferometer.catalog.reference import dtype_facts, memory_levels

__all__ = [
    "CatalogModel", "Grid", "Instance", "Pue", "device", "devices", "dtype_facts", "grid", "grids", "instance",
    "instances", "link", "links", "memory_levels", "model", "models", "pue", "pues",
]  # fmt: skip

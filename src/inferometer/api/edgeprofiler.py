"""EdgeProfiler's own answer for models and devices by name, to stand beside ours."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any

from inferometer.core.errors import DomainError
from inferometer.predict.ask import device_for, model_graph
from inferometer.understand.accuracy.edgeprofiler import (
    FORMATS,
    HARDWARE,
    MODELS,
    EdgeHardware,
    EdgeModel,
    edge_hardware,
    edge_model,
    edge_rows,
)

_SEQUENCE = 1024  # as EdgeProfiler's own models have it


def edgeprofiler_rows(
    models: Iterable[str], devices: Iterable[str], weights: Iterable[str] = (), prompt: int | None = None
) -> list[dict[str, Any]]:
    """Its table for every model, device and precision; one of its own names means its own row."""
    precisions = _precisions(tuple(weights))
    return [
        row
        for device, model in product(devices, models)
        for row in edge_rows(model, _model(model, prompt), _hardware(device), precisions)
    ]


def _precisions(weights: tuple[str, ...]) -> tuple[str, ...]:
    for name in weights:
        if name not in FORMATS:
            raise DomainError(f"EdgeProfiler has no format {name!r}.", remedy=f"It knows {', '.join(FORMATS)}.")
    return tuple(FORMATS[name] for name in weights or FORMATS)


def _model(name: str, prompt: int | None) -> EdgeModel:
    if name in MODELS:
        return MODELS[name] if prompt is None else replace(MODELS[name], sequence=prompt)
    return edge_model(model_graph(name), _SEQUENCE if prompt is None else prompt)


def _hardware(name: str) -> EdgeHardware:
    return HARDWARE[name] if name in HARDWARE else edge_hardware(device_for(name))

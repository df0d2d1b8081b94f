"""`inferometer predict --edgeprofiler`: EdgeProfiler's own answer instead of ours."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from inferometer.cli.options import print_document, print_table
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from inferometer.accuracy.edgeprofiler import EdgeHardware, EdgeModel

_SEQUENCE = 1024  # as EdgeProfiler's own models have it
_KNOWN = {"models", "devices", "weights", "prompt", "form", "edgeprofiler"}


def print_edgeprofiler(
    models: tuple[str, ...], devices: tuple[str, ...], weights: tuple[str, ...], prompt: int | None, form: str
) -> None:
    """Print its table for every model, device and precision; one of its own names means its own row."""
    from inferometer.accuracy.edgeprofiler import edge_rows
    from inferometer.report.edgeprofiler import edge_table

    _require_known()
    precisions = _precisions(weights)
    rows = [
        row
        for device, model in product(devices, models)
        for row in edge_rows(model, _model(model, prompt), _hardware(device), precisions)
    ]
    if form == "json":
        print_document(rows)
    else:
        print_table(edge_table(rows), form)


def _require_known() -> None:
    """Refuse what its six integers have no place for."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in _KNOWN:
            raise DomainError(
                f"EdgeProfiler has no {parameter.opts[-1]}.",
                remedy="It takes models, --on, --weights (f32, f16, i8) and --prompt; ours takes all of them.",
            )


def _precisions(weights: tuple[str, ...]) -> tuple[str, ...]:
    from inferometer.accuracy.edgeprofiler import FORMATS

    for name in weights:
        if name not in FORMATS:
            raise DomainError(f"EdgeProfiler has no format {name!r}.", remedy=f"It knows {', '.join(FORMATS)}.")
    return tuple(FORMATS[name] for name in weights or FORMATS)


def _model(name: str, prompt: int | None) -> EdgeModel:
    from dataclasses import replace

    from inferometer.accuracy.edgeprofiler import MODELS, edge_model
    from inferometer.asking.ask import model_graph

    if name in MODELS:
        return MODELS[name] if prompt is None else replace(MODELS[name], sequence=prompt)
    return edge_model(model_graph(name), _SEQUENCE if prompt is None else prompt)


def _hardware(name: str) -> EdgeHardware:
    from inferometer.accuracy.edgeprofiler import HARDWARE, edge_hardware
    from inferometer.asking.ask import device_for

    return HARDWARE[name] if name in HARDWARE else edge_hardware(device_for(name))

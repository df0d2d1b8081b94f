"""`inferometer predict --edgeprofiler`: EdgeProfiler's own answer instead of ours."""

from __future__ import annotations

import click
from click.core import ParameterSource

from inferometer.cli.options import print_document, print_table
from inferometer.core.errors import DomainError

_KNOWN = {"models", "devices", "weights", "prompt", "form", "edgeprofiler"}


def print_edgeprofiler(
    models: tuple[str, ...], devices: tuple[str, ...], weights: tuple[str, ...], prompt: int | None, form: str
) -> None:
    from inferometer.api.edgeprofiler import edgeprofiler_rows
    from inferometer.understand.view.predictions import edge_table

    _require_known()
    rows = edgeprofiler_rows(models, devices, weights, prompt)
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

"""Which engine measures a model where none is named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from inferometer.core.errors import FormatError, MissingDependencyError
from inferometer.core.graph import is_generative, require_layers
from inferometer.core.plugins import load_all
from inferometer.engines.base import Missing, Runtime
from inferometer.formats.resolve import read
from inferometer.known.engines import ranked_engines
from inferometer.known.machine.local import local_device
from inferometer.known.networks import require_file
from inferometer.measure.run.model_file import can_open

if TYPE_CHECKING:
    from inferometer.core.device import Unit


def choose_runtime(model: str, unit: str | None = None) -> Runtime:
    """The first engine, in the order that `predict` uses, that is installed here and can open the model.

    `unit` asks for another unit than the best; one that was not detected ranks as a desktop's.
    """
    require_file(model)
    graph, device = read(model), local_device()
    require_layers(graph)
    if unit is not None and unit.partition(":")[0] != device.unit:
        device = replace(device, unit=cast("Unit", unit.partition(":")[0]), kind="desktop")
    ranked = ranked_engines(device, makes_tokens=is_generative(graph), format=graph.metadata.get("format"))
    loaded, _ = load_all("inferometer.runtimes")
    remedies = []
    for runtime in (loaded[name] for name in ranked if name in loaded and can_open(loaded[name], graph)):
        state = runtime.probe()
        if not isinstance(state, Missing):
            chosen: Runtime = runtime
            return chosen
        remedies.append(state.remedy)
    if not remedies and graph.metadata.get("format") not in {name for each in loaded.values() for name in each.formats}:
        notes = graph.metadata.get("notes", ())
        raise FormatError(
            f"{model!r} has the format {graph.metadata.get('format')}, which no runtime opens.",
            remedy=notes[-1] if notes else "Convert the model.",
        )
    raise MissingDependencyError(
        f"No runtime that could open {model!r} is installed.",
        remedy=f"Install one: {' or '.join(dict.fromkeys(remedies))}." if remedies else "See `inferometer runtimes`.",
    )

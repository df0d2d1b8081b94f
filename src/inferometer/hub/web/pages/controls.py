"""Which questions fit a model: the sizes it has, the options that would change its answer, the engines that run it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.dtypes import is_gguf_block
from inferometer.core.graph import is_generative
from inferometer.core.workload import Parallel
from inferometer.hub.web.guard.catalog_names import catalog_device, catalog_model
from inferometer.hub.web.pages.prediction_fields import GROUPED
from inferometer.hub.web.pages.predictions import calibrations_of
from inferometer.known import model as catalog_row
from inferometer.known.engines import engine, ranked_engines
from inferometer.known.files import row_named
from inferometer.predict.applicable import SIZES
from inferometer.predict.ask import model_graph
from inferometer.predict.options import HostCosts, Options, Speculative
from inferometer.predict.running import has_images
from inferometer.predict.unused import unused
from inferometer.understand.view.records import model_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.engine import EngineDescriptor
    from inferometer.core.graph import Graph

# One of each that the page offers, to see whether the model would use it.
_TRIED = Options(chunk=64, cached_prefix=16, steps=2, frame_rate=30.0, host=HostCosts(sampling_s=1e-6))
_DENOISED = frozenset({"image", "encoder"})  # what a model that denoises an image after a text has
_OURS = frozenset({"batch", "query", "context", "logits", "image"})  # sizes that have a field of their own
# The fields that go with an option, where they are called otherwise.
_BELONG = {
    "speculative": {"draft", "draft_length", "acceptance"}, "host": {"tokenise", "sampling", "detokenise"},
}  # fmt: skip


def controls_of(model: str, devices: Sequence[str], weights: str | None = None) -> dict[str, Any]:
    graph = model_graph(catalog_model(model))
    chosen = [catalog_device(name) for name in devices]
    makes_tokens = is_generative(graph)
    refused = {name for name, field in GROUPED.items() if field.needs == "tokens" and not makes_tokens}
    if chosen:
        tried = replace(_TRIED, speculative=Speculative(draft=graph, length=1, acceptance=0.5))
        found = unused(graph, chosen[0], Parallel(), tried)
        refused |= {field for option in found for field in _BELONG.get(option, {option})}
        if not graph.symbols.issuperset(_DENOISED):
            refused.add("steps")  # it would count, as of any model that is run several times, but nobody asks it
        refused |= _of_no_device(graph, {device.unit for device in chosen})
    calibrations = calibrations_of(chosen)
    if not calibrations:
        refused.add("calibration")
    if not (others := sorted(graph.symbols - _OURS)):
        refused.add("size")
    names = [name for device in chosen for name in ranked_engines(device, makes_tokens=makes_tokens)]
    able = [each for each in map(engine, dict.fromkeys(names)) if _runs(each, weights, makes_tokens=makes_tokens)]
    defaults = graph.metadata.get("default_sizes", {})
    facts = {} if row_named("models", model) is None else model_record(catalog_row(model))
    return {
        "model": {name: facts.get(name) for name in ("title", "parameters", "context")},
        "sizes": {name: applies(graph) for name, applies in SIZES.items()},
        "defaults": {name: defaults[name] for name in SIZES if isinstance(defaults.get(name), int)},
        "others": {name: defaults.get(name) for name in others},
        "calibrations": calibrations,
        "kv": makes_tokens,
        "options": [name for name in GROUPED if name not in refused],
        "runtimes": [{"name": each.name, "title": each.title} for each in able],
    }


def _of_no_device(graph: Graph, units: set[str]) -> set[str]:
    """Settings of a run that mean nothing on any of the devices; each answer says where one means nothing on one."""
    has = {"cpu": "cpu" in units, "gpu": "gpu" in units, "pictures on a gpu": "gpu" in units and has_images(graph)}
    return {name for name, field in GROUPED.items() if not has.get(field.needs, True)}


def _runs(descriptor: EngineDescriptor, weights: str | None, *, makes_tokens: bool) -> bool:
    """The blocks of GGUF files have kernels only in engines that open such files; and those hold language models."""
    if descriptor.opens == ("gguf",) and not makes_tokens:
        return False
    return weights is None or not is_gguf_block(weights) or not descriptor.opens or "gguf" in descriptor.opens

"""From names to a Question: look up the model and the device, and choose the engine and the roof if none is given."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from inferometer.core.device import is_local
from inferometer.core.dtypes import dtype, is_gguf_block
from inferometer.core.graph import Graph, is_generative
from inferometer.core.reformat import stored_in
from inferometer.core.sizes import with_given_sizes
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.formats.networks.named.shipped import net_named
from inferometer.formats.resolve import read
from inferometer.known import device as device_named
from inferometer.known.engines import default_runtime, engine
from inferometer.known.files import row_named
from inferometer.known.networks import network_named
from inferometer.known.zoo import model as catalog_model
from inferometer.predict.basis.roof import roof_for
from inferometer.predict.options import Options
from inferometer.predict.question import Question
from inferometer.predict.unused import require_used

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects


def ask(  # noqa: PLR0913 - everything a prediction depends on
    model: Any,
    *,
    on: str | Device,
    runtime: RuntimeEffects | str | None = None,
    weights: str | None = None,
    activations: str | None = None,
    kv: str | None = None,
    batch: int = 1,
    prompt: int | None = None,
    generate: int | None = None,
    context: int | None = None,
    image: int | None = None,
    sizes: Mapping[str, int] | None = None,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    dp: int = 1,
    threads: int | None = None,
    calibration: Calibration | None = None,
    calibrated: bool = True,
    prefill_on: str | Device | None = None,
    options: Options | None = None,
) -> Question:
    """Look up the model and the device by name, and make the question. An option that it would not use is refused.

    `sizes` are those that a file leaves open, by its names or ours. `threads` are the engine's on a CPU.
    """
    graph, device = stored_in(model_graph(model, image=image), weights), device_for(on)
    parallel = Parallel(tp=tp, pp=pp, ep=ep, dp=dp)
    options = options or Options()
    if threads is not None:
        options = replace(options, threads=threads)
    require_used(graph, device, parallel, options, two_machines=prefill_on is not None)
    workload = Workload(
        batch=batch,
        prompt=prompt,
        generate=generate,
        context=context,
        image=image,
        precision=Precision(weights=_format(weights), activations=_format(activations), kv=_format(kv)),
        parallel=parallel,
    )
    if sizes:
        workload, rest = with_given_sizes(graph, workload, sizes)
        options = replace(options, sizes={**options.sizes, **rest})
    return Question(
        graph=graph,
        device=device,
        runtime=_runtime(runtime or (calibration.runtime if calibration else None), device, graph, weights),
        workload=workload,
        options=options,
        calibrated=calibrated,
        calibration=calibration,
        roof=roof_for(device),
        host_call_s=_host_here() if device.unit != "cpu" and isinstance(on, str) and is_local(on) else None,
        prefill_on=None if prefill_on is None else device_for(prefill_on),
    )


@cache
def _host_here() -> float:
    """How fast the host of this machine's devices is; a tenth of a second."""
    from inferometer.known.machine.health.host_calls import host_call_s  # noqa: PLC0415 - only for this machine

    return host_call_s()


def _runtime(
    given: RuntimeEffects | str | None, device: Device, graph: Graph, weights: str | None
) -> RuntimeEffects | str:
    """The engine that was named, by its own name; else the usual one, which has to take the format of the weights."""
    if isinstance(given, str):
        return engine(given).name
    if given is not None:
        return given
    return usual_runtime(device, graph, weights)


def usual_runtime(device: Device, graph: Graph, weights: str | None) -> str:
    """What such a model mostly runs in on such a device with weights in this format."""
    if weights is not None and is_gguf_block(weights) and is_generative(graph):
        return default_runtime(device, graph, format="gguf")
    return default_runtime(device, graph)


def _format(name: str | None) -> str | None:
    """A number format by its own name, not by an alias or in capitals."""
    return None if name is None else dtype(name).name


def model_graph(model: Any, *, image: int | None = None) -> Graph:
    """A model that has a name is read once, because pricing caches what it prepared by the identity of the graph.

    `image` chooses among the graphs of a package's network, each of which is made for one size. A catalog model that
    is such a network too is read as it was traced; where a size of image is asked for, from its config, in which that
    size is open.
    """
    if isinstance(model, Graph):
        return model
    if isinstance(model, str):
        if row_named("models", model):
            return _catalog_graph(model, at_size=image is not None)
        if net_named(model):
            return _named_graph(model, None)
        if network_named(model):
            return _named_graph(model, image)
    return read(model)


def graphs_named(model: str) -> tuple[Graph, ...]:
    """The graphs that a name may stand for: of a catalog model that was also traced, as traced and as configured."""
    usual = model_graph(model)
    row = catalog_model(model) if row_named("models", model) else None
    return (usual,) if row is None or row.network is None else (usual, _catalog_graph(model, at_size=True))


@cache
def _catalog_graph(name: str, *, at_size: bool) -> Graph:
    row = catalog_model(name)
    if row.network is not None and not at_size and _is_shipped(row.network):
        return replace(_named_graph(row.network, None), name=row.name)
    return _named_graph(row.name, None)


def _is_shipped(network: str) -> bool:
    from inferometer.formats.networks.shipped import is_shipped  # noqa: PLC0415 - most models are no network of a package

    return is_shipped(network)


@cache
def _named_graph(name: str, image: int | None) -> Graph:
    return read(name, image=image)


def device_for(on: str | Device) -> Device:
    return device_named(on) if isinstance(on, str) else on

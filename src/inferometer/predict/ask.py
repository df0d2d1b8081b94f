"""From names to a Question: look up the model and the device, and choose the engine and the roof if none is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, get_args

from inferometer.core.device import LOCAL, Device, is_local
from inferometer.core.dtypes import dtype, is_gguf_block
from inferometer.core.errors import DomainError
from inferometer.core.graph import Graph, is_generative
from inferometer.core.reformat import stored_in
from inferometer.core.sizes import with_given_sizes
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.formats.networks.named import net_named
from inferometer.formats.resolve import read
from inferometer.known import device as device_named
from inferometer.known.engines import default_runtime, engine
from inferometer.known.files import row_named
from inferometer.known.zoo import model as catalog_model
from inferometer.known.zoo import network_named
from inferometer.predict.applicable import require_used
from inferometer.predict.basis.files import read_calibration
from inferometer.predict.basis.roof import roof_for
from inferometer.predict.fields import ASKED, Changes, Field, fields_that, require_fields
from inferometer.predict.flags import options_from
from inferometer.predict.question import Question

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.core.engine import RuntimeEffects
    from inferometer.predict.asked import Asked, Swept
    from inferometer.predict.options import Options

Verb = TypeVar("Verb", bound=Callable[..., Any])
_OF = {changes: tuple(fields_that(changes)) for changes in get_args(Changes)}


def taking(fields: Mapping[str, Field]) -> Callable[[Verb], Verb]:
    """Show these fields in place of `**asked` wherever a function's signature is read: notebooks, `help`."""

    def shown(verb: Verb) -> Verb:
        signature = inspect.signature(verb)
        own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        needed = [parameter for parameter in own if parameter.default is parameter.empty]
        others = [parameter for parameter in own if parameter.default is not parameter.empty]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.kind)
            for name, field in fields.items()
            if name not in signature.parameters
        ]
        vars(verb)["__signature__"] = signature.replace(parameters=[*needed, *more, *others])
        return verb

    return shown


@taking(ASKED)
def ask(
    model: Any, *, on: str | Device, options: Options | None = None, calibrated: bool = True, **asked: Unpack[Asked]
) -> Question:
    """Look up the model and the device by name, and make the question. A field that it would not use is refused.

    Fields are those of `predict.fields`; those of options go above `options`.
    """
    if not asked.keys() <= ASKED.keys():
        require_fields(asked)
    weights, reader = asked.get("weights"), asked.get("prefill_on")
    graph = stored_in(model_graph(model, image=asked.get("image")), weights)
    device = device_for(on, [asked.get("runtime")])
    parallel = Parallel(**given_fields(asked, "plan"))
    options = options_from(given_fields(asked, "option", "cost"), options)
    if asked.get("threads") is not None:
        options = replace(options, threads=asked["threads"])
    require_used(graph, device, parallel, options, two_machines=reader is not None)
    formats = {name: dtype(format_).name for name, format_ in given_fields(asked, "format").items()}
    workload = Workload(**given_fields(asked, "size"), precision=Precision(**formats), parallel=parallel)
    if asked.get("sizes"):
        workload, rest = with_given_sizes(graph, workload, asked["sizes"] or {})
        options = replace(options, sizes={**options.sizes, **rest})
    calibration = _calibration(asked, device)
    runtime = asked.get("runtime") or (calibration.runtime if calibration else None)
    return Question(
        graph=graph,
        device=device,
        runtime=_runtime(runtime, device, graph, weights),
        workload=workload,
        options=options,
        calibrated=calibrated and not asked.get("priors"),
        calibration=calibration,
        roof=roof_for(device),
        host_call_s=_host_here() if device.unit != "cpu" and isinstance(on, str) and is_local(on) else None,
        prefill_on=None if reader is None else device_for(reader),
    )


def given_fields(asked: Asked | Swept, *parts: Changes) -> dict[str, Any]:
    """The fields that change these parts of a question, where they are given."""
    values: Mapping[str, Any] = asked
    names = (name for part in parts for name in _OF[part] if name in values)
    return {name: values[name] for name in names if values[name] is not None and values[name] != ()}


def _calibration(asked: Asked, device: Device) -> Calibration | None:
    """The calibration that is given, as a value or as a file, which must be of this device."""
    given = asked.get("calibration")
    if given is not None and asked.get("priors"):
        raise DomainError("Priors ignore calibrations, and one is given.", remedy="Leave one out.")
    if not isinstance(given, str | Path):
        return given
    calibration = read_calibration(Path(given))
    if calibration.device != device.name:
        raise DomainError(
            f"{given} is a calibration of {calibration.device}, and {device.name} was asked about.",
            remedy=f"Ask about {calibration.device}, or leave it out.",
        )
    return calibration


@cache
def _host_here() -> float:
    """How fast the host of this machine's devices is; a tenth of a second."""
    from inferometer.known.machine.health import host_call_s  # noqa: PLC0415 - only for this machine

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
        if not Path(model).exists() and (full := _packaged(model)):
            return _named_graph(full, image)
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


def _packaged(model: str) -> str | None:
    from inferometer.formats.networks.shipped import packaged  # noqa: PLC0415 - as above

    return packaged(model)


@cache
def _named_graph(name: str, image: int | None) -> Graph:
    return read(name, image=image)


def device_for(on: str | Device, runtimes: Iterable[RuntimeEffects | str | None] = ()) -> Device:
    """The device that was named. `local` is this machine's best unit, or its CPU for engines that run only there.

    An engine has probes for the units that its own package runs on, so what is profiled, calibrated and predicted on
    `local` is one unit. `local:gpu` asks about the other.
    """
    device = device_named(on) if isinstance(on, str) else on
    if on != LOCAL or device.unit == "cpu":
        return device
    probed = [set(engine(runtime).calibrated) if isinstance(runtime, str) else set() for runtime in runtimes]
    return device_named(f"{LOCAL}:cpu") if probed and all(units == {"cpu"} for units in probed) else device

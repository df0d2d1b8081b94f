"""Predictions of the hub: one model on one device at a time, from names of the catalog and the command's flags."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from inferometer.api import ask, gains
from inferometer.core.codec import document
from inferometer.core.dtypes import is_gguf_block
from inferometer.core.errors import DomainError, InferometerError, UnknownNameError
from inferometer.core.graph import Graph, is_generative
from inferometer.core.units import format_capacity
from inferometer.core.workload import Parallel
from inferometer.hub.web.guard.catalog_names import catalog_device, catalog_model
from inferometer.known import model as catalog_row
from inferometer.known.engines import engine, ranked_engines
from inferometer.known.files import names_of, row_named
from inferometer.predict.applicable import SIZES, meaningful, unused
from inferometer.predict.ask import model_graph
from inferometer.predict.basis.files import SHIPPED, files_in, name_start, own_folder, read_calibration
from inferometer.predict.change import parse_change
from inferometer.predict.fields import FIELDS, in_python
from inferometer.predict.flags import parse_sizes
from inferometer.predict.options import HostCosts, Options, Speculative
from inferometer.predict.running import has_images
from inferometer.predict.served.question import serving_answer
from inferometer.understand.accuracy.edgeprofiler import edgeprofiler_rows
from inferometer.understand.view.predictions import time_by_rung
from inferometer.understand.view.records import model_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.engine import EngineDescriptor
    from inferometer.hub.web.api.catalog import PredictRequest
    from inferometer.predict.question import Question


def predictions(wanted: PredictRequest) -> list[dict[str, Any]]:
    """An answer for each device. An unknown name is an error; a model that cannot run there is an answer."""
    # The fields that are set, by their keywords in Python; what a name stands for is looked up, never a path. One that
    # this model would not use is refused, as on the command line.
    finders: dict[str, Callable[[Any], Any]] = {
        "models": catalog_model, "devices": catalog_device, "calibrations": stored_calibration,
    }  # fmt: skip
    asked: dict[str, Any] = {}
    for name, field in in_python(FIELDS).items():
        value = getattr(wanted, name, None)  # sizes are read with the answer, which says what is wrong with them
        if value not in (None, False, []):
            asked[name] = finders[field.catalog](value) if field.catalog in finders else value
    for change in map(parse_change, wanted.what_if):
        if change.key == "on":  # the command takes a file there
            catalog_device(change.value)
    return [_prediction(wanted, asked, catalog_device(name)) for name in wanted.devices]


def _prediction(wanted: PredictRequest, asked: dict[str, Any], device: Device) -> dict[str, Any]:
    row = {"device": device.name, "title": device.title, "unit": device.unit}
    try:
        question = _question(wanted, asked, device)
        profile = question.answer()
        beside = {
            "fit": _fit(question), "served": _served(question, wanted), "gains": gains(question, wanted.what_if),
            "edgeprofiler": _edgeprofiler(wanted, device) if wanted.edgeprofiler else [],
        }  # fmt: skip
    except (InferometerError, OverflowError) as error:
        return {**row, "error": str(error)}
    plain = document(profile)
    if not wanted.ops:
        for phase in plain["phases"]:
            phase.pop("ops", None)
    kept = ("summary", "phases", "precision", "workload", "model")
    rungs = [] if profile.steady is None else time_by_rung(profile.steady)
    return {**row, "runtime": profile.runtime, **{name: plain[name] for name in kept}, "rungs": rungs, **beside}


def _question(wanted: PredictRequest, asked: dict[str, Any], device: Device) -> Question:
    calibration: Calibration | None = asked.get("calibration")
    if calibration is not None and calibration.device != device.name:
        raise DomainError(
            f"{wanted.calibration} is a calibration of {calibration.device}.", remedy="Leave it or this device out."
        )
    question = ask(wanted.model, on=device, sizes=parse_sizes(wanted.size), **asked)
    return replace(question, workload=meaningful(question.workload, question.graph))  # the sliders are for all models


def stored_calibration(name: str) -> Calibration:
    """One that the hub keeps or ships, by the name of its file; never by a path."""
    stored = stored_calibrations()
    if name not in stored:
        raise UnknownNameError("calibration", name, stored, listing="The predict page offers them.")
    return read_calibration(stored[name])


def stored_calibrations() -> dict[str, Path]:
    return {path.stem: path for path in files_in((SHIPPED, own_folder()))}


def calibrations_of(devices: list[Device]) -> list[str]:
    """The names of stored calibrations of these devices; of one whose file was renamed there is no telling."""
    starts = tuple(f"{name_start(device.name)}-" for device in devices)
    return [name for name in stored_calibrations() if name.startswith(starts)]


def _served(question: Question, wanted: PredictRequest) -> dict[str, Any] | None:
    if wanted.users is None:
        return None
    return serving_answer(question, wanted.users, wanted.tokens_per_user).document()


def _edgeprofiler(wanted: PredictRequest, device: Device) -> list[dict[str, Any]]:
    """Its rows, or one that says why there are none: it knows few devices and fewer formats."""
    weights = () if wanted.weights is None else (wanted.weights,)
    try:
        return edgeprofiler_rows([wanted.model], [device.name], weights, wanted.prompt)
    except InferometerError as error:
        return [{"error": error.message}]


def _fit(question: Question) -> dict[str, Any] | None:
    try:
        fit = question.fit()
    except (InferometerError, OverflowError):
        return None
    return {**asdict(fit), "capacity": format_capacity(fit.capacity_bytes) if fit.capacity_bytes else None}


# Which questions fit a model: the sizes it has, the options that would change its answer, the engines that run it.

# The fields of the predict page beyond the first few, which have places of their own: those with a group.

GROUPED = {name: field for name, field in FIELDS.items() if field.group}


def field_groups() -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, field in GROUPED.items():
        said, _, default = field.help.partition("  [default: ")
        groups.setdefault(field.group, []).append(
            {
                "name": name,
                "label": field.label or name.replace("_", " ").capitalize(),
                "takes": field.takes,
                "hint": default.rstrip("]") or said.partition(", such as ")[2].rstrip("."),
                "help": said.partition(": `inferometer")[0].rstrip(".:") + ".",
                "list": field.catalog or None,
            }
        )
    return [{"title": title, "fields": fields} for title, fields in groups.items()]


def name_lists() -> dict[str, list[str]]:
    """The names that a browser offers; models and devices come when one chooses, calibrations with a model."""
    kinds = {field.catalog for field in GROUPED.values()} - {"", "models", "devices", "calibrations"}
    return {"calibrations": [], **{kind: names_of(kind) for kind in sorted(kinds)}}


# One of each that the page offers, to see whether the model would use it.
_TRIED = Options(chunk=64, cached_prefix=16, steps=2, frame_rate=30.0, host=HostCosts(sampling_s=1e-6))
_DENOISED = frozenset({"image", "encoder"})  # what a model that denoises an image after a text has
_OURS = frozenset({"batch", "query", "context", "logits", "image"})  # sizes that have a field of their own
# The fields that go with an option, where they are called otherwise.
_BELONG = {
    "speculative": {"draft", "draft_length", "acceptance", "draft_up_to"},
    "host": {"tokenise", "sampling", "detokenise"},
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

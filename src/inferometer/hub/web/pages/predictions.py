"""What the hub predicts: one model on one device at a time, from names of the catalog and the command's flags."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from inferometer.api import ask, gains
from inferometer.api.edgeprofiler import edgeprofiler_rows
from inferometer.core.codec import document
from inferometer.core.errors import DomainError, InferometerError, UnknownNameError
from inferometer.core.units import format_capacity
from inferometer.hub.web.guard.catalog_names import catalog_device, catalog_model
from inferometer.predict.applicable import meaningful
from inferometer.predict.basis.files import SHIPPED, files_in, name_start, own_folder, read_calibration
from inferometer.predict.change import parse_change
from inferometer.predict.flags import FLAGS, options_from, parse_sizes
from inferometer.predict.served.question import serving_answer
from inferometer.understand.view.predictions import time_by_rung

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.profile import Profile
    from inferometer.hub.web.api.catalog import PredictRequest
    from inferometer.predict.question import Question

_WORKLOAD = {
    "runtime", "weights", "activations", "kv", "batch", "prompt", "generate", "context", "image", "tp", "pp", "ep",
    "dp", "threads",
}  # fmt: skip


def predictions(wanted: PredictRequest) -> list[dict[str, Any]]:
    """An answer for each device. An unknown name is an error; a model that cannot run there is an answer."""
    if wanted.draft is not None:
        catalog_model(wanted.draft)
    if wanted.prefill_on is not None:
        catalog_device(wanted.prefill_on)
    for change in map(parse_change, wanted.what_if):
        if change.key == "on":  # the command takes a file there
            catalog_device(change.value)
    calibration = None if wanted.calibration is None else stored_calibration(wanted.calibration)
    return [_prediction(wanted, catalog_device(name), calibration) for name in wanted.devices]


def _prediction(wanted: PredictRequest, device: Device, calibration: Calibration | None) -> dict[str, Any]:
    row = {"device": device.name, "title": device.title, "unit": device.unit}
    try:
        question = _question(wanted, device, calibration)
        profile = question.answer()
        beside = {
            "fit": _fit(question), "served": _served(question, wanted), "gains": gains(question, wanted.what_if),
            "edgeprofiler": _edgeprofiler(wanted, device) if wanted.edgeprofiler else [],
        }  # fmt: skip
    except (InferometerError, OverflowError) as error:
        return {**row, "error": str(error)}
    return {**row, "runtime": profile.runtime, **_numbers(profile, ops=wanted.ops), **beside}


def _question(wanted: PredictRequest, device: Device, calibration: Calibration | None) -> Question:
    other = wanted.prefill_on and catalog_device(wanted.prefill_on)
    if calibration is not None:
        _require_fitting(wanted, device, calibration)
    asked = ask(
        wanted.model, on=device, options=options_from(_given(wanted)), prefill_on=other, calibration=calibration,
        calibrated=not wanted.priors, sizes=parse_sizes(wanted.size), **wanted.model_dump(include=_WORKLOAD),
    )  # fmt: skip
    return replace(asked, workload=meaningful(asked.workload, asked.graph))  # the sliders are for all models


def _require_fitting(wanted: PredictRequest, device: Device, calibration: Calibration) -> None:
    if wanted.priors:
        raise DomainError("Priors ignore calibrations, and one is given.", remedy="Leave one out.")
    if calibration.device != device.name:
        raise DomainError(
            f"{wanted.calibration} is a calibration of {calibration.device}.", remedy="Leave it or this device out."
        )


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


def _given(wanted: PredictRequest) -> dict[str, Any]:
    """The flags that are set. One that this model would not use is refused, as on the command line."""
    flags = {name: getattr(wanted, name) for name in FLAGS}
    return {name: value for name, value in flags.items() if value is not None and value is not False and value != []}


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


def _numbers(profile: Profile, *, ops: bool) -> dict[str, Any]:
    plain = document(profile)
    if not ops:
        for phase in plain["phases"]:
            phase.pop("ops", None)
    kept = ("summary", "phases", "precision", "workload", "model")
    rungs = [] if profile.steady is None else time_by_rung(profile.steady)
    return {**{name: plain[name] for name in kept}, "rungs": rungs}


def _fit(question: Question) -> dict[str, Any] | None:
    try:
        fit = question.fit()
    except (InferometerError, OverflowError):
        return None
    return {**asdict(fit), "capacity": format_capacity(fit.capacity_bytes) if fit.capacity_bytes else None}

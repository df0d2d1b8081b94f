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
from inferometer.predict.fields import FIELDS, in_python
from inferometer.predict.flags import parse_sizes
from inferometer.predict.served.question import serving_answer
from inferometer.understand.view.predictions import time_by_rung

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.profile import Profile
    from inferometer.hub.web.api.catalog import PredictRequest
    from inferometer.predict.question import Question


def predictions(wanted: PredictRequest) -> list[dict[str, Any]]:
    """An answer for each device. An unknown name is an error; a model that cannot run there is an answer."""
    asked = _asked(wanted)
    for change in map(parse_change, wanted.what_if):
        if change.key == "on":  # the command takes a file there
            catalog_device(change.value)
    return [_prediction(wanted, asked, catalog_device(name)) for name in wanted.devices]


def _asked(wanted: PredictRequest) -> dict[str, Any]:
    """The fields that are set, by their keywords in Python; what a name stands for is looked up, never a path.

    One that this model would not use is refused, as on the command line.
    """
    finders: dict[str, Callable[[Any], Any]] = {
        "models": catalog_model, "devices": catalog_device, "calibrations": stored_calibration,
    }  # fmt: skip
    asked: dict[str, Any] = {}
    for name, field in in_python(FIELDS).items():
        value = getattr(wanted, name, None)  # sizes are read with the answer, which says what is wrong with them
        if value not in (None, False, []):
            asked[name] = finders[field.catalog](value) if field.catalog in finders else value
    return asked


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
    return {**row, "runtime": profile.runtime, **_numbers(profile, ops=wanted.ops), **beside}


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

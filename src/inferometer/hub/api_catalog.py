"""The API of the catalog and the cost model: devices, models, formulas, predictions, sweeps. Names only, no paths."""

import math
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from inferometer.core.codec import document
from inferometer.core.profile import Profile
from inferometer.errors import DomainError, InferometerError
from inferometer.formulas.listing import calculation_record, formula_document, formula_records
from inferometer.formulas.registry import find_formula
from inferometer.hub.answers import ERRORS, answer, shape
from inferometer.hub.catalog_pages import device_rows, model_rows
from inferometer.hub.catalogue import device_named, model_named
from inferometer.hub.failures import HubError
from inferometer.hub.rules import Rules
from inferometer.sweep.columns import COLUMNS
from inferometer.units import format_capacity
from inferometer.version import __version__

Name = Annotated[str, Field(min_length=1, max_length=100)]
Size = Annotated[int, Field(ge=1, le=100_000_000)]
Count = Annotated[int, Field(ge=1, le=4096)]


class Asked(BaseModel):
    """A prediction: one model, some devices, and the workload. What is not given is the model's own default."""

    model_config = ConfigDict(extra="forbid")
    model: Name
    devices: list[Name] = Field(min_length=1, max_length=16)
    runtime: Name | None = None
    weights: Name | None = None
    activations: Name | None = None
    kv: Name | None = None
    batch: Count = 1
    prompt: Size | None = None
    generate: Size | None = None
    context: Annotated[int, Field(ge=0, le=100_000_000)] | None = None
    image: Annotated[int, Field(ge=1, le=16384)] | None = None
    tp: Count = 1
    pp: Count = 1
    ep: Count = 1
    dp: Count = 1
    ops: bool = False


class Calculation(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inputs: dict[str, Annotated[str, Field(max_length=2000)]] = Field(max_length=30)


class SweepAsked(BaseModel):
    """The cross product of these lists."""

    model_config = ConfigDict(extra="forbid")
    models: list[Name] = Field(min_length=1, max_length=32)
    devices: list[Name] = Field(min_length=1, max_length=64)
    weights: list[Name] = Field(default=[], max_length=16)
    batch: list[Count] = Field(default=[1], min_length=1, max_length=64)
    prompt: list[Size] = Field(default=[], max_length=64)
    generate: list[Size] = Field(default=[], max_length=64)
    tp: list[Count] = Field(default=[1], min_length=1, max_length=16)


def router(rules: Rules) -> APIRouter:
    made = APIRouter(responses=ERRORS)
    _listing(made)
    _computing(made, rules)
    return made


def _listing(made: APIRouter) -> None:
    @made.get("/health", tags=["hub"], responses={200: shape()})
    def health(request: Request) -> Response:
        return answer(request, {"status": "ok", "version": __version__})

    @made.get("/devices", tags=["catalog"], responses={200: shape([None])})
    def list_devices(request: Request) -> Response:
        """Every device of the catalog, flat: memory, bandwidth, peaks, power, price."""
        return answer(request, device_rows())

    @made.get("/devices/{name}", tags=["catalog"], responses={200: shape()})
    def show_device(request: Request, name: str) -> Response:
        """One device with the source of every number."""
        return answer(request, document(device_named(name)))

    @made.get("/models", tags=["catalog"], responses={200: shape([None])})
    def list_models(request: Request) -> Response:
        return answer(request, model_rows())

    @made.get("/formulas", tags=["formulas"], responses={200: shape([None])})
    def list_formulas(request: Request) -> Response:
        return answer(request, formula_records())

    @made.get("/formulas/{name}", tags=["formulas"], responses={200: shape()})
    def show_formula(request: Request, name: str) -> Response:
        return answer(request, formula_document(find_formula(name)))


def _computing(made: APIRouter, rules: Rules) -> None:
    @made.post("/formulas/{name}/calculate", tags=["formulas"], responses={200: shape()})
    def calculate(request: Request, name: str, wanted: Calculation) -> Response:
        """The value of a formula. Inputs are text with units, as in `{"bytes": "1 GB"}`."""
        return answer(request, calculation_record(name, [f"{key}={text}" for key, text in wanted.inputs.items()]))

    @made.post("/predict", tags=["predict"], responses={200: shape()})
    def predict(request: Request, wanted: Asked) -> Response:
        """How fast a model will run on each device, and whether it fits. A device where it cannot be says why."""
        return answer(
            request, {"model": model_named(wanted.model), "answers": [_predicted(wanted, d) for d in wanted.devices]}
        )

    @made.post("/sweeps", tags=["predict"], responses={200: shape()})
    def sweep(request: Request, wanted: SweepAsked) -> Response:
        """Every combination as columns; numbers are null where there are none."""
        lists = wanted.model_dump()
        rows = math.prod(max(len(values), 1) for values in lists.values())
        if rows > rules.sweep_rows:
            raise HubError(413, f"That is {rows:,} rows; {rules.sweep_rows:,} are the most.",
                           remedy="Use `inferometer sweep` and open its file here.")  # fmt: skip
        return answer(request, _swept(lists))


def _predicted(wanted: Asked, name: str) -> dict[str, Any]:
    """One device's answer. A name that is not known is an error; what cannot be on a known device is an answer."""
    from inferometer.verbs import ask  # noqa: PLC0415 - the cost model, with the first prediction

    device = device_named(name)
    asked = wanted.model_dump(exclude={"model", "devices", "ops"})
    told = {"device": device.name, "title": device.title, "unit": device.unit}
    try:
        question = ask(wanted.model, on=device, **asked)
        profile = question.answer()
    except (DomainError, InferometerError, OverflowError) as error:
        return {**told, "error": str(error)}
    return {**told, "runtime": profile.runtime, **_numbers(profile, ops=wanted.ops), "fit": _fit(question)}


def _numbers(profile: Profile, *, ops: bool) -> dict[str, Any]:
    plain = document(profile)
    if not ops:
        for phase in plain["phases"]:
            phase.pop("ops", None)
    kept = ("summary", "phases", "precision", "workload", "model")
    return {name: plain[name] for name in kept}


def _fit(question: Any) -> dict[str, Any] | None:
    try:
        found = question.fit()
    except (InferometerError, OverflowError):
        return None
    return {**asdict(found), "capacity": format_capacity(found.capacity_bytes) if found.capacity_bytes else None}


def _swept(lists: dict[str, list[Any]]) -> dict[str, Any]:
    from inferometer.sweep.rows import plain  # noqa: PLC0415 - as above
    from inferometer.sweep.run import sweep  # noqa: PLC0415 - as above

    axes: dict[str, Any] = {
        name: values for name, values in lists.items() if values and name not in {"models", "devices"}
    }
    rows = sweep(
        models=[model_named(name) for name in lists["models"]],
        devices=[device_named(name) for name in lists["devices"]],
        **axes,
    )
    return {"rows": len(rows), "columns": {name: plain(rows[name], COLUMNS[name].kind) for name in rows.columns}}

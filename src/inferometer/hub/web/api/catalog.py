"""The API of the catalog and the cost model: devices, models, formulas, predictions, sweeps.

It takes catalog names only, never paths.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field, create_model
from starlette.requests import Request
from starlette.responses import Response

from inferometer.core.codec import document
from inferometer.hub.web.answers import ERRORS, HubError, answer, json_response
from inferometer.hub.web.api.bodies import Body, Name
from inferometer.hub.web.guard.catalog_names import catalog_device, catalog_model
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.pages.catalog import atlas_columns, device_rows, model_rows
from inferometer.hub.web.pages.predictions import controls_of, predictions
from inferometer.known.formulas.listing import calculation_record, formula_document, formula_records
from inferometer.known.formulas.registry import find_formula
from inferometer.predict.applicable import SIZES
from inferometer.predict.ask import model_graph
from inferometer.predict.fields import AXES, FIELDS
from inferometer.predict.fields import Field as FieldOfQuestion
from inferometer.predict.sweep.columns import COLUMNS
from inferometer.predict.sweep.table import plain
from inferometer.understand.view.catalog_tables import CatalogTable, catalog_table, tables_table

_TYPES: dict[str, Callable[[FieldOfQuestion], Any]] = {
    "whole": lambda field: Annotated[int, Field(ge=field.least, le=field.most)],
    "number": lambda _: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)],
    "share": lambda _: Annotated[float, Field(ge=0, le=1)],
    "text": lambda _: Name,
}
_MOST_LISTED = 64


def _taken(field: FieldOfQuestion) -> Any:
    """Its type and its default, as in a request."""
    if field.takes == "switch":
        return bool, False
    if field.takes == "texts":
        return Annotated[list[Name], Field(max_length=20)], []
    kind = _TYPES[field.takes](field)
    return (kind, field.default) if field.default is not None else (kind | None, None)


def _listed(field: FieldOfQuestion) -> Any:
    return Annotated[list[_TYPES[field.takes](field)], Field(max_length=_MOST_LISTED)], []  # type: ignore[misc] # made


_Fields: Any = create_model("_Fields", __base__=Body, **{name: _taken(field) for name, field in FIELDS.items()})
_Lists: Any = create_model("_Lists", __base__=Body, **{name: _listed(field) for name, field in AXES.items()})


class PredictRequest(_Fields):  # type: ignore[misc] # made from the table of fields
    """One model, some devices, and the fields of a question. What is not given is the model's default."""

    model: Name
    devices: list[Name] = Field(min_length=1, max_length=16)
    ops: bool = False


class CalculateRequest(Body):
    inputs: dict[str, Annotated[str, Field(max_length=2000)]] = Field(max_length=30)


class SweepRequest(_Lists):  # type: ignore[misc] # made from the table of fields
    """The cross product of these lists. Those that are empty are left to the model."""

    models: list[Name] = Field(min_length=1, max_length=32)
    devices: list[Name] = Field(min_length=1, max_length=_MOST_LISTED)


def router(rules: Rules) -> APIRouter:
    api = APIRouter(responses=ERRORS)
    _add_listings(api)
    _add_computations(api, rules)
    return api


def _add_listings(api: APIRouter) -> None:
    @api.get("/devices", tags=["catalog"], responses={200: json_response([None])})
    def list_devices(request: Request) -> Response:
        """Every device of the catalog, flat: memory, bandwidth, peaks, power, price."""
        return answer(request, device_rows())

    @api.get("/devices/{name}", tags=["catalog"], responses={200: json_response()})
    def show_device(request: Request, name: str) -> Response:
        """One device with the source of every number."""
        return answer(request, document(catalog_device(name)))

    @api.get("/models", tags=["catalog"], responses={200: json_response([None])})
    def list_models(request: Request) -> Response:
        return answer(request, model_rows())

    @api.get("/models/{name}/controls", tags=["predict"], responses={200: json_response()})
    def show_controls(
        request: Request,
        name: str,
        on: Annotated[list[Name] | None, Query(max_length=16)] = None,
        weights: Name | None = None,
    ) -> Response:
        """What a prediction of this model can be asked for, and the engines that run it with these weights."""
        return answer(request, controls_of(name, on or [], weights))

    @api.get("/catalog", tags=["catalog"], responses={200: json_response([None])})
    def list_tables(request: Request) -> Response:
        """The catalog's other tables: links, instances, grids, PUE, memory, number formats."""
        return answer(request, [*tables_table().rows])

    @api.get("/catalog/{table}", tags=["catalog"], responses={200: json_response([None])})
    def list_table(request: Request, table: str) -> Response:
        """Every row of a table, flat."""
        found = catalog_table(table)
        return answer(request, [_named(found, record) for record in found.records()])

    @api.get("/catalog/{table}/{name}", tags=["catalog"], responses={200: json_response()})
    def show_row(request: Request, table: str, name: str) -> Response:
        """One row with the source of every number."""
        found = catalog_table(table)
        return answer(request, found.document(found.find(name)))

    @api.get("/formulas", tags=["formulas"], responses={200: json_response([None])})
    def list_formulas(request: Request) -> Response:
        return answer(request, formula_records())

    @api.get("/formulas/{name}", tags=["formulas"], responses={200: json_response()})
    def show_formula(request: Request, name: str) -> Response:
        return answer(request, formula_document(find_formula(name)))


def _named(table: CatalogTable, record: dict[str, Any]) -> dict[str, Any]:
    """A record with the unit in each key."""
    return {column.machine_name: record[column.key] for column in table.columns}


def _add_computations(api: APIRouter, rules: Rules) -> None:
    @api.post("/formulas/{name}/calculate", tags=["formulas"], responses={200: json_response()})
    def calculate(request: Request, name: str, wanted: CalculateRequest) -> Response:
        """The value of a formula. Inputs are text with units, as in `{"bytes": "1 GB"}`."""
        return answer(request, calculation_record(name, [f"{key}={text}" for key, text in wanted.inputs.items()]))

    @api.post("/predict", tags=["predict"], responses={200: json_response()})
    def predict(request: Request, wanted: PredictRequest) -> Response:
        """How fast a model will run on each device, and whether it fits. If it cannot, the answer says why."""
        return answer(request, {"model": catalog_model(wanted.model), "answers": predictions(wanted)})

    @api.post("/sweeps", tags=["predict"], responses={200: json_response()})
    def sweep(request: Request, wanted: SweepRequest) -> Response:
        """Every combination, by columns; unknown numbers are null."""
        lists = wanted.model_dump()
        rows = math.prod(max(len(values), 1) for values in lists.values())
        if rows > rules.sweep_rows:
            raise HubError(413, f"That is {rows:,} rows; the limit is {rules.sweep_rows:,}.",
                           remedy="Use `inferometer sweep` and open its file here.")  # fmt: skip
        return answer(request, _swept(lists))


def _swept(lists: dict[str, list[Any]]) -> dict[str, Any]:
    from inferometer.predict.sweep import sweep  # noqa: PLC0415 - as above

    models = [catalog_model(name) for name in lists["models"]]
    graphs = [model_graph(name) for name in models]
    axes: dict[str, Any] = {
        name: values
        for name, values in lists.items()
        if values and name not in {"models", "devices"} and (name not in SIZES or any(map(SIZES[name], graphs)))
    }
    rows = sweep(models=models, devices=[catalog_device(name) for name in lists["devices"]], **axes)
    return {"rows": len(rows), "columns": {name: plain(rows[name], COLUMNS[name].kind) for name in rows.columns}}


# The API of the atlas: what others have measured.

AtlasName = Annotated[str | None, Query(min_length=1, max_length=200)]
_MOST = 5000
_MOST_PREDICTED = 300  # predictions that one request may cost


def atlas_router() -> APIRouter:
    api = APIRouter(responses=ERRORS)

    @api.get("/atlas", tags=["atlas"], responses={200: json_response()})
    def published(  # noqa: PLR0913, PLR0917 - what a person filters by
        request: Request,
        model: AtlasName = None,
        device: AtlasName = None,
        runtime: AtlasName = None,
        dataset: AtlasName = None,
        quantity: AtlasName = None,
        unit: AtlasName = None,
        weights: AtlasName = None,
        limit: Annotated[int, Query(ge=1, le=_MOST)] = 2000,
        predict: bool = False,
    ) -> Response:
        """Published measurements by columns, newest first; with `predict` a prediction beside each, if there is one."""
        asked = {
            "model": model, "device": device, "runtime": runtime, "dataset": dataset, "quantity": quantity,
            "unit": unit, "weights": weights,
        }  # fmt: skip
        most = min(limit, _MOST_PREDICTED) if predict else limit
        return answer(request, atlas_columns(asked, limit=most, predict=predict))

    return api

"""The API of the catalog and the cost model: devices, models, formulas, predictions, sweeps.

It takes catalog names only, never paths.
"""

import math
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.requests import Request
from starlette.responses import Response

from inferometer.core.codec import document
from inferometer.hub.web.answers import ERRORS, answer, json_response
from inferometer.hub.web.failures import HubError
from inferometer.hub.web.guard.catalog_names import catalog_device, catalog_model
from inferometer.hub.web.guard.rules import Rules
from inferometer.hub.web.pages.catalog import device_rows, model_rows
from inferometer.known.formulas.listing import calculation_record, formula_document, formula_records
from inferometer.known.formulas.registry import find_formula
from inferometer.predict.flags import FLAGS, Takes
from inferometer.predict.sweep.columns import COLUMNS
from inferometer.understand.view.catalog_tables import CatalogTable, catalog_table, tables_table

Name = Annotated[str, Field(min_length=1, max_length=100)]
Size = Annotated[int, Field(ge=1, le=100_000_000)]
Count = Annotated[int, Field(ge=1, le=4096)]
_TAKEN: dict[Takes, Any] = {
    "whole": (Annotated[int, Field(ge=0, le=100_000_000)] | None, None),
    "number": (Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None, None),
    "share": (Annotated[float, Field(ge=0, le=1)] | None, None),
    "switch": (bool, False),
    "text": (Name | None, None),
    "texts": (Annotated[list[Name], Field(max_length=20)], []),
}
_Flags: Any = create_model("_Flags", **{name: _TAKEN[flag.takes] for name, flag in FLAGS.items()})


class PredictRequest(_Flags):  # type: ignore[misc] # made from the table of the command's flags
    """One model, some devices, the workload, and the command's flags. What is not given is the model's default."""

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
    threads: Count | None = None
    prefill_on: Name | None = None
    priors: bool = False
    users: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    tokens_per_user: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    size: list[Name] = Field(default=[], max_length=20)
    calibration: Name | None = None
    what_if: list[Name] = Field(default=[], max_length=20)
    edgeprofiler: bool = False
    ops: bool = False


class CalculateRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inputs: dict[str, Annotated[str, Field(max_length=2000)]] = Field(max_length=30)


class SweepRequest(BaseModel):
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
        from inferometer.hub.web.pages.controls import controls_of  # noqa: PLC0415 - the cost model, with the first prediction

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
        from inferometer.hub.web.pages.predictions import predictions  # noqa: PLC0415 - the cost model, with the first prediction

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
    from inferometer.predict.applicable import SIZES  # noqa: PLC0415 - as above
    from inferometer.predict.ask import model_graph  # noqa: PLC0415 - as above
    from inferometer.predict.sweep.rows import plain  # noqa: PLC0415 - as above
    from inferometer.predict.sweep.run import sweep  # noqa: PLC0415 - as above

    models = [catalog_model(name) for name in lists["models"]]
    graphs = [model_graph(name) for name in models]
    axes: dict[str, Any] = {
        name: values
        for name, values in lists.items()
        if values and name not in {"models", "devices"} and (name not in SIZES or any(map(SIZES[name], graphs)))
    }
    rows = sweep(
        models=models,
        devices=[catalog_device(name) for name in lists["devices"]],
        **axes,
    )
    return {"rows": len(rows), "columns": {name: plain(rows[name], COLUMNS[name].kind) for name in rows.columns}}

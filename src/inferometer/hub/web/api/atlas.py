"""The API of the atlas: what others have measured."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from inferometer.hub.web.answers import ERRORS, answer, json_response
from inferometer.hub.web.pages.catalog import atlas_columns

Name = Annotated[str | None, Query(min_length=1, max_length=200)]
_MOST = 5000
_MOST_PREDICTED = 300  # predictions that one request may cost


def router() -> APIRouter:
    api = APIRouter(responses=ERRORS)

    @api.get("/atlas", tags=["atlas"], responses={200: json_response()})
    def published(  # noqa: PLR0913, PLR0917 - what a person filters by
        request: Request,
        model: Name = None,
        device: Name = None,
        runtime: Name = None,
        dataset: Name = None,
        quantity: Name = None,
        unit: Name = None,
        weights: Name = None,
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

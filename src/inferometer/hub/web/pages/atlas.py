"""The atlas as columns for the page and the API: what was asked, newest first, with the link of every row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.known.atlas.looking import atlas
from inferometer.known.atlas.measurement import QUANTITIES
from inferometer.known.atlas.shipped import known_models, load, own_datasets, shipped_datasets, source_named
from inferometer.understand.view.charts.theme import COLOURS
from inferometer.understand.view.published import listing_row

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

    from inferometer.known.atlas.table import AtlasTable

FILTERS = ("model", "device", "runtime", "dataset", "quantity", "unit", "weights")
_PREDICTING_S = 4.0  # that one request may spend on it: each model is a graph to be read
_NAMES = 400  # that a list of suggestions offers
_TEXTS = ("date", "device", "model", "runtime", "formats", "sizes", "quantity", "source", "link")


def atlas_values(query: QueryParams) -> dict[str, Any]:
    """The form as the URL fills it, and the names that it suggests."""
    table = load()
    data = {
        "asked": {name: query[name] for name in FILTERS if query.get(name)},
        "suggested": {
            "model": sorted(known_models())[:_NAMES],
            "device": sorted(str(name) for name in table.distinct("device") if name),
            "runtime": sorted(str(name) for name in table.distinct("engine") if name),
            "dataset": [*shipped_datasets(), *own_datasets()],
            "quantity": list(QUANTITIES),
            "unit": sorted(str(name) for name in table.distinct("unit") if name),
        },
        "colours": list(COLOURS),
    }
    return {"data": data, "total": len(table), "devices": len(table.distinct("device_published"))}


def atlas_columns(asked: dict[str, str | None], *, limit: int, predict: bool) -> dict[str, Any]:
    """At most `limit` rows by columns. Of more, every n-th: all datasets and dates stay in sight."""
    table = atlas(**asked)
    shown = table.take(np.linspace(0, len(table) - 1, limit).astype(int)) if len(table) > limit else table
    rows = list(shown.rows())
    lines = []
    for row in rows:
        source = source_named(row.source)
        lines.append({**listing_row(row, source), "link": source.link(row.place) or None})
    texts = {name: _coded([line[name] for line in lines]) for name in _TEXTS}
    predicted, tried = _predictions(shown) if predict else ([None] * len(rows), 0)
    return {
        "total": len(table),
        "rows": len(rows),
        "seconds": shown["seconds"].tolist(),
        "predicted_s": predicted,
        "tried": tried,
        "texts": texts,
    }


def _coded(values: list[Any]) -> dict[str, Any]:
    """Texts as codes into the distinct ones: most rows share them."""
    places = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return {"values": list(places), "codes": [places[value] for value in values]}


def _predictions(table: AtlasTable) -> tuple[list[float | None], int]:
    """A time for each row, None where there is none, and how many rows there was time for: every eighth one first."""
    from inferometer.predict.published_rows import predicted_seconds  # noqa: PLC0415 - only where it was asked for

    rows = list(table.rows())
    found: list[float | None] = [None] * len(rows)
    ends = time.monotonic() + _PREDICTING_S
    for tried, index in enumerate(sorted(range(len(rows)), key=lambda index: (index % 8, index))):
        if time.monotonic() > ends:
            return found, tried
        found[index] = predicted_seconds(rows[index])
    return found, len(rows)

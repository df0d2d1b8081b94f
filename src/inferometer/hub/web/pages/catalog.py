"""The values for the templates of devices, formulas, predictions and sweeps."""

import time
from typing import Any
from urllib.parse import urlencode

import numpy as np
from starlette.datastructures import QueryParams

from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import UnitError
from inferometer.core.units import format_quantity, parse_quantity
from inferometer.hub.web.pages.predictions import field_groups, name_lists
from inferometer.known import device, devices, models
from inferometer.known.atlas import QUANTITIES
from inferometer.known.atlas.looking import atlas
from inferometer.known.atlas.shipped import known_models, load, own_datasets, shipped_datasets, source_named
from inferometer.known.atlas.table import AtlasTable
from inferometer.known.files import row_named
from inferometer.known.formulas.listing import formula_document
from inferometer.known.formulas.registry import SECTIONS, all_formulas, find_formula
from inferometer.predict.fields import FIELDS
from inferometer.predict.sweep.columns import COLUMNS, HIGHER_IS_BETTER, INPUTS, unit_of
from inferometer.understand.view.catalog_tables import TABLES, catalog_table
from inferometer.understand.view.charts.render import COLOURS, column_title
from inferometer.understand.view.published import listing_row
from inferometer.understand.view.records import device_record, model_record
from inferometer.understand.view.table import cell_text

_FIRST_MODEL, _FIRST_DEVICES = "llama-3.2-1b", ("nvidia-h200", "nvidia-l4", "raspberry-pi-5")
_FORMATS = ("f32", "bf16", "f16", "f8e4m3", "i8", "q8_0", "q6_k", "q5_k", "q4_k", "q4_0", "i4", "q3_k", "q2_k")


# What the list of devices is sorted by; a device without the figure comes last either way.
_DEVICE_COLUMNS = {
    "title": "Device", "unit": "Unit", "year": "Year", "memory": "Memory", "bandwidth": "Bandwidth", "f32": "f32",
    "half": "bf16/f16", "i8": "i8", "power": "Power", "price": "Price",
}  # fmt: skip
_DEVICES_A_PAGE = 100  # some 100 kB


_TEXTS = frozenset({"title", "unit"})


def device_list(query: QueryParams) -> dict[str, Any]:
    """One page of the devices that have all the words, sorted as the URL says."""
    words, sort, asked = query.get("words", "")[:200], query.get("sort", ""), query.get("page", "1")
    found = _devices_with(words, sort)
    pages = max(1, -(-len(found) // _DEVICES_A_PAGE))
    page = min(max(int(asked), 1), pages) if asked.isdecimal() and len(asked) < 6 else 1

    def link(**more: Any) -> str:
        return "?" + urlencode({"words": words, "sort": sort, **more})

    headings = []
    for key, title in _DEVICE_COLUMNS.items():
        rising, falling = sort == key, sort == f"-{key}"
        # A figure is looked at from the largest on, a name from A on.
        then = key if falling or (key in _TEXTS and not rising) else f"-{key}"
        order = "ascending" if rising else "descending" if falling else None
        headings.append({"title": title, "sorted": order, "number": key not in _TEXTS, "href": link(sort=then)})
    return {
        "devices": found[(page - 1) * _DEVICES_A_PAGE : page * _DEVICES_A_PAGE], "total": len(found), "page": page,
        "pages": pages, "words": words, "sort": sort, "headings": headings,
        "before": link(page=page - 1) if page > 1 else None, "after": link(page=page + 1) if page < pages else None,
    }  # fmt: skip


def _devices_with(words: str, sort: str) -> list[dict[str, Any]]:
    found = [row for row in device_rows() if all(word in _device_words(row) for word in words.lower().split())]
    key = sort.removeprefix("-")
    if key not in _DEVICE_COLUMNS:
        return found
    known = [row for row in found if row.get(key) is not None]
    known.sort(key=lambda row: str(row[key]).lower() if key in _TEXTS else row[key], reverse=sort.startswith("-"))
    return [*known, *(row for row in found if row.get(key) is None)]


def _device_words(row: dict[str, Any]) -> str:
    named = ("name", "title", "vendor", "unit", "kind", "family", "chip", "year")
    return " ".join(str(row[name]) for name in named if row.get(name)).lower()


def device_rows() -> list[dict[str, Any]]:
    return [device_record(device) for device in devices().values()]


def model_rows() -> list[dict[str, Any]]:
    return [model_record(model) for model in models().values()]


def catalog_values(name: str) -> dict[str, Any]:
    """One of the other tables of the catalog, with the text of every cell and the number to sort it by."""
    table, rows = catalog_table(name), []
    for record in table.records():
        cells = [
            {"text": cell_text(column, record[column.key]), "numeric": column.numeric, "value": record[column.key] or 0,
             "device": column.key == "device" and row_named("devices", record[column.key]) is not None}
            for column in table.columns
        ]  # fmt: skip
        words = " ".join(str(value) for value in record.values() if isinstance(value, str)).lower()
        rows.append({"name": record["name"], "cells": cells, "words": words})
    return {"table": table, "tables": list(TABLES.values()), "rows": rows}


def formats() -> list[str]:
    return [name for name in _FORMATS if name in DTYPES]


def predict_values(query: QueryParams) -> dict[str, Any]:
    """The form as the URL fills it, so that an answer can be shared; unknown names fall back to the defaults."""
    model = query.get("model", _FIRST_MODEL)
    chosen = [name for name in query.getlist("on") if row_named("devices", name) is not None]
    usual = [name for name in _FIRST_DEVICES if row_named("devices", name) is not None]
    data = {
        "model": model if row_named("models", model) is not None else _FIRST_MODEL,
        "chosen": {name: device(name).title for name in chosen or usual},
        "asked": {name: query[name] for name in FIELDS if query.get(name)},
    }
    return {"data": data, "formats": formats(), "groups": field_groups(), "names": name_lists()}


def choices() -> dict[str, dict[str, str]]:
    """The names to choose from with their titles: a page asks for them when somebody comes to choose."""
    return {
        "models": {name: model.title for name, model in models().items()},
        "devices": {name: found.title for name, found in devices().items()},
    }


def formula_sections() -> list[dict[str, Any]]:
    by_section: dict[str, list[dict[str, Any]]] = {name: [] for name in SECTIONS}
    for formula in all_formulas().values():
        by_section[formula.section].append(
            {
                "name": formula.name,
                "title": formula.title,
                "signature": str(formula.signature),
                "unit": formula.unit,
            }
        )
    return [
        {"name": name, "title": SECTIONS[name], "formulas": formulas}
        for name, formulas in by_section.items()
        if formulas
    ]


def formula_values(name: str) -> dict[str, Any]:
    formula = find_formula(name)
    document = formula_document(formula)
    inputs = [
        {
            "name": argument,
            "unit": quantity.unit,
            "choices": quantity.choices,
            "sequence": quantity.sequence,
            "example": _typed(
                formula.example.get(argument, formula.signature.defaults.get(argument, "")), quantity.unit
            ),
        }
        for argument, quantity in formula.inputs.items()
    ]
    return {"formula": document, "inputs": inputs, "section": SECTIONS[formula.section], "data": {"name": name}}


def _typed(value: Any, unit: str) -> str:
    """An example as a person would type it: with a unit, if that parses to the same number."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return ", ".join(_typed(item, unit) for item in value)
    if isinstance(value, str | bool):
        return str(value)
    plain = f"{value:.12g}" if float(f"{value:.12g}") == value else repr(value)
    try:
        written = format_quantity(value, unit, digits=6)
        return written if parse_quantity(written, unit) == value else plain
    except UnitError:
        return plain


def sweep_values(query: QueryParams) -> dict[str, Any]:
    columns = {
        name: {"title": column_title(name), "unit": unit_of(name), "kind": column.kind, "input": name in INPUTS,
               "higher": name in HIGHER_IS_BETTER}
        for name, column in COLUMNS.items()
    }  # fmt: skip
    data = {
        "columns": columns,
        "colours": list(COLOURS),
        "asked": {
            "models": query.getlist("models") or [_FIRST_MODEL],
            "devices": query.getlist("devices") or list(_FIRST_DEVICES[:2]),
        },
    }
    return {"data": data, "formats": formats()}


# The atlas as columns for the page and the API: what was asked, newest first, with the link of every row.

FILTERS = ("model", "device", "runtime", "dataset", "quantity", "unit", "weights")
_PREDICTING_S = 4.0  # that one request may spend on it: each model is a graph to be read
_NAMES = 400  # that a list of suggestions offers
_ATLAS_TEXTS = ("date", "device", "model", "runtime", "formats", "sizes", "quantity", "source", "link")


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
    texts = {name: _coded([line[name] for line in lines]) for name in _ATLAS_TEXTS}
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

"""The catalog's names of a table's rows, looked up again from what was published."""

from dataclasses import replace

import numpy as np

from inferometer.known.atlas.form import catalog_device
from inferometer.known.atlas.names import match_model
from inferometer.known.atlas.table import AtlasTable, TextColumn


def renamed(table: AtlasTable) -> AtlasTable:
    """As the forms do when they read a line, once for each combination of names."""
    device = _looked_up(table, ("device_spelling", "device_published", "unit"), _device)
    model = _looked_up(table, ("model_spelling", "model_published", "dataset", "part"), _model)
    return replace(table, texts={**table.texts, "device": device, "model": model})


def _device(spelling: str | None, name: str, unit: str | None) -> str | None:
    return catalog_device(spelling or name, unit)


def _model(spelling: str | None, name: str, dataset: str, part: str | None) -> str | None:
    return match_model(spelling or name, dataset=dataset, part=part)


def _looked_up(table: AtlasTable, names: tuple[str, ...], look_up: object) -> TextColumn:
    columns = [table.texts[name] for name in names]
    keys = np.stack([column.codes for column in columns], axis=1)
    distinct, places = np.unique(keys, axis=0, return_inverse=True)
    answers = [
        look_up(*(column.values[code] for column, code in zip(columns, key, strict=True)))  # type: ignore[operator] # a function of as many texts as there are names
        for key in distinct
    ]
    values = tuple(dict.fromkeys(answers))
    codes = np.array([values.index(answer) for answer in answers], dtype=np.int32)
    return TextColumn(codes=codes[places.reshape(-1)] if len(codes) else keys[:, 0], values=values or (None,))

"""Looking things up: which rows are of a model, on a device, in an engine. `inferometer.atlas(…)` is the verb."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferometer.core.errors import UnknownNameError
from inferometer.known.atlas.measurement import QUANTITIES
from inferometer.known.atlas.names import match_model, normal_form, same_models
from inferometer.known.atlas.shipped import index, known_models, load, tables_with
from inferometer.known.atlas.table import AtlasTable, joined


def atlas(  # noqa: PLR0913 - what a person filters by
    *,
    model: str | None = None,
    device: str | None = None,
    runtime: str | None = None,
    dataset: str | None = None,
    quantity: str | None = None,
    unit: str | None = None,
    weights: str | None = None,
) -> AtlasTable:
    """What others measured, as columns, newest first: `atlas(model="resnet50", device="nvidia-rtx-4090")["seconds"]`.

    `model` and `device` are catalog names, or words of the names that were published: `device="galaxy s25"`. A name
    that nobody has is an error with suggestions; a combination that nobody measured is an empty table.
    """
    table = _table(model, device, dataset)
    if model is not None:
        table = of_model(table, model)
    if device is not None:
        table = of_device(table, device)
    for name, wanted in (("engine", runtime), ("quantity", quantity), ("unit", unit), ("weights", weights)):
        if wanted is not None:
            table = _only(table, name, wanted)
    return table.newest_first()


def _table(model: str | None, device: str | None, dataset: str | None) -> AtlasTable:
    """What to look through: everything, unless a dataset is named or the model is one that the atlas has."""
    if dataset is not None:
        return load([dataset])
    names = frozenset[str]() if model is None else model_names(model)
    on = device if device in index().devices else None
    tables = tables_with(names, on) if names else ()
    return joined(tables) if any(map(len, tables)) else load()


def model_names(asked: str) -> frozenset[str]:
    """What the atlas may call a model, and its parts. A name that it has itself needs no look into the catalog."""
    names = same_models(asked)
    if not names & known_models():
        known = match_model(asked)
        names = same_models(known) if known else frozenset()
    return names | _parts(names) | _parts(frozenset({asked.casefold()}))


def _parts(names: frozenset[str]) -> frozenset[str]:
    """`whisper-base/encoder` of `whisper-base`."""
    return frozenset(known for known in known_models() if known.partition("/")[0] in names and "/" in known)


def of_model(table: AtlasTable, asked: str) -> AtlasTable:
    """The rows of a model: of its catalog name, else of a published name, else of all that have the words."""
    by_name = table.texts["model"].mask(model_names(asked))
    if by_name.any():
        return table.take(by_name)
    return _named(table, asked, ("model_published", "model_spelling"), what="model in the atlas")


def of_device(table: AtlasTable, asked: str) -> AtlasTable:
    by_name = table.texts["device"].mask([asked])
    if by_name.any():
        return table.take(by_name)
    return _named(table, asked, ("device_published", "device_spelling", "device"), what="device in the atlas")


def _named(table: AtlasTable, asked: str, columns: tuple[str, ...], *, what: str) -> AtlasTable:
    form, words = normal_form(asked), asked.casefold().split()
    ways: tuple[Callable[[str], bool], ...] = (
        lambda name: any(normal_form(part) == form for part in name.split("|")),
        lambda name: all(word in name.casefold() for word in words),
    )
    for way in ways if form else ():
        mask = _mask(table, columns, way)
        if mask.any():
            return table.take(mask)
    everything = load()
    known = {part for column in columns for name in everything.distinct(column) if name for part in name.split("|")}
    if asked in known or any(_mask(everything, columns, way).any() for way in ways if form):
        return table.take(np.zeros(len(table), dtype=bool))  # known, though not with the rest of what was asked
    # Published names are long: a typo is nearer to their first words, which are enough to ask for.
    short = {" ".join(name.replace(",", " ").split()[: len(words)]) for name in known}
    raise UnknownNameError(what, asked, known | short, listing="A part of the name is enough.")


def _mask(table: AtlasTable, columns: Iterable[str], way: Callable[[str], bool]) -> NDArray[Any]:
    mask = np.zeros(len(table), dtype=bool)
    for column in columns:
        mask |= table.texts[column].mask([name for name in table.distinct(column) if name is not None and way(name)])
    return mask


def _only(table: AtlasTable, column: str, wanted: str) -> AtlasTable:
    """Rows with this text; a text that the whole atlas has nowhere is an error."""
    mask = table.texts[column].mask([wanted])
    if not mask.any():
        known = QUANTITIES if column == "quantity" else [name for name in load().distinct(column) if name]
        if wanted not in known:
            listing = f"There are: {', '.join(sorted(known))}." if len(known) < 40 else None
            raise UnknownNameError(f"{_WORDS.get(column, column)} in the atlas", wanted, known, listing=listing)
    return table.take(mask)


_WORDS = {"engine": "runtime", "weights": "format of weights"}

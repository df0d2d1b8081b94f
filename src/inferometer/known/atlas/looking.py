"""Looking things up: which rows are of a model, on a device, in an engine; and the row nearest to a question.

`inferometer.atlas(…)` is the verb.
"""

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferometer.core.dtypes import dtype
from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known.atlas.measurement import QUANTITIES, PublishedMeasurement
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


# The published measurement nearest to a question: same model, device and sizes, and as near an engine as there is.
#
# Only what can be compared counts. Two times can be compared if the model, the device, the batch and the other sizes
# are the same, the weights take about as many bits and the products are computed in the same kind of number.

_SIZE = 0.05  # prompts of 1,023 and 1,024 tokens are one size
_BITS = 0.15  # q4_0 and q4_k are one size too
_CONTEXT = 512  # tokens in the cache that hardly change a decode step
_KINDS = {"bf16": "f16", "tf32": "f32", "i16": "f16"}  # formats that the same units compute at about the same speed


@frozen
class AtlasComparison:
    """What a published measurement is to be compared with: one phase of a question."""

    model: str
    device: str
    quantity: str
    engine: str | None = None
    weights: str | None = None
    activations: str | None = None
    computed: frozenset[str] = field(default_factory=frozenset)  # formats of products; none if it is not known
    count: int = 1
    batch: int = 1
    image: int | None = None
    prompt: int | None = None
    generate: int | None = None
    context: float | None = None  # in the cache, mean over the measured steps


def nearest_published(asked: AtlasComparison) -> PublishedMeasurement | None:
    """The best of the comparable rows: the same engine first, then the same formats, then the newest."""
    rows = _with_all_cores(_rows(asked.model, asked.device, quantity=asked.quantity, count=asked.count))
    comparable = [row for row in rows if _same_sizes(row, asked) and _same_formats(row, asked)]
    return min(comparable, key=lambda row: _distance(row, asked)) if comparable else None


def count_published(model: str, device: str) -> int:
    """How many figures of a model on a device there are, under whatever conditions."""
    return len(_rows(model, device))


def _rows(model: str, device: str, **wanted: str | int) -> tuple[PublishedMeasurement, ...]:
    names = same_models(model)
    parts = (table.where(model=names, device=device, part=None, **wanted) for table in tables_with(names, device))
    return tuple(row for part in parts for row in part.rows())


def _with_all_cores(rows: tuple[PublishedMeasurement, ...]) -> list[PublishedMeasurement]:
    """Rows that had the most of a device that anybody gave a model: all cores of an NPU, all threads of a CPU."""
    most: dict[str, float] = {}
    for row in rows:
        most[row.device_published] = max(most.get(row.device_published, 0), _share(row))
    return [row for row in rows if _share(row) == most[row.device_published]]


def _share(row: PublishedMeasurement) -> float:
    """What tells rows of one device apart: threads on a CPU; else cores, which are all of them where none are said."""
    stated = row.settings.get("threads", "0") if row.unit == "cpu" else row.settings.get("cores", "inf")
    return float(stated) if stated == "inf" or stated.isdecimal() else 0


def _same_sizes(row: PublishedMeasurement, asked: AtlasComparison) -> bool:
    if row.batch != asked.batch or row.input is not None:
        return False
    if row.quantity == "forward":
        return row.image == asked.image and (asked.image is not None or _near(row.prompt, asked.prompt))
    if row.quantity == "prefill":
        return _near(row.prompt, asked.prompt) and not row.context
    if row.quantity in {"request", "ttft", "tpot"}:
        return _near(row.prompt, asked.prompt) and _near(row.generate, asked.generate)
    return row.quantity == "decode" and _near_context(row, asked.context)


def _near(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one / other - 1) <= _SIZE


def _near_context(row: PublishedMeasurement, asked: float | None) -> bool:
    """A context that was not stated is taken as short, which benchmarks of a single request mostly are."""
    mean = (row.context or 0) + (row.generate or 0) / 2
    return asked is None or abs(mean - asked) <= max(_CONTEXT, 0.25 * asked)


def _same_formats(row: PublishedMeasurement, asked: AtlasComparison) -> bool:
    if row.weights is None or asked.weights is None:
        return False
    computed = {_KINDS.get(name, name) for name in asked.computed}
    if row.activations is not None and computed and _KINDS.get(row.activations, row.activations) not in computed:
        return False
    if "autocast" in row.settings:
        return True  # stored in one format and computed in another: only the second decides
    ratio = float(dtype(row.weights).bits / dtype(asked.weights).bits)
    if row.quantity == "forward" and ratio < 1 and (row.engine, row.weights in asked.computed) == (asked.engine, True):
        return True  # an engine that computes in fewer bits than a model states has converted its weights
    return abs(ratio - 1) <= _BITS


def _distance(row: PublishedMeasurement, asked: AtlasComparison) -> tuple[object, ...]:
    family = (asked.engine or "").partition("-")[0]
    engine = 0 if row.engine == asked.engine else 1 if family and (row.engine or "").startswith(family) else 2
    newest = tuple(-part for part in _numbers(row.date)), tuple(-part for part in _numbers(row.version))
    stored = asked.activations is not None and row.activations != asked.activations
    return engine, row.weights != asked.weights, stored, *newest


def _numbers(text: str | None) -> tuple[int, ...]:
    """Dates and versions as numbers, so that 2.10 is later than 2.9; none at all is the oldest."""
    parts = (text or "").replace("-", ".").split(".")
    return tuple(int("".join(filter(str.isdecimal, part)) or 0) for part in parts) if text else (0,)

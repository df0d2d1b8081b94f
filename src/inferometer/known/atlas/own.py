"""A user's own tables: added from a CSV file, kept in the data folder, and joined to the others at reading."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known.atlas.measurement import PublishedMeasurement, SetAside
from inferometer.known.atlas.reading import read_atlas
from inferometer.known.atlas.shipped import ENDING, load, own_datasets, own_folder, shipped_datasets
from inferometer.known.atlas.sources.tidy import OWN
from inferometer.known.atlas.storing import write_table
from inferometer.known.atlas.table import joined, table_of

Doubt = Callable[[PublishedMeasurement], str | None]  # why a row cannot be, or None


@frozen
class Added:
    """What became of a file: the dataset's name, its rows, and the lines set aside."""

    dataset: str
    rows: int
    set_aside: tuple[SetAside, ...] = ()


def add(path: Path, *, name: str | None = None, again: bool = False, doubts: Sequence[Doubt] = ()) -> Added:
    """Take a file's measurements into the data folder. `again` replaces a dataset of the same name."""
    dataset = name or _slug(path)
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", dataset):
        raise DomainError(f"{dataset!r} is no name for a table.", remedy="Use small letters, digits and dashes.")
    if dataset in shipped_datasets():
        raise DomainError(f"The atlas has a dataset {dataset} already.", remedy="Choose another name: --name.")
    if dataset in own_datasets() and not again:
        raise DomainError(
            f"You have a table {dataset} already.", remedy="Replace it with --again, or choose another name: --name."
        )
    reading = read_atlas(path)
    others = load([known for known in (*shipped_datasets(), *own_datasets()) if known != dataset])
    kept: list[PublishedMeasurement] = []
    set_aside = list(reading.set_aside)
    # The figures that other datasets have already, and where. Only rows with an equal figure are looked at.
    near = (
        others.take(np.isin(others.numbers["figure"], reading.table.numbers["figure"])) if len(others) else joined([])
    )
    known = {_figure(row): f"the atlas has this figure already: {row.dataset}, line {row.line}." for row in near.rows()}
    for row in reading.table.rows():
        reason = known.get(_figure(row)) or next((why for doubt in doubts if (why := doubt(row))), None)
        if reason is None:
            own = row.dataset == OWN
            kept.append(replace(row, dataset=dataset, source=dataset if own else row.source))
        else:
            set_aside.append(SetAside(file=row.file, line=row.line, reason=reason))
    ordered = tuple(sorted(set_aside, key=lambda aside: aside.line))
    if kept:
        own_folder().mkdir(parents=True, exist_ok=True)
        write_table(own_folder() / f"{dataset}{ENDING}", table_of(kept))
    return Added(dataset=dataset, rows=len(kept), set_aside=ordered)


def remove(dataset: str) -> None:
    """Forget a table of one's own."""
    if dataset not in own_datasets():
        own = own_datasets()
        listing = f"Yours are: {', '.join(own)}." if own else "You have none."
        raise UnknownNameError("table of yours", dataset, own, listing=listing)
    (own_folder() / f"{dataset}{ENDING}").unlink()


def _slug(path: Path) -> str:
    stem = path.name.removesuffix(".gz").removesuffix(".csv")
    return re.sub(r"[^a-z0-9]+", "-", stem.casefold()).strip("-") or OWN


_SAME = (
    "device_published", "model_published", "engine", "quantity", "figure_unit", "batch", "image", "prompt", "generate",
    "context", "concurrency", "weights", "count", "figure",
)  # fmt: skip


def _figure(row: PublishedMeasurement) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in _SAME)

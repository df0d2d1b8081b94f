"""A CSV file of any known form → a table, and the lines set aside; and the tables that users add themselves.

The form is recognised by the columns, not by the file's name, so a file with other devices and models reads as well.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np

from inferometer.core.errors import DomainError, FormatError, InferometerError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known.atlas.form import CsvLine, LineError, PublishedForm, open_csv
from inferometer.known.atlas.measurement import PublishedMeasurement, SetAside
from inferometer.known.atlas.shipped import ENDING, load, own_datasets, own_folder, shipped_datasets, write_table
from inferometer.known.atlas.sources.tidy import OWN
from inferometer.known.atlas.table import AtlasTable, joined, table_of

# The forms, the ones with the most telling columns first; our own tidy form is the last.
_MODULES = (
    "timm", "qai_hub", "ncnn", "openvino", "llamacpp", "mlperf", "npus", "ultralytics", "servers", "boards", "world",
    "tidy",
)  # fmt: skip


@frozen
class AtlasReading:
    """What a file gave: its form, the measurements, and the lines that were not taken."""

    form: str
    table: AtlasTable
    set_aside: tuple[SetAside, ...] = ()


def forms() -> tuple[PublishedForm, ...]:
    modules = (import_module(f"inferometer.known.atlas.sources.{name}") for name in _MODULES)
    return tuple(form for module in modules for form in module.FORMS)


def form_of(columns: frozenset[str]) -> PublishedForm | None:
    return next((form for form in forms() if form.columns <= columns), None)


def read_atlas(path: Path) -> AtlasReading:
    """Every measurement in a file. A line that is wrong or repeated is set aside with the reason."""
    header, lines = open_csv(path)
    form = form_of(frozenset(header))
    if form is None:
        tidy = forms()[-1]
        missing = sorted(tidy.columns - set(header))
        raise FormatError(
            f"{path} has none of the known forms: its columns are {', '.join(header[:12])}.",
            remedy=f"For our own form it lacks {', '.join(missing)}; docs/atlas.md describes it.",
        )
    rows: list[PublishedMeasurement] = []
    set_aside: list[SetAside] = []
    seen: dict[tuple[object, ...], int] = {}
    for line in lines:
        try:
            taken = _taken(form, line)
            before = seen.setdefault(tuple(map(_figure_key, taken)), line.number)
            if before != line.number:
                raise LineError(f"the same figures as line {before}.")
            rows += taken
        except InferometerError as error:
            set_aside.append(SetAside(file=path.name, line=line.number, reason=str(error)))
    return AtlasReading(form=form.name, table=table_of(rows), set_aside=tuple(set_aside))


def _taken(form: PublishedForm, line: CsvLine) -> tuple[PublishedMeasurement, ...]:
    """A line's measurements, all of them checked: a line is taken whole or not at all."""
    rows = tuple(form.read(line))
    if not rows:
        raise LineError("it holds no figure.")
    for row in rows:
        seconds = row.seconds  # a wrong unit says so here
        if not 0 < seconds < _LONGEST_S:
            raise LineError(f"{row.figure:g} {row.figure_unit} would be {seconds:g} s, which cannot be.")
    return rows


_LONGEST_S = 30 * 24 * 3600.0  # nobody waits a month for one step

_ELSEWHERE = frozenset({"line", "date", "place", "file", "precision_published"})


def _figure_key(row: PublishedMeasurement) -> tuple[object, ...]:
    """What two rows share if they are one figure published twice: everything but where, when and in which words."""
    values = (getattr(row, name) for name in row.__slots__ if name not in _ELSEWHERE)  # type: ignore[attr-defined] # `frozen` gives slots
    return tuple(tuple(sorted(value.items())) if isinstance(value, dict) else value for value in values)


# A user's own tables: added from a CSV file, kept in the data folder, and joined to the others at reading.

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

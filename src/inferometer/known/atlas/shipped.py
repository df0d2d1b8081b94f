"""The tables at hand: those of the package, and the user's own in the data folder.

A dataset is one file, or one a device where it is large (`timm~nvidia-rtx-4090`). `index.json` says which files have a
model and which a device, so that a question about one model reads a few thousand rows.
"""

import gzip
import math
import tomllib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from inferometer.core import settings
from inferometer.core.codec import settled
from inferometer.core.errors import FormatError, SchemaError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known.atlas.measurement import AtlasSource
from inferometer.known.atlas.names import DATA
from inferometer.known.atlas.table import NUMBERS, TEXTS, AtlasTable, TextColumn, joined

TABLES = DATA / "tables"
INDEX = DATA / "index.json"
ENDING = ".json.gz"


@frozen
class AtlasIndex:
    """The package's files by the models and devices in them."""

    files: tuple[str, ...] = ()
    models: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    devices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def own_folder() -> Path:
    return settings.data_folder() / "atlas"


def shipped_datasets() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition("~")[0] for name in index().files))


def own_datasets() -> tuple[str, ...]:
    return tuple(sorted(path.name.removesuffix(ENDING) for path in own_folder().glob(f"*{ENDING}")))


def files_of(dataset: str) -> tuple[Path, ...]:
    """The files of a dataset; a user's own comes first, and an unknown name is an error with suggestions."""
    own = own_folder() / f"{dataset}{ENDING}"
    if own.is_file():
        return (own,)
    shipped = tuple(_shipped(name) for name in index().files if name.partition("~")[0] == dataset)
    if not shipped:
        known = (*shipped_datasets(), *own_datasets())
        raise UnknownNameError("dataset", dataset, known, listing=f"There are: {', '.join(known)}.")
    return shipped


def load(datasets: Iterable[str] | None = None) -> AtlasTable:
    """The rows of these datasets, or of all: the package's, then the user's own."""
    wanted = (*shipped_datasets(), *own_datasets()) if datasets is None else tuple(dict.fromkeys(datasets))
    return joined([table_in(path) for dataset in wanted for path in files_of(dataset)])


def tables_with(models: Iterable[str], device: str | None = None) -> tuple[AtlasTable, ...]:
    """The tables that have one of these models, and the device if one is named; the user's own are always looked at."""
    known = index()
    places = {place for model in models for place in known.models.get(model, ())}
    if device is not None:
        places &= set(known.devices.get(device, ()))
    shipped = (_shipped(known.files[place]) for place in sorted(places))
    own = (own_folder() / f"{dataset}{ENDING}" for dataset in own_datasets())
    return tuple(table_in(path) for path in (*shipped, *own))


def table_in(path: Path) -> AtlasTable:
    return _loaded(path, path.stat().st_mtime_ns)


def known_models() -> frozenset[str]:
    return frozenset(index().models)


def _shipped(name: str) -> Path:
    return TABLES / f"{name}{ENDING}"


@cache
def _loaded(path: Path, stamp: int) -> AtlasTable:  # noqa: ARG001 - part of the key: a changed file is read again
    return read_table(path)


@cache
def index() -> AtlasIndex:
    return msgspec.json.decode(INDEX.read_bytes(), type=settled(AtlasIndex))


@cache
def sources() -> Mapping[str, AtlasSource]:
    """Every source by its key, whether its rows are in the package or not."""
    rows = tomllib.loads((DATA / "sources.toml").read_text(encoding="utf-8"))
    return {key: AtlasSource(key=key, **fields) for key, fields in rows.items()}


def source_named(key: str) -> AtlasSource:
    """A user's own rows may name a source that nobody else knows: its name is then all there is."""
    known = sources().get(key)
    return known or AtlasSource(key=key, title="a table of yours", short=key, url="", licence="yours")


# AtlasTable ↔ a file: gzipped JSON, column by column, each in the shortest of four ways.
#
# A column that never changes is `{"all": value}`, one that changes seldom `{"runs": [values, lengths]}`, one with few
# distinct values `{"of": [values, codes]}`, and any other a list. Line numbers are written as steps. Published figures
# have few digits, so the file holds them and not the seconds, which follow from them.

SCHEMA = "inferometer.atlas"
VERSION = 1
_DIGITS = 7  # of a figure; nobody measures better than a part in a million


def write_table(path: Path, table: AtlasTable) -> None:
    """The same table makes the same bytes: no time stamp, no file name."""
    path.write_bytes(gzip.compress(msgspec.json.encode(document_of(table)), 9, mtime=0))


def read_table(path: Path) -> AtlasTable:
    try:
        document = msgspec.json.decode(gzip.decompress(path.read_bytes()))
        name, _, version = str(document.get("schema")).rpartition("/")
        if name != SCHEMA or not version.isdecimal() or int(version) > VERSION:
            raise SchemaError(
                f"{path} is of schema {document.get('schema')!r}; this version reads {SCHEMA}/{VERSION}.",
                remedy="Upgrade with `pip install --upgrade inferometer`.",
            )
        return _table(document["rows"], document["columns"])
    except (OSError, EOFError, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path} is not an atlas table: {error}.", remedy="Add its CSV file again.") from None


def document_of(table: AtlasTable) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, column in table.texts.items():
        columns[name] = packed([column.values[code] for code in column.codes.tolist()])
    for name, array in table.numbers.items():
        values = [None if math.isnan(value) else _short(value) for value in array.tolist()]
        columns[name] = packed(_steps(values) if name == "line" else values)
    return {"schema": f"{SCHEMA}/{VERSION}", "rows": len(table), "columns": columns}


def _steps(lines: Sequence[Any]) -> list[Any]:
    return [line - before for before, line in zip([0, *lines], lines, strict=False)]


def _short(value: float) -> float | int:
    """With seven digits; a whole number without a point."""
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def packed(values: Sequence[Any], *, coded: bool = True) -> Any:
    """The way to write a column that is shortest once it is compressed. Codes are not coded again."""
    runs = [(value, sum(1 for _ in group)) for value, group in groupby(values)]
    if len(runs) <= 1:
        return {"all": values[0] if values else None}
    distinct = {value: code for code, value in enumerate(dict.fromkeys(values))}
    ways: list[Any] = [list(values), {"runs": [[value for value, _ in runs], [length for _, length in runs]]}]
    if coded and len(distinct) < len(values) / 2:
        ways.append({"of": [list(distinct), packed([distinct[value] for value in values], coded=False)]})
    return min(ways, key=lambda way: len(zlib.compress(msgspec.json.encode(way), 6)))


def _table(rows: int, columns: dict[str, Any]) -> AtlasTable:
    texts = {name: _text_column(columns.get(name), rows) for name in TEXTS}
    numbers = {name: _numbers(columns.get(name), rows) for name in NUMBERS}
    numbers["line"] = np.cumsum(numbers["line"])
    return AtlasTable(texts=texts, numbers=numbers)


def _text_column(way: Any, rows: int) -> TextColumn:
    """Codes come straight from a packed column: its distinct values are there already."""
    if way is None or (isinstance(way, dict) and "all" in way):
        return TextColumn(codes=np.zeros(rows, dtype=np.int32), values=(None if way is None else way["all"],))
    if isinstance(way, dict) and "of" in way:
        values, codes = way["of"]
        return TextColumn(codes=_unpacked(codes, rows, np.int32), values=tuple(values))
    values, lengths = way["runs"] if isinstance(way, dict) else (way, None)
    known: dict[Any, int] = {}
    codes = np.array([known.setdefault(value, len(known)) for value in values], dtype=np.int32)
    return TextColumn(codes=codes if lengths is None else np.repeat(codes, lengths), values=tuple(known))


def _numbers(way: Any, rows: int) -> Any:
    return np.full(rows, np.nan) if way is None else _unpacked(way, rows, float)


def _unpacked(way: Any, rows: int, kind: Any) -> Any:
    if isinstance(way, list):
        return np.array(way, dtype=kind)  # None becomes NaN
    if "all" in way:
        return np.full(rows, np.nan if way["all"] is None else way["all"], dtype=kind)
    if "runs" in way:
        values, lengths = way["runs"]
        return np.repeat(np.array(values, dtype=kind), lengths)
    values, codes = way["of"]
    return np.array(values, dtype=kind)[_unpacked(codes, rows, np.int32)]

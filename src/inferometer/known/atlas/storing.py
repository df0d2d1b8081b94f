"""AtlasTable ↔ a file: gzipped JSON, column by column, each in the shortest of four ways.

A column that never changes is `{"all": value}`, one that changes seldom `{"runs": [values, lengths]}`, one with few
distinct values `{"of": [values, codes]}`, and any other a list. Line numbers are written as steps. Published figures
have few digits, so the file holds them and not the seconds, which follow from them.
"""

import gzip
import math
import zlib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from inferometer.core.errors import FormatError, SchemaError
from inferometer.known.atlas.table import NUMBERS, TEXTS, AtlasTable, TextColumn

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

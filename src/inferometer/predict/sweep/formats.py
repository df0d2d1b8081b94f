"""Parts of a sweep as bytes of a file: CSV text, or columns of Arrow. Pure functions that any process may run.

What is computed at once shares much and takes little room; what it is written as takes ten times as much, so that is
made a run of rows after the other. A column is made into text at the few points it depends on, and only then spread
over the rows.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from importlib import import_module
from itertools import repeat
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np

from inferometer.core.errors import DomainError, MissingDependencyError
from inferometer.predict.sweep.columns import INPUTS, Kind, SweepColumn
from inferometer.predict.sweep.table import RowsPart, is_none, plain, written_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


# Of text as many rows at once as are read at once; columns take a tenth of the room.
_TEXT_ROWS, _COLUMN_ROWS = 1 << 16, 1 << 17
_NOTED = b"noted"  # in a chunk's file: the columns that are the same in all rows of each part
FORMS = {".csv": "csv", ".parquet": "parquet", ".sqlite": "sqlite", ".db": "sqlite"}


def form_of(path: Path) -> str:
    """The form that a file's name asks for."""
    form = FORMS.get(path.suffix.lower())
    if form is None:
        raise DomainError(f"{path.name!r} does not say what to write.", remedy=f"End the name with {', '.join(FORMS)}.")
    if form == "parquet":
        require_parquet()
    return form


def csv_head(columns: Iterable[str]) -> bytes:
    return (",".join(columns) + "\n").encode()


def pieces_in(parts: Iterable[RowsPart]) -> Iterator[RowsPart]:
    return (piece for part in parts for piece in part.pieces())


def in_runs(pieces: Iterable[RowsPart], most: int) -> Iterator[list[RowsPart]]:
    """Pieces in groups up to a number of rows, or of one longer piece."""
    group: list[RowsPart] = []
    for piece in pieces:
        if group and sum(map(len, group)) + len(piece) > most:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def as_csv(parts: Iterable[RowsPart]) -> Iterator[bytes]:
    return ("".join(map(_csv_lines, run)).encode() for run in in_runs(pieces_in(parts), _TEXT_ROWS))


def _csv_lines(part: RowsPart) -> str:
    """What is the same in all rows is joined once with its neighbours that are."""
    rows = len(part)
    cells: list[Iterable[str]] = []
    same: list[str] = []
    for column in part.columns.values() if rows else ():
        values = np.asarray(part.column(column.name))
        if values.size == 1:
            same += _csv_texts(values, column.kind)
            continue
        if same:
            cells.append(repeat(",".join(same), rows))
            same = []
        # A column that differs from row to row is written in their order already.
        every = values.size == rows
        cells.append(_csv_texts(values, column.kind) if every else _spread(part, column, _csv_texts).tolist())
    if same:
        cells.append(repeat(",".join(same), rows))
    return "\n".join(map(",".join, zip(*cells, strict=True))) + "\n" if rows else ""


def as_tuples(part: RowsPart) -> Iterator[tuple[Any, ...]]:
    """The rows with Python's own values, None for what is not there."""
    return zip(*(_spread(part, column, plain).tolist() for column in part.columns.values()), strict=True)


def _spread(part: RowsPart, column: SweepColumn, convert: Callable[[Any, Kind], list[Any]]) -> Any:
    """A column with each of its own values converted once, spread over the rows."""
    values = np.asarray(part.column(column.name))
    converted = np.empty(values.size, dtype=object)
    converted[:] = convert(values, column.kind)
    return np.broadcast_to(converted.reshape(values.shape), part.shape).ravel()


def _csv_texts(values: Any, kind: Kind) -> list[str]:
    """Numbers as Python writes them, so that reading gives the same number; nothing for what is not there."""
    found = plain(values, kind)
    if kind == "text":
        return ["" if value is None else _quoted(value) for value in found]
    if kind == "flag":
        return ["" if value is None else "true" if value else "false" for value in found]
    return _number_texts(values, kind)


def _number_texts(values: Any, kind: Kind) -> list[str]:
    """The shortest text that reads back as the same number, as `repr` gives it, many at once."""
    found = values.ravel()
    if found.dtype == float and np.isnan(found).all():
        return [""] * len(found)
    # Between these bounds the encoder writes what Python does; beyond them exponents have another form.
    usual = (np.abs(found) >= 1e-4) & (np.abs(found) < 1e16)
    if kind == "whole" and found.dtype == float:
        found = np.where(usual, found, 0).astype(np.int64)
    texts = msgspec.json.encode(found.tolist()).decode()[1:-1].split(",")
    others = np.flatnonzero(~usual)
    for place, value in zip(others.tolist(), plain(values.ravel()[others], kind), strict=True):
        texts[place] = "" if value is None else repr(value)
    return texts


def _quoted(text: str) -> str:
    if any(sign in text for sign in ',"\n\r'):
        doubled = text.replace('"', '""')
        return f'"{doubled}"'
    return text


def require_parquet() -> None:
    arrow_module("pyarrow")


def arrow_module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingDependencyError(
            "Writing and reading Parquet needs pyarrow, which is not installed.",
            remedy="pip install 'inferometer[parquet]', or ask for a .csv or .sqlite file.",
        ) from None


def parquet_schema(columns: Mapping[str, SweepColumn]) -> Any:
    arrow = arrow_module("pyarrow")
    kinds = {
        "text": arrow.dictionary(arrow.int32(), arrow.string()),
        "whole": arrow.int64(),
        "number": arrow.float64(),
        "flag": arrow.bool_(),
    }
    return arrow.schema([(column.name, kinds[column.kind]) for column in columns.values()])


def as_arrow(parts: Iterable[RowsPart]) -> Iterator[Any]:
    """These rows as tables that a Parquet file is made of later: to write Parquet twice took as long as to predict."""
    return map(_arrow_table, in_runs(pieces_in(parts), _COLUMN_ROWS))


def _arrow_table(pieces: Sequence[RowsPart]) -> Any:
    """Of a column that is the same in all rows of each piece, a value for each piece is noted instead: `_column`."""
    arrow = arrow_module("pyarrow")
    lengths = [len(piece) for piece in pieces]
    noted: dict[str, list[Any]] = {"": lengths}  # under no name: how many rows each piece has
    held = []
    columns = pieces[0].columns
    for entry, column in zip(parquet_schema(columns), columns.values(), strict=True):
        found = [(np.asarray(piece.column(column.name)), piece.shape) for piece in pieces]
        if all(values.size == 1 for values, _ in found):
            noted[column.name] = [plain(values, column.kind)[0] for values, _ in found]
        elif column.kind == "text":
            held.append((entry, _arrow_texts(arrow, found)))
        else:
            held.append((entry, _arrow_numbers(arrow, written_out(found, sum(lengths), column.kind), entry.type)))
    shortened = arrow.schema([entry for entry, _ in held], metadata={_NOTED: json.dumps(noted)})
    return arrow.Table.from_arrays([values for _, values in held], schema=shortened)


def write_arrow(table: Any, file: IO[bytes]) -> None:
    with arrow_module("pyarrow").ipc.new_file(file, table.schema) as written:
        written.write_table(table)


def read_arrow(path: Path) -> Any:
    arrow = arrow_module("pyarrow")
    with arrow.memory_map(str(path)) as source:
        return arrow.ipc.open_file(source).read_all()


@contextmanager
def parquet_writer(path: Path, columns: Mapping[str, SweepColumn]) -> Iterator[Callable[[Any], None]]:
    """What adds a table of `as_arrow` to a Parquet file."""
    arrow, parquet, schema = arrow_module("pyarrow"), arrow_module("pyarrow.parquet"), parquet_schema(columns)
    words = [entry.name for entry in schema if arrow.types.is_dictionary(entry.type)]
    # Readers skip what they do not ask for by the least and the most of a chunk's sizes. To look for those of what was
    # predicted takes as long as a quarter of the writing, and they seldom leave a chunk out.
    asked = [name for name in columns if name in INPUTS]
    spread: dict[str, tuple[Any, Any]] = {}  # what is the same in all rows mostly is so in the next chunk, too

    def column(name: str, kind: Any, values: list[Any], lengths: list[int]) -> Any:
        known, found = spread.get(name, (None, None))
        if known != (values, lengths):
            found = _column(arrow, kind, values, lengths)
            spread[name] = (values, lengths), found
        return found

    def add(table: Any) -> None:
        noted = json.loads(table.schema.metadata[_NOTED])
        lengths = noted.pop("")
        found = [
            column(entry.name, entry.type, noted[entry.name], lengths) if entry.name in noted else table[entry.name]
            for entry in schema
        ]
        writer.write_table(arrow.Table.from_arrays(found, schema=schema))

    # Snappy is pyarrow's own default and every reader has it. A dictionary of numbers takes longer than it saves.
    with parquet.ParquetWriter(
        path, schema, compression="snappy", use_dictionary=words, write_statistics=asked
    ) as writer:
        yield add


def _column(arrow: Any, kind: Any, values: list[Any], lengths: list[int]) -> Any:
    """A column that has one value, or None, in all rows of a part; `lengths` are those of the parts."""
    if arrow.types.is_dictionary(kind):
        return _arrow_texts(
            arrow, [(np.array(value, object), length) for value, length in zip(values, lengths, strict=True)]
        )
    known = np.repeat([value is not None for value in values], lengths)
    spread = np.repeat(np.array([value or 0 for value in values], kind.to_pandas_dtype()), lengths)
    return _arrow_memory(arrow, kind, np.packbits(spread, bitorder="little") if spread.dtype == bool else spread, known)


def _arrow_numbers(arrow: Any, values: Any, kind: Any) -> Any:
    """Numbers and flags; NaN and None are absent."""
    known = ~is_none(values).astype(bool) if values.dtype == object else ~np.isnan(values)
    if arrow.types.is_boolean(kind):
        return _arrow_memory(arrow, kind, np.packbits(values.astype(bool), bitorder="little"), known)
    if arrow.types.is_integer(kind) and values.dtype == float:
        # NaN has no whole number: what stands there is marked absent
        values = np.where(known, values, 0.0).astype(np.int64)
    return _arrow_memory(arrow, kind, values, known)


def _arrow_memory(arrow: Any, kind: Any, values: Any, known: Any) -> Any:
    """An array on the memory of ours. `arrow.array` imports pandas wherever it is installed: a second for nothing."""
    present = None if known.all() else arrow.py_buffer(np.packbits(known, bitorder="little"))
    return arrow.Array.from_buffers(kind, len(known), [present, arrow.py_buffer(np.ascontiguousarray(values))])


def _arrow_texts(arrow: Any, parts: Iterable[tuple[Any, Any]]) -> Any:
    """Words once, and for each row which of them it has: spread from the few points that the column depends on.

    `parts` are the values of each and the shape of its rows.
    """
    words: dict[str, int] = {}
    codes = []
    for given, shape in parts:
        values = np.asarray(given)
        # -1 stands for no word
        found = [-1 if word is None else words.setdefault(word, len(words)) for word in values.ravel().tolist()]
        codes.append(np.broadcast_to(np.array(found, dtype=np.int32).reshape(values.shape), shape).ravel())
    places, encoded = np.concatenate(codes), [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    texts = [None, arrow.py_buffer(ends), arrow.py_buffer(b"".join(encoded))]  # on memory of ours, as above
    return arrow.DictionaryArray.from_arrays(
        _arrow_memory(arrow, arrow.int32(), places, places >= 0),
        arrow.Array.from_buffers(arrow.string(), len(words), texts),
    )

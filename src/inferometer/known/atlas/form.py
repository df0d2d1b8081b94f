"""A form of published tables: the columns that recognise it, its lines, and how one becomes measurements."""

import csv
import gzip
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from inferometer.core.device import UNITS, Device, Unit
from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError, InferometerError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.names import match_model
from inferometer.known.names import match_device

# CSV files, plain or gzipped → lines that know their place, and what reading one may find wrong.

_MOST_BYTES = 500_000_000  # uncompressed: a small file may hold a bomb


class LineError(InferometerError):
    """A line that cannot be taken, and why; the reader sets it aside and goes on."""


@frozen
class CsvLine:
    """One line of a CSV file by column. `number` counts lines of the file: the header is 1."""

    file: str
    number: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str | None:
        return (self.cells.get(column) or "").strip() or None

    def required(self, column: str) -> str:
        text = self.text(column)
        if text is None:
            raise LineError(f"{column} is empty.")
        return text

    def value(self, column: str) -> float | None:
        """A number, or None where the cell is empty."""
        text = self.text(column)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            raise LineError(f"{column} is {text!r}, which is no number.") from None
        if not math.isfinite(value):
            raise LineError(f"{column} is {text}, which is no number.")
        return value

    def positive(self, column: str) -> float:
        value = self.value(column)
        if value is None:
            raise LineError(f"{column} is empty.")
        if value <= 0:
            raise LineError(f"{column} is {value:g}, and should be above zero.")
        return value

    def whole(self, column: str) -> int | None:
        value = self.value(column)
        if value is None:
            return None
        if not value.is_integer() or value < 0:
            raise LineError(f"{column} is {value:g}, which is no whole number.")
        return int(value)

    def signed(self, column: str, otherwise: int) -> int:
        """A whole number that may be below zero, where -1 stands for none."""
        value = self.value(column)
        return otherwise if value is None else int(value)


def open_csv(path: Path) -> tuple[tuple[str, ...], Iterator[CsvLine]]:
    """The header of a file and its lines."""
    text = _decoded(path)
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = tuple(cell.strip().lstrip("\ufeff") for cell in next(reader))
    except (StopIteration, csv.Error):
        raise FormatError(f"{path} has no header line.", remedy="The first line should name the columns.") from None
    return header, _lines(path.name, header, reader)


def _lines(file: str, header: tuple[str, ...], reader: Any) -> Iterator[CsvLine]:
    """A cell may hold line breaks, so a line's number is where it begins."""
    start = reader.line_num + 1
    try:
        for cells in reader:
            if cells:
                yield CsvLine(file=file, number=start, cells=dict(zip(header, cells, strict=False)))
            start = reader.line_num + 1
    except csv.Error as error:
        raise FormatError(f"{file}, line {start} is not CSV: {error}.") from None


def _decoded(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):  # by content: a .csv may be gzipped, and a .gz not
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = packed.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise FormatError(f"{path} holds more than {_MOST_BYTES // 10**6} MB.", remedy="Split it.")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise FormatError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise FormatError(f"{path} is a folder.", remedy="Give a CSV file.") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} cannot be read as a CSV file: {error}.") from None


# The device of a row: a catalog's, or one that the published name describes.


def device_meant(spelling: str, unit: str | None) -> str | Device | None:
    """What the first of several names means that is known: a row's name, or a device made from the name.

    No row of the catalog is CPU and GPU together: for such a unit only a device that was made from the name will do.
    """
    alone = unit is None or unit in UNITS
    matches = (match_device(name, cast("Unit | None", unit if alone else None)) for name in spelling.split("|"))
    meant = (match.device for match in matches if match is not None)
    return next((device for device in meant if alone or isinstance(device, Device)), None)


def catalog_device(spelling: str, unit: str | None) -> str | None:
    """As `device_meant`, where it is a row of the catalog."""
    meant = device_meant(spelling, unit)
    return meant if isinstance(meant, str) else None


Reading = Callable[[CsvLine], Iterable[PublishedMeasurement]]


@frozen
class PublishedForm:
    """`read` may raise `LineError`: the line is set aside with that reason."""

    name: str
    title: str
    columns: frozenset[str]
    read: Reading


def published_form(name: str, title: str, *columns: str) -> Callable[[Reading], PublishedForm]:
    """Make the decorated function, which reads a line, the form of files that have these columns."""
    return lambda read: PublishedForm(name=name, title=title, columns=frozenset(columns), read=read)


def published(  # noqa: PLR0913 - what every measurement has
    line: CsvLine,
    *,
    dataset: str,
    device_published: str,
    model_published: str,
    quantity: str,
    figure: float,
    figure_unit: str,
    device_spelling: str | None = None,
    model_spelling: str | None = None,
    **facts: Any,
) -> PublishedMeasurement:
    """A measurement of a line, its names matched. `facts` are other fields of the measurement.

    A spelling is what is looked up instead of the published name, where that needs a word more or less.
    """
    if not figure > 0:
        raise LineError(f"{quantity} is {figure:g} {figure_unit}, and should be above zero.")
    facts.setdefault("source", dataset)
    return PublishedMeasurement(
        dataset=dataset, file=line.file, line=line.number, device_published=device_published,
        model_published=model_published, device_spelling=_if_other(device_spelling, device_published),
        model_spelling=_if_other(model_spelling, model_published), quantity=quantity, figure=figure,
        figure_unit=figure_unit, device=catalog_device(device_spelling or device_published, facts.get("unit")),
        model=match_model(model_spelling or model_published, dataset=dataset, part=facts.get("part")), **facts,
    )  # fmt: skip


def _if_other(spelling: str | None, name: str) -> str | None:
    return None if spelling == name else spelling


def settings(**values: Any) -> Mapping[str, str]:
    """Settings that were stated; `;` and `=` would break their text."""
    return {name: str(value).replace(";", ",").replace("=", ":") for name, value in values.items() if value is not None}


def format_named(text: str | None) -> str | None:
    """Our name of a number format as others spell it, and None where it is not one."""
    try:
        return None if text is None else dtype(text.strip()).name
    except UnknownNameError:
        return None


def quantised(text: str | None) -> tuple[str | None, str | None]:
    """Weights and activations of `w4a16`, `W8A8`, `int8`, `fp16` …; a mix that is not spelt out is unknown."""
    lowered = (text or "").casefold().partition("_")[0]
    if lowered.startswith("w") and "a" in lowered:
        weights, _, activations = lowered[1:].partition("a")
        return _bits(weights), _bits(activations)
    if lowered.startswith("w"):
        return _bits(lowered[1:]), None
    known = format_named(text)
    return known, known


def _bits(bits: str) -> str | None:
    return {"2": "i2", "4": "i4", "8": "i8", "16": "i16"}.get(bits)

"""CSV files, plain or gzipped → lines that know their place, and what reading one may find wrong."""

import csv
import gzip
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.frozen import frozen

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

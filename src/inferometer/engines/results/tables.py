"""Tables in the text that tools print: the line that names the columns, and the rows below it with their line numbers.

Tools put words before a table, several tables into one file, and their own separators between cells. A row that is not
one is an error that names its line; so is a number that is none.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime
from inferometer.engines.results.fields import number

_SEPARATORS = (",", "\t", ";", "|")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_CELL = 60  # of a line that is shown
UNITS = {
    "ns": 1e-9, "nsec": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usec": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msec": 1e-3,
    "msecond": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0,
}  # fmt: skip


@frozen
class TableRow:
    """One row: its cells by column, and the line of the file that it stands in."""

    line: int
    cells: Mapping[str, str]

    def number(self, column: str) -> float:
        """A cell as a number; "12,345.6" is one."""
        return plain_number(self.cells[column], f"`{column}` in line {self.line}")


def plain_number(text: str, what: str) -> float:
    stripped = text.strip()
    return number(stripped.replace(",", "") if _THOUSANDS.fullmatch(stripped) else stripped, what)


def split_line(line: str, separator: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line.replace("\0", "")], delimiter=separator), [])]


def separator_of(line: str, columns: Sequence[str]) -> str | None:
    """What separates the cells of a line that names all these columns; None where it does not."""
    if not all(column in line for column in columns):
        return None
    try:
        return next((mark for mark in _SEPARATORS if set(columns) <= set(_split(line, mark))), None)
    except FormatError:
        return None


def has_table(text: str, columns: Sequence[str], *, within: int = 200) -> bool:
    """Whether one of the first lines names these columns."""
    return any(separator_of(line, columns) for line in text.splitlines()[:within])


def table_rows(text: str, columns: Sequence[str]) -> Iterator[TableRow]:
    """The rows of every table that has these columns. A table ends at an empty line or at one that is no row."""
    head: list[str] = []
    separator = ","
    for index, line in enumerate(text.splitlines(), start=1):
        found = separator_of(line, columns)
        if found:
            separator, head = found, _split(line, found)
        elif not line.strip() or line.lstrip().startswith(("**", "==")):
            head = []
        elif head:
            row = _row(line, index, head, separator)
            if len(set(head) & set(row.cells.values())) >= 2:  # the head of another table
                head = []
            else:
                yield row


def _row(line: str, index: int, head: Sequence[str], separator: str) -> TableRow:
    cells = _split(line, separator)
    if len(cells) < len(head):
        raise FormatError(
            f"Line {index} has {len(cells)} cells where the table has {len(head)} columns: {line.strip()[:_CELL]!r}."
        )
    return TableRow(line=index, cells=dict(zip(head, cells, strict=False)))


def _split(line: str, separator: str) -> list[str]:
    try:
        return split_line(line, separator)
    except csv.Error as error:
        raise FormatError(f"{line.strip()[:_CELL]!r} is no row of a table: {error}.") from None


def seconds_column(columns: Mapping[str, str] | Sequence[str], start: str) -> tuple[str, float] | None:
    """The column that begins with these words and ends with a unit of time in brackets, and its unit in seconds."""
    for column in columns:
        match = re.fullmatch(rf"{re.escape(start)}\s*\((\w+)\)", column)
        if match and match[1] in UNITS:
            return column, UNITS[match[1]]
    return None


def ops_by_name(ops: Sequence[OpTime]) -> tuple[OpTime, ...]:
    """Ops of the same name as one, with the sums of their counts, times and bytes; in the order they first stand in."""
    groups: dict[str, list[OpTime]] = {}
    for op in ops:
        groups.setdefault(op.name, []).append(op)
    sums = []
    for group in groups.values():
        moved = [op.bytes for op in group if op.bytes is not None]
        sums.append(
            replace(
                group[0],
                count=sum(op.count for op in group),
                time_s=sum(op.time_s for op in group),
                bytes=sum(moved) if len(moved) == len(group) else None,
            )
        )
    return tuple(sums)

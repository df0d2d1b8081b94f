"""Tables as values, and their plain renderings. A row keeps raw numbers in SI units; only people get prefixes."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferometer.units import format_capacity, format_quantity

__all__ = ["FORMATS", "Column", "Table", "cell_text", "render"]

FORMATS = ("table", "json", "csv", "md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`key` finds the value in a row, `heading` names it for people, `label` for machines (`memory_bytes`).

    `unit` turns a number into text with a prefix; `exact` shows every digit instead; `capacity` counts as memory makers
    do.
    """

    key: str
    heading: str
    label: str | None = None
    unit: str | None = None
    exact: bool = False
    capacity: bool = False

    @property
    def numeric(self) -> bool:
        return self.unit is not None or self.exact or self.capacity

    @property
    def machine_name(self) -> str:
        return self.label or self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    title: str | None = None
    note: str | None = None


def cell_text(column: Column, value: Any) -> str:
    """What a person reads in a cell; what is not known is a dash."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number_text(column, value)
    if isinstance(value, list | tuple):
        return ", ".join(str(part) for part in value) or "–"
    return str(value)


def _number_text(column: Column, value: float) -> str:
    if column.capacity:
        return format_capacity(value)
    if column.unit is not None:
        return format_quantity(value, column.unit)
    return f"{value:,.0f}" if column.exact else str(value)


def render(table: Table, form: str) -> str:
    """The table as text in one of FORMATS."""
    if form == "table":
        from inferometer.report.terminal import draw_table  # noqa: PLC0415 - rich is only for terminals

        return draw_table(table)
    renderers: dict[str, Callable[[Table], str]] = {"json": _as_json, "csv": _as_csv, "md": _as_markdown}
    return renderers[form](table)


def _as_json(table: Table) -> str:
    rows = [{column.machine_name: row.get(column.key) for column in table.columns} for row in table.rows]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def _as_csv(table: Table) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.machine_name for column in table.columns])
    writer.writerows([_plain(row.get(column.key)) for column in table.columns] for row in table.rows)
    return text.getvalue().rstrip("\n")


def _plain(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _as_markdown(table: Table) -> str:
    heads = _line([column.heading for column in table.columns])
    rules = _line(["---:" if column.numeric else "---" for column in table.columns])
    body = [_line([cell_text(column, row.get(column.key)) for column in table.columns]) for row in table.rows]
    return "\n".join([heads, rules, *body])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

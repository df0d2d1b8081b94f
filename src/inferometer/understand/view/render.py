"""A table as text: drawn for a terminal, or as JSON, CSV or Markdown."""

from collections.abc import Callable
from typing import Any

from inferometer.understand.view.table import ReportTable, cell_text
from inferometer.understand.view.terminal import draw_table, plain_text

FORMATS = ("table", "json", "csv", "md")
_RISKY = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for a formula (OWASP, CSV injection)


def render(table: ReportTable, form: str) -> str:
    """The table as text in one of FORMATS."""
    return _RENDERERS[form](table)


def records(table: ReportTable) -> list[dict[str, Any]]:
    """The rows as programs read them: numbers with their unit in the key."""
    return [{column.machine_name: row.get(column.key) for column in table.columns} for row in table.rows]


def _as_json(table: ReportTable) -> str:
    import json  # noqa: PLC0415 - the other forms do without it

    return json.dumps(records(table), indent=2, ensure_ascii=False)


def _as_csv(table: ReportTable) -> str:
    import csv  # noqa: PLC0415 - as above
    import io  # noqa: PLC0415 - as above

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.machine_name for column in table.columns])
    writer.writerows([_plain(row.get(column.key)) for column in table.columns] for row in table.rows)
    return text.getvalue().rstrip("\n")


def _plain(value: Any) -> Any:
    """A cell of a file. A text that a spreadsheet would run as a formula begins with an apostrophe.

    Nor has it what a terminal would obey: files are looked at with `cat`.
    """
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
    if not isinstance(text, str):
        return text
    text = plain_text(text)
    return f"'{text}" if text.startswith(_RISKY) else text


def _in_cell(text: str) -> str:
    return plain_text(text).replace("|", "\\|").replace("\n", " ")


def markdown_table(table: ReportTable, written: Callable[[str], str] = _in_cell) -> str:
    """`written` keeps a text from ending its cell; a stricter one also keeps it from being markup."""
    rows = [[column.heading for column in table.columns]]
    rows += [[cell_text(column, row.get(column.key)) for column in table.columns] for row in table.rows]
    lines = [f"| {' | '.join(map(written, row))} |" for row in rows]
    rules = ["---:" if column.numeric else "---" for column in table.columns]
    return "\n".join([lines[0], f"| {' | '.join(rules)} |", *lines[1:]])


_RENDERERS: dict[str, Callable[[ReportTable], str]] = {
    "table": draw_table,
    "json": _as_json,
    "csv": _as_csv,
    "md": markdown_table,
}

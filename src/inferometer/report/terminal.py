"""The terminal: the only module that draws with rich. It returns text; who prints it is not its business."""

import shutil
import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from inferometer.report.table import Table, cell_text

__all__ = ["draw_fields", "draw_heading", "draw_table", "draw_verdicts"]

_VERDICT_STYLES = {"good": "green", "warn": "yellow", "bad": "bold red", "unknown": "dim"}
_VERDICT_MARKS = {"good": "✓", "warn": "!", "bad": "✗", "unknown": "·"}
_LEAST_WIDTH = 60


def _drawn(*parts: RenderableType) -> str:
    """Text as wide as the terminal, coloured if it is one; a pipe gets plain text that is not cut."""
    on_terminal = sys.stdout.isatty()
    width = max(shutil.get_terminal_size((100, 40)).columns, _LEAST_WIDTH) if on_terminal else 200
    console = Console(width=width, force_terminal=on_terminal, no_color=not on_terminal, highlight=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def draw_table(table: Table) -> str:
    grid = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1))
    for index, column in enumerate(table.columns):
        grid.add_column(
            column.heading,
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric or index == 0,
            overflow="fold",
        )
    for row in table.rows:
        grid.add_row(*(Text(cell_text(column, row.get(column.key))) for column in table.columns))
    head = [Text(table.title, style="bold")] if table.title else []
    foot = [Text(table.note, style="dim")] if table.note else []
    return _drawn(*head, grid, *foot)


def draw_heading(title: str, subtitle: str | None = None) -> str:
    line = Text(title, style="bold")
    if subtitle:
        line.append(f"  {subtitle}", style="dim")
    return _drawn(line)


def draw_fields(rows: Sequence[tuple[str, str, str]]) -> str:
    """Label, value, remark: three columns without rules, for one thing's facts."""
    grid = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_column(style="dim", overflow="fold")
    for label, value, remark in rows:
        grid.add_row(Text(label), Text(value), Text(remark))
    return _drawn(grid)


def draw_verdicts(rows: Sequence[tuple[str, str, str, str | None]]) -> str:
    """Verdict, title, found, remedy: a checklist with the remedy under the line it belongs to."""
    grid = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for verdict, title, found, remedy in rows:
        style = _VERDICT_STYLES[verdict]
        said = Text(found, style="dim" if verdict == "unknown" else "")
        if remedy and verdict in {"warn", "bad"}:
            said.append(f"\n→ {remedy}", style="italic")
        grid.add_row(Text(_VERDICT_MARKS[verdict], style=style), Text(title, style=style), said)
    return _drawn(grid)

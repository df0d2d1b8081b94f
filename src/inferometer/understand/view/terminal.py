"""The terminal: tables, facts and verdicts as text; nothing is printed here.

It is laid out by hand: an answer should not wait for a layout engine to be imported.
"""

from __future__ import annotations

import re
import sys
from itertools import zip_longest
from typing import TYPE_CHECKING

from inferometer.core import settings
from inferometer.understand.view.table import Column, ReportTable, cell_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from inferometer.understand.view.cards import Card

_PLAIN, _BOLD, _DIM, _ITALIC = "0", "1", "2", "3"  # of ANSI terminals, as the colours below
_VERDICTS = {"good": ("✓", "32"), "warn": ("!", "33"), "bad": ("✗", "1;31"), "unknown": ("·", _DIM)}
# Control characters, but for line breaks, tabs, and the few styles above.
_OBEYED = re.compile(
    r"\x1b(?!\[(?:[0123]|3[23]|1;31)m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
)
_LEAST_WIDTH = 60
_PIPE_WIDTH = 160
_LEAST_COLUMN = 24
_GAP = "  "


def visible(text: str) -> str:
    """Without what a terminal would obey, but for the styles that are ours. Names come from anywhere."""
    if text.isprintable():  # as nearly all is, and quickly told: nothing below is printable
        return text
    return _OBEYED.sub("", text) if _OBEYED.search(text) else text


def without_styles(text: str) -> str:
    """Text for a page: what is ours of a terminal's styles goes too."""
    return visible(re.sub(r"\x1b\[[0-9;]*m", "", text))


def plain_text(text: str) -> str:
    """A piece of data, to be styled: without any style of its own either."""
    return visible(text).replace("\x1b", "") if "\x1b" in text else visible(text)


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _width() -> int:
    """The terminal's width; a pipe has none, and gets lines that a pager shows whole."""
    if not _on_terminal():
        return _PIPE_WIDTH
    import shutil  # noqa: PLC0415 - brings every compression there is, and only a terminal's size needs it

    return max(shutil.get_terminal_size((100, 40)).columns, _LEAST_WIDTH)


def _bold(text: str) -> str:
    return _styled(text, _BOLD)


def _dim(text: str) -> str:
    return _styled(text, _DIM)


def _styled(text: str, style: str) -> str:
    shown = text and style != _PLAIN and _on_terminal() and settings.styled_terminal()
    return f"\x1b[{style}m{text}\x1b[0m" if shown else text


def _wrapped(text: str, width: int) -> list[str]:
    """Lines no longer than the width, broken between words where they can be."""
    if len(text) <= width and "\n" not in text:
        return [text]
    import textwrap  # noqa: PLC0415 - most cells fit

    return [line for part in text.split("\n") for line in textwrap.wrap(part, width, break_on_hyphens=False) or [""]]


def draw_table(table: ReportTable) -> str:
    """Aligned columns under a rule; a table without columns has its words alone."""
    texts = [
        [column.heading]
        + [_cut(plain_text(cell_text(column, row.get(column.key))), column.letters) for row in table.rows]
        for column in table.columns
    ]
    widths = _fitted(texts, table.columns)
    right = [table.columns[index].numeric for index in widths]
    rows = zip(*(texts[index] for index in widths), strict=True)
    head, *lines = [_lines(row, [*widths.values()], right) for row in rows] or [[]]
    rule = ["─" * _total(widths.values())] if widths else []
    body = [line for row in lines for line in row]
    notes = [table.note] if table.note else []
    notes += [f"{table.left}: --format json lists all of them."] if table.left else []
    if hidden := [column.heading for index, column in enumerate(table.columns) if index not in widths]:
        notes.append(f"Hidden, as the terminal is too narrow: {', '.join(hidden)}.")
    title = [_bold(table.title)] if table.title else []
    return "\n".join([*title, *map(_bold, head), *rule, *body, *notes])


def _cut(name: str, most: int | None) -> str:
    """The end of a layer's name tells more than its beginning."""
    if most is None or len(name) <= most:
        return name
    head = most // 3
    return f"{name[:head]}…{name[head + 1 - most :]}"


def _total(widths: Collection[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _fitted(texts: list[list[str]], columns: Sequence[Column]) -> dict[int, int]:
    """Widths of the columns that fit, by number: text gives way, down to a few words; then columns go.

    Those that stand aside go first, and each kind from the last. The first column is the name by which a row is asked
    for again: it stays whole.
    """
    widths = {index: max(map(len, column)) for index, column in enumerate(texts)}
    for index in sorted(range(1, len(widths)), key=widths.__getitem__, reverse=True):
        surplus = _total(widths.values()) - _width()
        if surplus > 0 and not columns[index].numeric:
            widths[index] = max(widths[index] - surplus, min(widths[index], _LEAST_COLUMN))
    for index in sorted(range(1, len(columns)), key=lambda index: (not columns[index].aside, -index)):
        if _total(widths.values()) <= _width():
            break
        del widths[index]
    return widths


def _lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    """A row, wrapped where a cell is wider than its column."""
    lines: Iterable[Sequence[str]] = [row]
    if any(len(cell) > width or "\n" in cell for cell, width in zip(row, widths, strict=True)):
        lines = zip_longest(*map(_wrapped, row, widths), fillvalue="")
    return [
        _GAP.join(
            [
                text.rjust(width) if numeric else text.ljust(width)
                for text, width, numeric in zip(line, widths, right, strict=True)
            ]
        ).rstrip()
        for line in lines
    ]


def draw_heading(title: str, subtitle: str | None = None) -> str:
    title, subtitle = plain_text(title), plain_text(subtitle or "")
    beside = f"{_GAP}{subtitle}" if subtitle else ""
    if len(title) + len(beside) <= _width():
        return _bold(title) + _dim(beside)
    lines = [*map(_bold, _wrapped(title, _width())), *map(_dim, _wrapped(subtitle, _width()))]
    return "\n".join(filter(None, lines))


def draw_fields(rows: Sequence[tuple[str, str, str]]) -> str:
    """Label, value, remark: three columns without rules, for one thing's facts. Labels stay whole."""
    rows = [(plain_text(name), plain_text(text), plain_text(note)) for name, text, note in rows]
    lengths = [[len(line) for row in rows for line in row[index].split("\n")] for index in range(3)]
    label, value, remark = (max(column, default=0) for column in lengths)
    value, remark = _shared(value, remark, max(_width() - label - 2 * len(_GAP), 2))
    return "\n".join(
        _field_line(*line, label=label, value=value)
        for name, text, note in rows
        for line in zip_longest([name], _wrapped(text, value), _wrapped(note, remark), fillvalue="")
    )


def _shared(one: int, other: int, room: int) -> tuple[int, int]:
    """Widths of two columns that share a room: the wider one gives way, down to half of it."""
    if one + other <= room:
        return one, other
    half = room // 2
    if one <= half:
        return one, room - one
    return (room - other, other) if other <= half else (room - half, half)


def _field_line(name: str, text: str, note: str, *, label: int, value: int) -> str:
    if not text and not note:
        return _dim(name)
    middle = f"{text:<{value}}{_GAP}" if note else text
    return f"{_dim(f'{name:<{label}}')}{_GAP}{middle}{_dim(note)}"


def draw_card(card: Card) -> str:
    parts = [draw_heading(card.title, card.subtitle)]
    if card.text:
        parts.append(f"\n{card.text}\n")
    parts += [draw_fields(card.facts)] if card.facts else []
    parts += card.sources
    return "\n".join(parts)


def draw_verdicts(rows: Sequence[tuple[str, str, str, str | None]]) -> str:
    """Verdict, title, found, remedy: a checklist with the remedy under the line it belongs to."""
    label = max((len(title) for _, title, _, _ in rows), default=0)
    blank = " " * (1 + len(_GAP) + label)
    width = max(_width() - len(blank) - len(_GAP), _LEAST_COLUMN)
    lines: list[str] = []
    for verdict, title, found, remedy in rows:
        mark, style = _VERDICTS[verdict]
        texts = [_styled(text, _DIM if verdict == "unknown" else _PLAIN) for text in _wrapped(found, width)]
        if remedy and verdict in {"warn", "bad"}:
            texts += [_styled(text, _ITALIC) for text in _wrapped(f"→ {remedy}", width)]
        head = f"{_styled(mark, style)}{_GAP}{_styled(f'{title:<{label}}', style)}"
        lines += [f"{left}{_GAP}{text}" for left, text in zip_longest([head], texts, fillvalue=blank)]
    return "\n".join(lines)

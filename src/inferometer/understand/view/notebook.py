"""Values as notebooks show them: tables with bars, in HTML that needs no script, no style sheet and no network.

Everything that comes from a file is escaped. Colours are see-through, so that they do on a light page and a dark one.
"""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from math import log2
from typing import Any

from inferometer.core.errors import InferometerError
from inferometer.understand.view.cards import Card, view_of
from inferometer.understand.view.table import Bars, ReportTable, cell_text

_BLUE, _GREEN, _RED, _GREY = "rgba(66,133,244,.55)", "rgba(30,160,90,.7)", "rgba(220,60,50,.7)", "rgba(128,128,128,.6)"
_COLOURS = {"faster": _GREEN, "slower": _RED}
_CELL = "text-align:{};padding:2px 10px 2px 0;white-space:nowrap"
_FURTHEST = 1.0  # doublings from 1 that a bar of a comparison has room for
_LEAST = 0.02  # of a bar, so that it is seen
_LONG = 48  # letters, from which on a cell breaks its lines


def view_html(value: Any) -> str:
    """What `view_of` lays out: the headline, the tables with their bars, and charts where they can be drawn."""
    view = view_of(value)
    tables = map(_table, (*view.tables, *view.more))
    bars = f"<pre>{escape(view.timeline)}</pre>" if view.timeline else ""
    return _block(_card(view.card), *tables, bars, *map(_chart, view.charts))


def _chart(make: Callable[[], str]) -> str:
    try:
        return make()
    except InferometerError:  # nothing to draw, or charts are not installed: the tables say it all
        return ""


def _bars(table: ReportTable, bars: Bars) -> list[str]:
    if bars.ratio:
        return [_ratio_bar(row) for row in table.rows]
    keys = [key for key in (bars.length, bars.line, bars.dot) if key]
    most = max((row.get(key) or 0.0 for row in table.rows for key in keys), default=0.0) or 1.0
    return [_time_bar(row, bars, most) for row in table.rows]


def _time_bar(row: Mapping[str, Any], bars: Bars, most: float) -> str:
    line, dot = (row.get(key) if key else None for key in (bars.line, bars.dot))
    marks = [_piece(0, (row.get(bars.length) or 0.0) / most, _BLUE)]
    if line is not None:
        marks.append(_mark(line / most, "width:2px;height:100%;top:0;background:currentColor"))
    if dot is not None:
        marks.append(_mark(dot / most, f"width:5px;height:5px;top:35%;border-radius:50%;background:{_GREY}"))
    return _strip(marks)


def _legend(table: ReportTable) -> str:
    """What bars and their marks mean; what no row has is not told of."""
    bars = table.bars
    if bars is None or bars.ratio or bars.dot is None:
        return ""
    shown = {key for key in (bars.line, bars.dot) if key and any(row.get(key) is not None for row in table.rows)}
    line = " the line is the prediction," if bars.line in shown else ""
    return f"Bars are times;{line} the dot is the floor that no run can beat." if bars.dot in shown else ""


def _ratio_bar(row: Mapping[str, Any]) -> str:
    """From the low end of the ratio to its high end, on a scale of doublings; the line in the middle is 1."""
    middle, ratio = _mark(0.5, f"width:1px;height:100%;top:0;background:{_GREY}"), row.get("ratio")
    if not ratio:
        return _strip([middle])
    low, high = sorted(_placed(row.get(end) or ratio) for end in ("low", "high"))
    length = max(high - low, _LEAST)
    return _strip([_piece(min(low, 1 - length), length, _COLOURS.get(str(row.get("verdict")), _GREY)), middle])


def _placed(ratio: float) -> float:
    return 0.5 + max(-_FURTHEST, min(log2(ratio), _FURTHEST)) / (2 * _FURTHEST) if ratio > 0 else 0.0


def explanation_html(plain: Mapping[str, Any]) -> str:
    """From the document of an explanation: the headline, the tables of shares, the findings, what to run next."""
    from inferometer.understand.view.explanations import (  # noqa: PLC0415 - explanations alone
        finding_lines,
        share_table,
        shown_tables,
    )

    tables = [_table(share_table(shares)) for shares in shown_tables(plain)]
    found = [finding_lines(finding, number) for number, finding in enumerate(plain["findings"], start=1)]
    texts = [f"<pre>{escape(chr(10).join(_unstyled(lines)))}</pre>" for lines in found]
    runs = "".join(f"<li><code>{escape(line)}</code></li>" for line in plain["next"])
    notes = "".join(f"<li>{escape(note)}</li>" for note in plain["notes"])
    parts = [f"<p><b>{escape(plain['headline'])}</b></p>", *tables, "<p><b>What was noticed</b></p>" if texts else ""]
    return _block(*parts, *texts, f"<p>Next</p><ul>{runs}</ul>" if runs else "", f"<ul>{notes}</ul>" if notes else "")


def _unstyled(lines: Iterable[str]) -> list[str]:
    from inferometer.understand.view.terminal import without_styles  # noqa: PLC0415 - as above

    return [without_styles(line) for line in lines]


def _card(card: Card) -> str:
    rows = "".join(
        _row([_cell(label), _cell(value, right=True), _cell(remark, wraps=True)]) for label, value, remark in card.facts
    )
    notes = "".join(f"<li>{escape(source)}</li>" for source in card.sources)
    listed = f"<ol>{notes}</ol>" if notes else ""
    heading = "<br>".join(filter(None, (card.title and f"<b>{escape(card.title)}</b>", escape(card.subtitle))))
    return f"<p>{heading}</p>{rows and f'<table>{rows}</table>'}{listed}"


def _table(table: ReportTable) -> str:
    """A table; its bars stand in the last column."""
    bars = [f"<td>{bar}</td>" for bar in _bars(table, table.bars)] if table.bars else [""] * len(table.rows)
    heads = [_cell(column.heading, right=column.numeric, tag="th") for column in table.columns]
    lines = [_row([*heads, '<th style="min-width:180px"></th>' if table.bars else ""])]
    for row, bar in zip(table.rows, bars, strict=True):
        cells = (_cell(cell_text(column, row.get(column.key)), right=column.numeric) for column in table.columns)
        lines.append(_row([*cells, bar]))
    left = f"{table.left}: to_pandas() has all of them." if table.left else ""
    note = " ".join(filter(None, (table.note, _legend(table), left)))
    title = f"<p><b>{escape(table.title)}</b></p>" if table.title else ""
    return f"{title}<table>{''.join(lines)}</table>{note and f'<p><small>{escape(note)}</small></p>'}"


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cell(text: str, *, right: bool = False, wraps: bool = False, tag: str = "td") -> str:
    style = _CELL.format("right" if right else "left")
    style = style.replace("nowrap", "normal;min-width:12em") if wraps or len(text) > _LONG else style
    return f'<{tag} style="{style}">{escape(text)}</{tag}>'


def _strip(pieces: Iterable[str]) -> str:
    return f'<div style="position:relative;height:1em;min-width:180px">{"".join(pieces)}</div>'


def _piece(start: float, length: float, colour: str) -> str:
    where = f"left:{100 * start:.1f}%;width:{100 * min(length, 1.0):.1f}%"
    return f'<div style="position:absolute;top:10%;height:80%;{where};background:{colour}"></div>'


def _mark(place: float, look: str) -> str:
    return f'<div style="position:absolute;left:{100 * min(place, 1.0):.1f}%;{look}"></div>'


def _block(*parts: str) -> str:
    return f'<div style="overflow-x:auto">{"".join(parts)}</div>'

"""Values as notebooks show them: tables with bars, in HTML that needs no script, no style sheet and no network.

Everything that comes from a file is escaped. Colours are see-through, so that they do on a light page and a dark one.
"""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from math import log2
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import InferometerError
from inferometer.core.units import counted, format_capacity
from inferometer.understand.view.table import Column, ReportTable, cell_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from inferometer.core.device import Device
    from inferometer.core.profile import OpTime, Phase, Profile
    from inferometer.measure.bench.compare import Comparison, Metric
    from inferometer.measure.bench.measurement import Measurement
    from inferometer.predict.memory.fit import Fit
    from inferometer.predict.served.question import ServingAnswer
    from inferometer.predict.sweep.rows import Rows
    from inferometer.understand.view.cards import Card

_LAYERS = 12
_ROWS = 10
_BLUE, _GREEN, _RED, _GREY = "rgba(66,133,244,.55)", "rgba(30,160,90,.7)", "rgba(220,60,50,.7)", "rgba(128,128,128,.6)"
_COLOURS = {"faster": _GREEN, "slower": _RED}
_CELL = "text-align:{};padding:2px 10px 2px 0;white-space:nowrap"
_AFTER_RATIO = 4  # the column of a comparison where its bars stand
_FURTHEST = 1.0  # doublings from 1 that a bar of a comparison has room for
_LEAST = 0.02  # of a bar, so that it is seen
_LONG = 48  # letters, from which on a cell breaks its lines
_CHARTS = (("tpot_s", "tokens_per_s"), ("latency_s", "peak_memory_bytes"))


def profile_html(profile: Profile) -> str:
    """The headline, the phases, and the layers that take the most time, with a bar each."""
    if profile.kind == "predicted":
        from inferometer.understand.view.predictions import phase_table, prediction_card  # noqa: PLC0415 - one of the two

        card, table = prediction_card(profile), phase_table(profile)
    else:
        from inferometer.understand.view import profiles  # noqa: PLC0415 - as above

        card, table = profiles.profile_card(profile), profiles.measured_phase_table(profile)
    layers = [_layers(phase, profile.kind) for phase in profile.phases if phase.ops]
    return _block(_card(card), _table(table), *layers)


def serving_html(answer: ServingAnswer) -> str:
    from inferometer.understand.view.serving import serving_card  # noqa: PLC0415 - of services alone

    return _block(_card(serving_card(answer)))


def _layers(phase: Phase, kind: str) -> str:
    """The slowest layers of a phase; those that a model repeats are one row, as they are in a prediction."""
    from inferometer.understand.view.profiles import fold_layers  # noqa: PLC0415 - profiles alone

    ops = fold_layers(phase.ops) if kind == "measured" else phase.ops
    top = sorted(ops, key=lambda op: -op.time_s)[:_LAYERS]
    most = max((value for op in top for value in (op.time_s, op.predicted_s or 0.0)), default=0.0) or 1.0
    columns = tuple(
        Column(key=key, heading=heading, unit=unit, share=key == "share")
        for key, heading, unit in (
            ("name", "layer", None), ("kind", "kind", None), ("time_s", "time", "s"), ("share", "share", None),
            ("predicted_s", "predicted", "s"), ("floor_s", "floor", "s"), ("bound", "bound by", None),
        )
    )  # fmt: skip
    shown = [{**_fields(op), "share": op.time_s / phase.time_s if phase.time_s > 0 else None} for op in top]
    used = tuple(column for column in columns if any(row[column.key] is not None for row in shown))
    left = len(ops) - len(top)
    predicted = " the line is the prediction," if any(op.predicted_s is not None for op in top) else ""
    more = f" {counted(left, 'more layer')}: to_pandas() has all of them." if left > 0 else ""
    note = f"Bars are times;{predicted} the dot is the floor that no run can beat.{more}"
    table = ReportTable(columns=used, rows=tuple(shown), title=f"Where {phase.name} goes", note=note)
    return _table(table, [_bar(op, most) for op in top])


def _fields(op: OpTime) -> dict[str, Any]:
    return {name: getattr(op, name) for name in ("name", "kind", "time_s", "predicted_s", "floor_s", "bound")}


def _bar(op: OpTime, most: float) -> str:
    marks = [_piece(0, op.time_s / most, _BLUE)]
    if op.predicted_s is not None:
        marks.append(_mark(op.predicted_s / most, "width:2px;height:100%;top:0;background:currentColor"))
    if op.floor_s is not None:
        marks.append(_mark(op.floor_s / most, f"width:5px;height:5px;top:35%;border-radius:50%;background:{_GREY}"))
    return _strip(marks)


def comparison_html(comparison: Comparison) -> str:
    """The verdict in a sentence, then every metric with its ratio as a bar around 1."""
    from inferometer.understand.view.measured import comparison_table, headline  # noqa: PLC0415 - comparisons alone

    table = comparison_table(comparison)
    metrics = {metric.name: metric for metric in (*comparison.metrics, *comparison.ops)}
    bars = [_ratio_bar(metrics.get(str(row.get("name")))) for row in table.rows]
    return _block(f"<p><b>{escape(headline(comparison))}</b></p>", _table(table, bars, at=_AFTER_RATIO))


def _ratio_bar(metric: Metric | None) -> str:
    """From the low end of the ratio to its high end, on a scale of doublings; the line in the middle is 1."""
    middle = _mark(0.5, f"width:1px;height:100%;top:0;background:{_GREY}")
    if metric is None or not metric.ratio:
        return _strip([middle])
    ends = [metric.low or metric.ratio, metric.high or metric.ratio]
    low, high = sorted(_placed(end) for end in ends)
    length = max(high - low, _LEAST)
    return _strip([_piece(min(low, 1 - length), length, _COLOURS.get(metric.verdict, _GREY)), middle])


def _placed(ratio: float) -> float:
    return 0.5 + max(-_FURTHEST, min(log2(ratio), _FURTHEST)) / (2 * _FURTHEST) if ratio > 0 else 0.0


def device_html(device: Device) -> str:
    from inferometer.understand.view.cards import device_card  # noqa: PLC0415 - devices alone

    return _block(_card(device_card(device)))


def measurement_html(measurement: Measurement) -> str:
    from inferometer.understand.view.measured import measurement_card  # noqa: PLC0415 - measurements alone

    return _block(_card(measurement_card(measurement)))


def fit_html(fit: Fit) -> str:
    facts = [
        (name.removesuffix("_bytes").replace("_", " "), _fact(name, value))
        for name, value in asdict(fit).items()
        if value is not None
    ]
    rows = "".join(_row([_cell(label), _cell(text, right=True)]) for label, text in facts)
    return _block(f"<table>{rows}</table>")


def _fact(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_capacity(value) if "bytes" in name else f"{value:,}"


def rows_html(rows: Rows) -> str:
    """The first rows of a sweep, and a chart of them where charts can be drawn."""
    from inferometer.understand.view.sweeps import sweep_table  # noqa: PLC0415 - sweeps alone

    return _block(_table(sweep_table(rows, most=_ROWS, title=f"{len(rows):,} rows")), _chart(rows))


def _chart(rows: Rows) -> str:
    from inferometer.understand.view.charts.pareto import pareto_scatter  # noqa: PLC0415 - as above
    from inferometer.understand.view.charts.render import render  # noqa: PLC0415 - as above

    for x, y in _CHARTS:
        try:
            return render(pareto_scatter(rows, x, y), "svg").decode()
        except InferometerError:  # no row has both, or charts are not installed: the table says it all
            continue
    return ""


def explanation_html(plain: Mapping[str, Any]) -> str:
    """From the document of an explanation: the headline, the tables of shares, the findings, what to run next."""
    from inferometer.understand.view.explanations import (  # noqa: PLC0415 - explanations alone
        finding_lines,
        share_table,
        shown_tables,
    )

    tables = []
    for shares in shown_tables(plain):
        table = share_table(shares)
        tables.append(_table(table, [_strip([_piece(0, row.get("share") or 0.0, _BLUE)]) for row in table.rows]))
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
    return f"<p><b>{escape(card.title)}</b><br>{escape(card.subtitle)}</p><table>{rows}</table>{listed}"


def _table(table: ReportTable, bars: Sequence[str] = (), at: int | None = None) -> str:
    """A table; with bars, each row has its own in the column `at`, or in the last one."""
    place = len(table.columns) if at is None else at
    heads = [_cell(column.heading, right=column.numeric, tag="th") for column in table.columns]
    lines = [_row(_with(heads, '<th style="min-width:180px"></th>', place) if bars else heads)]
    for number, row in enumerate(table.rows):
        cells = [_cell(cell_text(column, row.get(column.key)), right=column.numeric) for column in table.columns]
        lines.append(_row(_with(cells, f"<td>{bars[number]}</td>", place) if bars else cells))
    title = f"<p><b>{escape(table.title)}</b></p>" if table.title else ""
    note = f"<p><small>{escape(table.note)}</small></p>" if table.note else ""
    return f"{title}<table>{''.join(lines)}</table>{note}"


def _with(cells: list[str], bar: str, place: int) -> list[str]:
    return [*cells[:place], bar, *cells[place:]]


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

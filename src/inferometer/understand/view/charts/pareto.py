"""Rows as points, and the Pareto front through them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.units import counted, format_quantity
from inferometer.predict.sweep import Rows, RowSource
from inferometer.predict.sweep.columns import COLUMNS, HIGHER_IS_BETTER, INPUTS, column_named, unit_of
from inferometer.predict.sweep.table import RowsPart
from inferometer.understand.view.charts.render import (
    COLOURS,
    INK,
    column_title,
    log_axis,
    log_ticks,
    number_text,
    spec,
    tooltip,
)

_CELLS = 40  # of a decade: points nearer to each other than that are one
_MOST = 4000
_MANY, _MANY_ON_FRONT = 600, 20  # where dots are drawn smaller
_SHOWN = ("model", "device", "runtime", "weights", "tp", "batch", "prompt", "generate", "context")


def pareto_scatter(
    rows: RowSource, x: str, y: str, *, colour: str = "device", title: str | None = None
) -> dict[str, Any]:
    """Two columns against each other on logarithmic axes, with the Pareto front drawn through them.

    Rows that cannot be or do not fit into memory are left out. Where there are many, points that would lie on each
    other are drawn once; the front is of all of them.
    """
    for name in (x, y):
        if column_named(name).kind not in {"number", "whole"}:
            raise DomainError(f"The column {name} has no numbers to draw.")
    column_named(colour)
    front = rows.pareto(x, y, ties=False)
    if not len(front):
        raise DomainError(f"No row that fits into memory has both {x} and {y}.", remedy="Choose other columns.")
    others = thinned(rows.parts, x, y, colour)
    data = [*_points(others, x, y, on=False), *_points(front, x, y, on=True)]
    towards = f"{'upper' if y in HIGHER_IS_BETTER else 'lower'} {'right' if x in HIGHER_IS_BETTER else 'left'}"
    subtitle = f"{counted(len(rows), 'row')} · {len(front)} on the front · better towards the {towards}"
    line = {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "line", "color": INK, "strokeWidth": 1.2, "opacity": 0.7},
        "encoding": {"order": {"field": x, "type": "quantitative"}},
    }
    return spec(
        title=title or f"{column_title(y)} against {column_title(x).lower()}",
        subtitle=subtitle,
        body={
            "width": 660,
            "height": 420,
            "data": {"values": data},
            "encoding": {name: log_axis(column, (r[column] for r in data)) for name, column in (("x", x), ("y", y))},
            "layer": [
                _dots(x, y, colour, on=False, many=len(data) > _MANY),
                line,
                _dots(x, y, colour, on=True, many=len(front) > _MANY_ON_FRONT),
            ],
        },
    )


def thinned(parts: Iterable[RowsPart], x: str, y: str, colour: str) -> Rows:
    """One row for each colour and small cell of the plane, in logarithmic steps; the steps widen until it is few."""
    candidates: list[RowsPart] = []
    for part in parts:
        rows = Rows([part])
        points = np.stack([rows[name].astype(float) for name in (x, y)], axis=1)
        usable = np.flatnonzero((points > 0).all(axis=1) & np.not_equal(rows["fits"], False))  # noqa: FBT003 - a value
        candidates += rows.take(usable[_firsts(points[usable], rows[colour][usable], _CELLS)]).parts
    kept, cells = Rows(candidates), _CELLS
    while True:
        points = np.stack([kept[name].astype(float) for name in (x, y)], axis=1)
        kept = kept.take(_firsts(points, kept[colour], cells))
        if len(kept) <= _MOST or cells == 1:
            return kept
        cells = max(1, cells * 2 // 3)


def _firsts(points: Any, colours: Any, cells: int) -> Any:
    """The place of the first point in each cell."""
    if not len(points):
        return np.empty(0, dtype=int)
    _, numbers = np.unique(colours.astype(str), return_inverse=True)
    keys = np.column_stack([np.floor(np.log10(points) * cells), numbers.ravel()])
    return np.sort(np.unique(keys, axis=0, return_index=True)[1])


def _points(rows: Rows, x: str, y: str, *, on: bool) -> list[dict[str, Any]]:
    shown = [name for name in _SHOWN if any(value is not None for value in rows[name].tolist())]
    wanted = dict.fromkeys((*shown, x, y))
    return [{name: record[name] for name in wanted} | {"front": on} for record in rows.records()]


def _dots(x: str, y: str, colour: str, *, on: bool, many: bool) -> dict[str, Any]:
    """The rows on the front, or the others behind them."""
    texts = [{"calculate": number_text(name, f"datum['{name}']"), "as": f"{name}_text"} for name in (x, y)]
    named = {name: column_title(name) for name in _SHOWN} | {f"{n}_text": column_title(n) for n in (x, y)}
    behind = {"size": 14 if many else 34, "opacity": 0.35 if many else 0.5}
    before = {"size": 40 if many else 90, "opacity": 1, "stroke": "white", "strokeWidth": 0.6 if many else 1.2}
    legend = {"title": column_title(colour), "symbolOpacity": 1, "symbolSize": 90}
    scale = {"range": list(COLOURS)}
    return {
        "transform": [{"filter": "datum.front" if on else "!datum.front"}, *texts],
        "mark": {"type": "circle", **(before if on else behind)},
        "encoding": {
            "color": {"field": colour, "type": "nominal", "scale": scale, "legend": legend},
            "tooltip": tooltip(named),
        },
    }


# A number over two of the inputs, as colour: the best row of each cell.

_MOST_LABELLED, _MOST_ACROSS = 160, 16  # cells with a number in each
_CELL_WIDE, _CELL_HIGH = 52, 26
_WIDTH = 960
_TICKS, _MOST_VALUES = 9, 160


def heatmap(  # noqa: PLR0913 - the columns of three channels and of the panels
    rows: RowSource, x: str, y: str, value: str, *, by: str | None = "device", title: str | None = None
) -> dict[str, Any]:
    """`value` over the inputs x and y, one panel for each of `by`.

    Where several rows share a cell (another prompt, another format) it shows the best of them. Cells without a row
    that can be, and fits into memory, stay empty.
    """
    keys = [name for name in dict.fromkeys((x, y, by)) if name is not None]
    for name in keys:
        if name not in INPUTS:
            column_named(name)
            raise DomainError(f"The column {name} is not an input.", remedy=f"Choose one of {', '.join(INPUTS)}.")
    if column_named(value).kind not in {"number", "whole"}:
        raise DomainError(f"The column {value} has no numbers to draw.")
    best = best_by(rows.parts, keys, value)
    if not len(best):
        raise DomainError(f"No row that fits into memory has a {value}.", remedy="Choose another column.")
    data = _legible([{name: record[name] for name in (*keys, value)} for record in best.records()], (x, y))
    panels = sorted({record[by] for record in data}) if by is not None else [None]
    return spec(
        title=title or f"{column_title(value)} by {column_title(x).lower()} and {column_title(y).lower()}",
        subtitle=f"{len(rows):,} rows; each cell is the best of those that share it, and empty where none can be",
        body=_body(data, (x, y, value, by), panels),
    )


def _legible(data: list[dict[str, Any]], axes: tuple[str, str]) -> list[dict[str, Any]]:
    """Of an axis with more values than can be told apart, every second, third … one."""
    for name in axes:
        values = sorted({record[name] for record in data if record[name] is not None})
        shown = {*values[:: -(-len(values) // _MOST_VALUES)]}
        data = [record for record in data if record[name] in shown]
    return data


def best_by(parts: Iterable[RowsPart], keys: Sequence[str], value: str) -> Rows:
    """Of the rows that share the values of some inputs, the one with the best value."""
    sign = -1 if value in HIGHER_IS_BETTER else 1

    def best(rows: Rows) -> Any:
        cost = sign * rows[value].astype(float)
        usable = np.flatnonzero(~np.isnan(cost) & np.not_equal(rows["fits"], False))  # noqa: FBT003 - a value
        ordered = usable[np.argsort(cost[usable], kind="stable")]
        if not len(ordered):
            return ordered
        codes = [np.unique(rows[name][ordered].astype(str), return_inverse=True)[1].ravel() for name in keys]
        return np.sort(ordered[np.unique(np.column_stack(codes), axis=0, return_index=True)[1]])

    kept: list[RowsPart] = []
    for part in parts:
        rows = Rows([part])
        kept += rows.take(best(rows)).parts
    together = Rows(kept)
    return together.take(best(together))


def _body(data: list[dict[str, Any]], names: tuple[str, str, str, str | None], panels: list[Any]) -> dict[str, Any]:
    x, y, value, by = names
    across, up = ([*{record[name]: None for record in data}] for name in (x, y))
    labelled = len(across) * len(up) <= _MOST_LABELLED and len(across) <= _MOST_ACROSS
    several = len(panels) > 1
    width = len(across) * (_CELL_WIDE if labelled else max(1, round((300 if several else 640) / len(across))))
    height = len(up) * (_CELL_HIGH if labelled else max(1, round((240 if several else 420) / len(up))))
    wide = max(1, min(len(panels), _WIDTH // width))
    layers = [_cells(names, labelled=labelled, numbers=[record[value] for record in data])]
    if labelled:
        layers.append(_labels(names, _middle(data, value)))
    places = {"x": _place(x, across), "y": {**_place(y, up), "sort": "descending"}}
    unit = {"width": width, "height": height, "encoding": places, "layer": layers}
    values = [record | {"text": _text(value, record[value])} for record in data]
    if by is None:
        return {"data": {"values": values}, **unit}
    facet = {"field": by, "type": "nominal", "header": {"labelAnchor": "start", "labelPadding": 8}}
    return {
        "data": {"values": values}, "facet": facet, "columns": wide, "spec": unit, "spacing": 28,
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
    }  # fmt: skip


def _text(name: str, value: float) -> str:
    if name.startswith("usd"):
        return f"${value:.2g}"
    return format_quantity(value, unit_of(name), digits=3)


def _middle(data: list[dict[str, Any]], value: str) -> float:
    """The middle of the colours: labels on the darker half are white."""
    numbers = [record[value] for record in data]
    return float(np.sqrt(min(numbers) * max(numbers))) if min(numbers) > 0 else (min(numbers) + max(numbers)) / 2


def _place(name: str, values: list[Any]) -> dict[str, Any]:
    """Where a cell stands; of many values only some are written out."""
    drawn: dict[str, Any] = {"title": column_title(name), "labelAngle": 0, "grid": False, "ticks": False}
    if COLUMNS[name].kind == "whole":
        drawn["labelExpr"] = "format(datum.value, ',d')"
        if len(values) > 2 * _TICKS:
            ordered = sorted(values)
            drawn["values"] = ordered[:: -(-len(ordered) // _TICKS)]
    return {"field": name, "type": "ordinal", "axis": drawn}


def _cells(names: tuple[str, str, str, str | None], *, labelled: bool, numbers: list[float]) -> dict[str, Any]:
    x, y, value, _ = names
    scheme: dict[str, Any] = {"scheme": "viridis", "reverse": value not in HIGHER_IS_BETTER}
    legend = {"title": column_title(value), "labelExpr": number_text(value), "gradientLength": 180}
    if min(numbers) > 0:
        scheme["type"] = "log"
        legend["values"] = log_ticks(min(numbers), max(numbers)) or [min(numbers)]
    return {
        "mark": {"type": "rect", "stroke": "white", "strokeWidth": 1 if labelled else 0},
        "encoding": {
            "color": {"field": value, "type": "quantitative", "scale": scheme, "legend": legend},
            "tooltip": tooltip({x: column_title(x), y: column_title(y), "text": column_title(value)}),
        },
    }


def _labels(names: tuple[str, str, str, str | None], middle: float) -> dict[str, Any]:
    value = names[2]
    dark = f"datum['{value}'] {'<' if value in HIGHER_IS_BETTER else '>'} {middle}"
    return {
        "mark": {"type": "text", "fontSize": 10},
        "encoding": {
            "text": {"field": "text"},
            "color": {"condition": {"test": dark, "value": "white"}, "value": INK},
        },
    }

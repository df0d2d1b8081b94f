"""Rows as points, and the Pareto front through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.units import counted
from inferometer.predict.sweep.columns import HIGHER_IS_BETTER, column_named
from inferometer.predict.sweep.rows import Rows
from inferometer.understand.view.charts.theme import COLOURS, INK, column_title, log_axis, number_text, spec, tooltip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.predict.sweep.rows import RowSource, RowsPart

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

"""Charts of a load test: latency and throughput against load, and one level's requests over time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.served import Level, Served
from inferometer.core.traffic.figures import times_of
from inferometer.core.traffic.requests import Requests
from inferometer.core.units import format_quantity
from inferometer.understand.view.charts.render import COLOURS, INK, QUIET, log_ticks, spec, tooltip
from inferometer.understand.view.charts.samples import times_histogram
from inferometer.understand.view.load_tests import LoadResult

_SECONDS = "replace(format(datum.value, '.4~s'), /([a-zµ]?)$/i, ' $1s')"
NAMES = {"ttft": "Time to first token", "tpot": "Time per output token", "e2e": "Whole request"}
_SHARES = ("p50", "p95", "p99")
_GOOD, _BAD = COLOURS[2], COLOURS[1]
_MOST_POINTS = 1500
_DECADE = 12.0
_MOMENTS = 240
_SIZE = {"width": 520, "height": 220}


def _load_axis(result: LoadResult) -> dict[str, Any]:
    closed = result.served.levels[0].concurrency is not None
    values = [_load(level) for level in result.served.levels]
    title = "Requests at once" if closed else "Requests a second, offered"
    wide = max(values) / max(min(values), 1e-9) > 8
    scale = {"type": "log", "nice": False} if wide else {"type": "linear", "zero": False, "nice": False}
    axis = {"title": title, "values": values, "format": "~r", "grid": False, "labelOverlap": True}
    return {"field": "load", "type": "quantitative", "scale": scale, "axis": axis}


def _load(level: Level) -> float:
    return float(level.concurrency) if level.concurrency is not None else level.rate_per_s or 0.0


def latency_against_load(result: LoadResult, metric: str) -> dict[str, Any]:
    """The percentiles of one latency over the loads of a sweep, with the knee and the limit that was set for it."""
    rows = []
    for level, figures in zip(result.served.levels, result.figures, strict=True):
        found = getattr(figures, f"{metric}_s")
        for share in _SHARES:
            value = None if found is None else getattr(found, share)
            if value is not None:
                rows.append({
                    "load": _load(level), "s": value, "share": share, "level": level.name,
                    "text": format_quantity(value, "s"),
                })  # fmt: skip
    if not rows:
        raise DomainError(f"No level has enough requests for a percentile of {metric}.")
    limits = [goal for goal in result.served.objectives if goal.metric == metric]
    y = _time_axis([*(row["s"] for row in rows), *(goal.limit_s for goal in limits)], NAMES[metric])
    colour = {"field": "share", "type": "nominal", "title": None, "sort": list(_SHARES),
              "scale": {"domain": list(_SHARES), "range": [COLOURS[0], COLOURS[4], COLOURS[3]]},
              "legend": {"orient": "top"}}  # fmt: skip
    tips = tooltip({"level": "Load", "share": "Percentile", "text": NAMES[metric]})
    line = {
        "data": {"values": rows},
        "mark": {"type": "line", "point": {"size": 42}, "strokeWidth": 2},
        "encoding": {"x": _load_axis(result), "y": y, "color": colour, "tooltip": tips},
    }
    layers = [line, *(_limit(goal.limit_s, str(goal)) for goal in limits), *_marks(result)]
    return spec(title=f"{NAMES[metric]} against load", subtitle=_subtitle(result), body={**_SIZE, "layer": layers})


def _time_axis(values: Sequence[float], title: str) -> dict[str, Any]:
    """Seconds from 0, or on a logarithmic axis where they reach over more than a decade."""
    low, high = min(values), max(values)
    axis: dict[str, Any] = {"title": title, "labelExpr": _SECONDS, "tickCount": 6}
    if high <= _DECADE * low or low <= 0:
        return {"field": "s", "type": "quantitative", "axis": axis}
    scale = {"type": "log", "domain": [low / 1.3, high * 1.3], "nice": False}
    return {"field": "s", "type": "quantitative", "scale": scale, "axis": {**axis, "values": log_ticks(low, high)}}


def _limit(limit_s: float, name: str) -> dict[str, Any]:
    """An objective as a line that everything should stay below."""
    return {
        "data": {"values": [{"limit": limit_s, "text": name}]},
        "encoding": {"y": {"field": "limit", "type": "quantitative"}},
        "layer": [
            {"mark": {"type": "rule", "color": _BAD, "strokeDash": [6, 4], "strokeWidth": 1.5}},
            {"mark": {"type": "text", "align": "left", "x": 4, "dy": -6, "color": _BAD, "fontSize": 11},
             "encoding": {"text": {"field": "text"}}},
        ],
    }  # fmt: skip


def _marks(result: LoadResult) -> list[dict[str, Any]]:
    found = {"knee": result.knee.knee, "saturated": result.knee.saturated}
    rows = [
        {"load": _load(result.served.levels[index]), "text": name} for name, index in found.items() if index is not None
    ]
    if len({row["load"] for row in rows}) < len(rows):
        rows = [{"load": rows[0]["load"], "text": "knee, saturated"}]
    if not rows:
        return []
    return [{
        "data": {"values": rows},
        "encoding": {"x": {"field": "load", "type": "quantitative"}},
        "layer": [
            {"mark": {"type": "rule", "color": QUIET, "strokeDash": [2, 3]}},
            {"mark": {"type": "text", "align": "right", "baseline": "top", "y": 2, "dx": -4, "color": INK,
                      "fontSize": 11}, "transform": [{"filter": "datum.text != 'saturated'"}],
             "encoding": {"text": {"field": "text"}}},
            {"mark": {"type": "text", "align": "right", "baseline": "top", "y": 16, "dx": -4, "color": INK,
                      "fontSize": 11}, "transform": [{"filter": "datum.text == 'saturated'"}],
             "encoding": {"text": {"field": "text"}}},
        ],
    }]  # fmt: skip


def _subtitle(result: LoadResult) -> str:
    knee = result.knee.knee
    words = f"knee at {result.served.levels[knee].name}" if knee is not None else "no knee within these loads"
    return f"{len(result.figures)} levels · {words}"


def throughput_against_load(result: LoadResult) -> dict[str, Any]:
    """Requests a second over the loads: those answered, and those answered within the objectives."""
    rows = []
    for level, figures in zip(result.served.levels, result.figures, strict=True):
        named = {"answered": figures.requests_per_s, "within the objectives": figures.goodput_per_s}
        rows += [
            {"load": _load(level), "rate": rate, "of": name, "level": level.name, "text": f"{rate:.4g}/s"}
            for name, rate in named.items()
            if rate is not None
        ]
    if not rows:
        raise DomainError("No level was answered.")
    y = {"field": "rate", "type": "quantitative", "axis": {"title": "Requests a second", "tickCount": 6}}
    colour = {"field": "of", "type": "nominal", "title": None, "legend": {"orient": "top"},
              "scale": {"domain": ["answered", "within the objectives"], "range": [COLOURS[0], _GOOD]}}  # fmt: skip
    line = {
        "data": {"values": rows},
        "mark": {"type": "line", "point": {"size": 42}, "strokeWidth": 2},
        "encoding": {"x": _load_axis(result), "y": y, "color": colour,
                     "tooltip": tooltip({"level": "Load", "of": "Requests", "text": "Rate"})},
    }  # fmt: skip
    layers = [line, *_marks(result)]
    return spec(title="Throughput against load", subtitle=_subtitle(result), body={**_SIZE, "layer": layers})


def request_histogram(level: Level, metric: str) -> dict[str, Any]:
    times = times_of(level, metric)
    if not times:
        raise DomainError(f"No request of this level has a {metric}.")
    return times_histogram(NAMES[metric], times, f"at {level.name}, in the steady window", noun="request")


def gap_histogram(level: Level) -> dict[str, Any]:
    """How long it took from token to token; logarithmic, since a pause is many times a step."""
    gaps = level.gaps
    if gaps is None or not gaps.bins:
        raise DomainError("No request of this level has two tokens.")
    # About forty bars, whatever the range: bins of the spread are a half percent wide.
    low, high = gaps.bins[0], gaps.bins[-1] + 1
    step = max(1, -(-(high - low) // 40))
    held: dict[int, int] = {}
    for index, count in zip(gaps.bins, gaps.counts, strict=True):
        held[(index - low) // step] = held.get((index - low) // step, 0) + count
    rows = [
        {"low": gaps.ratio ** (low + at * step), "high": gaps.ratio ** (low + (at + 1) * step), "count": count,
         "text": f"{format_quantity(gaps.ratio ** (low + at * step), 's', digits=3)} and more"}
        for at, count in sorted(held.items())
    ]  # fmt: skip
    x = {"field": "low", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "axis": {"title": "From token to token", "labelExpr": _SECONDS, "grid": False, "tickCount": 6}}  # fmt: skip
    y = {"field": "count", "type": "quantitative", "axis": {"title": "Tokens", "format": "~s", "tickCount": 5}}
    together = f" · {gaps.zeros:,} came with the one before" if gaps.zeros else ""
    return spec(
        title="Between tokens",
        subtitle=f"{gaps.count:,} tokens at {level.name}{together}",
        body={**_SIZE, "data": {"values": rows}, "mark": {"type": "bar", "color": COLOURS[0]},
              "encoding": {"x": x, "x2": {"field": "high"}, "y": y, "y2": {"datum": 0},
                           "tooltip": tooltip({"text": "Time", "count": "Tokens"})}},
    )  # fmt: skip


def timeline(level: Level) -> dict[str, Any]:
    """Every request when it was due and how long it took; what failed stands at the bottom. The window is shaded."""
    if level.requests is None or not len(level.requests):
        raise DomainError("This level keeps no requests.")
    requests = Requests.of(level.requests)
    shown = np.unique(np.linspace(0, len(requests) - 1, min(len(requests), _MOST_POINTS)).astype(int))
    rows = []
    for index in shown.tolist():
        outcome, e2e = level.requests.outcome[index], requests.e2e_s[index]
        took = float(e2e) if np.isfinite(e2e) else 0.0
        rows.append({
            "at": float(requests.due_s[index]), "s": took, "outcome": "answered" if outcome == "ok" else "failed",
            "text": format_quantity(took, "s") if outcome == "ok" else outcome.replace("_", " "),
        })  # fmt: skip
    x = {"field": "at", "type": "quantitative", "axis": {"title": "Due after", "labelExpr": _SECONDS, "grid": False}}
    y = {"field": "s", "type": "quantitative", "axis": {"title": "Whole request", "labelExpr": _SECONDS}}
    colour = {"field": "outcome", "type": "nominal", "title": None, "legend": {"orient": "top"},
              "scale": {"domain": ["answered", "failed"], "range": [COLOURS[0], _BAD]}}  # fmt: skip
    points = {
        "data": {"values": rows},
        "mark": {"type": "circle", "size": 26, "opacity": 0.65},
        "encoding": {"x": x, "y": y, "color": colour, "tooltip": tooltip({"text": "Took", "outcome": "It"})},
    }
    dropped = f" · {len(shown):,} of {len(requests):,} drawn" if len(shown) < len(requests) else ""
    return spec(
        title="Requests over time",
        subtitle=f"at {level.name}; the steady window is shaded{dropped}",
        body={**_SIZE, "layer": [_window_band(level), points]},
    )


def _window_band(level: Level) -> dict[str, Any]:
    rows = [{"start": window.start_s, "end": window.end_s} for window in level.windows]
    return {
        "data": {"values": rows},
        "mark": {"type": "rect", "color": QUIET, "opacity": 0.12},
        "encoding": {"x": {"field": "start", "type": "quantitative"}, "x2": {"field": "end"}},
    }


def in_flight(level: Level) -> dict[str, Any]:
    """How many requests were in the system: a line that rises is a queue that grows."""
    if level.requests is None or not len(level.requests):
        raise DomainError("This level keeps no requests.")
    moments = np.linspace(0, level.seconds or 1.0, _MOMENTS)
    held = Requests.of(level.requests).in_flight(moments)
    rows = [{"at": float(at), "n": float(n), "text": f"{n:.0f}"} for at, n in zip(moments, held, strict=True)]
    x = {"field": "at", "type": "quantitative", "axis": {"title": "After", "labelExpr": _SECONDS, "grid": False}}
    y = {"field": "n", "type": "quantitative", "axis": {"title": "Requests in flight", "tickCount": 6}}
    area = {
        "data": {"values": rows},
        "mark": {"type": "area", "interpolate": "step-after", "color": COLOURS[0], "opacity": 0.55, "line": True},
        "encoding": {"x": x, "y": y, "tooltip": tooltip({"text": "In flight"})},
    }
    return spec(
        title="In flight", subtitle=f"at {level.name}; the steady window is shaded",
        body={**_SIZE, "layer": [_window_band(level), area]},
    )  # fmt: skip


def chart_names(served: Served, result: LoadResult) -> dict[str, str]:
    """The charts that there is data for, with their titles: those of the sweep first."""
    names: dict[str, str] = {}
    if len(served.levels) > 1:
        for metric, title in NAMES.items():
            if any(getattr(each, f"{metric}_s") is not None for each in result.figures):
                names[f"{metric}-load"] = f"{title} against load"
        names["throughput-load"] = "Throughput against load"
    level = served.levels[served.headline]
    if level.requests is not None and result.headline.has_times:
        names |= {"timeline": f"Requests over time, {level.name}", "in-flight": f"In flight, {level.name}"}
        for metric, title in NAMES.items():
            if times_of(level, metric):
                names[f"{metric}-histogram"] = f"{title}, {level.name}"
        if level.gaps is not None and level.gaps.bins:
            names["gap-histogram"] = f"Between tokens, {level.name}"
    return names


def load_chart(result: LoadResult, name: str) -> dict[str, Any]:
    level = result.served.levels[result.served.headline]
    kind, _, form = name.partition("-")
    if name == "throughput-load":
        return throughput_against_load(result)
    if form == "load":
        return latency_against_load(result, kind)
    if name == "gap-histogram":
        return gap_histogram(level)
    if form == "histogram":
        return request_histogram(level, kind)
    return timeline(level) if name == "timeline" else in_flight(level)

"""Charts of raw samples: their distribution, and the time from token to token."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from inferometer.core import statistics
from inferometer.core.errors import DomainError
from inferometer.core.units import format_quantity
from inferometer.understand.view.charts.theme import COLOURS, INK, QUIET, spec, tooltip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.profile import Phase, Profile

_SECONDS = "replace(format(datum.value, '.4~s'), /([a-zµ]?)$/i, ' $1s')"
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_FEW_BINS, _MANY_BINS = 8, 40
_FAR = 6.0  # interquartile ranges beyond the quartiles


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """The percentiles that so many readings support, with the least and the largest."""
    known = {name: statistics.percentile(samples, p) for name, p in _PERCENTILES.items()}
    ends = {"min": min(samples), "max": max(samples)}
    return {"min": ends["min"], **{k: v for k, v in known.items() if v is not None}, "max": ends["max"]}


def histogram(profile: Profile, phase: str | None = None) -> dict[str, Any]:
    """How often each time was read in a phase, with the percentiles that the sample supports.

    A few readings far beyond the others would leave one bar: they are counted in the subtitle and not drawn.
    """
    chosen = _sampled(profile, phase)
    subtitle = f"{chosen.statistic or 'time'}: {format_quantity(chosen.time_s, 's')}"
    return times_histogram(chosen.name, chosen.samples_s or (), subtitle)


def times_histogram(name: str, times: Sequence[float], subtitle: str, *, noun: str = "reading") -> dict[str, Any]:
    """As `histogram`, of any times."""
    samples = statistics.ordered(times)
    far = statistics.fences(samples, reach=_FAR)[1]
    near = [value for value in samples if value <= far]
    if len(near) < len(samples):
        subtitle += f" · {len(samples) - len(near)} beyond {format_quantity(far, 's')} not drawn"
    known = percentiles(samples)
    marks = [
        {"at": value, "text": f"{name} {format_quantity(value, 's')}", "level": level}
        for level, (name, value) in enumerate(item for item in known.items() if item[0] not in {"min", "max"})
        if value <= far
    ]
    x = {"field": "low", "type": "quantitative", "scale": {"zero": False, "nice": False},
         "axis": {"title": "Time", "labelExpr": _SECONDS, "grid": False, "tickCount": 6}}  # fmt: skip
    bins = _bins(near)
    room = max(row["count"] for row in bins) * (1 + 0.12 * len(marks))  # the names stand above the bars
    bars = {
        "data": {"values": bins},
        "mark": {"type": "bar", "color": COLOURS[0]},
        "encoding": {"x": x, "x2": {"field": "high"}, "y2": {"datum": 0},
                     "y": {"field": "count", "type": "quantitative", "title": f"{noun.capitalize()}s",
                           "scale": {"domain": [0, room]}},
                     "tooltip": tooltip({"text": "Time", "count": f"{noun.capitalize()}s"})},
    }  # fmt: skip
    lines = {
        "data": {"values": marks},
        "encoding": {"x": {"field": "at", "type": "quantitative"}},
        "layer": [{"mark": {"type": "rule", "color": INK, "strokeDash": [4, 3]}}, *map(_mark, marks)],
    }
    return spec(
        title=f"{name}: {len(samples)} {noun}s",
        subtitle=subtitle,
        body={"width": 520, "height": 220, "layer": [bars, lines] if marks else [bars]},
    )


def _mark(mark: dict[str, Any]) -> dict[str, Any]:
    """A percentile's name, each a line lower than the one before, so that near ones can be read."""
    return {
        "data": {"values": [mark]},
        "mark": {"type": "text", "align": "left", "dx": 4, "color": INK, "fontSize": 11},
        "encoding": {"text": {"field": "text"}, "y": {"value": 8 + 15 * mark["level"]}},
    }


def _bins(values: Sequence[float]) -> list[dict[str, Any]]:
    count = max(_FEW_BINS, min(_MANY_BINS, round(2 * len(values) ** 0.5)))
    low, high = min(values), max(values)
    width = (high - low) / count or low / 100 or 1e-9
    held = [0] * count
    for value in values:
        held[min(int((value - low) / width), count - 1)] += 1
    edges = [low + n * width for n in range(count + 1)]
    return [
        {"low": edges[n], "high": edges[n + 1], "count": held[n],
         "text": f"{format_quantity(edges[n], 's')} to {format_quantity(edges[n + 1], 's')}"}
        for n in range(count)
    ]  # fmt: skip


def token_trend(profile: Profile) -> dict[str, Any]:
    """Time of each decode step over the tokens in the cache before it: the median, and every reading behind it."""
    decode = profile.phase("decode")
    if decode is None or not decode.context or not decode.samples_s:
        raise DomainError(f"The profile of {profile.model.name} has no times token by token.")
    readings: dict[int, list[float]] = {}
    for context, seconds in zip(decode.context, decode.samples_s, strict=False):
        readings.setdefault(context, []).append(seconds)
    points = [{"context": c, "s": s} for c, seconds_read in readings.items() for s in seconds_read]
    line = [{"context": c, "s": median(seconds_read), "text": format_quantity(median(seconds_read), "s")}
            for c, seconds_read in sorted(readings.items())]  # fmt: skip
    x = {"field": "context", "type": "quantitative", "title": "Tokens in the cache", "scale": {"zero": False}}
    y = {"field": "s", "type": "quantitative", "axis": {"title": "Time of the step", "labelExpr": _SECONDS}}
    return spec(
        title="Time by token",
        subtitle=f"{len(line)} steps · the line is the median of {len(points) / len(line):.3g} generations",
        body={
            "width": 520, "height": 220, "encoding": {"x": x, "y": y},
            "layer": [
                {"data": {"values": points}, "mark": {"type": "circle", "size": 14, "color": QUIET, "opacity": 0.5}},
                {"data": {"values": line}, "mark": {"type": "line", "color": COLOURS[0], "point": {"size": 18}},
                 "encoding": {"tooltip": tooltip({"context": "Tokens before", "text": "Median"})}},
            ],
        },
    )  # fmt: skip


def _sampled(profile: Profile, name: str | None) -> Phase:
    wanted = (name,) if name else ("forward", "decode", "prefill")
    for phase_name in wanted:
        phase = profile.phase(phase_name)
        if phase is not None and phase.samples_s:
            return phase
    raise DomainError(f"The profile of {profile.model.name} has no raw readings{f' of {name}' if name else ''}.")

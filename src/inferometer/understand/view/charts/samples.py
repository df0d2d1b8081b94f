"""Charts of raw samples and of runs: distributions, the time from token to token, and how runs went over time."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any

from inferometer.core import statistics
from inferometer.core.errors import DomainError
from inferometer.core.units import counted, format_quantity
from inferometer.measure.bench.verdict import change_points
from inferometer.predict.sweep.columns import unit_of
from inferometer.understand.view.charts.render import COLOURS, INK, QUIET, column_title, number_text, spec, tooltip
from inferometer.understand.view.measured import verdict_text
from inferometer.understand.view.runs import machine_cells, machine_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from inferometer.core.profile import Phase, Profile
    from inferometer.measure.bench.compare import Comparison
    from inferometer.store.values import RunRow

_SECONDS = "replace(format(datum.value, '.4~s'), /([a-zµ]?)$/i, ' $1s')"
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_FEW_BINS, _MANY_BINS = 8, 40
_FAR = 6.0  # interquartile ranges beyond the quartiles


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """The percentiles that these readings are enough for, with the least and the largest."""
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


# Charts that compare runs: a number from run to run, and the layers that differ.

RUN_METRICS = ("latency_s", "ttft_s", "tpot_s", "tokens_per_s", "peak_memory_bytes")
_MOST_LAYERS = 40


def run_trend(rows: Iterable[RunRow], metric: str) -> dict[str, Any]:
    """A number of each run over the time it was taken, a line for each model, machine, device, runtime and workload.

    No line joins runs of different machines or sizes. Runs that do not say their machine are told apart by their
    device. What tells two lines apart stands in their names, and no more.
    """
    rows = [row for row in rows if getattr(row, metric) is not None]
    lines = _lines(rows, machine_names(rows))
    data = [
        {
            "at": datetime.fromtimestamp(row.created, tz=UTC).isoformat(),
            "value": getattr(row, metric),
            "text": format_quantity(getattr(row, metric), unit_of(metric)),
            "of": line,
            "run": row.name or row.id,
        }
        for row, line in zip(rows, lines, strict=True)
    ]
    if not data:
        raise DomainError(f"None of these runs has a {metric}.")
    changed = _changed(data)
    y = {"field": "value", "type": "quantitative", "scale": {"zero": False},
         "axis": {"title": column_title(metric), "labelExpr": number_text(metric)}}  # fmt: skip
    x = {"field": "at", "type": "temporal", "title": None}
    colour = {"field": "of", "type": "nominal", "title": None, "scale": {"range": list(COLOURS)},
              "legend": {"orient": "bottom", "columns": 1, "labelLimit": 900}}  # fmt: skip
    tips = tooltip({"run": "Run", "of": "Of", "text": column_title(metric), "at": "When"})
    drawn: dict[str, Any] = {
        "mark": {"type": "line", "point": {"size": 40}, "strokeWidth": 1.5},
        "encoding": {"x": x, "y": y, "color": colour, "tooltip": tips},
    }
    if changed:
        moved = tooltip({"run": "From run", "change": "Another level", "of": "Of"})
        ring = {"mark": {"type": "point", "size": 260, "strokeWidth": 2, "filled": False, "shape": "diamond"},
                "transform": [{"filter": "datum.change"}],
                "encoding": {"x": x, "y": y, "color": colour, "tooltip": moved}}  # fmt: skip
        drawn = {"layer": [drawn, ring]}
    told = f"; {counted(changed, 'change')} of level, marked" if changed else ""
    return spec(
        title=f"{column_title(metric)} from run to run",
        subtitle=f"{counted(len(data), 'run')}{told}",
        body={"width": 640, "height": 200, "data": {"values": data}, **drawn},
    )


def _changed(data: list[dict[str, Any]]) -> int:
    """Mark the points from which on a line lies at another level, and say how many they are.

    `change` is how far the level moved there: the median of the runs up to the next change over that of those before.
    """
    lines: dict[str, list[dict[str, Any]]] = {}
    for point in sorted(data, key=lambda point: str(point["at"])):
        lines.setdefault(point["of"], []).append(point)
    count = 0
    for points in lines.values():
        values = [point["value"] for point in points]
        if min(values) <= 0:
            continue
        ends = [0, *change_points(values), len(values)]
        for before, at, after in zip(ends, ends[1:-1], ends[2:], strict=False):
            ratio = median(values[at:after]) / median(values[before:at])
            points[at]["change"] = f"{100 * (ratio - 1):+.1f} %"
            count += 1
    return count


def _lines(rows: list[RunRow], names: Mapping[str, str]) -> list[str]:
    """The name of each run's line."""
    of_same = [(row.model, _place(row, names), row.runtime) for row in rows]
    apart = [(_sizes(row), row.precision, row.threads, row.profile_kind) for row in rows]
    texts = []
    for same, mine in zip(of_same, apart, strict=True):
        others = [other for key, other in zip(of_same, apart, strict=True) if key == same]
        differs = [len(set(values)) > 1 for values in zip(*others, strict=True)]
        words = (mine[0], mine[1], mine[2] and counted(mine[2], "thread"), mine[3])
        told = (word or "unknown" for word, differing in zip(words, differs, strict=True) if differing)
        texts.append(" · ".join(filter(None, (*same, *told))) or "unknown")
    return texts


def _sizes(row: RunRow) -> str | None:
    return None if row.workload is None else row.workload.replace(" ", ", ").replace("=", " ")


def _place(row: RunRow, names: Mapping[str, str]) -> str | None:
    """The machine and, if it is another than the machine itself, the device."""
    return " · ".join(filter(None, machine_cells(row, names).values())) or None


def difference_chart(comparison: Comparison) -> dict[str, Any]:
    """The layers whose times differ most, in the order of execution: what B takes more or less than A."""
    differing = [op for op in comparison.ops if op.a is not None and op.b is not None and op.a != op.b]
    if not differing:
        raise DomainError("No layer of the two differs.")
    most = sorted(differing, key=lambda op: -abs((op.b or 0) - (op.a or 0)))[:_MOST_LAYERS]
    kept = {id(op) for op in most}
    data = [
        {
            "layer": f"{op.phase}: {op.name}" if op.phase else op.name,
            "by": (op.b or 0) - (op.a or 0),
            "text": format_quantity((op.b or 0) - (op.a or 0), "s"),
            "verdict": verdict_text(op.verdict),
        }
        for op in differing
        if id(op) in kept
    ]
    x = {"field": "by", "type": "quantitative",
         "axis": {"title": f"{comparison.b} less {comparison.a}", "labelExpr": number_text("by_s")}}  # fmt: skip
    y = {"field": "layer", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 320}}
    calls = ["faster", "slower", "same", verdict_text("undecided")]
    scale = {"domain": calls, "range": [COLOURS[2], COLOURS[1], COLOURS[5], "#b4b9c0"]}
    return spec(
        title=f"{comparison.b} against {comparison.a}, layer by layer",
        subtitle=f"the {len(data)} layers that differ most, in the order of execution",
        body={"width": 480, "height": {"step": 18}, "data": {"values": data}, "mark": {"type": "bar"},
              "encoding": {"x": x, "y": y, "color": {"field": "verdict", "scale": scale, "title": None},
                           "tooltip": tooltip({"layer": "Layer", "text": "B less A", "verdict": "Verdict"})}},
    )  # fmt: skip

"""The layers of a profile: their times in the order of execution, and by kind and by unit."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from inferometer.core.errors import DomainError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.request import By, op_count, ops_by, repeats, request_shares
from inferometer.core.units import format_quantity
from inferometer.understand.view.charts.render import COLOURS, INK, QUIET, number_text, spec, tooltip
from inferometer.understand.view.drawing import unit_colour

Mode = Literal["latency", "count"]

_WIDTH = 760
_SECONDS = "replace(format(datum.value, '.3~s'), /([a-zµ]?)$/i, ' $1s')"


def phases_with_ops(profile: Profile) -> tuple[Phase, ...]:
    return tuple(phase for phase in profile.phases if phase.ops)


def layer_chart(profile: Profile) -> dict[str, Any]:
    """One bar a layer in the order of execution, stacked by phase; a line for what was predicted, a dot for the floor.

    Layers that stand in several phases share a bar; each phase counts as often as a request runs it. The x axis has
    numbers, since thousands of names cannot be read.
    """
    phases, times = _required(profile), repeats(profile)
    rows = [
        _layer(index, op, phase, times.get(phase.name, 1.0)) for phase in phases for index, op in enumerate(phase.ops)
    ]
    names = [phase.name for phase in phases]
    colour = {"field": "phase", "type": "nominal", "scale": {"domain": names, "range": list(COLOURS)}, "title": "Phase"}
    tips = {"name": "Layer", "phase": "Phase", "kind": "Kind", "unit": "Unit", "text": "Time", "bound": "Bound by"}
    axis = {"title": "Time", "labelExpr": _SECONDS}
    bars = {
        "mark": {"type": "bar", "width": {"band": 1} if len(rows) > _WIDTH / 2 else {"band": 0.8}},
        "encoding": {"y": {"field": "time_s", "type": "quantitative", "axis": axis}, "color": colour,
                     "tooltip": tooltip(tips)},
    }  # fmt: skip
    many = len(rows) > 40
    place = {"title": "Layer, in order of execution", "labels": not many, "ticks": not many, "grid": False}
    x = {"field": "place", "type": "ordinal", "axis": place}
    legends = {"predicted_s": "line: predicted", "floor_s": "dot: floor"}
    known = [words for field, words in legends.items() if any(row[field] is not None for row in rows)]
    key = "".join(f" · {words}" for words in known)
    return spec(
        title=f"{profile.model.name}: time of each layer",
        subtitle=f"{op_count(profile):,} ops · {_weights(profile)} · {profile.kind}{key}",
        body={"width": _WIDTH, "height": 300, "data": {"values": rows}, "encoding": {"x": x},
              "layer": [bars, *_overlays(rows)]},
    )  # fmt: skip


def _overlays(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    marks = {
        "predicted_s": {"type": "tick", "orient": "horizontal", "thickness": 2, "color": INK},
        "floor_s": {"type": "circle", "size": 24, "color": QUIET, "opacity": 1},
    }
    return [
        {
            "transform": [{"filter": f"isValid(datum.{field})"}],
            "mark": mark,
            "encoding": {"y": {"field": field, "type": "quantitative", "aggregate": "sum"}},
        }
        for field, mark in marks.items()
        if any(row[field] is not None for row in rows)
    ]


def _layer(index: int, op: OpTime, phase: Phase, times: float) -> dict[str, Any]:
    return {
        "place": index + 1,
        "name": op.name,
        "phase": phase.name,
        "kind": op.kind,
        "unit": op.unit or "unknown",
        "bound": op.bound or "unknown",
        "time_s": times * op.time_s,
        "text": format_quantity(times * op.time_s, "s"),
        "predicted_s": None if op.predicted_s is None else times * op.predicted_s,
        "floor_s": None if op.floor_s is None else times * op.floor_s,
    }


def kind_chart(profile: Profile, mode: Mode = "latency") -> dict[str, Any]:
    """The time of one request, or the number of ops, by kind of op."""
    return _bars(profile, mode, "kind", "kind of op", None)


def unit_chart(profile: Profile, mode: Mode = "latency") -> dict[str, Any]:
    """The time of one request, or the number of ops, by the unit that ran them, each in its own colour."""
    return _bars(profile, mode, "unit", "unit", unit_colour)


def _bars(profile: Profile, mode: Mode, by: By, what: str, colours: Callable[[str], str] | None) -> dict[str, Any]:
    _required(profile)
    values: Mapping[str, float] = ops_by(profile, by)
    if mode != "count":
        values = {name: seconds for name, seconds in request_shares(profile, by).items() if seconds > 0}
    total = sum(values.values()) or 1.0
    data = [
        {"key": name, "value": value, "text": f"{_told(value, mode)}  {value / total:.1%}"}
        for name, value in sorted(values.items(), key=lambda pair: -pair[1])
    ]
    axis = {"title": "Time" if mode == "latency" else "Ops", **({"labelExpr": _SECONDS} if mode == "latency" else {})}
    fill: dict[str, Any] = {"value": COLOURS[0]}
    if colours is not None:
        names = [str(row["key"]) for row in data]
        fill = {"field": "key", "legend": None, "scale": {"domain": names, "range": [colours(name) for name in names]}}
    y = {"field": "key", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 220, "ticks": False}}
    room = [0, 1.25 * max(values.values())]
    x = {"field": "value", "type": "quantitative", "axis": axis, "scale": {"domain": room, "nice": False}}
    return spec(
        title=f"{profile.model.name}: {'time' if mode == 'latency' else 'number of ops'} by {what}",
        subtitle=_weights(profile) if mode == "latency" else f"{op_count(profile):,} ops of the model",
        body={
            "width": 560, "height": {"step": 26}, "data": {"values": data}, "encoding": {"x": x, "y": y},
            "layer": [
                {"mark": {"type": "bar", "height": {"band": 0.72}}, "encoding": {"color": fill}},
                {"mark": {"type": "text", "align": "left", "dx": 6, "color": INK, "fontSize": 11},
                 "encoding": {"text": {"field": "text"}}},
            ],
        },
    )  # fmt: skip


def _weights(profile: Profile) -> str:
    """What the time is of: `one request: prefill, 127 × decode`."""
    times = repeats(profile)
    counted = [(phase.name, times[phase.name]) for phase in phases_with_ops(profile) if phase.name in times]
    return "one request: " + ", ".join(name if count == 1 else f"{count:,.4g} × {name}" for name, count in counted)


def _told(value: float, mode: Mode) -> str:
    return format_quantity(value, "s", digits=3) if mode == "latency" else f"{value:,.0f}"


def _required(profile: Profile) -> tuple[Phase, ...]:
    phases = phases_with_ops(profile)
    if not phases:
        raise DomainError(
            f"The profile of {profile.model.name} has no layers to draw.",
            remedy="Measure without --no-shape, or add --predict.",
        )
    return phases


# What peak memory consists of: weights, the KV cache at its longest, and the rest.


def memory_parts(profile: Profile) -> dict[str, int]:
    """Bytes at the peak by what they are for. The rest is the peak less what is known to be in it."""
    peak, model, workload = profile.summary.peak_memory_bytes, profile.model, profile.workload
    if not peak:
        return {}
    tokens = (workload.context or 0) + (workload.prompt or 0) + (workload.generate or 0)
    known = {
        "weights": model.weight_bytes or 0,
        "KV cache": (model.kv_bytes_per_token or 0) * tokens * workload.batch,
    }
    count = max(profile.device.count, 1)
    parts = {name: value // count for name, value in known.items() if value}
    if sum(parts.values()) > peak:
        return {"peak": peak}  # shared or mapped memory: what is resident is less than what is used
    return {**parts, "activations and the rest": peak - sum(parts.values())}


def memory_chart(profile: Profile) -> dict[str, Any]:
    parts = memory_parts(profile)
    if not parts:
        raise DomainError(f"The profile of {profile.model.name} has no peak memory.")
    data = [{"what": what, "bytes": value, "text": format_quantity(value, "B")} for what, value in parts.items()]
    scale = {"domain": list(parts), "range": [COLOURS[0], COLOURS[4], "#b4b9c0"]}
    x = {"field": "bytes", "type": "quantitative",
         "axis": {"title": "Peak memory", "labelExpr": number_text("peak_memory_bytes")}}  # fmt: skip
    return spec(
        title=f"{profile.model.name}: peak memory",
        subtitle=f"{format_quantity(sum(parts.values()), 'B')} on the fullest device",
        body={"width": 560, "height": 44, "data": {"values": data}, "mark": "bar",
              "encoding": {"x": x, "color": {"field": "what", "scale": scale, "title": None, "sort": None},
                           "order": {"field": "what"}, "tooltip": tooltip({"what": "What", "text": "Bytes"})}},
    )  # fmt: skip

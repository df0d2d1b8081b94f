"""The roofline chart: the speed of each op over its arithmetic intensity, under the roofs of its device."""

import re
from math import atan, degrees, hypot, log10, pi, sqrt
from textwrap import wrap
from typing import Any

from inferometer.core.device import Device
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.units import counted, format_quantity
from inferometer.understand.view.charts.render import COLOURS, INK, QUIET, log_ticks, spec, tooltip

_LEAST_SHARE = 1e-4  # of the phase's time: less than that is not drawn
_LABELS, _LEAST_NAMED, _SAME_SPOT = 6, 0.01, 12.0
_WIDTH, _LEAST_WIDTH, _MOST_WIDTH = 680, 260, 1200  # of the plane, in pixels
_NARROW = 480  # from here down the key stands below
_LETTER = 6.2  # pixels of a letter of a subtitle
_HOLLOW = "Hollow: fused with its neighbours; not all of its bytes are moved, so its intensity is at least this"
_LARGEST = 1600  # area of a dot that is all of the time
_BOUNDS = {
    "compute": COLOURS[0], "memory": COLOURS[1], "link": COLOURS[2], "overhead": QUIET, "storage": COLOURS[3],
    "unknown": INK,
}  # fmt: skip


def roofline(
    profile: Profile, device: Device, *, phase: str | None = None, title: str | None = None, width: int = _WIDTH
) -> dict[str, Any]:  # fmt: skip
    """The ops of a phase (the last one with ops, unless named): intensity against speed, as large as their time.

    The slanted roof is main memory, and each cache whose bandwidth is known; the flat ones are the peaks of the number
    formats. All of them are of the profile's devices together. Ops that compute or move nothing are left out.

    An op that is faster than its counted bytes can be moved does not move all of them: it is fused with its neighbours,
    and its true intensity is at least that at which the roof allows its speed. It is drawn there, hollow. `width` is of
    the plane, in pixels: names are placed for it, and written no smaller in a narrow one.
    """
    chosen = _phase(profile, phase)
    points = [_point(op, chosen) for op in chosen.ops if _drawable(op, chosen)]
    if not points:
        raise DomainError(f"No op of {chosen.name} has its work and its bytes known, so there is nothing to draw.")
    if device.memory is None or device.memory.bandwidth_bytes_per_s is None or not device.peaks:
        raise DomainError(f"The roofs of {device.name} are not known: it needs a bandwidth and a peak.")
    plane = _plane(device, profile.device.count, points, max(_LEAST_WIDTH, min(_MOST_WIDTH, width)))
    points = [_under_its_roof(point, plane) for point in points]
    count = f"{profile.device.count} × " if profile.device.count > 1 else ""
    heading = f"{chosen.name}, {format_quantity(chosen.time_s, 's')} · {profile.runtime or profile.kind}"
    subtitle = [f"{heading} · batch {profile.workload.batch} · a dot is an op, its size its share of the time"]
    if any(point["hollow"] for point in points):
        subtitle.append(_HOLLOW)
    above = sum(_beats_its_peak(op) for op in chosen.ops if _drawable(op, chosen))
    if above:
        subtitle.append(f"{counted(above, 'op')} above a flat roof: the engine does better than what measured it")
    subtitle = [part for line in subtitle for part in wrap(line, int(plane.width / _LETTER))]
    return spec(
        title=title or f"{profile.model.name} on {count}{device.title}",
        subtitle=subtitle,
        body={
            "width": plane.width,
            "height": plane.height,
            "encoding": plane.encoding(),
            "layer": _layers(points, plane),
        },
    )


def _under_its_roof(point: dict[str, Any], plane: "_Plane") -> dict[str, Any]:
    least = point["flops_per_s"] / plane.fastest
    if point["intensity"] * 1.01 >= least:
        return {**point, "hollow": False}
    return {**point, "intensity": least, "reach": f"≥ {least:.3g} FLOP/B ({point['reach']} counted)", "hollow": True}


def _beats_its_peak(op: OpTime) -> bool:
    return op.bound == "compute" and op.floor_s is not None and op.time_s < 0.99 * op.floor_s


def _phase(profile: Profile, name: str | None) -> Phase:
    with_ops = {phase.name: phase for phase in profile.phases if phase.ops}
    if name is None and with_ops:
        return list(with_ops.values())[-1]
    if name is None or name not in with_ops:
        raise UnknownNameError("phase with ops", name or "", with_ops, listing=f"There are: {', '.join(with_ops)}.")
    return with_ops[name]


def _drawable(op: OpTime, phase: Phase) -> bool:
    return bool(op.flops and op.bytes and op.time_s > _LEAST_SHARE * phase.time_s)


def _point(op: OpTime, phase: Phase) -> dict[str, Any]:
    flops, moved = op.flops or 0.0, op.bytes or 0.0
    return {
        "op": op.name,
        "kind": op.kind,
        "count": op.count,
        "bound": op.bound or "unknown",
        "intensity": flops / moved,
        "flops_per_s": flops / op.time_s,
        "share": op.time_s / phase.time_s,
        "time": format_quantity(op.time_s, "s"),
        "speed": format_quantity(flops / op.time_s, "FLOP/s"),
        "reach": f"{flops / moved:.3g} FLOP/B",
        "part": f"{op.time_s / phase.time_s:.1%}",
    }


@frozen
class _Plane:
    """What is seen: from … to on both axes, the memories' bandwidths and the peaks under it."""

    intensity: tuple[float, float]
    speed: tuple[float, float]
    memories: dict[str, float]
    peaks: dict[str, float]
    width: int

    @property
    def height(self) -> int:
        return round(max(300, min(440, 0.62 * self.width)))

    @property
    def main(self) -> float:
        return next(iter(self.memories.values()))

    @property
    def fastest(self) -> float:
        return max(self.memories.values())

    @property
    def angle(self) -> float:
        """Of a line along which speed grows as intensity does, in degrees."""
        across, up = (log10(high / low) for low, high in (self.intensity, self.speed))
        return -degrees(atan(self.height / up / (self.width / across)))

    def encoding(self) -> dict[str, Any]:
        speed = "replace(format(datum.value, '.3~s'), /([a-zµ]?)$/i, ' $1FLOP/s')"
        texts = {
            "intensity": {"title": "Arithmetic intensity, FLOP a byte moved", "format": "~g"},
            "flops_per_s": {"title": "Speed", "labelExpr": speed},
        }
        limits = {"x": ("intensity", self.intensity), "y": ("flops_per_s", self.speed)}
        return {
            channel: {
                "field": name,
                "type": "quantitative",
                "scale": {"type": "log", "domain": list(ends), "nice": False},
                "axis": {**texts[name], "values": log_ticks(*ends), "labelOverlap": "greedy"},
            }
            for channel, (name, ends) in limits.items()
        }


def _plane(device: Device, count: int, points: list[dict[str, Any]], width: int) -> _Plane:
    memories = {
        memory.level: count * float(memory.bandwidth_bytes_per_s)
        for memory in device.memories
        if memory.bandwidth_bytes_per_s is not None
    }
    by_peak: dict[float, list[str]] = {}
    for name, peak in device.peaks.items():
        by_peak.setdefault(count * peak.value, []).append(name)
    peaks = {"/".join(names): peak for peak, names in by_peak.items()}
    main, intensities = next(iter(memories.values())), [point["intensity"] for point in points]
    return _Plane(
        intensity=(min(*intensities, min(by_peak) / main) / 3, max(*intensities, max(by_peak) / main) * 12),
        speed=(min(point["flops_per_s"] for point in points) / 3, max(by_peak) * 3),
        memories=memories,
        peaks=peaks,
        width=width,
    )


def _corner(label: str, intensity: float, speed: float) -> dict[str, Any]:
    return {"roof": label, "intensity": intensity, "flops_per_s": speed}


def _roofs(plane: _Plane, points: list[dict[str, Any]]) -> list[Any]:
    """Each memory's slope up to the highest peak, each peak from main memory's slope on, with their names."""
    left, right = plane.intensity
    highest = max(plane.peaks.values())
    slopes = [_corner(name, at, at * speed) for name, speed in plane.memories.items() for at in (left, highest / speed)]
    flats = [_corner(name, at, peak) for name, peak in plane.peaks.items() for at in (peak / plane.main, right)]
    over = [
        _corner(f"{name}  {format_quantity(peak, 'FLOP/s', digits=3)}", right, peak)
        for name, peak in plane.peaks.items()
    ]
    along = []
    for name, speed in plane.memories.items():
        label = f"{name}  {format_quantity(speed, 'B/s', digits=3)}"
        start, end = max(left, plane.speed[0] / speed), highest / speed
        spots = [_corner(label, at, at * speed) for at in (start * (end / start) ** (n / 20) for n in range(4, 18))]
        along.append(max(spots, key=lambda spot: _room(spot, points, plane)))
    text = {"type": "text", "color": QUIET, "fontSize": 11, "dy": -8}
    return [
        {
            "data": {"values": [*slopes, *flats]},
            "mark": {"type": "line", "color": QUIET, "strokeWidth": 1.4, "clip": True},
            "encoding": {"detail": {"field": "roof"}},
        },
        {"data": {"values": over}, "mark": {**text, "align": "right"}, "encoding": {"text": {"field": "roof"}}},
        {"data": {"values": along}, "mark": {**text, "angle": plane.angle}, "encoding": {"text": {"field": "roof"}}},
    ]


def _layers(points: list[dict[str, Any]], plane: _Plane) -> list[Any]:
    tips = {"op": "Op", "kind": "Kind", "count": "×", "time": "Time", "part": "Share", "bound": "Bound by",
            "reach": "Intensity", "speed": "Speed"}  # fmt: skip
    known = [bound for bound in _BOUNDS if any(point["bound"] == bound for point in points)]
    size = {"field": "share", "type": "quantitative", "legend": None}
    key: dict[str, Any] = {"title": "Bound by", "symbolOpacity": 1}
    if plane.width < _NARROW:
        key |= {"orient": "bottom", "columns": 3}
    colour = {"field": "bound", "type": "nominal", "legend": key}
    dots = {
        "data": {"values": sorted(points, key=lambda point: -point["share"])},  # the small ones on top
        "mark": {"type": "circle", "opacity": 0.85, "strokeWidth": 1.5},
        "encoding": {
            "size": {**size, "scale": {"range": [30, _LARGEST], "domain": [0, 1]}},
            "color": {**colour, "scale": {"domain": known, "range": [_BOUNDS[bound] for bound in known]}},
            "fillOpacity": {"condition": {"test": "datum.hollow", "value": 0.12}, "value": 1},
            "stroke": {"condition": {"test": "datum.hollow", "field": "bound",
                                     "scale": {"domain": known, "range": [_BOUNDS[bound] for bound in known]}},
                       "value": "white"},
            "tooltip": tooltip(tips),
        },
    }  # fmt: skip
    return [*_roofs(plane, points), dots, *_names(points, plane)]


def _names(points: list[dict[str, Any]], plane: _Plane) -> list[Any]:
    """The names of the ops with the most time, each where it covers neither a dot nor another name."""
    ordered = sorted((p for p in points if p["share"] >= _LEAST_NAMED), key=lambda point: -point["share"])
    boxes = [_around(*_pixels(point, plane), 4, 4) for point in points] + _peak_boxes(plane)
    layers: list[Any] = []
    named: list[dict[str, Any]] = []
    for point in ordered:
        if named and _room(point, named, plane) < _SAME_SPOT:
            continue
        (x, y), radius, name = _pixels(point, plane), sqrt((30 + (_LARGEST - 30) * point["share"]) / pi), _short(point)
        half = 3.1 * len(name)
        ways = (
            ("left", radius + 5 + half, 0.0), ("right", -radius - 5 - half, 0.0),
            ("center", 0.0, -radius - 9), ("center", 0.0, radius + 9),
        )  # fmt: skip
        for align, aside, down in ways:
            box = _around(x + aside, y - down, half, 6)
            if box[0] < 0 or box[1] > plane.width:
                continue
            if len(layers) < _LABELS and not any(_overlap(box, other) for other in boxes):
                boxes.append(box)
                named.append(point)
                layers.append(_name(point, name, align=align, aside=radius + 5, down=down))
                break
    return layers


def _peak_boxes(plane: _Plane) -> list[tuple[float, float, float, float]]:
    """Where the peaks and their names are drawn."""
    boxes: list[tuple[float, float, float, float]] = []
    for name, peak in plane.peaks.items():
        x, y = _pixels(_corner(name, peak / plane.main, peak), plane)
        boxes += [(x, plane.width, y - 1, y + 1), (plane.width - 6 * (len(name) + 14), plane.width, y, y + 16)]
    return boxes


def _short(point: dict[str, Any]) -> str:
    name = re.sub(r"^layers\.\d+\.", "", point["op"])
    return name if len(name) <= 28 else f"…{name[-27:]}"


def _name(point: dict[str, Any], name: str, *, align: str, aside: float, down: float) -> dict[str, Any]:
    moved = {"left": aside, "right": -aside, "center": 0.0}[align]
    return {
        "data": {"values": [{**point, "label": name}]},
        "mark": {"type": "text", "align": align, "dx": moved, "dy": down, "fontSize": 11, "color": INK},
        "encoding": {"text": {"field": "label"}},
    }


def _around(x: float, y: float, wide: float, high: float) -> tuple[float, float, float, float]:
    return x - wide, x + wide, y - high, y + high


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def _room(spot: dict[str, Any], points: list[dict[str, Any]], plane: _Plane) -> float:
    """Pixels to the nearest of some points."""
    x, y = _pixels(spot, plane)
    return min(hypot(x - a, y - b) for a, b in (_pixels(point, plane) for point in points))


def _pixels(point: dict[str, Any], plane: _Plane) -> tuple[float, float]:
    (left, right), (low, high) = plane.intensity, plane.speed
    across = log10(point["intensity"] / left) / log10(right / left)
    up = log10(point["flops_per_s"] / low) / log10(high / low)
    return plane.width * across, plane.height * up

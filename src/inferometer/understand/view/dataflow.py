"""END-TO-END DATAFLOW: a run step by step, with its tables."""

from collections.abc import Iterator
from dataclasses import asdict

from inferometer.core.frozen import frozen
from inferometer.core.trace import Trace
from inferometer.core.units import format_quantity
from inferometer.measure.spans.attribution import CallPart, CallTimes, Trend
from inferometer.measure.spans.build import from_trace
from inferometer.measure.spans.flow import Flow, FlowRow, PhaseFlow, flow
from inferometer.measure.spans.recording import Recording
from inferometer.understand.view.drawing import draw, duration, unit_tag
from inferometer.understand.view.phrases import percent, percent_number
from inferometer.understand.view.render import render
from inferometer.understand.view.table import Column, ReportTable

_NAME_WIDTH = 44
_SMALL = 1e-4  # a rest below this share is left to the sums
_ROWS = 64  # steps shown of one phase; a line says how many more there are


@frozen
class Dataflow:
    """The walk (`text`), its tables (`tables`) and its drawing (`svg`). `flow` holds the numbers."""

    flow: Flow
    title: str = "END-TO-END DATAFLOW"

    def text(self) -> str:
        parts = [f"{self.title}: {duration(self.flow.wall_s)} from the first span to the last"]
        for phase in self.flow.phases:
            parts += [walk(phase), *(render(table, "table") for table in phase_tables(phase))]
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.text()

    def tables(self) -> tuple[ReportTable, ...]:
        return tuple(table for phase in self.flow.phases for table in phase_tables(phase))

    def svg(self) -> str:
        return draw(self.flow)


def dataflow(source: Recording | Trace) -> Dataflow:
    """The dataflow of any span tree: a recording, or a trace of whatever made it."""
    return Dataflow(flow=flow(from_trace(source) if isinstance(source, Trace) else source))


# ── the walk ────────────────────────────────────────────────────────────────────────────────────────────────────────


def walk(phase: PhaseFlow) -> str:
    """The steps of one phase in order, a container around what repeats, and the sum at the end."""
    runs = f", mean of {phase.runs} runs" if phase.runs > 1 else ""
    within = f" ({phase.title})" if phase.title and phase.title != phase.name else ""
    lines = [f"{phase.name}{within}: {duration(phase.wall_s)}{runs}"]
    steps = [line for row in phase.rows for line in _steps(row, depth=1)]
    lines += steps[:_ROWS]
    if len(steps) > _ROWS:
        lines.append(f"  … and {len(steps) - _ROWS} more steps")
    if phase.rest_s > _SMALL * phase.wall_s:
        lines.append(_line(1, "—", "between these", duration(phase.rest_s)))
    lines.append(_line(1, "", "total", duration(phase.wall_s)))
    wall_s = phase.attribution.wall_s
    shares = " · ".join(
        f"{name} {duration(time_s)} ({percent(time_s, wall_s) or '–'})" for name, time_s in _wall_parts(phase)
    )
    lines.append("  " + shares)
    return "\n".join(lines)


def _steps(row: FlowRow, *, depth: int) -> Iterator[str]:
    times = "" if row.count == 1 else f" × {row.count:.3g}"
    if not row.rows:
        together = f"  = {duration(row.total_s)}" if row.count != 1 else ""
        step = _line(depth, unit_tag(row.unit), f"{row.name}{times}", duration(row.time_s))
        yield step + together + _parts(row.parts)
        return
    tag = "" if row.unit is None else unit_tag(row.unit)
    total = f" each, {duration(row.total_s)}" if row.count != 1 else ""
    yield _line(depth, tag, f"{row.name or 'block'}{times}", duration(row.time_s)) + total + _parts(row.parts)
    for inner in row.rows:
        yield from _steps(inner, depth=depth + 1)
    if row.rest_s and row.rest_s > _SMALL * row.time_s:
        yield _line(depth + 1, "—", "between these", duration(row.rest_s))


def _line(depth: int, tag: str, name: str, time: str) -> str:
    head = f"{'  ' * depth}{f'[{tag}]' if tag else '':<6} {name}"
    return f"{head:<{_NAME_WIDTH}} {time:>10}"


def _parts(parts: tuple[CallPart, ...]) -> str:
    if not parts:
        return ""
    return "  (" + " / ".join(f"{part.name} {duration(part.time_s)}" for part in parts) + ")"


def _wall_parts(phase: PhaseFlow) -> list[tuple[str, float]]:
    """The wall by unit, less what units did at the same time, and what no unit claims."""
    wall = phase.attribution
    parts = [(unit_tag(unit), time_s) for unit, time_s in wall.units]
    if wall.overlap_s:
        parts.append(("at the same time", -wall.overlap_s))
    return [*parts, ("unattributed", wall.unattributed_s)]


# ── the tables ──────────────────────────────────────────────────────────────────────────────────────────────────────


def phase_tables(phase: PhaseFlow) -> Iterator[ReportTable]:
    yield attribution_table(phase)
    if phase.layers:
        yield layer_table(phase)
    if phase.calls:
        yield call_table(phase)
    if any(call.parts for call in phase.calls):
        yield part_table(phase)
    if phase.trend is not None:
        yield trend_table(phase, phase.trend)


def attribution_table(phase: PhaseFlow) -> ReportTable:
    """Which unit had the wall, and how much of it nobody claims."""
    wall_s = phase.attribution.wall_s
    times = (*_wall_parts(phase), ("wall", wall_s))
    columns = (
        Column(key="unit", heading="unit"),
        Column(key="time_s", heading="time", unit="s"),
        Column(key="share", heading="of wall", label="share_percent", unit="%"),
    )
    rows = tuple({"unit": unit, "time_s": time_s, "share": percent_number(time_s, wall_s)} for unit, time_s in times)
    return ReportTable(title=f"{phase.name}: wall-time attribution", columns=columns, rows=rows)


def layer_table(phase: PhaseFlow) -> ReportTable:
    columns = [Column(key="layer", heading="layer", exact=True), Column(key="mean_s", heading="time", unit="s")]
    if phase.runs > 1:
        columns += [Column(key="min_s", heading="min", unit="s"), Column(key="max_s", heading="max", unit="s")]
    rows = tuple(asdict(layer) for layer in phase.layers)
    over = f", mean over {phase.runs} runs" if phase.runs > 1 else ""
    return ReportTable(title=f"{phase.name}: per-layer execution{over}", columns=tuple(columns), rows=rows)


def call_table(phase: PhaseFlow) -> ReportTable:
    whole_s = phase.attribution.wall_s * phase.runs
    rows = tuple(
        {
            "name": call.name,
            "unit": unit_tag(call.unit),
            "count": call.count,
            "mean_s": call.mean_s,
            "min_s": call.min_s,
            "max_s": call.max_s,
            "total_s": call.total_s / phase.runs,
            "share": percent_number(call.total_s, whole_s),
            "bandwidth": call.bytes / call.total_s if call.bytes and call.total_s else None,
            "rate": call.flops / call.total_s if call.flops and call.total_s else None,
            "device_s": call.device_s,
        }
        for call in phase.calls
    )
    columns = [
        Column(key="name", heading="call"),
        Column(key="unit", heading="unit"),
        Column(key="count", heading="calls", exact=True),
        Column(key="mean_s", heading="avg / call", unit="s"),
        Column(key="min_s", heading="min", unit="s"),
        Column(key="max_s", heading="max", unit="s"),
        Column(key="total_s", heading="total / run" if phase.runs > 1 else "total", unit="s"),
        Column(key="share", heading="of wall", label="share_percent", unit="%"),
    ]
    optional = (("bandwidth", "bytes/s", "B/s"), ("rate", "FLOP/s", "FLOP/s"), ("device_s", "on the device", "s"))
    columns += [Column(key=key, heading=head, unit=unit) for key, head, unit in optional if any(r[key] for r in rows)]
    return ReportTable(title=f"{phase.name}: calls", columns=tuple(columns), rows=rows)


def part_table(phase: PhaseFlow) -> ReportTable:
    """Each call's segments, a call; and what they come to over a run of the phase."""
    calls = [call for call in phase.calls if call.parts]
    names = list(dict.fromkeys(part.name for call in calls for part in call.parts))
    rows = [_part_row(call) for call in calls]
    sums = {name: sum(_part_s(call, name) * call.count for call in calls) / phase.runs for name in names}
    rows.append({"call": "a run of the phase", "time_s": sum(call.total_s for call in calls) / phase.runs, **sums})
    columns = [Column(key="call", heading="call"), Column(key="time_s", heading="avg / call", unit="s")]
    columns += [Column(key=name, heading=name, unit="s") for name in names]
    if any("bytes" in row for row in rows):
        columns.append(Column(key="bytes", heading="bytes", unit="B"))
    total_s = sum(sums.values())
    note = " · ".join(f"{name} {percent(time_s, total_s) or '–'}" for name, time_s in sums.items())
    return ReportTable(title=f"{phase.name}: segments", columns=tuple(columns), rows=tuple(rows), note=note)


def _part_row(call: CallTimes) -> dict[str, object]:
    sizes = [part.bytes for part in call.parts if part.bytes is not None]
    row: dict[str, object] = {"call": call.name, "time_s": call.mean_s}
    return row | {part.name: part.time_s for part in call.parts} | ({"bytes": sum(sizes)} if sizes else {})


def _part_s(call: CallTimes, name: str) -> float:
    return sum(part.time_s for part in call.parts if part.name == name)


def trend_table(phase: PhaseFlow, trend: Trend) -> ReportTable:
    """Whether a token takes longer the later it comes."""
    rows = tuple(
        {"token": name, "time_s": value}
        for name, value in (
            ("first", trend.first_s), ("middle", trend.middle_s), ("last", trend.last_s), ("min", trend.min_s),
            ("max", trend.max_s), ("mean", trend.mean_s),
        )
    )  # fmt: skip
    fitted = "" if trend.slope_s is None else f"; fitted: {format_quantity(trend.slope_s, 's', digits=3)} a token"
    note = f"{trend.count} tokens; first → last {trend.drift:+.2%}{fitted}"
    columns = (Column(key="token", heading="token"), Column(key="time_s", heading="wall", unit="s"))
    return ReportTable(title=f"{phase.name}: per-token trend", columns=columns, rows=rows, note=note)

"""The dataflow as a drawing: a column for each phase, a box for each step, a frame around repeats, and time by unit."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html import escape

from inferometer.core.profile import Phase, Profile
from inferometer.core.request import kept_steps
from inferometer.core.units import format_quantity
from inferometer.measure.spans.attribution import Attribution, Trend
from inferometer.measure.spans.build import from_trace
from inferometer.measure.spans.flow import Flow, FlowRow, PhaseFlow, flow
from inferometer.measure.spans.recording import Recording

# Told apart with any eyesight, and in grey by their lightness (Okabe and Ito).
UNIT_COLOURS = {"cpu": "#0072B2", "gpu": "#009E73", "npu": "#D55E00", "dsp": "#CC79A7", "tpu": "#E69F00"}
_OTHERS = ("#56B4E9", "#8A6D00", "#7A4FA3", "#4D4D4D")
_REST, _INK, _SOFT, _LINE, _PAPER, _FRAME = "#B4B9C0", "#1B2230", "#5B6573", "#C9CFD8", "#FFFFFF", "#F5F7FA"

_COLUMN, _GUTTER, _EDGE = 470, 34, 28
_INDENT, _GAP = 14, 15
_STEP, _PARTED, _BETWEEN, _HEAD = 46, 62, 24, 40
_ROWS = 40  # boxes of one phase; a line says that there are more
_COLUMNS = 3


def drawn(recording: Recording) -> Iterator[bytes]:
    yield draw(flow(recording)).encode()


def draw(run: Flow) -> str:
    """The flow as one SVG, without scripts, fonts or pictures from elsewhere."""
    columns = [_column(phase) for phase in run.phases]
    shelves = [columns[first : first + _COLUMNS] for first in range(0, len(columns), _COLUMNS)]
    across = max((len(shelf) for shelf in shelves), default=1)
    width = 2 * _EDGE + across * _COLUMN + (across - 1) * _GUTTER
    top, body = 84.0, []
    for shelf in shelves:
        for index, column in enumerate(shelf):
            x = _EDGE + index * (_COLUMN + _GUTTER)
            body.append(f'<g transform="translate({x} {top:.1f})">{"".join(column.parts)}</g>')
        top += max(column.height for column in shelf) + 40
    title = "End-to-end dataflow"
    wall = f"{duration(run.wall_s)} from the first span to the last"
    head = [
        _text(_EDGE, 38, title, size=22, weight=700),
        _text(_EDGE, 62, wall, size=13, colour=_SOFT),
        _legend(run, width - _EDGE, 38),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top:.0f}" viewBox="0 0 {width} {top:.0f}" '
        f'role="img" font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif">'
        f"<title>{title}: {escape(wall)}</title>{_DEFINITIONS}"
        f'<rect width="100%" height="100%" fill="{_PAPER}"/>{"".join(head)}{"".join(body)}</svg>\n'
    )


_DEFINITIONS = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path d="M0 0 8 4 0 8z" fill="{_SOFT}"/></marker>'
    '<pattern id="rest" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="6" height="6" fill="#EEF0F3"/><rect width="2" height="6" fill="{_REST}"/></pattern></defs>'
)


def unit_colour(unit: str | None) -> str:
    """A unit's colour; one that is not known gets the same one each time."""
    if unit is None:
        return _SOFT
    return UNIT_COLOURS.get(unit.lower()) or _OTHERS[sum(unit.encode()) % len(_OTHERS)]


@dataclass(slots=True)
class _Column:
    """Parts of a column so far, and how far down they reach."""

    wall_s: float
    parts: list[str] = field(default_factory=list)
    height: float = 0.0
    boxes: int = 0


def _column(phase: PhaseFlow) -> _Column:
    column = _Column(phase.wall_s)
    runs = f" · mean of {phase.runs} runs" if phase.runs > 1 else ""
    column.parts += [
        _text(0, 14, phase.name, size=17, weight=700),
        _text(_COLUMN, 14, f"{duration(phase.wall_s)}{runs}", size=14, weight=600, anchor="end"),
        f'<line x1="0" y1="24" x2="{_COLUMN}" y2="24" stroke="{_INK}" stroke-width="1.5"/>',
    ]
    column.height = 24 + _GAP
    _rows(column, phase.rows, depth=0, times=1.0)
    if _worth_drawing(column, phase.rest_s, 1.0):
        _arrow(column)
        _between(column, phase.rest_s, depth=0, times=1.0)
    column.height += 24
    _attribution(column, phase.attribution)
    if phase.trend is not None:
        _trend(column, phase.trend)
    return column


def _rows(column: _Column, rows: tuple[FlowRow, ...], *, depth: int, times: float) -> None:
    for index, row in enumerate(rows):
        if index:
            _arrow(column)
        if column.boxes >= _ROWS:
            column.parts.append(_text(_COLUMN / 2, column.height + 14, "… more steps", size=12, anchor="middle"))
            column.height += 22
            return
        if row.rows:
            _frame(column, row, depth=depth, times=times)
        else:
            _step(column, row, depth=depth, times=times)


def _frame(column: _Column, row: FlowRow, *, depth: int, times: float) -> None:
    """A container: its title and time, and its steps inside a frame."""
    top, place = column.height, len(column.parts)
    column.height += _HEAD
    _rows(column, row.rows, depth=depth + 1, times=times * row.count)
    if row.rest_s is not None and _worth_drawing(column, row.rest_s, times * row.count):
        _arrow(column)
        _between(column, row.rest_s, depth=depth + 1, times=times * row.count)
    column.height += 12
    x, width = _INDENT * depth, _COLUMN - 2 * _INDENT * depth
    count = f" × {row.count:.3g}" if row.count != 1 else ""
    times_text = f"{duration(row.time_s)} each · {duration(row.total_s)}" if row.count != 1 else duration(row.time_s)
    look = f'fill="{_FRAME}" stroke="{_SOFT}" stroke-width="1.2" stroke-dasharray="5 4"'
    column.parts[place:place] = [
        f'<rect x="{x}" y="{top:.1f}" width="{width}" height="{column.height - top:.1f}" rx="9" {look}/>',
        _text(x + 12, top + 25, f"{_short(row.name or 'repeats', 30)}{count}", size=14, weight=700),
        _text(x + width - 12, top + 25, times_text, size=13, weight=600, anchor="end"),
    ]


def _step(column: _Column, row: FlowRow, *, depth: int, times: float) -> None:
    x, y, width = _INDENT * depth, column.height, _COLUMN - 2 * _INDENT * depth
    height, colour = _PARTED if row.parts else _STEP, unit_colour(row.unit)
    count = f" × {row.count:.3g}" if row.count != 1 else ""
    share = row.total_s * times / column.wall_s if column.wall_s else 0.0
    together = f"= {duration(row.total_s)}" if row.count != 1 else ""
    column.parts += [
        f"<g><title>{escape(row.name or '')}: {duration(row.time_s)}, {share:.1%} of the phase</title>",
        f'<rect x="{x}" y="{y:.1f}" width="{width}" height="{height}" rx="6" fill="{_PAPER}" stroke="{_LINE}"/>',
        f'<rect x="{x}" y="{y:.1f}" width="6" height="{height}" rx="3" fill="{colour}"/>',
        _text(x + 17, y + 20, f"{_short(row.name or '', 34)}{count}", size=13.5, weight=600),
        _text(x + width - 12, y + 20, duration(row.time_s), size=13.5, weight=700, anchor="end"),
        _text(x + 17, y + 36, unit_tag(row.unit), size=11, weight=700, colour=colour),
        _text(
            x + width - 12, y + 36, f"{together}  {share:.1%} of the phase".strip(), size=11, colour=_SOFT, anchor="end"
        ),
    ]
    if row.parts:
        parts = "  ·  ".join(f"{part.name} {duration(part.time_s)}" for part in row.parts)
        column.parts.append(_text(x + 17, y + 52, _short(parts, 62), size=11, colour=_SOFT))
    bar = (width - 12) * min(share, 1.0)
    column.parts.append(
        f'<rect x="{x + 6}" y="{y + height - 3:.1f}" width="{bar:.1f}" height="3" fill="{colour}" opacity="0.55"/></g>'
    )
    column.height += height
    column.boxes += 1


def _between(column: _Column, rest_s: float, *, depth: int, times: float) -> None:
    """The time that no step has: scheduling, Python, copies nobody drew a span around."""
    x, y, width = _INDENT * depth, column.height, _COLUMN - 2 * _INDENT * depth
    share = rest_s * times / column.wall_s if column.wall_s else 0.0
    column.parts += [
        f'<rect x="{x}" y="{y:.1f}" width="{width}" height="{_BETWEEN}" rx="6" fill="url(#rest)" stroke="{_LINE}"/>',
        f'<rect x="{x + 11}" y="{y + 4:.1f}" width="{width - 22}" height="{_BETWEEN - 8}" rx="3" fill="{_PAPER}"/>',
        _text(x + 17, y + 16.5, "between these", size=11.5, colour=_SOFT),
        _text(x + width - 17, y + 16.5, f"{duration(rest_s)} · {share:.1%}", size=11.5, colour=_SOFT, anchor="end"),
    ]
    column.height += _BETWEEN


def _worth_drawing(column: _Column, rest_s: float, times: float) -> bool:
    """A rest that would be drawn as 0.0 % is left to the sums."""
    return rest_s * times >= 0.0005 * column.wall_s > 0


def _arrow(column: _Column) -> None:
    """To the next step, down the middle of the column and of every frame in it."""
    y = column.height
    column.parts.append(
        f'<line x1="{_COLUMN / 2}" y1="{y + 1:.1f}" x2="{_COLUMN / 2}" y2="{y + _GAP - 1:.1f}" stroke="{_SOFT}" '
        f'stroke-width="1.2" marker-end="url(#tip)"/>'
    )
    column.height += _GAP


def _attribution(column: _Column, wall: Attribution) -> None:
    """The wall as one bar, a part for each unit, and the numbers under it."""
    y, x = column.height, 0.0
    column.parts.append(_text(0, y + 4, "Wall time by unit", size=12.5, weight=700))
    shares = [(unit_tag(unit), time_s, unit_colour(unit)) for unit, time_s in wall.units]
    shares.append(("unattributed", wall.unattributed_s, "url(#rest)"))
    total_s = max(sum(time_s for _, time_s, _ in shares), wall.wall_s) or 1.0
    line = y + 50
    for name, time_s, colour in shares:
        width = _COLUMN * time_s / total_s
        column.parts.append(
            f'<rect x="{x:.1f}" y="{y + 14:.1f}" width="{width:.1f}" height="16" fill="{colour}">'
            f"<title>{escape(name)}: {duration(time_s)}</title></rect>"
        )
        swatch = colour if colour != "url(#rest)" else _REST
        column.parts += [
            f'<rect x="0" y="{line - 9:.1f}" width="10" height="10" rx="2" fill="{swatch}"/>',
            _text(18, line, name, size=12),
            _text(_COLUMN - 90, line, duration(time_s), size=12, weight=600, anchor="end"),
            _text(_COLUMN, line, f"{time_s / (wall.wall_s or 1.0):.1%}", size=12, colour=_SOFT, anchor="end"),
        ]
        x, line = x + width, line + 18
    column.height = line + 2


def _trend(column: _Column, trend: Trend) -> None:
    """Time by token as a line that starts at zero, so that a small drift looks small."""
    y, tall = column.height + 18, 46
    column.parts.append(_text(0, y, "Time by token", size=12.5, weight=700))
    summary = f"first → last {trend.drift:+.1%} · {duration(trend.min_s)} to {duration(trend.max_s)}"
    column.parts.append(_text(_COLUMN, y, summary, size=11.5, colour=_SOFT, anchor="end"))
    step = max(len(trend.values_s) // 200, 1)
    values = trend.values_s[::step]
    across = _COLUMN / max(len(values) - 1, 1)
    points = " ".join(
        f"{index * across:.1f},{y + 10 + tall * (1 - 0.85 * value / (trend.max_s or 1.0)):.1f}"
        for index, value in enumerate(values)
    )
    column.parts += [
        f'<line x1="0" y1="{y + 10 + tall:.1f}" x2="{_COLUMN}" y2="{y + 10 + tall:.1f}" stroke="{_LINE}"/>',
        f'<polyline points="{points}" fill="none" stroke="{UNIT_COLOURS["cpu"]}" stroke-width="1.8"/>',
    ]
    column.height = y + 10 + tall + 8


def _legend(run: Flow, right: float, y: float) -> str:
    units = list(dict.fromkeys(unit for phase in run.phases for unit, _ in phase.attribution.units))
    parts, x = [], right
    for unit in reversed(units):
        label = unit_tag(unit)
        x -= 9.5 * len(label)
        parts.append(_text(x, y, label, size=12, weight=600))
        x -= 17
        parts.append(f'<rect x="{x:.1f}" y="{y - 10}" width="11" height="11" rx="2" fill="{unit_colour(unit)}"/>')
        x -= 16
    return "".join(parts)


def _text(  # noqa: PLR0913 - a text has a place and a look
    x: float, y: float, text: str, *, size: float, weight: int = 400, colour: str = _INK, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def unit_tag(unit: str | None) -> str:
    return "—" if unit is None else unit.upper()


def duration(seconds: float) -> str:
    return format_quantity(seconds, "s", digits=4)


# Drawings of a profile: one generation, or one pass, laid out in time; and its layers, as small as in a list.

_MOST_SPANS = 40_000  # a drawing of more shows nothing more


def dataflow_svg(profile: Profile) -> str | None:
    """The drawing, or None if the profile has no phase that a request goes through."""
    from inferometer.measure.run.spans import trace_of  # noqa: PLC0415 - it brings numpy: only when drawing

    trace = trace_of(replace(profile, phases=tuple(map(_drawable, profile.phases))))
    if not trace.spans:
        return None
    return b"".join(drawn(from_trace(trace))).decode()


def _drawable(phase: Phase) -> Phase:
    """The phase with as many of its steps as can be drawn in a moment."""
    most = max(2, _MOST_SPANS // max(len(phase.ops), 1))
    if phase.op_context is None or len(phase.op_context) <= most:
        return phase
    kept = kept_steps(len(phase.op_context), most)
    ops = tuple(
        op if op.samples_s is None else replace(op, samples_s=tuple(op.samples_s[place] for place in kept))
        for op in phase.ops
    )
    return replace(phase, ops=ops, op_context=tuple(phase.op_context[place] for place in kept))


_BARS, _WIDE, _HIGH = 48, 96, 20  # of a thumbnail: the most bars, and its size in pixels


def layers_svg(profile: Profile | None) -> str:
    """The times of the layers of its steady phase as bars, neighbours together where they are many; maybe none."""
    phase = None if profile is None else profile.steady
    times = [] if phase is None else [op.time_s for op in phase.ops]
    each = -(-len(times) // _BARS) or 1
    bars = [sum(times[at : at + each]) for at in range(0, len(times), each)]
    most, width = max(bars, default=0.0) or 1.0, _WIDE / (len(bars) or 1)
    drawn = "".join(
        f'<rect x="{number * width:.2f}" y="{_HIGH * (1 - bar / most):.2f}" width="{max(width - 0.3, 0.3):.2f}" '
        f'height="{_HIGH * bar / most:.2f}"/>'
        for number, bar in enumerate(bars)
    )
    box = f'viewBox="0 0 {_WIDE} {_HIGH}" width="{_WIDE}" height="{_HIGH}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} fill="#0072b2">{drawn}</svg>'

"""A recording as one file: an HTML page with the drawing, tables and time line, or one JSON document of the numbers.

The page has no scripts and loads nothing from elsewhere.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from inferometer.core.errors import UnknownNameError
from inferometer.core.units import format_quantity
from inferometer.measure.bench.statistics import percentile_between
from inferometer.measure.spans.build import batches_of
from inferometer.measure.spans.flow import flow
from inferometer.measure.spans.nest import Floats, Ints, covered_ns
from inferometer.measure.spans.power import uses
from inferometer.measure.spans.recording import DEVICE, Recording
from inferometer.measure.spans.span_stats import SpanStats, stats_of_all
from inferometer.understand.view.cards import Card, View
from inferometer.understand.view.dataflow import phase_tables
from inferometer.understand.view.drawing import draw
from inferometer.understand.view.exports import view_markdown
from inferometer.understand.view.notebook import view_html
from inferometer.understand.view.phrases import percent_number
from inferometer.understand.view.render import render
from inferometer.understand.view.table import Column, ReportTable

# A recording as tables and text: the tree, the phases, the statistics, the time line; CSV and Markdown of them.

_SHARE = Column(key="share", heading="of wall", label="share_percent", unit="%")
_ROWS = 40  # rows a person reads; what is left out is summed in a note
_WIDTH = 72  # characters of a time line
_LANES = 12
_ROUNDING = 1e-6  # of a place on the time line: sums of a million spans are no better


def report(recording: Recording, style: str = "full") -> str:
    styles: dict[str, Callable[[Recording], str]] = {"full": _full, "operations": operations}
    if style not in styles:
        raise UnknownNameError("style of report", style, styles, listing=f"Known: {', '.join(styles)}.")
    return styles[style](recording)


def _full(recording: Recording) -> str:
    if len(recording) == 0:
        return "\n".join(["No spans were recorded.", *recording.run.notes])
    view = recording_view(recording)
    tables = (render(table, "table") for table in view.tables)
    notes = "\n".join(f"Note: {note}" for note in view.card.sources)
    return "\n\n".join(filter(None, (view.card.subtitle, *tables, view.timeline, notes)))


def recording_view(recording: Recording) -> View:
    """How much was recorded, its spans by path and by name, and its time line; with the drawing, where there is room.

    What each phase consists of takes many times as long to work out: the page has it, and a report has not.
    """
    everything = stats_of_all(recording)
    about = headline(recording, names=len(everything))
    card = Card(title="", subtitle=about, facts=(), sources=tuple(recording.run.notes))
    if not len(recording):
        return View(card=card)
    tables = (
        tree_table(recording), statistics_table(everything), phase_table(recording), memory_table(everything),
        power_table(recording),
    )  # fmt: skip
    return View(
        card=card,
        tables=tuple(table for table in tables if table is not None),
        charts=(lambda: draw(flow(recording)),),
        timeline=timeline(recording),
    )


def headline(recording: Recording, *, names: int | None = None) -> str:
    """How much was recorded, what was let go, and what recording cost."""
    run, wall_s = recording.run, recording.wall_s
    threads = len({(lane.process, lane.thread) for lane in recording.lanes})
    kinds = len(recording.names()) if names is None else names
    size = f"{len(recording):,} spans of {kinds} names in {threads} thread{'s' * (threads > 1)}"
    parts = [f"{format_quantity(wall_s, 's')} from the first span to the last; {size}"]
    if failures := int(recording.failed.sum()):
        parts.append(f"{failures:,} failed")
    parts.append(f"{run.dropped:,} dropped")
    lines = ["; ".join(parts) + "."]
    if run.span_cost_s is not None and wall_s > 0:
        count = len(recording) + len(recording.segments.owner) + run.dropped
        own_s = run.span_cost_s * count
        lines.append(
            f"Recording itself: {format_quantity(run.span_cost_s, 's', digits=3)} a span, measured at the start, so "
            f"about {format_quantity(own_s, 's', digits=3)} or {own_s / wall_s:.2%} of the run."
        )
    return "\n".join(lines)


# ── the tree ────────────────────────────────────────────────────────────────────────────────────────────────────────


def tree_table(recording: Recording, *, rows: int = _ROWS) -> ReportTable:
    """Spans by the path of names that leads to them: inclusive, exclusive, and their share of the wall."""
    path, above = _paths(recording)
    seconds, alone, wall_s = recording.durations_s, recording.exclusive_s(), recording.wall_s
    count = np.bincount(path, minlength=len(above))
    total = np.bincount(path, weights=seconds, minlength=len(above))
    exclusive = np.bincount(path, weights=alone, minlength=len(above))
    name = np.empty(len(above), dtype=np.int64)
    name[path] = recording.name
    table_rows = [
        {
            "span": "  " * (depth - 1) + "└ " * (depth > 0) + recording.words[int(name[number])],
            "calls": int(count[number]),
            "total_s": float(total[number]),
            "exclusive_s": float(exclusive[number]),
            "share": percent_number(float(total[number]), wall_s),
            "mean_s": float(total[number] / count[number]),
        }
        for number, depth in _walk(above, total)
    ]
    hidden = table_rows[rows:]
    note = None
    if hidden:
        rest_s = sum(float(exclusive[number]) for number, _ in list(_walk(above, total))[rows:])
        note = f"… and {len(hidden)} more paths with {format_quantity(rest_s, 's')} of their own."
    return ReportTable(title="Tree", columns=_TREE, rows=tuple(table_rows[:rows]), note=note)


_TREE = (
    Column(key="span", heading="span"),
    Column(key="calls", heading="calls", exact=True),
    Column(key="total_s", heading="total", unit="s"),
    Column(key="exclusive_s", heading="own", unit="s"),
    _SHARE,
    Column(key="mean_s", heading="mean", unit="s"),
)


def _paths(recording: Recording) -> tuple[Ints, list[int]]:
    """A number for each path of names, for every span; and the number of the path above each path."""
    depth = recording.depths()
    path = np.zeros(len(recording), dtype=np.int64)
    above: list[int] = []
    for level in range(int(depth.max(initial=-1)) + 1):
        rows = np.flatnonzero(depth == level)
        parents = path[recording.parent[rows]] if level else np.full(len(rows), -1)
        keys = (parents + 1) * len(recording.words) + recording.name[rows]
        used = np.flatnonzero(np.bincount(keys))  # few paths: counting is quicker than sorting
        number = np.zeros(int(used[-1]) + 1, dtype=np.int64)
        number[used] = np.arange(len(above), len(above) + len(used))
        path[rows] = number[keys]
        above += (used // len(recording.words) - 1).tolist()
    return path, above


def _walk(above: list[int], total: Any) -> Iterator[tuple[int, int]]:
    """Paths from the top, the longest first, each with its depth."""
    inside: dict[int, list[int]] = {}
    for number, parent in enumerate(above):
        inside.setdefault(parent, []).append(number)
    waiting = [(number, 0) for number in sorted(inside.get(-1, ()), key=lambda number: total[number])]
    while waiting:
        number, depth = waiting.pop()
        yield number, depth
        waiting += [(child, depth + 1) for child in sorted(inside.get(number, ()), key=lambda child: total[child])]


# ── statistics ──────────────────────────────────────────────────────────────────────────────────────────────────────

_STATISTICS = (
    Column(key="name", heading="span"),
    Column(key="count", heading="calls", exact=True),
    Column(key="mean_s", heading="mean", unit="s"),
    Column(key="std_s", heading="std", unit="s"),
    Column(key="min_s", heading="min", unit="s"),
    Column(key="median_s", heading="median", unit="s"),
    Column(key="p95_s", heading="p95", unit="s"),
    Column(key="p99_s", heading="p99", unit="s"),
    Column(key="max_s", heading="max", unit="s"),
    Column(key="calls_per_s", heading="calls/s", exact=True),
)
_OPTIONAL = (
    Column(key="tokens_per_s", heading="tokens/s", unit="tok/s"),
    Column(key="bytes_per_s", heading="bytes/s", unit="B/s"),
    Column(key="flops_per_s", heading="FLOP/s", unit="FLOP/s"),
    Column(key="device_s", heading="device", unit="s"),
    Column(key="energy_j", heading="energy", unit="J"),
    Column(key="failed", heading="failed", exact=True),
)


def statistics_table(everything: list[SpanStats]) -> ReportTable:
    """One row a name. A percentile that so few calls cannot support is a dash."""
    shown = [
        {column.key: getattr(stats, column.key) for column in (*_STATISTICS, *_OPTIONAL)}
        for stats in everything[:_ROWS]
    ]
    columns = (*_STATISTICS, *(column for column in _OPTIONAL if any(row[column.key] for row in shown)))
    left = len(everything) - len(shown)
    note = f"… and {left} more names." if left else None
    return ReportTable(title="Statistics", columns=columns, rows=tuple(shown), note=note)


def memory_table(everything: list[SpanStats]) -> ReportTable | None:
    """Where memory was read: what each name's spans kept, and the most that was in use inside them."""
    measured = [stats for stats in everything if stats.memory]
    keys = list(dict.fromkeys(key for stats in measured for key in stats.memory))
    if not keys:
        return None
    titles = {"rss": "process", "python": "Python", "cuda": "CUDA"}
    columns = tuple(
        Column(key=key, heading=f"{titles[key.split('_')[0]]} {key.split('_')[1]}", unit="B") for key in keys
    )
    rows = tuple({"name": stats.name, **stats.memory} for stats in measured[:_ROWS])
    return ReportTable(title="Memory", columns=(Column(key="name", heading="span"), *columns), rows=rows)


def phase_table(recording: Recording) -> ReportTable | None:
    """Where spans name phases: the time from each one's first beginning to its last end, and what filled it."""
    phases = recording.phases()
    if int(phases.max(initial=-1)) < 0:
        return None
    rows = []
    numbers, first = np.unique(phases, return_index=True)
    for number in numbers[np.argsort(first)].tolist():
        if number < 0:
            continue
        held = np.flatnonzero(phases == number)
        top = held[(recording.parent[held] < 0) | (phases[recording.parent[held]] != number)]
        covered_s = covered_ns(recording.start[top], recording.end[top]) * 1e-9
        tokens = recording.tokens[held][~np.isnan(recording.tokens[held])].sum()
        rows.append({
            "phase": recording.words[number],
            "spans": len(held),
            "time_s": covered_s,
            "share": percent_number(covered_s, recording.wall_s),
            "tokens_per_s": float(tokens) / covered_s if tokens and covered_s else None,
        })  # fmt: skip
    if not rows:
        return None
    columns = (
        Column(key="phase", heading="phase"),
        Column(key="spans", heading="spans", exact=True),
        Column(key="time_s", heading="time", unit="s"),
        _SHARE,
        Column(key="tokens_per_s", heading="tokens/s", unit="tok/s"),
    )
    return ReportTable(title="Phases", columns=columns, rows=tuple(rows))


_UNITS = {"power": "W", "energy": "W", "temperature": "°C", "clock": "Hz", "use": "%"}


def power_table(recording: Recording) -> ReportTable | None:
    """What the sensors read; the note says which are missing, and why."""
    power = recording.run.power
    if power is None:
        return None
    rows = tuple(
        {
            "sensor": use.name,
            "quantity": "power" if use.quantity == "energy" else use.quantity,
            **{what: format_quantity(getattr(use, what), _UNITS[use.quantity]) for what in ("mean", "min", "max")},
            "energy_j": use.energy_j,
        }
        for use in uses(power)
    )
    missing = "; ".join(f"{kind}: {why}" for kind, why in power.missing.items())
    columns = (
        Column(key="sensor", heading="sensor"),
        Column(key="quantity", heading="quantity"),
        *(Column(key=what, heading=what) for what in ("mean", "min", "max")),
        Column(key="energy_j", heading="energy", unit="J"),
    )
    note = f"Not measurable here: {missing}." if missing else None
    return ReportTable(title="Power, heat and clocks", columns=columns, rows=rows, note=note)


# ── the time line ───────────────────────────────────────────────────────────────────────────────────────────────────


def timeline(recording: Recording, *, width: int = _WIDTH) -> str:
    """Each lane as a bar: in each place the letter of the outermost name that fills most of it."""
    begin, end = int(recording.start.min()), int(recording.end.max())
    level = _level(recording)
    letters: dict[int, str] = {}
    lines: list[str] = []
    drawn = np.unique(recording.lane[level])
    for lane in drawn[:_LANES].tolist():
        bar = _bar(recording, np.flatnonzero(level & (recording.lane == lane)), width, letters)
        lines.append(f"{recording.lanes[lane].title[:24]:24}  {bar}")
    legend = ", ".join(f"{letter} {recording.words[name]}" for name, letter in letters.items())
    hidden = len(recording.lanes) - len(lines)
    more = [f"… and {hidden} more lanes."] if hidden > 0 else []
    scale = f"{'':24}  {'0':<{width // 2}}{format_quantity((end - begin) * 1e-9, 's', digits=3):>{width // 2}}"
    return "\n".join(["Time line", *lines, scale, *more, legend])


def _level(recording: Recording) -> Any:
    """Spans to draw: the top ones of each lane; where one span is all there is, those inside it."""
    depth = recording.depths()
    across = (recording.parent >= 0) & (recording.lane != recording.lane[np.maximum(recording.parent, 0)])
    roots = (depth == 0) | across
    if int((depth == 0).sum()) == 1 and bool((depth == 1).any()):
        return (depth == 1) | (across & (depth > 1))
    return roots


def _bar(recording: Recording, rows: Ints, width: int, letters: dict[int, str]) -> str:
    begin, end = int(recording.start.min()), int(recording.end.max())
    step = max((end - begin) / width, 1.0)
    first, last = ((column[rows] - begin) / step for column in (recording.start, recording.end))
    names, which, counts = np.unique(recording.name[rows], return_inverse=True, return_counts=True)
    groups = np.split(np.argsort(which, kind="stable"), np.cumsum(counts)[:-1])
    filled = np.stack([_filled(first[group], last[group], width) for group in groups])
    shown = np.where(filled.max(axis=0) > 0, filled.argmax(axis=0), -1).tolist()
    for place in dict.fromkeys(place for place in shown if place >= 0):
        letters.setdefault(int(names[place]), _letter(len(letters)))
    return "".join(" " if place < 0 else letters[int(names[place])] for place in shown)


def _filled(first: Floats, last: Floats, width: int) -> Floats:
    """How much of each place spans from `first` to `last` fill together: the difference of what is filled before it."""
    edges = np.arange(width + 1)
    filled = np.diff(_before(np.sort(first), edges) - _before(np.sort(last), edges))
    filled[filled < _ROUNDING] = 0.0
    begun = np.minimum(first.astype(np.int64), width - 1)
    filled[begun] = np.maximum(filled[begun], _ROUNDING)  # however short, a span is somewhere
    return filled


def _before(places: Floats, edges: Ints) -> Floats:
    """The sum over sorted places of how far each edge lies beyond it."""
    count = np.searchsorted(places, edges)
    sums = np.concatenate(([0.0], np.cumsum(places)))
    return np.asarray(count * edges - sums[count])


def _letter(index: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    return letters[index] if index < len(letters) else "*"


# ── the seed's report, and files ────────────────────────────────────────────────────────────────────────────────────


def operations(recording: Recording) -> str:
    """A block for each name, in milliseconds, as short as possible."""
    lines = ["=== Performance Profile Report ==="]
    for stats in stats_of_all(recording):
        lines += ["", f"Operation: {stats.name}", f"  Measurements: {stats.count}", "  Duration (ms):"]
        figures = (
            ("Min", stats.min_s), ("Max", stats.max_s), ("Avg", stats.mean_s), ("Median", stats.median_s),
            ("P95", stats.p95_s), ("P99", stats.p99_s), ("Std Dev", stats.std_s),
        )  # fmt: skip
        seconds = recording.durations_s[recording.rows_named(stats.name)]
        lines += [
            f"    {name}: {_tail(name, seconds) if value is None else _milliseconds(value)}" for name, value in figures
        ]
        if stats.memory_delta_bytes is not None:
            peak = "unknown" if stats.memory_peak_bytes is None else f"{stats.memory_peak_bytes:.0f} bytes"
            # What the spans that ended with more memory than they began with took, and what all of them kept.
            grown = next((value for key, value in stats.memory.items() if key.endswith("_grown_bytes")), None)
            total = (
                [] if grown is None else [f"    Total allocated: {grown:.0f} bytes, {grown / stats.count:.0f} a call"]
            )
            allocated = [*total, f"    Kept: {stats.memory_delta_bytes:.0f} bytes"]
            lines += ["  Memory:", *allocated, f"    Peak usage: {peak}"]
    return "\n".join([*lines, "", headline(recording), *recording.run.notes])


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}"


def _tail(name: str, seconds: Floats) -> str:
    """A percentile that too few measurements close from above: its value, if one lies beyond it, and its lower end."""
    if not name.startswith("P"):
        return "– (too few measurements)"
    found = percentile_between(seconds.tolist(), int(name[1:]) / 100)
    if found.value is None or found.low is None:
        return f"– (too few measurements: about {found.needed} are needed)"
    return f"{_milliseconds(found.value)} (at least {_milliseconds(found.low)}; {found.needed} close it from above)"


def text(recording: Recording) -> Iterable[bytes]:
    """The full report without the terminal's colours."""
    yield re.sub(r"\x1b\[[0-9;]*m", "", report(recording)).encode()
    yield b"\n"


def markdown(recording: Recording) -> Iterable[bytes]:
    yield view_markdown(recording_view(recording), "Profile").encode()


_CSV = (
    "name", "unit", "phase", "kind", "layer", "token", "tokens", "context", "flops", "bytes", "process", "thread",
    "task", "start", "end", "failed", "parent",
)  # fmt: skip
_HEADINGS = {**{name: f"{name}_ns" for name in ("start", "end", *DEVICE)}, "energy": "energy_j"}


def csv_rows(recording: Recording) -> Iterable[bytes]:
    """One row a span, times in the clock's nanoseconds, `parent` a row number from 0; written in pieces."""
    columns = [*_CSV, *(DEVICE if recording.device is not None else ()), *recording.readings]
    columns += ["energy"] if recording.energy_j() is not None else []
    yield (",".join(_HEADINGS.get(name, name) for name in columns) + "\n").encode()
    for batch in batches_of(recording):
        if batch.columns["kind"][:1] == ["segment"]:
            continue
        piece = io.StringIO()
        rows = zip(*(batch.column(name) for name in columns), strict=True)
        csv.writer(piece, lineterminator="\n").writerows(rows)
        yield piece.getvalue().encode()


def statistics_document(recording: Recording) -> Iterator[bytes]:
    """The report's numbers for programs: SI units, the unit in the key, null where not known."""
    everything = stats_of_all(recording)
    document = {
        "schema": "inferometer.span-statistics/1",
        "wall_s": recording.wall_s,
        "spans": len(recording),
        "dropped": recording.run.dropped,
        "span_cost_s": recording.run.span_cost_s,
        "clock": recording.run.clock,
        "started_at": recording.run.started_at,
        "notes": recording.run.notes,
        "statistics": everything,
        "tree": tree_table(recording, rows=len(recording)).rows if len(recording) else (),
        "flow": flow(recording),
    }
    yield msgspec.json.format(msgspec.json.encode(document), indent=2)
    yield b"\n"


_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Profile</title><style>
body { margin: 2rem auto; max-width: 74rem; padding: 0 1.5rem; font: 15px/1.5 system-ui, sans-serif; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } td, th { border-bottom: 1px solid #dde2e8; }
td { white-space: pre; } svg { max-width: 100%; height: auto; } p { white-space: pre-line; }
</style></head><body><h1>Profile</h1>
"""


def page(recording: Recording) -> Iterator[bytes]:
    view, drawing = recording_view(recording), ""
    if len(recording):
        run_flow = flow(recording)
        drawing = draw(run_flow)
        phases = (table for phase in run_flow.phases for table in phase_tables(phase))
        view = replace(view, more=tuple(phases), charts=())
    yield f"{_HEAD}{drawing}{view_html(view)}</body></html>\n".encode()

"""A recording as one file: an HTML page with the drawing, tables and time line, or one JSON document of the numbers.

The page has no scripts and loads nothing from elsewhere.
"""

from collections.abc import Iterator
from html import escape

import msgspec

from inferometer.measure.spans.flow import flow
from inferometer.measure.spans.recording import Recording
from inferometer.measure.spans.span_stats import stats_of_all
from inferometer.understand.view.dataflow import phase_tables
from inferometer.understand.view.drawing import draw
from inferometer.understand.view.spans import headline, span_tables, timeline, tree_table
from inferometer.understand.view.table import ReportTable, cell_text

_STYLE = """
:root { color-scheme: light; --ink: #1b2230; --soft: #5b6573; --line: #dde2e8; --paper: #fff; --band: #f5f7fa; }
body { margin: 2rem auto; max-width: 74rem; padding: 0 1.5rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p.lead { color: var(--soft); margin: 0 0 1.2rem; white-space: pre-line; }
.scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: pre; }
th, td { padding: .28rem .8rem; border-bottom: 1px solid var(--line); text-align: left; }
th { font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--ink); }
td.number, th.number { text-align: right; } tbody tr:hover { background: var(--band); }
pre { background: var(--band); padding: .9rem 1.1rem; overflow-x: auto; font-size: 13px; line-height: 1.35; }
p.note { color: var(--soft); font-size: .92rem; }
"""


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


def page(recording: Recording) -> Iterator[bytes]:
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Profile</title><style>{_STYLE}</style></head><body>\n"
        f'<h1>Profile</h1><p class="lead">{escape(headline(recording))}</p>\n'
    ).encode()
    if len(recording):
        run_flow = flow(recording)
        yield f'<div class="scroll">{draw(run_flow)}</div>\n'.encode()
        tables = [*span_tables(recording, stats_of_all(recording))]
        tables += [table for phase in run_flow.phases for table in phase_tables(phase)]
        for table in tables:
            yield table_html(table).encode()
        bars = timeline(recording).partition("\n")[2]
        yield f"<h2>Time line</h2><pre>{escape(bars)}</pre>\n".encode()
    yield "".join(f'<p class="note">{escape(note)}</p>\n' for note in recording.run.notes).encode()
    yield b"</body></html>\n"


def table_html(table: ReportTable) -> str:
    marks = [' class="number"' if column.numeric else "" for column in table.columns]
    head = "".join(
        f"<th{mark}>{escape(column.heading)}</th>" for column, mark in zip(table.columns, marks, strict=True)
    )
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{mark}>{escape(cell_text(column, row.get(column.key)))}</td>"
            for column, mark in zip(table.columns, marks, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    title = f"<h2>{escape(table.title)}</h2>" if table.title else ""
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'{title}<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>{note}\n'
    )

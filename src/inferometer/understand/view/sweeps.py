"""The rows of a sweep for people: the inputs that differ, and the results."""

from itertools import islice
from typing import Any

from inferometer.core.errors import InferometerError
from inferometer.core.units import counted
from inferometer.predict.sweep import Rows, RowSource
from inferometer.predict.sweep.columns import COLUMNS, INPUTS, LOADING, RUNNING
from inferometer.understand.view.cards import Card, View
from inferometer.understand.view.phrases import interval_text
from inferometer.understand.view.table import Column, ReportTable, columns, filled

_FIRST = 10  # rows of a sweep that a notebook shows
_OUTPUTS = columns(
    "latency_s",
    Column(key="latency_interval", heading="between"),
    Column(key="forward_bound", heading="bound by"),
    "ttft_s",
    Column(key="ttft_interval", heading="between"),
    Column(key="prefill_bound", heading="bound by"),
    "tpot_s",
    Column(key="tpot_interval", heading="between"),
    Column(key="decode_bound", heading="bound by"),
    Column(key="e2e_s", heading="request", unit="s"),
    Column(key="e2e_interval", heading="between"),
    "tokens_per_s", "peak_memory_bytes", "fits", "energy_j", "usd_per_million_tokens", "usd_per_million_inferences",
    "co2e_g", "sustained_s", "battery_s", "inferences_per_charge", "frame_headroom",
    Column(key="reason", heading="why not"),
    # What repeats, side by side: a row has a forward pass or a decode step. Then what loading takes, once.
    *(
        Column(key=f"{phase}_{stream}_s", heading=stream.replace("_", " "), unit="s")
        for phase in ("forward", "decode")
        for stream in RUNNING
    ),
    *(Column(key=f"load_{stream}_s", heading=f"loading: {stream.replace('_', ' ')}", unit="s") for stream in LOADING),
)  # fmt: skip


def sweep_table(rows: RowSource, *, most: int | None = None, title: str | None = None) -> ReportTable:
    """The first rows. Inputs that are the same in all of them stand once, under the table."""
    records = [_with_intervals(record) for record in islice(rows.records(), most)]
    same = {name for name in INPUTS if len(records) > 1 and len({record[name] for record in records}) == 1}
    columns = filled((*(_input(name) for name in INPUTS if name not in same), *_OUTPUTS), records)
    total = len(rows)
    parts = []
    if same and records:
        shown = [f"{name} {records[0][name]}" for name in INPUTS if name in same and records[0][name] not in {None, 1}]
        if shown:
            parts.append(f"Throughout: {', '.join(shown)}.")
    if total > len(records):
        parts.append(f"{counted(total - len(records), 'more row')}: --out FILE writes all of them.")
    return ReportTable(columns=columns, rows=tuple(records), title=title, note=" ".join(parts) or None)


def sweep_view(rows: Rows) -> View:
    """The first rows, and a chart of them."""
    card = Card(title=f"{len(rows):,} rows", subtitle="", facts=())
    return View(card=card, tables=(sweep_table(rows, most=_FIRST),), charts=(lambda: _chart(rows),))


def _chart(rows: Rows) -> str:
    """Of a decoder its speed for a user and for all; of what has no tokens its latency and memory."""
    from inferometer.understand.view.charts.pareto import pareto_scatter  # noqa: PLC0415 - charts alone need it
    from inferometer.understand.view.charts.render import render  # noqa: PLC0415 - as above

    try:
        return render(pareto_scatter(rows, "tpot_s", "tokens_per_s"), "svg").decode()
    except InferometerError:  # no row has both
        return render(pareto_scatter(rows, "latency_s", "peak_memory_bytes"), "svg").decode()


def _with_intervals(record: dict[str, Any]) -> dict[str, Any]:
    """A row whose times have two ends says both in one place."""
    intervals = {}
    for name in ("latency", "ttft", "tpot", "e2e"):
        low, high = record.get(f"{name}_low_s"), record.get(f"{name}_high_s")
        if low is not None and high is not None:
            intervals[f"{name}_interval"] = interval_text(low, high)
    return record | intervals


def _input(name: str) -> Column:
    return Column(key=name, heading=name, exact=COLUMNS[name].kind == "whole")

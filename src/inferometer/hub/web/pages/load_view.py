"""What the run page shows of a load test: cards, remarks, levels and charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.units import format_quantity
from inferometer.hub.web.pages.run_charts import Chart
from inferometer.hub.web.pages.run_view import NumberCard, quantity_card
from inferometer.understand.view.charts.load_tests import chart_names, load_chart
from inferometer.understand.view.load_tests import (
    LoadResult,
    distribution_table,
    level_facts,
    level_table,
    load_result,
    remarks_of,
)
from inferometer.understand.view.table import cell_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.core.served import Distribution, Served
    from inferometer.understand.view.table import ReportTable


def load_values(served: Served) -> dict[str, Any]:
    result = load_result(served)
    remarks = list(remarks_of(result))
    return {
        "cards": tuple(_cards(result)),
        "charts": [chart for chart in load_charts(served).values() if chart.shown],
        "load": {
            "warnings": [remark.removeprefix("! ") for remark in remarks if remark.startswith("! ")],
            "remarks": [remark for remark in remarks if not remark.startswith("! ")],
            "levels": shown_table(level_table(result)),
            "latencies": shown_table(distribution_table(result)),
            "facts": level_facts(result),
            "headline": served.levels[served.headline].name,
            "arrivals": served.arrivals,
            "lengths": served.lengths,
        },
    }


def load_charts(served: Served) -> dict[str, Chart]:
    result = load_result(served)
    names = chart_names(served, result)
    return {name: Chart(name=name, title=title, spec=_maker(result, name)) for name, title in names.items()}


def _maker(result: LoadResult, name: str) -> Any:
    return lambda: load_chart(result, name)


def shown_table(table: ReportTable) -> dict[str, Any]:
    """A table as text, with whether each column is of numbers."""
    rows = [[cell_text(column, row.get(column.key)) for column in table.columns] for row in table.rows]
    return {"columns": [(column.heading, column.numeric) for column in table.columns], "rows": rows}


def _cards(result: LoadResult) -> Iterator[NumberCard]:
    figures = result.headline
    for label, found in (
        ("First token", figures.ttft_s),
        ("Each token", figures.tpot_s),
        ("Whole request", figures.e2e_s),
    ):
        if found is not None:
            value, words = (found.p50, "median") if found.p50 is not None else (found.mean, "mean")
            if value is not None:
                yield quantity_card(label, value, "s", f"{words} of {found.count or 0:,}{_tail(found)}")
    level = result.served.levels[result.served.headline]
    if figures.requests_per_s is not None:
        yield quantity_card("Answered", figures.requests_per_s, "1/s", f"requests at {level.name}")
    if figures.output_tokens_per_s is not None:
        yield quantity_card("Throughput", figures.output_tokens_per_s, "token/s", "all requests together")
    if figures.goodput_per_s is not None:
        share = "" if figures.attained is None else f"{figures.attained:.1%} within the objectives"
        tone = "plain" if figures.attained is None else "good" if figures.attained >= 0.95 else "bad"
        yield quantity_card("Goodput", figures.goodput_per_s, "1/s", share, tone=tone)
    if not figures.requests:
        return  # a source that does not say how many there were
    failed = sum(figures.errors.values())
    kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in figures.errors.items())
    yield NumberCard(
        label="Failed",
        value=f"{failed:,}",
        note=kinds or f"of {figures.requests:,} requests",
        tone="bad" if failed else "plain",
    )


def _tail(found: Distribution) -> str:
    known = [(name, getattr(found, name)) for name in ("p99", "p95", "p90")]
    tail = next(((name, value) for name, value in known if value is not None), None)
    return "" if tail is None else f" · {tail[0]} {format_quantity(tail[1], 's', digits=3)}"

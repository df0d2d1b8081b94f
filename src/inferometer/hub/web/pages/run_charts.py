"""The charts that a profile has data for, by name. Each is made when asked for: a page draws what comes into view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.units import format_quantity
from inferometer.hub.web.guard.catalog_names import roofs_of
from inferometer.hub.web.pages.run_view import NumberCard, quantity_card
from inferometer.understand.roofline import drawn_roofs
from inferometer.understand.view.charts.layers import kind_chart, layer_chart, memory_chart, phases_with_ops, unit_chart
from inferometer.understand.view.charts.load_tests import chart_names, load_chart
from inferometer.understand.view.charts.roofline import roofline
from inferometer.understand.view.charts.samples import histogram, token_trend
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

    from inferometer.core.device import Device
    from inferometer.core.profile import Phase, Profile
    from inferometer.core.served import Distribution, Served
    from inferometer.understand.view.table import ReportTable

# What the run page shows of a load test: cards, remarks, levels and charts.


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


_AXIS, _BESIDE, _ROOMY = 110, 220, 620  # pixels


@frozen
class Chart:
    """`spec` makes the Vega-Lite spec. If not `shown`, the page draws the same data itself."""

    name: str
    title: str
    spec: Callable[[], dict[str, Any]]
    shown: bool = True
    at_width: Callable[[int], dict[str, Any]] | None = None  # for a figure of so many pixels, where that matters


def charts_of(profile: Profile) -> dict[str, Chart]:
    if profile.served is not None and profile.served.levels:
        return load_charts(profile.served)
    charts = [*_layer_charts(profile), *_sample_charts(profile)]
    if profile.summary.peak_memory_bytes:
        charts.append(Chart(name="memory", title="Peak memory", spec=lambda: memory_chart(profile), shown=False))
    charts += _rooflines(profile)
    return {chart.name: chart for chart in charts}


def chart_spec(profile: Profile, name: str, width: int | None = None) -> dict[str, Any]:
    """The Vega-Lite spec of one chart. `roofline` by itself is that of the last phase; `width` is of the figure."""
    known = charts_of(profile)
    if name == "roofline":
        name = next((chart for chart in reversed(known) if chart.startswith("roofline-")), name)
    if name not in known:
        raise UnknownNameError("chart of this run", name, known, listing=f"Known: {', '.join(known)}.")
    chart = known[name]
    return chart.spec() if width is None or chart.at_width is None else chart.at_width(width)


def _layer_charts(profile: Profile) -> list[Chart]:
    if not phases_with_ops(profile):
        return []
    specs: dict[str, Callable[[], dict[str, Any]]] = {
        "layers": lambda: layer_chart(profile),
        "kinds": lambda: kind_chart(profile),
        "kinds-count": lambda: kind_chart(profile, "count"),
        "units": lambda: unit_chart(profile),
        "units-count": lambda: unit_chart(profile, "count"),
    }
    return [Chart(name=name, title=name, spec=spec, shown=False) for name, spec in specs.items()]


def _sample_charts(profile: Profile) -> list[Chart]:
    charts = []
    known = [phase for phase in map(profile.phase, ("forward", "decode", "prefill")) if phase is not None]
    sampled = next((phase.name for phase in (*known, *profile.phases) if phase.samples_s), None)
    if sampled is not None:
        charts.append(Chart(name="histogram", title="Spread of the readings", spec=lambda: histogram(profile, sampled)))
    decode = profile.phase("decode")
    if decode is not None and decode.context and decode.samples_s:
        charts.append(Chart(name="tokens", title="Token by token", spec=lambda: token_trend(profile)))
    return charts


def _rooflines(profile: Profile) -> list[Chart]:
    roofs = roofs_of(profile)
    if roofs is None or not _has_roof(roofs.device):
        return []
    device = drawn_roofs(roofs)
    phases = [phase for phase in phases_with_ops(profile) if any(_placed(op, phase) for op in phase.ops)]
    return [_roofline(profile, device, phase) for phase in phases]


def _has_roof(device: Device) -> bool:
    return bool(device.peaks) and device.memory is not None and device.memory.bandwidth_bytes_per_s is not None


def _placed(op: Any, phase: Phase) -> bool:
    """Whether an op can be placed in a roofline: it has work, bytes and more than a trace of the time."""
    return bool(op.flops and op.bytes and op.time_s > 1e-4 * phase.time_s)


def _roofline(profile: Profile, device: Device, phase: Phase) -> Chart:
    return Chart(
        name=f"roofline-{phase.name}",
        title=f"Roofline of {phase.name}",
        spec=lambda: roofline(profile, device, phase=phase.name),
        # Beside the plane stand the numbers of its axis and, where there is room, the key.
        at_width=lambda width: roofline(
            profile, device, phase=phase.name, width=width - (_BESIDE if width >= _ROOMY else _AXIS)
        ),
    )

"""What the run page shows of a profile: the cards at the top, the model table, phases, percentiles and charts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from inferometer.core.device import Device
from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Phase, Profile
from inferometer.core.request import (
    HOST,
    UNATTRIBUTED,
    distinct_ops,
    numbered_ops,
    op_count,
    ops_by,
    outside_layers,
    repeats,
    request_s,
    request_shares,
    unit_of_part,
)
from inferometer.core.served import Distribution, Served
from inferometer.core.units import format_quantity
from inferometer.hub.web.guard.catalog_names import roofs_of
from inferometer.understand.roofline import drawn_roofs
from inferometer.understand.view.charts.layers import kind_chart, layer_chart, memory_chart, phases_with_ops, unit_chart
from inferometer.understand.view.charts.load_tests import chart_names, load_chart
from inferometer.understand.view.charts.roofline import roofline
from inferometer.understand.view.charts.samples import histogram, percentiles, token_trend
from inferometer.understand.view.drawing import unit_colour
from inferometer.understand.view.load_tests import (
    LoadResult,
    distribution_table,
    level_facts,
    level_table,
    load_result,
    remarks_of,
)
from inferometer.understand.view.phrases import energy_fact, time_interval
from inferometer.understand.view.table import ReportTable, cell_text

_SHARED = ("kind", "unit", "block", "count", "bound", "kernel", "provider", "rung")
_TIMES = ("time_s", "predicted_s", "floor_s")
_ADDED = ("flops", "bytes")
_STEPS = ("min_s", "max_s", "growth")  # of a layer over the steps of a phase


@frozen
class NumberCard:
    """One number at the top of the page. `tone` is good, bad or plain."""

    label: str
    value: str
    unit: str = ""
    note: str = ""
    tone: str = "plain"


def cards_of(profile: Profile) -> tuple[NumberCard, ...]:
    return tuple(
        card
        for make in (_time_cards, _memory_cards, _energy_cards, _unit_cards, _floor_cards)
        for card in make(profile)
    )


def _time_cards(profile: Profile) -> Iterator[NumberCard]:
    summary = profile.summary
    for label, time, name in (
        ("Latency", "latency", "forward"),
        ("First token", "ttft", "prefill"),
        ("Each token", "tpot", "decode"),
    ):
        value = getattr(summary, f"{time}_s")
        if value is not None:
            yield quantity_card(label, value, "s", _statistic(profile, time, profile.phase(name) or _only(profile)))
    if summary.tokens_per_s is not None:
        yield quantity_card("Throughput", summary.tokens_per_s, "token/s", f"batch {profile.workload.batch}")
    if summary.e2e_s is not None and summary.ttft_s is not None:
        note = " · ".join((f"{profile.workload.generate or 0} tokens", *_between(profile, "e2e")))
        yield quantity_card("Whole request", summary.e2e_s, "s", note)


def _only(profile: Profile) -> Phase | None:
    """The one phase that a command has."""
    return profile.phases[0] if len(profile.phases) == 1 else None


def _statistic(profile: Profile, time: str, phase: Phase | None) -> str:
    """Which statistic a time is, over how many samples, and its interval."""
    if phase is None:
        return profile.kind
    parts = []
    if profile.kind == "predicted":
        parts.append("predicted")
    elif phase.samples_s:
        parts.append(f"{phase.statistic or 'mean'} of {len(phase.samples_s)}")
    else:
        parts.append(phase.statistic or "measured")
    return " · ".join((*parts, *_between(profile, time, phase)))


def _between(profile: Profile, time: str, phase: Phase | None = None) -> Iterator[str]:
    interval = time_interval(profile, time, phase)
    if interval is not None:
        yield " – ".join(format_quantity(end, "s", digits=3) for end in interval)


def _memory_cards(profile: Profile) -> Iterator[NumberCard]:
    peak, fits = profile.summary.peak_memory_bytes, profile.summary.fits
    if peak is not None:
        note = {True: "fits", False: "does not fit", None: "at most"}[fits]
        yield quantity_card("Peak memory", peak, "B", note, tone="bad" if fits is False else "plain")


def _energy_cards(profile: Profile) -> Iterator[NumberCard]:
    joules = profile.summary.energy_j
    if joules is not None:
        told = (
            next((remark for _, _, remark in energy_fact(profile)), "") if profile.kind == "measured" else "predicted"
        )
        yield quantity_card("Energy", joules, "J", told)


def _unit_cards(profile: Profile) -> Iterator[NumberCard]:
    """Where most of it ran, if it ran on several units: that all of it ran on the only one says nothing."""
    summary, ops = profile.summary, ops_by(profile, "unit")
    units = {*ops, summary.top_unit, summary.top_unit_by_count} - {None}
    if summary.top_unit is None or len(units) < 2:
        return
    share = request_shares(profile, "unit").get(summary.top_unit, 0.0) / (request_s(profile) or 1.0)
    mine, count = ops.get(summary.top_unit, 0), op_count(profile)
    parts = [f"{share:.0%} of a request"] if share else []
    parts += [f"{mine:,} of {count:,} ops"] if count else []
    yield NumberCard(label="Top unit", value=summary.top_unit.upper(), note=" · ".join(parts))


def _floor_cards(profile: Profile) -> Iterator[NumberCard]:
    phase = profile.steady
    if phase is not None and phase.floor_s and (times := phase.above_floor) is not None and phase.time_s > 0:
        share = 1 / times
        note = f"{phase.name}: the floor is {format_quantity(phase.floor_s, 's', digits=3)}"
        yield NumberCard(label="Of the floor", value=f"{100 * share:.3g}", unit="%", note=note)
    if phase is not None and phase.predicted_s and phase.time_s > 0:
        off = phase.predicted_s / phase.time_s - 1
        note = f"{phase.name}: {abs(off):.0%} {'under' if off < 0 else 'over'} the measurement"
        yield quantity_card("Predicted", phase.predicted_s, "s", note)


def quantity_card(label: str, value: float, unit: str, note: str, tone: str = "plain") -> NumberCard:
    number, _, prefixed = format_quantity(value, unit, digits=4).partition(" ")
    return NumberCard(label=label, value=number, unit=prefixed, note=note, tone=tone)


def layer_columns(profile: Profile) -> dict[str, Any]:
    """The model table by columns: a row per layer in the order of execution, and for its times a list per phase.

    A layer that runs in several phases has one row. `outside` is the time in no layer, so that a breakdown adds up to
    its phase, or to the request. Empty columns are left out.
    """
    phases, times = phases_with_ops(profile), repeats(profile)
    distinct = distinct_ops(profile.phases)
    cells, first = _cells(phases, distinct), tuple(distinct.values())
    shared = {name: [getattr(op, name) for op in first] for name in _SHARED}
    fused = [len(op.layers) if len(op.layers) > 1 else None for op in first]
    return {
        "name": [op.name for op in first],
        "phases": [
            {"name": phase.name, "time_s": phase.time_s, "times": times.get(phase.name, 1.0)} for phase in phases
        ],
        "request_s": request_s(profile),
        "outside": _outside(profile, phases),
        **{name: column for name, column in {**shared, "fused": fused}.items() if any(v is not None for v in column)},
        **{
            name: columns
            for name, columns in cells.items()
            if any(value is not None for column in columns for value in column)
        },
        "colours": {unit: unit_colour(unit) for unit in {op.unit for op in first if op.unit}},
    }


def _cells(phases: Sequence[Phase], rows: Iterable[tuple[str, int]]) -> dict[str, list[list[float | None]]]:
    """For each number of an op a list per phase, each with a place for every row."""
    from inferometer.understand.view.profiles import growths  # noqa: PLC0415 - it brings numpy: only a page with layers needs it

    places = {key: index for index, key in enumerate(rows)}
    cells: dict[str, list[list[float | None]]] = {
        name: [[None] * len(places) for _ in phases] for name in (*_TIMES, *_ADDED, *_STEPS)
    }
    for index, phase in enumerate(phases):
        stepped = phase.op_context is not None
        growth = growths([op.samples_s for op in phase.ops]) if stepped else [None] * len(phase.ops)
        for (key, op), grown in zip(numbered_ops(phase), growth, strict=True):
            place = places[key]
            for name in (*_TIMES, *_ADDED):
                cells[name][index][place] = getattr(op, name)
            if stepped and op.samples_s:
                least, most = min(op.samples_s), max(op.samples_s)
                for name, value in zip(_STEPS, (least, most, grown), strict=True):
                    cells[name][index][place] = value
    return cells


def _outside(profile: Profile, phases: Sequence[Phase]) -> list[dict[str, Any]]:
    """Time in no layer: of a phase with layers by the name of its part; phases without layers as a whole (−1)."""
    rows: list[dict[str, Any]] = []
    for index, phase in enumerate(phases):
        rows += [
            {"phase": index, "kind": name, "unit": unit_of_part(name), "time_s": seconds}
            for name, seconds in outside_layers(phase).items()
        ]
    times, named = repeats(profile), {phase.name for phase in phases}
    rows += [
        {"phase": -1, "kind": phase.name, "unit": HOST, "time_s": times[phase.name] * phase.time_s}
        for phase in profile.phases
        if phase.name in times and phase.name not in named
    ]
    return rows


def phase_rows(profile: Profile) -> list[dict[str, Any]]:
    return [
        {
            "name": phase.name,
            "time_s": phase.time_s,
            "statistic": phase.statistic,
            "runs": len(phase.samples_s or ()) or None,
            "predicted_s": phase.predicted_s,
            "floor_s": phase.floor_s,
            "rest_s": outside_layers(phase).get(UNATTRIBUTED, 0.0) if phase.ops else phase.unattributed_s,
            "flops": phase.flops,
            "bytes": phase.bytes,
            "bound": phase.bound,
            "parts": ", ".join(f"{name} {format_quantity(s, 's', digits=3)}" for name, s in phase.parts.items()),
        }
        for phase in profile.phases
    ]


def percentile_rows(profile: Profile) -> dict[str, dict[str, float]]:
    return {phase.name: percentiles(phase.samples_s) for phase in profile.phases if phase.samples_s}


# The charts that a profile has data for, by name. Each is made when asked for: a page draws what comes into view.

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


def load_charts(served: Served) -> "dict[str, Chart]":
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
    at_width: Callable[[int], dict[str, Any]] | None = None  # for a figure of a width in pixels, where that matters


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

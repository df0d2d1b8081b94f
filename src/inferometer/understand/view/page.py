"""What a page has room for of a profile: figures, every layer, phases, percentiles, charts and where it ran.

`page_of` is the one door: a template, a chart's address and a saved file take what it lays out, and read no profile.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any

from inferometer.core.device import Device
from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import JudgedBy, Phase, Profile
from inferometer.core.request import (
    HOST,
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
from inferometer.core.served import Distribution
from inferometer.core.units import format_capacity, format_quantity
from inferometer.understand.roofline import drawn_roofs
from inferometer.understand.view.charts.layers import (
    kind_chart,
    layer_chart,
    memory_chart,
    memory_parts,
    phases_with_ops,
    unit_chart,
)
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
from inferometer.understand.view.phrases import (
    energy_fact,
    energy_notes,
    formats_of,
    place_of,
    profile_title,
    time_interval,
)
from inferometer.understand.view.profiles import growths, phase_rows
from inferometer.understand.view.table import Column, ReportTable, columns, filled

_SHARED = ("kind", "unit", "block", "count", "bound", "kernel", "provider", "rung")
_TIMES = ("time_s", "predicted_s", "floor_s")
_ADDED = ("flops", "bytes")
_STEPS = ("min_s", "max_s", "growth")  # of a layer over the steps of a phase
_PHASES = columns(
    Column(key="name", heading="phase"),
    "time_s", "statistic", "runs", "predicted_s", "floor_s",
    Column(key="rest_s", heading="unattributed", unit="s"),
    "flops", "bytes", "bound",
    Column(key="parts", heading="of which"),
)  # fmt: skip
_PERCENTILES = (
    Column(key="phase", heading="phase"),
    *(Column(key=name, heading=name, unit="s") for name in ("min", "p50", "p90", "p95", "p99", "p99.9", "max")),
)
_AXIS, _BESIDE, _ROOMY = 110, 220, 620  # pixels
# What `environment.host` repeats of the machine.
_TOLD = {
    "cpu", "architecture", "logical_cores", "usable_cpus", "memory_bytes", "system", "container", "hypervisor", "gpus",
}  # fmt: skip
_ENDINGS = {"s": "s", "hz": "Hz", "w": "W", "j": "J"}
_CALLED = {"memory": "memory held", "placed": "ops placed on"}  # what says little by its name in the document
_FEW = 16  # numbers that a person reads in a row
_SIZES = ("batch", "prompt", "generate", "context", "image")


@frozen
class Figure:
    """One number at the top of the page. `tone` is good, bad or plain."""

    label: str
    value: str
    unit: str = ""
    note: str = ""
    tone: str = "plain"


@frozen
class Chart:
    """`spec` makes the Vega-Lite spec. If not `shown`, the page draws the same data itself."""

    name: str
    title: str
    spec: Callable[[], dict[str, Any]]
    shown: bool = True
    at_width: Callable[[int], dict[str, Any]] | None = None  # for a figure of a width in pixels, where that matters


@frozen
class LoadPage:
    """A load test's levels, latencies and remarks, in place of phases and layers."""

    warnings: tuple[str, ...]
    remarks: tuple[str, ...]
    levels: ReportTable
    latencies: ReportTable
    facts: tuple[tuple[str, str, str], ...]
    headline: str
    arrivals: str | None
    lengths: str | None


@frozen
class PageView:
    """A profile laid out for a page. `layers` is made when it is called, since a chart's address does without it."""

    title: str
    subtitle: str
    badges: tuple[tuple[str, str, str], ...]  # word, tone, and an explanation
    figures: tuple[Figure, ...]
    phases: ReportTable
    percentiles: ReportTable
    layers: Callable[[], dict[str, Any]]
    memory: Mapping[str, float]
    environment: tuple[tuple[str, list[tuple[str, str]]], ...]
    charts: Mapping[str, Chart]
    load: LoadPage | None = None

    def chart_spec(self, name: str, width: int | None = None) -> dict[str, Any]:
        """The Vega-Lite spec of one chart. `roofline` by itself is that of the last phase; `width` is of the figure."""
        if name == "roofline":
            name = next((known for known in reversed([*self.charts]) if known.startswith("roofline-")), name)
        if name not in self.charts:
            raise UnknownNameError("chart of this run", name, self.charts, listing=f"Known: {', '.join(self.charts)}.")
        chart = self.charts[name]
        return chart.spec() if width is None or chart.at_width is None else chart.at_width(width)


def page_of(profile: Profile, roofs: JudgedBy | None = None) -> PageView:
    """Rooflines are drawn under `roofs`; the caller decides which devices may be looked up for them."""
    served = profile.served
    result = load_result(served) if served is not None and served.levels else None
    return PageView(
        title=profile_title(profile),
        subtitle=_subtitle(profile),
        badges=badges_of(profile),
        figures=tuple(figures_of(profile) if result is None else _load_figures(result)),
        phases=_phase_table(profile),
        percentiles=_percentile_table(profile),
        layers=partial(layer_columns, profile),
        memory=memory_parts(profile),
        environment=tuple(environment_groups(profile)),
        charts=_charts(profile, roofs) if result is None else _load_charts(result),
        load=None if result is None else _load_page(result),
    )


def _phase_table(profile: Profile) -> ReportTable:
    rows = tuple(phase_rows(profile))
    return ReportTable(columns=filled(_PHASES, rows), rows=rows)


def _percentile_table(profile: Profile) -> ReportTable:
    rows = tuple({"phase": phase.name, **percentiles(phase.samples_s)} for phase in profile.phases if phase.samples_s)
    return ReportTable(columns=filled(_PERCENTILES, rows), rows=rows)


def figures_of(profile: Profile) -> tuple[Figure, ...]:
    return tuple(
        figure
        for make in (_time_figures, _memory_figures, _energy_figures, _unit_figures, _floor_figures)
        for figure in make(profile)
    )


def _time_figures(profile: Profile) -> Iterator[Figure]:
    summary = profile.summary
    for label, time, name in (
        ("Latency", "latency", "forward"),
        ("First token", "ttft", "prefill"),
        ("Each token", "tpot", "decode"),
    ):
        value = getattr(summary, f"{time}_s")
        if value is not None:
            yield figure_of(label, value, "s", _statistic(profile, time, profile.phase(name) or _only(profile)))
    if summary.tokens_per_s is not None:
        yield figure_of("Throughput", summary.tokens_per_s, "token/s", f"batch {profile.workload.batch}")
    if summary.e2e_s is not None and summary.ttft_s is not None:
        note = " · ".join((f"{profile.workload.generate or 0} tokens", *_between(profile, "e2e")))
        yield figure_of("Whole request", summary.e2e_s, "s", note)


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


def _memory_figures(profile: Profile) -> Iterator[Figure]:
    peak, fits = profile.summary.peak_memory_bytes, profile.summary.fits
    if peak is not None:
        note = {True: "fits", False: "does not fit", None: "at most"}[fits]
        yield figure_of("Peak memory", peak, "B", note, tone="bad" if fits is False else "plain")


def _energy_figures(profile: Profile) -> Iterator[Figure]:
    joules = profile.summary.energy_j
    if joules is not None:
        told = (
            next((remark for _, _, remark in energy_fact(profile)), "") if profile.kind == "measured" else "predicted"
        )
        yield figure_of("Energy", joules, "J", told)


def _unit_figures(profile: Profile) -> Iterator[Figure]:
    """Where most of it ran, if it ran on several units: that all of it ran on the only one says nothing."""
    summary, ops = profile.summary, ops_by(profile, "unit")
    units = {*ops, summary.top_unit, summary.top_unit_by_count} - {None}
    if summary.top_unit is None or len(units) < 2:
        return
    share = request_shares(profile, "unit").get(summary.top_unit, 0.0) / (request_s(profile) or 1.0)
    mine, count = ops.get(summary.top_unit, 0), op_count(profile)
    parts = [f"{share:.0%} of a request"] if share else []
    parts += [f"{mine:,} of {count:,} ops"] if count else []
    yield Figure(label="Top unit", value=summary.top_unit.upper(), note=" · ".join(parts))


def _floor_figures(profile: Profile) -> Iterator[Figure]:
    phase = profile.steady
    if phase is not None and phase.floor_s and (times := phase.above_floor) is not None and phase.time_s > 0:
        share = 1 / times
        note = f"{phase.name}: the floor is {format_quantity(phase.floor_s, 's', digits=3)}"
        yield Figure(label="Of the floor", value=f"{100 * share:.3g}", unit="%", note=note)
    if phase is not None and phase.predicted_s and phase.time_s > 0:
        off = phase.predicted_s / phase.time_s - 1
        note = f"{phase.name}: {abs(off):.0%} {'under' if off < 0 else 'over'} the measurement"
        yield figure_of("Predicted", phase.predicted_s, "s", note)


def figure_of(label: str, value: float, unit: str, note: str, tone: str = "plain") -> Figure:
    number, _, prefixed = format_quantity(value, unit, digits=4).partition(" ")
    return Figure(label=label, value=number, unit=prefixed, note=note, tone=tone)


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


def _charts(profile: Profile, roofs: JudgedBy | None) -> dict[str, Chart]:
    """The charts that a profile has data for, by name."""
    charts = [*_layer_charts(profile), *_sample_charts(profile)]
    if profile.summary.peak_memory_bytes:
        charts.append(Chart(name="memory", title="Peak memory", spec=lambda: memory_chart(profile), shown=False))
    charts += _rooflines(profile, roofs)
    return {chart.name: chart for chart in charts}


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


def _rooflines(profile: Profile, roofs: JudgedBy | None) -> list[Chart]:
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


def _load_page(result: LoadResult) -> LoadPage:
    remarks, served = list(remarks_of(result)), result.served
    return LoadPage(
        warnings=tuple(remark.removeprefix("! ") for remark in remarks if remark.startswith("! ")),
        remarks=tuple(remark for remark in remarks if not remark.startswith("! ")),
        levels=level_table(result),
        latencies=distribution_table(result),
        facts=tuple(level_facts(result)),
        headline=served.levels[served.headline].name,
        arrivals=served.arrivals,
        lengths=served.lengths,
    )


def _load_charts(result: LoadResult) -> dict[str, Chart]:
    names = chart_names(result.served, result)
    return {
        name: Chart(name=name, title=title, spec=partial(load_chart, result, name)) for name, title in names.items()
    }


def _load_figures(result: LoadResult) -> Iterator[Figure]:
    figures = result.headline
    for label, found in (
        ("First token", figures.ttft_s),
        ("Each token", figures.tpot_s),
        ("Whole request", figures.e2e_s),
    ):
        if found is not None:
            value, words = (found.p50, "median") if found.p50 is not None else (found.mean, "mean")
            if value is not None:
                yield figure_of(label, value, "s", f"{words} of {found.count or 0:,}{_tail(found)}")
    level = result.served.levels[result.served.headline]
    if figures.requests_per_s is not None:
        yield figure_of("Answered", figures.requests_per_s, "1/s", f"requests at {level.name}")
    if figures.output_tokens_per_s is not None:
        yield figure_of("Throughput", figures.output_tokens_per_s, "token/s", "all requests together")
    if figures.goodput_per_s is not None:
        share = "" if figures.attained is None else f"{figures.attained:.1%} within the objectives"
        tone = "plain" if figures.attained is None else "good" if figures.attained >= 0.95 else "bad"
        yield figure_of("Goodput", figures.goodput_per_s, "1/s", share, tone=tone)
    if not figures.requests:
        return  # a source that does not say how many there were
    failed = sum(figures.errors.values())
    kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in figures.errors.items())
    yield Figure(
        label="Failed",
        value=f"{failed:,}",
        note=kinds or f"of {figures.requests:,} requests",
        tone="bad" if failed else "plain",
    )


def _tail(found: Distribution) -> str:
    known = [(name, getattr(found, name)) for name in ("p99", "p95", "p90")]
    tail = next(((name, value) for name, value in known if value is not None), None)
    return "" if tail is None else f" · {tail[0]} {format_quantity(tail[1], 's', digits=3)}"


def _subtitle(profile: Profile) -> str:
    named = _SIZES if profile.served is None else _SIZES[1:]  # a service batches as it likes
    sizes = [f"{name} {value}" for name in named if (value := getattr(profile.workload, name)) is not None]
    sizes += [f"{name} {value}" for name, value in profile.sizes.items()]
    where = place_of(profile)
    return " · ".join(filter(None, (profile.model.name, where, profile.runtime, *sizes, formats_of(profile))))


def badges_of(profile: Profile) -> tuple[tuple[str, str, str], ...]:
    """The badges beside the title: word, tone, and an explanation."""
    badges: list[tuple[str, str, str]] = [
        (
            profile.kind,
            "plain",
            "predicted by the cost model" if profile.kind == "predicted" else "measured on a device",
        )
    ]
    verification, environment = profile.verification, profile.environment
    if verification is not None and verification.status != "unchecked":
        tone = "good" if verification.status == "verified" else "bad"
        badges.append(
            (
                verification.status,
                tone,
                f"outputs against {verification.reference}: {verification.reason or 'they agree'}",
            )
        )
    elif profile.kind == "measured" and profile.served is None:
        badges.append(("unverified", "quiet", "outputs were not compared with a reference: profile with --verify"))
    if environment is not None and environment.disturbed is not None:
        reasons = environment.disturbance or "the machine was quiet"
        badges.append(("disturbed", "bad", reasons) if environment.disturbed else ("quiet", "good", reasons))
    return tuple(badges)


def environment_groups(profile: Profile) -> list[tuple[str, list[tuple[str, str]]]]:
    """What it ran on and how, under headings that a person looks for; groups without facts are left out."""
    environment, provenance = profile.environment, profile.provenance
    groups: dict[str, list[tuple[str, Any]]] = {}
    if environment is not None:
        told = set() if environment.machine is None else _TOLD
        host = [(name, value) for name, value in environment.host.items() if name not in told]
        groups["Machine"] = [*_machine_rows(environment.machine), *(_humane(name, value) for name, value in host)]
        groups["Software"] = [*environment.versions.items()]
        groups["While it was measured"] = [
            ("threads", environment.threads), ("load before", environment.load_before),
            ("load after", environment.load_after), *(("disturbed", reason) for reason in environment.reasons),
            *(("energy", note) for note in energy_notes(environment)),
        ]  # fmt: skip
    if provenance is not None:
        groups["How it was made"] = [
            ("tool", f"{provenance.tool} {provenance.version}"), ("created", provenance.created),
            ("command", provenance.command), *(("note", note) for note in provenance.notes),
        ]  # fmt: skip
    known = ((title, [(n, environment_text(v)) for n, v in rows if v is not None]) for title, rows in groups.items())
    return [(title, rows) for title, rows in known if rows]


def facts_of(profile: Profile) -> dict[str, str]:
    """What was asked for and what it ran on, a name each, so that two profiles can be held side by side."""
    environment, workload = profile.environment, profile.workload
    machine = environment.machine if environment else None
    facts: dict[str, Any] = {
        "kind": profile.kind, "model": profile.model.name, "formats": formats_of(profile) or None,
        "device": profile.device.title or profile.device.name, "machine": machine.title() if machine else None,
        "runtime": profile.runtime, **{name: getattr(workload, name) for name in _SIZES},
        **{name: count for name, count in asdict(workload.parallel).items() if count > 1}, **profile.sizes,
    }  # fmt: skip
    if environment is not None:
        facts |= {"threads": environment.threads, **{f"version of {k}": v for k, v in environment.versions.items()}}
        facts |= {f"host: {name.replace('_', ' ')}": environment_text(v) for name, v in environment.host.items()}
        if environment.disturbed is not None:
            facts["machine was"] = "disturbed" if environment.disturbed else "quiet"
    if (made := profile.provenance) is not None:
        facts |= {"tool": f"{made.tool} {made.version}", "command": made.command}
    return {name: str(value) for name, value in facts.items() if value is not None}


def _humane(name: str, value: Any) -> tuple[str, Any]:
    """A fact of the host by its name in the document, whose ending is the unit."""
    words, _, unit = name.rpartition("_")
    if isinstance(value, int | float) and not isinstance(value, bool) and words:
        if unit == "bytes":
            return words.replace("_", " "), format_capacity(value)
        if unit in _ENDINGS:
            return words.replace("_", " "), format_quantity(value, _ENDINGS[unit])
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return _CALLED.get(name) or name.replace("_", " "), value


def _machine_rows(machine: MachineFacts | None) -> Iterable[tuple[str, Any]]:
    if machine is None:
        return
    yield "machine", machine.title()
    for name in (field.name for field in fields(machine)):
        value = getattr(machine, name)
        if value not in {None, ()} and name != "name":
            text = format_capacity(value) if name == "memory_bytes" else value
            yield {"id": "machine id", "memory_bytes": "memory"}.get(name, name.replace("_", " ")), text


def _is_series(value: Any) -> bool:
    """Readings over time, which a chart shows and nobody reads."""
    return isinstance(value, list | tuple) and len(value) > _FEW and all(isinstance(one, int | float) for one in value)


def environment_text(value: Any) -> str:
    if isinstance(value, dict):
        parts = (_humane(str(name), item) for name, item in value.items() if not _is_series(item))
        return ", ".join(f"{name} {environment_text(item)}" for name, item in parts)
    if isinstance(value, list | tuple):
        return f"{len(value)} values" if _is_series(value) else ", ".join(map(environment_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

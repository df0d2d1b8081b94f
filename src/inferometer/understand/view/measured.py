"""Measurements and comparisons for people: a card of one measurement, a table of verdicts, Markdown for a pull request.

Nothing is computed here: the values come from `bench`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.units import counted, format_quantity
from inferometer.measure.bench.statistics import percentile_between
from inferometer.understand.view.cards import Card, Fact, View
from inferometer.understand.view.phrases import energy_fact, energy_notes
from inferometer.understand.view.render import render
from inferometer.understand.view.table import Bars, Column, ReportTable, columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from inferometer.core.statistics import Interval, Summary
    from inferometer.measure.bench.compare import ComparedMetric, Comparison
    from inferometer.measure.bench.measurement import Measurement

_COLUMNS = (
    Column(key="name", heading="what"),
    Column(key="a_text", heading="A"),
    Column(key="b_text", heading="B"),
    Column(key="ratio_text", heading="B / A"),
    Column(key="p_text", heading="p"),
    Column(key="verdict_text", heading="verdict"),
    Column(key="why", heading="why"),
)
_NUMBERS = columns(
    "baseline", "compared", "phase", "name", "unit", "a", "b", "ratio", "low", "high", "p_value", "verdict", "sure",
    "reason",
)  # fmt: skip
_MARKS = {"faster": "🟢", "slower": "🔴", "same": "⚪", "undecided": "🟡"}
_BARS = Bars(length="ratio", ratio=True)
_MOST_OPS = 12  # op rows of a table
_NO_DIFFERENCE = "no difference shown"  # what `undecided` is called where people read it
_METRIC_KEYS = tuple(column.key for column in _NUMBERS[2:])
_METRICS = {"tokens_per_s": "tokens/s", "memory": "peak memory", "decode": "each token", "prefill": "first token",
            "first_run": "first run"}  # fmt: skip
_SURELY = 0.01  # a drift less likely by chance than this is shown


def verdict_text(verdict: str) -> str:
    """A verdict as people read it, the same in a terminal and on a page."""
    return _NO_DIFFERENCE if verdict == "undecided" else verdict


def measurement_card(measurement: Measurement, percentiles: Sequence[float] = ()) -> Card:
    """One measurement: its time first, then how it spreads, then how it was taken."""
    asked = (percentile_fact(measurement.samples_s, percent) for percent in percentiles)
    facts = [*_statistics(measurement.summary), *asked, *_circumstances(measurement)]
    subtitle, notes = counted(measurement.summary.count, "run"), tuple(energy_notes(measurement.environment))
    return Card(title=measurement.name, subtitle=subtitle, facts=tuple(facts), sources=notes)


def _statistics(summary: Summary) -> Iterator[Fact]:
    yield "time", _time(summary.median), f"median{_between(summary.median_interval)}"
    yield "mean", _time(summary.mean), f"mean{_between(summary.mean_interval)}"
    yield "range", f"{_time(summary.min)} to {_time(summary.max)}", "fastest and slowest run"
    if summary.std is not None and summary.cv is not None:
        mad = f", median absolute deviation {_time(summary.mad)}" if summary.mad is not None else ""
        yield "spread", f"{summary.cv:.1%}", f"standard deviation {_time(summary.std)}{mad}"
    tails = {"p90": summary.p90, "p95": summary.p95, "p99": summary.p99, "p99.9": summary.p999}
    known = [f"{name} {_time(value)}" for name, value in tails.items() if value is not None]
    missing = [name for name, value in tails.items() if value is None]
    if known:
        few = f"too few runs for {', '.join(missing)}; --percentile shows how far they are known" if missing else ""
        yield "tail", ", ".join(known), few
    if summary.outliers:
        yield "outliers", str(summary.outliers), "runs beyond 1.5 interquartile ranges from the quartiles"
    if summary.per_s is not None:
        yield "throughput", format_quantity(summary.per_s, "1"), "runs a second"
    if summary.drift_share is not None and summary.drift_p_value is not None and summary.drift_p_value < _SURELY:
        yield "drift", f"{summary.drift_share:+.1%}", f"from the first run to the last, p = {summary.drift_p_value:.2g}"
    if summary.steady_from:
        yield "settling", f"until run {summary.steady_from}", "the runs before it are slower or faster than the rest"


def percentile_fact(samples: Sequence[float], percent: float, of: str = "") -> Fact:
    """A percentile that was asked for. An end of its interval that no reading bounds is called open."""
    found = percentile_between(samples, percent / 100)
    label = f"p{percent:g}{of and f' {of}'}"
    more = f"of {counted(found.count, 'run')}; about {found.needed} would close the interval"
    sure = f"{(1 + found.confidence) / 2:.1%} sure"  # an open interval has one end to err at
    if found.low is not None and found.high is not None:
        return label, _time(found.value), f"{found.confidence:.0%} between {_time(found.low)} and {_time(found.high)}"
    end = f"≥ {_time(found.low)}" if found.low is not None else f"≤ {_time(found.high)}" if found.high else "–"
    if found.low is None and found.high is None:
        return label, end, more
    if found.value is None:
        return label, end, f"{sure}, {more}"
    return label, _time(found.value), f"open on one side: {end}, {sure}, {more}"


def _circumstances(measurement: Measurement) -> Iterator[Fact]:
    if measurement.peak_memory_bytes is not None:
        yield "memory", format_quantity(measurement.peak_memory_bytes, "B"), "peak"
    if measurement.energy_j is not None:
        yield from energy_fact(measurement.profile)
    yield "warm-up", counted(len(measurement.warmup_s), "run"), "not counted"
    if measurement.failures:
        yield "succeeded", f"{measurement.success_rate:.1%}", f"of {counted(measurement.runs, 'run')}, warm-up included"
    for note in measurement.notes:
        yield "note", note, ""
    quiet = {True: "disturbed", False: "quiet", None: "unknown"}[measurement.disturbed]
    yield "machine", quiet, measurement.environment.disturbance


def _time(seconds: float | None) -> str:
    return format_quantity(seconds, "s")


def _between(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f", {interval.confidence:.0%} between {_time(interval.low)} and {_time(interval.high)}"


def headline(comparison: Comparison) -> str:
    """The verdict in one line."""
    main = comparison.main
    how = {
        "faster": f"{comparison.b} is faster than {comparison.a}",
        "slower": f"{comparison.b} is slower than {comparison.a}",
        "same": f"{comparison.b} is as fast as {comparison.a}",
        "undecided": f"No difference is shown between {comparison.b} and {comparison.a}",
    }[main.verdict]
    by = f" by {_faster_by(main.ratio)}" if main.ratio and main.verdict in {"faster", "slower"} else ""
    return f"{how}{by} ({metric_words(main.name)}): {main.reason}."


def _faster_by(ratio: float) -> str:
    """How much less or more time B takes than A."""
    return f"{abs(ratio - 1):.1%}" if ratio < 2 else f"{ratio:.3g} ×"


def metric_words(name: str) -> str:
    """A metric's name for people."""
    return _METRICS.get(name, name)


def comparison_table(comparison: Comparison, *, most: int | None = _MOST_OPS) -> ReportTable:
    """A row for each metric, then the ops that changed by the most seconds; None shows all of them."""
    ops = _largest_changes(comparison)
    left = len(ops) - len(ops[:most])
    rows = tuple(metric_row(metric) for metric in (*comparison.metrics, *ops[:most]))
    return ReportTable(
        columns=_COLUMNS,
        rows=rows,
        note="\n".join(comparison.notes) or None,
        left=f"{counted(left, 'more op')} changed by less" if left else None,
        bars=_BARS,
    )


def comparison_view(comparison: Comparison, *, most: int | None = _MOST_OPS) -> View:
    """The verdict in a sentence, then every metric and the ops that changed by the most seconds."""
    card = Card(title=headline(comparison), subtitle="", facts=())
    return View(card=card, tables=(comparison_table(comparison, most=most),))


def comparison_numbers(comparisons: Sequence[Comparison]) -> ReportTable:
    """Every metric and op of every comparison as plain numbers, in SI units, under the keys of the JSON."""
    rows = tuple(
        {"baseline": comparison.a, "compared": comparison.b} | {name: getattr(metric, name) for name in _METRIC_KEYS}
        for comparison in comparisons
        for metric in (*comparison.metrics, *_largest_changes(comparison))
    )
    return ReportTable(columns=_NUMBERS, rows=rows)


def _largest_changes(comparison: Comparison) -> list[ComparedMetric]:
    return sorted(comparison.ops, key=lambda op: -abs((op.b or 0.0) - (op.a or 0.0)))


def metric_row(metric: ComparedMetric) -> Mapping[str, Any]:
    """A metric or an op as text, with what a page draws and colours it by."""
    return {
        "name": f"{metric.phase}/{metric.name}" if metric.phase else metric_words(metric.name),
        "a_text": format_quantity(metric.a, metric.unit),
        "b_text": format_quantity(metric.b, metric.unit),
        "ratio_text": _ratio(metric),
        "p_text": None if metric.p_value is None else f"{metric.p_value:.2g}",
        "verdict_text": verdict_text(metric.verdict),
        "why": metric.reason,
        "tone": {"faster": "good", "slower": "bad"}.get(metric.verdict, "quiet"),
        **{name: getattr(metric, name) for name in ("ratio", "low", "high", "verdict")},
    }


def _ratio(metric: ComparedMetric) -> str | None:
    if metric.ratio is None:
        return None
    if metric.low is None or metric.high is None:
        return f"{metric.ratio:.4g}"
    return f"{metric.ratio:.4g} ({metric.low:.4g} – {metric.high:.4g})"


def comparison_markdown(comparison: Comparison) -> str:
    """For a pull request: the verdict, the metrics, the ops folded away, the notes."""
    main = comparison.main
    metrics = ReportTable(columns=_COLUMNS, rows=tuple(metric_row(metric) for metric in comparison.metrics))
    verdict = verdict_text(main.verdict)
    parts = [f"### {_MARKS[main.verdict]} {verdict}", "", headline(comparison), "", render(metrics, "md")]
    if comparison.ops:
        changed = [op for op in comparison.ops if op.verdict in {"faster", "slower"}]
        rows = tuple(metric_row(op) for op in sorted(_largest_changes(comparison), key=lambda op: op not in changed))
        summary = f"{len(changed)} of {counted(len(comparison.ops), 'op')} changed"
        table = render(ReportTable(columns=_COLUMNS, rows=rows), "md")
        parts += ["", f"<details><summary>{summary}</summary>", "", table, "", "</details>"]
    if comparison.notes:
        parts += ["", *(f"- {note}" for note in comparison.notes)]
    level, counts = comparison.criteria.alpha, comparison.criteria.threshold
    rule = f"A difference counts from {counts:.2%} on, at p < {level:g} after Holm's correction."
    return "\n".join([*parts, "", f"<sub>{rule}</sub>"])

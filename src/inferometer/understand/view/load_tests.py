"""What a load test reports: a card, a row a level, remarks in words, and its JSON document."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile
from inferometer.core.served import Distribution, Level, LevelFigures, Objective, Served
from inferometer.core.traffic.figures import Knee, figures_of, knee_of, median_of
from inferometer.core.traffic.requests import Requests
from inferometer.core.traffic.traces import RequestTrace, trace_document
from inferometer.core.units import counted, format_number, format_quantity
from inferometer.understand.view.cards import Card, View
from inferometer.understand.view.phrases import other_tool, profile_title
from inferometer.understand.view.table import Column, ReportTable, filled

SCHEMA = "inferometer.load/1"
_METRICS = ("ttft_s", "itl_s", "tpot_s", "e2e_s")
_RATES = ("requests_per_s", "input_tokens_per_s", "output_tokens_per_s", "goodput_per_s")
_WORDS = {
    "ttft_s": ("first token", "TTFT: from when a request was due to its first token"),
    "itl_s": ("between tokens", "ITL: from token to token; tokens that came together share the wait"),
    "tpot_s": ("each token", "TPOT: (last − first token) / (tokens − 1), of each request"),
    "e2e_s": ("whole request", "from when it was due to its last token"),
}
_APART = 0.10  # a difference between two counts of the same thing that is worth a word
_WIDE = 0.10  # a spread between equal rounds that is worth a word


@frozen
class LoadResult:
    """A load test with the figures of its levels: computed once, shown in many places."""

    served: Served
    figures: tuple[LevelFigures, ...]
    knee: Knee

    @property
    def headline(self) -> LevelFigures:
        return self.figures[self.served.headline]


def load_result(served: Served) -> LoadResult:
    figures = tuple(figures_of(level, served.objectives) for level in served.levels)
    return LoadResult(served=served, figures=figures, knee=knee_of(figures))


LEVEL_COLUMNS = (
    Column(key="name", heading="load"),
    Column(key="completed", heading="answered", exact=True),
    Column(key="failed", heading="failed", exact=True),
    Column(key="requests_per_s", heading="requests/s", unit="1"),
    Column(key="output_tokens_per_s", heading="tokens/s", unit="1"),
    Column(key="ttft_p50_s", heading="TTFT p50", unit="s"),
    Column(key="ttft_p95_s", heading="p95", unit="s"),
    Column(key="tpot_p50_s", heading="TPOT p50", unit="s"),
    Column(key="tpot_p95_s", heading="p95", unit="s"),
    Column(key="e2e_p50_s", heading="e2e p50", unit="s"),
    Column(key="e2e_p95_s", heading="p95", unit="s"),
    Column(key="in_flight", heading="in flight", unit="1"),
    Column(key="goodput_per_s", heading="goodput/s", unit="1"),
    Column(key="attained", heading="in time", share=True),
    Column(key="mark", heading=""),
)


def level_table(result: LoadResult) -> ReportTable:
    rows = tuple(level_row(result, index) for index in range(len(result.figures)))
    return ReportTable(columns=filled(LEVEL_COLUMNS, rows), rows=rows)


def level_row(result: LoadResult, index: int) -> dict[str, Any]:
    level, figures = result.served.levels[index], result.figures[index]
    row: dict[str, Any] = {
        "name": level.name,
        "completed": figures.completed if figures.requests else None,
        "failed": sum(figures.errors.values()) or None,
        "in_flight": figures.in_flight,
        "attained": figures.attained,
        "mark": " · ".join(marks_of(result, index)) or None,
        **{name: getattr(figures, name) for name in _RATES},
    }
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        found = getattr(figures, name)
        for share in ("p50", "p95"):
            row[f"{name.removesuffix('_s')}_{share}_s"] = None if found is None else getattr(found, share)
    return row


def marks_of(result: LoadResult, index: int) -> Iterator[str]:
    level, figures = result.served.levels[index], result.figures[index]
    if index == result.knee.knee:
        yield "knee"
    if index == result.knee.saturated:
        yield "saturated"
    if index == result.knee.within:
        yield "highest within the objectives"
    if figures.growing:
        yield "queue grows"
    if level.client is not None and level.client.bottleneck:
        yield "client is the bottleneck"
    if level.interrupted:
        yield "interrupted"


def distribution_table(result: LoadResult) -> ReportTable:
    """The latencies of the headline level, with the percentiles that its requests support."""
    shares = ("mean", "p50", "p90", "p95", "p99", "max")
    columns = (Column(key="what", heading=""), *(Column(key=share, heading=share, unit="s") for share in shares))
    rows = []
    for name in _METRICS:
        found: Distribution | None = getattr(result.headline, name)
        if found is not None:
            rows.append({"what": _WORDS[name][0], **{share: getattr(found, share) for share in shares}})
    return ReportTable(columns=columns, rows=tuple(rows))


def load_card(profile: Profile, result: LoadResult) -> Card:
    served = result.served
    level, figures = served.levels[served.headline], result.headline
    several = len(served.levels) > 1
    by = other_tool(profile)
    load_words = f"{served.arrivals}; of {len(served.levels)} levels" if several else served.arrivals or ""
    facts = [("load", level.name, load_words)]
    facts += list(_figure_facts(level, figures))
    return Card(
        title=profile_title(profile),
        subtitle=" · ".join(filter(None, (by and f"measured by {by}", profile.runtime, served.api, served.lengths))),
        facts=tuple(facts),
        sources=(*remarks_of(result), *(_basis(profile) if profile.kind == "predicted" or by else ())),
    )


def trace_card(trace: RequestTrace) -> Card:
    """What a trace of requests is like."""
    known = trace_document(trace)
    rate = known["requests_per_s"]
    what, per_s = ("sessions", rate and rate * trace.first_turns / len(trace)) if trace.after else ("requests", rate)
    if rate:
        whole = known["seconds"]
        comes = f"{per_s:.3g} {what}/s in {whole:,.0f} s" if whole >= 10 else f"{per_s:.3g} {what}/s in {whole:.2g} s"
    else:
        comes = "all begin at once" if trace.is_timed else "it does not say when: --rate says it"
    text = "Four letters were counted as a token: the file has texts and no numbers." if trace.estimated else None
    shared = f"{known['repeated_share']:.0%}"
    return Card(
        title=trace.name,
        subtitle=trace.form,
        facts=(
            ("requests", f"{len(trace):,}", comes),
            ("sessions", f"{trace.first_turns:,}", f"{len(trace) / trace.first_turns:.3g} requests each"),
            ("prompts", f"{known['input_tokens']:,.0f} tokens", f"at most {known['longest_prompt']:,}"),
            ("answers", f"{known['output_tokens']:,.0f} tokens", "on average"),
            ("repeated", shared, "of the prompts: what a cache without end would have"),
        ),
        text=text,
        sources=(f"{trace.skipped:,} rows without tokens are left out.",) if trace.skipped else (),
    )


def _basis(profile: Profile) -> tuple[str, ...]:
    return profile.provenance.notes if profile.provenance is not None else ()


def level_facts(result: LoadResult) -> list[tuple[str, str, str]]:
    """The facts of the headline level: label, value, remark."""
    return list(_figure_facts(result.served.levels[result.served.headline], result.headline))


def load_view(profile: Profile) -> View:
    """The headline level, its latencies, and all levels where there are several."""
    assert profile.served is not None  # noqa: S101 - of a load test
    result = load_result(profile.served)
    tables = [distribution_table(result)] if result.headline.has_times else []
    tables += [level_table(result)] if len(result.figures) > 1 else []
    return View(card=load_card(profile, result), tables=tuple(tables))


def _figure_facts(level: Level, figures: LevelFigures) -> Iterator[tuple[str, str, str]]:
    window = level.windows[0] if level.windows else None
    if window is not None and figures.window_s is not None:
        shown = format_quantity(figures.window_s, "s", digits=3)
        yield "steady window", shown, f"{counted(figures.counted or 0, 'request')} · {window.why}"
    if figures.requests_per_s is not None:
        stated = figures.offered_per_s if level.rate_per_s is not None else None  # other tools may state the rate alone
        offered = "" if stated is None else f"of {format_quantity(stated, '1')} offered"
        yield "requests/s", format_quantity(figures.requests_per_s, "1"), offered
    for name, words in (("output_tokens_per_s", "tokens/s out"), ("input_tokens_per_s", "tokens/s in")):
        rate = getattr(figures, name)
        if rate is not None:
            mean = figures.output_tokens if name.startswith("output") else figures.input_tokens
            yield words, format_number(rate, 4), "" if mean is None else f"{format_number(mean, 4)} tokens a request"
    if figures.goodput_per_s is not None:
        met = "" if figures.attained is None else f"{figures.attained:.1%} of the requests in time"
        yield "goodput", f"{format_quantity(figures.goodput_per_s, '1')} requests/s", met
    for goal, held in figures.objectives.items():
        yield (
            goal,
            {True: "met", False: "not met", None: "not known"}[held],
            "" if held is not None else "too few requests",
        )
    if figures.in_flight is not None and figures.little is not None:
        yield "in flight", f"{figures.in_flight:.3g}", f"{figures.little:.3g} by Little's law"
    if figures.spread:
        words = ", ".join(f"{_name(name)} {share:.1%}" for name, share in figures.spread.items())
        yield "spread", words, f"between {figures.rounds}"
    yield from _side_facts(level)


def _name(metric: str) -> str:
    return {"requests_per_s": "requests/s", "output_tokens_per_s": "tokens/s"}.get(
        metric, metric.removesuffix("_s").upper()
    )


def _side_facts(level: Level) -> Iterator[tuple[str, str, str]]:
    client, server = level.client, level.server
    if client is not None and client.send_delay_p99_s is not None:
        lag = "" if client.lag_p99_s is None else f", loop lag {format_quantity(client.lag_p99_s, 's', digits=3)}"
        cpu = "" if client.cpu_share is None else f", {client.cpu_share:.0%} of a core"
        delay = format_quantity(client.send_delay_p99_s, "s", digits=3)
        yield "client", "the bottleneck" if client.bottleneck else "kept up", f"sent {delay} late at p99{lag}{cpu}"
    if server is not None:
        parts = [f"{name.replace('_', ' ')} {value:,.6g}" for name, value in server.counters.items()]
        parts += [
            f"{name.replace('_', ' ')} {mean:.3g} (max {most:.3g})" for name, (mean, most) in server.gauges.items()
        ]
        if server.usage_requests:
            usage = f"{server.usage_input_tokens or 0:,} tokens in, {server.usage_output_tokens or 0:,} out"
            parts.append(f"usage of {counted(server.usage_requests, 'request')}: {usage}")
        if parts:
            yield "engine" if client is None else "server says", parts[-1], "; ".join(parts[:-1])


def remarks_of(result: LoadResult) -> Iterator[str]:
    """What a reader should know before believing the figures, and what the sweep found."""
    served, knee = result.served, result.knee
    names = [level.name for level in served.levels]
    if knee.within is not None and len(names) > 1:
        yield f"The highest load within {_goals(served.objectives)} is {names[knee.within]}."
    elif served.objectives and any(figures.objectives for figures in result.figures):
        unknown = any(None in figures.objectives.values() for figures in result.figures)
        if unknown:
            yield "Whether the objectives hold is not known: a percentile needs more requests."
        elif knee.within is None:
            yield f"No load met {_goals(served.objectives)}."
    if knee.knee is not None:
        yield (f"The knee is at {names[knee.knee]}: throughput over latency is greatest there (Kleinrock's power).")
    if knee.beyond:
        yield f"No knee up to {names[-1]}: more load still brings more throughput than latency."
    if knee.saturated is not None:
        yield f"From {names[knee.saturated]} on the service gives at least 95 % of its highest throughput."
    yield from _client_remarks(served)
    yield from _error_remarks(result)
    yield from _steadiness_remarks(result)
    yield from dict.fromkeys(note for level in served.levels for note in level.notes)
    for level in served.levels:
        yield from _counter_remarks(level, f"At {level.name}")
    if served.prompts:
        yield f"Tokens of prompts: {served.prompts}."
    counting = {level.counting for level in served.levels if level.counting}
    if counting:
        held = [level.tokens_per_chunk for level in served.levels if level.tokens_per_chunk]
        per = f"; {max(held):.3g} tokens an arrival" if held and max(held) > 1.005 else ""
        ways = dict.fromkeys(way for text in sorted(counting) for way in text.split(", "))  # each level says several
        yield f"Tokens in an event: {', '.join(ways)}{per}."
    if served.loop != "closed" and any(
        level.requests is not None and level.client is not None for level in served.levels
    ):
        yield "Latencies count from when a request was due: waiting in the client is in them (no coordinated omission)."


def _goals(objectives: Sequence[Objective]) -> str:
    return " and ".join(map(str, objectives))


def _names(levels: Sequence[Level]) -> str:
    return ", ".join(level.name for level in levels)


def _client_remarks(served: Served) -> Iterator[str]:
    slow = [level for level in served.levels if level.client is not None and level.client.bottleneck]
    if slow:
        worst = slow[-1].client
        why = " and ".join(worst.reasons) if worst is not None else ""
        yield f"! At {_names(slow)} the load generator was the bottleneck: {why}."


def _error_remarks(result: LoadResult) -> Iterator[str]:
    """Errors of all levels together, by kind, with the first message of each."""
    kinds: dict[str, int] = {}
    messages: dict[str, str] = {}
    for level, figures in zip(result.served.levels, result.figures, strict=True):
        for kind, count in figures.errors.items():
            kinds[kind] = kinds.get(kind, 0) + count
        messages = {**level.messages, **messages}
    if kinds:
        words = ", ".join(
            f"{count:,} × {kind}{f' ({messages[kind]})' if kind in messages else ''}" for kind, count in kinds.items()
        )
        yield f"! {counted(sum(kinds.values()), 'request')} failed: {words}. None of them is in the times."


def _steadiness_remarks(result: LoadResult) -> Iterator[str]:
    pairs = list(zip(result.served.levels, result.figures, strict=True))
    growing = [(level, figures) for level, figures in pairs if figures.growing]
    if growing:
        more = f"{growing[-1][1].growth_per_s:.3g} more a second at {growing[-1][0].name}"
        where = _names([level for level, _ in growing])
        yield f"! At {where} requests pile up, {more}: latencies there depend on how long it ran."
    for level, figures in pairs:
        little, held = figures.little, figures.in_flight
        if little and held and abs(little - held) > _APART * held and not figures.growing:
            yield f"At {level.name} {held:.3g} were in flight and Little's law says {little:.3g}: it was not steady."
    wide = [
        (share, name, level, figures)
        for level, figures in pairs
        for name, share in figures.spread.items()
        if share > _WIDE and not figures.growing
    ]
    if wide:
        share, name, level, figures = max(wide, key=lambda entry: entry[0])
        apart = f"{_name(name)} differed by {share:.0%} between {figures.rounds} at {level.name}"
        yield f"{apart}: do not read smaller differences into these figures."


def _counter_remarks(level: Level, at: str) -> Iterator[str]:
    server = level.server
    if server is None or not server.usage_output_tokens or "generated_tokens" not in server.counters:
        return
    counted_there = server.counters["generated_tokens"]
    if abs(counted_there - server.usage_output_tokens) > _APART * server.usage_output_tokens:
        yield (
            f"{at} the server's counter says {counted_there:,.0f} tokens, the requests {server.usage_output_tokens:,}: "
            "others may use it too, or it stops before the limit."
        )


def load_document(profile: Profile, result: LoadResult) -> dict[str, Any]:
    """The JSON that other programs rely on. A percentile that so few requests do not support is null."""
    served, knee = result.served, result.knee
    names = [level.name for level in served.levels]
    levels = [_level_document(level, figures) for level, figures in zip(served.levels, result.figures, strict=True)]
    headline = levels[served.headline]
    return {
        "schema": SCHEMA,
        "kind": profile.kind,
        "model": profile.model.name,
        "device": profile.device.name,
        "runtime": profile.runtime,
        **{
            name: getattr(served, name)
            for name in ("endpoint", "api", "streamed", "loop", "arrivals", "lengths", "prompts")
        },
        "headline": names[served.headline],
        **headline,
        **{
            name: None if (at := getattr(knee, name)) is None else names[at] for name in ("knee", "saturated", "within")
        },
        "levels": levels,
        "notes": [*(profile.provenance.notes if profile.provenance else ()), *remarks_of(result)],
    }


def _level_document(level: Level, figures: LevelFigures) -> dict[str, Any]:
    plain = asdict(figures)
    summary = {name: plain.pop(name) for name in _METRICS}
    return {
        "name": level.name,
        "rate_per_s": level.rate_per_s,
        "concurrency": level.concurrency,
        "summary": summary,
        **plain,
        "windows": [asdict(window) for window in level.windows],
        "counting": level.counting,
        "tokens_per_chunk": level.tokens_per_chunk,
        "client": None if level.client is None else asdict(level.client),
        "server": None if level.server is None else asdict(level.server),
        "messages": dict(level.messages),
        "interrupted": level.interrupted,
    }


REQUEST_COLUMNS = (
    "level", "arrival_s", "input_tokens", "output_tokens", "ttft_s", "tpot_s", "e2e_s", "sent_s", "outcome", "counted",
)  # fmt: skip


def request_rows(served: Served) -> Iterator[dict[str, Any]]:
    """A row a request, with the columns of a trace first, so that it can be replayed."""
    for level in served.levels:
        if level.requests is None:
            continue
        requests = Requests.of(level.requests)
        columns = level.requests
        for index in range(len(columns)):
            due = columns.due_s[index]
            yield {
                "level": level.name,
                "arrival_s": due,
                "input_tokens": columns.input_tokens[index],
                "output_tokens": columns.output_tokens[index],
                "ttft_s": _number(requests.ttft_s[index]),
                "tpot_s": _number(requests.tpot_s[index]),
                "e2e_s": _number(requests.e2e_s[index]),
                "sent_s": columns.sent_s[index],
                "outcome": columns.outcome[index],
                "counted": any(window.start_s <= due <= window.end_s for window in level.windows),
            }


def _number(value: float) -> float | None:
    return float(value) if value == value else None  # noqa: PLR0124 - NaN is what is missing


__all__ = [
    "LoadResult", "distribution_table", "level_table", "load_card", "load_document", "load_result", "median_of",
    "remarks_of", "request_rows",
]  # fmt: skip

"""Served models for people: many users at once, what fits into memory, and the cheapest way to serve them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.units import counted, format_capacity, format_number, format_quantity
from inferometer.understand.view.cards import Card, Fact
from inferometer.understand.view.phrases import interval_text
from inferometer.understand.view.table import Column, ReportTable, filled

if TYPE_CHECKING:
    from inferometer.predict.memory.fit import Fit
    from inferometer.predict.placing import Runnable, RunnableForm
    from inferometer.predict.served.question import ServingAnswer

_BOUNDS = {
    "decode": "bound by decoding",
    "prompts": "bound by the prompts that ride in the steps",
    "memory": "bound by memory: users wait for room in the cache",
}
_COLUMNS = (
    Column(key="model", heading="model"),
    Column(key="device", heading="device"),
    Column(key="devices", heading="devices"),
    Column(key="runtime", heading="runtime"),
    Column(key="weights", heading="weights"),
    Column(key="tp", heading="tp"),
    Column(key="batch", heading="batch"),
    Column(key="ttft_s", heading="first token", label="ttft_s", unit="s"),
    Column(key="tpot_s", heading="each token", label="tpot_s", unit="s"),
    Column(key="tokens_per_s_per_user", heading="tokens/s/user", label="tokens_per_s_per_user", unit="1"),
    Column(key="tokens_per_s_per_device", heading="tokens/s/device", label="tokens_per_s_per_device", unit="1"),
    Column(key="usd_per_hour", heading="USD/h"),
    Column(key="meets", heading="meets"),
    Column(key="error", heading="why not"),
)


def serving_card(answer: ServingAnswer) -> Card:
    where = f"{answer.devices} × {answer.device}" if answer.devices > 1 else answer.device
    facts: list[Fact] = [
        ("first token", format_quantity(answer.ttft_s, "s"), interval_text(answer.ttft_low_s, answer.ttft_high_s, "s")),
        ("each token", format_quantity(answer.tpot_s, "s"), interval_text(answer.tpot_low_s, answer.tpot_high_s, "s")),
        ("decode step", format_quantity(answer.step_s, "s"), _riding(answer)),
        ("tokens/s/user", format_quantity(answer.tokens_per_s_per_user, "1"), _met(answer)),
        ("tokens/s", format_quantity(answer.tokens_per_s, "1"), "of all users together"),
        ("tokens/s/device", format_quantity(answer.tokens_per_s_per_device, "1"), ""),
        ("batch", str(answer.batch), f"sequences at once in each replica, {_BOUNDS[answer.bound]}"),
    ]
    if answer.kv_tokens is not None:
        facts.append(("cache", f"{answer.kv_tokens:,} tokens", "of all sequences of a replica together"))
    if answer.usd_per_million_tokens is not None and answer.usd_per_hour is not None:
        paid = f"{format_number(answer.usd_per_hour)} USD an hour"
        facts.append(("price", f"{format_number(answer.usd_per_million_tokens)} USD per million tokens", paid))
    if answer.energy_j_per_token is not None:
        joules = format_quantity(answer.energy_j_per_token, "J")
        facts.append(("energy", f"{joules} a token", _joules_between(answer)))
    formats = answer.weights or ""
    users = f"{answer.users} user{'s' * (answer.users > 1)}"
    sizes = f"{users}, prompt {answer.prompt}, generate {answer.generate}"
    return Card(
        title=f"{answer.model} on {where}",
        subtitle=f"{answer.runtime} · {formats} · {sizes}",
        facts=tuple(facts),
        sources=answer.notes,
    )


def _joules_between(answer: ServingAnswer) -> str:
    low, high = answer.energy_j_per_token_low, answer.energy_j_per_token_high
    between = "" if low is None or high is None else f"{interval_text(low, high, 'J')}, "
    return f"{between}the prompts counted in"


def memory_card(fit: Fit) -> Card:
    """Every figure of a fit that is known, under its own name."""
    facts = []
    for name, value in asdict(fit).items():
        if value is not None:
            text = format_capacity(value) if "bytes" in name else f"{value:,}"
            text = ("yes" if value else "no") if isinstance(value, bool) else text
            facts.append((name.removesuffix("_bytes").replace("_", " "), text, ""))
    return Card(title="What it takes of memory", subtitle="", facts=tuple(facts))


def _riding(answer: ServingAnswer) -> str:
    """What a token takes beside the step that makes it, as `predict --batch` has it."""
    beside = answer.tpot_s - answer.step_s
    if beside <= 0.001 * answer.step_s:
        return "of the whole batch"
    return f"of the whole batch; prompts that others bring add {format_quantity(beside, 's')} to each token"


def _met(answer: ServingAnswer) -> str:
    if answer.meets is None:
        return ""
    asked = f"{answer.tokens_per_user:g} were asked for"
    return f"{asked}: enough" if answer.meets else f"{asked}: not enough"


def serving_table(answers: Iterable[ServingAnswer | Mapping[str, Any]]) -> ReportTable:
    rows = [answer if isinstance(answer, Mapping) else asdict(answer) for answer in answers]
    shown = filled(_COLUMNS, rows)
    return ReportTable(columns=shown, rows=tuple({column.key: row.get(column.key) for column in shown} for row in rows))


def fit_card(fit: Mapping[str, Any], *, title: str, subtitle: str, notes: tuple[str, ...]) -> Card:
    """What fits: bytes of one device by what takes them, and what is left for the cache."""
    usable, reserve, devices = fit["usable_bytes"], fit["reserve_bytes"], fit["devices_at_least"]
    known = "" if usable is None else f"{format_capacity(usable)} of a device can be used"
    facts: list[Fact] = [
        ("fits", {None: "unknown", True: "yes", False: "no"}[fit["fits"]], known or "the device's memory is not known"),
        ("weights", format_capacity(fit["weights_bytes"]), "on each device"),
        ("activations", format_capacity(fit["activations_bytes"]), "the most that a step needs"),
    ]
    if reserve is not None:
        facts.append(("reserve", format_capacity(reserve), "the engine's own: context, graphs, buffers"))
    if fit["kv_bytes_per_token"]:
        each = f"{format_quantity(fit['kv_bytes_per_token'], 'B')} a token"
        facts.append(("cache", each, "") if usable is None else ("cache", f"{fit['kv_tokens']:,} tokens", each))
    if fit["max_batch"] is not None:
        what = f"sequences of {fit['tokens']} tokens" if fit["tokens"] else "inputs"
        facts.append(("largest batch", f"{fit['max_batch']:,}", f"{what} at once"))
    if fit["max_context"] is not None:
        facts.append(("longest context", f"{fit['max_context']:,}", "tokens of one sequence"))
    if usable is not None:
        facts.append(("devices", "no number" if devices is None else str(devices), "at least, to hold it"))
    return Card(title=title, subtitle=subtitle, facts=tuple(facts), sources=notes)


_FORMS = (
    Column(key="weights", heading="weights"),
    Column(key="bits_per_weight", heading="bits", unit="1"),
    Column(key="perplexity_lost", heading="ppl lost", unit="1"),
    Column(key="weights_bytes", heading="size", unit="B"),
    Column(key="fits", heading="fits"),
    Column(key="tokens_per_s", heading="tokens/s", label="tokens_per_s", unit="1"),
    Column(key="low", heading="low", unit="1"),
    Column(key="high", heading="high", unit="1"),
    Column(key="limited_by", heading="limited by"),
    Column(key="flags", heading="llama.cpp flags"),
    Column(key="why_not", heading="why not"),
)


def runnable_card(answer: Runnable) -> Card:
    """The largest form that fits, in one line; then what it was asked about."""
    best = next((form for form in answer.forms if form.fits), None)
    placed = next((form for form in reversed(answer.forms) if form.flags), None)
    if best is not None and best.tokens_per_s is not None:
        verdict = ("yes", f"{best.weights} is the largest form that fits", _rate_text(best))
    elif placed is not None:
        where = f"{format_capacity(placed.host_bytes or 0)} of {placed.weights} would lie in the host's memory"
        verdict = ("in part", where, _rate_text(placed))
    else:
        verdict = ("no", "none of these forms fits", "")
    facts: list[Fact] = [verdict, ("context", f"{answer.context:,} tokens", "that there is room for")]
    if answer.capacity_bytes is not None:
        facts.append(("memory", format_capacity(answer.capacity_bytes), ""))
    subtitle = f"{answer.runtime}{f' · host {answer.host}' if answer.host else ''}"
    return Card(
        title=f"{answer.model} on {answer.device}", subtitle=subtitle, facts=tuple(facts),
        text="\n".join(answer.notes) or None,
    )  # fmt: skip


def _rate_text(form: RunnableForm) -> str:
    if form.tokens_per_s is None:
        return "with --host the speed of that is predicted"
    ends = "" if form.low is None or form.high is None else f", {form.low:.3g} to {form.high:.3g}"
    return f"{form.tokens_per_s:.3g} tokens/s{ends}"


def runnable_table(answer: Runnable) -> ReportTable:
    rows = tuple(asdict(form) for form in answer.forms)
    return ReportTable(columns=filled(_FORMS, rows), rows=rows, note=answer.quality)


# What a plan shows: the best one as a card, and a row a plan. They take the documents that plans are.

# How a replica runs: in every table of plans.
_HOW = (
    Column(key="runtime", heading="engine"),
    Column(key="weights", heading="weights"),
    Column(key="kv", heading="cache"),
    Column(key="drafts", heading="drafts"),
    Column(key="tp", heading="TP", exact=True),
    Column(key="pp", heading="PP", exact=True),
    Column(key="ep", heading="EP", exact=True),
    Column(key="dp", heading="DP", exact=True),
)
_PLAN = (
    Column(key="device", heading="device"),
    Column(key="count", heading="devices", exact=True),
    *_HOW,
    Column(key="replicas", heading="replicas", exact=True),
    Column(key="held", heading="held", unit="1"),
    Column(key="readers", heading="readers", exact=True),
    Column(key="reader_tp", heading="their TP", exact=True),
    Column(key="max_num_seqs", heading="at once", exact=True),
    Column(key="max_num_batched_tokens", heading="a step", exact=True),
    Column(key="usd_per_hour", heading="USD/h", unit="1"),
    Column(key="usd_per_million_tokens", heading="USD/Mtok", unit="1"),
    Column(key="watts", heading="power", unit="W"),
    Column(key="utilisation", heading="load", share=True),
    Column(key="ttft_p95_s", heading="TTFT p95", unit="s"),
    Column(key="tpot_p95_s", heading="TPOT p95", unit="s"),
    Column(key="why", heading="why"),
)
# On a narrow terminal the limits of the engine's command line give way to what a plan costs.
_PLANS = tuple(
    replace(column, aside=True) if column.key in {"max_num_seqs", "max_num_batched_tokens", "watts"} else column
    for column in _PLAN
)
_REGIONS = (
    Column(key="name", heading="region"),
    Column(key="rate_per_s", heading="requests/s", unit="1"),
    Column(key="round_trip_s", heading="way", unit="s"),
    *_PLAN,
)
_FRONT = (
    Column(key="tokens_per_s_per_user", heading="tokens/s a user", unit="1"),
    Column(key="tokens_per_s_per_device", heading="a device", unit="1"),
    Column(key="ttft_s", heading="first token", unit="s"),
    Column(key="device", heading="device"),
    *_HOW,
    Column(key="at_once", heading="at once", exact=True),
)
_EDGE = (
    Column(key="device", heading="device"),
    Column(key="count", heading="devices", exact=True),
    Column(key="runtime", heading="engine"),
    Column(key="weights", heading="weights"),
    Column(key="latency_s", heading="a frame", unit="s"),
    Column(key="frames_per_s", heading="frames/s", unit="1"),
    Column(key="streams", heading="streams each", exact=True),
    Column(key="busy", heading="busy", share=True),
    Column(key="watts", heading="power", unit="W"),
    Column(key="battery_h", heading="battery h", unit="1"),
    Column(key="usd", heading="USD each", unit="1"),
    Column(key="why", heading="why"),
)


def plan_table(document: Mapping[str, Any]) -> ReportTable:
    return _table(_PLANS, document)


def device_table(document: Mapping[str, Any]) -> ReportTable:
    """The best plan of each device."""
    return _table(_PLANS, {"plans": document.get("by_device") or ()})


def front_table(document: Mapping[str, Any]) -> ReportTable:
    """Tokens a second of a user against those of a device: what no other way beats in both."""
    return _table(_FRONT, {"plans": document["front"]})


def regions_table(document: Mapping[str, Any]) -> ReportTable:
    """The best plan of each region, and their sum."""

    def row(region: Mapping[str, Any]) -> dict[str, Any]:
        own = {key: region[key] for key in ("name", "rate_per_s", "round_trip_s")}
        plan = region["plan"] or {"why": region["why_not"]}
        return {**dict.fromkeys(column.key for column in _PLAN), **plan, **own}

    together = {"name": "together", "rate_per_s": sum(region["rate_per_s"] for region in document["regions"])}
    last = {**dict.fromkeys(column.key for column in _REGIONS), **document["total"], **together}
    return _table(_REGIONS, {"plans": [*map(row, document["regions"]), last]})


def edge_table(document: Mapping[str, Any]) -> ReportTable:
    def shown(plan: Mapping[str, Any]) -> dict[str, Any]:
        return {**plan, "battery_h": None if plan["battery_s"] is None else plan["battery_s"] / 3600}

    return _table(_EDGE, {"plans": [shown(plan) for plan in document["plans"]]})


def _table(columns: tuple[Column, ...], document: Mapping[str, Any]) -> ReportTable:
    def shown(row: Mapping[str, Any]) -> dict[str, Any]:
        """Without what stands only where some plan has more than one of it, or a pool that reads prompts."""
        some = {key: row[key] if (row.get(key) or 1) > 1 else None for key in ("pp", "ep", "dp")}
        pool = {key: row[key] if row.get("readers") else None for key in ("readers", "reader_tp")}
        drafts = row.get("drafting")
        drafted = {"drafts": f"{drafts['draft']} × {drafts['length']}" if drafts else None}
        held = {"held": row["autoscaled"]["mean_replicas"] if row.get("autoscaled") else None}
        return {**row, **some, **pool, **drafted, **held}

    rows = tuple(shown(row) for row in document["plans"])
    return ReportTable(columns=filled(columns, rows), rows=rows)


def _shared(plan: Mapping[str, Any]) -> str:
    more = (f" · {name.upper()} {plan[name]}" for name in ("pp", "ep", "dp") if plan.get(name, 1) > 1)
    return f"TP {plan['tp']}{''.join(more)}"


def plan_card(document: Mapping[str, Any], *, title: str) -> Card:
    """The best plan, and what was tried and failed."""
    best = document["plans"][0]
    weights = f" · {best['weights']}" if best["weights"] else ""
    weights += f" · cache in {best['kv']}" if best.get("kv") else ""
    compared = f"{document['candidates']:,} candidates compared, {counted(document['simulated'], 'simulation')}"
    return Card(
        title=title,
        subtitle=f"{best['count']} × {best['device']} · {best['runtime']}{weights} · {_shared(best)}",
        facts=(*_facts(best), *_edge_facts(document.get("edge")), *_apart_facts(document.get("apart"))),
        sources=(compared + ".", *document["rejected"][-3:], *document["notes"]),
    )


def _apart_facts(plan: Mapping[str, Any] | None) -> Iterator[Fact]:
    """The best plan with a pool that reads prompts, where another is better."""
    if plan is not None:
        pools = f"{plan['readers']} of TP {plan['reader_tp']} read, {plan['replicas']} of TP {plan['tp']} write"
        yield "pools apart", f"{plan['count']} × {plan['device']}", f"{pools}: {plan['why']}"


def _edge_facts(edge: Mapping[str, Any] | None) -> Iterator[Fact]:
    """What the tier before the servers does, and what users see of both."""
    if edge is None:
        return

    def seconds(name: str) -> str:
        return format_quantity(edge[name], "s", digits=3)

    fits = "" if edge["fits"] is not False else ", which does not fit its memory"
    yield "at the edge", f"{edge['share']:.0%}", f"{edge['model']} on {edge['device']}, {edge['runtime']}{fits}"
    rate = f"{format_number(edge['requests_per_s'])} requests/s"
    words = f"first token {seconds('ttft_s')}, each token {seconds('tpot_s')}, {rate}"
    yield "answered there", seconds("answer_s"), words
    yield "handed on", seconds("handed_on_s"), f"until the servers have answered; {seconds('mean_s')} over all requests"
    if edge["joules"] is not None:
        charge = edge["requests_per_charge"]
        words = "an answer at the edge" + ("" if charge is None else f", {charge:,.0f} on a charge")
        yield "energy", format_quantity(edge["joules"], "J", digits=3), words


def _facts(plan: Mapping[str, Any]) -> Iterator[Fact]:
    spare = f", {plan['spare']} of them spare" if plan["spare"] else ""
    step = f", {plan['max_num_batched_tokens']:,} tokens a step" if plan.get("max_num_batched_tokens") else ""
    yield "replicas", str(plan["replicas"]), f"{plan['max_num_seqs']} sequences at once{step}{spare}"
    if scaled := plan.get("autoscaled"):
        signal = {"requests": "requests", "waiting": "requests that wait", "cache": "of its cache in use"}
        each = f"{scaled['target']:g} {signal[scaled['signal']]} each"
        hours = f"{scaled['replica_hours']:,.4g} replica-hours in {scaled['hours']:,.3g} h"
        said = f"of {scaled['least']} to {scaled['most']} replicas, for {each}; {hours}"
        words = f"{said}, with cold starts of {scaled['cold_start_s']:g} s"
        yield "held", f"{scaled['mean_replicas']:.3g} on average", words
    if plan.get("drafting"):
        drafts = plan["drafting"]
        varying = f" ± {drafts['spread']:g}" if drafts["spread"] else ""
        said = f"{drafts['acceptance']:g}{varying} of them accepted, as was asked: measure it on your own requests"
        yield "drafts", f"{drafts['draft']} × {drafts['length']}", said
    if plan.get("readers"):
        link = next((note for note in plan["notes"] if note.startswith("caches")), "")
        yield "readers", f"{plan['readers']} of TP {plan['reader_tp']}", f"a pool that reads the prompts; {link}"
    if plan["usd_per_month"] is not None:
        yield "cost", f"{plan['usd_per_month']:,.0f} USD a month", f"{plan['usd_per_hour']:.2f} USD/h"
        yield "a million tokens", f"{format_number(plan['usd_per_million_tokens'])} USD", "of output"
    if plan["watts"] is not None:
        carbon = plan["co2e_g_per_hour"]
        words = "" if carbon is None else f"{format_number(carbon / 1e3)} kg CO₂e an hour"
        yield "power", format_quantity(plan["watts"], "W", digits=3), words
    yield "load", f"{plan['utilisation']:.0%}", f"{plan['headroom']:.0%} more requests would still be in time"
    for label, mean, high in (("TTFT p95", "ttft_s", "ttft_p95_s"), ("TPOT p95", "tpot_s", "tpot_p95_s")):
        if plan[high] is not None:
            average = format_quantity(plan[mean], "s", digits=3)
            yield (
                label,
                format_quantity(plan[high], "s", digits=3),
                f"{average} on average, {plan['requests']:,} requests",
            )
    yield "cache", f"{plan['kv_share']:.0%}", "of the blocks at most"

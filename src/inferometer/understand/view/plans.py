"""What a plan shows: the best one as a card, and a row a plan. They take the documents that plans are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.units import counted, format_number, format_quantity
from inferometer.understand.view.cards import Card
from inferometer.understand.view.table import Column, ReportTable, filled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from inferometer.understand.view.cards import Fact

_PLAN = (
    Column(key="device", heading="device"),
    Column(key="count", heading="devices", exact=True),
    Column(key="runtime", heading="engine"),
    Column(key="weights", heading="weights"),
    Column(key="tp", heading="TP", exact=True),
    Column(key="pp", heading="PP", exact=True),
    Column(key="ep", heading="EP", exact=True),
    Column(key="replicas", heading="replicas", exact=True),
    Column(key="readers", heading="readers", exact=True),
    Column(key="reader_tp", heading="their TP", exact=True),
    Column(key="max_num_seqs", heading="at once", exact=True),
    Column(key="usd_per_hour", heading="USD/h", unit="1"),
    Column(key="usd_per_million_tokens", heading="USD/Mtok", unit="1"),
    Column(key="watts", heading="power", unit="W"),
    Column(key="utilisation", heading="load", share=True),
    Column(key="ttft_p95_s", heading="TTFT p95", unit="s"),
    Column(key="tpot_p95_s", heading="TPOT p95", unit="s"),
    Column(key="why", heading="why"),
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
    Column(key="runtime", heading="engine"),
    Column(key="weights", heading="weights"),
    Column(key="tp", heading="TP", exact=True),
    Column(key="pp", heading="PP", exact=True),
    Column(key="ep", heading="EP", exact=True),
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
    return _table(_PLAN, document)


def device_table(document: Mapping[str, Any]) -> ReportTable:
    """The best plan of each device."""
    return _table(_PLAN, {"plans": document.get("by_device") or ()})


def front_table(document: Mapping[str, Any]) -> ReportTable:
    """Tokens a second of a user against those of a device: what no other way beats in both."""
    return _table(_FRONT, {"plans": document["front"]})


def regions_table(document: Mapping[str, Any]) -> ReportTable:
    """The best plan of each region, and their sum."""

    def row(region: Mapping[str, Any]) -> dict[str, Any]:
        own = {key: region[key] for key in ("name", "rate_per_s", "round_trip_s")}
        return {
            **dict.fromkeys(column.key for column in _PLAN),
            **(region["plan"] or {"why": region["why_not"]}),
            **own,
        }

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
        some = {key: row[key] if (row.get(key) or 1) > 1 else None for key in ("pp", "ep")}
        pool = {key: row[key] if row.get("readers") else None for key in ("readers", "reader_tp")}
        return {**row, **some, **pool}

    rows = tuple(shown(row) for row in document["plans"])
    return ReportTable(columns=filled(columns, rows), rows=rows)


def _shared(plan: Mapping[str, Any]) -> str:
    more = (f" · {name.upper()} {plan[name]}" for name in ("pp", "ep") if plan.get(name, 1) > 1)
    return f"TP {plan['tp']}{''.join(more)}"


def plan_card(document: Mapping[str, Any], *, title: str) -> Card:
    """The best plan, and what was tried and failed."""
    best = document["plans"][0]
    weights = f" · {best['weights']}" if best["weights"] else ""
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
    yield "replicas", str(plan["replicas"]), f"{plan['max_num_seqs']} sequences at once{spare}"
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

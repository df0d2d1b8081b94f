"""A prediction for people: the headline, the phases, the ops that take the time, and what it is based on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.units import counted, format_capacity, format_number, format_quantity
from inferometer.understand.view.cards import Card, Fact, View
from inferometer.understand.view.phrases import (
    TIMES,
    duration_text,
    energy_remarks,
    formats_of,
    fraction,
    interval_text,
    percent,
    profile_notes,
    profile_title,
    sizes_of,
    sustained_fact,
    time_remarks,
)
from inferometer.understand.view.table import Bars, Column, ReportTable, columns, filled

_TOP = 12
_PHASES = columns(
    Column(key="name", heading="phase"),
    "time_s", "low_s", "high_s", "floor_s", "bound", "flops", "bytes", "energy_j",
)  # fmt: skip
_STREAMS = (
    Column(key="compute", heading="compute", label="compute_s", unit="s"),
    Column(key="memory", heading="memory", label="memory_s", unit="s"),
    Column(key="storage", heading="storage", label="storage_s", unit="s"),
    Column(key="host_link", heading="host link", label="host_link_s", unit="s"),
    Column(key="network", heading="network", label="network_s", unit="s"),
    Column(key="overhead", heading="overhead", label="overhead_s", unit="s"),
)
_OPS = columns(
    Column(key="name", heading="op"),
    "count", "time_s", "share", "floor_s", "bound",
    Column(key="origin", heading="based on"),
)  # fmt: skip
_BARS = Bars(length="time_s", dot="floor_s")
_RUNGS = columns("phase", Column(key="rung", heading="who says so"), "origin",
                 Column(key="count", heading="ops", exact=True), "time_s", "share")  # fmt: skip
_WHY = columns(Column(key="name", heading="op"), "count", "time_s", "share", "low_s", "high_s",
               Column(key="rung", heading="who says so"))  # fmt: skip
_COMPARED = columns(
    "model", "device", Column(key="runtime", heading="runtime", aside=True), "weights",
    "latency_s", Column(key="inputs_per_s", heading="inputs/s", unit="1", aside=True), "ttft_s", "tpot_s",
    Column(key="tokens_per_s", heading="tokens/s", unit="1", aside=True),
    "real_time_factor", "peak_memory_bytes", "fits", "energy_j", "usd_per_million_tokens",
    "usd_per_million_inferences", "co2e_g", "sustained_s", "battery_s", "inferences_per_charge", "frame_headroom",
    "error",
)  # fmt: skip
_ENDS = columns(
    "latency_low_s", "latency_high_s", "ttft_low_s", "ttft_high_s", "tpot_low_s", "tpot_high_s",
    "e2e_s", "e2e_low_s", "e2e_high_s",
)  # fmt: skip
# The figures of a headline, in the order of the card, with the unit of each.
_FIGURES = {
    "latency_s": "s", "ttft_s": "s", "tpot_s": "s", "e2e_s": "s", "tokens_per_s": "1/s", "tokens_per_s_per_user": "1/s",
    "inputs_per_s": "1/s", "real_time_factor": "1", "peak_memory_bytes": "B",
    "energy_j": "J", "sustained_s": "s", "battery_s": "s", "usd_per_million_tokens": "USD", "co2e_g": "g",
}  # fmt: skip
_ENDED = ("latency_s", "ttft_s", "tpot_s", "e2e_s")  # times of the headline with an interval of their own
_EVERYTHING = columns(
    "model", "device", "runtime", "part", "phase", "name", "count", "value", "unit", "low", "high", "share", "floor_s",
    "bound", "flops", "bytes", "energy_j", "origin", "rung",
)  # fmt: skip
_GAINS = columns(
    Column(key="change", heading="what if"),
    "phase", "before_s", "after_s",
    Column(key="gain", heading="times as fast"),
    Column(key="throughput_gain", heading="times the throughput"),
    Column(key="bound", heading="then bound by"),
    "fits", "error",
)  # fmt: skip


def prediction_view(profile: Profile, *, why: bool = False) -> View:
    """The headline, the phases and what repeats: a decode step, or the forward pass. With `why` every op's source."""
    card = prediction_card(profile)
    if why:
        return View(card=card, tables=tuple(why_tables(profile)))
    ops = [op_table(phase) for phase in profile.phases if phase.ops] or [op_table(None)]
    return View(card=card, tables=(phase_table(profile), stream_table(profile), ops[-1]), more=tuple(ops[:-1]))


def prediction_card(profile: Profile) -> Card:
    summary = profile.summary
    facts = [fact for fact in (_time_fact(profile, *row) for row in TIMES) if fact]
    if summary.tokens_per_s is not None:
        facts.append(_speed_fact(profile))
    facts += _rate_facts(profile)
    facts += _memory_facts(profile)
    if summary.energy_j is not None:
        facts.append(("energy", format_quantity(summary.energy_j, "J"), ", ".join(energy_remarks(profile))))
    facts += sustained_fact(profile.sustained)
    if summary.battery_s is not None:
        facts.append(_battery_fact(profile))
    if summary.frame_budget_s is not None:
        facts.append(_frame_fact(profile))
    if summary.usd_per_million_tokens is not None or summary.usd_per_million_inferences is not None:
        facts.append(_price_fact(profile))
    if summary.co2e_g is not None:
        facts.append(("carbon", format_quantity(summary.co2e_g, "g"), "CO₂e"))
    title, subtitle = profile_title(profile), " · ".join((str(profile.runtime), formats_of(profile), sizes_of(profile)))
    return Card(title=title, subtitle=subtitle, facts=tuple(facts), sources=profile_notes(profile))


def _time_fact(profile: Profile, label: str, key: str, phase_name: str | None) -> Fact | None:
    seconds = getattr(profile.summary, key)
    if seconds is None:
        return None
    phase = profile.phase(phase_name) if phase_name else None
    return label, format_quantity(seconds, "s"), ", ".join(time_remarks(profile, key.removesuffix("_s"), phase))


def _speed_fact(profile: Profile) -> Fact:
    """Tokens a second, between what the ends of a token's time make of it."""
    summary, batch = profile.summary, profile.workload.batch
    step = summary.interval("tpot")
    between = f"{interval_text(batch / step[1], batch / step[0], '1')}, " if step and step[0] > 0 else ""
    return "tokens/s", format_quantity(summary.tokens_per_s, "1"), f"{between}of all sequences together"


def _rate_facts(profile: Profile) -> list[Fact]:
    """What people ask in other units than seconds: inputs or pictures a second, tokens of a user, real time."""
    summary, batch, facts = profile.summary, profile.workload.batch, []
    if summary.tokens_per_s_per_user is not None and batch > 1:
        facts.append(("tokens/s/user", format_quantity(summary.tokens_per_s_per_user, "1"), f"of each of {batch}"))
    if summary.inputs_per_s is not None and summary.latency_s is not None:
        forward = profile.phase("forward")
        steps = forward.repeats if forward is not None else None
        each = f"{format_quantity(summary.latency_s / batch, 's')} each" if batch > 1 or steps else ""
        if batch > 1:
            each += f", {format_quantity(1 / summary.latency_s, '1')} batches/s"
        made = "pictures/s" if profile.model.frames is None else "videos/s"
        label, remark = ("inputs/s", each) if steps is None else (made, f"{each}, in {steps:g} steps")
        facts.append((label, format_quantity(summary.inputs_per_s, "1"), remark))
    if summary.real_time_factor is not None:
        faster = format_quantity(1 / summary.real_time_factor, "1")
        facts.append(("real time", format_number(summary.real_time_factor), f"{faster} × as fast as the audio plays"))
    return facts


def _price_fact(profile: Profile) -> Fact:
    """The price goes with the time of what is paid for: a forward pass, the whole request, or a lone step."""
    summary = profile.summary
    usd, what = summary.usd_per_million_tokens, "tokens"
    paid = "e2e" if summary.e2e_s is not None else "tpot"
    if usd is None:
        usd, what, paid = summary.usd_per_million_inferences or 0.0, "inferences", "latency"
    ends, seconds = summary.interval(paid), getattr(summary, f"{paid}_s")
    between = " to ".join(format_number(usd * end / seconds) for end in ends) if ends and seconds else ""
    return "price", f"{format_number(usd)} USD per million {what}", between


def _battery_fact(profile: Profile) -> Fact:
    summary = profile.summary
    answered = summary.inferences_per_charge
    what = "sequences" if summary.latency_s is None else "inferences"
    remark = "" if answered is None else f"{answered:,.0f} {what} a charge"
    return "battery", duration_text(summary.battery_s or 0.0), remark


def _frame_fact(profile: Profile) -> Fact:
    """Whether the frames of a batch are answered before the next ones come: expected, and at the ends of the time."""
    summary, batch = profile.summary, profile.workload.batch
    budget, left = summary.frame_budget_s or 0.0, summary.frame_headroom or 0.0
    ends = summary.interval("latency")
    if left < 0:
        certain = ends is None or ends[0] > budget
        verdict = "does not hold" if certain else "does not hold, though it may at the low end"
    else:
        certain = ends is None or ends[1] <= budget
        verdict = "holds" if certain else "holds, but not at the high end"
    rest = f"{percent(left, 1)} of it left" if left >= 0 else f"{percent(-left, 1)} over it"
    of = "frame budget" if batch == 1 else f"budget of {batch} frames"
    return of, format_quantity(budget, "s"), f"{verdict}: {rest}"


def _memory_facts(profile: Profile) -> list[Fact]:
    summary = profile.summary
    if summary.peak_memory_bytes is None:
        return []
    verdict = {True: "fits", False: "does not fit", None: "capacity unknown"}[summary.fits]
    return [("memory", format_capacity(summary.peak_memory_bytes), verdict)]


def phase_table(profile: Profile) -> ReportTable:
    rows = tuple({column.key: getattr(phase, column.key) for column in _PHASES} for phase in profile.phases)
    return ReportTable(columns=_PHASES, rows=rows)


def stream_table(profile: Profile) -> ReportTable:
    """What each resource takes of a phase by itself. What takes nothing anywhere is left out."""
    rows = tuple({"name": phase.name, **phase.streams} for phase in profile.phases if phase.streams)
    used = tuple(column for column in _STREAMS if any(row.get(column.key) for row in rows))
    note = "They overlap: a phase takes the longest of them op by op, with the overhead on top." if rows else None
    return ReportTable(columns=(Column(key="name", heading="phase"), *used), rows=rows, title="Side by side", note=note)


def op_table(phase: Phase | None, *, most: int | None = _TOP) -> ReportTable:
    """The ops of a phase that take the most time."""
    if phase is None:
        return ReportTable(columns=_OPS, rows=())
    ranked = sorted(phase.ops, key=lambda op: -op.time_s)[:most]
    rows = tuple(_op_row(op, phase) for op in ranked)
    left = len(phase.ops) - len(rows)
    more = counted(left, "more op") if left > 0 else None
    return ReportTable(columns=_OPS, rows=rows, title=f"Where {phase.name} goes", left=more, bars=_BARS)


def _op_row(op: OpTime, phase: Phase) -> dict[str, Any]:
    return {
        "name": op.name,
        "count": op.count,
        "time_s": op.time_s,
        "share": fraction(op.time_s, phase.time_s),
        "floor_s": op.floor_s,
        "bound": op.bound,
        "origin": op.origin,
        "rung": op.rung,
    }


def time_by_rung(phase: Phase) -> list[dict[str, Any]]:
    """What of a phase each source of times answers for, the most first; then what a step takes on no op."""
    found: dict[str | None, dict[str, Any]] = {}
    for op in phase.ops:
        row = found.setdefault(op.rung, {"rung": op.rung, "origin": op.origin, "count": 0, "time_s": 0.0})
        row["count"] += op.count
        row["time_s"] += op.time_s
    rows = sorted(found.values(), key=lambda row: -row["time_s"])
    if phase.unattributed_s:
        rows.append({"rung": "the step itself, on no op", "time_s": phase.unattributed_s})
    return [{**row, "share": fraction(row["time_s"], phase.time_s)} for row in rows]


def why_tables(profile: Profile) -> list[ReportTable]:
    """Who says how long it takes: by source and phase first, then every op of each phase with its source."""
    phases = [phase for phase in profile.phases if phase.ops]
    by_rung = tuple({"phase": phase.name, **row} for phase in phases for row in time_by_rung(phase))
    tables = [ReportTable(columns=_RUNGS, rows=by_rung, title="Who says how long it takes")]
    for phase in phases:
        ranked = sorted(phase.ops, key=lambda op: -op.time_s)
        rows = tuple({**_op_row(op, phase), "low_s": op.low_s, "high_s": op.high_s} for op in ranked)
        tables.append(ReportTable(columns=_WHY, rows=rows, title=f"Where {phase.name} goes"))
    return tables


def prediction_rows(profile: Profile) -> ReportTable:
    """A whole prediction as one table of plain numbers: its headline, every phase, every op of every phase."""
    summary = profile.summary
    rows: list[dict[str, Any]] = []
    for key, unit in _FIGURES.items():
        value = getattr(summary, key)
        if value is not None:
            low, high = summary.interval(key.removesuffix("_s")) or (None, None) if key in _ENDED else (None, None)
            rows.append({"part": "headline", "name": key, "value": value, "unit": unit, "low": low, "high": high})
    for phase in profile.phases:
        figures = {name: getattr(phase, name) for name in ("floor_s", "bound", "flops", "bytes", "energy_j")}
        ends = {"value": phase.time_s, "unit": "s", "low": phase.low_s, "high": phase.high_s}
        rows.append({"part": "phase", "phase": phase.name, "name": phase.name, **ends, **figures})
        for op in sorted(phase.ops, key=lambda op: -op.time_s):
            of_op = {"value": op.time_s, "unit": "s", "flops": op.flops, "bytes": op.bytes, "energy_j": op.energy_j}
            rows.append({"part": "op", "phase": phase.name, **_op_row(op, phase), **of_op})
    named = {"model": profile.model.name, "device": profile.device.name, "runtime": profile.runtime}
    return ReportTable(columns=_EVERYTHING, rows=tuple({**named, **row} for row in rows))


def summary_row(profile: Profile) -> dict[str, Any]:
    """A prediction as one row of a comparison."""
    named = {
        "model": profile.model.name,
        "device": profile.device.name,
        "runtime": profile.runtime,
        "weights": profile.model.weights or profile.workload.precision.weights,
    }
    return {**named, **asdict(profile.summary)}


def comparison_table(rows: Iterable[dict[str, Any]], *, ends: bool = False) -> ReportTable:
    """One row a prediction, with the ends of every time if asked for. A column without any value is left out."""
    kept = tuple(rows)
    return ReportTable(columns=filled((*_COMPARED, *_ENDS) if ends else _COMPARED, kept), rows=kept)


def gain_table(rows: Sequence[dict[str, Any]]) -> ReportTable:
    return ReportTable(columns=filled(_GAINS, rows), rows=tuple(rows))


# EdgeProfiler's table as it prints it: times side by side, FLOP a byte and joules.

_COLUMNS = (
    Column(key="device", heading="device"),
    Column(key="model", heading="model"),
    Column(key="precision", heading="precision"),
    Column(key="compute_s", heading="compute", unit="s"),
    Column(key="memory_s", heading="memory", unit="s"),
    Column(key="io_s", heading="I/O", unit="s"),
    Column(key="h2d_s", heading="host link", unit="s"),
    Column(key="network_s", heading="network", unit="s"),
    Column(key="e2e_s", heading="end to end", unit="s"),
    Column(key="intensity", heading="intensity", label="flop_per_byte", unit="FLOP/B"),
    Column(key="energy_j", heading="energy", unit="J"),
    Column(key="parameters", heading="parameters", exact=True),
    Column(key="flops", heading="a token", unit="FLOP"),
    Column(key="memory_bytes", heading="footprint", unit="B"),
)
_NOTE = (
    "As EdgeProfiler counts (arXiv:2506.09061): every token loads the weights and crosses a network. "
    "Without --edgeprofiler you get our own prediction; docs/edgeprofiler.md has both."
)


def edge_table(rows: Iterable[Mapping[str, Any]]) -> ReportTable:
    return ReportTable(columns=_COLUMNS, rows=tuple(rows), title="EdgeProfiler", note=_NOTE)

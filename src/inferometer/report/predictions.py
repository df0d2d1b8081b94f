"""A prediction for people: the headline, the phases, the ops that take the time, and what it rests on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from inferometer.report.cards import Card, Fact
from inferometer.report.table import Column, Table
from inferometer.units import format_capacity, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from inferometer.core.profile import Phase, Profile

__all__ = ["comparison_table", "gain_table", "op_table", "phase_table", "prediction_card", "summary_row"]

_TOP = 12
_PHASES = (
    Column(key="name", heading="phase"),
    Column(key="time_s", heading="time", unit="s"),
    Column(key="low_s", heading="low", unit="s"),
    Column(key="high_s", heading="high", unit="s"),
    Column(key="floor_s", heading="floor", unit="s"),
    Column(key="bound", heading="bound by"),
    Column(key="flops", heading="work", unit="FLOP"),
    Column(key="bytes", heading="moved", unit="B"),
    Column(key="energy_j", heading="energy", unit="J"),
)
_OPS = (
    Column(key="name", heading="op"),
    Column(key="count", heading="×", exact=True),
    Column(key="time_s", heading="time", unit="s"),
    Column(key="share", heading="share"),
    Column(key="floor_s", heading="floor", unit="s"),
    Column(key="bound", heading="bound by"),
    Column(key="origin", heading="from"),
)
_COMPARED = (
    Column(key="model", heading="model"),
    Column(key="device", heading="device"),
    Column(key="runtime", heading="runtime"),
    Column(key="weights", heading="weights"),
    Column(key="latency_s", heading="latency", unit="s"),
    Column(key="ttft_s", heading="first token", unit="s"),
    Column(key="tpot_s", heading="each token", unit="s"),
    Column(key="tokens_per_s", heading="tokens/s", unit="1"),
    Column(key="peak_memory_bytes", heading="memory", unit="B"),
    Column(key="fits", heading="fits"),
    Column(key="energy_j", heading="energy", unit="J"),
    Column(key="usd_per_million_tokens", heading="USD/Mtoken", unit="1"),
    Column(key="error", heading="why not"),
)
_GAINS = (
    Column(key="change", heading="what if"),
    Column(key="before_s", heading="before", unit="s"),
    Column(key="after_s", heading="after", unit="s"),
    Column(key="gain", heading="times as fast"),
    Column(key="throughput_gain", heading="times the throughput"),
    Column(key="bound", heading="then bound by"),
    Column(key="fits", heading="fits"),
    Column(key="error", heading="why not"),
)


def prediction_card(profile: Profile) -> Card:
    summary = profile.summary
    facts = [fact for fact in (_time_fact(profile, *row) for row in _TIMES) if fact]
    if summary.tokens_per_s is not None:
        facts.append(("tokens/s", format_quantity(summary.tokens_per_s, "1"), "of all sequences together"))
    facts += _memory_facts(profile)
    if summary.energy_j is not None:
        facts.append(("energy", format_quantity(summary.energy_j, "J"), "of the whole request"))
    if summary.battery_s is not None:
        facts.append(("battery", format_quantity(summary.battery_s, "s"), "until it is empty"))
    if summary.usd_per_million_tokens is not None:
        facts.append(("price", f"{summary.usd_per_million_tokens:.3g} USD per million tokens", ""))
    if summary.co2e_g is not None:
        facts.append(("carbon", format_quantity(summary.co2e_g, "g"), "CO₂e"))
    notes = profile.provenance.notes if profile.provenance else ()
    warnings = tuple(f"! {finding.title}: {finding.advice}" for finding in profile.findings)
    return Card(title=_title(profile), subtitle=_asked(profile), facts=tuple(facts), sources=(*warnings, *notes))


_TIMES = (
    ("latency", "latency_s", "forward"),
    ("first token", "ttft_s", "prefill"),
    ("each token", "tpot_s", "decode"),
    ("whole request", "e2e_s", None),
)


def _time_fact(profile: Profile, label: str, key: str, phase_name: str | None) -> Fact | None:
    value = getattr(profile.summary, key)
    if value is None:
        return None
    phase = profile.phase(phase_name) if phase_name else None
    # Where more than the phase is in the time (a draft model, an encoder) the phase's interval is not its own.
    alone = phase is not None and abs(value - phase.time_s) <= 1e-9 * value
    return label, format_quantity(value, "s"), _interval(phase) if phase and alone else ""


def _interval(phase: Phase) -> str:
    """Between what, how far above the floor, and what bounds it."""
    parts = []
    if phase.low_s is not None and phase.high_s is not None:
        parts.append(f"{format_quantity(phase.low_s, 's')} to {format_quantity(phase.high_s, 's')}")
    if phase.floor_s:
        parts.append(f"{phase.time_s / phase.floor_s:.2g} × its floor")
    if phase.bound:
        parts.append(f"bound by {phase.bound}")
    return ", ".join(parts)


def _memory_facts(profile: Profile) -> list[Fact]:
    summary = profile.summary
    if summary.peak_memory_bytes is None:
        return []
    verdict = {True: "fits", False: "does not fit", None: "capacity unknown"}[summary.fits]
    return [("memory", format_capacity(summary.peak_memory_bytes), verdict)]


def _title(profile: Profile) -> str:
    count = f"{profile.device.count} × " if profile.device.count > 1 else ""
    return f"{profile.model.name} on {count}{profile.device.title or profile.device.name}"


def _asked(profile: Profile) -> str:
    workload = profile.workload
    sizes = [
        f"{name} {value}"
        for name in ("batch", "prompt", "generate", "context", "image")
        if (value := getattr(workload, name)) is not None
    ]
    formats = {workload.precision.weights, workload.precision.activations} - {None}
    return " · ".join((str(profile.runtime), "/".join(sorted(map(str, formats))), ", ".join(sizes)))


def phase_table(profile: Profile) -> Table:
    rows = tuple({column.key: getattr(phase, column.key) for column in _PHASES} for phase in profile.phases)
    return Table(columns=_PHASES, rows=rows)


def op_table(profile: Profile, *, most: int | None = _TOP) -> Table:
    """The ops of the last phase (a decode step, or the forward pass) that take the most time."""
    phase = next((phase for phase in reversed(profile.phases) if phase.ops), None)
    if phase is None:
        return Table(columns=_OPS, rows=())
    ranked = sorted(phase.ops, key=lambda op: -op.time_s)[:most]
    rows = tuple(
        {
            "name": op.name,
            "count": op.count,
            "time_s": op.time_s,
            "share": f"{100 * op.time_s / phase.time_s:.1f} %" if phase.time_s else None,
            "floor_s": op.floor_s,
            "bound": op.bound,
            "origin": op.origin,
        }
        for op in ranked
    )
    left = len(phase.ops) - len(rows)
    note = f"{left} more ops; --format json has all." if left > 0 else None
    return Table(columns=_OPS, rows=rows, title=f"Where {phase.name} goes", note=note)


def summary_row(profile: Profile) -> dict[str, Any]:
    """A prediction as one row of a comparison."""
    named = {
        "model": profile.model.name,
        "device": profile.device.name,
        "runtime": profile.runtime,
        "weights": profile.workload.precision.weights,
    }
    return {**named, **asdict(profile.summary)}


def comparison_table(rows: Iterable[dict[str, Any]]) -> Table:
    """One row a prediction. Columns that no row has a value for are left out."""
    kept = tuple(rows)
    columns = tuple(column for column in _COMPARED if any(row.get(column.key) is not None for row in kept))
    return Table(columns=columns, rows=kept)


def gain_table(rows: Sequence[dict[str, Any]]) -> Table:
    columns = tuple(column for column in _GAINS if any(row.get(column.key) is not None for row in rows))
    return Table(columns=columns, rows=tuple(rows))

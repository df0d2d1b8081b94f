"""What the run page shows of a profile: the cards at the top, the model table, the phases and percentiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferometer.report.charts.layers import phases_with_ops
from inferometer.report.charts.samples import percentiles
from inferometer.report.drawing import unit_colour
from inferometer.report.phrases import energy_fact
from inferometer.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.core.profile import OpTime, Phase, Profile

_SHARED = ("kind", "unit", "block", "count", "bound", "kernel", "provider")
_TIMES = ("time_s", "predicted_s", "floor_s")
_ADDED = ("flops", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
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
    for label, value, name in (
        ("Latency", summary.latency_s, "forward"),
        ("First token", summary.ttft_s, "prefill"),
        ("Each token", summary.tpot_s, "decode"),
    ):
        if value is not None:
            yield _quantity_card(label, value, "s", _statistic(profile, profile.phase(name)))
    if summary.tokens_per_s is not None:
        yield _quantity_card("Throughput", summary.tokens_per_s, "token/s", f"batch {profile.workload.batch}")
    if summary.e2e_s is not None and summary.ttft_s is not None:
        yield _quantity_card("Whole request", summary.e2e_s, "s", f"{profile.workload.generate or 0} tokens")


def _statistic(profile: Profile, phase: Phase | None) -> str:
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
    if phase.low_s is not None and phase.high_s is not None:
        parts.append(f"{format_quantity(phase.low_s, 's', digits=3)} – {format_quantity(phase.high_s, 's', digits=3)}")
    return " · ".join(parts)


def _memory_cards(profile: Profile) -> Iterator[NumberCard]:
    peak, fits = profile.summary.peak_memory_bytes, profile.summary.fits
    if peak is not None:
        note = {True: "fits", False: "does not fit", None: "at most"}[fits]
        yield _quantity_card("Peak memory", peak, "B", note, tone="bad" if fits is False else "plain")


def _energy_cards(profile: Profile) -> Iterator[NumberCard]:
    joules = profile.summary.energy_j
    if joules is not None:
        told = (
            next((remark for _, _, remark in energy_fact(profile)), "") if profile.kind == "measured" else "predicted"
        )
        yield _quantity_card("Energy", joules, "J", told)


def _unit_cards(profile: Profile) -> Iterator[NumberCard]:
    summary = profile.summary
    if summary.top_unit is not None:
        times = _by_unit(profile, lambda op: op.time_s)
        share = times.get(summary.top_unit, 0.0) / (sum(times.values()) or 1.0)
        yield NumberCard(label="Top unit by time", value=summary.top_unit.upper(), note=f"{share:.0%} of the ops' time")
    if summary.top_unit_by_count is not None:
        counts = _by_unit(profile, lambda op: op.count)
        mine = counts.get(summary.top_unit_by_count, 0.0)
        note = f"{mine:,.0f} of {sum(counts.values()):,.0f} ops"
        yield NumberCard(label="Top unit by count", value=summary.top_unit_by_count.upper(), note=note)


def _by_unit(profile: Profile, weight: Callable[[OpTime], float]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for phase in profile.phases:
        for op in phase.ops:
            if op.unit is not None:
                totals[op.unit] = totals.get(op.unit, 0.0) + weight(op)
    return totals


def _floor_cards(profile: Profile) -> Iterator[NumberCard]:
    phase = profile.steady
    if phase is not None and phase.floor_s and phase.time_s > 0:
        share = phase.floor_s / phase.time_s
        note = f"{phase.name}: the floor is {format_quantity(phase.floor_s, 's', digits=3)}"
        yield NumberCard(label="Of the floor", value=f"{100 * share:.3g}", unit="%", note=note)
    if phase is not None and phase.predicted_s and phase.time_s > 0:
        off = phase.predicted_s / phase.time_s - 1
        note = f"{phase.name}: {abs(off):.0%} {'under' if off < 0 else 'over'} the measurement"
        yield _quantity_card("Predicted", phase.predicted_s, "s", note)


def _quantity_card(label: str, value: float, unit: str, note: str, tone: str = "plain") -> NumberCard:
    number, _, prefixed = format_quantity(value, unit, digits=4).partition(" ")
    return NumberCard(label=label, value=number, unit=prefixed, note=note, tone=tone)


def layer_columns(profile: Profile) -> dict[str, Any]:
    """The model table by columns: a row per layer in the order of execution, and for its times a list per phase.

    A layer that runs in several phases has one row. Empty columns are left out.
    """
    phases = phases_with_ops(profile)
    places: dict[tuple[str, int], int] = {}
    first: list[OpTime] = []
    cells: dict[str, list[list[float | None]]] = {name: [[] for _ in phases] for name in (*_TIMES, *_ADDED)}
    for index, phase in enumerate(phases):
        seen: dict[str, int] = {}
        for op in phase.ops:
            turn = seen[op.name] = seen.get(op.name, 0) + 1
            place = places.setdefault((op.name, turn), len(first))
            if place == len(first):
                first.append(op)
            for name, columns in cells.items():
                column = columns[index]
                column.extend([None] * (place + 1 - len(column)))
                column[place] = getattr(op, name)
    for columns in cells.values():
        for column in columns:
            column.extend([None] * (len(first) - len(column)))
    shared = {name: [getattr(op, name) for op in first] for name in _SHARED}
    fused = [len(op.layers) if len(op.layers) > 1 else None for op in first]
    return {
        "name": [op.name for op in first],
        "phases": [{"name": phase.name, "time_s": phase.time_s, "rest_s": phase.unattributed_s} for phase in phases],
        **{name: column for name, column in {**shared, "fused": fused}.items() if any(v is not None for v in column)},
        **{
            name: columns
            for name, columns in cells.items()
            if any(value is not None for column in columns for value in column)
        },
        "colours": {unit: unit_colour(unit) for unit in {op.unit for op in first if op.unit}},
    }


def phase_rows(profile: Profile) -> list[dict[str, Any]]:
    return [
        {
            "name": phase.name,
            "time_s": phase.time_s,
            "statistic": phase.statistic,
            "runs": len(phase.samples_s or ()) or None,
            "predicted_s": phase.predicted_s,
            "floor_s": phase.floor_s,
            "rest_s": phase.unattributed_s,
            "flops": phase.flops,
            "bytes": phase.bytes,
            "bound": phase.bound,
            "parts": ", ".join(f"{name} {format_quantity(s, 's', digits=3)}" for name, s in phase.parts.items()),
        }
        for phase in profile.phases
    ]


def percentile_rows(profile: Profile) -> dict[str, dict[str, float]]:
    return {phase.name: percentiles(phase.samples_s) for phase in profile.phases if phase.samples_s}

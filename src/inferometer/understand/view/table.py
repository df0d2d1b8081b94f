"""Tables as values. A row keeps raw numbers in SI units; only what a person reads has prefixes."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.units import format_capacity, format_quantity


@frozen
class Column:
    """`key` finds the value in a row, `heading` names it for people, `label` for machines (`memory_bytes`).

    `unit` turns a number into text with a prefix; `exact` shows every digit instead; `capacity` counts as memory makers
    do; `share` shows a fraction in percent, and `signed` one that may fall. JSON and CSV have the plain number.
    `letters` is how much of a name a terminal has room for; pages and files have all of it. A column that stands
    `aside` is the first to go where a terminal is too narrow for all.
    """

    key: str
    heading: str
    label: str | None = None
    unit: str | None = None
    exact: bool = False
    capacity: bool = False
    share: bool = False
    signed: bool = False
    letters: int | None = None
    aside: bool = False

    @property
    def numeric(self) -> bool:
        return self.unit is not None or self.exact or self.capacity or self.share or self.signed

    @property
    def machine_name(self) -> str:
        return self.label or self.key


# Columns that several reports have: one heading and one unit each.
_SHARED = {
    column.key: column
    for column in (
        Column(key="count", heading="×", exact=True),
        Column(key="runs", heading="runs", exact=True),
        Column(key="time_s", heading="time", unit="s"),
        Column(key="share", heading="share", share=True),
        Column(key="low_s", heading="low", unit="s"),
        Column(key="high_s", heading="high", unit="s"),
        Column(key="predicted_s", heading="predicted", unit="s"),
        Column(key="floor_s", heading="floor", unit="s"),
        Column(key="before_s", heading="before", unit="s"),
        Column(key="after_s", heading="after", unit="s"),
        Column(key="latency_s", heading="latency", unit="s"),
        Column(key="ttft_s", heading="first token", unit="s"),
        Column(key="tpot_s", heading="each token", unit="s"),
        Column(key="tokens_per_s", heading="tokens/s", unit="1"),
        Column(key="inputs_per_s", heading="inputs/s", unit="1"),
        Column(key="real_time_factor", heading="real time"),
        Column(key="bound", heading="bound by"),
        Column(key="flops", heading="work", unit="FLOP"),
        Column(key="bytes", heading="moved", unit="B"),
        Column(key="peak_memory_bytes", heading="memory", unit="B"),
        Column(key="energy_j", heading="energy", unit="J"),
        Column(key="usd_per_million_tokens", heading="USD/Mtoken", unit="1"),
        Column(key="usd_per_million_inferences", heading="USD/Minference", unit="1"),
        Column(key="co2e_g", heading="CO₂e", unit="g"),
        Column(key="sustained_s", heading="sustained", unit="s"),
        Column(key="battery_s", heading="battery", unit="s"),
        Column(key="inferences_per_charge", heading="a charge", exact=True),
        Column(key="frame_headroom", heading="frame left", unit="1"),
        Column(key="error", heading="why not"),
    )
}


def columns(*wanted: str | Column) -> tuple[Column, ...]:
    """Columns by key; one that is not shared is given as such, or has its key as the heading."""
    return tuple(
        column if isinstance(column, Column) else _SHARED.get(column) or Column(key=column, heading=column)
        for column in wanted
    )


@frozen
class Bars:
    """What a page draws beside each row, by keys of the row: a bar as long as `length`, a line and a dot on it.

    With `ratio` the bar goes from the row's `low` to its `high`, around 1, and has the colour of its `verdict`.
    """

    length: str
    line: str | None = None
    dot: str | None = None
    ratio: bool = False


@frozen
class ReportTable:
    """`left` counts what the table leaves out (`3 more ops`); each renderer adds where all of them are."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    title: str | None = None
    note: str | None = None
    left: str | None = None
    bars: Bars | None = None


def filled(columns: Iterable[Column], rows: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns that some row has a value for."""
    return tuple(column for column in columns if any(row.get(column.key) is not None for row in rows))


def cell_text(column: Column, value: Any) -> str:
    """What a person reads in a cell; what is not known is a dash."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number_text(column, value)
    if isinstance(value, list | tuple):
        return ", ".join(str(part) for part in value) or "–"
    return str(value)


@lru_cache(maxsize=4096)
def _quantity_text(value: float, unit: str) -> str:
    """Lists repeat themselves: a thousand devices have some hundred different memories and rates."""
    return format_quantity(value, unit)


def share_text(share: float) -> str:
    """`12.3 %`; from ten times the whole on, a factor: `830 ×`."""
    return f"{100 * share:.1f} %" if abs(share) < 10 else f"{share:,.0f} ×"


def _number_text(column: Column, value: float) -> str:
    if column.capacity:
        return format_capacity(value)
    if column.share:
        return share_text(value)
    if column.signed:
        return f"{100 * value:+.0f} %"
    if column.unit is not None:
        return _quantity_text(value, column.unit)
    return f"{value:,.0f}" if column.exact else str(value)

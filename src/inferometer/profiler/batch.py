"""Ended spans as plain columns: what files hold, and what a `Recording` is made of. Still facts, nothing computed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["DEVICE", "FACTS", "FLAGS", "NUMBERS", "READINGS", "WORDS", "Batch", "batch_of"]

WORDS = ("name", "unit", "phase", "kind")
NUMBERS = ("layer", "token", "tokens", "flops", "bytes")
FACTS = (*WORDS, *NUMBERS)
_WHERE = ("thread", "start")
_END = ("end", "failed", "task", "link", "above")
FLAGS = ("failed",)

# Columns of meters: in bytes, at the end of the span less at its beginning (delta), and the most in between (peak).
READINGS = (
    "rss_delta_bytes",
    "rss_peak_bytes",
    "python_delta_bytes",
    "python_peak_bytes",
    "cuda_delta_bytes",
    "cuda_peak_bytes",
    "cuda_reserved_bytes",
)
DEVICE = ("device_start", "device_end")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Columns of equal length. A column that is not there holds nothing but None."""

    count: int
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def column(self, name: str) -> list[Any]:
        found = self.columns.get(name)
        return [None] * self.count if found is None else found


def batch_of(entries: Sequence[Any], devices: Iterable[tuple[int, int] | None] | None = None) -> Batch:
    """The columns of ended spans. `devices` are the device's times of each, where there are any."""
    spans = [entry.span for entry in entries]
    columns: dict[str, list[Any]] = {name: [getattr(span, name) for span in spans] for name in (*FACTS, *_WHERE)}
    columns |= {name: [getattr(entry, name) for entry in entries] for name in _END}
    readings = [entry.readings for entry in entries]
    if readings.count(None) != len(readings):
        for name in READINGS:
            columns[name] = [None if reading is None else reading.get(name) for reading in readings]
    if devices is not None:
        pairs = list(devices)
        columns["device_start"] = [None if pair is None else pair[0] for pair in pairs]
        columns["device_end"] = [None if pair is None else pair[1] for pair in pairs]
    return Batch(count=len(spans), columns={name: kept for name, kept in columns.items() if _says(name, kept)})


def _says(name: str, column: list[Any]) -> bool:
    """Whether a column is more than its default throughout."""
    return column.count(False if name in FLAGS else None) != len(column) or name in {"name", "start", "end", "thread"}

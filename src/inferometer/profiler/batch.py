"""Ended spans as plain columns: what files hold, and what a `Recording` is made of. Still facts, nothing computed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.structs import astuple

from inferometer.profiler.record import Ended, Open

__all__ = ["DEVICE", "FACTS", "FLAGS", "NUMBERS", "READINGS", "WORDS", "Batch", "batch_of"]

WORDS = ("name", "unit", "phase", "kind")
NUMBERS = ("layer", "token", "tokens", "flops", "bytes")
FACTS = (*WORDS, *NUMBERS)
_END = ("failed", "task", "link", "above")  # what an `Ended` never says
_ALWAYS = frozenset({"name", "start", "end", "thread"})
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
_AT_A_TIME = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Columns of equal length. A column that is not there holds nothing but None."""

    count: int
    columns: dict[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> Any:
        found = self.columns.get(name)
        return [None] * self.count if found is None else found


def batch_of(
    entries: Sequence[Any], devices: Iterable[tuple[int, int] | None] | None = None, *, arrays: bool = False
) -> Batch:
    """The columns of ended spans. `devices` are the device's times of each, where there are any.

    With `arrays` times and threads come as arrays: half the way to a `Recording`, and no way into a file.
    """
    spans = list(map(attrgetter("span"), entries))
    columns: dict[str, Any] = _facts(spans)
    for name, source in (("thread", spans), ("start", spans), ("end", entries)):
        values = map(attrgetter(name), source)
        columns[name] = np.fromiter(values, dtype=np.int64, count=len(spans)) if arrays else list(values)
    if not all(issubclass(kind, Ended) for kind in set(map(type, entries))):
        columns |= {name: list(map(attrgetter(name), entries)) for name in _END}
        columns |= _readings([entry.readings for entry in entries])
    if devices is not None:
        pairs = list(devices)
        columns["device_start"] = [None if pair is None else pair[0] for pair in pairs]
        columns["device_end"] = [None if pair is None else pair[1] for pair in pairs]
    return Batch(count=len(entries), columns={name: kept for name, kept in columns.items() if _says(name, kept)})


def _facts(spans: list[Open]) -> dict[str, list[Any]]:
    """Rows to columns, a few rows at a time: whole structs are read while they are in the cache."""
    found: dict[str, list[Any]] = {name: [] for name in FACTS}
    kept = [found.get(name) for name in Open.__struct_fields__]
    for first in range(0, len(spans), _AT_A_TIME):
        for column, values in zip(
            kept, zip(*map(astuple, spans[first : first + _AT_A_TIME]), strict=True), strict=True
        ):
            if column is not None:
                column.extend(values)
    return found


def _readings(readings: list[dict[str, float] | None]) -> dict[str, list[Any]]:
    if readings.count(None) == len(readings):
        return {}
    return {name: [None if each is None else each.get(name) for each in readings] for name in READINGS}


def _says(name: str, column: Any) -> bool:
    """Whether a column is more than its default throughout."""
    return name in _ALWAYS or column.count(False if name in FLAGS else None) != len(column)

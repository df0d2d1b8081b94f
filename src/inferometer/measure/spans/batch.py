"""Finished spans as plain columns, as files hold them and `Recording` is built from them. Nothing is computed yet."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.measure.spans.record import Ended, Failure, Open

WORDS = ("name", "unit", "phase", "kind")
NUMBERS = ("layer", "token", "tokens", "context", "flops", "bytes")
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

_Reads = dict[str, Callable[[Sequence[Any]], list[Any]]]

# Written out, since Python reads an attribute that stands in the code twice as fast as one by name.
_OF_SPANS: _Reads = {
    "name": lambda spans: [span.name for span in spans],
    "unit": lambda spans: [span.unit for span in spans],
    "phase": lambda spans: [span.phase for span in spans],
    "kind": lambda spans: [span.kind for span in spans],
    "layer": lambda spans: [span.layer for span in spans],
    "token": lambda spans: [span.token for span in spans],
    "tokens": lambda spans: [span.tokens for span in spans],
    "context": lambda spans: [span.context for span in spans],
    "flops": lambda spans: [span.flops for span in spans],
    "bytes": lambda spans: [span.bytes for span in spans],
    "thread": lambda spans: [span.thread for span in spans],
    "start": lambda spans: [span.start for span in spans],
}
# What an `Ended` never says.
_OF_CLOSED: _Reads = {
    "task": lambda entries: [entry.task for entry in entries],
    "link": lambda entries: [entry.link for entry in entries],
    "above": lambda entries: [entry.above for entry in entries],
}


@frozen
class SpanBatch:
    """Columns of equal length. A column that is not there holds nothing but None."""

    count: int
    columns: dict[str, Any] = field(default_factory=dict)

    def column(self, name: str) -> Any:
        values = self.columns.get(name)
        return [None] * self.count if values is None else values


def batch_of(
    entries: Sequence[Any], devices: Iterable[tuple[int, int] | None] | None = None, *, arrays: bool = False
) -> SpanBatch:
    """The columns of ended spans. `devices` are the device's times of each, where there are any.

    With `arrays` times and threads come as arrays: half the way to a `Recording`, and no way into a file.
    """
    spans: list[Open] = [entry.span for entry in entries]
    columns: dict[str, Any] = {name: read(spans) for name, read in _OF_SPANS.items()}
    columns["end"] = [entry.end for entry in entries]
    errors: list[Failure] = [entry.error for entry in entries]
    if errors.count(None) != len(errors):
        # A generator that its consumer closes early has not failed.
        columns["failed"] = [error is not None and not issubclass(error, GeneratorExit) for error in errors]
    if not all(issubclass(kind, Ended) for kind in set(map(type, entries))):
        columns |= {name: read(entries) for name, read in _OF_CLOSED.items()}
        columns |= _readings([entry.readings for entry in entries])
    if devices is not None:
        pairs = list(devices)
        columns["device_start"] = [None if pair is None else pair[0] for pair in pairs]
        columns["device_end"] = [None if pair is None else pair[1] for pair in pairs]
    silent, well = [None] * len(spans), [False] * len(spans)
    kept = {
        name: column
        for name, column in columns.items()
        if name in _ALWAYS or column != (well if name in FLAGS else silent)
    }
    if arrays:
        kept |= {name: np.fromiter(kept[name], np.int64, len(spans)) for name in ("thread", "start", "end")}
    return SpanBatch(count=len(entries), columns=kept)


def _readings(readings: list[dict[str, float] | None]) -> dict[str, list[Any]]:
    if readings.count(None) == len(readings):
        return {}
    return {name: [None if reading is None else reading.get(name) for reading in readings] for name in READINGS}

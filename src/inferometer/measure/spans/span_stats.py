"""Statistics of all spans that share a name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from inferometer.core import statistics
from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known.formulas.latency import throughput
from inferometer.measure.spans import nest
from inferometer.measure.spans.nest import Bools, Floats, Ints
from inferometer.measure.spans.power import LEAST_INTERVALS
from inferometer.measure.spans.recording import Recording


@frozen
class SpanStats:
    """Seconds of one name's spans.

    `total_s` is the time inside them, a recursive call's counted once; `exclusive_s` is `total_s` less the spans
    inside. Percentiles are None where the sample does not support them (`core.statistics` states the rule). Rates are
    counts over `total_s`; memory is None where it was not read. `device_s` is the time the device worked for them.
    """

    name: str
    count: int
    failed: int
    total_s: float
    exclusive_s: float
    min_s: float
    max_s: float
    mean_s: float
    median_s: float
    std_s: float | None = None
    mad_s: float | None = None
    cv: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    p999_s: float | None = None
    calls_per_s: float | None = None
    tokens_per_s: float | None = None
    bytes_per_s: float | None = None
    flops_per_s: float | None = None
    tokens: float | None = None
    bytes: float | None = None
    flops: float | None = None
    device_s: float | None = None
    energy_j: float | None = None
    memory_delta_bytes: float | None = None
    memory_peak_bytes: float | None = None
    memory: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Whole:
    """What every name's statistics need of the whole recording, computed once."""

    recording: Recording
    durations: Floats
    exclusive: Floats
    recursive: Bools
    energy: Floats | None


def stats(recording: Recording, name: str) -> SpanStats:
    rows = recording.rows_named(name)
    if len(rows) == 0:
        known = recording.names()
        listing = f"Recorded: {', '.join(known[:20])}." if known else "Nothing has been recorded."
        raise UnknownNameError("span", name, known, listing=listing)
    return _stats(_whole(recording), name, rows)


def stats_of_all(recording: Recording) -> list[SpanStats]:
    """The statistics of every name, the longest total first."""
    whole = _whole(recording)
    order = np.argsort(recording.name, kind="stable")
    cuts = np.flatnonzero(np.diff(recording.name[order])) + 1
    groups = np.split(order, cuts) if len(order) else []
    summaries = [_stats(whole, recording.words[int(recording.name[rows[0]])], rows) for rows in groups]
    return sorted(summaries, key=lambda summary: (-summary.total_s, summary.name))


def _whole(recording: Recording) -> _Whole:
    return _Whole(
        recording=recording,
        durations=recording.durations_s,
        exclusive=recording.exclusive_s(),
        recursive=nest.nested_in_own_name(recording.name, recording.parent),
        energy=recording.energy_j(),
    )


def _stats(whole: _Whole, name: str, rows: Ints) -> SpanStats:
    recording = whole.recording
    seconds = whole.durations[rows]
    in_order = cast("Sequence[float]", np.sort(seconds))
    total_s = float(seconds[~whole.recursive[rows]].sum())
    centre, mean = statistics.percentile_of(in_order, 0.5), float(seconds.mean())
    spread = float(seconds.std(ddof=1)) if len(rows) > 1 else None
    sums = {what: _sum(getattr(recording, what)[rows]) for what in ("tokens", "bytes", "flops")}
    memory = _memory(recording, rows)
    return SpanStats(
        name=name,
        count=len(rows),
        failed=int(recording.failed[rows].sum()),
        total_s=total_s,
        exclusive_s=float(whole.exclusive[rows].sum()),
        min_s=float(in_order[0]),
        max_s=float(in_order[-1]),
        mean_s=mean,
        median_s=centre,
        std_s=spread,
        mad_s=float(np.median(np.abs(seconds - centre))),
        cv=None if spread is None or mean == 0 else spread / mean,
        **_percentiles(in_order),
        calls_per_s=_rate(len(rows), total_s),
        **{f"{what}_per_s": _rate(amount, total_s) for what, amount in sums.items()},
        **sums,
        device_s=_device(recording, rows),
        energy_j=_energy(whole, rows, total_s),
        memory_delta_bytes=memory.get("rss_delta_bytes", memory.get("cuda_delta_bytes")),
        memory_peak_bytes=memory.get("rss_peak_bytes", memory.get("cuda_peak_bytes")),
        memory=memory,
    )


def _percentiles(in_order: Sequence[float]) -> dict[str, float | None]:
    shares = {"p50_s": 0.5, "p90_s": 0.9, "p95_s": 0.95, "p99_s": 0.99, "p999_s": 0.999}
    return {
        name: statistics.percentile_of(in_order, p) if statistics.supported(p, len(in_order)) else None
        for name, p in shares.items()
    }


def _sum(column: Floats) -> float | None:
    given = column[~np.isnan(column)]
    return float(given.sum()) if len(given) else None


def _rate(amount: float | None, seconds: float) -> float | None:
    return None if amount is None or seconds <= 0 else float(throughput(work=amount, time=seconds))


def _device(recording: Recording, rows: Ints) -> float | None:
    """Spans inside one another share device time, so only those that no span of the same name encloses count."""
    if recording.device is None:
        return None
    begin, end = (column[rows] for column in recording.device)
    known = begin >= 0
    return nest.covered_ns(begin[known], end[known]) * 1e-9 if bool(known.any()) else None


def _energy(whole: _Whole, rows: Ints, total_s: float) -> float | None:
    """Joules, a recursive call's counted once; None for less time than a few readings, or where some were missed."""
    power = whole.recording.run.power
    if whole.energy is None or (power is not None and total_s < LEAST_INTERVALS * power.interval_s):
        return None
    joules = whole.energy[rows[~whole.recursive[rows]]]
    return None if bool(np.isnan(joules).any()) else float(joules.sum())


def _memory(recording: Recording, rows: Ints) -> dict[str, float]:
    """Deltas add up, and those above zero by themselves (`grown`); a peak is the highest of all, beside their mean."""
    memory = {}
    for name, column in recording.readings.items():
        given = column[rows][~np.isnan(column[rows])]
        if not len(given):
            continue
        memory[name] = float(given.sum() if "delta" in name else given.max())
        if "delta" in name:
            memory[name.replace("delta", "grown")] = float(given[given > 0].sum())
        elif "peak" in name:
            memory[name.replace("peak", "mean")] = float(given.mean())
    return memory

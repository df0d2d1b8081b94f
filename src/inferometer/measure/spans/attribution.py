"""Where the time of a phase went: by unit, by layer, by call, by token. Pure passes over a recording's rows."""

from collections.abc import Callable

import numpy as np

from inferometer.core import statistics
from inferometer.core.frozen import frozen
from inferometer.measure.spans.nest import Ints, covered_ns, nearest
from inferometer.measure.spans.recording import MISSING, Recording

Parts = Callable[[Ints], tuple["CallPart", ...]]


@frozen
class CallPart:
    """A segment of a call: seconds and bytes a call."""

    name: str
    time_s: float
    bytes: float | None = None


@frozen
class Attribution:
    """The wall by unit. Units that work at the same time add up to more than they cover; `overlap_s` is how much."""

    wall_s: float
    units: tuple[tuple[str, float], ...]
    unattributed_s: float
    overlap_s: float = 0.0


@frozen
class LayerTimes:
    """One layer: seconds a run, and the shortest and longest over the runs."""

    layer: int
    mean_s: float
    min_s: float
    max_s: float


@frozen
class CallTimes:
    """One named call: how often, how long, in how many parts."""

    name: str
    unit: str | None
    count: int
    mean_s: float
    min_s: float
    max_s: float
    total_s: float
    parts: tuple[CallPart, ...] = ()
    bytes: float | None = None
    flops: float | None = None
    device_s: float | None = None


@frozen
class Trend:
    """Time by token: `drift` is the change from the first token to the last, `slope_s` the fitted change a token."""

    count: int
    first_s: float
    middle_s: float
    last_s: float
    min_s: float
    max_s: float
    mean_s: float
    drift: float
    slope_s: float | None
    values_s: tuple[float, ...]


def attribute(recording: Recording, held: Ints, wall_ns: int, runs: int) -> Attribution:
    """Each moment belongs to the innermost span that names a unit; what no such span covers is unattributed."""
    tagged = held[recording.unit[held] >= 0]
    marked = np.zeros(len(recording), dtype=np.bool_)
    marked[tagged] = True
    above = nearest(recording.parent, marked)[tagged]
    spent = (recording.end - recording.start).astype(np.int64)
    own = spent.copy()
    inside = tagged[(above >= 0)]
    around = above[above >= 0]
    same = recording.lane[inside] == recording.lane[around]
    np.subtract.at(own, around[same], spent[inside[same]])
    units: dict[str, int] = {}
    for number in dict.fromkeys(recording.unit[tagged].tolist()):
        units[recording.words[number]] = int(own[tagged[recording.unit[tagged] == number]].sum())
    outer = tagged[above < 0]
    covered = covered_ns(recording.start[outer], recording.end[outer])
    by_time = sorted(units.items(), key=lambda item: -item[1])
    return Attribution(
        wall_s=wall_ns * 1e-9 / runs,
        units=tuple((unit, time_ns * 1e-9 / runs) for unit, time_ns in by_time),
        unattributed_s=max(wall_ns - covered, 0) * 1e-9 / runs,
        overlap_s=max(sum(units.values()) - covered, 0) * 1e-9 / runs,
    )


def time_by_layer(recording: Recording, tops: Ints, held: Ints, runs: int) -> tuple[LayerTimes, ...]:
    """Time by layer: of the outermost spans that name it, in each run of the phase."""
    rows = _outermost(recording, recording.layer, held)
    if len(rows) == 0:
        return ()
    begins = np.sort(recording.start[tops]) if runs > 1 else recording.start[tops][:1]
    run = np.searchsorted(begins, recording.start[rows], side="right")
    spent = (recording.end[rows] - recording.start[rows]) * 1e-9
    layers, which = np.unique(recording.layer[rows], return_inverse=True)
    keys, place = np.unique(which * (len(begins) + 1) + run, return_inverse=True)  # a layer's runs stand together
    times = np.bincount(place, weights=spent)
    firsts = np.searchsorted(keys, np.arange(1, len(layers)) * (len(begins) + 1))
    by_run = (part.tolist() for part in np.split(times, firsts))
    return tuple(
        LayerTimes(layer=layer, mean_s=statistics.mean(runs_s), min_s=min(runs_s), max_s=max(runs_s))
        for layer, runs_s in zip(layers.tolist(), by_run, strict=True)
    )


def _outermost(recording: Recording, column: Ints, held: Ints) -> Ints:
    """Rows that name a layer or token which no span around them names."""
    named = held[column[held] != MISSING]
    above = nearest(recording.parent, column != MISSING)[named]
    outer = (above < 0) | (column[np.maximum(above, 0)] != column[named])
    return np.asarray(named[outer], dtype=np.int64)


def calls_of(recording: Recording, held: Ints, parts: Parts) -> tuple[CallTimes, ...]:
    """One entry a name and unit, of the spans that name a unit; where none does, of those with nothing inside."""
    tagged = held[recording.unit[held] >= 0]
    rows = tagged if len(tagged) else held[~np.isin(held, recording.parent)]
    keys = recording.unit[rows] * len(recording.words) + recording.name[rows]
    calls = [_call(recording, rows[keys == key], parts) for key in dict.fromkeys(keys.tolist())]
    return tuple(sorted(calls, key=lambda call: -call.total_s))


def _call(recording: Recording, rows: Ints, parts: Parts) -> CallTimes:
    spent = ((recording.end[rows] - recording.start[rows]) * 1e-9).tolist()
    sums = {
        what: float(column[rows][~np.isnan(column[rows])].sum()) or None
        for what, column in (("bytes", recording.bytes), ("flops", recording.flops))
    }
    device_s = None
    if recording.device is not None:
        begin, end = (column[rows] for column in recording.device)
        known = begin != MISSING
        device_s = covered_ns(begin[known], end[known]) * 1e-9 if bool(known.any()) else None
    return CallTimes(
        name=recording.words[int(recording.name[rows[0]])],
        unit=recording.word(int(recording.unit[rows[0]])),
        count=len(spent),
        mean_s=statistics.mean(spent),
        min_s=min(spent),
        max_s=max(spent),
        total_s=statistics.total(spent),
        parts=parts(rows),
        device_s=device_s,
        **sums,
    )


def trend_of(recording: Recording, held: Ints) -> Trend | None:
    """Time by token, in the tokens' order; None for fewer than two."""
    rows = _outermost(recording, recording.token, held)
    tokens = np.unique(recording.token[rows])
    if len(tokens) < 2:
        return None
    spent = (recording.end[rows] - recording.start[rows]) * 1e-9
    sums = np.bincount(np.searchsorted(tokens, recording.token[rows]), weights=spent)
    values = tuple(sums.tolist())
    return Trend(
        count=len(values),
        first_s=values[0],
        middle_s=values[len(values) // 2],
        last_s=values[-1],
        min_s=min(values),
        max_s=max(values),
        mean_s=statistics.mean(values),
        drift=values[-1] / values[0] - 1 if values[0] else 0.0,
        slope_s=statistics.slope(values),
        values_s=values,
    )

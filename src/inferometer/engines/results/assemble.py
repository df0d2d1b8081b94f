"""From what an importer found to a Profile: the sums, the units, the notes."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.profile import DeviceFacts, Environment, Headline, ModelFacts, OpTime, Phase, Profile, Provenance
from inferometer.core.served import Served
from inferometer.core.statistics import mean
from inferometer.core.units import format_quantity
from inferometer.core.workload import Workload
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import number

UNKNOWN = "unknown"
_ROUNDING = 1e-9  # of a whole: what is left by adding floating-point numbers is no time that was spent
_ROUNDING_S = 1e-6  # an op: the coarsest clock that these tools print is the microsecond
_MOST_TOKENS = 1e12


@dataclass(slots=True, kw_only=True)
class Draft:
    """A profile in the making: what a source says of one result, filled in by an importer, then finished."""

    tool: str
    version: str | None = None
    measured_at: str | None = None
    model: ModelFacts | None = None  # None: the file's name stands for it
    device: str | None = None
    devices: int = 1
    runtime: str | None = None
    workload: Workload = field(default_factory=Workload)
    phases: list[Phase] = field(default_factory=list)
    headline: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    threads: int | None = None
    host: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    notes: list[str] = field(default_factory=list)
    served: Served | None = None


_SHOWN_FIGURES = 20


def moved(draft: Draft, way: str, nbytes: float, seconds: float) -> float:
    """A phase in which bytes were moved, with a note of the rate, in bytes a second."""
    rate = number(nbytes / seconds, f"The rate of {way!r}")  # of a time too short to divide by, it is infinite
    draft.phases.append(Phase(name=way, time_s=seconds, statistic="sum", bytes=nbytes))
    draft.host[f"{way}_bytes_per_s"] = rate
    draft.notes.append(f"{way}: {format_quantity(rate, 'B/s')}")
    return rate


def keep_figures(draft: Draft, figures: Mapping[str, float]) -> None:
    """Figures that are no times, such as scores: all of them are kept, and the first are noted."""
    draft.host |= figures
    shown = [f"{name}: {figures[name]:.6g}" for name in list(figures)[:_SHOWN_FIGURES]]
    left = len(figures) - len(shown)
    draft.notes += [*shown, *([f"{left} more figures are in the document"] if left else [])]


def finish(draft: Draft, document: Document) -> Profile:
    """The profile. Units and the unattributed time come from the ops of the last phase that has any."""
    phases = tuple(draft.phases)
    whole = next((phase for phase in reversed(phases) if phase.ops), None)
    ops = whole.ops if whole else ()
    headline: dict[str, Any] = {
        "top_unit": most(ops, lambda op: op.time_s),
        "top_unit_by_count": most(ops, lambda op: op.count),
        "unattributed_s": whole.unattributed_s if whole else None,
        **draft.headline,
    }
    forward = next((phase for phase in phases if phase.name in {"forward", "run"}), None)
    if forward is not None:
        headline.setdefault("latency_s", forward.time_s)
    return Profile(
        kind="measured",
        model=draft.model or ModelFacts(name=document.path.stem or UNKNOWN),
        device=DeviceFacts(name=draft.device or UNKNOWN, title=draft.device, count=draft.devices),
        runtime=draft.runtime,
        workload=draft.workload,
        phases=phases,
        summary=Headline(**headline),
        environment=Environment(versions=draft.versions, threads=draft.threads, host=draft.host),
        provenance=Provenance(
            tool=draft.tool,
            version=draft.version or UNKNOWN,
            created=draft.measured_at or "",
            command=draft.command,
            notes=tuple(draft.notes),
        ),
        served=draft.served,
    )


def most(ops: Iterable[OpTime], weight: Callable[[OpTime], float]) -> str | None:
    """The unit with the largest sum of weights. Ops whose unit is not known could change it: then None."""
    sums: dict[str | None, float] = {}
    for op in ops:
        sums[op.unit] = sums.get(op.unit, 0.0) + weight(op)
    hidden = sums.pop(None, 0.0)
    return leading({unit: weight for unit, weight in sums.items() if unit}, hidden=hidden)


def leading(weights: Mapping[str, float], *, hidden: float = 0.0) -> str | None:
    """The name with the most weight, unless others equal it or the `hidden` weight could overturn it."""
    ranked = sorted(weights.items(), key=lambda pair: -pair[1])
    if not ranked:
        return None
    second = ranked[1][1] if len(ranked) > 1 else 0.0
    return ranked[0][0] if ranked[0][1] > second + hidden else None


def sum_of(ops: Sequence[OpTime]) -> float:
    return math.fsum(op.time_s for op in ops)


def remainder(time_s: float, ops: Sequence[OpTime], notes: list[str]) -> float | None:
    """What of a time no op accounts for. Ops that overlap add up to more: then it is not known, and a note says so."""
    if not ops:
        return None
    gap = time_s - sum_of(ops)
    if -max(_ROUNDING_S * len(ops), _ROUNDING * time_s) <= gap <= _ROUNDING * time_s:
        return 0.0
    if gap > 0:
        return gap
    notes.append(f"the ops add up to {sum_of(ops):.6g} s, more than the {time_s:.6g} s of the whole: they overlapped")
    return None


@dataclass(slots=True, kw_only=True)
class _OpRuns:
    first: OpTime
    runs: list[float]
    calls: int = 0


def op_means(runs: Sequence[Iterable[OpTime]]) -> tuple[OpTime, ...]:
    """The ops of several runs, by name, in the order of their first appearance: mean times, with each run's own.

    An op that a run has several times is one row with a count; one that a run does not have took no time in it.
    """
    rows: dict[str, _OpRuns] = {}
    for index, run in enumerate(runs):
        seen: dict[str, int] = {}
        for op in run:
            row = rows.setdefault(op.name, _OpRuns(first=op, runs=[0.0] * len(runs)))
            row.runs[index] += op.time_s
            seen[op.name] = seen.get(op.name, 0) + op.count
        for name, calls in seen.items():
            rows[name].calls = max(rows[name].calls, calls)
    return tuple(_mean_op(row) for row in rows.values())


def _mean_op(row: _OpRuns) -> OpTime:
    first = row.first
    return OpTime(
        name=first.name,
        kind=first.kind,
        unit=first.unit,
        kernel=first.kernel,
        provider=first.provider,
        count=max(row.calls, 1),
        time_s=mean(row.runs),
        samples_s=tuple(row.runs) if len(row.runs) > 1 else None,
    )


def tokens(mean_count: float | None, what: str, notes: list[str]) -> int | None:
    """A mean number of tokens as a workload's size; rounding it is noted."""
    if mean_count is None or not 1 <= mean_count <= _MOST_TOKENS:
        return None
    if mean_count != int(mean_count):
        notes.append(f"{what} is the mean of all requests, {mean_count:.6g} tokens, rounded")
    return round(mean_count)


def facts(source: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Settings worth keeping as the source has them: words, and numbers that a document can hold."""
    kept = {name: source.get(name) for name in names}
    return {name: value for name, value in kept.items() if isinstance(value, str | bool) or _is_plain_number(value)}


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= _MOST_TOKENS  # NaN is not


# Exclusive times of intervals that contain each other: a moment belongs to the innermost one that is open.
#
# So the exclusive times add up to the time that anything at all was open, however the intervals lie.

Bounds = tuple[float, float]  # start, end

_CLOSES, _OPENS = 0, 1  # at one moment, what ends goes before what begins


@frozen
class Nested:
    """Of each interval, in the order given: the time that is its own, and the interval around its start."""

    own: tuple[float, ...]
    parent: tuple[int | None, ...]


def nest(intervals: Sequence[Bounds]) -> Nested:
    """Of intervals of one thread. Of two that begin together the longer is the outer one."""
    own = [0.0] * len(intervals)
    parent: list[int | None] = [None] * len(intervals)
    closed = [False] * len(intervals)
    open_now: list[int] = []
    before = 0.0
    opens = [(start, _OPENS, -end, index) for index, (start, end) in enumerate(intervals)]
    closes = [(end, _CLOSES, 0.0, index) for index, (start, end) in enumerate(intervals) if end > start]
    for at, what, _, index in sorted([*opens, *closes]):
        while open_now and closed[open_now[-1]]:
            open_now.pop()
        if open_now:
            own[open_now[-1]] += at - before
        before = at
        if what == _CLOSES:
            closed[index] = True
            continue
        parent[index] = open_now[-1] if open_now else None
        if intervals[index][1] > at:
            open_now.append(index)
    return Nested(own=tuple(own), parent=tuple(parent))

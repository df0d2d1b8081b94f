"""The engine's profile, a list of events as JSON, into seconds a node and run.

Sizes are text, `dur` is in whole microseconds, and nothing numbers the runs: a `model_run` ends each. What runs within
a node (a branch, a loop's body) has events of its own, listed before the node's; they are taken out of its time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from inferometer.core.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SUFFIX = "_kernel_time"
_HOLDERS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_MICRO = 1e-6


class Details(msgspec.Struct, gc=False):
    op_name: str = ""
    provider: str = ""
    activation_size: str = "0"
    output_size: str = "0"
    output_type_shape: list[dict[str, list[int]]] = []


class ProfileEvent(msgspec.Struct, gc=False):
    cat: str
    name: str
    ts: int
    dur: int
    args: Details | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTime:
    """A node in one run: the time that is its own, however often it ran; `bytes` read and written, weights apart."""

    name: str
    kind: str
    provider: str
    seconds: float
    bytes: float
    dtype: str | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    inside: str | None = None  # the name of the node in whose graph it ran


@dataclass(slots=True, kw_only=True)
class NodeTable:
    """Nodes of several runs in order, each with one sample a run: 0 where it did not run."""

    rows: dict[str, NodeTime] = field(default_factory=dict)
    samples_s: dict[str, list[float]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    runs: int = 0


def parse_profile(text: bytes) -> list[list[ProfileEvent]]:
    """The events of nodes, a list a run. What came before the first run, and after the last whole one, is left out."""
    try:
        events = msgspec.json.decode(text, type=list[ProfileEvent])
    except msgspec.DecodeError as error:
        raise EngineError(
            f"ONNX Runtime wrote a profile that cannot be read: {error}.",
            remedy="Measure without per-op times, or with another version of onnxruntime.",
        ) from error
    runs: list[list[ProfileEvent]] = []
    current: list[ProfileEvent] = []
    for event in events:
        if event.cat == "Node" and event.name.endswith(_SUFFIX):
            current.append(event)
        elif event.cat == "Session" and event.name == "model_run":
            runs.append(current)
            current = []
    return runs


def node_times(events: Sequence[ProfileEvent]) -> list[NodeTime]:
    """One run's nodes by start, each once. Two of one name in the graphs of different nodes are two."""
    own = list(_own_times(events))
    own.sort(key=lambda row: row[0].ts)  # stable: of two at the same microsecond the holder was put first
    times: dict[tuple[str | None, str], NodeTime] = {}
    for event, micros, inside in own:
        name, details = event.name.removesuffix(_SUFFIX), event.args or Details()
        before = times.get((inside, name))
        moved = float(details.activation_size) + float(details.output_size)
        outputs = [next(iter(entry.items())) for entry in details.output_type_shape if entry]
        times[inside, name] = NodeTime(
            name=name,
            kind=details.op_name or name,
            provider=details.provider,
            seconds=micros * _MICRO + (before.seconds if before else 0.0),
            bytes=moved + (before.bytes if before else 0.0),
            dtype=outputs[0][0] if outputs else None,
            shapes=tuple(tuple(shape) for _, shape in outputs),
            inside=inside,
        )
    return list(times.values())


_Own = tuple[ProfileEvent, int, str | None]  # an event, microseconds that are its own, and the node it ran in


def _own_times(events: Sequence[ProfileEvent]) -> list[_Own]:
    """Events with the time that is not within others. A holder takes those before it that started after it.

    The gaps between those are not its own either: they are mostly the profiler's.
    """
    open_: list[tuple[ProfileEvent, list[_Own]]] = []  # events no holder has taken, with what they hold
    for event in events:
        held: list[_Own] = []
        within = 0
        if event.args is not None and event.args.op_name in _HOLDERS:
            start = len(open_)
            while start and open_[start - 1][0].ts >= event.ts:
                start -= 1
            inside = [inner for inner, _ in open_[start:]]
            name = event.name.removesuffix(_SUFFIX)
            held = [(row, micros, outer or name) for _, rows in open_[start:] for row, micros, outer in rows]
            within = max((inner.ts + inner.dur for inner in inside), default=0) - min(
                (inner.ts for inner in inside), default=0
            )
            del open_[start:]
        open_.append((event, [(event, max(0, event.dur - within), None), *held]))
    return [row for _, rows in open_ for row in rows]


def add_run(table: NodeTable, rows: Sequence[NodeTime]) -> None:
    """One run more. A node that the runs before it had not stands after its neighbour in this one."""
    fresh = [row.name for row in rows if row.name not in table.rows]
    for name in fresh:
        table.samples_s[name] = [0.0] * table.runs
    if not table.order:
        table.order.extend(fresh)
    elif fresh:
        _insert(table.order, [row.name for row in rows])
    for row in rows:
        table.rows[row.name] = row
    times: Mapping[str, float] = {row.name: row.seconds for row in rows}
    for name, samples in table.samples_s.items():
        samples.append(times.get(name, 0.0))
    table.runs += 1


def _insert(order: list[str], names: Sequence[str]) -> None:
    known, place = set(order), 0
    for name in names:
        if name in known:
            place = order.index(name) + 1
        else:
            order.insert(place, name)
            place += 1

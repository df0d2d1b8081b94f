"""ONNX Runtime's profiling JSON (`SessionOptions.enable_profiling`).

Shape: a list of Chrome trace events, as onnxruntime 1.31.1 writes them: `cat` is Session or Node, `dur` and `ts` are
whole microseconds, the numbers in `args` are text, and no event says which run it belongs to. A node's event is named
`<node>_kernel_time` (fence events of older versions are no ops). `model_run` spans one run; nodes of the bodies of If,
Loop and Scan lie inside their node's event, so times are taken exclusively. Past a million events ORT drops the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.statistics import mean
from inferometer.engines.results.assemble import Draft, finish, nest, op_means, remainder
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import mapping, moment, number, size, text
from inferometer.engines.results.words import kind_of, unit_of_provider

_CATEGORIES = ("Session", "Node")
_RUN = "model_run"
_EXECUTORS = ("SequentialExecutor::Execute", "ParallelExecutor::Execute")
_LOADING = ("model_loading_", "session_initialization")
_SUFFIX = "_kernel_time"
_MOST_EVENTS = 1_000_000  # onnxruntime/core/common/profiler.h
_US = 1e6


@frozen
class _Event:
    name: str
    category: str
    start: float  # microseconds
    end: float
    thread: tuple[Any, Any]
    args: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / _US


class OnnxRuntimeProfile:
    name = "onnxruntime"
    title = "ONNX Runtime profiling"

    def matches(self, document: Document) -> bool:
        events = document.json
        if not isinstance(events, list) or not events or not all(isinstance(event, dict) for event in events[:20]):
            return False
        return any(event.get("cat") in _CATEGORIES and "dur" in event and "args" in event for event in events[:20])

    def read(self, document: Document) -> tuple[Profile, ...]:
        events = [_event(index, raw) for index, raw in enumerate(document.json) if _is_span(raw)]
        draft = Draft(tool=self.title, runtime="onnxruntime")
        if len(document.json) >= _MOST_EVENTS:
            draft.notes.append("ONNX Runtime drops events past a million: later runs are missing or incomplete")
        parts: dict[str, float] = {}
        for event in events:
            if event.category == "Session" and event.name.startswith(_LOADING):
                parts[event.name] = parts.get(event.name, 0.0) + event.seconds
        if parts:
            draft.phases.append(Phase(name="load", time_s=sum(parts.values()), parts=parts))
        # The first run pays for what is made once, so it is a phase of its own where there are others
        runs = _outermost([event for event in events if event.category == "Session" and event.name == _RUN])
        if not runs:
            runs = _outermost([event for event in events if event.category == "Session" and event.name in _EXECUTORS])
        if not runs:
            raise FormatError("It holds no run of the model.", remedy="Run the session before ending the profiling.")
        nodes, astray = _nodes_of(runs, [event for event in events if event.category == "Node"])
        if astray:
            draft.notes.append(f"{astray} node events lie outside every run and are left out")
        if len(runs) > 1:
            draft.phases.append(_phase("first_run", runs[:1], nodes[:1], draft))
            runs, nodes = runs[1:], nodes[1:]
        else:
            draft.notes.append("the file holds one run, which is also the first after loading")
        forward = _phase("forward", runs, nodes, draft)
        draft.phases.append(forward)
        elsewhere = sorted({op.provider for op in forward.ops if op.provider and op.unit != "cpu"})
        if elsewhere:
            names = ", ".join(elsewhere)
            draft.notes.append(f"the times of ops on {names} are the host's: the device may work on after them")
        # The most that the engine's own allocator had in use. It is not the whole memory of the process.
        peaks = [size(event.args.get("mem_in_use_peak"), "`mem_in_use_peak`") for event in events]
        known = [peak for peak in peaks if peak]
        arena = {"arena_peak_bytes": max(known)} if known else {}
        draft.host |= arena
        return (finish(draft, document),)


def _is_span(raw: Any) -> bool:
    return isinstance(raw, dict) and raw.get("cat") in _CATEGORIES and raw.get("ph", "X") == "X"


def _event(index: int, raw: Mapping[str, Any]) -> _Event:
    start = moment(raw.get("ts"), f"`ts` of event {index}")
    return _Event(
        name=text(raw.get("name")) or "",
        category=raw["cat"],
        start=start,
        end=start + number(raw.get("dur"), f"`dur` of event {index}"),
        thread=(text(raw.get("pid")), text(raw.get("tid"))),
        args=mapping(raw.get("args")),
    )


def _phase(name: str, runs: Sequence[_Event], nodes: Sequence[Sequence[_Event]], draft: Draft) -> Phase:
    ops = op_means([_ops(of_run) for of_run in nodes])
    samples = tuple(run.seconds for run in runs)
    return Phase(
        name=name,
        time_s=mean(samples),
        statistic="mean" if len(samples) > 1 else None,
        samples_s=samples,
        ops=ops,
        unattributed_s=remainder(mean(samples), ops, draft.notes),
    )


def _outermost(events: Sequence[_Event]) -> list[_Event]:
    """In order of time, without those inside another: a body's executor runs inside its model's."""
    kept: list[_Event] = []
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        if not kept or event.start >= kept[-1].end:
            kept.append(event)
    return kept


def _nodes_of(runs: Sequence[_Event], nodes: Iterable[_Event]) -> tuple[list[list[_Event]], int]:
    """The node events of each run, and how many belong to none."""
    of_run: list[list[_Event]] = [[] for _ in runs]
    astray = at = 0
    for node in sorted(nodes, key=lambda node: (node.start, -node.end)):
        if not node.name.endswith(_SUFFIX):
            continue
        while at + 1 < len(runs) and node.start >= runs[at + 1].start:
            at += 1
        if runs[at].start <= node.start <= runs[at].end:
            of_run[at].append(node)
        else:
            astray += 1
    return of_run, astray


def _ops(nodes: Sequence[_Event]) -> list[OpTime]:
    threads: dict[tuple[Any, Any], list[int]] = {}
    for index, node in enumerate(nodes):
        threads.setdefault(node.thread, []).append(index)
    own = [0.0] * len(nodes)
    for indices in threads.values():
        nested = nest([(nodes[index].start, nodes[index].end) for index in indices])
        for index, time in zip(indices, nested.own, strict=True):
            own[index] = time
    return [_op(node, time) for node, time in zip(nodes, own, strict=True)]


def _op(node: _Event, own: float) -> OpTime:
    op_type, provider = text(node.args.get("op_name")), text(node.args.get("provider"))
    return OpTime(
        name=node.name.removesuffix(_SUFFIX),
        kind=kind_of(op_type),
        time_s=own / _US,
        unit=unit_of_provider(provider),
        kernel=op_type,
        provider=provider,
    )


importer = OnnxRuntimeProfile()

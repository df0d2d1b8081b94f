"""PyTorch's profiler trace (`torch.profiler`, `export_chrome_trace`), written by kineto; gzip is fine.

Shape: Chrome trace JSON, as torch 2.13.0 writes it: `traceEvents` with `cat` cpu_op, user_annotation, python_function,
cuda_runtime, kernel, gpu_memcpy, gpu_memset; `ts` and `dur` in microseconds with fractions. CPU ops contain each
other, so their times are taken exclusively. A kernel carries the `External id` of the op that launched it, or shares
its `correlation` with the runtime call that did.

An op's time is the larger of its host time and its device time, as for our own profiles: the host runs ahead of the
device, and what limits the run is the longer of the two.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.statistics import mean
from inferometer.engines.results.assemble import Draft, finish, nest, remainder
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import mapping, moment, number, text
from inferometer.engines.results.words import kind_of

_OP = "cpu_op"
_MARK = "user_annotation"
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "privateuse1_runtime"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_KNOWN = frozenset({_OP, _MARK, *_RUNTIME, *_DEVICE})
_STEP = re.compile(r"ProfilerStep#\d+$")
_WAITS = "Synchronize"
_COMPILED = ("Torch-Compiled Region", "CompiledFxGraph", "## Call CompiledFxGraph")
_US = 1e6


@dataclass(slots=True, kw_only=True)
class _Span:
    name: str
    category: str
    start: float
    dur: float  # as it is written: at this distance from 1970 the difference of two moments has fewer digits
    thread: tuple[Any, Any]
    args: Mapping[str, Any]
    own: float = 0.0
    parent: "_Span | None" = None

    @property
    def end(self) -> float:
        return self.start + self.dur

    @property
    def external(self) -> str | None:
        return text(self.args.get("External id")) or text(self.args.get("external id"))

    @property
    def correlation(self) -> str | None:
        return text(self.args.get("correlation"))


@dataclass(slots=True, kw_only=True)
class _Op:
    """The sums of one op name in one iteration, in microseconds."""

    calls: int = 0
    host: float = 0.0
    device: float = 0.0
    kernels: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Iteration:
    start: float
    dur: float
    ops: dict[str, _Op] = field(default_factory=dict)
    wait: float = 0.0

    @property
    def end(self) -> float:
        return self.start + self.dur

    def op(self, name: str) -> _Op:
        return self.ops.setdefault(name, _Op())


class TorchTrace:
    name = "torch"
    title = "PyTorch profiler trace"

    def matches(self, document: Document) -> bool:
        events = document.keys.get("traceEvents")
        if not isinstance(events, list):
            return False
        categories = (event.get("cat") for event in events if isinstance(event, dict))
        return any(isinstance(category, str) and category in _KNOWN - {_MARK} for category in categories)

    def read(self, document: Document) -> tuple[Profile, ...]:
        spans = _spans(document.keys["traceEvents"])
        # ops and runtime calls of each thread: the time that is their own, and the op around them
        threads: dict[tuple[Any, Any], list[_Span]] = {}
        for span in spans:
            if span.category == _OP or span.category in _RUNTIME:
                threads.setdefault(span.thread, []).append(span)
        for members in threads.values():
            nested = nest([(span.start, span.end) for span in members])
            for span, own, parent in zip(members, nested.own, nested.parent, strict=True):
                span.own, span.parent = own, None if parent is None else members[parent]
        iterations, marked = _iterations(spans)
        _sum_up(spans, iterations)
        compiled = any(span.name.startswith(_COMPILED) for span in spans)
        runtime = "torch-compile" if compiled else "torch-eager"
        draft = Draft(tool=self.title, runtime=runtime)
        if not marked:
            draft.notes.append("the trace marks no iterations: the whole of it is taken as one run")
        properties = document.keys.get("deviceProperties")
        devices = [text(mapping(entry).get("name")) for entry in properties] if isinstance(properties, list) else []
        used = {text(span.args.get("device")) for span in spans if span.category in _DEVICE} - {None}
        if devices and used:
            draft.device, draft.devices = devices[0], max(1, len(used))
        draft.phases.append(_phase(iterations, draft))
        return (finish(draft, document),)


def _spans(events: Iterable[Any]) -> list[_Span]:
    spans = []
    for index, raw in enumerate(events):
        if not isinstance(raw, dict) or raw.get("ph") != "X":
            continue
        if not isinstance(raw.get("cat"), str) or raw["cat"] not in _KNOWN:
            continue
        start = moment(raw.get("ts"), f"`ts` of event {index}")
        span = _Span(
            name=text(raw.get("name")) or "unnamed",
            category=raw["cat"],
            start=start,
            dur=number(raw.get("dur", 0), f"`dur` of event {index}"),
            thread=(text(raw.get("pid")), text(raw.get("tid"))),
            args=mapping(raw.get("args")),
        )
        spans.append(span)
    if not any(span.category != _MARK for span in spans):
        raise FormatError(
            "It holds no op and no kernel.", remedy="Export the trace after the profiled block has ended."
        )
    return spans


def _iterations(spans: Sequence[_Span]) -> tuple[list[_Iteration], bool]:
    """The profiler's steps; without them the annotation that covers most of the time; else the whole trace."""
    marks = [span for span in spans if span.category == _MARK]
    steps = [span for span in marks if _STEP.match(span.name)] or _longest(marks)
    if steps:
        ordered = sorted(steps, key=lambda span: span.start)
        return [_Iteration(start=span.start, dur=span.dur) for span in ordered], True
    busy = [span for span in spans if span.category != _MARK]
    start = min(span.start for span in busy)
    return [_Iteration(start=start, dur=max(span.end for span in busy) - start)], False


def _longest(marks: Sequence[_Span]) -> list[_Span]:
    """The annotations of the name with the largest sum, if they follow one another."""
    by_name: dict[str, list[_Span]] = {}
    for mark in marks:
        by_name.setdefault(mark.name, []).append(mark)
    if not by_name:
        return []
    chosen = max(by_name.values(), key=lambda group: sum(mark.dur for mark in group))
    chosen.sort(key=lambda mark: mark.start)
    apart = all(after.start >= before.end for before, after in pairwise(chosen))
    return chosen if apart and chosen[0].dur else []


def _sum_up(spans: Sequence[_Span], iterations: Sequence[_Iteration]) -> None:
    """Each op's host and device time into the iteration it was called in."""
    by_external = {span.external: span for span in spans if span.category == _OP and span.external}
    by_correlation = {span.correlation: span for span in spans if span.category in _RUNTIME and span.correlation}
    for span in sorted(spans, key=lambda span: span.start):
        if span.category == _OP:
            _add_host(span, _around(span.start, iterations))
        elif span.category in _RUNTIME:
            _add_call(span, _around(span.start, iterations))
        elif span.category in _DEVICE:
            call = by_correlation.get(span.correlation or "")
            op = by_external.get(span.external or "") or (call.parent if call else None)
            caller = op or call or span
            _add_device(span, op, _around(caller.start, iterations))


def _around(moment: float, iterations: Sequence[_Iteration]) -> _Iteration | None:
    index = bisect_right(iterations, moment, key=lambda iteration: iteration.start)
    iteration = iterations[index - 1] if index else None
    return iteration if iteration and moment <= iteration.end else None


def _add_host(span: _Span, iteration: _Iteration | None) -> None:
    if iteration is not None:
        op = iteration.op(span.name)
        op.calls += 1
        op.host += span.own


def _add_call(span: _Span, iteration: _Iteration | None) -> None:
    """A runtime call is its op's host time; waiting for the device is nobody's: the device's own time counts."""
    if iteration is None:
        return
    if _WAITS in span.name:
        iteration.wait += span.own
    elif span.parent is not None:
        iteration.op(span.parent.name).host += span.own


def _add_device(span: _Span, op: _Span | None, iteration: _Iteration | None) -> None:
    if iteration is None:
        return
    kernel, time = _short(span.name), span.dur
    row = iteration.op(op.name if op else kernel)
    row.calls += op is None
    row.device += time
    row.kernels[kernel] = row.kernels.get(kernel, 0.0) + time


def _short(kernel: str) -> str:
    """A kernel's name without its return type and template arguments."""
    return kernel.removeprefix("void ").partition("<")[0].partition("(")[0].strip() or kernel


def _phase(iterations: Sequence[_Iteration], draft: Draft) -> Phase:
    names = dict.fromkeys(name for iteration in iterations for name in iteration.ops)
    ops = tuple(_op(name, [iteration.ops.get(name, _Op()) for iteration in iterations]) for name in names)
    samples = tuple(iteration.dur / _US for iteration in iterations)
    clocks = {
        "host": _mean_of(iterations, lambda op: op.host),
        "device": _mean_of(iterations, lambda op: op.device),
        "wait": mean([iteration.wait for iteration in iterations]) / _US,
    }
    return Phase(
        name="forward",
        time_s=mean(samples),
        statistic="mean",
        samples_s=samples,
        ops=ops,
        unattributed_s=remainder(mean(samples), ops, draft.notes),
        clocks={name: value for name, value in clocks.items() if value},
    )


def _mean_of(iterations: Sequence[_Iteration], part: Any) -> float:
    return mean([sum(part(op) for op in iteration.ops.values()) for iteration in iterations]) / _US


def _op(name: str, runs: Sequence[_Op]) -> OpTime:
    times = tuple(max(run.host, run.device) / _US for run in runs)
    device = mean([run.device for run in runs]) / _US
    kernels: dict[str, float] = {}
    for run in runs:
        for kernel, time in run.kernels.items():
            kernels[kernel] = kernels.get(kernel, 0.0) + time
    return OpTime(
        name=name,
        kind=kind_of(name),
        count=max(1, *(run.calls for run in runs)),
        time_s=mean(times),
        samples_s=times if len(times) > 1 else None,
        unit="gpu" if device else "cpu",
        device_s=device or None,
        kernel=max(kernels, key=lambda kernel: kernels[kernel]) if kernels else None,
    )


importer = TorchTrace()

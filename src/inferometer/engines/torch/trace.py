"""What the profiler wrote → kernels by phase. Pure: values in, values out.

The document is a Chrome trace as kineto writes it: complete events with a category (`cpu_op`, `user_annotation`,
`cuda_runtime`, `kernel` …), microseconds, and in `args` the correlation of a launch with what ran on the device.

Our own marks stand between them: a step and its phase, the module that runs, a part of the step. Events of the thread
that steps are nested by time. Every nanosecond of a step then belongs to one row: to an op that works, to waiting for
the device, or to the host time of the module (or part) around it: Python, dispatch, views.
"""

from __future__ import annotations

import statistics
import time
import tomllib
from collections import defaultdict
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from inferometer.core.frozen import frozen
from inferometer.engines.base import GRAPH_LAUNCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

STEP, MODULE, PART = "inferometer.step:", "inferometer.module:", "inferometer.part:"
_HOST = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"})
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_WAITS = ("DeviceSynchronize", "StreamSynchronize", "EventSynchronize", "CtxSynchronize")
_FUSED = ("triton_", "cpp_fused", "graph_", "aoti_torch_")
_TYPES = {
    "float": "f32", "double": "f64", "c10::Half": "f16", "c10::BFloat16": "bf16", "signed char": "i8",
    "unsigned char": "u8", "int": "i32", "long": "i64", "long int": "i64", "bool": "bool",
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class TraceCall:
    """An event of the trace: nanoseconds, and what was called inside it."""

    name: str
    category: str
    start_ns: int
    end_ns: int
    thread: Any = None
    correlation: int | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str | None = None
    waited_ns: int = 0  # that the device stood idle before it
    children: list[TraceCall] = field(default_factory=list)

    @property
    def ns(self) -> int:
        return self.end_ns - self.start_ns


@frozen
class TraceRow:
    """A piece of one step. `root` is the op the module called, `kind` the one inside it that works.

    `more` is a further op inside the same call as the row before: a convolution that copies, then multiplies.
    """

    place: str | None  # the module (empty for the model itself), or the part of a step; None outside both
    module: bool  # `place` is a module
    kind: str
    root: str
    host_ns: int
    device_ns: tuple[int, ...] = ()
    waited_ns: int = 0
    on_device: bool = False  # launched by no op of its own: replayed from a graph
    device_names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str | None = None
    layers: tuple[str, ...] = ()
    more: bool = False


def calls_of(events: Iterable[Mapping[str, Any]]) -> list[TraceCall]:
    """The complete events of a trace, in order of their start."""
    calls = []
    for event in events:
        if event.get("ph") != "X" or event.get("cat") not in _HOST | _DEVICE:
            continue
        args = event.get("args") or {}
        start = round(event["ts"] * 1000)
        calls.append(
            TraceCall(
                name=event["name"], category=event["cat"], start_ns=start, end_ns=start + round(event["dur"] * 1000),
                thread=(event.get("pid"), event.get("tid")), correlation=args.get("correlation"),
                shapes=_shapes(args.get("Input Dims")), dtype=_dtype(args.get("Input type")),
            )
        )  # fmt: skip
    return sorted(calls, key=lambda call: (call.start_ns, -call.end_ns))


def _shapes(dims: Any) -> tuple[tuple[int, ...], ...]:
    """Of the tensors among an op's inputs; a list of tensors counts each."""
    shapes: list[tuple[int, ...]] = []
    for dim in dims or ():
        if isinstance(dim, list) and dim and all(isinstance(size, int) for size in dim):
            shapes.append(tuple(dim))
        elif isinstance(dim, list) and dim and isinstance(dim[0], list):
            shapes += [tuple(inner) for inner in dim if inner]
    return tuple(shapes)


def _dtype(types: Any) -> str | None:
    return next((_TYPES[name] for name in types or () if name in _TYPES), None)


def steps_of(calls: Sequence[TraceCall]) -> list[tuple[str, TraceCall]]:
    """Each step with its phase, its calls nested inside it."""
    marks = [call for call in calls if call.name.startswith(STEP) and call.category in _HOST]
    threads = {mark.thread for mark in marks}
    working = {call.thread for call in calls if call.category == "cpu_op"}
    steps: list[tuple[str, TraceCall]] = []
    for thread in threads:
        stack: list[TraceCall] = []
        for call in calls:
            # A thread that only calls the device's runtime is the stepping one under the driver's name for it.
            foreign = call.category in _RUNTIME and call.thread not in working
            if call.category not in _HOST or not (call.thread == thread or foreign):
                continue
            while stack and call.start_ns >= stack[-1].end_ns:
                stack.pop()
            if call.name.startswith(STEP):
                stack = [call]
                steps.append((call.name.removeprefix(STEP), call))
            elif stack:
                stack[-1].children.append(call)
                stack.append(call)
    return sorted(steps, key=lambda step: step[1].start_ns)


def rows_by_step(events: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[TraceRow]]]:
    """The phase and the rows of each step, in order."""
    calls = calls_of(events)
    device: dict[int, list[TraceCall]] = defaultdict(list)
    for call in calls:
        if call.category in _DEVICE and call.correlation is not None:
            device[call.correlation].append(call)
    steps = steps_of(calls)
    for _, mark in steps:
        # how long the device stood idle before each thing it ran, since the step began or the last one ended
        busy_until = mark.start_ns
        for ran in _inside(mark, device).device:
            ran.waited_ns = max(0, ran.start_ns - busy_until)
            busy_until = max(busy_until, ran.end_ns)
    return [(phase, _ordered(_rows(mark, None, device, module=False))) for phase, mark in steps]


def _ordered(rows: Iterator[TraceRow]) -> list[TraceRow]:
    """The host time of one place is one row, where the place first appears."""
    ordered: list[TraceRow] = []
    at: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = (row.place, row.module, row.kind)
        if row.kind in {"host", "wait"} and key in at:
            ordered[at[key]] = replace(ordered[at[key]], host_ns=ordered[at[key]].host_ns + row.host_ns)
            continue
        at.setdefault(key, len(ordered))
        ordered.append(row)
    return ordered


def _rows(
    call: TraceCall, place: str | None, device: Mapping[int, list[TraceCall]], *, module: bool
) -> Iterator[TraceRow]:
    """Rows of a mark or of one of the engine's wrappers: its own host time first, then what ran inside it."""
    inner: list[TraceRow] = []
    taken = 0
    for child in call.children:
        if child.name.startswith(MODULE):
            taken += child.ns
            inner += _rows(child, child.name.removeprefix(MODULE), device, module=True)
        elif child.name.startswith(PART):
            taken += child.ns
            inner += _rows(child, child.name.removeprefix(PART), device, module=False)
        elif child.category in _RUNTIME:
            rows = list(_launched(child, place, device, module=module))
            taken += sum(row.host_ns for row in rows if not row.on_device)
            inner += rows
        elif _is_op(child):
            rows = _op_rows(child, place, device, module=module)
            taken += sum(row.host_ns for row in rows)
            inner += rows
        else:
            taken += child.ns
            inner += _rows(child, place, device, module=module)
    if call.ns > taken:
        yield TraceRow(place=place, module=module, kind="host", root="host", host_ns=call.ns - taken)
    yield from inner


def _is_op(call: TraceCall) -> bool:
    return call.category == "cpu_op" and ("::" in call.name or call.name.startswith(_FUSED))


def _launched(
    call: TraceCall, place: str | None, device: Mapping[int, list[TraceCall]], *, module: bool
) -> Iterator[TraceRow]:
    """A call of the device's runtime that no op made: a wait, or the launch of a graph and all that it replays."""
    if call.name.endswith(_WAITS):
        yield TraceRow(place=None, module=False, kind="wait", root="wait", host_ns=call.ns)
        return
    replayed = sorted(device.get(call.correlation or -1, ()), key=lambda ran: ran.start_ns)
    if len(replayed) > 1:  # the device waits for the whole graph, not for its first kernel
        yield TraceRow(
            place=None, module=False, kind=GRAPH_LAUNCH, root=call.name, host_ns=0, device_ns=(0,),
            waited_ns=replayed[0].waited_ns,
        )  # fmt: skip
        replayed[0].waited_ns = 0
    for ran in replayed:
        yield TraceRow(
            place=place, module=module, kind=_short(ran.name), root=_short(ran.name), host_ns=ran.ns,
            device_ns=(ran.ns,), waited_ns=ran.waited_ns, device_names=(ran.name,), on_device=True,
        )  # fmt: skip


def _short(name: str) -> str:
    """A C++ kernel by its function: `void at::native::elementwise_kernel<…>(…)` is long in its types only."""
    bare = name.removeprefix("void ").partition("<")[0].partition("(")[0].strip()
    return bare.rpartition("::")[2] or name[:80]


@dataclass(slots=True, kw_only=True)
class _Found:
    """What lies inside an op, apart from other ops."""

    device: list[TraceCall] = field(default_factory=list)
    wait_ns: int = 0


def _op_rows(
    root: TraceCall, place: str | None, device: Mapping[int, list[TraceCall]], *, module: bool
) -> list[TraceRow]:
    """The ops inside a call that work, the call's own time given to the longest of them. None work: no rows."""
    working = list(_working(root))
    if not working:
        inside = _inside(root, device)
        if not inside.device and not inside.wait_ns:
            return []
        working = [root]
    spare = root.ns - sum(call.ns for call in working)
    longest = max(working, key=lambda call: call.ns)
    rows, waited = list[TraceRow](), 0
    for call in working:
        inside = _inside(call, device)
        waited += inside.wait_ns
        rows.append(
            TraceRow(
                place=place, module=module, kind=call.name, root=root.name, shapes=call.shapes, dtype=call.dtype,
                host_ns=max(0, call.ns - inside.wait_ns + (spare if call is longest else 0)),
                device_ns=tuple(ran.ns for ran in inside.device), device_names=tuple(ran.name for ran in inside.device),
                waited_ns=sum(ran.waited_ns for ran in inside.device), more=bool(rows),
            )
        )  # fmt: skip
    if waited:
        rows.append(TraceRow(place=None, module=False, kind="wait", root="wait", host_ns=waited))
    return rows


def _working(call: TraceCall) -> Iterator[TraceCall]:
    if not _is_op(call):
        for child in call.children:
            yield from _working(child)
        return
    name = call.name.removeprefix("aten::")
    idle, composite = _names()
    if name in composite:
        for child in call.children:
            yield from _working(child)
    elif name not in idle:
        nested = [child for child in call.children if child.name == call.name]
        if nested:  # an op that calls another form of itself
            yield from _working(nested[0])
        else:
            yield call


def _inside(call: TraceCall, device: Mapping[int, list[TraceCall]]) -> _Found:
    inside = _Found()
    pending = [call]
    while pending:
        inner = pending.pop()
        pending += inner.children
        if inner.category in _RUNTIME:
            inside.device += device.get(inner.correlation or -1, ())
            inside.wait_ns += inner.ns if inner.name.endswith(_WAITS) else 0
    inside.device.sort(key=lambda ran: ran.start_ns)
    return inside


@cache
def _names() -> tuple[frozenset[str], frozenset[str]]:
    table = tomllib.loads(files("inferometer.engines.torch").joinpath("ops.toml").read_text(encoding="utf-8"))
    return frozenset(table["idle"]) - frozenset(table["composite"]), frozenset(table["composite"])


# The profiler's edge: turns it on, marks steps and modules between its events, and hands over what it wrote.
#
# A mark costs a microsecond or two (`_RecordFunctionFast`), a tenth of what torch's own `record_function` does.

_NOTHING = nullcontext()


class NoRecorder:
    """What a plain session has in place of a recorder: marks nothing."""

    on = False

    def step(self, _phase: str) -> AbstractContextManager[None]:
        return _NOTHING

    def part(self, _name: str) -> AbstractContextManager[None]:
        return _NOTHING

    def start(self) -> None:
        pass

    def stop(self) -> list[tuple[str, list[TraceRow]]]:
        return []

    def drop(self) -> None:
        pass


class TraceRecorder:
    """Records from `start` to `stop`. What runs outside a step is ignored."""

    on = True

    def __init__(self, torch: Any, *, cuda: bool) -> None:
        self._torch, self._cuda = torch, cuda
        self._mark = torch._C._profiler._RecordFunctionFast  # noqa: SLF001 - the only mark that is cheap enough
        self._running: Any = None

    def start(self) -> None:
        if self._running is not None:
            return
        profiler = self._torch.profiler
        kinds = [profiler.ProfilerActivity.CPU, *([profiler.ProfilerActivity.CUDA] if self._cuda else [])]
        self._running = profiler.profile(activities=kinds, record_shapes=True)
        self._running.start()

    def step(self, phase: str) -> AbstractContextManager[None]:
        mark: AbstractContextManager[None] = self._mark(STEP + phase)
        return mark

    def part(self, name: str) -> AbstractContextManager[None]:
        mark: AbstractContextManager[None] = self._mark(PART + name)
        return mark

    def drop(self) -> None:
        """End without the rows: PyTorch 2.13 has ended the process while it wrote a trace that nobody wanted."""
        profile, self._running = self._running, None
        if profile is not None:
            profile.stop()

    def stop(self) -> list[tuple[str, list[TraceRow]]]:
        """The phase and the rows of each step since `start`."""
        if self._running is None:
            return []
        profile, self._running = self._running, None
        if self._cuda:
            self._torch.cuda.synchronize()
        profile.stop()
        with TemporaryDirectory(prefix="inferometer-") as folder:
            path = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(path))
            document = msgspec.json.decode(path.read_bytes())
        return rows_by_step(document["traceEvents"])


@contextmanager
def mark_modules(torch: Any, model: Any) -> Iterator[None]:
    """Each module of the model marks itself while it runs."""
    mark = torch._C._profiler._RecordFunctionFast  # noqa: SLF001 - as above
    stack: list[Any] = []

    def before(name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            stack.append(mark(name))
            stack[-1].__enter__()

        return enter

    def after(*_: Any) -> None:
        stack.pop().__exit__(None, None, None)

    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(before(MODULE + name)))
        hooks.append(module.register_forward_hook(after, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def cost_per_kernel(
    step: Callable[[], Any],
    sync: Callable[[], None],
    recorder: TraceRecorder,
    *,
    marks: AbstractContextManager[None] = _NOTHING,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds that recording adds for each kernel that it records, measured on a chain of trivial ones.

    Medians of the same chain without and with the recorder (and the marks), over the number of its rows.
    """

    def median_s(by: TraceRecorder | NoRecorder) -> float:
        seconds = []
        for _ in range(15):
            start = clock()
            with by.step("chain"):
                step()
                sync()
            seconds.append(clock() - start)
        return statistics.median(seconds)

    step()
    plain = median_s(NoRecorder())
    recorder.start()
    with marks:
        recorded = median_s(recorder)
    rows = recorder.stop()
    kernels = statistics.median(len(each) for _, each in rows)
    return max(0.0, (recorded - plain) / max(1.0, kernels))

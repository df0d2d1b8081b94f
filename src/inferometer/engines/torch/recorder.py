"""The profiler's edge: turns it on, marks steps and modules between its events, and hands over what it wrote.

A mark costs a microsecond or two (`_RecordFunctionFast`), a tenth of what torch's own `record_function` does.
"""

from __future__ import annotations

import statistics
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from inferometer.engines.torch.trace import MODULE, PART, STEP, TraceRow, rows_by_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

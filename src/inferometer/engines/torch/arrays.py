"""A model that takes arrays and gives arrays."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import DomainError, EngineError
from inferometer.core.notices import tell
from inferometer.engines.base import Kernel, Opened, Port, Stage
from inferometer.engines.feeding import require_fitting
from inferometer.engines.torch.capture import Calls, as_captured, capture_graph, kept_constants, kernels_in_order
from inferometer.engines.torch.host import TorchHost, compiled_apart, compiled_folder, kept_graphs
from inferometer.engines.torch.kernels import align_layers, kernels_from_rows, map_calls
from inferometer.engines.torch.provenance import compiler_calls
from inferometer.engines.torch.trace import TraceRow, mark_modules

if TYPE_CHECKING:
    from inferometer.core.engine import Execution


_LAUNCHES = 10_000  # steps whose launch is remembered


class Arrays:
    """`feed` places the inputs, and compiles or captures where their shapes are new; `step` is one call."""

    def __init__(
        self,
        host: TorchHost,
        *,
        execution: Execution = "launched",
        capture: Callable[..., tuple[Callable[[], None], Any]] = capture_graph,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._host, self._clock, self._execution, self._capture = host, clock, execution, capture
        self._constants = kept_constants(host.torch.device(host.place.device).type)
        self._recorder, self._owner = host.recorder, True
        model = host.module.model
        self._ahead = host.module.calls is not None  # it was compiled before, and is only called
        self._call: Any = self._compiled(model) if execution == "compiled" and not self._ahead else model
        self._step: Callable[[], Any] | None = None
        self._placed: dict[str, Any] = {}
        self._stages: tuple[Stage, ...] = ()
        # Listed by the compiler, now or ahead of time, or those of a step before it was captured.
        self._calls: Calls = host.module.calls or ()
        self._noted: dict[str, None] = {}
        self._pending: list[list[TraceRow]] = []
        self._out: Any = None
        self._unreferred: Callable[[], Any] | None = None  # the captured step, whose kernels are still to be recorded
        self._captured = False  # steps are replayed from a CUDA graph
        self.launches_s: deque[float] = deque(maxlen=_LAUNCHES)  # of each step; a CPU launches nothing

    @property
    def opened(self) -> Opened:
        return self._host.opened(stages=self._stages, notes=tuple(self._noted), outputs=self._ports())

    @property
    def cost_per_kernel_s(self) -> float | None:
        self._flush()  # there is one profiler in a process
        return self._host.cost_per_kernel_s(captured=self._captured)

    def instrumented(self) -> Arrays | None:
        """The same compiled or captured step with the recorder on; None where recording needs another compilation."""
        if self._execution == "launched" or self._ahead or not self._host.watched:
            return None
        self._refer()
        again = copy(self)
        again._recorder, again._owner, again._pending = self._host.new_recorder(), False, []  # noqa: SLF001 - its own
        return again

    def host_module_s(self) -> float | None:
        return self._host.module_s()

    @property
    def memory_peak_bytes(self) -> int | None:
        return self._host.memory_peak_bytes

    @property
    def memory_reserved_bytes(self) -> int | None:
        return self._host.memory_reserved_bytes

    def feed(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._host.require_open()
        ports, module, torch = self._host.module.inputs, self._host.module, self._host.torch
        require_fitting(ports, inputs)
        # on a GPU a token outside the table would end the process
        config = self._host.module.config
        size = getattr(config.get_text_config(), "vocab_size", None) if config is not None else None
        ids = inputs.get("input_ids")
        if size and ids is not None and ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < size:
            raise DomainError(
                f"input_ids holds {int(ids.min())} to {int(ids.max())}; the vocabulary has {size} tokens.",
                remedy="Give ids from 0 on that are in it.",
            )
        device, floats = self._host.place.device, torch.bfloat16 if module.precision == "bf16" else None
        placed = {}
        for port in ports:
            tensor = torch.from_numpy(np.array(inputs[port.name], order="C"))  # a copy that torch may write to
            narrow = tensor.is_floating_point() and module.precision == "bf16"
            placed[port.name] = tensor.to(device, floats) if narrow else tensor.to(device)
        if module.padded and self._execution != "launched":
            # As a tokeniser gives it. Op by op transformers looks at a mask and drops one that hides nothing. Traced it
            # cannot look, and where it has none it writes one that no fused kernel takes: 2 to 5 times as long.
            placed["attention_mask"] = torch.ones_like(placed["input_ids"])
        known = [tensor.shape for tensor in placed.values()] == [tensor.shape for tensor in self._placed.values()]
        if known and self._captured:  # a graph reads where it was captured
            for name, tensor in placed.items():
                self._placed[name].copy_(tensor)
        else:
            self._place(placed, prepare=not known)
        self._host.sync()

    def _place(self, placed: dict[str, Any], *, prepare: bool) -> None:
        module, self._placed = self._host.module, placed
        call = (
            partial(self._call, *placed.values())
            if module.positional
            else partial(self._call, **placed, **module.given)
        )
        self._step = call
        if prepare and self._execution != "launched" and not self._ahead:
            self._flush()  # what was recorded belongs to what was compiled or captured then
            self._prepare(call)

    def step(self) -> None:
        if self._step is None:
            raise DomainError("A step was asked for before any input was given.", remedy="Call feed(inputs) first.")
        self._recorder.start()
        with self._host.running("running a step"), self._recorder.step("forward"):
            start = self._clock()
            self._out = self._step()
            if self._host.place.cuda:
                self.launches_s.append(self._clock() - start)
            self._host.sync()

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any]]:
        return {name: _array(tensor) for name, tensor in _flattened(self._out).items()}

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        self._flush()
        place, steps = self._host.place, self._pending
        self._pending = []
        return {"forward": kernels_from_rows(steps, unit=place.unit, provider=place.device)} if steps else {}

    def close(self) -> None:
        self._recorder.drop()
        if not self._owner:
            return
        self._step = self._call = self._out = None
        self._placed = {}
        self._host.close()

    def _flush(self) -> None:
        mapping = align_layers if self._captured else map_calls if self._execution == "compiled" else None
        for _, rows in self._recorder.stop():
            mapped, missed = mapping(rows, self._calls) if mapping else (rows, 0)
            if missed:
                self._noted[f"{missed} kernels could not be traced to modules; they have no layer."] = None
            self._pending.append(mapped)

    def _prepare(self, call: Callable[[], Any]) -> None:
        """Compile or capture. The first call is no step."""
        name, doing = {"compiled": ("compile", "compiling"), "captured": ("capture", "capturing")}[self._execution]
        start = self._clock()
        tell(f"{doing} the model")
        with self._host.running(f"{doing} the model"):
            if self._execution == "compiled":
                self._compile(call)
            if self._execution == "captured" or self._host.place.cuda:
                self._capture_step(call)
            self._host.sync()
        self._stages = (Stage(name=name, seconds=self._clock() - start),)

    def _compiled(self, model: Any) -> Any:
        """The model to be compiled for this session alone: an instrumented one must not run a plain one's kernels."""

        def forward(*given: Any, **named: Any) -> Any:
            return model(*given, **named)

        return self._host.torch.compile(compiled_apart(forward), dynamic=False)

    def _compile(self, call: Callable[[], Any]) -> None:
        with kept_graphs(compiled_folder(self._host.torch)) as kept:
            if self._host.watched:
                names = frozenset(name for name, _ in self._host.module.model.named_modules() if name)
                with compiler_calls(names, timers=self._recorder.on, folder=kept.calls) as self._calls:
                    call()
            else:
                call()
        if kept.note:
            self._noted[kept.note] = None

    def _capture_step(self, call: Callable[[], Any]) -> None:
        """Record the step as one launch. A network that is compiled is launched op by op where it cannot be recorded.

        Compiled networks are captured as `torch.compile(mode="reduce-overhead")` does for production users: without a
        graph a GPU waits for its host at most batches.
        """
        torch = self._host.torch

        def captured() -> Any:
            with as_captured(torch, self._constants):
                return call()

        try:
            # A compiled network keeps its constants itself.
            replay, result = self._capture(torch, call if self._execution == "compiled" else captured)
        except EngineError as error:
            if self._execution != "compiled":
                raise
            self._captured = False
            self._noted[f"The compiled network is launched kernel by kernel. {error.message}"] = None
            return
        self._captured, self._unreferred = True, call
        self._noted["Steps are replayed from a CUDA graph."] = None

        def step() -> Any:
            replay()
            return result

        self._step = step

    def _refer(self) -> None:
        """Record which kernels are whose, of a step that is not captured: a replay does not show modules.

        After the steps that count: a process that has recorded once launches more slowly from then on.
        """
        call, self._unreferred = self._unreferred, None
        if call is None:
            return
        torch, compiled = self._host.torch, self._execution == "compiled"
        with self._host.running("recording which kernels are whose"):
            call()
            with nullcontext() if compiled else mark_modules(torch, self._host.module.model):
                self._calls = kernels_in_order(torch, call, self._calls)

    def _ports(self) -> tuple[Port, ...]:
        return tuple(
            Port(name=name, dtype=_numpy_dtype(tensor), shape=tuple(tensor.shape))
            for name, tensor in _flattened(self._out).items()
        )


def _flattened(value: Any, name: str = "") -> dict[str, Any]:
    """Tensors by name: a mapping's keys, numbers where there are several without a name."""
    if value is None:
        return {}
    if hasattr(value, "detach"):
        return {name or "output": value}
    if isinstance(value, Mapping):
        pairs = [(str(key), inner) for key, inner in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [(f"{name or 'output'}_{index}", inner) for index, inner in enumerate(value)]
    else:
        return {}
    tensors: dict[str, Any] = {}
    for key, inner in pairs:
        tensors |= _flattened(inner, key)
    return tensors


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    wide = tensor.float() if _numpy_dtype(tensor) == "float32" else tensor
    array: np.ndarray[Any, Any] = wide.detach().cpu().numpy()
    return array


def _numpy_dtype(tensor: Any) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return "float32" if name == "bfloat16" else name

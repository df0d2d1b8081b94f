"""What both kinds of session share: where they run, what was opened, memory, and giving all of it back."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from inferometer.core.engine import Execution
from inferometer.core.errors import EngineError
from inferometer.engines.base import Opened, Port, Stage, Target
from inferometer.engines.torch.capture import capture_graph
from inferometer.engines.torch.engine import Threads, TorchDevice, translated, versions_of
from inferometer.engines.torch.modules import Module, seeded
from inferometer.engines.torch.recorder import NoRecorder, TraceRecorder, cost_per_kernel, mark_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


# What a checkpoint calls the modules of transformers' models, where the library has renamed them since.
#
# Its newer versions give modules of many architectures other names (`vit.layers.0.attention.k_proj`) than their
# checkpoints have (`vit.encoder.layer.0.attention.attention.key`), and rename weights as they are loaded and saved. Our
# graphs have the checkpoint's names, and kernels the modules'; this says which are the same.


def stored_modules(model: Any) -> dict[str, str]:
    """The checkpoint's name of each module that is called otherwise there, by its name in the model."""
    weights = dict(model.named_parameters())
    names = {id(weight): name for name, weight in weights.items()}
    try:
        revert = import_module("transformers.core_model_loading").revert_weight_conversion
        saved = revert(model, weights)
    except Exception:  # noqa: BLE001 - a version without it renames nothing; what it cannot revert keeps its names
        return {}
    # What was joined or split on the way in comes out as other tensors, which stand for several names or for a part.
    stored = {names[id(weight)]: name for name, weight in saved.items() if id(weight) in names}
    return modules_renamed(stored, (name for name, _ in model.named_modules() if name))


def modules_renamed(weights: Mapping[str, str], modules: Iterable[str]) -> dict[str, str]:
    """From the checkpoint's names of weights to those of modules.

    A module without weights below it stands where its parent does; one with several below it is what their names have
    in common.
    """
    if all(name == stored for name, stored in weights.items()):
        return {}
    below: dict[str, list[list[str]]] = {}
    for name, stored in weights.items():
        place = stored.split(".")[:-1]
        outer = name
        while outer := outer.rpartition(".")[0]:
            below.setdefault(outer, []).append(place)
    known: dict[str, str] = {}
    for module in sorted(modules):  # a parent comes before what it holds
        parent, _, last = module.rpartition(".")
        inside = below.get(module)
        around = (known[parent],) if parent in known else ()
        known[module] = ".".join(_in_common(inside) if inside else (*around, last))
    return {module: stored for module, stored in known.items() if module != stored}


def _in_common(places: list[list[str]]) -> list[str]:
    return [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*places, strict=False))]


_CHAIN = 48  # trivial kernels that the recorder's cost is measured on


@dataclass(kw_only=True)
class TorchHost:
    """Made once the module is loaded. It owns the module, the threads and the recorder."""

    torch: Any
    target: Target
    place: TorchDevice
    module: Module
    threads: Threads
    paid: tuple[Stage, ...]
    execution: Execution

    def __post_init__(self) -> None:
        torch, cuda = self.torch, self.place.cuda
        self.recorder: TraceRecorder | NoRecorder = self.new_recorder() if self.target.instrument else NoRecorder()
        self._stack = ExitStack()
        self._stack.callback(self.threads.close)
        if self.target.instrument and self.execution == "launched":
            self._stack.enter_context(mark_modules(torch, self.module.model))
        self._placed = {self.place.device: sum(1 for each in self.module.model.modules() if not any(each.children()))}
        self._cost_s: float | None = None
        self._stored = stored_modules(self.module.model) if self.module.config is not None else {}
        # Where a device's tokens land: pinned memory, which it writes to by itself.
        self.landing: Any = torch.zeros((self.target.batch, 1), dtype=torch.long).pin_memory() if cuda else None
        if cuda:
            self._stream = torch.cuda.current_stream(self.place.device)
            torch.cuda.reset_peak_memory_stats(self.place.device)

    @property
    def watched(self) -> bool:
        """Whether to keep which modules the kernels stand for. On a CPU that takes another compilation."""
        return self.target.instrument or (self.target.watched and self.place.cuda)

    def new_recorder(self) -> TraceRecorder:
        return TraceRecorder(self.torch, cuda=self.place.cuda)

    def opened(
        self, *, stages: tuple[Stage, ...] = (), notes: tuple[str, ...] = (), outputs: tuple[Port, ...] = ()
    ) -> Opened:
        return Opened(
            stages=(*self.paid, *stages), versions=versions_of(self.torch),
            inputs=self.module.inputs, outputs=outputs, threads=self.threads.count, unit=self.place.unit,
            placed=self._placed, precision=self.module.precision, notes=(*self.module.notes, *notes),
            stored_names=self._stored,
        )  # fmt: skip

    def require_open(self) -> None:
        if self.module is None:
            raise EngineError("The session is closed.", remedy="Open the model again.")

    @contextmanager
    def running(self, doing: str) -> Iterator[None]:
        self.require_open()
        self.threads.hold()
        other = self.place.cuda and self.place.device != "cuda:0"
        card = self.torch.cuda.device(self.place.device) if other else nullcontext()
        with translated(self.torch, doing), self.torch.inference_mode(), card:
            yield

    def sync(self) -> None:
        if self.place.cuda:
            self.torch.cuda.synchronize(self.place.device)

    def wait(self) -> None:
        """Until the device has done all that it was given: the stream's own wait takes a host least."""
        self._stream.synchronize()

    @property
    def memory_peak_bytes(self) -> int | None:
        """Bytes in tensors at the most since the model was loaded; a CPU's allocator does not count."""
        return int(self.torch.cuda.max_memory_allocated(self.place.device)) if self.place.cuda else None

    @property
    def memory_reserved_bytes(self) -> int | None:
        """Bytes that the allocator held at the most, with what it keeps for later."""
        return int(self.torch.cuda.max_memory_reserved(self.place.device)) if self.place.cuda else None

    def cost_per_kernel_s(self, *, captured: bool = False) -> float | None:
        """What recording adds to each kernel, on a chain like what it runs; None where it records nothing."""
        if not self.recorder.on:
            return None
        if self._cost_s is None:
            with self.running("measuring the recorder's own cost"):
                step, marks = self._chain(captured=captured)
                self._cost_s = cost_per_kernel(step, self.sync, self.new_recorder(), marks=marks)
        return self._cost_s

    def _chain(self, *, captured: bool) -> tuple[Callable[[], Any], AbstractContextManager[None]]:
        """Modules for an eager session, ops for a compiled one, a graph where steps are replayed."""
        torch = self.torch
        with seeded(torch, 0):
            modules = [torch.nn.Linear(8, 8, device=self.place.device) for _ in range(_CHAIN)]
        chain, x = torch.nn.Sequential(*modules), torch.ones((1, 8), device=self.place.device)
        if self.execution != "compiled" and not captured:
            return lambda: chain(x), mark_modules(torch, chain)

        def ops() -> None:
            for _ in range(_CHAIN):
                torch.mm(x, modules[0].weight)

        if not captured:
            return ops, nullcontext()
        replay, _ = capture_graph(torch, ops)
        return replay, nullcontext()

    def close(self) -> None:
        self._stack.close()
        if self.module is not None:
            self.module = None  # type: ignore[assignment]  # its memory goes with it
            if self.place.cuda:
                self.torch.cuda.empty_cache()

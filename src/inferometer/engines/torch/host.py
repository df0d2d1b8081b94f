"""What both kinds of session share: where they run, what was opened, memory, and giving all of it back."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from inferometer.core.engine import Execution
from inferometer.core.errors import EngineError
from inferometer.core.settings import cache_folder
from inferometer.core.units import counted
from inferometer.engines.base import Opened, Port, Stage, Target
from inferometer.engines.torch.capture import capture_graph
from inferometer.engines.torch.engine import Threads, TorchDevice, translated, versions_of
from inferometer.engines.torch.modules import Module, seeded
from inferometer.engines.torch.trace import NoRecorder, TraceRecorder, cost_per_kernel, mark_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# What torch's compiler made, kept between runs: a second run of the same model compiles nothing.
#
# The compiler keeps each graph under a hash of the graph, its settings, the processor and its own version, with the
# kernels it built. By default that lies in the folder for temporary files, where it is lost with the next start of the
# machine; here it lies in the user's cache, in a folder for each version of torch. What is traced in Python before a
# graph can be looked up (a few seconds for a large model) is done each time.


@dataclass(slots=True, kw_only=True)
class KeptGraphs:
    """How many graphs came from an earlier run, and how many were compiled, while the context was open."""

    folder: Path
    found: int = 0
    made: int = 0

    @property
    def calls(self) -> Path:
        """Where it is kept which modules each kernel of a graph stands for."""
        return self.folder / "calls"

    @property
    def note(self) -> str | None:
        if not self.found:
            return None
        if not self.made:
            return f"Nothing was compiled: {counted(self.found, 'graph')} came from an earlier run ({self.folder})."
        return f"{counted(self.found, 'graph')} came from an earlier run ({self.folder}), {self.made} were compiled."


def compiled_folder(torch: Any) -> Path:
    return cache_folder() / "compiled" / f"torch-{torch.__version__}"


@contextmanager
def kept_graphs(folder: Path) -> Iterator[KeptGraphs]:
    """Compile into the folder, and take from it what is there."""
    kept = KeptGraphs(folder=folder)
    before = _counts()
    with _directed_to(folder):
        yield kept
    found, made = _counts()
    kept.found, kept.made = found - before[0], made - before[1]


def _directed_to(folder: Path) -> AbstractContextManager[None]:
    """A version of torch without this function keeps its graphs where it likes."""
    try:
        direct = import_module("torch._inductor.runtime.cache_dir_utils").temporary_cache_dir
        folder.mkdir(parents=True, exist_ok=True)
    except (ImportError, AttributeError, OSError):
        return nullcontext()
    directed: AbstractContextManager[None] = direct(str(folder))
    return directed


def _counts() -> tuple[int, int]:
    counts = import_module("torch._dynamo.utils").counters["inductor"]
    return int(counts["fxgraph_cache_hit"]), int(counts["fxgraph_cache_miss"] + counts["fxgraph_cache_bypass"])


def compiled_apart(function: Any) -> Any:
    """The same function with a code object of its own, on which torch.compile keeps what it compiled.

    Otherwise every session and size would share one list of compilations, which is short.
    """
    code = function.__code__.replace(co_name=function.__name__)
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


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


_MODULES = 64  # small ones, called to see how fast the host is: a millisecond
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
        self._stack_of_modules: tuple[Any, Any] | None = None
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

    def module_s(self) -> float | None:
        """Seconds the host takes to call a small module and start its kernel, now; None on a CPU, which starts none.

        Hosts that are shared change their speed by the second, so this is asked between the runs that count.
        """
        if not self.place.cuda:
            return None
        torch, nn = self.torch, self.torch.nn
        if self._stack_of_modules is None:
            with seeded(torch, 0):
                layers = [nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64)] * (_MODULES // 4)
                stack = nn.Sequential(*layers).to(self.place.device, torch.bfloat16).eval()
            self._stack_of_modules = stack, torch.ones((1, 64), device=self.place.device, dtype=torch.bfloat16)
        stack, x = self._stack_of_modules
        with self.running("timing its host"):
            for _ in range(2):  # the first time is that of a host that has done something else
                self.sync()
                start = time.perf_counter()
                stack(x)
                seconds = (time.perf_counter() - start) / _MODULES
            self.sync()
        return seconds

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

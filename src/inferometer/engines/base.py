"""What a runtime is: an engine that loads a model and runs one step at a time.

`probe` answers from package metadata; it never imports the engine. `open` loads. Warm-up, repetition, clocks,
statistics, memory and power belong to `bench` and `measure`, so that every engine is measured by the same code.

A `Session` runs a model that takes arrays and gives arrays. A `TextSession` runs a language model and keeps its cache.
Both are opened twice: plain, for times that nothing disturbs, and with `Target.instrument`, for how they divide among
kernels: the engine's own timers are on, and `kernels` lists what it ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec

from inferometer.core.engine import EngineDescriptor
from inferometer.core.errors import DomainError, FormatError, InferometerError, MissingDependencyError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.formats.trust.door import require_data

if TYPE_CHECKING:
    import re

    import numpy as np

__all__ = [
    "GRAPH_LAUNCH", "Capabilities", "Engine", "Event", "EventKind", "FileNode", "Kernel", "Missing", "Opened", "Port",
    "Ready", "Request", "Runtime", "Session", "Stage", "Target", "TextSession", "instrumented_again", "require_choices",
    "require_format", "require_ready",
]  # fmt: skip


@frozen
class Ready:
    version: str


@frozen
class Missing:
    reason: str
    remedy: str


@frozen
class Capabilities:
    """What can be asked of an engine. `units` are the kinds of unit it can run on: cpu, gpu, npu."""

    units: tuple[str, ...] = ("cpu",)
    per_op: bool = True  # an instrumented session reports the time of each kernel
    perturbs: bool = False  # … by running node by node, which the plain session does not
    arrays: bool = True  # opens models that take and give arrays
    text: bool = False  # opens language models that generate
    logits: bool = False  # a text session gives the logits of every position
    bare: bool = False  # a text session can run its passes with nothing between them
    threads: bool = True  # the number of threads can be chosen
    batches: bool = True  # takes several inputs at once
    precision: tuple[str, ...] = ()  # arithmetics to choose from; empty where it computes in the types of the file
    optimisation: tuple[str, ...] = ()  # levels of graph optimisation, from none to all


@frozen
class FileNode:
    """A node as the file has it: what it is called, what it takes and gives, and how large its first result is."""

    name: str
    kind: str  # as the file calls it: CONV_2D
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    shape: tuple[int, ...] | None = None


@frozen
class Target:
    """What to open, and how. `None` is the engine's own default.

    `unit` is a kind of unit (cpu, gpu, npu), with an index where there are several (gpu:1); `providers` are the
    engine's own names, in order of preference, and overrule it. `options` go to the engine as they are.
    """

    path: Path  # a model file, or a folder with a config
    format: str  # one of the runtime's `formats`
    text: bool = False  # open as a language model: a TextSession
    instrument: bool = False
    watched: bool = False  # plain, but `Session.instrumented` will be asked for: prepare what that needs
    threads: int | None = None
    unit: str | None = None
    providers: tuple[str, ...] = ()
    precision: str | None = None  # the arithmetic to compute in, where the engine lets one choose
    optimisation: str | None = None
    context: int | None = None  # tokens the cache must hold
    batch: int = 1
    seed: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)  # of the dims a file leaves open, by its names for them
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of the inputs that will be fed, by name
    nodes: tuple[FileNode, ...] = ()  # for an engine that does not keep a file's names; empty where they are not known
    options: Mapping[str, str] = field(default_factory=dict)
    trusted: bool = False  # by the owner of the machine: code that the file brings along may run


@frozen
class Port:
    """An input or output. A dim is a number, or the name the file gives to an open one, or None."""

    name: str
    dtype: str  # as numpy names it: float32, int64
    shape: tuple[int | str | None, ...]


@frozen
class Stage:
    """A cost that is paid once, such as load or compile."""

    name: str
    seconds: float


@frozen
class Opened:
    """What was opened. `placed` counts the nodes by where the engine put them (`CPUExecutionProvider`, `gpu` …)."""

    stages: tuple[Stage, ...]
    versions: Mapping[str, str]
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    threads: int | None = None
    unit: str = "cpu"
    placed: Mapping[str, int] = field(default_factory=dict)
    precision: str | None = None  # the arithmetic it really computes in, where it says so
    sums: str | None = None  # what products are added up in, where that is narrower than f32
    notes: tuple[str, ...] = ()  # what a reader of the number should know: a fallback, a random weight
    stored_names: Mapping[str, str] = field(default_factory=dict)  # by the engine's name for a layer, if another


@frozen
class Kernel:
    """Something the engine ran as one piece: a node of the model, or several fused, or one of the engine's own.

    `layers` names the nodes of the model it stands for, as the file names them; empty where the engine does not say.
    One that is the engine's `own` stands for none: it lays out or converts what these layers take or give.
    One sample a step, host clock. Where the device has a clock of its own, `device_s` is what the kernel took there and
    `waited_s` how long the device stood idle before it.
    """

    name: str
    kind: str  # as the engine calls it: Conv, FusedConv, Reorder
    samples_s: tuple[float, ...]
    unit: str = "cpu"
    layers: tuple[str, ...] = ()
    own: bool = False
    provider: str | None = None
    device_s: tuple[float, ...] | None = None
    waited_s: tuple[float, ...] | None = None
    dtype: str | None = None
    bytes: float | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)  # the processor's, of one step: core/machine.py


class Session(Protocol):
    """A loaded model. One step at a time; `step` returns when the device is idle."""

    @property
    def opened(self) -> Opened: ...

    def feed(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Put the inputs where `step` reads them. Wrong names, types or shapes are an error that names them."""

    def step(self) -> None: ...

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """What the last step gave."""

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        """By phase (`forward`): what ran since the last call, in order. Empty where it is not instrumented."""

    @property
    def cost_per_kernel_s(self) -> float | None:
        """What the engine's timers add inside each kernel's own time; None where that is not known."""

    def close(self) -> None: ...


GRAPH_LAUNCH = "graph launch"  # the kind of a kernel that is a device's wait for a whole graph of others


def instrumented_again(session: Any) -> Any | None:
    """The same open model with its timers on, from an engine that need not load and compile it twice; else None.

    Such an engine's sessions have a method `instrumented`. Closing what it returns leaves the plain session open.
    """
    make = getattr(session, "instrumented", None)
    return None if make is None else make()


def look_at_host(session: Any, taken: list[float]) -> None:
    """Add what the host takes now to call a small module, where the session can tell: it has `host_module_s`."""
    look = getattr(session, "host_module_s", None)
    seconds = None if look is None else look()
    if seconds is not None:
        taken.append(seconds)


EventKind = Literal["encode", "prefill", "token"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened while a language model generated.

    `encode` is the pass of an encoder, where the model has one: once, before all else. `prefill` reads the prompt and
    ends with the first token known; each `token` is one more step. `context` tokens were in the cache before it.
    `parts` are seconds inside it, by the names of `core.request.PARTS`. `own_s` are those of the process's own clock,
    if it was told only after the events behind it had happened too.

    It is made between two steps, and so no dataclass: a frozen one took 7 µs on a Neoverse-N1, of a step of 500 µs.
    """

    kind: EventKind
    start_ns: int
    end_ns: int
    tokens: int  # of one sequence: read by a prefill, made by a step; a chunk may hold several
    context: int
    ids: tuple[int, ...] = ()
    text: str | None = None
    parts: Mapping[str, float] = msgspec.field(default_factory=dict)
    own_s: float | None = None


@frozen
class Request:
    """`depth` tokens lie in the cache before the prompt is read; putting them there is not part of the generation.

    `apart`: what takes the events does something between the steps. An engine that is driven a step at a time then
    gives each before it takes the next; otherwise it may give them together, which costs less between the steps.
    `bare`: passes alone, one after the other. Nothing is written, read or chosen between them, no ids are told, and all
    tokens are one event.
    """

    prompt: tuple[int, ...]
    generate: int
    depth: int = 0
    ignore_end: bool = True  # go on after an end-of-text token: the length is part of the question
    apart: bool = False
    bare: bool = False


class TextSession(Protocol):
    """A language model with its cache. It is empty before each `generate`."""

    @property
    def opened(self) -> Opened: ...

    @property
    def vocabulary(self) -> int: ...

    def tokenise(self, text: str) -> tuple[int, ...]:
        """Raises MissingDependencyError, or a DomainError, where the model came without a tokeniser."""

    def detokenise(self, ids: tuple[int, ...]) -> str: ...

    def generate(self, request: Request) -> Iterator[Event]: ...

    def score(self, ids: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Logits after each of the tokens, [tokens, vocabulary]; only where the engine can (`Capabilities.logits`)."""

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        """By phase (`prefill`, `decode`): what ran since the last call, in order, one sample a step."""

    @property
    def cost_per_kernel_s(self) -> float | None: ...

    def close(self) -> None: ...


class Runtime(Protocol):
    """The protocol plug-ins of the group `inferometer.runtimes` keep.

    One that also has an attribute `engine` (an EngineDescriptor, or the path of a TOML file with one) is predicted,
    calibrated and checked as ours are: see known/engines.py.
    """

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def formats(self) -> frozenset[str]:
        """Names of the model formats it loads."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    def probe(self) -> Ready | Missing: ...

    def open(self, target: Target) -> Session | TextSession:
        """Load the model. What the engine refuses is an EngineError with the engine's words and the op it names."""


@frozen
class Engine:
    """A runtime whose engine is a Python package. Its descriptor says what it opens and needs.

    `opener` is the module that imports the package, and its `open_session` is called. `lacks` says what else is
    missing of a package of that version, without importing it.
    """

    engine: EngineDescriptor
    opener: str
    capabilities: Capabilities = field(default_factory=Capabilities)
    lacks: Callable[[str], Missing | None] = lambda _version: None

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def title(self) -> str:
        return self.engine.title

    @property
    def formats(self) -> frozenset[str]:
        return frozenset(self.engine.opens)

    def probe(self) -> Ready | Missing:
        package, module = self.engine.packages[0], str(self.engine.module)
        remedy = f"pip install 'inferometer[{self.engine.extra}]'"
        if find_spec(module) is None:
            return Missing(reason=f"{package} is not installed", remedy=remedy)
        for name in self.engine.packages:  # an engine may come under several names
            with suppress(PackageNotFoundError):
                installed = version(name)
                return self.lacks(installed) or Ready(version=installed)
        return Missing(reason=f"a module {module} is here, but not from the package {package}", remedy=remedy)

    def open(self, target: Target) -> Session | TextSession:
        require_ready(self)
        require_format(self, target)
        require_choices(self, target)
        require_data(target.path, target.format, trusted=target.trusted)
        opened: Session | TextSession = import_module(self.opener).open_session(target, self.name)
        return opened


def require_ready(runtime: Runtime) -> None:
    state = runtime.probe()
    if isinstance(state, Missing):
        raise MissingDependencyError(f"{runtime.title} cannot be used: {state.reason}.", remedy=state.remedy)


def require_format(runtime: Runtime, target: Target) -> None:
    if target.format not in runtime.formats:
        takes = ", ".join(sorted(runtime.formats))
        raise FormatError(
            f"{runtime.title} was given {str(target.path)!r}, a {target.format} model; it opens {takes}.",
            remedy="Choose a runtime that opens it (`inferometer runtimes`), or a model in another format.",
        )


def require_choices(runtime: Runtime, target: Target) -> None:
    """Refuse what the engine does not let one choose: ignored, it would leave the numbers of something else."""
    can = runtime.capabilities
    for word, asked, known, without in (
        ("precision", target.precision, can.precision, "It computes in the types of the file."),
        ("optimisation", target.optimisation, can.optimisation, "It has no levels of graph optimisation."),
    ):
        if asked is None or asked in known:
            continue
        if known:
            raise UnknownNameError(word, asked, known, listing=f"{runtime.title} has {', '.join(known)}.")
        raise DomainError(
            f"{runtime.title} was asked for the {word} {asked!r}. {without}",
            remedy="Leave it out, or choose another runtime.",
        )


# An engine's exceptions become errors of ours, which name the operator where the engine does.


@contextmanager
def guard(fault_of: Callable[[Path, str, Exception], Exception], path: Path, doing: str) -> Iterator[None]:
    """An engine's exception becomes what `fault_of` makes of it; ours and the interpreter's pass."""
    try:
        yield
    except (InferometerError, MemoryError):
        raise
    except Exception as error:  # engines' exceptions have no common root but this
        raise fault_of(path, doing, error) from error


def op_named(words: str, patterns: Iterable[re.Pattern[str]], *, which: int) -> str | None:
    """The operator, and the node, that a message speaks of; `which` of several, as in a list."""
    for pattern in patterns:
        matches = list(pattern.finditer(words))
        if matches:
            parts = matches[which].groupdict()
            return f"{parts['op']} (node {parts['node']!r})" if parts.get("node") else parts["op"]
    return None


# An engine's own kernels and the layers they work for.
#
# An engine lays tensors out anew, or converts their numbers, because the kernel that takes them wants them so. No node
# of the model stands for that; its time belongs to the layer that takes the result.

# Two lists that keep one order, laid side by side.

A = TypeVar("A")
B = TypeVar("B")


def longest_pairing(left: Sequence[A], right: Sequence[B], fits: Callable[[A, B], bool]) -> list[tuple[A, B]]:
    """The longest list of fitting pairs that keeps both orders: the classic table, filled from the end."""
    fitting = [[fits(one, other) for other in right] for one in left]
    best = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for row in range(len(left) - 1, -1, -1):
        line, below = best[row], best[row + 1]
        for column in range(len(right) - 1, -1, -1):
            with_it = below[column + 1] + 1 if fitting[row][column] else 0
            line[column] = max(with_it, below[column], line[column + 1])
    pairs, row, column = [], 0, 0
    while row < len(left) and column < len(right):
        if fitting[row][column] and best[row][column] == best[row + 1][column + 1] + 1:
            pairs.append((left[row], right[column]))
            row, column = row + 1, column + 1
        elif best[row + 1][column] >= best[row][column + 1]:
            row += 1
        else:
            column += 1
    return pairs


def served(takers: Mapping[str, Sequence[str]], layers: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """For each kernel of `takers` without layers of its own, those of the first kernel that takes its result.

    `takers` stand in the order of execution. What only the model's outputs take serves the layer that made it.
    """
    makers: dict[str, str] = {}
    for kernel, following in takers.items():
        for taker in following:
            makers.setdefault(taker, kernel)
    served_layers: dict[str, tuple[str, ...]] = {}
    for kernel in reversed(list(takers)):
        if not layers.get(kernel):
            served_layers[kernel] = next(
                filter(None, (layers.get(taker) or served_layers.get(taker) for taker in takers[kernel])), ()
            )
    for kernel in takers:
        if served_layers.get(kernel) == ():
            maker = makers.get(kernel, "")
            served_layers[kernel] = layers.get(maker) or served_layers.get(maker, ())
    return {kernel: names for kernel, names in served_layers.items() if names}
